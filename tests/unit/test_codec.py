"""Facts of what goes into the networks and of what comes out, on numbers that a person can check."""

from __future__ import annotations

import math
from dataclasses import replace

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from docvino.codec import detection, layout, orientation, pixels, recognition
from docvino.specs.orientation import ORIENTATION
from docvino.specs.picodet import LAYOUT
from docvino.specs.pp_ocr import DETECTION, RECOGNITION

Image = NDArray[np.uint8]
RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def canvas(width: int, height: int, colour: tuple[int, int, int] = (0, 0, 0)) -> Image:
    return np.full((height, width, 3), colour, np.uint8)


def noise(width: int, height: int) -> Image:
    return np.random.default_rng(7).integers(0, 256, (height, width, 3), dtype=np.uint8)


def corners(left: float, top: float, right: float, bottom: float) -> NDArray[np.float32]:
    return np.array([[left, top], [right, top], [right, bottom], [left, bottom]], np.float32)


# ---- pixels


def test_normalising_scales_to_one_and_takes_mean_and_deviation_per_channel() -> None:
    tensor = pixels.normalise(np.array([[[0, 255, 51]]], np.uint8), (0.5, 0.25, 0.2), (0.5, 0.25, 0.1))
    assert tensor.shape == (1, 3, 1, 1)
    assert tensor.dtype == np.float32
    assert tensor.ravel() == pytest.approx([-1.0, 3.0, 0.0], abs=1e-6)


def test_bgr_is_rgb_with_the_channels_reversed() -> None:
    assert pixels.to_bgr(canvas(1, 1, (1, 2, 3))).ravel().tolist() == [3, 2, 1]


def test_resizing_to_the_same_size_changes_nothing() -> None:
    image = noise(7, 5)
    assert pixels.resize(image, 7, 5) is image
    assert pixels.resize(image, 14, 3).shape == (3, 14, 3)


def speckled(width: int, height: int, deviation: float) -> Image:
    grain = np.random.default_rng(5).normal(200, deviation, (height, width, 3))
    return np.clip(grain, 0, 255).astype(np.uint8)


@pytest.mark.parametrize("deviation", [0, 3, 15])
def test_plain_paper_has_no_structure_even_when_it_is_noisy(deviation: float) -> None:
    assert not pixels.has_structure(speckled(400, 300, deviation))


@pytest.mark.parametrize("deviation", [0, 3, 15])
def test_a_page_with_a_line_of_print_has_structure(deviation: float) -> None:
    page = speckled(400, 300, deviation)
    page[100:112, 50:350:2] = 20
    assert pixels.has_structure(page)


def test_areas_of_any_size_are_judged() -> None:
    assert not pixels.has_structure(canvas(1, 1))
    assert not pixels.has_structure(canvas(1, 200, WHITE))
    half = canvas(300, 2, WHITE)
    half[:, :150] = 0
    assert pixels.has_structure(half)


# ---- text detection


@pytest.mark.parametrize(
    ("page", "network"),
    [
        ((1000, 800), (992, 800)),  # large enough: only rounded to 32
        ((800, 1000), (800, 992)),
        ((736, 736), (736, 736)),
        ((500, 600), (736, 896)),  # the shorter side is enlarged to 736
        ((300, 200), (608, 384)),  # twice at most
        ((480, 4000), (480, 4000)),  # a receipt: enlarging would pass 4000
        ((480, 8000), (256, 4000)),  # the longer side is reduced to 4000
        ((5000, 7000), (1696, 2368)),  # reduced to four megapixels
        ((20, 4000), (32, 4000)),  # never below one stride
        ((20, 40_000), (32, 4000)),
        ((1, 1), (32, 32)),
    ],
)
def test_a_page_goes_through_detection_at_this_size(page: tuple[int, int], network: tuple[int, int]) -> None:
    limits = replace(
        DETECTION.facts, limit_side_px=736, max_enlargement=2.0, max_side_px=4000, max_area_px=4_000_000, stride_px=32
    )
    assert detection.input_size(*page, limits) == network


@pytest.mark.parametrize("page", [(1, 1), (2480, 3508), (9933, 14_043), (20, 60_000), (500, 120)])
def test_no_page_needs_more_than_the_network_was_made_for(page: tuple[int, int]) -> None:
    width, height = detection.input_size(*page, DETECTION.facts)
    stride = DETECTION.facts.stride_px
    assert width % stride == height % stride == 0
    assert max(width, height) <= DETECTION.facts.max_side_px
    assert width * height <= 1.05 * DETECTION.facts.max_area_px


