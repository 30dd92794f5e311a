"""OTSL becomes cells and HTML and comes back; nothing that was written is lost."""

from __future__ import annotations

import html
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docvino.document import Cell
from docvino.errors import InputError
from docvino.text import otsl, tables
from html_tables import Tree
from score import teds

PUBTABNET = (
    Path(os.environ.get("DOCVINO_TESTDATA") or Path(__file__).parents[3] / "shared" / "testdata")
    / "third_party"
    / "pubtabnet"
    / "PubTabNet_Examples.jsonl"
)
TAGS = (otsl.FILLED, otsl.EMPTY, otsl.LEFT, otsl.UP, otsl.BOTH, otsl.ROW_END)


def rows_of(text: str) -> str:
    """The HTML without the frame and without what only lays it out."""
    return tables.to_html(otsl.parse(text).cells).replace("\n", "").removeprefix("<table>").removesuffix("</table>")


# The golden vectors of upstream's converter.
GOLDEN = {
    "<fcel>A<fcel>B<nl><fcel>1<fcel>2<nl>": "<tr><td>A</td><td>B</td></tr><tr><td>1</td><td>2</td></tr>",
    "<fcel>A<lcel><nl><fcel>1<fcel>2<nl>": '<tr><td colspan="2">A</td></tr><tr><td>1</td><td>2</td></tr>',
    "<fcel>A<fcel>B<nl><ucel><fcel>2<nl>": '<tr><td rowspan="2">A</td><td>B</td></tr><tr><td>2</td></tr>',
    "<fcel>A<lcel><fcel>C<nl><ucel><xcel><fcel>2<nl>": (
        '<tr><td rowspan="2" colspan="2">A</td><td>C</td></tr><tr><td>2</td></tr>'
    ),
    "<fcel>a<fcel>b<fcel>c<nl><fcel>1<nl>": (
        "<tr><td>a</td><td>b</td><td>c</td></tr><tr><td>1</td><td></td><td></td></tr>"
    ),
    "<fcel>a & b<ecel><nl>": "<tr><td>a &amp; b</td><td></td></tr>",
    "<fcel>A<fcel>B<ecel><ecel><nl><fcel>1<fcel>2<nl>": "<tr><td>A</td><td>B</td></tr><tr><td>1</td><td>2</td></tr>",
    "<fcel>A<fcel>B<nl><fcel>C<fcel>D": "<tr><td>A</td><td>B</td></tr><tr><td>C</td><td>D</td></tr>",
    "<fcel>A<fcel>B<nl><nl><fcel>C<fcel>D<nl>": "<tr><td>A</td><td>B</td></tr><tr><td>C</td><td>D</td></tr>",
    "<lcel><fcel>B<nl><fcel>1<fcel>2<nl>": "<tr><td></td><td>B</td></tr><tr><td>1</td><td>2</td></tr>",
}


@pytest.mark.parametrize("text", GOLDEN)
def test_a_golden_vector_gives_the_html_of_upstream(text: str) -> None:
    assert rows_of(text) == GOLDEN[text]


@pytest.mark.parametrize("text", ["plain text", "<nl><nl>", ""])
def test_what_has_no_cells_gives_none(text: str) -> None:
    table = otsl.parse(text)
    assert table.cells == ()
    assert table.warnings == (("it has no tags of a table",) if text else ())


def test_a_filled_cell_without_text_is_empty_where_upstream_prints_a_tag() -> None:
    upstream = "<tr><td>&lt;fcel&gt;</td><td>B</td></tr>"
    ours = "<tr><td></td><td>B</td></tr>"
    assert rows_of("<fcel><fcel>B<nl>") == ours != upstream


def test_quotes_stay_as_they_are_where_upstream_escapes_them() -> None:
    upstream = '<tr><td>5" &lt; &#x27;6&#x27;</td></tr>'.replace('"', "&quot;")
    ours = "<tr><td>5\" &lt; '6'</td></tr>"
    assert rows_of("<fcel>5\" < '6'<nl>") == ours
    assert html.unescape(upstream) == html.unescape(ours)  # the same to whoever reads it


def test_a_line_break_in_a_cell_stays_in_the_cell_and_is_a_blank_in_html() -> None:
    (cell,) = otsl.parse("<fcel> two\nlines <nl>").cells
    assert cell.text == "two\nlines"
    assert rows_of("<fcel> two\nlines <nl>") == "<tr><td>two lines</td></tr>"


def test_cells_know_their_places_and_spans() -> None:
    table = otsl.parse("<fcel>A<lcel><ecel><nl><ucel><xcel><fcel>2<nl>")
    assert table.warnings == ()
    assert table.cells == (
        Cell(row=0, column=0, row_span=2, column_span=2, text="A"),
        Cell(row=0, column=2, text=""),
        Cell(row=1, column=2, text="2"),
    )


