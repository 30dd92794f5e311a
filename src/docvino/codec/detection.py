"""Text detection by differentiable binarisation (DB, arXiv 1911.08947)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np
import pyclipper
from numpy.typing import NDArray

from docvino.codec.pixels import normalise, resize, to_bgr
from docvino.specs.model import DetectionFacts

_MIN_SIDE_PX = 3  # Source: DBPostProcess.min_size in PaddleOCR, in pixels of the probability map


@dataclass(frozen=True, eq=False)
class TextBox:
    """A text line on the page: float32 (4, 2) corners in page pixels, clockwise from the top-left one, score [0, 1]."""

    corners: NDArray[np.float32]
    score: float


def input_size(width_px: int, height_px: int, facts: DetectionFacts) -> tuple[int, int]:
    """Width and height at which a page goes through the network.

    The shorter side is enlarged towards `limit_side_px`, by `max_enlargement` at most; then the longer side is reduced
    to `max_side_px` and both to `max_area_px`. Both are rounded to multiples of `stride_px`.
    Source: DetResizeForTest.resize_image_type0 (limit_type "min") in PaddleOCR.
    """
    ratio = min(facts.max_enlargement, max(1.0, facts.limit_side_px / min(width_px, height_px)))
    ratio = min(ratio, facts.max_side_px / max(width_px, height_px))
    ratio = min(ratio, math.sqrt(facts.max_area_px / (width_px * height_px)))
    stride = facts.stride_px
    return (
        max(stride, round(width_px * ratio / stride) * stride),
        max(stride, round(height_px * ratio / stride) * stride),
    )


def prepare(pixels: NDArray[np.uint8], size: tuple[int, int], facts: DetectionFacts) -> NDArray[np.float32]:
    """uint8 (H, W, 3) RGB -> float32 (1, 3, h, w) BGR, normalised; `size` is (w, h)."""
    return normalise(to_bgr(resize(pixels, *size)), facts.mean, facts.std)


def pad(values: NDArray[np.float32], step_px: int) -> NDArray[np.float32]:
    """float32 (1, 3, h, w) with the last row and column repeated until both sides are multiples of `step_px`."""
    missing = [(0, -side % step_px) for side in values.shape[2:]]
    return np.pad(values, [(0, 0), (0, 0), *missing], mode="edge") if any(map(max, missing)) else values


def decode(probability: NDArray[np.float32], width_px: int, height_px: int, facts: DetectionFacts) -> list[TextBox]:
    """Probability map float32 (h, w) in 0..1 -> boxes in the pixels of a page of the given size.

    Source: DBPostProcess.boxes_from_bitmap in PaddleOCR (score_mode "fast", box_type "quad").
    Differs: corners keep their fraction of a pixel; upstream rounds them to integers.
    """
    map_height, map_width = probability.shape
    scale = np.array([width_px / map_width, height_px / map_height], np.float32)
    bitmap = (probability > facts.threshold).astype(np.uint8)
    contours, _ = cv2.findContours(bitmap, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
    boxes = []
    for contour in contours[: facts.max_boxes]:
        corners, short_side = _smallest_rectangle(contour)
        if short_side < _MIN_SIDE_PX:
            continue
        score = _mean_inside(probability, corners)
        if score < facts.box_threshold:
            continue
        grown = _grow(corners, facts.unclip_ratio)
        if grown is None:
            continue
        corners, short_side = _smallest_rectangle(grown)
        if short_side < _MIN_SIDE_PX + 2:
            continue
        limits = np.array([width_px, height_px], np.float32)
        boxes.append(TextBox(np.clip(corners * scale, 0, limits).astype(np.float32), score))
    return boxes


def _smallest_rectangle(points: NDArray[np.generic]) -> tuple[NDArray[np.float32], float]:
    """Corners (4, 2) clockwise from the top-left one, and the length of the shorter side."""
    rectangle = cv2.minAreaRect(points)
    return order_corners(cv2.boxPoints(rectangle)), float(min(rectangle[1]))


def order_corners(corners: NDArray[np.floating]) -> NDArray[np.float32]:
    """The corners of a rectangle clockwise, beginning with the one that is top-left when the page is read.

    Of the two edges that run along the longer reading direction, the one on top begins the order: the two left-most
    corners are taken as the left side, as PaddleOCR's get_mini_boxes does.
    """
    by_x = corners[np.argsort(corners[:, 0], kind="stable")]
    left = by_x[:2][np.argsort(by_x[:2, 1], kind="stable")]
    right = by_x[2:][np.argsort(by_x[2:, 1], kind="stable")]
    return np.array([left[0], right[0], right[1], left[1]], np.float32)


def _mean_inside(probability: NDArray[np.float32], corners: NDArray[np.float32]) -> float:
    height, width = probability.shape
    x0, y0 = np.clip(np.floor(corners.min(axis=0)), 0, (width - 1, height - 1)).astype(int)
    x1, y1 = np.clip(np.ceil(corners.max(axis=0)), 0, (width - 1, height - 1)).astype(int)
    mask = np.zeros((y1 - y0 + 1, x1 - x0 + 1), np.uint8)
    cv2.fillPoly(mask, [(corners - (x0, y0)).astype(np.int32)], 1)
    return float(cv2.mean(np.ascontiguousarray(probability[y0 : y1 + 1, x0 : x1 + 1]), mask)[0])


def _grow(corners: NDArray[np.float32], ratio: float) -> NDArray[np.float32] | None:
    """The rectangle pushed outwards by area * ratio / perimeter; None where nothing is left to push."""
    area = cv2.contourArea(corners)
    perimeter = cv2.arcLength(corners, True)
    if area <= 0 or perimeter <= 0:
        return None
    scale = 1024  # pyclipper counts in integers: keep fractions of a pixel
    offset = pyclipper.PyclipperOffset()
    offset.AddPath((corners * scale).astype(np.int64).tolist(), pyclipper.JT_ROUND, pyclipper.ET_CLOSEDPOLYGON)
    paths = offset.Execute(area * ratio / perimeter * scale)
    if len(paths) != 1:
        return None
    points: NDArray[np.float32] = np.asarray(paths[0], np.float32) / np.float32(scale)
    return points
