"""Draws crops whose text is known: lines and paragraphs, tables, formulas, spotting, seals; with damage and colour.

A crop is drawn in two steps. `Painter` makes masks of ink (how much of it lies on each pixel) at the size that a crop
has on a page; `paint` gives them colours, light and noise. Training resizes masks as docvino resizes crops and paints
whole batches on the GPU (`batches.paint_batch`), everything else paints one crop here.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont, features

import texts
from assets import LATIN, MICRO_HEI, NOTO
from docvino.document import Task
from texts import Script, Texts
from tokens import FUNCTIONS, GREEK

Mask = NDArray[np.uint8]
Colour = tuple[float, float, float]
Box = tuple[float, float, float, float]  # left, top, right, bottom, px

AILERON = "Aileron"  # inside Pillow
MIN_FONT_PX: dict[Script, int] = {"en": 9, "zh": 12}  # below that Chinese characters are blots
MAX_FONT_PX = 64
_FORMULAS_KEPT = 1500  # rasters a painter keeps to draw again at other sizes and places
_FORMULA_NEW = 0.1  # share of formulas that are typeset anew once there is a stock
_FORMULA_LENGTH = 64


@dataclass(frozen=True, eq=False)
class Drawing:
    """Ink of a crop, uint8 (h, w), 255 = all ink; of a red stamp over or under it, if any; and what is to be read."""

    task: Task
    text: str
    ink: Mask
    stamp: Mask | None = None


@dataclass(frozen=True)
class Look:
    """Colours 0..255 RGB, light falling off by `shade` grey levels across, noise in grey levels (its deviation)."""

    paper: Colour
    ink: Colour
    stamp: Colour
    shade: float
    noise: float


def choose_look(dice: random.Random, stamped: bool) -> Look:
    """Dark ink on light, slightly warm paper; the other way round one time in twelve, but never with a stamp.

    Ink on stamped paper is black to blue and the stamp red, so that which is which shows in the colours alone.
    """
    light = dice.uniform(185, 255)
    warmth = dice.uniform(-4, 14) if dice.random() < 0.5 else 0.0
    paper = (light, light - warmth * 0.4, light - warmth)
    shade = dice.uniform(-40, 40) if dice.random() < 0.2 else 0.0
    noise = dice.uniform(1, 11) if dice.random() < 0.35 else 0.0
    dark = dice.uniform(0, 90)
    if stamped:
        blue = dice.uniform(0, 130)
        ink = (dark * 0.6, dark * 0.6 + blue * 0.25, dark * 0.6 + blue)
        red = (dice.uniform(170, 235), dice.uniform(20, 90), dice.uniform(20, 80))
        return Look(paper, ink, red, shade, noise)
    ink = (dark, dark, dark)
    if dice.random() < 0.25:
        ink = (dice.uniform(0, 120), dice.uniform(0, 100), dice.uniform(0, 140))
    if dice.random() < 1 / 12:
        paper, ink = ink, paper
    return Look(paper, ink, ink, shade, noise)


def paint(drawing: Drawing, dice: random.Random) -> NDArray[np.uint8]:
    """The crop as a scanner gives it: uint8 (h, w, 3) RGB. `batches.paint_batch` does the same to a batch."""
    look = choose_look(dice, drawing.stamp is not None)
    height, width = drawing.ink.shape
    picture = np.broadcast_to(np.asarray(look.paper, np.float32), (height, width, 3))
    if drawing.stamp is not None:
        covered = drawing.stamp[..., None].astype(np.float32) / 255
        picture = picture * (1 - covered * (1 - np.asarray(look.stamp, np.float32) / 255))
    covered = drawing.ink[..., None].astype(np.float32) / 255
    picture = picture + covered * (np.asarray(look.ink, np.float32) - picture)
    picture = picture + look.shade * np.linspace(-0.5, 0.5, width, dtype=np.float32)[None, :, None]
    if look.noise:
        picture = picture + np.random.default_rng(dice.getrandbits(32)).normal(0, look.noise, picture.shape)
    return np.clip(np.round(picture), 0, 255).astype(np.uint8)


class Painter:
    """Draws with the typefaces in `assets` (see assets.py). `damage` is the share of crops that are not clean."""

    def __init__(
        self, assets: Path, words: Texts, *, damage: float = 0.4, extra: dict[Script, tuple[Path, ...]] | None = None
    ):
        """`extra` replaces the typefaces of a script, for crops in a typeface that nano never saw."""
        self._files = {path.stem: path for path in sorted((assets / "fonts").iterdir())}
        self._texts, self._damage = words, damage
        latin = (*LATIN, AILERON, *NOTO, MICRO_HEI)
        self._faces: dict[Script, tuple[str, ...]] = {"en": latin, "zh": (*NOTO, MICRO_HEI)}
        for script, paths in (extra or {}).items():
            self._files |= {path.stem: path for path in paths}
            self._faces[script] = tuple(path.stem for path in paths)
        self._fonts: dict[tuple[str, int, bool], ImageFont.FreeTypeFont] = {}
        self._known: dict[str, frozenset[str]] = {}
        self._formulas: list[tuple[str, Mask]] = []
        self._raqm = features.check("raqm")

    # ---- tasks; each draws `height` x `width` px

    def ocr(
        self,
        dice: random.Random,
        height: int,
        width: int,
        *,
        lines: int = 1,
        limit: int = 80,
        stamped: bool = False,
        scripts: tuple[Script, ...] = texts.SCRIPTS,
    ) -> Drawing:
        """`lines` lines that fill the crop, at most `limit` characters each; a stamp with other text is not read."""
        chance: Script = "zh" if dice.random() < 0.42 else "en"
        script = chance if chance in scripts else scripts[0]
        picture = Image.new("L", (width, height))
        if not stamped and dice.random() < 0.006:
            return Drawing("ocr", "", self._damaged(dice, picture))
        said = self._paragraph(dice, picture, script, lines, limit)
        stamp = None
        if stamped:
            under = Image.new("L", (width, height))
            self._stamp(dice, under)
            stamp = np.asarray(under)
        return Drawing("ocr", said, self._damaged(dice, picture, 0.65 * height / lines), stamp)

    def seal(self, dice: random.Random, height: int, width: int) -> Drawing:
        """A stamp with one or two lines, read, over or under a line of ink, not read."""
        picture = Image.new("L", (width, height))
        said = self._stamp(dice, picture)
        ink = Image.new("L", (width, height))
        if dice.random() < 0.7:
            self._paragraph(dice, ink, "zh" if dice.random() < 0.5 else "en", dice.randint(1, 3), 60)
        return Drawing("seal", said, self._damaged(dice, ink), self._damaged(dice, picture))

    def table(
        self, dice: random.Random, height: int, width: int, rows: int, columns: int, *, spans: bool = True
    ) -> Drawing:
        """A grid of `rows` x `columns` with cells that span others, as OTSL."""
        picture = Image.new("L", (width, height))
        pen = ImageDraw.Draw(picture)
        margin = dice.randint(2, 6)
        across = [margin, *(_jittered(dice, margin, width - margin, columns)), width - margin]
        down = [margin, *(_jittered(dice, margin, height - margin, rows, 0.05)), height - margin]
        ruled = dice.random() < 0.75  # else three lines, as in a journal, where nothing would show a span
        single = [(row, column, row, column) for row in range(rows) for column in range(columns)]
        cells, tags = _spans(dice, rows, columns) if spans and ruled else (single, {})
        line_px = 1 if dice.random() < 0.75 else 2
        size = max(12, int(min(30, (down[-1] - down[0]) / rows * dice.uniform(0.38, 0.66))))
        face, centred = dice.choice(self._faces["en"]), dice.random() < 0.55
        said = dict(tags)
        for top, left, bottom, right in cells:
            box = (across[left], down[top], across[right + 1], down[bottom + 1])
            text = self._texts.cell(dice)
            font = self._font(face if text.isascii() else dice.choice(self._faces["zh"]), size)
            text = _fitted(font, text, box[2] - box[0] - 6)
            if ruled:
                pen.rectangle(box, outline=255, width=line_px)
            if text:
                x = (box[0] + box[2] - font.getlength(text)) / 2 if centred else box[0] + 4
                pen.text((x, (box[1] + box[3]) / 2 + 0.36 * size), text, fill=255, font=font, anchor="ls")
            said[top, left] = f"<fcel>{text}" if text else "<ecel>"
        if not ruled:
            for y in (down[0], down[1], down[-1]):
                pen.line((across[0], y, across[-1], y), fill=255, width=line_px)
        otsl = "".join("".join(said[row, column] for column in range(columns)) + "<nl>" for row in range(rows))
        return Drawing("table", otsl, self._damaged(dice, picture, size))

    def formula(self, dice: random.Random, height: int, width: int, *, small: bool = False) -> Drawing:
        """A formula set by matplotlib, as LaTeX; `small`: two atoms only."""
        while True:
            text, glyphs = self._typeset(dice, small)
            room = min((width - 4) / glyphs.shape[1], (height - 4) / glyphs.shape[0])
            scale = min(room * dice.uniform(0.75, 1.0), dice.uniform(0.8, 1.7))
            if scale >= 0.45:
                break
        size = (max(1, round(glyphs.shape[1] * scale)), max(1, round(glyphs.shape[0] * scale)))
        formula = Image.fromarray(glyphs).resize(size, Image.Resampling.BICUBIC)
        picture = Image.new("L", (width, height))
        picture.paste(
            formula,
            (dice.randint(2, max(2, min(14, width - size[0] - 2))), dice.randint(1, max(1, height - size[1] - 1))),
        )
        return Drawing("formula", text, self._damaged(dice, picture))

    def spotting(self, dice: random.Random, height: int, width: int, pieces: int) -> Drawing:
        """Up to `pieces` short texts anywhere, each followed by eight locations: its corners, clockwise from top left.

        Source: the form that the released models give (x, y in thousandths of the crop, nothing between texts).
        """
        picture = Image.new("L", (width, height))
        pen = ImageDraw.Draw(picture)
        taken: list[Box] = []
        found: list[tuple[Box, str]] = []
        for _ in range(pieces):
            script: Script = "zh" if dice.random() < 0.4 else "en"
            size = dice.randint(14, max(15, min(40, height // 5)))
            font = self._font(dice.choice(self._faces[script]), size)
            text = _fitted(
                font, self._texts.line(dice, script, dice.randint(2, 9 if script == "zh" else 18)), width - 12
            )
            text = self._covered(font, text)
            if not text:
                continue
            for _ in range(12):
                x, y = (
                    dice.uniform(3, max(3, width - font.getlength(text) - 6)),
                    dice.uniform(size, height - size * 0.4),
                )
                box = pen.textbbox((x, y), text, font=font, anchor="ls")
                if (
                    box[0] >= 0
                    and box[1] >= 0
                    and box[2] < width
                    and box[3] < height
                    and not any(_near(box, b) for b in taken)
                ):
                    pen.text((x, y), text, fill=255, font=font, anchor="ls")
                    taken.append(box)
                    found.append((box, text + _located(box, height, width)))
                    break
        said = "".join(text for _, text in _in_rows(found))
        return Drawing("spotting", said, self._damaged(dice, picture))

    # ---- parts

    def _paragraph(self, dice: random.Random, picture: Image.Image, script: Script, lines: int, limit: int) -> str:
        width, height = picture.size
        pitch = height / lines
        size = min(MAX_FONT_PX, max(MIN_FONT_PX[script], int(pitch * dice.uniform(0.55, 0.82))))
        face = dice.choice(self._faces[script])
        font = self._font(face, size, self._raqm and dice.random() < 0.3)
        left, side = dice.randint(0, 6), dice.random()
        thick = 1 if size >= 28 and dice.random() < 0.06 else 0
        pen = ImageDraw.Draw(picture)
        room = width - left - dice.randint(1, 5)
        said = []
        for row in range(lines):
            indent = 2 * size if script == "zh" and lines > 1 and not row and side < 0.2 else 0
            share = dice.uniform(0.1, 1) if lines > 1 and row == lines - 1 else 1.0
            length = max(1, min(limit, int(share * room / size * (1.1 if script == "zh" else 2.6)) + 1))
            text = self._covered(font, self._texts.line(dice, script, length))
            text = _fitted(font, text, room - indent) or _fitted(font, dice.choice("ilt1"), room)
            x = float(left + indent)
            if side > 0.9:
                x = left + (room - font.getlength(text)) * (0.5 if side < 0.97 else 1)
            baseline = pitch * (row + 0.5) + 0.36 * size + dice.uniform(-0.04, 0.04) * size
            pen.text((x, baseline), text, fill=255, font=font, anchor="ls", stroke_width=thick)
            said.append(text)
        return "\n".join(said)

    def _stamp(self, dice: random.Random, picture: Image.Image) -> str:
        """A framed stamp with one or two lines somewhere on `picture`; what it says."""
        width, height = picture.size
        pen = ImageDraw.Draw(picture)
        tall, wide = int(height * dice.uniform(0.55, 0.96)), int(width * dice.uniform(0.4, 0.96))
        x, y = dice.randint(0, width - wide), dice.randint(0, height - tall)
        lines = 2 if tall > 70 and dice.random() < 0.5 else 1
        frame = max(1, round(tall * dice.uniform(0.02, 0.06)))
        draw_frame: Callable[..., None] = pen.ellipse if dice.random() < 0.35 else pen.rectangle
        draw_frame((x, y, x + wide - 1, y + tall - 1), outline=255, width=frame)
        said = []
        pitch = (tall - 2 * frame) / lines * (0.72 if draw_frame == pen.ellipse else 0.92)
        script: Script = "zh" if dice.random() < 0.65 else "en"
        size = min(MAX_FONT_PX, max(MIN_FONT_PX[script], int(pitch * dice.uniform(0.55, 0.8))))
        font = self._font(dice.choice(self._faces[script]), size)
        room = (wide - 2 * frame) * (0.72 if draw_frame == pen.ellipse else 0.9)
        for row in range(lines):
            text = self._texts.line(dice, script, dice.randint(2, 10 if script == "zh" else 20))
            text = _fitted(font, self._covered(font, text), room) or "1"
            middle = y + tall / 2 + pitch * (row - (lines - 1) / 2)
            pen.text((x + wide / 2, middle + 0.36 * size), text, fill=255, font=font, anchor="ms")
            said.append(text)
        return "\n".join(said)

    def _typeset(self, dice: random.Random, small: bool) -> tuple[str, Mask]:
        """LaTeX and its raster, uint8 with 255 = ink, at 100 dpi; mostly out of a stock, as setting takes 30 ms."""
        if not small and len(self._formulas) >= _FORMULAS_KEPT * 0.05 and dice.random() > _FORMULA_NEW:
            return dice.choice(self._formulas)
        while True:
            text = _small_formula(dice) if small else _formula(dice)
            if len(text) > _FORMULA_LENGTH:
                continue
            try:
                image = self._mathtext.parse(f"${text}$", dpi=100, prop=dice.choice(self._math_fonts)).image
            except ValueError:  # a power of a power without brackets
                continue
            glyphs = np.asarray(image, dtype=np.uint8)
            if glyphs.size and glyphs.shape[1] < 640:
                break
        if not small:
            if len(self._formulas) >= _FORMULAS_KEPT:
                self._formulas[dice.randrange(_FORMULAS_KEPT)] = (text, glyphs)
            else:
                self._formulas.append((text, glyphs))
        return text, glyphs

    @cached_property
    def _mathtext(self):
        from matplotlib.mathtext import MathTextParser

        return MathTextParser("agg")

    @cached_property
    def _math_fonts(self) -> list[object]:
        from matplotlib.font_manager import FontProperties

        faces = ("dejavusans", "dejavuserif", "cm", "stix", "stixsans")
        return [FontProperties(size=size, math_fontfamily=face) for size in (13, 16, 20) for face in faces]

    def _damaged(self, dice: random.Random, picture: Image.Image, glyph_px: float = 20) -> Mask:
        """Blurred, of low resolution, tilted, thresholded or compressed, or as it is. Small glyphs stay readable."""
        width, height = picture.size
        if dice.random() >= self._damage:
            return np.asarray(picture)
        kind = dice.random()
        if kind < 0.35:
            picture = picture.filter(ImageFilter.GaussianBlur(dice.uniform(0.3, 1.0)))
        elif kind < 0.62:
            scale = dice.uniform(0.5 if glyph_px >= 18 else 0.75, 0.9)
            small = picture.resize((max(8, int(width * scale)), max(8, int(height * scale))), Image.Resampling.BILINEAR)
            picture = small.resize((width, height), Image.Resampling.BICUBIC)
        elif kind < 0.78:
            picture = picture.rotate(dice.uniform(-0.9, 0.9) * min(1.0, 8 * height / width), Image.Resampling.BILINEAR)
        elif kind < 0.9 and glyph_px >= 18:
            soft = picture.filter(ImageFilter.GaussianBlur(0.5))
            edge = dice.randint(80, 170)
            picture = soft.point([0] * edge + [255] * (256 - edge))
        else:
            file = io.BytesIO()
            picture.save(file, "JPEG", quality=dice.randint(25, 70))
            picture = Image.open(file)
        return np.asarray(picture)

    def _font(self, face: str, size: int, shaped: bool = False) -> ImageFont.FreeTypeFont:
        """`shaped`: with ligatures and kerning as a text engine sets them, where Pillow has one."""
        size = size if size < 24 else size // 2 * 2
        key = (face, size, shaped)
        if key not in self._fonts:
            if face == AILERON:
                found = ImageFont.load_default(size)
                assert isinstance(found, ImageFont.FreeTypeFont), "Pillow without FreeType"
                self._fonts[key] = found
            else:
                engine = ImageFont.Layout.RAQM if shaped else ImageFont.Layout.BASIC
                self._fonts[key] = ImageFont.truetype(str(self._files[face]), size, layout_engine=engine)
        return self._fonts[key]

    def _covered(self, font: ImageFont.FreeTypeFont, text: str) -> str:
        """The text without signs that the typeface lacks."""
        name = "/".join(map(str, font.getname()))
        if name not in self._known:
            box = bytes(font.getmask("\U0010ffff"))
            alphabet = (*texts.ASCII, *texts.SIGNS, *texts.characters())
            self._known[name] = frozenset(c for c in alphabet if c == " " or bytes(font.getmask(c)) != box)
        known = self._known[name]
        return "".join(c for c in text if c in known).strip()


def _fitted(font: ImageFont.FreeTypeFont, text: str, width: float) -> str:
    """The longest beginning of `text` that is at most `width` px wide."""
    if font.getlength(text) <= width:
        return text.strip()
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if font.getlength(text[:middle]) <= width else (low, middle - 1)
    return text[:low].strip()


def _jittered(dice: random.Random, begin: int, end: int, parts: int, jitter: float = 0.14) -> list[int]:
    return [int(begin + (end - begin) * (part + dice.uniform(-jitter, jitter)) / parts) for part in range(1, parts)]


def _spans(
    dice: random.Random, rows: int, columns: int
) -> tuple[list[tuple[int, int, int, int]], dict[tuple[int, int], str]]:
    """Cells (top, left, bottom, right, inclusive), and the tags of the places that a cell above or left covers."""
    owner: dict[tuple[int, int], str] = {}
    cells = []
    for _ in range(dice.choice((0, 0, 1, 1, 2, 3))):
        top, left = dice.randrange(rows), dice.randrange(columns)
        bottom = min(rows - 1, top + dice.choice((0, 0, 1, 1, 2)))
        right = min(columns - 1, left + dice.choice((0, 1, 1, 2)))
        places = [(r, c) for r in range(top, bottom + 1) for c in range(left, right + 1)]
        if len(places) == 1 or any(place in owner for place in places):
            continue
        cells.append((top, left, bottom, right))
        for r, c in places:
            owner[r, c] = "" if (r, c) == (top, left) else "<lcel>" if r == top else "<ucel>" if c == left else "<xcel>"
    cells += [(r, c, r, c) for r in range(rows) for c in range(columns) if (r, c) not in owner]
    return sorted(cells), {place: tag for place, tag in owner.items() if tag}


def _near(one: tuple[float, ...], other: tuple[float, ...], gap: float = 5) -> bool:
    return one[0] < other[2] + gap and other[0] < one[2] + gap and one[1] < other[3] + gap and other[1] < one[3] + gap


def _in_rows(pieces: list[tuple[Box, str]]) -> list[tuple[Box, str]]:
    """In reading order, left to right in rows: the highest piece left and all whose middle is above its bottom."""
    left, ordered = sorted(pieces, key=lambda piece: piece[0][1]), []
    while left:
        bottom = left[0][0][3]
        row = [piece for piece in left if piece[0][1] + piece[0][3] < 2 * bottom]
        ordered += sorted(row, key=lambda piece: piece[0][0])
        left = [piece for piece in left if piece not in row]
    return ordered


def _located(box: Box, height: int, width: int) -> str:
    x1, x2 = (round(1000 * x / width) for x in (box[0], box[2]))
    y1, y2 = (round(1000 * y / height) for y in (box[1], box[3]))
    return "".join(f"<|LOC_{value}|>" for value in (x1, y1, x2, y1, x2, y2, x1, y2))


def _atom(dice: random.Random) -> str:
    kind = dice.random()
    if kind < 0.55:
        return dice.choice("abcdefghijkmnpqrstuvwxyzABCDEFGHKLMNPQRSTXYZ")
    return str(dice.randint(0, 99)) if kind < 0.8 else f"\\{dice.choice(GREEK)}"


def _small_formula(dice: random.Random) -> str:
    return _atom(dice) + dice.choice("+-=") + _atom(dice)


def _formula(dice: random.Random) -> str:
    text = dice.choice(("", "", f"{_atom(dice)}=")) + _expression(dice)
    sign = dice.choice(("", "", "+", "-", "="))
    return text + sign + _expression(dice, 1) if sign else text


def _expression(dice: random.Random, depth: int = 0) -> str:
    kind = dice.random()
    if depth >= 2 or kind < 0.32:
        return _atom(dice)
    if kind < 0.44:
        return _expression(dice, depth + 1) + "^{" + _atom(dice) + "}"
    if kind < 0.54:
        return _atom(dice) + "_{" + _atom(dice) + "}"
    if kind < 0.68:
        return "\\frac{" + _expression(dice, depth + 1) + "}{" + _expression(dice, depth + 1) + "}"
    if kind < 0.75:
        return "\\sqrt{" + _expression(dice, depth + 1) + "}"
    if kind < 0.80:
        return "(" + _expression(dice, depth + 1) + dice.choice("+-") + _expression(dice, depth + 1) + ")"
    if kind < 0.85:
        return "\\" + dice.choice(FUNCTIONS) + "(" + _atom(dice) + ")"
    if kind < 0.90:
        end = dice.choice(("n", "N", "\\infty"))
        return "\\sum_{" + dice.choice("ijkn") + "=1}^{" + end + "}" + _expression(dice, depth + 1)
    if kind < 0.94:
        return "\\int_{" + dice.choice("0ab") + "}^{" + dice.choice("1bx") + "}" + _expression(dice, depth + 1)
    return _expression(dice, depth + 1) + dice.choice("+-=") + _expression(dice, depth + 1)
