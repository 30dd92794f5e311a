"""Facts of the picture of a page with what was found on it."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from docvino.document import Block, box_polygon
from docvino.render.overlay import colour_of, overlay_png
from sample_documents import block, line, page

WHITE = np.full((800, 600, 3), 255, np.uint8)


def drawn(*blocks: Block) -> Image.Image:
    image = Image.open(io.BytesIO(overlay_png(page(*blocks), WHITE)))
    assert (image.format, image.mode, image.size) == ("PNG", "RGB", (600, 800))
    return image


def test_a_block_is_a_tinted_area_with_a_border_in_the_colour_of_its_kind() -> None:
    image = drawn(block("table", polygons=(box_polygon(100, 200, 300, 400),)))
    assert image.getpixel((200, 400)) == colour_of("table")
    inside = image.getpixel((200, 300))
    assert inside != (255, 255, 255)
    assert inside != colour_of("table")
    assert image.getpixel((400, 300)) == (255, 255, 255)


def test_lines_have_a_border_of_their_own() -> None:
    image = drawn(block("text", "x", lines=(line("x", 70, 90, 200, 110),)))
    assert image.getpixel((70, 100)) == (90, 90, 90)


def test_place_and_label_stand_above_the_block() -> None:
    image = drawn(block("text", polygons=(box_polygon(100, 200, 300, 400),), layout_score=0.97))
    row = [image.getpixel((x, 195)) for x in range(100, 200)]
    assert row[0] == (200, 0, 0)
    assert colour_of("text") in row
    assert row.index(colour_of("text")) < 20


def test_a_label_at_the_right_edge_stays_on_the_page() -> None:
    image = drawn(block("formula_number", polygons=(box_polygon(580, 200, 598, 215),), layout_score=0.97))
    assert image.getpixel((599, 195)) == colour_of("formula_number")
    assert image.getpixel((450, 195)) == (255, 255, 255)


@pytest.mark.parametrize("box", [(0, 0, 600, 800), (-20, -10, 900, 900), (5, 5, 5.5, 5.5), (590, 2, 600, 4)])
def test_blocks_at_and_over_the_edge_do_no_harm(box: tuple[float, float, float, float]) -> None:
    drawn(block("text", "x", polygons=(box_polygon(*box),)))


def test_kinds_have_different_colours() -> None:
    labels = ("doc_title", "text", "table", "image", "figure_title", "display_formula", "header")
    assert len({colour_of(label) for label in labels}) == len(labels)


def test_the_page_itself_is_not_drawn_on() -> None:
    drawn(block("text", "x"))
    assert (WHITE == 255).all()


def test_a_turned_page_can_be_drawn_on() -> None:
    turned = np.rot90(np.full((600, 800, 3), 255, np.uint8))
    assert Image.open(io.BytesIO(overlay_png(page(block("text", "x")), turned))).size == (600, 800)