def test_detection_sees_bgr_normalised_by_the_imagenet_values() -> None:
    tensor = detection.prepare(canvas(10, 10, RED), (64, 32), DETECTION.facts)
    assert tensor.shape == (1, 3, 32, 64)
    assert tensor[0, :, 5, 5] == pytest.approx([-0.485 / 0.229, -0.456 / 0.224, (1 - 0.406) / 0.225], abs=1e-5)


def probability_map(*boxes: tuple[int, int, int, int], value: float = 0.9) -> NDArray[np.float32]:
    """64 x 96, zero but for boxes of left, top, width, height."""
    drawn = np.zeros((64, 96), np.float32)
    for left, top, width, height in boxes:
        drawn[top : top + height, left : left + width] = value
    return drawn


def test_a_box_grows_by_area_times_ratio_over_perimeter_and_is_scaled_to_the_page() -> None:
    (box,) = detection.decode(probability_map((20, 25, 41, 11)), 192, 128, DETECTION.facts)
    grown = (40 * 10) * 1.4 / (2 * (40 + 10))
    expected = corners(20 - grown, 25 - grown, 60 + grown, 35 + grown) * 2
    assert box.corners == pytest.approx(expected, abs=0.1)
    assert box.score == pytest.approx(0.9, abs=1e-5)


def test_width_and_height_are_scaled_each_on_its_own() -> None:
    (box,) = detection.decode(probability_map((20, 25, 41, 11)), 96 * 3, 64, DETECTION.facts)
    grown = 5.6
    expected = corners(20 - grown, 25 - grown, 60 + grown, 35 + grown) * np.array([3, 1], np.float32)
    assert box.corners == pytest.approx(expected, abs=0.15)


def test_a_larger_ratio_grows_a_box_more() -> None:
    wide = replace(DETECTION.facts, unclip_ratio=2.0)
    (box,) = detection.decode(probability_map((20, 25, 41, 11)), 96, 64, wide)
    assert box.corners[0] == pytest.approx([20 - 8, 25 - 8], abs=0.1)


def test_a_box_never_leaves_the_page() -> None:
    (box,) = detection.decode(probability_map((0, 0, 96, 12)), 192, 128, DETECTION.facts)
    assert box.corners.min() == 0
    assert box.corners[:, 0].max() == 192


def test_text_below_the_pixel_threshold_is_no_box() -> None:
    facts = replace(DETECTION.facts, box_threshold=0.0)
    assert detection.decode(probability_map((20, 25, 40, 10), value=0.19), 96, 64, facts) == []
    assert len(detection.decode(probability_map((20, 25, 40, 10), value=0.21), 96, 64, facts)) == 1


def test_a_box_with_a_mean_below_the_box_threshold_is_dropped() -> None:
    assert detection.decode(probability_map((20, 25, 40, 10), value=0.44), 96, 64, DETECTION.facts) == []
    assert len(detection.decode(probability_map((20, 25, 40, 10), value=0.46), 96, 64, DETECTION.facts)) == 1


def test_specks_are_dropped() -> None:
    assert detection.decode(probability_map((20, 25, 40, 3)), 96, 64, DETECTION.facts) == []
    assert detection.decode(probability_map((5, 5, 1, 1), (50, 50, 2, 2)), 96, 64, DETECTION.facts) == []


def test_an_empty_map_has_no_boxes() -> None:
    assert detection.decode(probability_map(), 96, 64, DETECTION.facts) == []


def test_each_line_is_a_box_and_there_are_at_most_so_many() -> None:
    lines = probability_map((10, 5, 60, 8), (10, 25, 60, 8), (10, 45, 60, 8))
    found = detection.decode(lines, 96, 64, DETECTION.facts)
    assert sorted(round(float(box.corners[:, 1].mean())) for box in found) == [8, 28, 48]
    assert len(detection.decode(lines, 96, 64, replace(DETECTION.facts, max_boxes=2))) == 2


def test_a_slanted_line_has_slanted_corners() -> None:
    drawn = np.zeros((200, 200), np.uint8)
    middle, size, degrees = (100.0, 100.0), (120.0, 20.0), 15.0
    cv2.fillPoly(drawn, [np.rint(cv2.boxPoints((middle, size, degrees))).astype(np.int32)], 1)
    (box,) = detection.decode(drawn.astype(np.float32), 200, 200, DETECTION.facts)
    (x0, y0), (x1, y1) = box.corners[0], box.corners[1]
    assert math.degrees(math.atan2(y1 - y0, x1 - x0)) == pytest.approx(degrees, abs=1.5)
    assert box.corners.mean(axis=0) == pytest.approx([100, 100], abs=1)


