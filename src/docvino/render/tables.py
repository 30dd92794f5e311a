"""The tables of a document, as rows of texts: what spreadsheets are made of."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence

from docvino.document import Block, Cell, Document
from docvino.render.flow import page_pieces, pages_to_read, table_cells, without_controls

BYTE_ORDER_MARK = "\ufeff"  # without it Excel takes UTF-8 for the local code page

# What a spreadsheet would run as a formula. A number or a dash alone is none.
_FORMULA = re.compile(r"[=@]|[+-](?![\d\s.,()%/-]*$)")


def tables_of(document: Document) -> Iterator[tuple[int, Block, tuple[Cell, ...]]]:
    """(page number, block, cells) of each table in reading order; one without a known structure is there row by row."""
    for page in pages_to_read(document):
        for piece in page_pieces(page):
            if piece.kind == "table":
                yield page.page_index + 1, piece.block, table_cells(piece.block)
            elif piece.kind == "rows":
                rows = enumerate(piece.text.split("\n"))
                cells = ((row, column, text) for row, line in rows for column, text in enumerate(line.split("\t")))
                made = tuple(Cell(row=row, column=column, text=text) for row, column, text in cells)
                yield page.page_index + 1, piece.block, made


def rows_of(cells: Sequence[Cell]) -> list[list[str]]:
    """The texts in a full grid: that of a cell with spans in its first place, the others empty."""
    height = max(cell.row + cell.row_span for cell in cells)
    width = max(cell.column + cell.column_span for cell in cells)
    rows = [[""] * width for _ in range(height)]
    for cell in cells:
        rows[cell.row][cell.column] = " ".join(without_controls(cell.text).split())
    return rows


def to_csv(cells: Sequence[Cell]) -> str:
    """One table as CSV (RFC 4180). A text that a spreadsheet would run as a formula gets an apostrophe before it."""
    stream = io.StringIO()
    csv.writer(stream).writerows([[_harmless(text) for text in row] for row in rows_of(cells)])
    return stream.getvalue()


def _harmless(text: str) -> str:
    return f"'{text}" if _FORMULA.match(text) else text
