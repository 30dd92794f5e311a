"""Where each text of a page lies: lines as they were read, or estimated where a reader gave only the block's text."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from docvino.document import Block, Box, Cell, Point, box_polygon, polygon_box
from docvino.render.flow import without_controls
from docvino.render.glyphless import natural_width, wrapped
from docvino.text import order

_AROUND = (0.1, 0.25)  # of a cell's width and height, on each side
_PITCH = 1.25  # from line to line, in multiples of the size
WORD = re.compile(r"[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]\s*|[^\s\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]+\s*")
DOWN = frozenset({"vertical_text"})


@dataclass(frozen=True)
class Placed:
    """A text and its corners in page pixels, from the first letter's top: in the order of its own reading direction.

    is_read   the place is one that a reader saw, no estimate
    """

    text: str
    start_top: Point
    end_top: Point
    end_bottom: Point
    start_bottom: Point
    is_read: bool = False


def placed_texts(block: Block) -> Iterator[Placed]:
    """The texts of a block in reading order."""
    for placed in _of_block(block):
        if placed.text.strip():
            yield placed


def _of_block(block: Block) -> Iterator[Placed]:
    if block.lines:
        yield from (_line(without_controls(line.text), line.polygon) for line in block.lines)
    elif block.cells and block.format == "html":
        area = polygon_box(block.polygons[0])
        for cell in block.cells:
            yield from filled(cell.text, _cell_box(cell, block.cells, area))
    elif len(block.polygons) == 1 or not block.content.strip():
        yield from filled(block.content, polygon_box(block.polygons[0]), down=block.label in DOWN)
    else:
        boxes = [polygon_box(polygon) for polygon in block.polygons]
        parts = _shared_out(block.content, [(box[2] - box[0]) * (box[3] - box[1]) for box in boxes])
        for text, box in zip(parts, boxes, strict=True):
            yield from filled(text, box, down=block.label in DOWN)


def _line(text: str, polygon: tuple[Point, ...]) -> Placed:
    """A tall line runs down: Chinese columns, and Latin lines turned clockwise."""
    box = polygon_box(polygon)
    corners = polygon if len(polygon) == 4 else box_polygon(*box)
    if len(text) > 1 and order.is_tall(box):
        corners = (*corners[1:], corners[0])
    start_top, end_top, end_bottom, start_bottom = corners
    return Placed(text, start_top, end_top, end_bottom, start_bottom, is_read=True)


def _cell_box(cell: Cell, cells: tuple[Cell, ...], area: Box) -> Box:
    """Its own place, or its share of a table whose rows are of one height and whose columns are of one width.

    Of a share, the paper around the text is left out: else the texts of neighbours touch and are read as one word.
    """
    if cell.polygon is not None:
        return polygon_box(cell.polygon)
    rows = max(one.row + one.row_span for one in cells)
    columns = max(one.column + one.column_span for one in cells)
    width, height = (area[2] - area[0]) / columns, (area[3] - area[1]) / rows
    left, top = area[0] + cell.column * width, area[1] + cell.row * height
    wide, high = cell.column_span * width, cell.row_span * height
    return (
        left + _AROUND[0] * wide,
        top + _AROUND[1] * high,
        left + (1 - _AROUND[0]) * wide,
        top + (1 - _AROUND[1]) * high,
    )


def filled(text: str, box: Box, *, down: bool = False) -> Iterator[Placed]:
    """The text wrapped into the box, in the largest size in which it fits."""
    text = without_controls(text)
    if not text.strip():
        return
    left, top, right, bottom = box
    long_px, across_px = (bottom - top, right - left) if down else (right - left, bottom - top)
    size, lines = _fitted(text, max(long_px, 1.0), max(across_px, 1.0))
    pitch = across_px / len(lines)
    for number, line in enumerate(lines):
        start = number * pitch + max(0.0, pitch - size) / 2
        length = min(long_px, natural_width(line) * size)
        if down:  # columns from the right to the left
            near, far = right - start, right - start - min(size, pitch)
            yield Placed(line, (near, top), (near, top + length), (far, top + length), (far, top))
        else:
            near, far = top + start, top + start + min(size, pitch)
            yield Placed(line, (left, near), (left + length, near), (left + length, far), (left, far))


def _fitted(text: str, long_px: float, across_px: float) -> tuple[float, list[str]]:
    paragraphs = [WORD.findall(paragraph) for paragraph in text.split("\n") if paragraph.strip()]
    area_lines = math.sqrt(natural_width(text) * across_px / (_PITCH * long_px))
    count = max(len(paragraphs), int(area_lines))
    while True:
        size = across_px / (count if count == 1 else count * _PITCH)
        lines = [line for words in paragraphs for line in wrapped(words, long_px / size)]
        if len(lines) <= count:
            return size, lines
        count = max(count + 1, int(count * 1.05))


def _shared_out(text: str, areas: list[float]) -> list[str]:
    """The text cut at blanks into parts as long as the areas are large."""
    words = WORD.findall(text.replace("\n", " "))
    letters, whole = sum(map(len, words)), max(sum(areas), 1e-6)
    parts = [""] * len(areas)
    place, used, limit = 0, 0, letters * areas[0] / whole
    for word in words:
        while place + 1 < len(areas) and used >= limit:
            place += 1
            limit += letters * areas[place] / whole
        parts[place] += word
        used += len(word)
    return parts
