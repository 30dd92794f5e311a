"""Lines of text and ruled tables found by ink and white space alone, without a model. Pure: numpy and OpenCV.

For clean, level pages: print on paper, columns with white between them. Photographs and skewed scans need a layout
model.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from docvino.document import Box

Mask = NDArray[np.uint8]

_LEAST_CONTRAST = 40.0  # of 255: fainter marks are paper
_WORD_GAP = 1.1  # white inside a line is at most this many line heights wide; columns stand further apart
_RULE_HEIGHTS = 4.0  # a rule is at least so many letter heights long
_TABLE_MARGIN_PX = 3
_MARK_SHARE = 0.35  # accents, dots and commas are lower than this share of the letters' height


@dataclass(frozen=True)
class Ink:
    """What is on a page, boxes in its pixels: lines of text outside tables, and tables with rules."""

    lines: tuple[Box, ...]
    tables: tuple[Box, ...]


def find(pixels: NDArray[np.uint8]) -> Ink:
    """uint8 (H, W, 3) RGB -> its lines and tables, each from top to bottom."""
    mask = ink_mask(pixels)
    height = letter_height(mask)
    if height is None:
        return Ink((), ())
    rules = _rules(mask, height)
    tables = _tables(rules, height)
    text = cv2.subtract(mask, cv2.dilate(rules, np.ones((3, 3), np.uint8)))
    for left, top, right, bottom in tables:
        text[int(top) : int(bottom), int(left) : int(right)] = 0
    return Ink(tuple(_lines(text, height)), tuple(tables))


def ink_mask(pixels: NDArray[np.uint8]) -> Mask:
    """uint8 (H, W), 1 where a pixel is ink: darker than the paper, or lighter on a dark page."""
    grey = cv2.cvtColor(np.ascontiguousarray(pixels), cv2.COLOR_RGB2GRAY)
    paper = float(np.median(grey))
    distance = np.abs(grey.astype(np.float32) - paper)
    strongest = float(np.percentile(distance, 99.8)) if distance.size else 0.0
    mask: Mask = (distance > max(_LEAST_CONTRAST, strongest * 0.4)).astype(np.uint8)
    return mask


def letter_height(mask: Mask) -> float | None:
    """The usual height of a letter in pixels, weighted by width so that dots and commas do not count; None on paper."""
    count, _, stats, _ = cv2.connectedComponentsWithStats(mask, connectivity=8)
    if count < 2:
        return None
    heights, widths = stats[1:, cv2.CC_STAT_HEIGHT], stats[1:, cv2.CC_STAT_WIDTH]
    letters = (heights >= 4) & (widths >= 2) & (heights < mask.shape[0] / 4) & (widths < heights * 12)
    if not letters.any():
        return None
    order = np.argsort(heights[letters])
    weight = np.cumsum(np.minimum(widths[letters], heights[letters])[order])
    return float(heights[letters][order][np.searchsorted(weight, weight[-1] / 2)])


def _rules(mask: Mask, height: float) -> Mask:
    """Straight lines across and down, as a mask."""
    long = max(12, round(height * _RULE_HEIGHTS))
    across = cv2.morphologyEx(mask, cv2.MORPH_OPEN, np.ones((1, long), np.uint8))
    down = cv2.morphologyEx(mask, cv2.MORPH_OPEN, np.ones((long, 1), np.uint8))
    # What is as thick as a letter is no rule but a black area.
    thick = cv2.morphologyEx(mask, cv2.MORPH_OPEN, np.ones((max(3, round(height / 2)),) * 2, np.uint8))
    rules: Mask = np.where(thick, 0, cv2.bitwise_or(across, down)).astype(np.uint8)
    return rules


def _tables(rules: Mask, height: float) -> list[Box]:
    """Rules that make a grid, or three and more of one width under each other."""
    joined = cv2.dilate(rules, np.ones((5, 5), np.uint8))
    count, _, stats, _ = cv2.connectedComponentsWithStats(joined, connectivity=8)
    boxes = [
        (x, y, x + w, y + h)
        for x, y, w, h, _ in stats[1:count].tolist()
        if w > height * _RULE_HEIGHTS or h > height * _RULE_HEIGHTS
    ]
    grids = [box for box in boxes if box[3] - box[1] > 1.5 * height and box[2] - box[0] > 3 * height]
    single = sorted((box for box in boxes if box not in grids), key=lambda box: box[1])
    stacks: list[list[tuple[int, int, int, int]]] = []
    for box in single:
        for stack in stacks:
            if abs(stack[-1][0] - box[0]) < height and abs(stack[-1][2] - box[2]) < height:
                stack.append(box)
                break
        else:
            stacks.append([box])
    grids += [
        (stack[0][0], stack[0][1], stack[0][2], stack[-1][3])
        for stack in stacks
        if len(stack) >= 3 and stack[-1][3] - stack[0][1] > 2 * height
    ]
    outer = [box for box in grids if not any(_inside(box, other) for other in grids if other != box)]
    tall, wide = rules.shape
    return [
        (
            float(max(0, left - _TABLE_MARGIN_PX)),
            float(max(0, top - _TABLE_MARGIN_PX)),
            float(min(wide, right + _TABLE_MARGIN_PX)),
            float(min(tall, bottom + _TABLE_MARGIN_PX)),
        )
        for left, top, right, bottom in sorted(outer, key=lambda box: (box[1], box[0]))
    ]


def _inside(box: tuple[int, int, int, int], other: tuple[int, int, int, int]) -> bool:
    return other[0] <= box[0] and other[1] <= box[1] and box[2] <= other[2] and box[3] <= other[3]


def _lines(text: Mask, height: float) -> list[Box]:
    """Boxes of lines: letters side by side with little white between them, and the marks above and below them."""
    count, _, stats, _ = cv2.connectedComponentsWithStats(text, connectivity=8)
    parts = [(x, y, x + w, y + h) for x, y, w, h, area in stats[1:count].tolist() if area >= 3]
    letters = [box for box in parts if box[3] - box[1] >= _MARK_SHARE * height]
    marks = [box for box in parts if box[3] - box[1] < _MARK_SHARE * height]
    lines: list[list[int]] = []
    for left, top, right, bottom in sorted(letters):
        best, overlap = None, 0.0
        for line in lines:
            tall = max(line[3] - line[1], height)
            shared = min(line[3], bottom) - max(line[1], top)
            least = min(line[3] - line[1], bottom - top)
            if left - line[2] <= _WORD_GAP * max(tall, bottom - top) and shared > 0.5 * least and shared > overlap:
                best, overlap = line, float(shared)
        if best is None:
            lines.append([left, top, right, bottom])
        else:
            best[:] = [min(best[0], left), min(best[1], top), max(best[2], right), max(best[3], bottom)]
    for mark in marks:
        near = [(_distance(mark, line), line) for line in lines]
        if near and (closest := min(near, key=lambda pair: pair[0]))[0] <= height:
            line = closest[1]
            line[:] = [min(line[0], mark[0]), min(line[1], mark[1]), max(line[2], mark[2]), max(line[3], mark[3])]
    ordered = sorted(_joined(lines, height), key=lambda line: (line[1], line[0]))
    return [(float(left), float(top), float(right), float(bottom)) for left, top, right, bottom in ordered]


def _joined(lines: list[list[int]], height: float) -> list[list[int]]:
    """Pieces of one row with little white between them as one, now that full stops and commas fill their gaps."""
    joined: list[list[int]] = []
    for line in sorted(lines):
        home = line
        for other in [*joined]:
            least = min(other[3] - other[1], home[3] - home[1])
            tall = max(min(other[3] - other[1], 1.5 * height), height)
            apart = max(home[0] - other[2], other[0] - home[2])
            if min(other[3], home[3]) - max(other[1], home[1]) > 0.3 * least and apart <= _WORD_GAP * tall:
                joined.remove(other)
                home = [*map(min, other[:2], home[:2]), *map(max, other[2:], home[2:])]
        joined.append(home)
    return joined


def _distance(mark: tuple[int, int, int, int], line: list[int]) -> float:
    across = max(line[0] - mark[2], mark[0] - line[2], 0)
    down = max(line[1] - mark[3], mark[1] - line[3], 0)
    return float(np.hypot(across, down))
