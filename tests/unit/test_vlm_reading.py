"""Facts of the whole road on text whose truth is known: a small trained model of the architecture reads drawn lines.

The model and the typefaces it learned (DejaVu) are not part of the project; without them these tests are skipped.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from rapidfuzz.distance import Levenshtein

from docvino.bundle import VLM_PARTS
from docvino.codec.prompt import Tokenizer
from docvino.convert.vlm import convert_vlm
from docvino.device import compile_part
from docvino.document import Task
from docvino.settings import RuntimeConfig, WeightPrecision
from docvino.stateful import StatefulReader
from vlm_models import READING_MODEL, reading_folder

FONTS = ("DejaVuSans.ttf", "DejaVuSerif.ttf", "DejaVuSansMono.ttf")
WORDS = (
    *("archive", "number", "paper", "slip", "every", "box", "enters", "the", "reading", "room", "clerk", "writes"),
    *("both", "lamp", "minutes", "warm", "colours", "drift", "batch", "ends", "grey", "card", "later", "correct"),
    *("tint", "yellow", "in", "2019", "pages", "per", "working", "day", "300", "dots", "inch"),
)
LINE_WIDTH_PX, LINE_HEIGHT_PX = 448, 28


@cache
def have_fonts() -> bool:
    try:
        for name in FONTS:
            ImageFont.truetype(name, 18)
    except OSError:
        return False
    return True


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not READING_MODEL.is_dir(), reason=f"needs {READING_MODEL}"),
    pytest.mark.skipif(not have_fonts(), reason="needs the DejaVu typefaces"),
]

Open = Callable[[WeightPrecision], StatefulReader]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Open:
    folder = reading_folder(tmp_path_factory.mktemp("reading") / "model")
    data = tmp_path_factory.mktemp("bundles")

    @cache
    def at(precision: WeightPrecision) -> StatefulReader:
        bundle = convert_vlm(folder, data / f"reading-{precision}", precision).bundle
        runtime = RuntimeConfig(model_cache=False)
        vision, embed, decoder = (compile_part(bundle.part(part), part, runtime) for part in VLM_PARTS)
        return StatefulReader(vision, embed, decoder, Tokenizer.open(bundle.tokenizer), bundle.facts)

    return at


def two_lines(seed: int) -> tuple[NDArray[np.uint8], str]:
    """Two lines of words as the model learned them: uint8 (56, 448, 3), and what they say."""
    dice = random.Random(seed)
    picture = Image.new("L", (LINE_WIDTH_PX, 2 * LINE_HEIGHT_PX), dice.randint(220, 255))
    pen, font = ImageDraw.Draw(picture), ImageFont.truetype(dice.choice(FONTS), dice.randint(17, 20))
    lines = []
    for row in range(2):
        words = [dice.choice(WORDS)]
        # The model has not seen lines of more than 46 characters.
        while font.getlength(" ".join(words)) < LINE_WIDTH_PX - 110 and len(" ".join(words)) < 32:
            words.append(dice.choice(WORDS))
        lines.append(" ".join(words))
        pen.text((4, row * LINE_HEIGHT_PX + 4), lines[-1], fill=20, font=font)
    return np.repeat(np.asarray(picture)[..., None], 3, axis=2), "\n".join(lines)


def small_table() -> tuple[NDArray[np.uint8], str]:
    picture = Image.new("L", (448, 112), 245)
    pen, font = ImageDraw.Draw(picture), ImageFont.truetype(FONTS[0], 22)
    cells = (("paper", "2019"), ("lamp", "300"))
    for row, texts in enumerate(cells):
        for column, text in enumerate(texts):
            left, top = 5 + column * 219, 5 + row * 51
            pen.rectangle((left, top, left + 219, top + 51), outline=20)
            pen.text((left + 5, top + 12), text, fill=20, font=font)
    said = "".join("".join(f"<fcel>{text}" for text in texts) + "<nl>" for texts in cells)
    return np.repeat(np.asarray(picture)[..., None], 3, axis=2), said


def error_rate(reader: StatefulReader, crops: list[tuple[NDArray[np.uint8], str]], task: Task) -> float:
    wrong = total = 0
    for pixels, truth in crops:
        answer = reader.read(pixels, task, 160)
        assert answer.finish == "stop"
        wrong += Levenshtein.distance(answer.text, truth)
        total += len(truth)
    return wrong / total


@pytest.mark.parametrize(("precision", "limit"), [("fp32", 0.02), ("fp16", 0.02), ("int8", 0.025), ("int4", 0.03)])
def test_drawn_lines_are_read_at_every_precision(opened: Open, precision: WeightPrecision, limit: float) -> None:
    assert error_rate(opened(precision), [two_lines(seed) for seed in range(8)], "ocr") <= limit


def test_a_drawn_table_is_read_with_its_tags(opened: Open) -> None:
    pixels, truth = small_table()
    assert opened("fp32").read(pixels, "table", 80).text == truth


def test_red_for_blue_on_a_grey_page_is_no_difference_but_rows_for_columns_are(opened: Open) -> None:
    pixels, truth = two_lines(3)
    assert opened("fp32").read(pixels[..., ::-1], "ocr", 160).text == truth
    assert opened("fp32").read(np.ascontiguousarray(pixels.transpose(1, 0, 2)), "ocr", 160).text != truth
