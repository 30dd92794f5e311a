"""Document -> a Word file: headings, lists, real tables, pictures, formulas. The only file that uses python-docx."""

from __future__ import annotations

import io
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import docx
from docx.enum.table import WD_TABLE_ALIGNMENT
from docx.enum.text import WD_ALIGN_PARAGRAPH, WD_TAB_ALIGNMENT
from docx.oxml import OxmlElement, parse_xml
from docx.oxml.ns import qn
from docx.shared import Pt

from docvino.document import Cell, Document, Page
from docvino.render.flow import (
    Piece,
    east_asian,
    page_pieces,
    pages_to_read,
    table_cells,
    width_share,
    without_controls,
)
from docvino.render.formulas import to_omml
from docvino.text import math

# What Word has on every machine for scripts that its usual typefaces lack.
_TYPEFACES = {"zh": "SimSun", "ja": "MS Mincho", "ko": "Malgun Gothic"}
_LOCALES = {"zh": "zh-CN", "ja": "ja-JP", "ko": "ko-KR"}

_A4_PT = (595, 842)  # where the source does not tell the size of its pages
_SIDES_PT = (144, 1584)  # Source: Word's specifications, at most 22 inches; on less than two there is no room for text
_MARGIN_PT = 72
_MARGIN_SHARE = 0.12  # of the width of a small page

_LETTER_PT = 7.5  # of a wide typeface in the usual size: what is too narrow breaks words and numbers
_PADDING_PT = 14  # of a cell, both sides together
_WIDEST_LETTERS = 60  # what a column asks for at most: longer texts are wrapped

# Kinds of pieces between which no page ends.
_TOGETHER = frozenset({("picture", "caption"), ("caption", "picture"), ("caption", "table"), ("caption", "rows")})


def to_docx(document: Document, pictures: Mapping[str, bytes] | None = None) -> bytes:
    """The Word file. A formula that cannot be read stands there in LaTeX.

    pictures   block id -> PNG of figures; a figure without one is left out
    """
    made = docx.Document()
    _set_page(made, document.pages)
    _set_east_asian(made, east_asian(document))
    made.styles["Caption"].paragraph_format.alignment = WD_ALIGN_PARAGRAPH.CENTER
    made.core_properties.author = "docvino"
    made.core_properties.title = without_controls(document.source.name)[:255]
    made.core_properties.comments = ""  # the template's own
    for page in pages_to_read(document):
        pieces = [piece for piece in page_pieces(page) if piece.kind != "picture" or piece.block.id in (pictures or {})]
        for piece, following in zip_longest(pieces, pieces[1:]):
            _add(made, page, piece, pictures or {})
            if following is not None and (piece.kind, following.kind) in _TOGETHER:
                made.paragraphs[-1].paragraph_format.keep_with_next = True
    stream = io.BytesIO()
    made.save(stream)
    return stream.getvalue()


def _set_page(made: Any, pages: Sequence[Page]) -> None:
    """The most usual size of the source's pages, upright as they were read."""
    sizes = Counter(
        (round(page.width_px * 72 / page.dpi), round(page.height_px * 72 / page.dpi)) for page in pages if page.dpi
    )
    width, height = sizes.most_common(1)[0][0] if sizes else _A4_PT
    if min(width, height) < _SIDES_PT[0] or max(width, height) > _SIDES_PT[1]:
        width, height = _A4_PT
    margin = Pt(min(_MARGIN_PT, round(_MARGIN_SHARE * width)))
    section = made.sections[0]
    section.page_width, section.page_height = Pt(width), Pt(height)
    section.left_margin = section.right_margin = section.top_margin = section.bottom_margin = margin


def _text_width(made: Any) -> int:
    section = made.sections[0]
    return int(section.page_width - section.left_margin - section.right_margin)


def _add(made: Any, page: Page, piece: Piece, pictures: Mapping[str, bytes]) -> None:
    if piece.kind == "picture":
        _add_picture(made, pictures[piece.block.id], piece, page)
    elif piece.kind == "table":
        _add_table(made, page, table_cells(piece.block), pictures)
    elif piece.kind == "formula":
        _add_display(made, piece)
    elif piece.kind == "title":
        _add_text(made.add_heading(level=piece.level), piece.text)
    elif piece.kind in ("rows", "lines"):
        paragraph = made.add_paragraph()
        for number, row in enumerate(piece.text.split("\n")):
            if number:
                paragraph.add_run().add_break()
            _add_text(paragraph, row)
    else:
        style = {"item": "List Bullet", "caption": "Caption"}.get(piece.kind)
        _add_text(made.add_paragraph(style=style), piece.text)


def _add_text(paragraph: Any, text: str) -> None:
    for kind, piece in math.split(text):
        if kind == "text":
            paragraph.add_run(piece)
        else:
            _add_formula(paragraph, piece, display=False)


