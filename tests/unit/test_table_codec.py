"""Pictures of tables become tensors, tokens and coordinates become structures."""

from __future__ import annotations

import numpy as np
import pytest

from docvino.codec import table
from docvino.document import Structure
from docvino.specs.slanet import TABLE

FACTS = TABLE.facts
ZERO = (0 - np.array(FACTS.mean)) / np.array(FACTS.std)


def test_the_fifty_tokens_match_the_graph() -> None:
    assert len(FACTS.tokens) == TABLE.outputs[1].shape[-1] == 50
    assert len(set(FACTS.tokens)) == 50
    assert (FACTS.tokens[0], FACTS.tokens[-2], FACTS.tokens[-1]) == ("sos", "<td></td>", "eos")
    assert FACTS.tokens[10] == ' colspan="2"'
    assert FACTS.tokens[29] == ' rowspan="2"'


@pytest.mark.parametrize(
    ("size", "scaled"),
    [((200, 100), (488, 244)), ((100, 300), (162, 488)), ((976, 976), (488, 488)), ((1, 999), (1, 488))],
)
def test_the_longer_side_fills_the_square_and_the_rest_is_zero(size: tuple[int, int], scaled: tuple[int, int]) -> None:
    tensor = table.prepare(np.full((size[1], size[0], 3), 255, np.uint8), FACTS)
    assert tensor.shape == (1, 3, 488, 488)
    assert tensor.dtype == np.float32
    drawn = np.argwhere(tensor[0, 0] != 0)
    assert tuple(drawn.max(axis=0)[::-1] + 1) == scaled


def test_channels_are_in_bgr_order() -> None:
    red = np.zeros((10, 10, 3), np.uint8)
    red[..., 0] = 255
    tensor = table.prepare(red, FACTS)
    assert tensor[0, 0, 0, 0] == pytest.approx(ZERO[0], abs=1e-5)
    assert tensor[0, 2, 0, 0] == pytest.approx((1 - FACTS.mean[2]) / FACTS.std[2], abs=1e-5)


def decoded(*tokens: str, size: tuple[int, int] = (488, 244), likely: float = 0.9) -> Structure:
    """What a network says that gives each token so much probability; cell N has its corners at N, N+1 hundredths."""
    probabilities = np.full((len(tokens), 50), (1 - likely) / 49, np.float32)
    coordinates = np.zeros((len(tokens), 8), np.float32)
    for step, token in enumerate(tokens):
        probabilities[step, FACTS.tokens.index(token)] = likely
        left, right = step / 100, (step + 1) / 100
        coordinates[step] = [left, left, right, left, right, right, left, right]
    return table.decode(coordinates, probabilities, *size, FACTS)


def test_tokens_up_to_the_end_make_the_structure_and_cells_have_polygons() -> None:
    found = decoded("<tr>", "<td></td>", "<td", ' colspan="2"', ">", "</td>", "</tr>", "eos", "<tr>")
    assert found.tokens == ("<tr>", "<td></td>", "<td", ' colspan="2"', ">", "</td>", "</tr>")
    assert [round(polygon[0][0] / 4.88) for polygon in found.polygons] == [1, 2]
    assert found.finish == "stop"
    assert found.score == pytest.approx(0.9)


def test_coordinates_are_shares_of_the_padded_square() -> None:
    # A crop of 100 x 200 px: the square is 200 px of the crop wide, the right half is padding.
    (polygon,) = decoded(*["<tr>"] * 20, "<td></td>", "eos", size=(100, 200)).polygons
    assert polygon[0] == pytest.approx((40, 40))
    assert polygon[2] == pytest.approx((42, 42))


def test_corners_outside_the_crop_are_moved_to_its_edge() -> None:
    (polygon,) = decoded(*["<tr>"] * 60, "<td></td>", "eos", size=(100, 200)).polygons
    assert polygon[2] == pytest.approx((100, 122))


def test_a_sequence_without_an_end_is_cut_off() -> None:
    assert decoded("<tr>", "<td></td>").finish == "length"


def test_nothing_but_the_end_is_an_empty_structure() -> None:
    assert decoded("eos") == Structure((), (), 0.0, "stop")


def drawn(rows: int, *, border: bool, height: int = 20) -> np.ndarray:
    """Three columns of black marks on white paper with 10 px around; `border` rules every row and column."""
    page = np.full((rows * height + 21, 321, 3), 255, np.uint8)
    for row in range(rows):
        for column in range(3):
            y, x = 10 + row * height, 10 + column * 100
            page[y + 6 : y + 15, x + 20 : x + 70] = 0
            if border:
                page[y : y + 1, 10:311] = page[y + height : y + height + 1, 10:311] = 0
                page[10 : 11 + rows * height, x] = page[10 : 11 + rows * height, x + 100] = 0
    return page


def test_the_content_is_what_stands_out_from_the_paper() -> None:
    page = np.full((100, 200, 3), 230, np.uint8)
    assert table.content_box(page) == (0, 0, 200, 100)
    page[30:60, 40:90] = 20
    page[5, 5] = 0  # a speck
    assert table.content_box(page) == (40, 30, 90, 60)
    assert table.content_box(255 - page) == (40, 30, 90, 60)


@pytest.mark.parametrize("border", [True, False])
def test_a_long_table_is_cut_between_rows_into_parts_of_like_size(border: bool) -> None:
    page = drawn(50, border=border)
    assert table.row_cuts(drawn(20, border=border), 20) == []
    cuts = table.row_cuts(page, 20)
    assert len(cuts) == 2
    for cut in cuts:
        # On a rule, or in the white between two rows, which reaches from 5 px above to 5 px below it.
        assert abs((cut - 10 + 10) % 20 - 10) <= (0 if border else 5)
    heights = np.diff([10, *cuts, 1010]) / 20
    assert heights.max() <= 20


def test_a_ruled_table_is_not_cut_inside_a_cell_of_several_lines() -> None:
    # 15 rows of two lines each: rules lie between the rows only.
    page = drawn(30, border=True)
    for row in range(1, 30, 2):
        page[10 + row * 20, 11:310] = 255
        page[10 + row * 20, (110, 210)] = 0
    cuts = table.row_cuts(page, 20)
    assert len(cuts) == 1
    assert (cuts[0] - 10) % 40 == 0


def test_a_skewed_table_whose_rows_do_not_part_is_not_cut() -> None:
    page = drawn(50, border=False)
    slanted = np.stack([np.roll(page[:, x], x // 10, axis=0) for x in range(page.shape[1])], axis=1)
    assert table.row_cuts(slanted, 20) == []
