"""Facts of finding lines and tables without a model, on pages whose lines are known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

import draw
from docvino.codec import ink
from docvino.demo import draw_page
from docvino.document import Answer, PageImage, Region, box_polygon
from docvino.errors import InputError
from docvino.runtime.ink import LINE, InkLayout, cut_elements
from docvino.settings import ParseOptions
from docvino.text.elements import blocks_of_lines

TABLE = draw.plain_table(("Name", "Total"), ("alpha", "12"), ("beta", "7"))


def page_of(image: Image.Image) -> PageImage:
    return PageImage(0, np.asarray(image.convert("RGB")))


@pytest.mark.parametrize(
    ("make", "lines"),
    [
        (lambda: draw_page().image, len(draw_page().lines)),
        (lambda: draw.english_two_columns()[0], 18),
        (lambda: draw.chinese_page()[0], 9),
        (lambda: draw.mixed_page()[0], 6),
        (lambda: draw.inverted(draw.mixed_page()[0]), 6),
    ],
    ids=["demo", "two columns", "chinese", "mixed", "light on dark"],
)
def test_every_line_of_a_drawn_page_is_one_box(make: Callable[[], Image.Image], lines: int) -> None:
    found = ink.find(np.asarray(make().convert("RGB")))
    assert len(found.lines) == lines
    assert found.tables == ()


def test_a_box_holds_its_line_with_dots_and_tails() -> None:
    image = Image.new("RGB", (500, 120), "white")
    text, font = "Jumping, quickly: ÄÖ...", ImageFont.load_default(40)
    pen = ImageDraw.Draw(image)
    pen.text((20, 40), text, fill=0, font=font)
    (line,) = ink.find(np.asarray(image)).lines
    assert line == pytest.approx(pen.textbbox((20, 40), text, font=font), abs=2)


@pytest.mark.parametrize("border", [True, False], ids=["ruled", "three rules"])
def test_rules_make_a_table_and_its_words_are_no_lines(border: bool) -> None:
    image = draw.table_page(TABLE, [220, 180], border=border, caption="Table 1")
    found = ink.find(np.asarray(image))
    assert len(found.tables) == 1
    assert len(found.lines) == 1  # the caption
    left, top, right, bottom = found.tables[0]
    assert (right - left, bottom - top) == pytest.approx((400, 180), abs=16)


@pytest.mark.parametrize("size", [(60, 80), (1, 1), (2, 300)])
def test_paper_has_no_lines(size: tuple[int, int]) -> None:
    assert ink.find(np.full((*size, 3), 250, np.uint8)) == ink.Ink((), ())


def test_an_underlined_word_is_no_table() -> None:
    image = Image.new("RGB", (400, 100), "white")
    pen = ImageDraw.Draw(image)
    pen.text((20, 30), "underlined words", fill=0, font=ImageFont.load_default(30))
    pen.line((20, 70, 260, 70), fill=0, width=2)
    found = ink.find(np.asarray(image))
    assert (len(found.lines), found.tables) == (1, ())


class Says:
    """A layout model that always sees the same."""

    def __init__(self, *regions: Region) -> None:
        self._regions = list(regions)

    def detect(self, page: PageImage, options: ParseOptions) -> list[Region]:  # noqa: ARG002 the seam
        return [*self._regions]


def test_lines_in_elements_of_a_layout_model_are_not_read_twice() -> None:
    page = page_of(draw.mixed_page()[0])
    (first, *others) = ink.find(page.pixels).lines
    figure = Region("figure", 0.9, box_polygon(*others[0]))
    equation = Region("equation", 0.8, box_polygon(*others[1]))
    regions = InkLayout(Says(figure, equation, Region("text", 0.7, box_polygon(*first)))).detect(page, ParseOptions())
    assert [region.label for region in regions].count(LINE) == 4
    crops = cut_elements(page, regions)
    assert [crop.task for crop in crops] == ["formula", *["ocr"] * 4]


def test_lines_and_elements_come_together_in_reading_order() -> None:
    image = draw.table_page(TABLE, [220, 180], caption="Table 1")
    page = page_of(image)
    regions = InkLayout().detect(page, ParseOptions())
    crops = cut_elements(page, regions)
    said = {"table": "<fcel>Name<fcel>Total<nl><fcel>alpha<fcel>12<nl>", "ocr": "Table 1"}
    answers = [Answer(said[crop.task], 0.5 if crop.task == "ocr" else 0.75) for crop in crops]
    caption, table = blocks_of_lines(0, regions, crops, answers)
    assert (caption.content, caption.lines[0].confidence) == ("Table 1", 0.5)
    assert (table.label, table.format, table.confidence) == ("table", "html", 0.75)
    assert [cell.text for cell in table.cells] == ["Name", "Total", "alpha", "12"]
    assert "<td>alpha</td>" in table.content


def test_a_line_without_an_answer_leaves_the_others() -> None:
    page = page_of(draw.mixed_page()[0])
    regions = InkLayout().detect(page, ParseOptions())
    crops = cut_elements(page, regions)
    answers = [Answer(f"line {place}", 0.9) for place in range(len(crops))]
    answers[2] = Answer("", 0.0, problem=InputError("lost", fix="find it"))
    text = " ".join(block.content for block in blocks_of_lines(0, regions, crops, answers))
    assert [f"line {place}" in text for place in range(6)] == [True, True, False, True, True, True]
