"""Facts of how regions and lines become blocks. Lines are 20 px high."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docvino.document import Box, Line, Region, box_polygon
from docvino.text.blocks import assemble


def line(text: str, left: float, top: float, width: float = 300, height: float = 20, confidence: float = 0.9) -> Line:
    return Line(text=text, polygon=box_polygon(left, top, left + width, top + height), confidence=confidence)


def region(label: str, *box: float, score: float = 0.8, order: int | None = None) -> Region:
    left, top, right, bottom = box
    return Region(label, score, box_polygon(left, top, right, bottom), order)


def contents(regions: list[Region], lines: list[Line]) -> list[tuple[str, str]]:
    return [(block.label, block.content) for block in assemble(0, regions, lines)]


def test_nothing_gives_no_blocks() -> None:
    assert assemble(0, [], []) == ()


def test_a_line_belongs_to_the_region_that_covers_it() -> None:
    regions = [region("title", 0, 0, 400, 40), region("text", 0, 60, 400, 160)]
    lines = [line("body", 10, 70), line("more", 10, 100), line("Heading", 10, 10)]
    assert contents(regions, lines) == [("title", "Heading"), ("text", "body more")]


def test_a_region_covers_a_line_from_half_of_its_area() -> None:
    assert contents([region("title", 0, 0, 150, 20)], [line("x", 0, 0)]) == [("title", "x")]
    assert contents([region("title", 0, 0, 149, 20)], [line("x", 0, 0)]) == [("text", "x")]


def test_of_two_regions_that_cover_a_line_alike_the_smaller_one_gets_it() -> None:
    regions = [region("text", 0, 0, 600, 600), region("figure_caption", 0, 0, 310, 30)]
    lines = [line("caption", 0, 5), line("body", 0, 100)]
    assert contents(regions, lines) == [("figure_caption", "caption"), ("text", "body")]


def test_of_two_regions_the_one_that_covers_clearly_more_of_a_line_gets_it() -> None:
    regions = [region("title", 0, 0, 200, 20), region("text", 0, 0, 600, 600)]
    assert contents(regions, [line("x", 0, 0)]) == [("text", "x")]


def test_lines_that_no_region_covers_become_text_in_their_place() -> None:
    regions = [region("text", 0, 100, 400, 130), region("text", 0, 300, 400, 330)]
    lines = [line("first", 0, 105), line("second", 0, 305), line("between", 0, 200), line("above", 0, 0)]
    blocks = assemble(0, regions, lines)
    assert [block.content for block in blocks] == ["above", "first", "between", "second"]
    assert [block.layout_score for block in blocks] == [None, 0.8, None, 0.8]


def test_uncovered_lines_under_each_other_are_one_block_and_distant_ones_are_two() -> None:
    lines = [line("a", 0, 0), line("b", 0, 28), line("c", 0, 120)]
    assert contents([], lines) == [("text", "a b"), ("text", "c")]


def test_uncovered_lines_of_unlike_height_are_blocks_of_their_own() -> None:
    assert contents([], [line("Title", 0, 0, height=40), line("body", 0, 50)]) == [("text", "Title"), ("text", "body")]


def test_text_regions_upon_each_other_are_one_with_the_surer_label_and_both_boxes() -> None:
    regions = [region("text", 0, 0, 400, 100, score=0.6), region("reference", 0, 20, 400, 130, score=0.7)]
    (block,) = assemble(0, regions, [line("a", 0, 0), line("b", 0, 30), line("c", 0, 105)])
    assert (block.label, block.layout_score, block.content) == ("reference", 0.7, "a b c")
    assert block.polygons == (box_polygon(0, 0, 400, 100), box_polygon(0, 20, 400, 130))


def test_regions_that_share_less_or_are_no_running_text_stay_apart() -> None:
    lines = [line("a", 0, 0), line("b", 0, 80)]
    apart = [region("text", 0, 0, 400, 60), region("text", 0, 30, 400, 110)]
    assert len(assemble(0, apart, lines)) == 2
    unlike = [region("title", 0, 0, 400, 30), region("text", 0, 0, 400, 110)]
    assert contents(unlike, lines) == [("title", "a"), ("text", "b")]


def test_a_line_between_the_lines_of_a_text_region_belongs_to_it() -> None:
    regions = [region("text", 0, 0, 130, 100)]
    lines = [line("a", 0, 0, 200), line("b", 60, 30, 140), line("c", 0, 60, 200)]
    assert contents(regions, lines) == [("text", "a b c")]


def test_a_text_region_without_lines_is_left_out() -> None:
    assert assemble(0, [region("text", 0, 0, 100, 100), region("title", 0, 200, 100, 300)], []) == ()


@pytest.mark.parametrize("label", ["figure", "table", "equation"])
def test_a_picture_a_table_and_an_equation_stay_without_lines(label: str) -> None:
    (block,) = assemble(0, [region(label, 10, 20, 110, 220)], [])
    assert (block.label, block.content, block.format, block.confidence) == (label, "", "none", None)
    assert block.polygons == (box_polygon(10, 20, 110, 220),)


def test_a_figure_full_of_text_is_text() -> None:
    lines = [line(f"line {row}", 0, 30 * row) for row in range(4)]
    assert contents([region("figure", 0, 0, 300, 120)], lines) == [("text", "line 0 line 1 line 2 line 3")]


def test_a_figure_with_a_few_words_is_a_figure_that_keeps_them() -> None:
    assert contents([region("figure", 0, 0, 300, 300)], [line("axis", 0, 280, 60)]) == [("figure", "axis")]


def test_a_table_has_one_line_a_row_and_a_tab_between_cells() -> None:
    cells = [line(f"{row}{column}", 200 * column, 40 * row, 90) for row in range(3) for column in range(3)]
    random.Random(1).shuffle(cells)
    (block,) = assemble(0, [region("table", 0, 0, 600, 130)], cells)
    assert block.content == "00\t01\t02\n10\t11\t12\n20\t21\t22"
    assert [cell.text for cell in block.lines] == ["00", "01", "02", "10", "11", "12", "20", "21", "22"]


def test_a_table_is_read_by_rows_even_when_its_columns_are_wide() -> None:
    cells = [line(f"{row}{column}", 400 * column, 40 * row) for row in range(2) for column in range(2)]
    assert contents([region("table", 0, 0, 800, 100)], cells) == [("table", "00\t01\n10\t11")]


def test_the_pieces_of_one_row_are_joined_before_paragraphs_are_made() -> None:
    lines = [line("left", 0, 0, 140), line("right", 150, 1, 150), line("next", 0, 30)]
    assert contents([region("text", 0, 0, 300, 60)], lines) == [("text", "left right next")]


def test_vertical_columns_are_read_from_right_to_left() -> None:
    columns = [line(f"第{n}列", 300 - 30 * n, 100, 20, 400) for n in range(5)]
    for seed in range(3):
        shuffled = random.Random(seed).sample(columns, 5)
        assert contents([], shuffled) == [("text", "第0列第1列第2列第3列第4列")]


def test_vertical_columns_of_a_region_are_read_from_right_to_left() -> None:
    columns = [line(f"第{n}列", 300 - 30 * n, 100, 20, 400) for n in range(5)]
    regions = [region("text", 0, 90, 400, 510), region("title", 500, 100, 540, 500)]
    title = [line("竖排", 510, 110, 20, 80)]
    assert contents(regions, columns + title) == [("title", "竖排"), ("text", "第0列第1列第2列第3列第4列")]


def test_blocks_of_vertical_text_are_read_from_right_to_left_and_tiers_downwards() -> None:
    def columns(name: str, right: float, top: float) -> list[Line]:
        return [line(f"{name}{n}", right - 30 * n, top, 20, 300) for n in range(6)]

    tiers = [columns("甲", 700, 0), columns("乙", 400, 0), columns("丙", 700, 400), columns("丁", 400, 400)]
    lines = [item for block in (2, 0, 3, 1) for item in tiers[block]]
    wanted = ["".join(item.text for item in block) for block in tiers]
    assert [block.content for block in assemble(0, [], lines)] == wanted


def test_the_pieces_of_a_vertical_column_are_read_downwards_before_the_next_column() -> None:
    pieces = [
        line("春眠不", 600, 100, 20, 120),
        line("觉晓", 600, 224, 20, 80),
        line("处处", 570, 100, 20, 80),
        line("闻啼鸟", 570, 184, 20, 120),
    ]
    covering = [region("text", 550, 90, 640, 320)]
    for regions in ([], covering):
        assert contents(regions, pieces[::-1]) == [("text", "春眠不觉晓处处闻啼鸟")]


def test_single_characters_of_a_vertical_column_are_part_of_it() -> None:
    pieces = [line("春眠不觉", 600, 100, 20, 160), line("晓", 600, 264, 20, 20), line("处处闻啼鸟", 570, 100, 20, 184)]
    assert contents([region("text", 550, 90, 640, 320)], pieces) == [("text", "春眠不觉晓处处闻啼鸟")]


def test_regions_that_bring_an_order_keep_it() -> None:
    regions = [region("text", 0, 0, 300, 30, order=2), region("text", 0, 50, 300, 80, order=1)]
    assert [block.content for block in assemble(0, regions, [line("a", 0, 5), line("b", 0, 55)])] == ["b", "a"]


def test_a_title_over_two_columns_comes_first_and_the_footer_last() -> None:
    left = [line(f"l{row}", 0, 100 + 30 * row) for row in range(3)]
    right = [line(f"r{row}", 340, 100 + 30 * row) for row in range(3)]
    around = [line("Title", 100, 0, 440, 40), line("foot", 0, 260, 640)]
    assert [block.content for block in assemble(0, [], [*right, *around, *left])] == [
        "Title",
        "l0 l1 l2",
        "r0 r1 r2",
        "foot",
    ]


def test_a_skewed_page_gives_the_same_text_as_a_level_one() -> None:
    cos, sin = math.cos(math.radians(4)), math.sin(math.radians(4))
    lines = [line(f"{side}{row}", x, 30 * row) for side, x in (("l", 0), ("r", 340)) for row in range(12)]
    skewed = [
        item.model_copy(update={"polygon": tuple((x * cos - y * sin, x * sin + y * cos) for x, y in item.polygon)})
        for item in lines
    ]
    assert contents([], skewed) == contents([], lines)


def test_blocks_are_numbered_by_page_and_place() -> None:
    blocks = assemble(2, [], [line("a", 0, 0), line("b", 0, 200)])
    assert [(block.id, block.order) for block in blocks] == [("p3-b1", 0), ("p3-b2", 1)]


def test_the_confidence_of_a_block_is_weighted_by_the_length_of_its_lines() -> None:
    lines = [line("abcdefghi", 0, 0, confidence=1.0), line("x", 0, 30, confidence=0.5)]
    (block,) = assemble(0, [], lines)
    assert block.confidence == pytest.approx(0.95)


def test_the_box_of_uncovered_lines_is_the_smallest_around_them() -> None:
    (block,) = assemble(0, [], [line("a", 10, 0), line("b", 30, 25)])
    assert block.polygons == (box_polygon(10, 0, 330, 45),)


_LABELS = ("text", "title", "figure", "table", "header", "equation", "reference")
_place = st.tuples(st.integers(0, 300), st.integers(0, 300), st.integers(0, 300), st.integers(0, 120))


@st.composite
def _pages(draw: st.DrawFn) -> tuple[list[Region], list[Line]]:
    def box() -> Box:
        left, top, width, height = draw(_place)
        return left, top, left + width, top + height

    regions = [region(draw(st.sampled_from(_LABELS)), *box()) for _ in range(draw(st.integers(0, 5)))]
    lines = [
        Line(text=f"w{n}", polygon=box_polygon(*box()), confidence=draw(st.sampled_from((0.5, 1.0))))
        for n in range(draw(st.integers(0, 8)))
    ]
    return regions, lines


@given(_pages())
def test_every_line_is_in_exactly_one_block_and_in_its_content(page: tuple[list[Region], list[Line]]) -> None:
    regions, lines = page
    blocks = assemble(0, regions, lines)
    assert sorted(item.text for block in blocks for item in block.lines) == sorted(item.text for item in lines)
    for block in blocks:
        assert block.content.split() == [item.text for item in block.lines]
    assert [block.order for block in blocks] == list(range(len(blocks)))
