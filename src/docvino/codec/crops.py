"""Pixels of regions: cut out by their outline, trimmed, stacked, and with figures painted over."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from docvino.document import Box, Polygon, box_polygon

Pixels = NDArray[np.uint8]

_WHITE = 255
_INK = 200  # of 255, after stretching. Source: crop_margin of PaddleX 3.7.2
_LEAST_INK_PX = 3
# Source: paint_token of PaddleX 3.7.2.
_FILL = 0.9
_SMALLEST_SCALE, _LARGEST_SCALE = 0.2, 10.0
_STROKE = 4


def cut_region(page: Pixels, box: Box, polygon: Polygon) -> Pixels:
    """The box of the page as a copy, uint8 (H, W, 3), white outside of the polygon.

    Source: crop_image_regions.py of PaddleX 3.7.2: no margin, whole pixels, the outline itself belongs to it.
    """
    left, top, right, bottom = (int(value) for value in box)
    part: Pixels = page[top:bottom, left:right].copy()
    if polygon != box_polygon(*box):
        mask = np.zeros(part.shape[:2], np.uint8)
        points = np.array([(int(x) - left, int(y) - top) for x, y in polygon], np.int32)
        cv2.fillPoly(mask, [points], 1)
        part[mask == 0] = _WHITE
    return part


def trim(pixels: Pixels) -> tuple[Pixels, tuple[int, int]]:
    """What is around the ink cut off, and by how much on the left and at the top; as it is where there is no ink.

    Source: crop_margin of PaddleX 3.7.2, whose result is used when both of its sides exceed 2 px.
    """
    grey = cv2.cvtColor(np.ascontiguousarray(pixels), cv2.COLOR_RGB2GRAY)
    darkest, lightest = int(grey.min()), int(grey.max())
    if darkest == lightest:
        return pixels, (0, 0)
    stretched = (grey.astype(np.int64) - darkest) * 255 // (lightest - darkest)
    left, top, width, height = cv2.boundingRect((stretched <= _INK).astype(np.uint8))
    if width < _LEAST_INK_PX or height < _LEAST_INK_PX:
        return pixels, (0, 0)
    return pixels[top : top + height, left : left + width], (left, top)


def stack(parts: Sequence[Pixels], aligns: Sequence[Literal["left", "center", "right"]]) -> Pixels:
    """The parts from top to bottom on white, each but the first aligned to the whole of those above it."""
    lefts, whole = [0], parts[0].shape[1]
    for part, align in zip(parts[1:], aligns, strict=True):
        width = part.shape[1]
        widest = max(whole, width)
        share = {"left": 0.0, "center": 0.5, "right": 1.0}[align]
        moved = int((widest - whole) * share)
        lefts = [*(left + moved for left in lefts), int((widest - width) * share)]
        whole = widest
    canvas = np.full((sum(len(part) for part in parts), whole, 3), _WHITE, np.uint8)
    top = 0
    for left, part in zip(lefts, parts, strict=True):
        canvas[top : top + len(part), left : left + part.shape[1]] = part
        top += len(part)
    return canvas


def paint_mark(pixels: Pixels, box: Box, mark: str) -> None:
    """Paints the box of `pixels` white and writes the mark in its middle, as large as the shorter side allows."""
    left, top, right, bottom = (int(value) for value in box)
    cv2.rectangle(pixels, (left, top), (right, bottom), (_WHITE,) * 3, thickness=-1)
    font, side = cv2.FONT_HERSHEY_SIMPLEX, min(right - left, bottom - top)
    (width, height), _ = cv2.getTextSize(mark, font, 1.0, 1)
    scale = min(max(_FILL * side / max(width, height), _SMALLEST_SCALE), _LARGEST_SCALE)
    (width, height), _ = cv2.getTextSize(mark, font, scale, 1)
    place = left + (right - left - width) // 2, top + (bottom - top + height) // 2
    stroke = max(1, math.floor(scale * _STROKE))
    cv2.putText(pixels, mark, place, font, scale, (0, 0, 0), stroke, lineType=cv2.LINE_AA)
