"""Facts of the reading order. Boxes are drawn with lines 20 px high."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docvino.document import Box, Polygon, box_polygon
from docvino.text.order import is_tall, lying, reading_order, rows, skew_angle, straight_box


def at(left: float, top: float, width: float, height: float = 20) -> Box:
    return left, top, left + width, top + height


def turned(box: Box, degrees: float) -> Polygon:
    """The box after the page has been turned clockwise about its origin."""
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return tuple((x * cos - y * sin, x * sin + y * cos) for x, y in box_polygon(*box))


def column(left: float, top: float, width: float, lines: int) -> list[Box]:
    return [at(left, top + 30 * row, width) for row in range(lines)]


# Each page is listed in its reading order.
PAGES: dict[str, list[Box]] = {
    "one column": column(0, 0, 500, 6),
    "a title across two columns, the columns, a footer across both": [
        at(100, 0, 600, 40),
        *column(0, 80, 350, 5),
        *column(420, 80, 350, 5),
        at(0, 260, 770),
    ],
    "three columns": [*column(0, 0, 220, 5), *column(260, 0, 220, 5), *column(520, 0, 220, 5)],
    "two columns of unequal length": [*column(0, 0, 350, 7), *column(420, 0, 350, 3)],
    "columns whose lines do not lie level": [*column(0, 0, 350, 5), *column(420, 13, 350, 5)],
    "labels before their values": [box for row in range(5) for box in (at(0, 40 * row, 80), at(150, 40 * row, 60))],
    "articles before their prices": [box for row in range(5) for box in (at(0, 30 * row, 300), at(500, 30 * row, 70))],
    "columns, a heading across, columns again": [
        *column(0, 0, 350, 3),
        *column(420, 0, 350, 3),
        at(0, 100, 770),
        *column(0, 140, 350, 3),
        *column(420, 140, 350, 3),
    ],
    "paragraphs of one column that end early": [at(0, 0, 500), at(0, 30, 120), at(0, 60, 500), at(0, 90, 200)],
}


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("seed", range(4))
def test_a_page_is_read_in_its_order_whatever_the_order_of_the_boxes(name: str, seed: int) -> None:
    page = PAGES[name]
    shuffled = random.Random(seed).sample(page, len(page))
    assert [shuffled[index] for index in reading_order(shuffled)] == page


@pytest.mark.parametrize("degrees", [-5, -2, 2, 5])
@pytest.mark.parametrize("name", PAGES)
def test_a_skewed_page_is_read_like_a_level_one(name: str, degrees: float) -> None:
    page = PAGES[name]
    polygons = [turned(box, degrees) for box in page]
    angle = skew_angle(polygons)
    assert reading_order([straight_box(polygon, angle) for polygon in polygons]) == list(range(len(page)))


def test_a_skewed_page_would_be_misread_without_laying_it_level() -> None:
    page = PAGES["labels before their values"]
    assert reading_order([straight_box(turned(box, 15), 0.0) for box in page]) != list(range(len(page)))


def test_nothing_has_an_empty_order() -> None:
    assert reading_order([]) == []
    assert rows([]) == []


def test_one_box_is_first() -> None:
    assert reading_order([at(3, 4, 5)]) == [0]


def test_equal_boxes_keep_the_order_they_came_in() -> None:
    assert reading_order([at(10, 10, 100)] * 4) == [0, 1, 2, 3]


def test_a_gap_is_a_gutter_from_four_fifths_of_a_line_height() -> None:
    def two_columns(gap: float) -> list[int]:
        return reading_order([*column(0, 0, 200, 3), *column(200 + gap, 0, 200, 3)])

    assert two_columns(16) == [0, 1, 2, 3, 4, 5]
    assert two_columns(15) == [0, 3, 1, 4, 2, 5]


def test_what_is_narrower_than_five_line_heights_is_a_cell_and_no_column() -> None:
    def two_columns(width: float) -> list[int]:
        return reading_order([*column(0, 0, 300, 3), *column(400, 0, width, 3)])

    assert two_columns(100) == [0, 1, 2, 3, 4, 5]
    assert two_columns(99) == [0, 3, 1, 4, 2, 5]


def test_the_line_height_given_decides_instead_of_the_boxes_height() -> None:
    blocks = [at(0, 0, 300, 400), at(0, 420, 300, 400), at(330, 0, 300, 400), at(330, 420, 300, 400)]
    assert reading_order(blocks, 20) == [0, 1, 2, 3]
    assert reading_order(blocks) == [0, 2, 1, 3]


def test_rows_go_down_and_their_boxes_to_the_right() -> None:
    boxes = [at(200, 33, 50), at(0, 30, 50), at(100, 2, 50), at(0, 0, 50), at(100, 28, 50)]
    assert rows(boxes) == [[3, 2], [1, 4, 0]]


def test_a_box_joins_the_row_whose_middle_it_spans() -> None:
    assert rows([at(0, 0, 50, 60), at(100, 25, 50, 10)]) == [[0, 1]]
    assert rows([at(0, 0, 50), at(100, 21, 50)]) == [[0], [1]]


@pytest.mark.parametrize("degrees", [-25.0, -3.0, 0.0, 0.5, 3.0, 25.0])
def test_the_skew_is_the_angle_of_the_lines(degrees: float) -> None:
    polygons = [turned(box, degrees) for box in PAGES["one column"]]
    assert math.degrees(skew_angle(polygons)) == pytest.approx(degrees, abs=1e-6)


def test_long_lines_decide_the_skew() -> None:
    short = [turned(at(0, 50 * row, 30), 20) for row in range(5)]
    assert math.degrees(skew_angle([*short, turned(at(0, 400, 600), 2)])) == pytest.approx(2)


def test_lines_that_run_down_have_no_part_in_the_skew() -> None:
    downwards: Polygon = ((20, 0), (20, 300), (0, 300), (0, 0))
    assert skew_angle([downwards, *(turned(box, 1) for box in PAGES["one column"])]) == pytest.approx(math.radians(1))
    assert skew_angle([downwards]) == 0.0
    assert skew_angle([]) == 0.0


def test_a_line_is_tall_from_one_and_a_half_times_its_width() -> None:
    assert is_tall(at(0, 0, 20, 30))
    assert not is_tall(at(0, 0, 20, 29))


def test_columns_laid_down_become_rows_from_right_to_left() -> None:
    right, left = lying(at(100, 0, 20, 300)), lying(at(60, 0, 20, 300))
    assert right == (0, -120, 300, -100)
    assert right[3] <= left[1]


_coordinates = st.integers(-50, 400).map(float)
_boxes = st.lists(
    st.tuples(_coordinates, _coordinates, st.integers(0, 300), st.integers(0, 80)).map(lambda box: at(*box)),
    max_size=14,
)


@given(_boxes)
def test_the_order_holds_every_box_once(boxes: Sequence[Box]) -> None:
    assert sorted(reading_order(boxes)) == list(range(len(boxes)))


@given(_boxes)
def test_rows_hold_every_box_once(boxes: Sequence[Box]) -> None:
    assert sorted(index for row in rows(boxes) for index in row) == list(range(len(boxes)))


@given(_boxes, st.integers(-1000, 1000), st.integers(-1000, 1000))
def test_the_order_does_not_depend_on_where_the_page_lies(boxes: Sequence[Box], right: int, down: int) -> None:
    moved = [(box[0] + right, box[1] + down, box[2] + right, box[3] + down) for box in boxes]
    assert reading_order(moved) == reading_order(boxes)
