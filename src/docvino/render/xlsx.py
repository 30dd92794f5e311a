"""Document -> a workbook with a sheet for each table. The only file that uses openpyxl (extra `office`)."""

from __future__ import annotations

import io
import re
from collections import Counter
from typing import Any

from openpyxl import Workbook
from openpyxl.styles import Alignment
from openpyxl.utils import get_column_letter

from docvino.document import Cell, Document
from docvino.render.flow import without_controls
from docvino.render.tables import tables_of

_MOST_LETTERS = 32_767  # Source: Excel's specifications, of one cell
_WIDEST = 60  # letters

_WHOLE = re.compile(r"-?(?:0|[1-9]\d{0,14})")  # 15 digits: more would be rounded
_DECIMAL = re.compile(r"-?(?:0|[1-9]\d{0,11})\.(\d{1,6})")
_GROUPED = re.compile(r"-?[1-9]\d{0,2}(?:,\d{3}){1,3}(?:\.(\d{1,4}))?")
_THOUSAND_OR_DECIMAL = re.compile(r"-?[1-9]\d{0,2}[.,]\d{3}")


def to_xlsx(document: Document) -> bytes:
    """The workbook; cells that span are merged. A document without tables has one sheet that says so."""
    workbook = Workbook()
    workbook.remove(workbook.active)
    seen: Counter[int] = Counter()
    for number, _, cells in tables_of(document):
        seen[number] += 1
        _fill(workbook.create_sheet(f"Page {number} table {seen[number]}"), cells)
    if not seen:
        workbook.create_sheet("No tables")
    workbook.properties.creator = "docvino"
    workbook.properties.title = without_controls(document.source.name)
    stream = io.BytesIO()
    workbook.save(stream)
    return stream.getvalue()


def number_of(text: str) -> tuple[float, str] | None:
    """The value and the format in which Excel shows it as it was printed; None for what is no plain number.

    Left as text: what could be a number in two ways (1.234 and 1,234), leading zeros and more than 15 digits (they are
    names of things), signs, units, per cent, and commas for decimals, which Excel would show by the reader's locale.
    """
    if _THOUSAND_OR_DECIMAL.fullmatch(text):
        return None
    if _WHOLE.fullmatch(text):
        return int(text), "0"
    if match := _DECIMAL.fullmatch(text):
        return float(text), "0." + "0" * len(match[1])
    if match := _GROUPED.fullmatch(text):
        return float(text.replace(",", "")), "#,##0" + ("." + "0" * len(match[1]) if match[1] else "")
    return None


def _fill(sheet: Any, cells: tuple[Cell, ...]) -> None:
    widths: Counter[int] = Counter()
    for cell in cells:
        row, column = cell.row + 1, cell.column + 1
        text = " ".join(without_controls(cell.text).split())[:_MOST_LETTERS]
        place = sheet.cell(row, column)
        if number := number_of(text):
            place.value, place.number_format = number
        elif text:
            place.value = text
            place.data_type = "s"  # else a text that begins with = would be a formula
        place.alignment = Alignment(wrap_text=True, vertical="top")
        if cell.column_span == 1:
            widths[column] = max(widths[column], min(_WIDEST, sum(1 if ord(letter) < 0x2E80 else 2 for letter in text)))
        if cell.row_span > 1 or cell.column_span > 1:
            sheet.merge_cells(
                start_row=row,
                start_column=column,
                end_row=row + cell.row_span - 1,
                end_column=column + cell.column_span - 1,
            )
    for column, width in widths.items():
        sheet.column_dimensions[get_column_letter(column)].width = width + 2