@pytest.mark.parametrize(
    ("text", "rows", "warnings"),
    [
        (
            "Table 1. Fees<fcel>A<fcel>B<nl><fcel>1<fcel>2<nl>",
            [["Table 1. Fees A", "B"], ["1", "2"]],
            ("text before the first cell of row 1 was put into it",),
        ),
        (
            "<fcel>A<fcel>B<nl>no tag<nl><fcel>1<fcel>2<nl>",
            [["A", "B"], ["no tag", ""], ["1", "2"]],
            ("text before the first cell of row 2 was put into it", "row 2 had fewer than 2 cells"),
        ),
        (
            "<fcel>A<fcel>B<fcel>C<nl><fcel>1<fcel>2<fcel>3<nl><fcel>4",
            [["A", "B", "C"], ["1", "2", "3"], ["4", "", ""]],
            ("the last row is not finished: it has 1 of 3 cells",),
        ),
        (
            "<fcel>A<fcel>B<nl><fcel>1<fcel>2<fcel>3<nl><fcel>4<fcel>5<nl>",
            [["A", "B", ""], ["1", "2", "3"], ["4", "5", ""]],
            ("row 1 and row 3 had fewer than 3 cells",),
        ),
        (
            "<fcel>A<fcel>B<nl><fcel>1<fcel>2<ecel><nl>",
            [["A", "B"], ["1", "2"]],
            ("row 2 had more than 2 cells; those without text at their ends were left out",),
        ),
        (
            "<ecel>A<fcel>B<nl><fcel>1<lcel>2<nl>",
            [["A", "B"], ["1 2"]],
            ("there was text at row 1 column 1 and row 2 column 2, where no cell with text begins",),
        ),
        (
            "<fcel>A<ucel>far<nl><fcel>1<fcel>2<nl>",
            [["A", "far"], ["1", "2"]],
            (
                "no cell reaches to row 1 column 2, which should continue one",
                "there was text at row 1 column 2, where no cell with text begins",
            ),
        ),
    ],
)
def test_text_in_a_faulty_table_is_kept_and_the_fault_is_said(
    text: str, rows: list[list[str]], warnings: tuple[str, ...]
) -> None:
    table = otsl.parse(text)
    found: list[list[str]] = [[] for _ in rows]
    for cell in table.cells:
        found[cell.row].append(cell.text)
    assert found == rows
    assert table.warnings == warnings


def test_a_place_that_two_cells_claim_goes_to_the_first_and_is_said() -> None:
    # Upstream gives B two rows and C two columns, so that the second row is three cells wide.
    table = otsl.parse("<fcel>A<fcel>B<nl><fcel>C<xcel><nl>")
    assert [(c.text, c.row_span, c.column_span) for c in table.cells] == [("A", 1, 1), ("B", 2, 1), ("C", 1, 1)]
    assert table.warnings == ("the spans around row 2 column 2 do not agree",)


def test_a_span_ends_where_another_cell_begins_and_that_is_said() -> None:
    table = otsl.parse("<fcel>A<lcel><nl><ucel><fcel>D<nl>")
    assert [(c.text, c.row, c.column, c.row_span, c.column_span) for c in table.cells] == [
        ("A", 0, 0, 1, 2),
        ("", 1, 0, 1, 1),
        ("D", 1, 1, 1, 1),
    ]
    assert table.warnings == ("no cell reaches to row 2 column 1, which should continue one",)


def test_a_warning_names_five_places_and_counts_the_others() -> None:
    table = otsl.parse("<fcel>a<fcel>b<nl>" * 9 + "<fcel>c<nl>" * 8)
    assert table.warnings == ("row 10, row 11, row 12, row 13, row 14 and 3 more had fewer than 2 cells",)


# Texts that begin and end with a letter and hold no tag.
texts = st.text(st.sampled_from("ab1 <&>|$\\\n零"), max_size=6).map(str.strip)


@st.composite
def sound_tables(draw: st.DrawFn) -> tuple[Cell, ...]:
    """Cells that fill a rectangle; any rectangle may be one cell."""
    height, width = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    taken: set[tuple[int, int]] = set()
    cells = []
    for row in range(height):
        for column in range(width):
            if (row, column) in taken:
                continue
            free = next((c for c in range(column, width) if (row, c) in taken), width) - column
            high, wide = draw(st.integers(1, min(3, height - row))), draw(st.integers(1, min(3, free)))
            taken |= {(r, c) for r in range(row, row + high) for c in range(column, column + wide)}
            cells.append(Cell(row=row, column=column, row_span=high, column_span=wide, text=draw(texts)))
    return tuple(cells)


@given(sound_tables())
def test_cells_come_back_from_otsl_without_a_warning(cells: tuple[Cell, ...]) -> None:
    table = otsl.parse(otsl.to_otsl(cells))
    assert table.cells == cells
    assert table.warnings == ()