@pytest.mark.parametrize("first", range(4))
@pytest.mark.parametrize("degrees", [-40, -10, 0, 10, 40])
def test_corners_are_ordered_clockwise_from_the_top_left(first: int, degrees: float) -> None:
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    level = np.array([[-50, -10], [50, -10], [50, 10], [-50, 10]], np.float32)
    wanted = (level @ np.array([[cos, sin], [-sin, cos]])).astype(np.float32)
    assert np.array_equal(detection.order_corners(np.roll(wanted, first, axis=0)), wanted)


# ---- lines


def test_a_level_line_is_cut_with_a_quarter_of_its_height_at_both_ends() -> None:
    page = noise(200, 60)
    assert np.array_equal(recognition.cut_line(page, corners(40, 20, 100, 40)), page[20:40, 35:105])


def test_the_margin_ends_at_the_edge_of_the_page() -> None:
    page = noise(200, 60)
    assert np.array_equal(recognition.cut_line(page, corners(0, 20, 100, 40)), page[20:40, 0:105])
    assert np.array_equal(recognition.cut_line(page, corners(100, 20, 200, 40)), page[20:40, 95:200])


def test_a_line_that_runs_down_is_turned_counter_clockwise_without_a_margin() -> None:
    page = noise(100, 200)
    assert np.array_equal(recognition.cut_line(page, corners(40, 30, 60, 150)), np.rot90(page[30:150, 40:60]))


def test_the_top_of_a_line_that_runs_down_becomes_its_left_end() -> None:
    page = canvas(100, 200, RED)
    page[100:] = BLUE
    line = recognition.cut_line(page, corners(40, 60, 60, 140))
    assert line.shape == (20, 80, 3)
    assert line[10, 5].tolist() == list(RED)
    assert line[10, 75].tolist() == list(BLUE)


def test_a_line_is_turned_from_one_and_a_half_times_its_width() -> None:
    page = noise(100, 100)
    assert recognition.cut_line(page, corners(20, 20, 40, 50)).shape == (20, 30, 3)
    assert recognition.cut_line(page, corners(20, 20, 40, 49)).shape == (29, 34, 3)


def test_a_slanted_line_is_straightened() -> None:
    page = canvas(300, 300)
    box = ((150.0, 150.0), (200.0, 24.0), 20.0)
    points = cv2.boxPoints(box)
    cv2.fillPoly(page, [np.rint(points).astype(np.int32)], WHITE)
    line = recognition.cut_line(page, detection.order_corners(points))
    assert line.shape == (24, 212, 3)
    assert line[3:-3, 10:-10].min() == 255
    assert line[:, :3].max() < 128


def test_a_line_far_down_a_very_long_page_is_cut() -> None:
    page = canvas(60, 40_000)
    page[39_900:39_920, 10:50] = WHITE
    assert recognition.cut_line(page, corners(10, 39_900, 50, 39_920))[:, 6:-6].min() == 255


def test_a_box_without_width_or_height_gives_at_least_one_pixel() -> None:
    page = noise(50, 50)
    assert recognition.cut_line(page, corners(10, 10, 10, 10)).size > 0
    assert recognition.cut_line(page, corners(10, 10, 40, 10)).size > 0
    assert recognition.cut_line(page, corners(50, 50, 50, 50)).size > 0


@pytest.mark.parametrize(
    ("width", "height", "network"),
    [(100, 32, 150), (320, 48, 320), (10, 48, 10), (101, 33, 147), (1, 500, 1), (5000, 48, 3200), (4000, 10, 3200)],
)
def test_a_line_goes_through_recognition_at_this_width(width: int, height: int, network: int) -> None:
    assert recognition.input_width(canvas(width, height), RECOGNITION.facts) == network


def test_lines_are_bgr_from_minus_one_to_one_and_padded_with_mid_grey() -> None:
    batch = recognition.prepare([canvas(400, 48, RED), canvas(48, 24, WHITE)], RECOGNITION.facts)
    assert batch.shape == (2, 3, 48, 400)
    assert batch[0, :, 20, 200] == pytest.approx([-1, -1, 1])
    assert batch[1, :, :, :96] == pytest.approx(np.ones((3, 48, 96)), abs=1e-6)
    assert not batch[1, :, :, 96:].any()


def test_short_lines_are_padded_to_the_width_the_network_was_trained_with() -> None:
    assert recognition.prepare([canvas(48, 48)], RECOGNITION.facts).shape == (1, 3, 48, 320)


