"""Facts of routing and cropping: which regions are read as what, alone or together, and what the reader sees."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from docvino.codec import crops
from docvino.document import Box, PageImage, Polygon, Region, Task, box_polygon
from docvino.runtime.crops import cut_regions
from docvino.settings import ParseOptions
from docvino.specs.doclayout import LABELS, PICTURES
from docvino.text.routing import Element, route, task_of

ALL = ParseOptions(use_chart_recognition=True, use_seal_recognition=True, use_ocr_for_image_block=True)


def region(label: str, box: Box, polygon: Polygon | None = None) -> Region:
    return Region(label, 0.9, polygon or box_polygon(*box), box=box)


def page(height: int = 1000, width: int = 800, value: int = 128) -> PageImage:
    pixels = np.full((height, width, 3), value, np.uint8)
    pixels.flags.writeable = False
    return PageImage(0, pixels)


def routed(*regions: Region, options: ParseOptions | None = None) -> list[Element]:
    return route(regions, options or ParseOptions())


def groups(elements: Sequence[Element]) -> list[tuple[int, ...]]:
    return [element.regions for element in elements]


# Tasks


@pytest.mark.parametrize("label", sorted(LABELS))
def test_every_label_has_its_task(label: str) -> None:
    expected: dict[str, Task | None] = {
        "table": "table",
        "display_formula": "formula",
        "inline_formula": "formula",
        **dict.fromkeys(("chart", "seal", "image", "header_image", "footer_image"), None),
    }
    assert task_of(label, ParseOptions()) == expected.get(label, "ocr")


def test_options_have_pictures_read() -> None:
    assert {label: task_of(label, ALL) for label in PICTURES} == {
        "chart": "chart",
        "seal": "seal",
        **dict.fromkeys(("image", "header_image", "footer_image"), "ocr"),
    }
    only = ParseOptions(use_chart_recognition=True)
    assert (task_of("chart", only), task_of("seal", only), task_of("image", only)) == ("chart", None, None)


def test_pictures_are_elements_and_no_crops() -> None:
    regions = [region("image", (0, 0, 100, 100)), region("text", (0, 200, 100, 300))]
    assert [element.task for element in routed(*regions)] == [None, "ocr"]
    assert [crop.regions for crop in cut_regions(page(), regions, ParseOptions())] == [(1,)]
    first, second = cut_regions(page(), regions, ALL)
    assert (first.regions, first.is_picture, second.is_picture) == ((0,), True, False)


def test_what_markdown_drops_is_not_read_when_that_is_skipped() -> None:
    places = {label: (0.0, 30.0 * n, 100.0, 30.0 * n + 20) for n, label in enumerate(sorted(LABELS))}
    regions = [region(label, box) for label, box in places.items()]
    skipped = {
        regions[element.regions[0]].label
        for element, other in zip(
            route(regions, ALL.model_copy(update={"skip_dropped": True})), route(regions, ALL), strict=True
        )
        if element.task != other.task
    }
    assert skipped == {"aside_text", "footer", "footer_image", "footnote", "header", "header_image", "number"}


# Merging: text around a figure

LEFT: Box = (100, 100, 400, 300)
FIGURE: Box = (250, 300, 400, 420)


def around(a: Box, b: Box, between: str = "image", place: Box = FIGURE) -> list[Element]:
    return routed(region("text", a), region("text", b), region(between, place))


def test_text_that_goes_around_a_figure_is_one() -> None:
    # Narrow beside the figure; only the left edges are aligned.
    (text, figure) = around(LEFT, (100, 310, 240, 420))
    assert (text.regions, text.aligns, figure.regions) == ((0, 1), ("left",), (2,))
    (text, _) = around((100, 100, 240, 200), (100, 205, 400, 300), place=(250, 100, 400, 190))
    assert text.aligns == ("left",)
    (text, _) = around(LEFT, (260, 310, 400, 420), place=(100, 310, 250, 420))
    assert (text.regions, text.aligns) == ((0, 1), ("right",))


@pytest.mark.parametrize("between", ["image", "table", "chart", "seal"])
def test_what_is_not_merged_itself_lets_text_go_around_it(between: str) -> None:
    assert groups(around(LEFT, (100, 310, 240, 420), between)) == [(0, 1), (2,)]


def test_a_chart_that_is_read_is_no_figure() -> None:
    regions = [region("text", LEFT), region("text", (100, 310, 240, 420)), region("chart", FIGURE)]
    assert groups(route(regions, ALL)) == [(0,), (1,), (2,)]


@pytest.mark.parametrize(
    ("b", "why"),
    [
        ((100, 310, 400, 420), "both edges are aligned: paragraphs"),
        ((110, 310, 240, 420), "no edge is aligned"),
        ((106, 310, 240, 420), "6 px are not aligned"),
        ((100, 401, 240, 500), "the gap is half the larger height and more"),
    ],
)
def test_other_texts_stay_apart(b: Box, why: str) -> None:
    assert groups(around(LEFT, b, place=(250, 250, 500, 600))) == [(0,), (1,), (2,)], why


def test_five_pixels_are_aligned_and_a_gap_below_half_the_height_is_none() -> None:
    assert groups(around(LEFT, (105, 399, 240, 500), place=(250, 250, 500, 600))) == [(0, 1), (2,)]


def test_without_a_figure_nothing_goes_around_it() -> None:
    assert groups(around(LEFT, (100, 310, 240, 420), place=(500, 700, 600, 800))) == [(0,), (1,), (2,)]


def test_only_text_is_merged() -> None:
    for first, second in (("text", "abstract"), ("abstract", "abstract"), ("paragraph_title", "text")):
        regions = [region(first, LEFT), region(second, (100, 310, 240, 420)), region("image", FIGURE)]
        assert groups(routed(*regions)) == [(0,), (1,), (2,)]


def test_merging_can_be_switched_off() -> None:
    regions = [region("text", LEFT), region("text", (100, 310, 240, 420)), region("image", FIGURE)]
    assert groups(route(regions, ParseOptions(merge_layout_blocks=False))) == [(0,), (1,), (2,)]


# Merging: the next column


def test_text_that_goes_on_in_the_next_column_is_one() -> None:
    (text,) = routed(region("text", (100, 500, 400, 900)), region("text", (440, 100, 740, 300)))
    assert (text.regions, text.aligns) == ((0, 1), ("center",))


@pytest.mark.parametrize(
    ("b", "why"),
    [
        ((490, 100, 790, 300), "the gap is 0.3 of the width"),
        ((440, 900, 740, 950), "it begins where the other ends"),
        ((400, 100, 700, 300), "there is no gap"),
        ((10, 100, 90, 300), "it lies on the left"),
    ],
)
def test_other_columns_stay_apart(b: Box, why: str) -> None:
    assert groups(routed(region("text", (100, 500, 400, 900)), region("text", b))) == [(0,), (1,)], why


def test_a_stack_three_times_as_high_as_wide_is_read_in_parts() -> None:
    # 300 wide: 400 + 499 px high are below 3, 400 + 500 are not
    assert groups(routed(region("text", (100, 400, 400, 800)), region("text", (440, 100, 740, 599)))) == [(0, 1)]
    assert groups(routed(region("text", (100, 400, 400, 800)), region("text", (440, 100, 740, 600)))) == [(0,), (1,)]


def test_a_picture_between_the_parts_comes_after_them() -> None:
    regions = [
        region("text", (100, 500, 400, 900)),
        region("image", (440, 0, 740, 90)),
        region("text", (440, 100, 740, 300)),
        region("text", (440, 600, 740, 650)),
    ]
    assert groups(routed(*regions)) == [(0, 2), (1,), (3,)]


def test_a_heading_between_two_texts_parts_them() -> None:
    regions = [
        region("text", (100, 500, 400, 900)),
        region("paragraph_title", (440, 0, 740, 90)),
        region("text", (440, 100, 740, 300)),
    ]
    assert groups(routed(*regions)) == [(0,), (1,), (2,)]


def test_three_parts_are_one() -> None:
    boxes: list[Box] = [(0, 500, 300, 700), (320, 100, 620, 300), (640, 100, 940, 300)]
    (text,) = routed(*(region("text", box) for box in boxes))
    assert (text.regions, text.aligns) == ((0, 1, 2), ("center", "center"))


# Figures inside tables

TABLE: Box = (100, 100, 700, 500)


def test_figures_in_a_table_are_marked_and_follow_it() -> None:
    regions = [
        region("image", (120, 120, 200, 200)),
        region("table", TABLE),
        region("text", (100, 600, 700, 700)),
        region("seal", (300, 120, 380, 200)),
        region("image", (400, 120, 424, 300)),  # 24 px: too small for a mark
        region("image", (650, 120, 701, 200)),  # sticks out
        region("chart", (120, 300, 300, 480)),  # no figure of a table for upstream, either
    ]
    table, first, second, text, outside, chart = routed(*regions)
    assert table == Element((1,), "table", figures=(("[F2]", 0), ("[F3]", 3), ("", 4)))
    assert [element.regions for element in (first, second, text, outside, chart)] == [(0,), (3,), (2,), (5,), (6,)]


def test_a_seal_in_a_table_is_read_when_seals_are() -> None:
    elements = route([region("table", TABLE), region("seal", (300, 120, 380, 200))], ALL)
    assert [element.task for element in elements] == ["table", "seal"]


def test_marks_avoid_digits_that_look_alike_and_go_on_over_tables() -> None:
    figures = [region("image", (100, 100 + 30 * n, 130, 130 + 30 * n)) for n in range(9)]
    other = [region("table", (100, 600, 700, 900)), region("image", (150, 650, 300, 800))]
    elements = routed(region("table", TABLE), *figures, *other)
    assert [mark for mark, _ in elements[0].figures] == [
        *("[F2]", "[F3]", "[F4]", "[F5]", "[F6]", "[F7]", "[F8]", "[F22]", "[F23]"),
    ]
    assert elements[10].figures == (("[F24]", 11),)


# Pixels


def test_a_rectangle_is_cut_as_it_is() -> None:
    image = page()
    part = crops.cut_region(image.pixels, (10, 20, 110, 70), box_polygon(10, 20, 110, 70))
    assert part.shape == (50, 100, 3)
    assert (part == 128).all()
    part[:] = 0  # a copy: the page is not touched
    assert (image.pixels == 128).all()


def test_what_is_outside_the_outline_is_white() -> None:
    el: Polygon = ((10, 20), (60, 20), (60, 50), (110, 50), (110, 120), (10, 120))
    part = crops.cut_region(page().pixels, (10, 20, 110, 120), el)
    assert (part[:30, 51:] == 255).all()
    assert (part[31:] == 128).all()
    assert (part[:, :50] == 128).all()


def test_a_formula_is_trimmed_to_its_ink() -> None:
    pixels = np.full((100, 200, 3), 250, np.uint8)
    pixels[40:60, 50:150] = 30
    pixels[10, 10] = 230  # dust, lighter than 200 of the stretched range
    trimmed, by = crops.trim(pixels)
    assert (trimmed.shape, by) == ((20, 100, 3), (50, 40))


def test_the_ink_threshold_is_200_of_the_stretched_range() -> None:
    pixels = np.full((20, 20, 3), 255, np.uint8)
    pixels[5:10, 5:10] = 0
    pixels[5:10, 12:15] = 201
    assert crops.trim(pixels)[0].shape == (5, 5, 3)
    pixels[5:10, 12:15] = 200
    assert crops.trim(pixels)[0].shape == (5, 10, 3)


@pytest.mark.parametrize("ink", [(0, 0), (2, 50), (50, 2)])
def test_a_formula_with_hardly_any_ink_stays_whole(ink: tuple[int, int]) -> None:
    pixels = np.full((100, 200, 3), 255, np.uint8)
    pixels[10 : 10 + ink[0], 10 : 10 + ink[1]] = 0
    assert crops.trim(pixels)[0].shape == pixels.shape


def test_a_stack_is_as_wide_as_its_widest_part_and_white_elsewhere() -> None:
    parts = [np.full((10, width, 3), value, np.uint8) for width, value in ((100, 1), (40, 2), (60, 3))]
    stacked = crops.stack(parts, ("right", "center"))
    assert stacked.shape == (30, 100, 3)
    assert (stacked[:10] == 1).all()
    assert (stacked[10:20, 60:] == 2).all()
    assert (stacked[10:20, :60] == 255).all()
    assert (stacked[20:, 20:80] == 3).all()


def test_parts_already_stacked_move_together_under_a_wider_one() -> None:
    parts = [np.full((10, width, 3), value, np.uint8) for width, value in ((40, 1), (60, 2), (100, 3))]
    stacked = crops.stack(parts, ("left", "center"))
    assert (stacked[:10, 20:60] == 1).all()
    assert (stacked[10:20, 20:80] == 2).all()
    assert (stacked[:20, :20] == 255).all()


def test_a_mark_is_written_inside_its_white_box() -> None:
    pixels = np.full((400, 600, 3), 90, np.uint8)
    crops.paint_mark(pixels, (100, 50, 300, 150), "[F2]")
    inside = pixels[50:151, 100:301]
    assert set(np.unique(pixels[np.r_[0:50, 151:400]])) == {90}
    dark = np.argwhere(inside[..., 0] < 100)
    height, width = dark.max(axis=0) - dark.min(axis=0)
    assert 60 <= width <= 110  # nine tenths of the shorter side, and the stroke
    assert abs(dark.mean(axis=0)[1] - 100) < 10
    assert height < 101


# Crops of a page


def test_a_crop_knows_where_it_lies_and_what_was_painted_over() -> None:
    white = np.full((1000, 800, 3), 255, np.uint8)
    white[560:580, 350:450] = 0
    image = PageImage(0, white)
    regions = [
        region("table", TABLE),
        region("image", (120, 120, 200, 200)),
        region("display_formula", (100, 520, 700, 620)),
    ]
    white[120:200, 120:200] = 77
    table, formula = cut_regions(image, regions, ParseOptions())
    assert (table.task, table.offset_px, table.figures) == ("table", (100, 100), (("[F2]", 1),))
    assert (table.pixels[20:24, 20:100] == 255).all()
    assert (table.pixels[21:99, 21:99] < 100).any()  # the mark
    assert (formula.task, formula.offset_px, formula.pixels.shape) == ("formula", (350, 560), (20, 100, 3))
    assert (white[120:200, 120:200] == 77).all()


def test_of_a_table_with_an_outline_and_a_picture_the_model_sees_neither_what_is_outside_nor_the_picture() -> None:
    pixels = np.full((1000, 800, 3), 90, np.uint8)
    pixels[120:200, 120:200] = 10
    outline: Polygon = ((100, 100), (700, 100), (700, 400), (400, 500), (100, 500))
    regions = [region("table", TABLE, outline), region("image", (120, 120, 200, 200))]
    (crop,) = cut_regions(PageImage(0, pixels), regions, ParseOptions())
    assert crop.figures == (("[F2]", 1),)
    corner = crop.pixels[-20:, -60:]  # below the cut off corner
    assert (corner == 255).all()
    assert (crop.pixels[200:280, 300:500] == 90).all()  # the table itself
    mark = crop.pixels[20:101, 20:101]
    assert (mark == 255).mean() > 0.5
    assert (mark < 60).any()
    assert (mark[[0, -1]] == 255).all()


def test_merged_regions_are_one_crop() -> None:
    regions = [region("text", (100, 500, 400, 900)), region("text", (440, 100, 740, 300))]
    (crop,) = cut_regions(page(), regions, ParseOptions())
    assert (crop.regions, crop.pixels.shape, crop.offset_px) == ((0, 1), (600, 300, 3), (100, 500))
