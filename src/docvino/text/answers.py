"""What a vision-language model answers about one crop -> what a block holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from docvino.document import Cell, ContentFormat, Line, Task
from docvino.text import charts, loops, math, otsl, spotting
from docvino.text.tables import Table


@dataclass(frozen=True)
class Interpreted:
    r"""An answer as a block holds it.

    content    text with formulas as `\(x\)` and `\[x\]`; `<table>`; or formulas in LaTeX without delimiters, with an
               empty line between two of them
    format     which of these; "none" when there is no content
    cells      of a table or a chart
    lines      in crop pixels, of a spotting answer
    warnings   what is not as it should be, in words
    was_cut    the answer ended in a loop, of which one copy is left
    """

    content: str
    format: ContentFormat
    cells: tuple[Cell, ...] = ()
    lines: tuple[Line, ...] = ()
    warnings: tuple[str, ...] = ()
    was_cut: bool = False


def interpret(task: Task, text: str, width_px: int, height_px: int, *, confidence: float) -> Interpreted:
    """The answer to one task, without loops; no text of it is lost but the copies of a loop.

    The size is that of the crop, `confidence` that of the whole answer; both are for places of lines only.

    Source: the order of PaddleX 3.7.2: loops, formulas, then tables or places. Seals are plain text.
    """
    kept, was_cut = loops.cut(text.strip().removesuffix("</s>"), table=task == "table")
    if task == "table":
        found = _table(otsl.parse(kept), kept.replace(otsl.ROW_END, "\n"), "table")
    elif task == "chart":
        found = _table(charts.parse(kept), kept, "chart")
    elif task == "formula":
        found = _formula(kept)
    elif task == "spotting":
        found = _spotted(spotting.parse(kept, width_px, height_px, confidence=confidence))
    else:
        found = _text(kept)
    if was_cut:
        found = replace(found, warnings=("the answer repeated itself and was cut", *found.warnings))
    return replace(found, was_cut=was_cut)


def _table(table: Table, text: str, name: str) -> Interpreted:
    """The table, or the text where there is no table in it."""
    warnings = tuple(f"{name}: {warning}" for warning in table.warnings)
    if not table.cells:
        found = _text(text)
        return replace(found, warnings=(*warnings, *found.warnings))
    cells = tuple(cell.model_copy(update={"text": math.delimited(cell.text)}) for cell in table.cells)
    faults = _faults(formula for cell in cells for formula in _formulas_in(cell.text))
    return Interpreted(Table(cells).html, "html", cells=cells, warnings=(*warnings, *faults))


def _formula(text: str) -> Interpreted:
    found = math.formulas(text)
    return Interpreted("\n\n".join(found), "latex" if found else "none", warnings=_faults(found))


def _spotted(spotted: spotting.Spotted) -> Interpreted:
    found = _text("\n\n".join(spotted.texts))
    return replace(found, lines=spotted.lines, warnings=(*spotted.warnings, *found.warnings))


def _text(text: str) -> Interpreted:
    content = math.delimited(text).strip()
    return Interpreted(content, "text" if content else "none", warnings=_faults(_formulas_in(content)))


def _formulas_in(text: str) -> Iterator[str]:
    return (piece for kind, piece in math.split(text) if kind != "text")


def _faults(formulas: Iterable[str]) -> tuple[str, ...]:
    """What is wrong with them, each fault once."""
    return tuple(f"formula: {fault}" for fault in dict.fromkeys(f for part in formulas for f in math.faults(part)))
