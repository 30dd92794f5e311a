"""Each task's answer becomes the content of a block; text of it is not lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docvino.document import Block, Cell, Line, Task, box_polygon
from docvino.text import answers
from docvino.text.answers import Interpreted

TASKS: tuple[Task, ...] = ("ocr", "table", "formula", "chart", "seal", "spotting")


def interpret(task: Task, text: str) -> Interpreted:
    return answers.interpret(task, text, 1000, 500, confidence=0.5)


def test_text_stays_text_with_its_formulas_delimited() -> None:
    assert interpret("ocr", " For $5\nwe get $\\( x^2 \\)$.\n") == Interpreted("For $5\nwe get \\(x^2\\).", "text")


def test_a_seal_is_text_line_by_line() -> None:
    assert interpret("seal", "ACME\n合同专用章") == Interpreted("ACME\n合同专用章", "text")


def test_a_table_is_html_and_cells() -> None:
    found = interpret("table", "<fcel>a<lcel><nl><fcel>\\( x<y \\)<ecel><nl>")
    assert found == Interpreted(
        '<table>\n<tr><td colspan="2">a</td></tr>\n<tr><td>\\(x&lt;y\\)</td><td></td></tr>\n</table>',
        "html",
        cells=(
            Cell(row=0, column=0, column_span=2, text="a"),
            Cell(row=1, column=0, text="\\(x<y\\)"),
            Cell(row=1, column=1, text=""),
        ),
    )


def test_a_price_in_one_cell_is_kept_beside_a_formula_in_another() -> None:
    # Upstream puts delimiters right before it makes cells, and drops the dollar.
    found = interpret("table", "<fcel>$5<fcel>\\(x\\)<nl>")
    assert [cell.text for cell in found.cells] == ["$5", "\\(x\\)"]


def test_a_table_that_is_none_stays_text_with_a_warning() -> None:
    found = interpret("table", "no table<nl>at all")
    assert found == Interpreted("no table\nat all", "text", warnings=("table: it has no tags of a table",))


def test_faults_of_a_table_and_of_its_formulas_are_warnings() -> None:
    found = interpret("table", "<fcel>a<fcel>\\(x^\\)<nl><fcel>b<fcel>c<nl><fcel>d")
    assert found.warnings == (
        "table: the last row is not finished: it has 1 of 2 cells",
        "formula: a ^ has no argument",
    )


def test_a_formula_is_latex_without_delimiters() -> None:
    assert interpret("formula", "\\[ a < b \\]") == Interpreted("a < b", "latex")
    assert interpret("formula", "a < b") == Interpreted("a < b", "latex")
    assert interpret("formula", "$$a$$\n$$b$$") == Interpreted("a\n\nb", "latex")


def test_a_formula_that_tex_cannot_read_is_kept_with_a_warning() -> None:
    assert interpret("formula", "\\[\\frac{a}{b\\]") == Interpreted(
        "\\frac{a}{b", "latex", warnings=("formula: a { is not closed",)
    )


def test_a_chart_is_html_and_cells() -> None:
    found = interpret("chart", "Year | Sales\n2024 | 5")
    assert found.format == "html"
    assert found.content == "<table>\n<tr><td>Year</td><td>Sales</td></tr>\n<tr><td>2024</td><td>5</td></tr>\n</table>"
    assert [cell.text for cell in found.cells] == ["Year", "Sales", "2024", "5"]


def test_a_chart_without_rows_stays_text_with_a_warning() -> None:
    assert interpret("chart", "rising") == Interpreted("rising", "text", warnings=("chart: it is no table",))


def test_a_spotting_answer_is_text_and_lines_in_crop_pixels() -> None:
    place = "".join(f"<|LOC_{n}|>" for n in (0, 0, 100, 0, 100, 500, 0, 500))
    found = interpret("spotting", f"one{place}two{place}</s>")
    line = Line(text="one", polygon=box_polygon(0, 0, 100, 250), confidence=0.5)
    assert found == Interpreted("one\n\ntwo", "text", lines=(line, line.model_copy(update={"text": "two"})))


@pytest.mark.parametrize("task", TASKS)
def test_an_empty_answer_has_no_content(task: Task) -> None:
    for text in ("", " \n", "</s>"):
        assert interpret(task, text) == Interpreted("", "none")


@pytest.mark.parametrize("task", TASKS)
def test_a_loop_is_cut_and_said(task: Task) -> None:
    count = 6000 if task == "table" else 200
    found = interpret(task, "a" * count)
    assert found.was_cut
    assert found.content == "a"
    assert found.warnings[0] == "the answer repeated itself and was cut"


@given(
    st.sampled_from(TASKS),
    st.lists(
        st.sampled_from(["<fcel>", "<ecel>", "<lcel>", "<ucel>", "<nl>", "|", "\n", "\\(", "\\)", "\\[", "\\]", "$"])
        | st.sampled_from(["<|LOC_1|>" * 8, "<|LOC_7|>", "x1", "y2 ", "z3"]),
        max_size=12,
    ).map("".join),
)
def test_no_answer_loses_a_letter_and_every_answer_fits_a_block(task: Task, text: str) -> None:
    found = interpret(task, text)
    words = found.content.replace("<|LOC_1|>", "").replace("<|LOC_7|>", "")
    for letter in "xyz":
        assert words.count(letter) == text.count(letter)
    block = Block(id="p1-b1", label="text", polygons=(), order=0, content=found.content, format=found.format)
    assert (block.format == "none") == (block.content == "")
    assert (found.format == "html") == bool(found.cells)