def one_hot(*path: tuple[int, float], classes: int = 5) -> NDArray[np.float32]:
    """(1, T, classes) with the given class and its probability at each step, the rest shared by the others."""
    steps = np.zeros((1, len(path), classes), np.float32)
    for step, (index, probability) in enumerate(path):
        steps[0, step] = (1 - probability) / (classes - 1)
        steps[0, step, index] = probability
    return steps


def test_lines_of_one_width_share_an_inference_and_long_ones_come_first() -> None:
    widths = [320, 900, 320, 901, 320, 320, 320]
    assert recognition.batches(widths, 4, mixed=False) == [[3], [1], [0, 2, 4, 5], [6]]
    assert recognition.batches(widths, 4, mixed=True) == [[3, 1, 0, 2], [4, 5, 6]]
    assert recognition.batches([], 4, mixed=False) == []


ALPHABET = recognition.alphabet("a\nb\nc")


def test_the_alphabet_begins_with_the_blank_and_ends_with_the_space() -> None:
    assert ALPHABET == ("", "a", "b", "c", " ")


def test_a_dictionary_keeps_odd_characters_as_they_are() -> None:
    assert recognition.alphabet("\u2028\n\r\n　") == ("", "\u2028", "\r", "　", " ")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ([1, 2, 3], "abc"),
        ([1, 1, 1], "a"),
        ([1, 0, 1], "aa"),
        ([0, 0, 1, 1, 0, 0, 1, 2, 2], "aab"),
        ([1, 4, 2], "a b"),
        ([0, 0, 0], ""),
    ],
)
def test_repeats_are_one_character_unless_a_blank_lies_between(path: list[int], text: str) -> None:
    ((found, _),) = recognition.decode(one_hot(*((index, 0.9) for index in path)), ALPHABET)
    assert found == text


def test_the_confidence_is_the_mean_of_the_characters_kept() -> None:
    ((text, confidence),) = recognition.decode(one_hot((0, 1.0), (1, 0.9), (1, 0.5), (0, 0.6), (2, 0.7)), ALPHABET)
    assert text == "ab"
    assert confidence == pytest.approx(0.8)


def test_nothing_read_has_no_confidence() -> None:
    assert recognition.decode(one_hot((0, 0.99), (0, 0.99)), ALPHABET) == [("", 0.0)]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_number_that_is_not_finite_is_not_lost_when_the_best_class_is_found(value: float) -> None:
    probabilities = np.full((1, 3, 40), 0.02, np.float32)
    probabilities[0, 1, 30] = value
    _, certainty = recognition.best(probabilities)
    assert np.isfinite(certainty).tolist() == [[True, False, True]]


def test_each_row_of_a_batch_is_read_on_its_own() -> None:
    batch = np.concatenate([one_hot((1, 0.8), (2, 0.8)), one_hot((2, 0.6), (2, 0.6))])
    assert [text for text, _ in recognition.decode(batch, ALPHABET)] == ["ab", "b"]


# ---- layout

GRID = ((76, 100), (38, 50), (19, 25), (10, 13))  # columns and rows at each stride


class Head:
    """Outputs of the layout network without any box, to put boxes into."""

    def __init__(self) -> None:
        labels = len(LAYOUT.facts.labels)
        self.scores = [np.zeros((1, columns * rows, labels), np.float32) for columns, rows in GRID]
        self.sides = [np.zeros((1, columns * rows, 32), np.float32) for columns, rows in GRID]

    def put(
        self, level: int, column: int, row: int, label: str, score: float, distances: tuple[int, int, int, int]
    ) -> None:
        """A box whose left, top, right and bottom lie so many strides from the middle of the cell."""
        cell = row * GRID[level][0] + column
        self.scores[level][0, cell, LAYOUT.facts.labels.index(label)] = score
        self.sides[level][0, cell] = -50
        for side, distance in enumerate(distances):
            self.sides[level][0, cell, side * 8 + distance] = 50

    def decode(self, width: int = 608, height: int = 800) -> list[layout.LayoutBox]:
        return layout.decode(self.scores, self.sides, width, height, LAYOUT.facts)


def test_the_head_has_the_shapes_the_contract_names() -> None:
    head = Head()
    assert [tensor.shape for tensor in (*head.scores, *head.sides)] == [item.shape for item in LAYOUT.outputs]


@pytest.mark.parametrize("level", range(4))
def test_a_box_lies_so_many_strides_around_the_middle_of_its_cell(level: int) -> None:
    stride = LAYOUT.facts.strides_px[level]
    head = Head()
    head.put(level, 5, 6, "title", 0.75, (2, 1, 3, 4))
    (box,) = head.decode()
    assert (box.label, box.score) == ("title", 0.75)
    x, y = 5.5 * stride, 6.5 * stride
    assert box.box == pytest.approx((x - 2 * stride, y - stride, x + 3 * stride, y + 4 * stride), abs=1e-3)


