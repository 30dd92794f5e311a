"""Facts of layout detection with PP-DocLayout: the steps after the network, in their order."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from docvino.codec import doclayout
from docvino.document import Box, Polygon, Region, box_polygon
from docvino.errors import InferenceError
from docvino.settings import LayoutShape
from docvino.specs.doclayout import FACTS_V2, FACTS_V3, LABELS

CLASSES = {label.name: number for number, label in enumerate(FACTS_V3.labels)}
WIDTH, HEIGHT = 1000, 1400
Row = tuple[str, float, Box, int]


def outputs(
    rows: Sequence[Row], masks: dict[int, NDArray[np.int32]] | None = None, columns: int = 7
) -> list[NDArray[np.generic]]:
    """What the graph gives for one page: rows, counts, masks; a mask that is not given fills the page."""
    table = np.array([[CLASSES[label], score, *box, order] for label, score, box, order in rows], np.float32)
    table = table.reshape(-1, 7)
    if columns == 8:
        table = np.concatenate([table, np.zeros((len(table), 1), np.float32)], axis=1)
    all_masks = np.ones((len(rows), 200, 200), np.int32)
    for place, mask in (masks or {}).items():
        all_masks[place] = mask
    return [table, np.array([len(rows)], np.int32), all_masks]


def decode(
    rows: Sequence[Row],
    masks: dict[int, NDArray[np.int32]] | None = None,
    size: tuple[int, int] = (WIDTH, HEIGHT),
    **wishes: object,
) -> list[Region]:
    return doclayout.decode(outputs(rows, masks), *size, FACTS_V3, **wishes)  # type: ignore[arg-type]


def labels(regions: Sequence[Region]) -> list[str]:
    return [region.label for region in regions]


def drawn(*polygons: Sequence[tuple[int, int]]) -> NDArray[np.int32]:
    """A mask of the page with polygons in page pixels drawn on it."""
    mask = np.zeros((200, 200), np.uint8)
    for polygon in polygons:
        points = np.array([(x * 200 / WIDTH, y * 200 / HEIGHT) for x, y in polygon])
        cv2.fillPoly(mask, [points.round().astype(np.int32)], 1)
    return mask.astype(np.int32)


def area(polygon: Polygon) -> float:
    """Positive for a polygon that runs clockwise on the page."""
    pairs = zip(polygon, (*polygon[1:], polygon[0]), strict=True)
    return sum(x * v - u * y for (x, y), (u, v) in pairs) / 2


# Facts


def test_the_labels_of_the_published_model_stand_in_their_order() -> None:
    assert [label.name for label in FACTS_V3.labels] == [
        *("abstract", "algorithm", "aside_text", "chart", "content", "display_formula", "doc_title", "figure_title"),
        *("footer", "footer_image", "footnote", "formula_number", "header", "header_image", "image"),
        *("inline_formula", "number", "paragraph_title", "reference", "reference_content", "seal", "table", "text"),
        *("vertical_text", "vision_footnote"),
    ]


def test_tasks_and_merge_modes_are_those_of_the_pipeline() -> None:
    assert {name for name, label in LABELS.items() if label.absorbs} == {
        *("chart", "display_formula", "doc_title", "inline_formula", "paragraph_title"),
    }
    assert {name for name, label in LABELS.items() if label.task is None} == {
        *("chart", "seal", "image", "header_image", "footer_image"),
    }
    assert {name for name, label in LABELS.items() if label.task == "formula"} == {"display_formula", "inline_formula"}
    assert {name for name, label in LABELS.items() if label.running} == {
        *("number", "footnote", "header", "header_image", "footer", "footer_image", "aside_text"),
    }


def test_v2_has_thresholds_by_label() -> None:
    assert {number: label.threshold for number, label in enumerate(FACTS_V2.labels) if label.threshold != 0.5} == {
        **dict.fromkeys((5, 6, 15, 17, 22, 23), 0.4),
        20: 0.45,
    }
    assert {label.threshold for label in FACTS_V3.labels} == {0.3}


# Preprocessing


def test_a_page_is_stretched_scaled_and_described() -> None:
    page = np.zeros((400, 1600, 3), np.uint8)
    page[..., 0] = 255
    inputs = doclayout.prepare(page, FACTS_V3)
    assert inputs["image"].shape == (1, 3, 800, 800)
    assert inputs["image"].dtype == np.float32
    assert [float(inputs["image"][0, channel].mean()) for channel in range(3)] == [1.0, 0.0, 0.0]
    assert inputs["im_shape"].tolist() == [[800.0, 800.0]]
    assert inputs["scale_factor"].tolist() == [[2.0, 0.5]]  # height first


def test_enlarging_is_bicubic() -> None:
    page = np.zeros((400, 400, 3), np.uint8)
    page[:, 200:] = 200
    row = doclayout.prepare(page, FACTS_V3)["image"][0, 0, 0] * 255
    assert row.max() > 205  # it overshoots at an edge, as no bilinear does
    assert row.max() < 230


# Steps 1 and 2


def test_the_threshold_is_strict_and_may_be_replaced() -> None:
    rows: list[Row] = [
        ("text", 0.25, (0, 0, 100, 50), 0),
        ("text", 0.31, (0, 100, 100, 150), 1),
        ("table", 0.9, (0, 200, 100, 250), 2),
    ]
    assert labels(decode(rows)) == ["text", "table"]
    assert labels(decode(rows, threshold=0.25)) == ["text", "table"]  # 0.25 itself is not above it
    assert labels(decode(rows, threshold=0.5)) == ["table"]
    assert labels(decode(rows, threshold=0)) == ["text", "text", "table"]  # an integer is a threshold, too


def test_v2_asks_more_of_a_table_than_of_text() -> None:
    rows: list[Row] = [("text", 0.45, (0, 0, 100, 50), 0), ("table", 0.45, (0, 100, 100, 150), 1)]
    assert labels(doclayout.decode(outputs(rows, columns=8)[:2], WIDTH, HEIGHT, FACTS_V2)) == ["text"]


def test_corners_are_rounded() -> None:
    (region,) = decode([("text", 0.9, (10.4, 20.6, 110.5, 51.5), 0)])
    assert region.bounds == (10.0, 21.0, 110.0, 52.0)


def test_rows_of_no_class_and_rows_beyond_the_count_are_nothing() -> None:
    rows, counts, masks = outputs([("text", 0.9, (0, 0, 100, 50), 0)] * 2)
    rows[0, 0] = -1
    assert doclayout.decode([rows, counts, masks], WIDTH, HEIGHT, FACTS_V3)[0].bounds == (0, 0, 100, 50)
    counts[0] = 1
    assert doclayout.decode([rows, counts, masks], WIDTH, HEIGHT, FACTS_V3) == []


@pytest.mark.parametrize("broken", ["no masks", "six columns", "two pages"])
def test_other_outputs_are_refused(broken: str) -> None:
    rows, counts, masks = outputs([("text", 0.9, (0, 0, 100, 50), 0)])
    bad = {
        "no masks": [rows, counts],
        "six columns": [rows[:, :6], counts, masks],
        "two pages": [rows, np.array([1, 0]), masks],
    }[broken]
    with pytest.raises(InferenceError, match="which are no regions of one page"):
        doclayout.decode(bad, WIDTH, HEIGHT, FACTS_V3)


# Step 3


@pytest.mark.parametrize(("label", "kept"), [("text", 1), ("footer", 2)])
def test_of_two_nearly_equal_boxes_of_one_label_the_better_stays(label: str, kept: int) -> None:
    # 100 x 100 and 100 x 62 pixels counted with one more: IoU 0.627
    regions = doclayout._suppressed(
        doclayout._above_threshold(
            outputs([("text", 0.8, (0, 0, 100, 100), 0), (label, 0.9, (0, 0, 100, 62), 1)])[0].astype(np.float64),
            None,
            FACTS_V3,
            None,
        )
    )
    assert len(regions) == kept
    assert regions[0].score == pytest.approx(0.9)


def test_intersection_over_union_counts_the_last_pixel() -> None:
    assert doclayout._iou((0, 0, 9, 9), (0, 0, 9, 4)) == 0.5
    assert doclayout._iou((0, 0, 9, 9), (10, 0, 19, 9)) == 0.0


@pytest.mark.parametrize(("height", "kept"), [(59, 2), (60, 1)])
def test_at_an_overlap_of_exactly_0_6_the_second_goes(height: int, kept: int) -> None:
    boxes: list[Row] = [("text", 0.9, (0, 0, 99, 99), 0), ("text", 0.8, (0, 0, 99, height - 1), 1)]
    rows = outputs(boxes)[0].astype(np.float64)
    assert len(doclayout._suppressed(doclayout._above_threshold(rows, None, FACTS_V3, None))) == kept


# Step 4


@pytest.mark.parametrize(
    ("size", "share", "kept"),
    [((1000, 1400), 0.92, True), ((1000, 1400), 0.94, False), ((1400, 1000), 0.81, True), ((1400, 1000), 0.83, False)],
)
def test_an_image_of_nearly_the_page_goes(size: tuple[int, int], share: float, kept: bool) -> None:
    width, height = size
    image: Row = ("image", 0.9, (0, 0, width, share * height), 0)
    note: Row = ("footer", 0.9, (10, share * height + 2, 500, share * height + 40), 1)
    assert ("image" in labels(decode([image, note], size=size))) is kept
    assert labels(decode([image], size=size)) == ["image"]  # a page that is nothing else


# Step 5


def test_what_lies_in_a_chart_goes_and_what_lies_in_an_image_stays() -> None:
    inside: Row = ("figure_title", 0.9, (110, 110, 300, 150), 1)
    assert labels(decode([("chart", 0.9, (100, 100, 500, 500), 0), inside])) == ["chart"]
    assert labels(decode([("image", 0.9, (100, 100, 500, 500), 0), inside])) == ["image", "figure_title"]


def test_nine_tenths_inside_are_inside() -> None:
    title: Row = ("doc_title", 0.9, (100, 100, 500, 200), 0)
    assert labels(decode([title, ("text", 0.9, (400, 110, 511, 130), 1)])) == ["doc_title"]
    # 89 % inside: the filter at the end drops the smaller one of 70 % all the same
    assert labels(decode([title, ("image", 0.9, (400, 110, 513, 130), 1)])) == ["doc_title", "image"]


def test_a_title_found_under_two_labels_is_kept_once() -> None:
    # Upstream has each drop the other.
    box: Box = (100, 100, 500, 150)
    for first, second in ((0.9, 0.8), (0.8, 0.9), (0.9, 0.9)):
        rows: list[Row] = [("doc_title", first, box, 0), ("paragraph_title", second, (100, 100, 490, 150), 1)]
        assert labels(decode(rows)) == ["doc_title" if first >= second else "paragraph_title"]


NESTED: tuple[Row, ...] = (
    ("table", 0.9, (100, 100, 700, 700), 0),
    ("image", 0.8, (150, 150, 500, 500), 1),
    ("seal", 0.7, (200, 200, 300, 300), 2),
    ("text", 0.6, (100, 800, 700, 900), 3),
)


@pytest.mark.parametrize(
    ("mode", "kept"),
    [
        ("auto", ["table", "image", "seal", "text"]),
        ("union", ["table", "image", "seal", "text"]),
        ("large", ["table", "text"]),
        ("small", ["image", "seal", "text"]),  # upstream's, too, keeps what lies in another one, whatever lies in it
    ],
)
def test_merge_modes_keep_outer_or_inner_regions(mode: str, kept: list[str]) -> None:
    assert labels(decode(NESTED, merge=mode)) == kept


def test_without_nms_what_covers_a_better_one_stays() -> None:
    rows: list[Row] = [("text", 0.8, (0, 0, 100, 100), 0), ("text", 0.9, (0, 0, 100, 70), 1)]
    table, counts, masks = outputs(rows)
    assert len(doclayout.find([table, counts, masks], WIDTH, HEIGHT, FACTS_V3)) == 1
    assert len(doclayout.find([table, counts, masks], WIDTH, HEIGHT, FACTS_V3, nms=False)) == 2


# Step 6


def test_the_order_is_that_of_the_network() -> None:
    rows: list[Row] = [
        ("text", 0.5, (0, 0, 400, 50), 2),
        ("table", 0.9, (0, 100, 400, 150), 0),
        ("header", 0.7, (0, 200, 400, 250), 1),
    ]
    regions = decode(rows)
    assert labels(regions) == ["table", "header", "text"]
    assert [region.order for region in regions] == [0, 1, 2]


def test_v2_breaks_ties_by_its_second_column_largest_first() -> None:
    rows: list[Row] = [(name, 0.9, (0, 100 * y, 400, 100 * y + 50), 5) for y, name in enumerate(("text", "table"))]
    table, counts, _ = outputs(rows, columns=8)
    table[:, 7] = [1, 2]
    assert labels(doclayout.decode([table, counts], WIDTH, HEIGHT, FACTS_V2)) == ["table", "text"]


# Step 7: polygons


BOX: Box = (200, 280, 800, 980)


def outline(mask: NDArray[np.int32], shape: LayoutShape = "auto", before: Sequence[Row] = ()) -> Polygon:
    rows: list[Row] = [*before, ("text", 0.9, BOX, 9)]
    masks = {place: np.zeros((200, 200), np.int32) for place in range(len(before))}
    return decode(rows, {**masks, len(before): mask}, shape=shape)[-1].polygon


def test_a_mask_that_fills_its_box_is_a_rectangle() -> None:
    full = drawn(((200, 280), (800, 280), (800, 980), (200, 980)))
    assert outline(full) == box_polygon(*BOX)
    assert outline(full, "rect") == box_polygon(*BOX)
    assert outline(np.zeros((200, 200), np.int32)) == box_polygon(*BOX)  # nothing of it is on the mask


def test_a_turned_block_is_a_turned_rectangle() -> None:
    turned = drawn(((200, 500), (500, 280), (800, 760), (500, 980)))
    quad = outline(turned)
    assert len(quad) == 4
    assert quad != box_polygon(*BOX)
    assert area(quad) > 0  # clockwise
    assert quad == outline(turned, "quad")
    assert len(outline(turned, "poly")) >= 4


def test_text_around_a_figure_is_a_polygon_when_polygons_are_asked_for() -> None:
    el = drawn(((200, 280), (450, 280), (450, 700), (800, 700), (800, 980), (200, 980)))
    polygon = outline(el, "poly")
    assert len(polygon) == 6
    assert area(polygon) == pytest.approx(600 * 700 - 350 * 420, rel=0.05)
    assert min(x + y for x, y in polygon) == sum(polygon[0])  # from the top left corner
    # The smallest turned rectangle around it is its box, and that decides first.
    assert outline(el) == box_polygon(*BOX)


def test_a_turned_block_that_another_one_runs_into_keeps_its_outline() -> None:
    turned = drawn(((200, 500), (500, 280), (800, 760), (500, 980)))
    neighbour: Row = ("text", 0.9, (100, 300, 320, 420), 0)
    assert len(outline(turned, before=[neighbour])) >= 4
    assert outline(turned, before=[neighbour]) == outline(turned, "poly")


def test_the_largest_piece_of_a_mask_counts() -> None:
    pieces = drawn(((200, 280), (240, 280), (240, 320), (200, 320)), ((300, 400), (800, 400), (800, 980), (300, 980)))
    polygon = outline(pieces, "poly")
    assert min(x for x, _ in polygon) >= 290


def test_a_single_dent_is_filled_and_a_broad_one_stays() -> None:
    notch = np.array([(0, 0), (0, 100), (300, 100), (300, 0), (150, 40)], float)
    assert (150, 40) not in doclayout.simplified(notch, 1000)
    bay = np.array([(0, 0), (0, 100), (300, 100), (300, 0), (200, 0), (180, 40), (120, 40), (100, 0)], float)
    assert {(180, 40), (120, 40)} & set(doclayout.simplified(bay, 1000)) == set()  # 117 degrees: too sharp
    flat = np.array([(0, 0), (0, 100), (300, 100), (300, 0), (230, 0), (180, 40), (120, 40), (70, 0)], float)
    assert {(180, 40), (120, 40)} <= set(doclayout.simplified(flat, 1000))


def test_a_dent_over_the_first_point_counts_as_one() -> None:
    flat = np.array([(0, 0), (0, 100), (300, 100), (300, 0), (230, 0), (180, 40), (120, 40), (70, 0)], float)
    for by in range(len(flat)):
        assert set(doclayout.simplified(np.roll(flat, by, axis=0), 1000)) == set(doclayout.simplified(flat, 1000))


def test_far_corners_get_points_between_them_back() -> None:
    notch = np.array([(0, 0), (0, 100), (300, 100), (300, 0), (150, 40)], float)
    assert (150, 40) in doclayout.simplified(notch, 150)


def test_a_corner_of_45_degrees_stays_where_it_is() -> None:
    # Upstream moves it into the region.
    triangle = np.array([(0, 0), (0, 100), (100, 100), (50, 50)], float)
    assert {(0.0, 0.0), (0.0, 100.0), (100.0, 100.0)} <= set(doclayout.simplified(triangle, 1000))


@given(
    st.lists(st.tuples(st.integers(0, 199), st.integers(0, 199), st.integers(1, 60), st.integers(1, 60)), max_size=5),
    st.sampled_from(["auto", "quad", "poly"]),
)
def test_any_mask_gives_an_outline_on_the_page(rectangles: list[tuple[int, int, int, int]], shape: LayoutShape) -> None:
    mask = np.zeros((200, 200), np.int32)
    for left, top, width, height in rectangles:
        mask[top : top + height, left : left + width] = 1
    (region,) = decode([("text", 0.9, (-3, 280, 1003, 980), 0)], {0: mask}, shape=shape)
    assert len(region.polygon) >= 4
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in region.polygon)


# Step 8


def test_regions_grow_about_their_centres_with_their_outlines_and_end_at_the_page() -> None:
    (region,) = decode([("text", 0.9, (100, 100, 300, 200), 0)], unclip=1.5)
    assert (region.bounds, region.polygon) == ((50, 75, 350, 225), box_polygon(50, 75, 350, 225))
    (region,) = decode([("text", 0.9, (0, 0, 300, 200), 0)], unclip=2.0)
    assert region.bounds == (0, 0, 450, 300)
    turned = drawn(((200, 500), (500, 280), (800, 760), (500, 980)))
    small, large = (decode([("text", 0.9, BOX, 9)], {0: turned}, shape="poly", unclip=ratio)[0] for ratio in (1.0, 1.2))
    assert len(large.polygon) == len(small.polygon) > 3
    assert area(large.polygon) == pytest.approx(1.44 * area(small.polygon))


# Step 9


def test_boxes_end_at_the_page_and_empty_ones_go() -> None:
    rows: list[Row] = [
        ("text", 0.9, (-10, -5, 2000, 50), 0),
        ("text", 0.9, (1100, 100, 1200, 150), 1),
        ("text", 0.9, (50, 300, 50, 350), 2),
        ("table", 0.9, (0, 500, 100, 600), 3),
    ]
    regions = decode(rows)
    assert [region.bounds for region in regions] == [(0, 0, 1000, 50), (0, 500, 100, 600)]
    assert [region.order for region in regions] == [0, 1]


# The pipeline's filter


def region(label: str, box: Box, polygon: Polygon | None = None) -> Region:
    return Region(label, 0.9, polygon or box_polygon(*box), box=box)


PAIRS = [
    # label, label, share of the smaller box, what stays
    ("text", "text", 0.75, ["text"]),
    ("text", "text", 0.7, ["text", "text"]),  # not more than 0.7
    ("text", "inline_formula", 0.6, ["text"]),
    ("text", "inline_formula", 0.5, ["text", "inline_formula"]),
    ("inline_formula", "inline_formula", 0.6, []),
    ("text", "image", 0.9, ["text", "image"]),
    ("text", "seal", 0.9, ["text", "seal"]),
    ("text", "chart", 0.9, ["text", "chart"]),
    ("table", "image", 0.9, ["table", "image"]),
    ("table", "seal", 0.9, ["table", "seal"]),
    ("table", "text", 0.9, ["table"]),  # a table and something that is no picture: one goes
    ("image", "image", 0.9, ["image"]),
    ("text", "reference", 0.1, ["text"]),
]


@pytest.mark.parametrize(("first", "second", "share", "stay"), PAIRS)
def test_overlaps_are_resolved_by_their_labels(first: str, second: str, share: float, stay: list[str]) -> None:
    large, small = region(first, (0, 0, 200, 100)), region(second, (200 - 100 * share, 0, 300 - 100 * share, 100))
    assert labels(doclayout.filter_overlaps([large, small])) == stay


def test_of_equal_boxes_the_first_stays_and_of_others_the_larger() -> None:
    one, two = region("text", (0, 0, 100, 100)), region("abstract", (0, 0, 100, 100))
    assert labels(doclayout.filter_overlaps([one, two])) == ["text"]
    assert labels(doclayout.filter_overlaps([one, region("abstract", (0, 0, 110, 100))])) == ["abstract"]


@pytest.mark.parametrize(("side", "stays"), [(5, False), (6, True)])
def test_specks_go(side: int, stays: bool) -> None:
    for box in ((0, 0, side, 100), (0, 0, 100, side)):
        assert bool(doclayout.filter_overlaps([region("text", box)])) is stays


def test_boxes_that_overlap_stay_where_their_outlines_do_not() -> None:
    el = ((0, 0), (100, 0), (100, 300), (400, 300), (400, 400), (0, 400))
    inner: Box = (110, 0, 400, 290)
    regions = [region("text", (0, 0, 400, 400), el), region("text", inner)]
    assert len(doclayout.filter_overlaps(regions)) == 2
    assert len(doclayout.filter_overlaps([region("text", (0, 0, 400, 400)), region("text", inner)])) == 1


# Checklist row 7: one fixed page through all steps


def test_a_fixed_page_gives_the_regions_that_the_steps_say() -> None:
    rows: list[Row] = [
        ("text", 0.95, (100.2, 300.1, 900.4, 500.4), 3),
        ("text", 0.60, (101, 301, 899, 470), 4),  # nearly the same: step 3
        ("doc_title", 0.90, (100, 100, 900, 180), 1),
        ("text", 0.40, (120, 105, 880, 175), 2),  # in the title: step 5
        ("image", 0.99, (0, 0, 1000, 1400), 0),  # the page itself: step 4
        ("inline_formula", 0.80, (300, 320, 400, 350), 5),  # in the text: the filter
        ("table", 0.88, (100, 600, 900, 1000), 7),
        ("image", 0.70, (150, 650, 300, 800), 8),  # in the table: stays
        ("reference", 0.9, (100, 1050, 900, 1300), 10),
        ("reference_content", 0.9, (100, 1060, 900, 1100), 11),
        ("footer", 0.29, (100, 1350, 900, 1380), 12),  # step 2
        ("header", 0.31, (100, 20, 900, 60), 6),
        ("text", 0.5, (500, 1350, 503, 1380), 13),  # a speck
    ]
    assert [(one.label, one.bounds, one.order) for one in decode(rows)] == [
        ("doc_title", (100, 100, 900, 180), 0),
        ("text", (100, 300, 900, 500), 1),
        ("header", (100, 20, 900, 60), 2),
        ("table", (100, 600, 900, 1000), 3),
        ("image", (150, 650, 300, 800), 4),
        ("reference_content", (100, 1060, 900, 1100), 5),
    ]
