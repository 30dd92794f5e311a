"""The data of a chart become cells."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docvino.text import charts

PLAIN = "Year | Sales | Cost\n2024 | 1,200 | 5 < 6\n2025 | | 7"


def grid(text: str) -> list[list[str]]:
    cells = charts.parse(text).cells
    rows: list[list[str]] = [[] for _ in range(1 + max((cell.row for cell in cells), default=-1))]
    for cell in cells:
        assert cell.column == len(rows[cell.row])
        rows[cell.row].append(cell.text)
    return rows


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        PLAIN.replace("\n", "\n\n").replace(" |", "  |") + "\n",
        "| Year | Sales | Cost |\n|:---|---:|---|\n| 2024 | 1,200 | 5 < 6 |\n| 2025 | | 7 |",
    ],
    ids=["as the model writes it", "with blanks", "as a Markdown table"],
)
def test_lines_with_borders_are_rows_of_cells(text: str) -> None:
    assert grid(text) == [["Year", "Sales", "Cost"], ["2024", "1,200", "5 < 6"], ["2025", "", "7"]]
    assert charts.parse(text).warnings == ()


def test_the_html_is_escaped_where_upstream_leaves_it() -> None:
    assert charts.parse("a | <b>\n1 | 5 & 6").html == (
        "<table>\n<tr><td>a</td><td>&lt;b&gt;</td></tr>\n<tr><td>1</td><td>5 &amp; 6</td></tr>\n</table>"
    )


def test_rows_of_other_widths_are_filled_up_and_counted() -> None:
    table = charts.parse("Sales by year\nYear | Sales\n2024")
    assert [cell.text for cell in table.cells] == ["Sales by year", "", "Year", "Sales", "2024", ""]
    assert table.warnings == ("2 of its 3 rows had fewer than 2 cells",)


def test_an_empty_first_header_cell_is_no_frame() -> None:
    assert grid(" | 2024 | 2025\nSales | 1 | 2") == [["", "2024", "2025"], ["Sales", "1", "2"]]
    assert grid(" | 2024 | \nSales | 1 | 2") == [["", "2024", ""], ["Sales", "1", "2"]]


def test_a_row_of_dashes_for_missing_values_is_kept() -> None:
    assert grid("a | b\n- | -\n--- | ---") == [["a", "b"], ["-", "-"], ["---", "---"]]


def test_text_without_borders_is_no_table() -> None:
    assert charts.parse("A pie chart.\n- rising") == charts.Table((), ("it is no table",))
    assert charts.parse(" \n") == charts.Table((), ())


@given(st.text(st.sampled_from("a1 |\n<-:"), max_size=60))
def test_a_chart_with_borders_keeps_every_letter_in_a_rectangle(text: str) -> None:
    table = charts.parse(text)
    if not table.cells:
        return
    kept = sorted("".join(cell.text for cell in table.cells))
    for letter in "a1<":
        assert kept.count(letter) == text.count(letter)
    height, width = max(c.row for c in table.cells) + 1, max(c.column for c in table.cells) + 1
    assert [(c.row, c.column) for c in table.cells] == [(r, c) for r in range(height) for c in range(width)]