@given(st.lists(st.one_of(st.sampled_from(TAGS), texts), max_size=40).map("".join))
def test_any_mixture_of_tags_and_texts_fills_a_rectangle_and_keeps_every_letter(text: str) -> None:
    table = otsl.parse(text)
    if not table.cells:
        return
    letters = text
    for tag in TAGS:
        letters = letters.replace(tag, "")
    assert sorted("".join("".join(cell.text for cell in table.cells).split())) == sorted("".join(letters.split()))
    places = [
        (r, c)
        for cell in table.cells
        for r in range(cell.row, cell.row + cell.row_span)
        for c in range(cell.column, cell.column + cell.column_span)
    ]
    height, width = max(r for r, _ in places) + 1, max(c for _, c in places) + 1
    assert sorted(places) == [(r, c) for r in range(height) for c in range(width)]
    assert otsl.parse(otsl.to_otsl(table.cells)).cells == table.cells  # what was mended stays as it is


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=8).filter(lambda r: any(map(any, r)))
)
def test_the_width_is_the_one_that_upstream_searches_for(rows: list[tuple[int, int]]) -> None:
    rows = [row for row in rows if any(row)]
    least = max(filled for filled, _ in rows)
    totals = [filled + empty for filled, empty in rows]
    searched = min(range(least, max(least, *totals) + 1), key=lambda width: sum(abs(t - width) for t in totals))
    table = otsl.parse("".join("<fcel>a" * filled + "<ecel>" * empty + "<nl>" for filled, empty in rows))
    assert max(cell.column for cell in table.cells) + 1 == searched


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ((Cell(row=0, column=0, text="a <nl> b"),), "holds a tag"),
        ((Cell(row=0, column=0, column_span=2, text=""), Cell(row=0, column=1, text="")), "two cells lie at row 1"),
    ],
)
def test_cells_that_otsl_cannot_say_are_refused(cells: tuple[Cell, ...], why: str) -> None:
    with pytest.raises(InputError, match=why):
        otsl.to_otsl(cells)


def test_places_without_a_cell_are_empty_in_otsl() -> None:
    cells = (Cell(row=0, column=0, text="a"), Cell(row=1, column=1, text="b"))
    assert otsl.to_otsl(cells) == "<fcel>a<ecel><nl><ecel><fcel>b<nl>"
    assert otsl.to_otsl(()) == ""


def test_a_huge_faulty_table_takes_no_time() -> None:
    text = "<fcel>a<lcel>" * 400 + "<nl>" + "<ucel><xcel>" * 400 + "<nl>" + "<fcel>b<nl>" * 20
    assert otsl.parse(text).cells[0] == Cell(row=0, column=0, row_span=2, column_span=2, text="a")


def published_html(example: dict[str, dict[str, object]]) -> str:
    """The structure with the text of each cell put in, as the data set's own tools do it."""
    structure = example["html"]["structure"]["tokens"]  # type: ignore[index]
    contents = iter(example["html"]["cells"])  # type: ignore[call-overload]
    ends = {"</td>", "<td></td>"}
    return "".join("".join(next(contents)["tokens"]) + token if token in ends else token for token in structure)


@pytest.mark.skipif(not PUBTABNET.is_file(), reason="the shared test documents are not here")
def test_ten_published_tables_go_to_otsl_and_back_with_teds_1() -> None:
    """Spans, texts and rows come back whole; what OTSL cannot say (heads, bold print) is in neither tree."""
    examples = [json.loads(line) for line in PUBTABNET.read_text(encoding="utf-8").splitlines()]
    assert len(examples) == 10
    spans = 0
    for example in examples:
        truth = published_html(example)
        text = otsl.to_otsl(Tree(truth).cells)
        table = otsl.parse(text)
        assert table.warnings == (), example["filename"]
        assert teds(truth, table.html) == 1.0, example["filename"]
        spans += text.count(otsl.LEFT) + text.count(otsl.UP)
        texts = sum(1 for cell in table.cells if cell.text)
        assert texts > 10
    assert spans > 40  # places that go on from another cell


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ("<table><tr><td>a</td><td>b</td></tr><tr><td colspan='2'>cd</td></tr></table>", 1.0),
        ("<table><tr><td>a</td><td>b</td></tr><tr><td>cd</td></tr></table>", 5 / 6),  # a span less
        ("<table><tr><td>a</td><td>b</td></tr><tr><td colspan='2'>cx</td></tr></table>", 5.5 / 6),  # half a text
        ("<table><tr><td>a</td><td>b</td></tr></table>", 4 / 6),  # a row and its cell less
        ("<table><thead><tr><td>a</td><td>b</td></tr></thead><tr><td colspan='2'>cd</td></tr></table>", 1.0),
    ],
)
def test_teds_counts_what_differs(found: str, expected: float) -> None:
    truth = "<table><tr><td>a</td><td>b</td></tr><tr><td colspan='2'>cd</td></tr></table>"
    assert teds(truth, found) == pytest.approx(expected)
    assert (teds(truth, found, parts=True) == 1.0) is (expected == 1.0 and "thead" not in found)
