"""The pages that are measured where the user gives none: drawn, always the same, of four kinds.

Letters are those of the typeface that Pillow carries, so another Pillow may draw other pixels; then the sha256 of the
pages differs, and reports are not compared.
"""

from __future__ import annotations

import hashlib
import io
import random
from collections.abc import Iterable, Iterator

from PIL import Image, ImageDraw, ImageFont

from docvino.demo import draw_page

DRAWN = "drawn by docvino: two columns, a letter, a table, small print"
_INK, _PAPER = (25, 25, 35), (252, 251, 247)
_TEXT = (
    "the page is read line by line and every word keeps its place while columns are put in order before tables and "
    "figures find their caption below or above total amount number of pieces price date of delivery invoice account "
    "first second third between north south engine water paper light morning evening report figure section"
)
_WORDS = _TEXT.split()


def drawn_pages() -> list[bytes]:
    """The four pages as PNG files."""
    return [_png(draw_page().image), _png(_letter(1)), _png(_table(2)), _png(_small_print(3))]


def one_page() -> bytes:
    """The first of them, for a quick run."""
    return _png(draw_page().image)


def endless_pages() -> Iterator[bytes]:
    """Pages of ever other sizes and lengths, for a long run."""
    seed = 0
    while True:
        dice = random.Random(f"size {seed}")
        yield _png(_text(seed, (dice.randint(500, 1300), dice.randint(500, 1300)), dice.randint(22, 40)))
        seed += 1


def square_page(side_px: int = 960, lines: int = 20) -> bytes:
    """A page whose text detection needs no other size: twenty lines of like length."""
    image, draw, font = _sheet((side_px, side_px), 26)
    dice = random.Random(960)
    step = (side_px - 80) // lines
    for row in range(lines):
        draw.text((40, 40 + row * step), _line(dice, 52), font=font, fill=_INK)
    return _png(image)


def line_page() -> bytes:
    """A page of one line: what the first text of a start is read from."""
    image, draw, font = _sheet((900, 120), 30)
    draw.text((40, 40), _line(random.Random(1), 48), font=font, fill=_INK)
    return _png(image)


def sha256_of(pages: Iterable[bytes]) -> str:
    """Of the contents of all pages, one after the other."""
    digest = hashlib.sha256()
    for page in pages:
        digest.update(hashlib.sha256(page).digest())
    return digest.hexdigest()


def _letter(seed: int) -> Image.Image:
    return _text(seed, (1240, 1754), 26)


def _text(seed: int, size: tuple[int, int], height: int) -> Image.Image:
    image, draw, font = _sheet(size, height)
    dice = random.Random(seed)
    letters = int((size[0] - 140) / (0.5 * height))
    for y in range(80, size[1] - 80, int(1.7 * height)):
        if dice.random() < 0.12:  # an empty line between paragraphs
            continue
        draw.text((70, y), _line(dice, letters), font=font, fill=_INK)
    return image


def _small_print(seed: int) -> Image.Image:
    image, draw, font = _sheet((1240, 1000), 18)
    dice = random.Random(seed)
    for x in (60, 660):
        for y in range(70, 930, 30):
            draw.text((x, y), _line(dice, 54), font=font, fill=_INK)
    return image


def _table(seed: int) -> Image.Image:
    image, draw, font = _sheet((1240, 900), 24)
    dice = random.Random(seed)
    draw.text((70, 60), _line(dice, 60), font=font, fill=_INK)
    left, top, wide, high, rows, columns = 70, 140, 220, 56, 10, 5
    for row in range(rows + 1):
        draw.line([(left, top + row * high), (left + columns * wide, top + row * high)], fill=_INK, width=2)
    for column in range(columns + 1):
        draw.line([(left + column * wide, top), (left + column * wide, top + rows * high)], fill=_INK, width=2)
    for row in range(rows):
        for column in range(columns):
            said = f"{dice.randint(1, 9999):,}" if column and row else dice.choice(_WORDS)
            draw.text((left + column * wide + 12, top + row * high + 14), said, font=font, fill=_INK)
    draw.text((70, 760), _line(dice, 80), font=font, fill=_INK)
    return image


def _line(dice: random.Random, letters: int) -> str:
    words = [dice.choice(_WORDS)]
    while len(" ".join(words)) < letters - 9:
        words.append(dice.choice(_WORDS))
    return " ".join(words)


def _sheet(
    size: tuple[int, int], height: int
) -> tuple[Image.Image, ImageDraw.ImageDraw, ImageFont.FreeTypeFont | ImageFont.ImageFont]:
    image = Image.new("RGB", size, _PAPER)
    return image, ImageDraw.Draw(image), ImageFont.load_default(height)


def _png(image: Image.Image) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()
