"""Facts of cells found by ink: drawn tables of which only the text of each cell is known."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from PIL import Image

import draw
from docvino.document import Box, Cell, box_polygon
from docvino.render.grid import cell_boxes
from docvino.render.pdf import pictures_pdf
from draw import TableTruth
from pdf_words import Word, near, words_of
from sample_documents import block, document, page
from ten_pages import cells

MARGIN, SIZE, ROW = 60, 26, 60


@dataclass(frozen=True)
class Table:
    pixels: np.ndarray[Any, Any]
    truth: TableTruth
    widths: tuple[int, ...]
    box: Box

    def cell_at(self, row: int, column: int) -> Box:
        """Between rules: left, top, right, bottom."""
        left = MARGIN + sum(self.widths[:column])
        return left, MARGIN + row * ROW, left + self.widths[column], MARGIN + (row + 1) * ROW

    @property
    def words(self) -> list[Word]:
        """The words of the cells, as long as they are one a cell, in points at 72 dpi."""
        found = []
        font = draw.sans(SIZE)
        for row, column, high, wide, text in self.truth.grid:
            left, top, _, _ = self.cell_at(row, column)
            _, _, right, bottom = self.cell_at(row + high - 1, column + wide - 1)
            x = (left + right) / 2 - font.getlength(text) / 2
            for word in re.finditer(r"\S+", text):
                at = x + font.getlength(text[: word.start()])
                end = at + font.getlength(word[0])
                found.append(Word(word[0], (at, (top + bottom) / 2, end, (top + bottom) / 2)))
        return found


def table(truth: TableTruth, widths: tuple[int, ...], *, border: bool) -> Table:
    image = draw.table_page(truth, widths, border=border, size=SIZE, margin=MARGIN, row_height=ROW)
    box = (MARGIN - 4.0, MARGIN - 4.0, image.width - MARGIN + 5.0, image.height - MARGIN + 5.0)
    return Table(np.asarray(image), truth, widths, box)


TABLES = {
    "rules": table(draw.BORDERED, (200, 170, 150, 150), border=True),
    "spans": table(draw.SPANS, (150, 130, 130, 130, 130), border=True),
    "three rules": table(draw.THREE_LINES, (220, 150, 160, 170), border=False),
    "empty cells": table(draw.EMPTY_CELLS, (140, 160, 200, 160), border=True),
    "long": table(draw.long_table(18), (110, 190, 150, 140), border=False),
}


def found(one: Table, texts: tuple[Cell, ...] | None = None) -> list[Box] | None:
    return cell_boxes(one.pixels, one.box, texts or cells(one.truth))


@pytest.mark.parametrize("name", TABLES)
def test_each_cell_is_found_where_its_ink_is(name: str) -> None:
    one = TABLES[name]
    boxes = found(one)
    assert boxes is not None
    for box, (row, column, high, wide, _) in zip(boxes, one.truth.grid, strict=True):
        left, top, _, _ = one.cell_at(row, column)
        _, _, right, bottom = one.cell_at(row + high - 1, column + wide - 1)
        assert left - 10 <= box[0] < box[2] <= right + 10
        assert top - 10 <= box[1] < box[3] <= bottom + 10


@pytest.mark.parametrize("name", TABLES)
def test_words_of_cells_lie_where_they_are_seen(name: str) -> None:
    one = TABLES[name]
    read = block("table", "<table></table>", "html", cells=cells(one.truth), polygons=(box_polygon(*one.box),))
    height, width = one.pixels.shape[:2]
    made = page(read, width_px=width, height_px=height, dpi=72)
    shown = words_of(pictures_pdf(document(made), lambda _: one.pixels))
    middles = [Word(word.text, (word.box[0], middle(word), word.box[2], middle(word))) for word in shown]
    for word in one.words:
        assert any(word.text == other.text and near_px(word.box, other.box) for other in middles), word


def middle(word: Word) -> float:
    return (word.box[1] + word.box[3]) / 2


def near_px(one: Box, two: Box) -> bool:
    """Within three points at 144 dpi."""
    return near(tuple(side / 2 for side in one), tuple(side / 2 for side in two))  # type: ignore[arg-type]


def test_a_table_of_another_shape_is_not_found() -> None:
    one = TABLES["rules"]
    narrower = tuple(cell for cell in cells(one.truth) if cell.column < 3)
    assert found(one, narrower) is None
    lower = tuple(cell for cell in cells(one.truth) if cell.row < 3)
    assert found(one, lower) is None


def test_text_where_no_ink_is_says_that_it_is_another_table() -> None:
    one = TABLES["empty cells"]
    filled = tuple(cell.model_copy(update={"text": "x"}) for cell in cells(one.truth))
    assert found(one, filled) is None


@pytest.mark.parametrize("box", [(0, 0, 1, 1), (-50, -50, 3, 3), (5000, 5000, 6000, 6000), (0, 0, 700, 500)])
def test_a_box_without_a_table_is_no_harm(box: Box) -> None:
    white = np.asarray(Image.new("RGB", (800, 600), "white"))
    assert cell_boxes(white, box, (Cell(row=0, column=0, text="a"), Cell(row=1, column=1, text="b"))) is None
