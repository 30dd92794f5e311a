"""Where the words of a line lie, by the gaps in its ink: a reader tells the place of the line alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from docvino.render.glyphless import natural_width
from docvino.render.placed import Placed

Span = tuple[float, float]

_CONTRAST = 0.35  # of the darkest ink's difference to the paper: what differs more is ink
_LEAST_CONTRAST = 24  # of 255, else noise on blank paper would be ink
_SPECK = 0.02  # of the line's height: less ink in a column is dirt
_RULE = 0.8  # of the line's length: a row with so much ink is an underline
_BLANK = 0.28  # width of a blank in multiples of the size
_NARROW = 20.0  # how much worse a gap too narrow for a blank is than a word of unexpected width
_MOST_GAPS = 600  # of a line; the work grows with the square


def word_spans(pixels: NDArray[np.uint8], placed: Placed) -> list[Span] | None:
    """Begin and end of each word (split at blanks) as shares of the line's length; None when the ink does not tell.

    pixels   uint8 (H, W, 3) RGB, the page
    """
    inked = _inked_columns(_strip(pixels, placed))
    places = np.flatnonzero(inked)
    if not len(places):
        return None
    first, last = int(places[0]), int(places[-1]) + 1
    edges = np.flatnonzero(np.diff(inked[first:last].astype(np.int8))) + 1 + first
    ends, starts = np.append(edges[0::2], last), np.insert(edges[1::2], 0, first)
    words = placed.text.split()
    if len(words) > len(ends) or len(ends) > _MOST_GAPS:
        return None
    chosen = _fitted(starts, ends, words, (last - first) / natural_width(" ".join(words)))
    return [(float(starts[begin]) / len(inked), float(ends[end]) / len(inked)) for begin, end in chosen]


def _strip(pixels: NDArray[np.uint8], placed: Placed) -> NDArray[np.uint8]:
    """The line laid level, grey."""
    corners = (placed.start_top, placed.start_bottom, placed.end_bottom, placed.end_top)
    width = round(np.hypot(*np.subtract(placed.end_top, placed.start_top)))
    height = round(np.hypot(*np.subtract(placed.start_bottom, placed.start_top)))
    left, top = (max(0, int(value)) for value in np.min(corners, axis=0))
    right, bottom = (int(np.ceil(value)) + 1 for value in np.max(corners, axis=0))
    part = Image.fromarray(np.ascontiguousarray(pixels[top:bottom, left:right])).convert("L")
    data = [float(value) for x, y in corners for value in (x - left, y - top)]
    size = (min(max(1, width), 20_000), min(max(1, height), 2_000))
    return np.asarray(part.transform(size, Image.Transform.QUAD, data), np.uint8)


def _inked_columns(strip: NDArray[np.uint8]) -> NDArray[np.bool_]:
    difference = np.abs(strip.astype(np.int16) - int(np.median(strip)))
    ink = difference > max(_LEAST_CONTRAST, _CONTRAST * int(difference.max()))
    ink[ink.mean(axis=1) > _RULE] = False
    return np.asarray(ink.sum(axis=0) > _SPECK * len(strip), np.bool_)


def _fitted(
    starts: NDArray[np.int64], ends: NDArray[np.int64], words: Sequence[str], size_px: float
) -> list[tuple[int, int]]:
    """The first and the last piece of ink of each word, such that widths and blanks are most like the expected ones.

    Pieces of ink run from `starts` to `ends`; every word takes one or more that follow each other, all are taken.
    """
    gaps = (starts[1:] - ends[:-1]) / size_px
    too_narrow = np.append(_NARROW * np.minimum(gaps - _BLANK, 0) ** 2, 0.0)  # behind the last word is no gap
    # widths[a, b]: of a word from piece a to piece b, in multiples of the size
    widths = (ends[None, :] - starts[:, None]) / size_px
    possible = np.arange(len(ends))[None, :] >= np.arange(len(ends))[:, None]
    cost = np.full(len(ends) + 1, np.inf)  # of the words so far when the next one begins at a piece
    cost[0] = 0.0
    choices = []
    for word in words:
        surprise = np.where(possible, (widths - natural_width(word)) ** 2, np.inf)
        whole = cost[:-1, None] + surprise
        choice = whole.argmin(axis=0)
        choices.append(choice)
        cost = np.insert(whole.min(axis=0) + too_narrow, 0, np.inf)
    spans = []
    end = len(ends) - 1
    for choice in reversed(choices):
        spans.append((int(choice[end]), end))
        end = int(choice[end]) - 1
    return spans[::-1]
