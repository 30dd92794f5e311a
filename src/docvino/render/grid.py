"""Where the cells of a table lie, by its rules and by the white between its texts: a language model tells no places."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from docvino.document import Box, Cell

Mask = NDArray[np.bool_]
Edges = list[tuple[float, float]]  # where each row, or column, begins and ends

_LEAST_CONTRAST = 40  # of 255: fainter marks are paper
_RULE = 0.3  # of the table's width or height: so long a straight line is a rule
_OUTSIDE = 0.35  # of a usual row: the table begins so far before its first rule where that is none of its border
_CLEARLY = 1.25  # how much wider gaps between rows or columns are than those inside them
_INSET_PX = 2  # of a cell: what rules leave at its sides
_AGREE = 0.9  # of the cells: those with text have ink, those without have none
_SPECKS_PX = 6  # so little ink in a cell is dirt
_PAPER_PX = 2  # that is left around the ink of a cell


def cell_boxes(pixels: NDArray[np.uint8], box: Box, cells: Sequence[Cell]) -> list[Box] | None:
    """Where the ink of each cell is, in page pixels; its room where it has none; None when there is no such table.

    pixels   uint8 (H, W, 3) RGB, the page
    box      the table on it
    """
    height, width = pixels.shape[:2]
    left, top = max(0, int(box[0])), max(0, int(box[1]))
    right, bottom = min(width, int(np.ceil(box[2]))), min(height, int(np.ceil(box[3])))
    if right - left < 2 or bottom - top < 2:
        return None
    ink = _inked(pixels[top:bottom, left:right])
    across, down = _rules(ink), _rules(ink.T)
    text = ink.copy()
    text[across] = False
    text[:, down] = False
    rows = max(cell.row + cell.row_span for cell in cells)
    columns = max(cell.column + cell.column_span for cell in cells)
    by_rules = _between(across, rows)
    # The text of a cell with spans lies across the gaps, so that such rows and columns tell nothing of them.
    lower = _between(down, columns) or _by_gaps(
        text[_without_spans(cells, by_rules, text.shape[0])].any(axis=0), columns
    )
    if lower is None:
        return None
    high = [cell for cell in cells if cell.row_span > 1]
    single = np.ones(text.shape[1], np.bool_)
    for cell in high:
        single[int(lower[cell.column][0]) : int(lower[cell.column + cell.column_span - 1][1])] = False
    upper = by_rules or _by_gaps(text[:, single].any(axis=1), rows)
    if upper is None:
        return None
    boxes = [
        (
            lower[cell.column][0],
            upper[cell.row][0],
            lower[cell.column + cell.column_span - 1][1],
            upper[cell.row + cell.row_span - 1][1],
        )
        for cell in cells
    ]
    if not _agree(text, boxes, cells):
        return None
    tight = (_around_ink(text, one) for one in boxes)
    return [(left + one[0], top + one[1], left + one[2], top + one[3]) for one in tight]


def _inked(pixels: NDArray[np.uint8]) -> Mask:
    grey = np.asarray(Image.fromarray(np.ascontiguousarray(pixels)).convert("L"), np.int16)
    difference = np.abs(grey - int(np.median(grey)))
    return np.asarray(difference > max(_LEAST_CONTRAST, 0.35 * int(difference.max())), np.bool_)


def _rules(ink: Mask) -> Mask:
    """Which rows of pixels have a straight line in them."""
    counted = np.cumsum(ink, axis=1, dtype=np.int32)
    runs = counted - np.maximum.accumulate(np.where(ink, 0, counted), axis=1)
    return np.asarray(runs.max(axis=1) >= _RULE * ink.shape[1], np.bool_)


def _between(is_rule: Mask, count: int) -> Edges | None:
    """The rooms between rules, and between them and the ends; None when they are not as many as asked for."""
    runs = _runs(is_rule)
    if not runs:
        return None
    usual = len(is_rule) / count
    edges = [(-_INSET_PX, -_INSET_PX)] if runs[0][0] > _OUTSIDE * usual else []
    edges += runs
    if len(is_rule) - runs[-1][1] > _OUTSIDE * usual:
        edges.append((len(is_rule) + _INSET_PX, len(is_rule) + _INSET_PX))
    if len(edges) != count + 1:
        return None
    return [(float(a[1] + _INSET_PX), float(b[0] - _INSET_PX)) for a, b in pairwise(edges)]


def _by_gaps(inked: Mask, count: int) -> Edges | None:
    """The rooms between the widest gaps; None when others are nearly as wide, or there are not enough."""
    runs = _runs(inked)
    if len(runs) < count:
        return None
    gaps = [after[0] - before[1] for before, after in pairwise(runs)]
    widest = sorted(range(len(gaps)), key=lambda gap: -gaps[gap])
    chosen, others = sorted(widest[: count - 1]), widest[count - 1 :]
    if chosen and others and min(gaps[gap] for gap in chosen) < _CLEARLY * max(gaps[gap] for gap in others):
        return None
    cuts = [0.0, *((runs[gap][1] + runs[gap + 1][0]) / 2 for gap in chosen), float(len(inked))]
    return list(pairwise(cuts))


def _without_spans(cells: Sequence[Cell], rows: Edges | None, height: int) -> Mask:
    """Rows of pixels in which no cell takes several columns; all where rows are not known."""
    kept = np.ones(height, np.bool_)
    for cell in cells:
        if cell.column_span > 1 and rows is not None:
            kept[int(rows[cell.row][0]) : int(rows[cell.row + cell.row_span - 1][1])] = False
    return kept


def _runs(flags: Mask) -> list[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate(([False], flags, [False])).astype(np.int8)))
    return [(int(begin), int(end)) for begin, end in zip(edges[0::2], edges[1::2], strict=True)]


def _agree(text: Mask, boxes: Sequence[Box], cells: Sequence[Cell]) -> bool:
    right = []
    for box, cell in zip(boxes, cells, strict=True):
        if not cell.figures:
            left, top, end, bottom = (max(0, int(side)) for side in box)
            right.append((np.count_nonzero(text[top:bottom, left:end]) > _SPECKS_PX) == bool(cell.text.strip()))
    return not right or sum(right) >= _AGREE * len(right)


def _around_ink(text: Mask, box: Box) -> Box:
    left, top, right, bottom = (max(0, int(side)) for side in box)
    rows, columns = np.nonzero(text[top:bottom, left:right])
    if not len(rows):
        return box
    return (
        float(left + columns.min() - _PAPER_PX),
        float(top + rows.min() - _PAPER_PX),
        float(left + columns.max() + 1 + _PAPER_PX),
        float(top + rows.max() + 1 + _PAPER_PX),
    )
