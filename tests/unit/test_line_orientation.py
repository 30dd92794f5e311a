"""Facts of the direction of single text lines, and of lines and pages that are drawn for a comparison."""

from __future__ import annotations

import numpy as np
import pytest

from docvino.codec import orientation
from docvino.codec.pixels import has_structure
from docvino.codec.sample import sample_line, sample_page
from docvino.specs.pp_ocr_v4 import LINE_ORIENTATION

FACTS = LINE_ORIENTATION.facts


def test_lines_keep_their_proportions_and_are_padded_with_mid_grey() -> None:
    line = np.zeros((24, 48, 3), np.uint8)
    line[..., 0] = 255
    tensor = orientation.prepare_lines([line, np.full((10, 900, 3), 255, np.uint8)], FACTS)
    assert tensor.shape == (2, 3, 48, 192)
    assert tensor[0, :, 20, 50].tolist() == [-1, -1, 1]  # red comes last
    assert (tensor[0, :, :, 96:] == 0).all()
    assert tensor[1].min() == pytest.approx(1)


def test_each_line_gets_its_angle_and_score() -> None:
    scores = np.array([[0.9, 0.1], [0.2, 0.8]], np.float32)
    assert [(a, round(s, 3)) for a, s in orientation.decode_lines(scores, FACTS)] == [(0, 0.9), (180, 0.8)]


def test_what_is_drawn_for_a_comparison_has_print_on_it() -> None:
    assert sample_page().shape == (640, 960, 3)
    assert sample_line().shape == (48, 640, 3)
    assert has_structure(sample_page())
    assert has_structure(sample_line())
