"""A page and a line of text to try a model on when nobody gave one: a text detector sees nothing in noise."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

_TEXT = (
    "Quarterly report 2026",
    "The scanner works at 300 dots per inch.",
    "Each batch ends with a grey card, so that",
    "later readers can correct the tint.",
    "Total 1,284.60   Invoice No. B-2031",
)


def sample_page() -> NDArray[np.uint8]:
    """Five printed lines: uint8 (640, 960, 3) RGB."""
    page = np.full((640, 960, 3), 248, np.uint8)
    for row, line in enumerate(_TEXT):
        _write(page, line, (60, 110 + 105 * row), 1.6 if row == 0 else 1.2)
    return page


def sample_line() -> NDArray[np.uint8]:
    """One printed line: uint8 (48, 640, 3) RGB."""
    line = np.full((48, 640, 3), 248, np.uint8)
    _write(line, _TEXT[1], (10, 34), 0.9)
    return line


def _write(image: NDArray[np.uint8], text: str, place: tuple[int, int], size: float) -> None:
    cv2.putText(image, text, place, cv2.FONT_HERSHEY_COMPLEX, size, (30, 30, 35), 2, cv2.LINE_AA)