def _add_display(made: Any, piece: Piece) -> None:
    """A formula on a line of its own. Beside a number it stands between tabs: Word centres it only when it is alone."""
    paragraph = made.add_paragraph()
    if not piece.number:
        _add_formula(paragraph, piece.text, display=True)
        return
    width = _text_width(made)
    paragraph.paragraph_format.tab_stops.add_tab_stop(width // 2, WD_TAB_ALIGNMENT.CENTER)
    paragraph.paragraph_format.tab_stops.add_tab_stop(width, WD_TAB_ALIGNMENT.RIGHT)
    paragraph.add_run("\t")
    _add_formula(paragraph, piece.text, display=False)
    paragraph.add_run(f"\t{piece.number}")


def _add_formula(paragraph: Any, latex: str, *, display: bool) -> None:
    omml = to_omml(latex, display=display)
    if omml is None:
        paragraph.add_run(without_controls(latex))
    elif display:
        space = "http://schemas.openxmlformats.org/officeDocument/2006/math"
        paragraph._p.append(parse_xml(f'<m:oMathPara xmlns:m="{space}">{omml}</m:oMathPara>'))
    else:
        paragraph._p.append(parse_xml(omml))


def _add_table(made: Any, page: Page, cells: tuple[Cell, ...], pictures: Mapping[str, bytes]) -> None:
    rows = max(cell.row + cell.row_span for cell in cells)
    columns = max(cell.column + cell.column_span for cell in cells)
    table = made.add_table(rows, columns, style="Table Grid")
    table.alignment = WD_TABLE_ALIGNMENT.CENTER
    widths = column_widths(cells, columns, _text_width(made))
    # Asking the table for one cell makes it list all of them, each time.
    grid = table._cells
    for column, width in enumerate(widths):
        table.columns[column].width = width
        for row in range(rows):
            grid[row * columns + column].width = width
    for row in table.rows:
        row._tr.get_or_add_trPr().append(OxmlElement("w:cantSplit"))  # over two pages
    for cell in cells:
        place = grid[cell.row * columns + cell.column]
        if cell.row_span > 1 or cell.column_span > 1:
            last = grid[(cell.row + cell.row_span - 1) * columns + cell.column + cell.column_span - 1]
            place = place.merge(last)
        _add_text(place.paragraphs[0], " ".join(without_controls(cell.text).split()))
        room = sum(widths[cell.column : cell.column + cell.column_span]) - Pt(_PADDING_PT)
        for name in cell.figures:
            if name in pictures:
                size = min(room, round(_text_width(made) * _figure_share(page, name)))
                place.paragraphs[0].add_run().add_picture(io.BytesIO(pictures[name]), width=size)
    made.add_paragraph()  # Word joins tables that touch


def column_widths(cells: Sequence[Cell], columns: int, available: int) -> list[int]:
    """The width of each column: what its longest text asks for, together `available` at most, in units of Word's files.

    Where there is not enough room, narrow columns keep what they ask for and the wide ones share the rest alike.
    """
    letters = [2.0] * columns
    for cell in cells:
        if cell.column_span == 1:
            wide = sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in cell.text)
            letters[cell.column] = max(letters[cell.column], min(_WIDEST_LETTERS, wide))
    wanted = [int(Pt(_LETTER_PT * count + _PADDING_PT)) for count in letters]
    widths = [0] * columns
    for place, column in enumerate(sorted(range(columns), key=lambda column: wanted[column])):
        widths[column] = min(wanted[column], available // (columns - place))
        available -= widths[column]
    return widths


def _figure_share(page: Page, name: str) -> float:
    return next(width_share(block.polygons[0], page) for block in page.blocks if block.id == name)


def _add_picture(made: Any, png: bytes, piece: Piece, page: Page) -> None:
    paragraph = made.add_paragraph()
    paragraph.alignment = WD_ALIGN_PARAGRAPH.CENTER
    width = round(_text_width(made) * width_share(piece.block.polygons[0], page))
    shape = paragraph.add_run().add_picture(io.BytesIO(png), width=width)
    shape._inline.docPr.set("descr", piece.block.label)


def _set_east_asian(made: Any, name: str | None) -> None:
    """Tells Word which typeface and spelling its Chinese, Japanese or Korean characters have."""
    if name is None:
        return
    for style in ("Normal", "Caption", *(f"Heading {level}" for level in range(1, 7))):
        properties = made.styles[style].element.get_or_add_rPr()
        properties.get_or_add_rFonts().set(qn("w:eastAsia"), _TYPEFACES[name])
    languages = made.styles.element.findall(".//" + qn("w:lang"))
    for element in languages:
        element.set(qn("w:eastAsia"), _LOCALES[name])
