"""Text lines of many widths and in batches of many sizes: what other programs read wrongly on GPUs.

Source: openvinotoolkit/openvino#29367, #28897: right at first, garbled from the second width on; other texts in other
batches.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from docvino.bundle import Bundle
from docvino.codec import recognition
from docvino.device import Model
from docvino.specs.model import ModelSpec, RecognitionFacts

WIDTHS = 30
BATCHES = (1, 2, 4, 8)
_TEXT = "The archive has 1,284 numbered boxes; each enters the reading room once a day and leaves it on paper 7"


def draw(count: int = WIDTHS) -> list[NDArray[np.uint8]]:
    """Lines of black print, each longer than the one before, uint8 (48, W, 3)."""
    font, words = ImageFont.load_default(30), _TEXT.split()
    lines = []
    for number in range(count):
        text = " ".join(words[place % len(words)] for place in range(number, number + 1 + number // 2))
        picture = Image.new("RGB", (round(font.getlength(text)) + 24 + 3 * number, 48), "white")
        ImageDraw.Draw(picture).text((12, 6), text, font=font, fill="black")
        lines.append(np.asarray(picture))
    return lines


def read(
    model: Model, spec: ModelSpec[RecognitionFacts], bundle: Bundle, lines: Sequence[NDArray[np.uint8]], batch: int
) -> list[str]:
    """The text of each line, `batch` of them in one inference, the inferences in flight as in reading."""
    alphabet = recognition.alphabet(bundle.characters())
    groups = [lines[start : start + batch] for start in range(0, len(lines), batch)]
    step = model.profile.steps.line_px
    inputs = ({spec.inputs[0].name: recognition.prepare(group, spec.facts, step)} for group in groups)
    return [
        text
        for outputs in model.run_all(inputs)
        for text, _ in recognition.decode(outputs[spec.outputs[0].name], alphabet)
    ]
