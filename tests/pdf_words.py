"""The words of a PDF and where they are, as PDFium and as Poppler find them."""

from __future__ import annotations

import ctypes
import html
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pypdfium2
from pypdfium2 import raw as pdfium_c

from docvino.document import Box

NEAR_PT = 3.0


@dataclass(frozen=True)
class Word:
    """A word and its box in points on the page as it is shown, from the top left corner."""

    text: str
    box: Box


def words_of(data: bytes, index: int = 0) -> list[Word]:
    """The words of a page as PDFium finds them."""
    pdf = pypdfium2.PdfDocument(data)
    shown = pdf[index]
    text = shown.get_textpage()
    letters = text.get_text_range()
    found = []
    for word in re.finditer(r"\S+", letters):
        corners = []
        for place in range(*word.span()):
            left, bottom, right, top = text.get_charbox(place, loose=True)
            corners += [_shown(shown, left, top), _shown(shown, right, bottom)]
        xs, ys = zip(*corners, strict=True)
        found.append(Word(word[0], (min(xs), min(ys), max(xs), max(ys))))
    text.close()
    shown.close()
    pdf.close()
    return found


def _shown(shown: Any, x: float, y: float) -> tuple[float, float]:
    """A point of the page's own coordinates as it is shown: turned, from the top left, in hundredths of a point."""
    width, height = (round(100 * side) for side in shown.get_size())
    across, down = ctypes.c_int(), ctypes.c_int()
    pdfium_c.FPDF_PageToDevice(shown, 0, 0, width, height, 0, x, y, across, down)
    return across.value / 100, down.value / 100


def poppler_words(file: Path) -> list[list[Word]]:
    """The words of each page as pdftotext finds them."""
    done = subprocess.run(
        ["pdftotext", "-bbox", file, "-"], capture_output=True, text=True, encoding="utf-8", check=True
    )
    assert done.stderr == ""
    pattern = r'xMin="([\d.-]+)" yMin="([\d.-]+)" xMax="([\d.-]+)" yMax="([\d.-]+)">(.*?)</word>'
    return [
        [Word(html.unescape(text), cast(Box, tuple(map(float, box)))) for *box, text in re.findall(pattern, part)]
        for part in done.stdout.split("<page ")[1:]
    ]


def near(one: Box, two: Box) -> bool:
    return all(abs(a - b) <= NEAR_PT for a, b in zip(one, two, strict=True))


def assert_same_places(found: Sequence[Word], truth: Sequence[Word]) -> None:
    assert [word.text for word in found] == [word.text for word in truth]
    far = [(one, two) for one, two in zip(found, truth, strict=True) if not near(one.box, two.box)]
    assert far == []
