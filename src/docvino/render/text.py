"""Document -> plain text."""

from __future__ import annotations

from itertools import groupby

from docvino.document import Document, Page
from docvino.render.flow import Piece, page_pieces, pages_to_read, table_cells
from docvino.render.tables import rows_of

PAGE_BREAK = "\f"  # ends a page, as in the text of pdftotext


def to_text(document: Document) -> str:
    r"""Paragraphs with an empty line between them, tables with tabs, formulas in LaTeX, a form feed between pages."""
    return PAGE_BREAK.join(page_text(page) for page in pages_to_read(document))


def page_text(page: Page) -> str:
    """The text of one page; it ends with a line feed unless it is empty."""
    written = []
    for are_items, pieces in groupby(page_pieces(page), key=lambda piece: piece.kind == "item"):
        texts = [text for text in map(_written, pieces) if text]
        written += ["\n".join(texts)] if are_items else texts
    return "\n\n".join(written) + "\n" if written else ""


def _written(piece: Piece) -> str:
    if piece.kind == "table":
        return "\n".join("\t".join(row).rstrip("\t") for row in rows_of(table_cells(piece.block)))
    if piece.number:
        return f"{piece.text}\t{piece.number}"
    return f"• {piece.text}" if piece.kind == "item" else piece.text
