"""Where words lie, by the gaps in the ink: readers tell the places of lines, language models those of blocks alone."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from docvino.document import Block, Box, Page, Point, polygon_box
from docvino.render import grid
from docvino.render.flow import without_controls
from docvino.render.glyphless import natural_width
from docvino.render.placed import DOWN, WORD, Placed, filled, placed_texts
from docvino.text import math

Span = tuple[float, float]

_UNSEEN = re.compile(r"\\[()\[\]]|[{}^_]")  # of LaTeX
_COMMAND = re.compile(r"\\[A-Za-z]+")

_CONTRAST = 0.35  # of the darkest ink's difference to the paper: what differs more is ink
_LEAST_CONTRAST = 24  # of 255, else noise on blank paper would be ink
_MORE = 0.12  # of a line's height is looked at above and below it: detectors cut letters off
_LEAST_HEIGHT = 0.25  # of a line: lower ink is a part of Chinese characters
_SPECK = 0.02  # of the line's height: less ink in a column is dirt
_RULE = 0.8  # of the line's length: a row with so much ink is an underline
_BLANK = 0.28  # width of a blank in multiples of the size
_NARROW = 20.0  # how much worse a gap too narrow for a blank is than a word of unexpected width
_MARK_PAPER, _CHARACTER_PAPER = 0.7, 0.08  # of the square of a Chinese mark and of a character: left white
_BROKEN = 1.0  # how much worse a word that goes on in the next row is
_MOST_PIECES = 64  # of ink in a word
_MOST_PIECES_OF_ALL = 12_000  # of a block: a page of small print has 6,000
_SLACK = (8.0, 0.05)  # how far from its expected place a word may lie: multiples of the size, and of the whole text
_SLOPES = np.linspace(-0.05, 0.05, 41)  # 3 degrees to both sides, in steps that move a wide row's end by a pixel or two
_HEIGHTS = (0.45, 1.5)  # of a row of text in multiples of its size, as its widths tell it
_SPREAD = (0.3, 3.0)  # the same for a text whose widths are only roughly known
_TOUCHING = 1.7  # rows of text that are so much higher than the usual one are two
_ONE_ROW = 1.6  # of the size that one row of the whole text would have: ink so high at most is one
_FLAT = 0.4  # rows of ink that are so much lower than the usual one are dots of letters
_CLEARLY = 1.1  # how much sharper rows must be at a slope than level ones
_WORST_FIT = (
    0.45  # mean error of the words' widths, in multiples of the size, at which the rows are not those of the text
)


@dataclass(frozen=True)
class _Ink:
    """Pieces of ink in reading order, from `starts` to `ends`; `rows` says in which row of text each lies."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    rows: NDArray[np.int64]


@dataclass(frozen=True)
class _Row:
    """A row of text laid level: its ink, cut at both ends, and where it begins on the page.

    slope   pixels by which it sinks from one column to the next
    """

    ink: NDArray[np.bool_]
    left: float
    top: float
    slope: float


def located(page: Page, pixels: NDArray[np.uint8] | None) -> Iterator[tuple[Placed, list[Span] | None]]:
    """All texts of the page with begin and end of each word (split at blanks) as shares of the text's length.

    None stands where the ink does not tell, and where there is none.

    pixels   uint8 (H, W, 3) RGB, the page
    """
    for block in page.blocks:
        if pixels is not None and (rows := _of_ink(block, pixels)):
            yield from rows
            continue
        for placed in placed_texts(block):
            yield (placed, None) if pixels is None or not placed.is_read else _on_ink(pixels, placed)


def _of_ink(block: Block, pixels: NDArray[np.uint8]) -> list[tuple[Placed, list[Span] | None]]:
    """The texts of a block of which only the text is known; empty when its ink does not tell where they are."""
    if block.lines or block.label in DOWN:
        return []
    if block.format == "html":
        return _cells_of_table(block, pixels)
    if block.cells or block.format != "text":
        return []
    return _rows_of_text(without_controls(block.content), [polygon_box(one) for one in block.polygons], pixels)


