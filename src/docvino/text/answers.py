"""What a vision-language model answers about one crop -> what a block holds."""

from __future__ import annotations

from dataclasses import dataclass

from docvino.document import Cell, ContentFormat, Line, Task
from docvino.text import otsl


@dataclass(frozen=True)
class Interpreted:
    """An answer as a block holds it.

    content    text, `<table>` or LaTeX, as `format` says; "none" when there is nothing
    cells      of a table or a chart
    lines      with places in crop pixels, when the task asks for them
    warnings   what is not as it should be, in words
    """

    content: str
    format: ContentFormat
    cells: tuple[Cell, ...] = ()
    lines: tuple[Line, ...] = ()
    warnings: tuple[str, ...] = ()


def interpret(task: Task, text: str) -> Interpreted:
    """The answer to one task."""
    if task == "table":
        return _table(text)
    return _text(text)


def _table(text: str) -> Interpreted:
    table = otsl.parse(text)
    warnings = tuple(f"table: {warning}" for warning in table.warnings)
    if table.cells:
        return Interpreted(table.html, "html", cells=table.cells, warnings=warnings)
    # Not a table at all; ends of rows are all the tags that there can be.
    return _text(text.replace(otsl.ROW_END, "\n"), warnings)


def _text(text: str, warnings: tuple[str, ...] = ()) -> Interpreted:
    content = text.strip()
    return Interpreted(content, "text" if content else "none", warnings=warnings)
