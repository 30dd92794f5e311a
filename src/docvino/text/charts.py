"""The data of a chart, one line a row with `|` between the cells, the first line its header -> cells.

Source: PaddleX 3.7.2, the chart rule of its Markdown writer, as a rule; the code is docvino's own.
"""

from __future__ import annotations

import re

from docvino.document import Cell
from docvino.text.tables import Table

_BORDER = "|"
_RULE = re.compile(r"\|?(\s*:?-{3,}:?\s*\|)+(\s*:?-{3,}:?\s*)?")  # the line under a Markdown table's header


def parse(text: str) -> Table:
    """Cells, row by row; none when no line has a `|`.

    Rows that are shorter than the longest one get empty cells at their ends, and a warning says so.

    Differs: upstream keeps the lines as they are in its result, makes a table of them in Markdown only, and does not
    escape their text there.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not any(_BORDER in line for line in lines):
        return Table((), ("it is no table",) if lines else ())
    if len(lines) > 1 and _RULE.fullmatch(lines[1]):
        del lines[1]
    rows = [[part.strip() for part in line.split(_BORDER)] for line in lines]
    # Borders at both sides of every row are Markdown's frame, no empty columns.
    framed = [row for row in rows if len(row) > 1]
    if framed and all(len(row) > 2 and row[0] == row[-1] == "" for row in framed):
        rows = [row[1:-1] if len(row) > 1 else row for row in rows]
    width = max((len(row) for row in rows), default=0)
    short = sum(1 for row in rows if len(row) < width)
    cells = tuple(
        Cell(row=number, column=column, text=part)
        for number, row in enumerate(rows)
        for column, part in enumerate(row + [""] * (width - len(row)))
    )
    return Table(cells, (f"{short} of its {len(rows)} rows had fewer than {width} cells",) if short else ())
