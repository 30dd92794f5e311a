"""Document -> a Word file: headings, lists, real tables, pictures, formulas. The only file that uses python-docx."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import docx
from docx.enum.text import WD_ALIGN_PARAGRAPH, WD_TAB_ALIGNMENT
from docx.oxml import parse_xml
from docx.oxml.ns import qn

from docvino.document import Cell, Document
from docvino.render.flow import (
    Piece,
    language,
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


def to_docx(document: Document, pictures: Mapping[str, bytes] | None = None) -> bytes:
    """The Word file. A formula that cannot be read stands there in LaTeX.

    pictures   block id -> PNG of figures; a figure without one is left out
    """
    made = docx.Document()
    _set_language(made, language(document))
    made.core_properties.author = "docvino"
    made.core_properties.title = without_controls(document.source.name)[:255]
    made.core_properties.comments = ""  # the template's own
    text_width = _text_width(made)
    for page in pages_to_read(document):
        for piece in page_pieces(page):
            if piece.kind == "picture":
                png = (pictures or {}).get(piece.block.id)
                if png is not None:
                    _add_picture(made, png, piece, round(text_width * width_share(piece.block.polygons[0], page)))
            else:
                _add(made, piece, pictures or {})
    stream = io.BytesIO()
    made.save(stream)
    return stream.getvalue()


def _text_width(made: Any) -> int:
    section = made.sections[0]
    return int(section.page_width - section.left_margin - section.right_margin)


def _add(made: Any, piece: Piece, pictures: Mapping[str, bytes]) -> None:
    if piece.kind == "table":
        _add_table(made, table_cells(piece.block), pictures)
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


def _add_table(made: Any, cells: tuple[Cell, ...], pictures: Mapping[str, bytes]) -> None:
    rows = max(cell.row + cell.row_span for cell in cells)
    columns = max(cell.column + cell.column_span for cell in cells)
    table = made.add_table(rows, columns, style="Table Grid")
    text_width = _text_width(made)
    # Asking the table for one cell makes it list all of them, each time.
    grid = table._cells
    for cell in cells:
        place = grid[cell.row * columns + cell.column]
        if cell.row_span > 1 or cell.column_span > 1:
            last = grid[(cell.row + cell.row_span - 1) * columns + cell.column + cell.column_span - 1]
            place = place.merge(last)
        _add_text(place.paragraphs[0], " ".join(without_controls(cell.text).split()))
        for png in (pictures[name] for name in cell.figures if name in pictures):
            place.paragraphs[0].add_run().add_picture(io.BytesIO(png), width=round(0.9 * text_width / columns))
    made.add_paragraph()  # Word joins tables that touch


def _add_picture(made: Any, png: bytes, piece: Piece, width: int) -> None:
    paragraph = made.add_paragraph()
    paragraph.alignment = WD_ALIGN_PARAGRAPH.CENTER
    shape = paragraph.add_run().add_picture(io.BytesIO(png), width=width)
    shape._inline.docPr.set("descr", piece.block.label)


def _set_language(made: Any, name: str) -> None:
    """Tells Word which typeface and spelling to use; where the script does not tell, Word decides."""
    if name not in _TYPEFACES:
        return
    for style in ("Normal", *(f"Heading {level}" for level in range(1, 7))):
        properties = made.styles[style].element.get_or_add_rPr()
        properties.get_or_add_rFonts().set(qn("w:eastAsia"), _TYPEFACES[name])
    languages = made.styles.element.findall(".//" + qn("w:lang"))
    for element in languages:
        element.set(qn("w:eastAsia"), _LOCALES[name])
