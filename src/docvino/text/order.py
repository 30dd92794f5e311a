"""Reading order by recursive XY-cut on boxes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from docvino.document import Box, Polygon

_COLUMN_GAP = 0.8  # a gutter between columns is at least this many line heights wide
_OVERLAP = 0.3  # of a line height by which boxes that follow each other may overlap
TALL = 1.5  # a line this much taller than wide runs down the page
_COLUMN_WIDTH = 5.0  # what is narrower than this many line heights is a cell or a label, not a column


def skew_angle(polygons: Sequence[Polygon]) -> float:
    """The angle of the text lines in radians, positive when they run down to the right: median weighted by length."""
    angles = []
    for polygon in polygons:
        (x0, y0), (x1, y1) = polygon[0], polygon[1]
        length = math.hypot(x1 - x0, y1 - y0)
        angle = math.atan2(y1 - y0, x1 - x0)
        if abs(angle) < math.pi / 6:
            angles.append((angle, length))
    half = sum(length for _, length in angles) / 2
    passed = 0.0
    for angle, length in sorted(angles):
        passed += length
        if passed >= half:
            return angle
    return 0.0


def straight_box(polygon: Polygon, angle: float) -> Box:
    """The polygon's box after turning the page by `-angle` about the origin, so that skewed lines lie level."""
    cos, sin = math.cos(-angle), math.sin(-angle)
    xs = [x * cos - y * sin for x, y in polygon]
    ys = [x * sin + y * cos for x, y in polygon]
    return min(xs), min(ys), max(xs), max(ys)


def reading_order(
    boxes: Sequence[Box], line_height: float | None = None, headings: frozenset[int] = frozenset()
) -> list[int]:
    """Positions of the boxes in reading order: top to bottom, columns left to right, what spans columns between them.

    line_height   height of one line of text in the boxes' unit; the median height of the boxes by default
    headings      positions of the boxes that belong to what stands below them
    """
    if not boxes:
        return []
    unit = max(line_height or median(box[3] - box[1] for box in boxes), 1e-6)
    return _cut(list(range(len(boxes))), _Page(boxes, unit, headings))


def rows(boxes: Sequence[Box]) -> list[list[int]]:
    """Positions of the boxes grouped into rows (top to bottom), each from left to right.

    A box joins a row when its middle lies within the row's first box, or the other way round.
    """
    found: list[list[int]] = []
    for index in sorted(range(len(boxes)), key=lambda i: (boxes[i][1] + boxes[i][3]) / 2):
        top, bottom = boxes[index][1], boxes[index][3]
        for row in reversed(found[-3:]):
            row_top, row_bottom = boxes[row[0]][1], boxes[row[0]][3]
            middle, row_middle = (top + bottom) / 2, (row_top + row_bottom) / 2
            if row_top < middle < row_bottom or top < row_middle < bottom:
                row.append(index)
                break
        else:
            found.append([index])
    return [sorted(row, key=lambda i: boxes[i][0]) for row in found]


def is_tall(box: Box) -> bool:
    """True for a line that runs down the page."""
    return box[3] - box[1] >= TALL * (box[2] - box[0])


def lying(box: Box) -> Box:
    """The box of a line that runs down the page, as if the page were turned counter-clockwise: its columns, which
    follow each other from right to left, become rows from top to bottom."""
    return box[1], -box[2], box[3], -box[0]


@dataclass(frozen=True)
class _Page:
    boxes: Sequence[Box]
    unit: float
    headings: frozenset[int]


def _cut(items: list[int], page: _Page) -> list[int]:
    boxes = page.boxes
    if len(items) <= 1:
        return items
    gutters = _gutters(items, boxes, page.unit)
    if gutters:
        columns: list[list[int]] = [[] for _ in range(len(gutters) + 1)]
        for index in items:
            middle = (boxes[index][0] + boxes[index][2]) / 2
            columns[sum(middle > gutter for gutter in gutters)].append(index)
        return [index for column in columns for index in _cut(column, page)]
    strips = _strips(items, boxes, page.unit)
    if len(strips) == 1:
        return [index for row in rows([boxes[i] for i in items]) for index in (items[k] for k in row)]
    return [index for group in _merge(strips, page) for index in _cut(group, page)]


def _merge(strips: list[list[int]], page: _Page) -> list[list[int]]:
    """Neighbouring strips joined for as long as one gutter runs through all of them.

    A heading at the end of a group is moved to the next one: it belongs to what stands below it.
    """
    groups: list[list[int]] = []
    for strip in strips:
        if groups and _gutters(groups[-1] + strip, page.boxes, page.unit):
            groups[-1] = groups[-1] + strip
            continue
        kept = [] if not groups else [index for index in groups[-1] if index not in page.headings]
        if kept and len(kept) < len(groups[-1]):
            bottom = max(page.boxes[index][3] for index in kept)
            moved = [i for i in groups[-1] if page.boxes[i][1] >= bottom - _OVERLAP * page.unit]
            groups[-1] = [index for index in groups[-1] if index not in moved]
            strip = moved + strip
        groups.append(list(strip))
    if len(groups) == 1:
        # The gutter that joined them all would have been cut already, so this is a row-wise arrangement.
        return strips
    return groups


def _strips(items: list[int], boxes: Sequence[Box], unit: float) -> list[list[int]]:
    """Items separated by horizontal white space, top to bottom. Boxes of lines reach into each other a little."""
    ordered = sorted(items, key=lambda i: boxes[i][1])
    strips, bottom = [[ordered[0]]], boxes[ordered[0]][3]
    for index in ordered[1:]:
        if boxes[index][1] >= bottom - _OVERLAP * unit:
            strips.append([])
        strips[-1].append(index)
        bottom = max(bottom, boxes[index][3])
    return strips


def _gutters(items: list[int], boxes: Sequence[Box], unit: float) -> list[float]:
    """Middles of the vertical white gaps through all items that separate real columns of text."""
    ordered = sorted(items, key=lambda i: boxes[i][0])
    columns, right, gaps = [[ordered[0]]], boxes[ordered[0]][2], []
    for index in ordered[1:]:
        left = boxes[index][0]
        if left - right >= _COLUMN_GAP * unit:
            gaps.append((right + left) / 2)
            columns.append([])
        columns[-1].append(index)
        right = max(right, boxes[index][2])
    if not gaps:
        return []
    wide = [_is_column(column, boxes, unit) for column in columns]
    return [gap for gap, (left, right) in zip(gaps, pairwise(wide), strict=True) if left and right]


def _is_column(column: list[int], boxes: Sequence[Box], unit: float) -> bool:
    return median(boxes[i][2] - boxes[i][0] for i in column) >= _COLUMN_WIDTH * unit