def _on_ink(pixels: NDArray[np.uint8], placed: Placed) -> tuple[Placed, list[Span] | None]:
    """A line that a reader saw, as high as its ink, with its words; as it was seen where the ink does not tell."""
    strip = _strip(pixels, _cut(placed, -_MORE, 1 + _MORE))
    inked = _inked(strip)
    top, bottom = _high(inked)
    if is_line := bottom - top >= _LEAST_HEIGHT * len(strip):
        inked = inked[top:bottom]
    ink = _pieces([inked])
    words = placed.text.split()
    if not len(words) <= len(ink.ends) <= _MOST_PIECES_OF_ALL or not words:
        return placed, None
    size_px = (ink.ends[-1] - ink.starts[0]) / natural_width(" ".join(words))
    chosen, error = _fitted(ink, words, [True] * len(words), size_px)
    if not np.isfinite(error):
        return placed, None
    spans = [
        (float(ink.starts[begin]) / strip.shape[1], float(ink.ends[end]) / strip.shape[1]) for begin, end in chosen
    ]
    if not is_line:
        return placed, spans
    top_share, bottom_share = (at / len(strip) * (1 + 2 * _MORE) - _MORE for at in (top, bottom))
    return _cut(placed, top_share, bottom_share), spans


def _high(ink: NDArray[np.bool_]) -> tuple[int, int]:
    """The rows without a white one between them in which most ink is, that in the middle counting most.

    What is above and below is of other lines, or a rule.
    """
    counts = ink.sum(axis=1)
    weights = counts * (1 - np.abs(np.linspace(-1, 1, len(counts) + 2)[1:-1]))
    edges = np.flatnonzero(np.diff(np.concatenate(([False], counts > 0, [False])).astype(np.int8)))
    runs = [(int(begin), int(end)) for begin, end in zip(edges[0::2], edges[1::2], strict=True)]
    return max(runs, key=lambda run: float(weights[run[0] : run[1]].sum()), default=(0, 0))


def _cut(placed: Placed, top: float, bottom: float) -> Placed:
    """The part of a line between two shares of its height."""

    def between(a: Point, b: Point, share: float) -> Point:
        return a[0] + share * (b[0] - a[0]), a[1] + share * (b[1] - a[1])

    start, end = (placed.start_top, placed.start_bottom), (placed.end_top, placed.end_bottom)
    return replace(
        placed,
        start_top=between(*start, top),
        end_top=between(*end, top),
        end_bottom=between(*end, bottom),
        start_bottom=between(*start, bottom),
    )


def _strip(pixels: NDArray[np.uint8], placed: Placed) -> NDArray[np.uint8]:
    """The line laid level, grey."""
    corners = (placed.start_top, placed.start_bottom, placed.end_bottom, placed.end_top)
    width = round(np.hypot(*np.subtract(placed.end_top, placed.start_top)))
    height = round(np.hypot(*np.subtract(placed.start_bottom, placed.start_top)))
    left, top = (max(0, int(value)) for value in np.min(corners, axis=0))
    right, bottom = (int(np.ceil(value)) + 1 for value in np.max(corners, axis=0))
    if right <= left or bottom <= top or not pixels[top:bottom, left:right].size:
        return np.zeros((1, 1), np.uint8)  # beside the page
    part = _grey(pixels[top:bottom, left:right])
    data = [float(value) for x, y in corners for value in (x - left, y - top)]
    size = (min(max(1, width), 20_000), min(max(1, height), 2_000))
    return np.asarray(part.transform(size, Image.Transform.QUAD, data), np.uint8)


def _grey(pixels: NDArray[np.uint8]) -> Image.Image:
    return Image.fromarray(np.ascontiguousarray(pixels)).convert("L")


