"""A table in HTML of somebody else -> cells. However large its spans claim to be, its grid is bounded."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

from docvino.document import Cell
from docvino.serve.problems import RefusalError

MOST_PLACES = 100_000
_MOST_COLUMNS_OF_CELL = 1000  # as HTML has it
_NUMBER = re.compile(r"\s*(\d{1,9})")


@dataclass
class _Raw:
    """A cell as it is written: its spans, its letters, and its HTML without comments."""

    row_span: int
    column_span: int
    text: list[str] = field(default_factory=list)
    inner: list[str] = field(default_factory=list)


def parse_table(content: str, most_places: int = MOST_PLACES) -> tuple[tuple[Cell, ...], str]:
    """The cells, placed as browsers do, and the table written anew: `<table>`, one line a row.

    Raises: RefusalError for a grid of more than `most_places`.
    """
    reader = _Reader(most_places)
    reader.feed(content)
    reader.close()
    rows = reader.rows
    taken: set[tuple[int, int]] = set()
    cells = []
    for row, raws in enumerate(rows):
        column = 0
        for raw in raws:
            while (row, column) in taken:
                column += 1
            down = min(raw.row_span or len(rows), len(rows) - row)
            places = down * raw.column_span
            if len(taken) + places > most_places:
                raise _too_large(most_places)
            taken.update((r, c) for r in range(row, row + down) for c in range(column, column + raw.column_span))
            text = " ".join("".join(raw.text).split())
            cells.append(Cell(row=row, column=column, row_span=down, column_span=raw.column_span, text=text))
            column += raw.column_span
    lines = ["<tr>" + "".join(map(_written, raws)) + "</tr>" for raws in rows]
    return tuple(cells), "\n".join(["<table>", *lines, "</table>"])


def _written(raw: _Raw) -> str:
    spans = "".join(
        f' {name}="{value}"' for name, value in (("rowspan", raw.row_span), ("colspan", raw.column_span)) if value != 1
    )
    return f"<td{spans}>{''.join(raw.inner)}</td>"


def _too_large(most_places: int) -> RefusalError:
    return RefusalError(
        422, "table_too_large", f"a table has more than {most_places} places", fix="send it in parts, or without it"
    )


class _Reader(HTMLParser):
    def __init__(self, most_cells: int) -> None:
        super().__init__(convert_charrefs=True)
        self.rows: list[list[_Raw]] = []
        self._cell: _Raw | None = None
        self._most_cells = self._left = most_cells

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("table", "thead", "tbody", "tfoot"):
            self._cell = None
        elif tag == "tr":
            self._spend()
            self.rows.append([])
            self._cell = None
        elif tag in ("td", "th"):
            self._spend()
            if not self.rows:
                self.rows.append([])
            own = dict(attrs)
            self._cell = _Raw(_span(own.get("rowspan"), least=0), min(_span(own.get("colspan")), _MOST_COLUMNS_OF_CELL))
            self.rows[-1].append(self._cell)
        elif self._cell is not None:
            self._cell.inner.append(self.get_starttag_text() or "")
            if tag == "br":
                self._cell.text.append(" ")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th", "tr", "table"):
            self._cell = None
        elif self._cell is not None and tag not in ("thead", "tbody", "tfoot"):
            self._cell.inner.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.text.append(data)
            self._cell.inner.append(html.escape(data, quote=False))

    def _spend(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise _too_large(self._most_cells)


def _span(text: str | None, least: int = 1) -> int:
    found = _NUMBER.match(text or "")
    return max(least, int(found[1])) if found else 1
