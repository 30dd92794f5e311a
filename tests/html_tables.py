"""Tables as HTML, read without docvino: rows of cells, and the cells in their places."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

from docvino.document import Cell


@dataclass
class Node:
    """A table, a row, a cell; of a cell its spans (rows, columns) and its text."""

    tag: str
    spans: tuple[int, int] = (1, 1)
    text: str = ""
    children: list[Node] = field(default_factory=list)

    @property
    def size(self) -> int:
        return 1 + sum(child.size for child in self.children)


class Tree(HTMLParser):
    """A table as TEDS compares it: rows of cells, each with spans and text; heads and bodies of tables are left out."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.rows: list[list[tuple[int, int, str]]] = []
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            spans = dict(attrs)
            self.rows[-1].append((int(spans.get("rowspan") or 1), int(spans.get("colspan") or 1), ""))
            self.inside = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            high, wide, text = self.rows[-1][-1]
            self.rows[-1][-1] = high, wide, " ".join(text.split())
            self.inside = False

    def handle_data(self, data: str) -> None:
        if self.inside:
            high, wide, text = self.rows[-1][-1]
            self.rows[-1][-1] = high, wide, text + data

    @property
    def cells(self) -> tuple[Cell, ...]:
        """By the HTML rule: a cell takes the next place of its row that no span covers."""
        taken: set[tuple[int, int]] = set()
        cells = []
        for row, found in enumerate(self.rows):
            column = 0
            for high, wide, text in found:
                while (row, column) in taken:
                    column += 1
                taken |= {(r, c) for r in range(row, row + high) for c in range(column, column + wide)}
                cells.append(Cell(row=row, column=column, row_span=high, column_span=wide, text=text))
        return tuple(cells)


def tree_of(text: str, *, parts: bool) -> Node:
    """The first table of the HTML; `<th>` is `<td>`. With `parts` `<thead>` and `<tbody>` are nodes."""
    parser = _TreeOf(parts=parts)
    parser.feed(text)
    return parser.table


class _TreeOf(HTMLParser):
    def __init__(self, *, parts: bool) -> None:
        super().__init__(convert_charrefs=True)
        self.table = Node("table")
        self._parts = parts
        self._rows = self.table
        self._cell: Node | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("thead", "tbody") and self._parts:
            self._rows = Node(tag)
            self.table.children.append(self._rows)
        elif tag == "tr":
            self._rows.children.append(Node("tr"))
        elif tag in ("td", "th"):
            spans = dict(attrs)
            self._cell = Node("td", (int(spans.get("rowspan") or 1), int(spans.get("colspan") or 1)))
            self._rows.children[-1].children.append(self._cell)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("thead", "tbody"):
            self._rows = self.table
        elif tag in ("td", "th") and self._cell is not None:
            self._cell.text = " ".join(self._cell.text.split())
            self._cell = None

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.text += data