def _inked(grey: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Where there is ink, without underlines."""
    difference = np.abs(grey.astype(np.int16) - int(np.median(grey)))
    ink = difference > max(_LEAST_CONTRAST, _CONTRAST * int(difference.max()))
    ink[ink.mean(axis=1) > _RULE] = False
    return np.asarray(ink, np.bool_)


def _pieces(rows: Sequence[NDArray[np.bool_]]) -> _Ink:
    """The pieces of each row, as if all rows lay behind each other; each begins where the one before has its end."""
    starts, ends, numbers = [], [], []
    offset = 0
    for number, row in enumerate(rows):
        inked = row.sum(axis=0) > _SPECK * len(row)
        edges = np.flatnonzero(np.diff(np.concatenate(([False], inked, [False])).astype(np.int8)))
        starts.append(edges[0::2] + offset)
        ends.append(edges[1::2] + offset)
        numbers.append(np.full(len(edges) // 2, number))
        offset += row.shape[1]
    return _Ink(np.concatenate(starts), np.concatenate(ends), np.concatenate(numbers))


def _fitted(
    ink: _Ink, words: Sequence[str], blanks: Sequence[bool], size_px: float
) -> tuple[list[tuple[int, int]], float]:
    """The first and the last piece of each word, such that widths and blanks are most like the expected ones.

    Every word takes one or more pieces that follow each other, all are taken. Also the mean error of the widths, in
    multiples of the size.

    blanks   whether there is a blank behind each word
    """
    count = len(ink.ends)
    gaps = (ink.starts[1:] - ink.ends[:-1]) / size_px
    ends_row = np.append(np.diff(ink.rows) > 0, True)
    too_narrow = _NARROW * np.minimum(np.append(gaps, _BLANK) - _BLANK, 0) ** 2
    too_narrow[ends_row] = 0.0
    # before[b, k]: the piece where a word of k + 1 pieces begins that has its end at piece b
    before = np.arange(count)[:, None] - np.arange(min(count, _MOST_PIECES))[None, :]
    possible = before >= 0
    before = np.maximum(before, 0)
    widths = (ink.ends[:, None] - ink.starts[before]) / size_px
    broken = _BROKEN * (ink.rows[:, None] - ink.rows[before])
    at = (ink.ends - ink.starts[0]) / size_px
    slack = _SLACK[0] + _SLACK[1] * float(at[-1])
    reach = 0.0
    cost = np.full(count + 1, np.inf)  # of the words so far when the next one begins at a piece
    cost[0] = 0.0
    choices = []
    for word, blank in zip(words, blanks, strict=True):
        reach += natural_width(word) + (_BLANK if blank else 0)
        near = slice(*np.searchsorted(at, (reach - slack, reach + slack)))
        surprise = np.where(possible[near], (widths[near] - _inked_width(word)) ** 2 + broken[near], np.inf)
        whole = cost[before[near]] + surprise
        best = whole.argmin(axis=1) if len(whole) else np.zeros(0, np.int64)
        rows = np.arange(len(best))
        choice = np.zeros(count, np.int64)
        choice[near] = before[near][rows, best]
        choices.append(choice)
        cost = np.full(count + 1, np.inf)
        cost[1:][near] = whole[rows, best] + (too_narrow[near] if blank else 0)
    spans = []
    end = count - 1
    for choice in reversed(choices):
        spans.append((int(choice[end]), end))
        end = int(choice[end]) - 1
    return spans[::-1], float(np.sqrt(cost[-1] / len(words)))


def _inked_width(word: str) -> float:
    """How wide the ink of a word is, in multiples of the size: Chinese marks fill a third of their square."""
    last = word[-1]
    if unicodedata.east_asian_width(last) not in "WF":
        return natural_width(word)
    return natural_width(word) - (_MARK_PAPER if unicodedata.category(last)[0] == "P" else _CHARACTER_PAPER)


# ---- blocks of which only the text is known


def _rows_of_text(
    text: str, boxes: Sequence[Box], pixels: NDArray[np.uint8], *, level: bool = False
) -> list[tuple[Placed, list[Span] | None]]:
    """The rows of text as they are printed, with their words where these fit the ink; empty when no rows are found."""
    if not text.strip():
        return []
    natural = natural_width(" ".join(text.split())) if len(boxes) == 1 else np.inf
    rows = [row for box in boxes for row in _text_rows(pixels, box, natural, level=level)]
    if not rows:
        return []
    has_formulas = any(kind != "text" for kind, _ in math.split(text))
    if not has_formulas and (exact := _words_in_rows(text, rows)):
        return list(exact)
    return _spread(text, rows)


def _words_in_rows(text: str, rows: Sequence[_Row]) -> list[tuple[Placed, list[Span]]]:
    """Empty when the ink is not that of the words."""
    ink = _pieces([row.ink for row in rows])
    found = WORD.findall(text.strip())
    words, blanks = [word.strip() for word in found], [word != word.strip() for word in found]
    if not words or not len(words) <= len(ink.ends) <= _MOST_PIECES_OF_ALL:
        return []
    size_px = _width(rows) / (natural_width(text) - _BLANK * (len(rows) - 1))
    if size_px <= 0 or not _HEIGHTS[0] <= _height(rows) / size_px <= _HEIGHTS[1]:
        return []
    chosen, error = _fitted(ink, words, blanks, size_px)
    return list(_placed_rows(ink, rows, words, blanks, chosen)) if error <= _WORST_FIT else []


def _spread(text: str, rows: Sequence[_Row]) -> list[tuple[Placed, list[Span] | None]]:
    """The text in the rows of ink, each row as much of it as it is wide; empty when so many rows cannot be its.

    For texts with formulas, whose LaTeX is longer than what is printed, and texts that were read badly.
    """
    words = WORD.findall(" ".join(text.split()))
    widths = [_seen_width(word) for word in words]
    size_px = _width(rows) / sum(widths)
    if len(words) < len(rows) or not _SPREAD[0] <= _height(rows) / size_px <= _SPREAD[1]:
        return []
    height = _row_height(rows)
    ends = np.cumsum([row.ink.shape[1] for row in rows]) / _width(rows) * sum(widths)
    parts = [""] * len(rows)
    place, used = 0, 0.0
    for number, (word, width) in enumerate(zip(words, widths, strict=True)):
        # Each row gets one word at least.
        must = len(words) - number <= len(rows) - 1 - place
        if parts[place] and place + 1 < len(rows) and (must or used + width / 2 > ends[place]):
            place += 1
        parts[place] += word
        used += width
    return [(_placed(part.strip(), row, height), _shares(part.split())) for part, row in zip(parts, rows, strict=True)]


def _seen_width(word: str) -> float:
    """The width of what is printed of a word, in multiples of the size: in LaTeX a command is about a letter."""
    return natural_width(_COMMAND.sub("x", _UNSEEN.sub("", word)))


def _shares(words: Sequence[str]) -> list[Span]:
    """Where each word of a row begins and ends, as shares of its length."""
    widths = [_seen_width(word) for word in words]
    starts = np.cumsum([0.0, *(width + _BLANK for width in widths)])
    whole = float(starts[-1]) - _BLANK
    return [(float(at) / whole, (float(at) + width) / whole) for at, width in zip(starts, widths, strict=False)]


def _cells_of_table(block: Block, pixels: NDArray[np.uint8]) -> list[tuple[Placed, list[Span] | None]]:
    """The texts of a table's cells; empty when their places are known already, or the grid is not found."""
    if not block.cells or any(cell.polygon is not None for cell in block.cells):
        return []
    boxes = grid.cell_boxes(pixels, polygon_box(block.polygons[0]), block.cells)
    if boxes is None:
        return []
    found: list[tuple[Placed, list[Span] | None]] = []
    for cell, box in zip(block.cells, boxes, strict=True):
        text = without_controls(cell.text)
        found += _rows_of_text(text, [box], pixels, level=True) or [(placed, None) for placed in filled(text, box)]
    return found


def _width(rows: Sequence[_Row]) -> int:
    return sum(row.ink.shape[1] for row in rows)


def _height(rows: Sequence[_Row]) -> float:
    return float(np.median([len(row.ink) for row in rows]))


def _row_height(rows: Sequence[_Row]) -> float:
    """Of rows of one size, from their top: nearly all have a tall letter, but many none that goes below the line."""
    return float(np.quantile([len(row.ink) for row in rows], 0.75))


def _text_rows(pixels: NDArray[np.uint8], box: Box, natural: float, *, level: bool) -> list[_Row]:
    """The rows of ink in the box, laid level unless they are; none when rows touch each other.

    natural   width of the box's text in multiples of its size: where one row is as wide, there is white in its letters
    """
    height, width = pixels.shape[:2]
    left, top = max(0, int(box[0])), max(0, int(box[1]))
    right, bottom = min(width, int(np.ceil(box[2]))), min(height, int(np.ceil(box[3])))
    if right - left < 2 or bottom - top < 2:
        return []
    part = _grey(pixels[top:bottom, left:right])
    slope = 0.0 if level else _slope(_inked(np.asarray(part)))
    if slope:
        paper = int(np.median(np.asarray(part)))
        part = part.transform(part.size, Image.Transform.AFFINE, (1, 0, 0, slope, 1, 0), fillcolor=paper)
    ink = _inked(np.asarray(part))
    edges = np.flatnonzero(np.diff(np.concatenate(([False], ink.any(axis=1), [False])).astype(np.int8)))
    runs = [(int(begin), int(end)) for begin, end in zip(edges[0::2], edges[1::2], strict=True)]
    if not runs:
        return []
    inked = np.flatnonzero(ink.any(axis=0))
    if runs[-1][1] - runs[0][0] <= _ONE_ROW * (inked[-1] - inked[0]) / natural:
        runs = [(runs[0][0], runs[-1][1])]
    usual = float(np.median([end - begin for begin, end in runs if end - begin > 2] or [1]))
    rows: list[tuple[int, int]] = []
    for begin, end in runs:
        near = bool(rows) and begin - rows[-1][1] < _FLAT * usual
        if near and min(end - begin, rows[-1][1] - rows[-1][0]) < _FLAT * usual:
            rows[-1] = (rows[-1][0], end)
        else:
            rows.append((begin, end))
    rows = [row for row in rows if row[1] - row[0] > 2]
    usual = float(np.median([end - begin for begin, end in rows] or [1]))
    if any(end - begin > _TOUCHING * usual for begin, end in rows):
        return []
    found = []
    for begin, end in rows:
        columns = np.flatnonzero(ink[begin:end].sum(axis=0) > _SPECK * (end - begin))
        if len(columns):
            first, last = int(columns[0]), int(columns[-1]) + 1
            found.append(_Row(ink[begin:end, first:last], left + first, top + begin + slope * first, slope))
    return found


def _slope(ink: NDArray[np.bool_]) -> float:
    """How far rows sink from column to column: the slope at which the ink is in the fewest rows of pixels."""
    ys, xs = np.nonzero(ink)
    some = slice(None, None, max(1, len(ys) // 20_000))
    ys, xs = ys[some], xs[some]

    def sharpness(slope: float) -> float:
        return float((np.bincount(np.rint(ys - slope * xs + ink.shape[1]).astype(np.int64)) ** 2).sum())

    level = sharpness(0.0)
    best = max((float(slope) for slope in _SLOPES), key=sharpness)
    return best if sharpness(best) > _CLEARLY * level else 0.0


def _placed_rows(
    ink: _Ink,
    rows: Sequence[_Row],
    words: Sequence[str],
    blanks: Sequence[bool],
    chosen: Sequence[tuple[int, int]],
) -> Iterator[tuple[Placed, list[Span]]]:
    offsets = np.cumsum([0, *(row.ink.shape[1] for row in rows)])
    placed = list(zip(words, blanks, chosen, strict=True))
    height = _row_height(rows)
    for number, group in groupby(placed, key=lambda entry: int(ink.rows[entry[2][0]])):
        row = rows[number]
        width = row.ink.shape[1]
        text, spans, apart = "", [], True
        for word, blank, (begin, stop) in group:
            # A word that goes on in the next row is found where it begins.
            last = ink.ends[stop] if ink.rows[stop] == number else offsets[number + 1]
            span = tuple(float(at - offsets[number]) / width for at in (ink.starts[begin], last))
            if apart:
                text += f" {word}" if text else word
                spans.append((span[0], span[1]))
            else:
                text += word
                spans[-1] = (spans[-1][0], span[1])
            apart = blank
        yield _placed(text, row, height), spans


def _placed(text: str, row: _Row, height: float) -> Placed:
    width = row.ink.shape[1]
    start, end = (row.left, row.top), (row.left + width, row.top + row.slope * width)
    return Placed(text, start, end, (end[0], end[1] + height), (start[0], start[1] + height))
