"""OTSL, the table language of PaddleOCR-VL <-> cells.

`<fcel>` begins a cell with text, `<ecel>` an empty one; `<lcel>` belongs to the cell on its left, `<ucel>` to the one
above, `<xcel>` to both; `<nl>` ends a row. Nothing that the model wrote between the tags is lost.

Source: PaddleX 3.7.2, `convert_otsl_to_html` of the pipeline PaddleOCR-VL, as rules; the code is docvino's own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from docvino.document import Cell
from docvino.errors import InputError
from docvino.text.tables import Table

ROW_END = "<nl>"
FILLED, EMPTY, LEFT, UP, BOTH = "<fcel>", "<ecel>", "<lcel>", "<ucel>", "<xcel>"

_STARTS = (FILLED, EMPTY)
_CELL_TAG = re.compile("(<[felux]cel>)")
_ANY_TAG = re.compile("<(?:[felux]cel|nl)>")
_NAMED = 5  # places that a warning names; of more, it says how many

_Spot = tuple[int, int]


@dataclass
class _Piece:
    """One tag of a row and the text that follows it."""

    tag: str
    text: str

    @property
    def kept(self) -> bool:
        """True when the table must not be so narrow that this is cut off."""
        return self.tag == FILLED or bool(self.text)


def parse(otsl: str) -> Table:
    """The cells that the text describes, row by row, and in `warnings` what is not as in a sound table.

    No cells when the text has no cell tag. Rows are made as wide as most of them are, but none is cut where it has
    text. A place that belongs to no cell becomes an empty one.

    Differs: an `<fcel>` without text is an empty cell (upstream prints the tag of the next as its text); text before
    the first tag of a row, in a row without tags and behind `<ecel>`, `<lcel>`, `<ucel>`, `<xcel>` is kept (upstream
    drops it); cells never lie upon each other (upstream lets spans overlap, so that the HTML has rows too wide).
    """
    if not _CELL_TAG.search(otsl):
        return Table((), ("it has no tags of a table",) if otsl.strip() else ())
    rows, faults = _rows(otsl)
    faults += _rectangle(rows, ended=otsl.rstrip().endswith(ROW_END))
    cells, more = _cells(rows)
    return Table(cells, tuple(faults + more))


def to_otsl(cells: Iterable[Cell]) -> str:
    """The text that `parse` reads as these cells; every row ends with `<nl>`.

    Places that no cell covers become `<ecel>`.

    Raises: InputError for cells that lie upon each other and for a text that holds a tag of the language.
    """
    grid: dict[_Spot, str] = {}
    for cell in cells:
        if _ANY_TAG.search(cell.text):
            raise InputError(f"the cell text {cell.text!r} holds a tag of OTSL", fix="leave the tag out")
        text = cell.text.strip()
        for row in range(cell.row, cell.row + cell.row_span):
            for column in range(cell.column, cell.column + cell.column_span):
                if (row, column) in grid:
                    raise InputError(
                        f"two cells lie at row {row + 1}, column {column + 1}", fix="correct the spans of the table"
                    )
                below, right = row > cell.row, column > cell.column
                own = FILLED + text if text else EMPTY
                grid[row, column] = BOTH if below and right else UP if below else LEFT if right else own
    height = max((row for row, _ in grid), default=-1) + 1
    width = max((column for _, column in grid), default=-1) + 1
    return "".join(
        "".join(grid.get((row, column), EMPTY) for column in range(width)) + ROW_END for row in range(height)
    )


def _rows(otsl: str) -> tuple[list[list[_Piece]], list[str]]:
    """Tags with their texts, row by row; rows with neither are left out. Source: step A of upstream."""
    rows: list[list[_Piece]] = []
    outside = []
    for line in otsl.split(ROW_END):
        before, *rest = (part.strip() for part in _CELL_TAG.split(line))
        row = [_Piece(tag, text) for tag, text in zip(rest[::2], rest[1::2], strict=True)]
        if before:
            outside.append(len(rows))
            if row:
                row[0].text = f"{before} {row[0].text}".strip()
            else:
                row = [_Piece(FILLED, before)]
        if row:
            rows.append(row)
    faults = [f"text before the first cell of {_row_names(outside)} was put into it"] if outside else []
    return rows, faults


def _rectangle(rows: list[list[_Piece]], *, ended: bool) -> list[str]:
    """Makes all rows equally wide, in place; says which were not.

    Source: step A of upstream: of all widths that cut no filled cell, the one with the fewest cells to add and to cut,
    the smallest of several. That is the lower median, or the least possible.
    """
    totals = [len(row) for row in rows]
    least = max(index + 1 for row in rows for index, piece in enumerate(row) if index == 0 or piece.kept)
    width = max(least, sorted(totals)[(len(totals) - 1) // 2])
    faults = []
    short = [index for index, total in enumerate(totals) if total < width]
    if short and not ended and short[-1] == len(rows) - 1:
        faults.append(f"the last row is not finished: it has {totals[short.pop()]} of {width} cells")
    if short:
        faults.append(f"{_row_names(short)} had fewer than {width} cells")
    if long := [index for index, total in enumerate(totals) if total > width]:
        faults.append(f"{_row_names(long)} had more than {width} cells; those without text at their ends were left out")
    for row in rows:
        row[width:] = [_Piece(EMPTY, "") for _ in range(width - len(row))]
    return faults


def _cells(rows: Sequence[Sequence[_Piece]]) -> tuple[tuple[Cell, ...], list[str]]:
    """Source: step B of upstream: a span is as long as the run of tags that continue it, to the right and down."""
    owner: dict[_Spot, _Spot] = {}
    spans: dict[_Spot, tuple[int, int]] = {}
    orphans: list[_Spot] = []
    for row, pieces in enumerate(rows):
        for column, piece in enumerate(pieces):
            spot = row, column
            if piece.tag in _STARTS:
                spans[spot] = _span(rows, spot, owner)
            elif spot not in owner:
                orphans.append(spot)
                spans[spot] = 1, 1
            else:
                continue
            high, wide = spans[spot]
            owner.update({(r, c): spot for r in range(row, row + high) for c in range(column, column + wide)})
    texts: dict[_Spot, list[str]] = {}
    for spot, first in owner.items():
        if text := rows[spot[0]][spot[1]].text:
            texts.setdefault(first, []).append(text)
    cells = tuple(
        Cell(row=row, column=column, row_span=high, column_span=wide, text=" ".join(texts.get((row, column), ())))
        for (row, column), (high, wide) in sorted(spans.items())
    )
    return cells, _disagreements(rows, owner, orphans)


def _span(rows: Sequence[Sequence[_Piece]], spot: _Spot, taken: Collection[_Spot]) -> tuple[int, int]:
    """Rows and columns of the cell that begins here: as far as its tags run and no other cell is met."""
    row, column = spot
    width = len(rows[row])
    right = takewhile(
        lambda c: rows[row][c].tag in (LEFT, BOTH) and (row, c) not in taken,
        range(column + 1, width),
    )
    columns = range(column, column + 1 + sum(1 for _ in right))
    down = takewhile(
        lambda r: (
            rows[r][column].tag in (UP, BOTH)
            and all(rows[r][c].tag not in _STARTS and (r, c) not in taken for c in columns)
        ),
        range(row + 1, len(rows)),
    )
    return 1 + sum(1 for _ in down), len(columns)


def _disagreements(rows: Sequence[Sequence[_Piece]], owner: dict[_Spot, _Spot], orphans: Sequence[_Spot]) -> list[str]:
    """What the tags say against the cells that were made of them."""
    wrong, stray = [], []
    for spot, first in sorted(owner.items()):
        piece = rows[spot[0]][spot[1]]
        below, right = spot[0] > first[0], spot[1] > first[1]
        if (below or right) and piece.tag != (BOTH if below and right else UP if below else LEFT):
            wrong.append(spot)
        if piece.text and piece.tag != FILLED:
            stray.append(spot)
    faults = []
    if orphans:
        faults.append(f"no cell reaches to {_spot_names(orphans)}, which should continue one")
    if wrong:
        faults.append(f"the spans around {_spot_names(wrong)} do not agree")
    if stray:
        faults.append(f"there was text at {_spot_names(stray)}, where no cell with text begins")
    return faults


def _row_names(rows: Sequence[int]) -> str:
    return _listed([f"row {row + 1}" for row in rows])


def _spot_names(spots: Sequence[_Spot]) -> str:
    return _listed([f"row {row + 1} column {column + 1}" for row, column in spots])


def _listed(names: Sequence[str]) -> str:
    if len(names) > _NAMED:
        return f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
