"""Document -> one HTML file that needs nothing else: styles inside, pictures as data, formulas as MathML, no script."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from html import escape

from docvino.document import Block, Cell, Document, Page
from docvino.render.flow import (
    Piece,
    east_asian,
    is_east_asian,
    language,
    page_pieces,
    pages_to_read,
    table_cells,
    width_share,
    without_controls,
)
from docvino.render.formulas import to_mathml
from docvino.text import math

_STYLE = """
body { max-width: 50rem; margin: 2rem auto; padding: 0 1rem; font-family: serif; line-height: 1.5; }
section + section { border-top: 1px solid #bbb; margin-top: 2rem; }
.number { float: right; color: #777; font-size: .8rem; text-decoration: none; }
table { border-collapse: collapse; margin: 1rem auto; }
td { border: 1px solid #777; padding: .2rem .5rem; vertical-align: top; }
figure { margin: 1rem 0; text-align: center; }
img { max-width: 100%; }
.caption { text-align: center; font-size: .9rem; }
.formula { overflow: auto hidden; padding: .2rem 0; text-align: center; }
.tag { float: right; }
.failed { color: #a00; }
@media print {
  body { max-width: none; margin: 0; }
  h1, h2, h3, h4, h5, h6, figure:has(+ .caption), .caption:has(+ :is(table, figure)) { break-after: avoid; }
  figure, tr, li, .formula { break-inside: avoid; }
}
""".strip()

# Nothing of the file may run or load anything, whatever the document said.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def to_html(document: Document, pictures: Mapping[str, bytes] | None = None) -> str:
    """The whole file as text.

    pictures   block id -> PNG of figures; a figure without one is left out
    """
    return "".join(html_parts(document, pictures or {}))


def html_parts(document: Document, pictures: Mapping[str, bytes]) -> Iterator[str]:
    """The file page by page, so that no more than one page's pictures are in memory."""
    title = escape(without_controls(document.source.name))
    whole = language(document)
    # A few Chinese characters in a text of Latin letters are shown as such where they stand.
    script = east_asian(document) if whole == "und" else None
    yield (
        f'<!DOCTYPE html>\n<html lang="{whole}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>\n{_STYLE}\n</style>\n</head>\n<body>\n"
    )
    for page in pages_to_read(document):
        number = page.page_index + 1
        yield f'<section id="page-{number}">\n<a class="number" href="#page-{number}">{number}</a>\n'
        if page.error is not None:
            yield f'<p class="failed">{escape(without_controls(page.error))}</p>\n'
        yield from (_elsewhere(block) for block in page.blocks if block.continues is not None)
        yield from _body(page, pictures, script)
        yield "</section>\n"
    yield "</body>\n</html>\n"


def _elsewhere(part: Block) -> str:
    """A link to the table that the rows of this one were put into."""
    return f'<a class="number" id="{escape(part.id)}" href="#{escape(part.continues or "")}">↑</a>\n'


def _body(page: Page, pictures: Mapping[str, bytes], script: str | None) -> Iterator[str]:
    in_list = False
    anchored: set[str] = set()
    for piece in page_pieces(page):
        if in_list != (piece.kind == "item"):
            yield "</ul>\n" if in_list else "<ul>\n"
            in_list = not in_list
        # A block of several pieces has its anchor at the first one.
        anchor = "" if piece.block.id in anchored else f' id="{escape(piece.block.id)}"'
        anchored.add(piece.block.id)
        if script is not None and is_east_asian(piece.block.content):
            anchor += f' lang="{script}"'
        yield _element(piece, page, pictures, anchor)
    if in_list:
        yield "</ul>\n"


def _element(piece: Piece, page: Page, pictures: Mapping[str, bytes], anchor: str) -> str:
    """
    anchor   attributes of the element, with a blank before each
    """
    if piece.kind == "picture":
        return _picture(piece, page, pictures, anchor)
    if piece.kind == "table":
        return _table(table_cells(piece.block), pictures, anchor)
    if piece.kind == "formula":
        number = f'<span class="tag">{escape(piece.number, quote=False)}</span>' if piece.number else ""
        return f'<div class="formula"{anchor}>{number}{_formula(piece.text, display=True)}</div>\n'
    if piece.kind in ("rows", "lines"):
        rows = "<br>\n".join(_text(row.replace("\t", "\u2003")) for row in piece.text.split("\n"))
        return f"<p{anchor}>{rows}</p>\n"
    if piece.kind == "caption":
        return f'<p class="caption"{anchor}>{_text(piece.text)}</p>\n'
    tag = {"title": f"h{piece.level}", "item": "li"}.get(piece.kind, "p")
    return f"<{tag}{anchor}>{_text(piece.text)}</{tag}>\n"


def _picture(piece: Piece, page: Page, pictures: Mapping[str, bytes], anchor: str) -> str:
    png = pictures.get(piece.block.id)
    if png is None:
        return ""
    style = f' style="width: {round(100 * width_share(piece.block.polygons[0], page))}%"'
    return f"<figure{anchor}>{_image(png, piece.block.label, style)}</figure>\n"


def _image(png: bytes, label: str, style: str = "") -> str:
    data = base64.b64encode(png).decode("ascii")
    return f'<img src="data:image/png;base64,{data}" alt="{escape(label)}"{style}>'


def _table(cells: tuple[Cell, ...], pictures: Mapping[str, bytes], anchor: str) -> str:
    rows: dict[int, list[Cell]] = {row: [] for row in range(max(cell.row + cell.row_span for cell in cells))}
    for cell in cells:
        rows[cell.row].append(cell)
    body = "".join(
        f"<tr>{''.join(_td(cell, pictures) for cell in sorted(row, key=lambda cell: cell.column))}</tr>\n"
        for row in rows.values()
    )
    return f"<table{anchor}>\n{body}</table>\n"


def _td(cell: Cell, pictures: Mapping[str, bytes]) -> str:
    spans = f' rowspan="{cell.row_span}"' if cell.row_span > 1 else ""
    spans += f' colspan="{cell.column_span}"' if cell.column_span > 1 else ""
    images = "".join(_image(png, "image") for name in cell.figures if (png := pictures.get(name)) is not None)
    return f"<td{spans}>{_text(without_controls(cell.text))}{images}</td>"


def _text(text: str) -> str:
    return "".join(
        escape(piece, quote=False) if kind == "text" else _formula(piece, display=kind == "display")
        for kind, piece in math.split(text)
    )


def _formula(latex: str, *, display: bool) -> str:
    """MathML; LaTeX as it was read where it is none."""
    return to_mathml(latex, display=display) or f"<code>{escape(latex, quote=False)}</code>"
