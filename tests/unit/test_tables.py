"""Structures and lines become tables: grids, cells, HTML."""

from __future__ import annotations

import json
import os
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docvino.document import Line, Polygon, Region, Structure, box_polygon
from docvino.text import tables
from docvino.text.blocks import assemble

PUBTABNET = (
    Path(os.environ.get("DOCVINO_TESTDATA") or Path(__file__).parents[3] / "shared" / "testdata")
    / "third_party"
    / "pubtabnet"
    / "PubTabNet_Examples.jsonl"
)
ROW, COLUMN = 40.0, 100.0  # the pitch of the drawn grids

Spot = tuple[int, int, int, int]  # row, column, row span, column span


def cell(high: int = 1, wide: int = 1) -> list[str]:
    if high == wide == 1:
        return ["<td></td>"]
    spans = ([f' rowspan="{high}"'] if high > 1 else []) + ([f' colspan="{wide}"'] if wide > 1 else [])
    return ["<td", *spans, ">", "</td>"]


def structure(spots: list[Spot], *, score: float = 1.0, rows: int | None = None, **other: object) -> Structure:
    """A structure whose cells lie on a grid of ROW x COLUMN pixels."""
    tokens: list[str] = []
    count = max(row + high for row, _, high, _ in spots) if rows is None else rows
    for row in range(count):
        tokens.append("<tr>")
        for spot in sorted(spots):
            if spot[0] == row:
                tokens += cell(*spot[2:])
        tokens.append("</tr>")
    return Structure(tuple(tokens), tuple(area(spot) for spot in sorted(spots)), score, **other)  # type: ignore[arg-type]


def area(spot: Spot) -> Polygon:
    row, column, high, wide = spot
    return box_polygon(column * COLUMN, row * ROW, (column + wide) * COLUMN, (row + high) * ROW)


def plain(rows: int, columns: int) -> list[Spot]:
    return [(row, column, 1, 1) for row in range(rows) for column in range(columns)]


def text_in(row: float, column: float, text: str, *, width: float = 60, confidence: float = 0.9) -> Line:
    """A line in the middle of a place of the grid."""
    x, y = (column + 0.5) * COLUMN, (row + 0.5) * ROW
    return Line(text=text, polygon=box_polygon(x - width / 2, y - 10, x + width / 2, y + 10), confidence=confidence)


def filled(built: Structure, *lines: Line) -> tables.Table:
    grid = tables.lay_out(built)
    assert grid.broken is None
    return tables.fill(grid, lines, 0.0)


def texts(table: tables.Table) -> dict[tuple[int, int], str]:
    return {(cell.row, cell.column): cell.text for cell in table.cells}


