"""Facts of XLSX and CSV, read back by openpyxl and Python's csv."""

from __future__ import annotations

import csv
import io

import openpyxl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from docvino.document import Cell, Document
from docvino.render.tables import rows_of, tables_of, to_csv
from docvino.render.xlsx import number_of, to_xlsx
from sample_documents import SPANNING, block, document, page, table


def workbook(made: Document) -> openpyxl.Workbook:
    return openpyxl.load_workbook(io.BytesIO(to_xlsx(made)))


def cells(*texts: str) -> tuple[Cell, ...]:
    return tuple(Cell(row=0, column=column, text=text) for column, text in enumerate(texts))


# ---- XLSX


def test_each_table_has_a_sheet_named_by_its_page() -> None:
    one, two = table(["a"]), table(["b"])
    found = workbook(document(page(one, block("text", "x"), two), page(one, index=1)))
    assert found.sheetnames == ["Page 1 table 1", "Page 1 table 2", "Page 2 table 1"]
    assert [sheet["A1"].value for sheet in found] == ["a", "b", "a"]


def test_spans_are_merged_cells() -> None:
    (sheet,) = workbook(document(page(table(spans=SPANNING))))
    assert sorted(str(area) for area in sheet.merged_cells.ranges) == ["A1:B1", "C1:C2"]
    assert [sheet[place].value for place in ("A1", "C1", "A2", "B2")] == ["Wide", "Tall", "a", "b"]


def test_a_table_without_structure_is_there_row_by_row() -> None:
    (sheet,) = workbook(document(page(block("table", "a\tb\nc"))))
    assert [[cell.value for cell in row] for row in sheet] == [["a", "b"], ["c", None]]


def test_a_document_without_tables_is_a_workbook_that_says_so() -> None:
    assert workbook(document(page(block("text", "x")))).sheetnames == ["No tables"]


@pytest.mark.parametrize(
    ("text", "value", "shown_as"),
    [
        ("0", 0, "0"),
        ("-17", -17, "0"),
        ("2026", 2026, "0"),
        ("123456789012345", 123456789012345, "0"),
        ("3.50", 3.5, "0.00"),
        ("0.123", 0.123, "0.000"),
        ("1234.567", 1234.567, "0.000"),
        ("1,234.50", 1234.5, "#,##0.00"),
        ("1,234,567", 1234567, "#,##0"),
    ],
)
def test_a_plain_number_is_a_number_shown_as_it_was_printed(text: str, value: float, shown_as: str) -> None:
    (sheet,) = workbook(document(page(table([text]))))
    assert (sheet["A1"].value, sheet["A1"].data_type, sheet["A1"].number_format) == (value, "n", shown_as)


@pytest.mark.parametrize(
    "text",
    [
        "1.234", "1,234", "-1.234", "007", "1234567890123456", "1,5", "1.234,50", "12%", "$5", "5 kg", "+5", "−5",
        "1e5", "1/2", "2026-11-30", "1 000", "1.2.3", "12,34.5", "٣", "", "-", "nan", "1_000", "True",
    ],
)  # fmt: skip
def test_what_could_mean_something_else_stays_text(text: str) -> None:
    assert number_of(text) is None
    (sheet,) = workbook(document(page(table([text, "x"]))))
    assert sheet["A1"].value == (text or None)


@pytest.mark.parametrize("text", ['=HYPERLINK("http://x","y")', "=1+1", "@SUM(A1)", "+A1", "-A1|x", "#N/A"])
def test_no_text_becomes_a_formula(text: str) -> None:
    (sheet,) = workbook(document(page(table([text]))))
    assert (sheet["A1"].value, sheet["A1"].data_type) == (text, "s")


def test_characters_that_xml_forbids_and_texts_that_are_too_long_do_no_harm() -> None:
    (sheet,) = workbook(document(page(table(["a\x00\x1bb", "x" * 40_000]))))
    assert (sheet["A1"].value, len(sheet["B1"].value)) == ("ab", 32_767)


# ---- CSV


def test_spans_leave_the_places_they_cover_empty() -> None:
    assert rows_of(SPANNING) == [["Wide", "", "Tall"], ["a", "b", ""]]


@given(st.lists(st.text(alphabet='ab,";\n 版', max_size=5), min_size=1, max_size=4))
def test_csv_reads_back_as_the_texts_of_the_cells(texts: list[str]) -> None:
    (row,) = csv.reader(io.StringIO(to_csv(cells(*texts)), newline=""))
    assert row == [" ".join(text.split()) for text in texts]


@pytest.mark.parametrize("text", ['=cmd|"/c calc"!A1', "@SUM(A1)", "+A1", "-1+cmd|x!A"])
def test_a_spreadsheet_runs_nothing_of_a_csv(text: str) -> None:
    assert next(csv.reader(io.StringIO(to_csv(cells(text))))) == [f"'{text}"]


@pytest.mark.parametrize("text", ["-5", "-", "+49 30 123-45", "-1.5%", "(5)", "a=b"])
def test_numbers_and_plain_texts_of_a_csv_are_as_they_were_read(text: str) -> None:
    assert next(csv.reader(io.StringIO(to_csv(cells(text))))) == [text]


def test_tables_come_with_their_page_number_and_block() -> None:
    made = document(page(block("text", "x")), page(table(["a"]), block("header", "h"), index=1))
    assert [(number, found.id) for number, found, _ in tables_of(made)] == [(2, "p2-b1")]