def test_boxes_are_scaled_to_the_page() -> None:
    head = Head()
    head.put(1, 10, 20, "text", 0.9, (1, 1, 1, 1))
    (box,) = head.decode(608 * 2, 800 * 3)
    assert box.box == pytest.approx((152 * 2, 312 * 3, 184 * 2, 344 * 3), abs=1e-2)


def test_a_side_is_the_mean_of_its_distribution() -> None:
    head = Head()
    head.put(0, 40, 40, "text", 0.9, (2, 2, 2, 2))
    head.sides[0][0, 40 * 76 + 40, :8] = 0  # all distances to the left alike: 3.5 strides
    (box,) = head.decode()
    assert box.box[0] == pytest.approx(40.5 * 8 - 3.5 * 8)


def test_boxes_end_at_the_edge_of_the_page() -> None:
    head = Head()
    head.put(3, 0, 0, "figure", 0.9, (7, 7, 7, 7))
    head.put(3, 9, 12, "figure", 0.8, (1, 1, 7, 7))
    first, last = (box.box for box in head.decode())
    assert first == pytest.approx((0, 0, 480, 480))
    assert last[2:] == (608, 800)


def test_boxes_at_or_below_the_score_threshold_are_dropped() -> None:
    head = Head()
    head.put(0, 10, 10, "text", 0.5, (2, 2, 2, 2))
    head.put(0, 50, 50, "text", 0.51, (2, 2, 2, 2))
    assert [round(box.score, 2) for box in head.decode()] == [0.51]


def test_of_boxes_with_one_label_that_overlap_the_best_stays() -> None:
    head = Head()
    head.put(0, 20, 20, "text", 0.7, (4, 4, 4, 4))
    head.put(0, 21, 20, "text", 0.9, (4, 4, 4, 4))
    head.put(0, 60, 60, "text", 0.8, (4, 4, 4, 4))
    assert [round(box.score, 2) for box in head.decode()] == [0.9, 0.8]


def test_boxes_with_unlike_labels_stay_even_when_they_overlap() -> None:
    head = Head()
    head.put(0, 20, 20, "text", 0.7, (4, 4, 4, 4))
    head.put(0, 21, 20, "table", 0.9, (4, 4, 4, 4))
    assert [box.label for box in head.decode()] == ["table", "text"]


def test_an_empty_page_has_no_boxes() -> None:
    assert Head().decode() == []


def test_layout_sees_rgb_at_its_fixed_size() -> None:
    tensor = layout.prepare(canvas(10, 10, RED), LAYOUT.facts)
    assert tensor.shape == (1, 3, 800, 608)
    assert tensor[0, :, 400, 300] == pytest.approx([(1 - 0.485) / 0.229, -0.456 / 0.224, -0.406 / 0.225], abs=1e-5)


# ---- orientation


@pytest.mark.parametrize(("index", "angle"), [(0, 0), (1, 90), (2, 180), (3, 270)])
def test_the_best_class_is_the_turn_the_page_has_had(index: int, angle: int) -> None:
    scores = np.full((1, 4), 0.125, np.float32)
    scores[0, index] = 0.625
    assert orientation.decode(scores, ORIENTATION.facts)[0] == (angle, 0.625)


def test_turns_are_ranked_by_their_scores() -> None:
    scores = np.array([[0.25, 0.125, 0.5, 0.125]], np.float32)
    assert orientation.decode(scores, ORIENTATION.facts) == [(180, 0.5), (0, 0.25), (90, 0.125), (270, 0.125)]


@pytest.mark.parametrize(("width", "height"), [(1000, 1400), (1400, 1000), (224, 224), (1, 1), (1, 200), (3000, 30)])
def test_pages_of_any_size_fit_the_orientation_network(width: int, height: int) -> None:
    assert orientation.prepare(canvas(width, height), ORIENTATION.facts).shape == (1, 3, 224, 224)


def test_orientation_looks_at_the_middle_of_the_page_in_rgb() -> None:
    page = canvas(1000, 3000, RED)
    page[1050:1950] = GREEN  # the middle 900 of 1000 px: 224 of 256
    tensor = orientation.prepare(page, ORIENTATION.facts)
    assert tensor[0, :, 112, 112] == pytest.approx([-0.485 / 0.229, (1 - 0.456) / 0.224, -0.406 / 0.225], abs=1e-5)
    assert np.ptp(tensor[0, 1, 2:-2]) == pytest.approx(0, abs=1e-5)