class Html(HTMLParser):
    """An independent reader of tables, which places cells by the rule of the HTML standard."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.cells: dict[Spot, str] = {}
        self._taken: set[tuple[int, int]] = set()
        self._row, self._spot, self._text = -1, None, ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self._row += 1
        if tag in ("td", "th"):
            given = dict(attrs)
            high, wide = int(given.get("rowspan") or 1), int(given.get("colspan") or 1)
            column = 0
            while (self._row, column) in self._taken:
                column += 1
            self._taken |= {(self._row + i, column + j) for i in range(high) for j in range(wide)}
            self._spot, self._text = (self._row, column, high, wide), ""

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th") and self._spot is not None:
            self.cells[self._spot] = self._text
            self._spot = None


@st.composite
def grids(draw: st.DrawFn) -> list[Spot]:
    """Any division of a grid into rectangles."""
    rows, columns = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    free = {(row, column) for row in range(rows) for column in range(columns)}
    spots = []
    for row in range(rows):
        for column in range(columns):
            if (row, column) not in free:
                continue
            high, wide = draw(st.integers(1, rows - row)), draw(st.integers(1, columns - column))
            while not {(row + i, column + j) for i in range(high) for j in range(wide)} <= free:
                high, wide = (high, wide - 1) if wide > 1 else (high - 1, wide)
            free -= {(row + i, column + j) for i in range(high) for j in range(wide)}
            spots.append((row, column, high, wide))
    return spots


@given(grids(), st.data())
def test_any_grid_with_any_text_comes_back_from_its_html(spots: list[Spot], data: st.DataObject) -> None:
    letters = st.text(st.characters(exclude_categories=("Z", "C")), max_size=6)
    wanted = {spot: data.draw(letters) for spot in sorted(spots)}
    lines = [
        text_in(row + (high - 1) / 2, column + (wide - 1) / 2, text)
        for (row, column, high, wide), text in wanted.items()
        if text
    ]
    grid = tables.lay_out(structure(spots))
    assert grid.broken is None
    assert grid.faults == ()
    table = tables.fill(grid, lines, 0.0)
    assert table.outside == ()
    found = Html(table.html).cells
    assert sorted(filter(None, found.values())) == sorted(filter(None, wanted.values()))
    if all(wanted.values()):  # with an empty row at its edge, a table may be one row lower
        assert found == wanted


@given(st.lists(st.sampled_from(["<tr>", "</tr>", "<td></td>", "<td", ' colspan="3"', ' rowspan="2"', ">", "</td>"])))
def test_no_sequence_of_tokens_is_an_error(tokens: list[str]) -> None:
    polygons = tuple(area((0, i, 1, 1)) for i in range(len(tokens)))
    grid = tables.lay_out(Structure(tuple(tokens), polygons, 1.0))
    table = tables.fill(grid, [text_in(0, 0, "a")], 0.0)
    Html(table.html)


def pubtabnet() -> list[dict[str, object]]:
    if not PUBTABNET.is_file():
        return []
    return [json.loads(line) for line in PUBTABNET.read_text(encoding="utf-8").splitlines()]


@pytest.mark.skipif(not PUBTABNET.is_file(), reason="the shared test documents are not here")
def test_real_tables_of_journals_come_back_from_their_html() -> None:
    examples = pubtabnet()
    assert len(examples) >= 10
    for example in examples:
        given = example["html"]
        assert isinstance(given, dict)
        pieces = "\0".join(given["structure"]["tokens"]).replace("<td>\0</td>", "<td></td>").split("\0")
        grid = tables.lay_out(Structure(tuple(pieces), (), 1.0))
        assert grid.broken is None, example["filename"]
        wanted = Html("".join(pieces)).cells
        found = {(p.row, p.column, p.row_span, p.column_span) for p in grid.places}
        assert found == set(wanted), example["filename"]
        assert set(Html(tables.fill(grid, [], 0.0).html).cells) == found, example["filename"]


def test_spans_take_places_as_in_html() -> None:
    spots = [(0, 0, 2, 1), (0, 1, 1, 2), (1, 1, 1, 1), (1, 2, 1, 1)]
    grid = tables.lay_out(structure(spots))
    assert [(p.row, p.column, p.row_span, p.column_span) for p in grid.places] == spots
    assert (grid.rows, grid.columns, grid.faults, grid.broken) == (2, 3, (), None)


def test_a_span_past_the_last_row_is_cut_and_said() -> None:
    grid = tables.lay_out(structure([(0, 0, 3, 1), (0, 1, 1, 1), (1, 1, 1, 1)], rows=2))
    assert [p.row_span for p in grid.places] == [2, 1, 1]
    assert grid.faults == ("a cell of row 1 spanned more rows than there are",)


def test_spans_that_overlap_break_a_grid() -> None:
    tokens = ["<tr>", *cell(), *cell(2), "</tr>", "<tr>", *cell(wide=2), "</tr>"]
    grid = tables.lay_out(Structure(tuple(tokens), (), 1.0))
    assert grid.broken == "its spans overlap"


@pytest.mark.parametrize(
    ("built", "why"),
    [
        (Structure((), (), 1.0), "it has no cells"),
        (structure(plain(2, 2), score=0.5), "the model is not sure of it (0.50)"),
        (structure(plain(2, 2), finish="length"), "it has more cells than the model can say"),
        (structure([(r, c, 1, 1) for r in range(3) for c in range(1 + r)]), "2 of its 3 rows are not 3 cells wide"),
    ],
)
def test_a_structure_that_cannot_be_trusted_is_refused_with_the_reason(built: Structure, why: str) -> None:
    assert tables.lay_out(built).broken == why


def test_a_short_row_gets_its_cells_under_the_right_columns_and_stays_empty_elsewhere() -> None:
    spots = [spot for spot in plain(6, 4) if spot not in {(3, 1, 1, 1)}]
    table = filled(structure(spots), text_in(3, 0, "a"), text_in(3, 2, "c"), text_in(3, 3, "d"))
    assert [texts(table)[3, column] for column in range(4)] == ["a", "", "c", "d"]
    assert table.warnings == ("row 4 had 3 cells where the others have 4",)
    assert [c.polygon for c in table.cells if (c.row, c.column) == (3, 1)] == [None]


def test_a_row_that_is_too_wide_is_flagged() -> None:
    spots = [*plain(6, 3), (2, 3, 1, 1)]
    assert tables.lay_out(structure(spots)).faults == ("row 3 is 4 cells wide, the others 3",)


def test_empty_cells_stay_empty_without_a_confidence() -> None:
    table = filled(structure(plain(2, 2)), text_in(0, 0, "a"), text_in(1, 1, "d", confidence=0.7))
    assert texts(table) == {(0, 0): "a", (0, 1): "", (1, 0): "", (1, 1): "d"}
    assert [c.confidence for c in table.cells] == [0.9, None, None, 0.7]
    assert table.html == "<table>\n<tr><td>a</td><td></td></tr>\n<tr><td></td><td>d</td></tr>\n</table>"


def test_several_lines_of_one_cell_are_joined_as_a_paragraph() -> None:
    above, below = text_in(-0.25, 0, "a well-known exam-", width=90), text_in(0.25, 0, "ple")
    side = text_in(0, 1, "b")
    spots = [(0, 0, 1, 1), (0, 1, 1, 1), (1, 0, 1, 1), (1, 1, 1, 1)]
    table = filled(structure(spots), below, side, above, text_in(1, 0, "x"))
    assert texts(table)[0, 0] == "a well-known example"


def test_a_line_across_two_cells_is_cut_at_the_blank_nearest_to_their_border() -> None:
    # Centred words far from each other: the blank between the cells is wider than that inside "Box 09".
    line = Line(text="029 Box 09", polygon=box_polygon(35, 10, 180, 30), confidence=0.9)
    table = filled(structure(plain(2, 2)), line, text_in(1, 0, "x"))
    assert texts(table)[0, 0] == "029"
    assert texts(table)[0, 1] == "Box 09"


def test_a_line_across_cells_without_a_blank_goes_whole_to_the_one_that_covers_most() -> None:
    line = Line(text="收入支出", polygon=box_polygon(60, 10, 180, 30), confidence=0.9)
    assert texts(filled(structure(plain(2, 2)), line, text_in(1, 0, "x")))[0, 1] == "收入支出"


def test_a_line_just_beside_all_cells_goes_to_the_nearest_and_one_far_off_stays_outside() -> None:
    near = Line(text="near", polygon=box_polygon(205, 5, 260, 25), confidence=0.9)
    far = Line(text="far", polygon=box_polygon(0, 200, 60, 220), confidence=0.9)
    table = filled(structure(plain(2, 2)), near, far, text_in(1, 0, "x"))
    assert texts(table)[0, 1] == "near"
    assert table.outside == (far,)


@pytest.mark.parametrize("empty", [0, 2])
def test_an_empty_row_across_the_edge_of_a_table_is_not_there(empty: int) -> None:
    rows = [row for row in range(3) if row != empty]
    spots = [(empty, 0, 1, 2), *((row, column, 1, 1) for row in rows for column in range(2))]
    # The row across has one cell of two places, so it is no ragged one.
    table = filled(structure(spots), *(text_in(row, column, "x") for row in rows for column in range(2)))
    assert texts(table) == {(row, column): "x" for row in range(2) for column in range(2)}


def test_empty_rows_inside_a_table_stay() -> None:
    table = filled(structure(plain(3, 2)), text_in(0, 0, "a"), text_in(2, 0, "c"))
    assert len(table.cells) == 6


def test_cells_that_shrank_to_their_centres_are_read_by_rows_and_columns_and_have_no_polygon() -> None:
    spots = plain(3, 3)
    shrunk = tuple(
        box_polygon((c + 0.4) * COLUMN, (r + 0.45) * ROW, (c + 0.6) * COLUMN, (r + 0.55) * ROW) for r, c, _, _ in spots
    )
    built = structure(spots)
    lines = [text_in(r, c, f"{r}{c}", width=95) for r, c, _, _ in spots]
    table = filled(Structure(built.tokens, shrunk, 1.0), *lines)
    assert texts(table) == {(r, c): f"{r}{c}" for r, c, _, _ in spots}
    assert {c.polygon for c in table.cells} == {None}
    assert table.warnings == ("the corners of its cells were not found",)


def test_text_is_escaped_and_kept_on_one_line() -> None:
    table = filled(structure(plain(2, 1)), text_in(0, 0, "a < b & <td>"), text_in(1, 0, "x"))
    assert "<tr><td>a &lt; b &amp; &lt;td&gt;</td></tr>" in table.html.splitlines()


# ---- on the page

REGION = Region("table", 0.9, box_polygon(0, 0, 200, 80))
FOUR = [text_in(row, column, f"{row}{column}") for row in range(2) for column in range(2)]


def test_a_table_block_has_html_cells_with_polygons_and_the_lines() -> None:
    (block,) = assemble(0, [REGION], FOUR, {0: structure(plain(2, 2))})
    assert block.format == "html"
    assert Html(block.content).cells == {(r, c, 1, 1): f"{r}{c}" for r in range(2) for c in range(2)}
    assert [c.polygon for c in block.cells] == [area(spot) for spot in plain(2, 2)]
    assert sorted(line.text for line in block.lines) == ["00", "01", "10", "11"]
    assert block.warnings == ()


def test_a_table_without_a_sound_structure_is_read_row_by_row_with_a_warning() -> None:
    (block,) = assemble(0, [REGION], FOUR, {0: structure(plain(2, 2), finish="length")})
    assert (block.format, block.content, block.cells) == ("text", "00\t01\n10\t11", ())
    assert block.warnings == (
        "the structure of this table was not found, it is given row by row: it has more cells than the model can say",
    )


def test_lines_of_a_table_region_outside_its_cells_become_a_block_of_their_own() -> None:
    note = Line(text="a note", polygon=box_polygon(0, 130, 90, 150), confidence=0.9)
    region = Region("table", 0.9, box_polygon(0, 0, 200, 160))
    blocks = assemble(0, [region], [*FOUR, note], {0: structure(plain(2, 2))})
    assert [(block.label, block.content) for block in blocks if block.label != "table"] == [("text", "a note")]


@pytest.mark.parametrize("label", ["figure", "text", "title"])
def test_no_other_region_takes_the_lines_of_a_table(label: str) -> None:
    twin = Region(label, 0.95, box_polygon(2, 2, 198, 78))
    part = Region("text", 0.95, box_polygon(0, 0, 200, 40))
    blocks = assemble(0, [twin, REGION, part], FOUR, {1: structure(plain(2, 2))})
    assert [block.label for block in blocks] == ["table"]


def test_a_table_in_which_nothing_was_read_has_no_cells() -> None:
    (block,) = assemble(0, [REGION], [], {0: structure(plain(2, 2))})
    assert (block.format, block.cells) == ("none", ())
