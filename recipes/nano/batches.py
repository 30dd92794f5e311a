"""Batches of drawn crops of one grid: what is drawn when (the curriculum), and how masks become a model's input."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor

from crops import Drawing, Painter, choose_look
from docvino.codec.prompt import Tokenizer
from docvino.codec.vlm import Grid, resize, smart_resize
from docvino.document import Task
from model import BUDGET
from texts import Texts

FACTOR_PX = 28
PATCHES = 56_000  # of a batch
MOST = 448  # crops of a batch
PADDING = -100  # in answers, behind the end token

# Bicubic resizing overshoots at edges. Painted crops have room for that above ink and below paper; so do masks here.
_LOW, _RANGE = 32, 191


@dataclass(frozen=True)
class Order:
    """What to draw: a task and the crop's size on the page, with what the task needs to know.

    lines    of a text; limit: characters of a line
    rows     and columns of a table, or pieces of a spotting crop in `rows`
    """

    task: Task
    height: int
    width: int
    lines: int = 1
    limit: int = 80
    rows: int = 0
    columns: int = 0
    stamped: bool = False
    easy: bool = False

    @property
    def group(self) -> str:
        """What scores are given for: the task, or "line", "paragraph" or "stamped" text."""
        if self.stamped:
            return "stamped"
        return self.task if self.task != "ocr" else "line" if self.lines == 1 else "paragraph"


@dataclass(frozen=True, eq=False)
class Batch:
    """group as of the order
    ink, stamp   uint8 (B, H, W), H and W multiples of 28; looks float32 (B, 11); answers int64 (B, T), padded"""

    task: Task
    group: str
    grid: Grid
    ink: Tensor
    stamp: Tensor | None
    looks: Tensor
    answers: Tensor

    def to(self, device: str) -> Batch:
        stamp = None if self.stamp is None else self.stamp.to(device, non_blocking=True)
        ink, looks, answers = (t.to(device, non_blocking=True) for t in (self.ink, self.looks, self.answers))
        return Batch(self.task, self.group, self.grid, ink, stamp, looks, answers)

    def tensors(self) -> list[Tensor]:
        return [tensor for tensor in (self.ink, self.stamp, self.looks, self.answers) if tensor is not None]


def order(dice: random.Random, progress: float) -> Order:
    """What a batch shows at `progress` 0..1 of the training.

    Single short lines, then longer and of all sizes, then several lines, then everything; without this order nothing is
    learned in the time given. Source: the project's feasibility run.
    """
    limit = 3 + int(77 * min(1.0, progress / 0.14))
    if progress < 0.06:
        return Order("ocr", dice.randint(27, 36), dice.randrange(180, 421, 20), limit=limit)
    kind = dice.random()
    if progress < 0.13:
        return _lines(dice, 1, limit)
    if progress < 0.2:
        if kind < 0.45:
            return _lines(dice, dice.choice((1, 1, 2)), limit)
        return _hard(dice, (kind - 0.45) / 0.55, easy=True)
    line, paragraph = (0.26, 0.27) if progress < 0.45 else (0.13, 0.40)
    if kind < line:
        return _lines(dice, 1, limit)
    if kind < line + paragraph:
        return _lines(dice, dice.choice((2, 2, 3, 3, 4, 5, 6, 7, 8, 10)), limit)
    return _hard(dice, (kind - 0.53) / 0.47, easy=progress < 0.28)


def _lines(dice: random.Random, lines: int, limit: int, stamped: bool = False) -> Order:
    size = 13 * (46 / 13) ** dice.random() if lines == 1 else 13 * (34 / 13) ** dice.random()
    letters = dice.uniform(4, 66) if lines == 1 else dice.uniform(16, 66)
    height = size * (dice.uniform(1.15, 1.6) if lines == 1 else lines * dice.uniform(1.2, 1.75))
    width = min(1200, max(40, letters * size * 0.52))
    return Order("ocr", round(height), round(width), lines=lines, limit=limit, stamped=stamped)


def _hard(dice: random.Random, kind: float, easy: bool) -> Order:
    """Tables, formulas, spotting, seals, text under stamps; `kind` 0..1 chooses."""
    if kind < 0.26:
        rows, columns = (2, 2) if easy else (dice.randint(2, 6), dice.randint(2, 5))
        height, width = rows * dice.uniform(24, 68) + 8, min(840, columns * dice.uniform(70, 200) + 8)
        return Order("table", round(height), round(width), rows=rows, columns=columns, easy=easy)
    if kind < 0.41:
        height, width = (52, 140) if easy else (dice.uniform(36, 104), dice.uniform(90, 400))
        return Order("formula", round(height), round(width), easy=easy)
    if kind < 0.64:
        height, width = (90, 200) if easy else (dice.uniform(100, 340), dice.uniform(160, 440))
        return Order("spotting", round(height), round(width), rows=1 if easy else dice.randint(1, 5))
    if kind < 0.83:
        return Order("seal", round(dice.uniform(50, 130)), round(dice.uniform(120, 330)))
    return _lines(dice, dice.choice((1, 2, 3)), 60, stamped=True)


def draw(painter: Painter, dice: random.Random, wanted: Order, height: int, width: int) -> Drawing:
    if wanted.task == "table":
        return painter.table(dice, height, width, wanted.rows, wanted.columns, spans=not wanted.easy)
    if wanted.task == "formula":
        return painter.formula(dice, height, width, small=wanted.easy)
    if wanted.task == "spotting":
        return painter.spotting(dice, height, width, wanted.rows)
    if wanted.task == "seal":
        return painter.seal(dice, height, width)
    return painter.ocr(dice, height, width, lines=wanted.lines, limit=wanted.limit, stamped=wanted.stamped)


def make_batch(
    painter: Painter, tokenizer: Tokenizer, dice: random.Random, wanted: Order, most: int = MOST, patches: int = PATCHES
) -> Batch:
    """Crops of about the size wanted that docvino would all resize to one size, resized."""
    rows, columns = smart_resize(wanted.height, wanted.width, BUDGET)
    grid = (rows // 14, columns // 14)
    count = min(most, max(1, patches // (grid[0] * grid[1])))
    end = tokenizer.encode("</s>")
    inks, stamps, looks, answers = [], [], [], []
    for _ in range(count):
        drawing = draw(painter, dice, wanted, *_size_near(dice, wanted, rows, columns))
        inks.append(_resized(drawing.ink, rows, columns))
        if drawing.stamp is not None:
            stamps.append(_resized(drawing.stamp, rows, columns))
        look = choose_look(dice, drawing.stamp is not None)
        looks.append((*look.paper, *look.ink, *look.stamp, look.shade, look.noise))
        answers.append(tokenizer.encode(drawing.text) + end)
    padded = np.full((count, max(map(len, answers))), PADDING, np.int64)
    for row, answer in zip(padded, answers, strict=True):
        row[: len(answer)] = answer
    return Batch(
        task=wanted.task,
        group=wanted.group,
        grid=grid,
        ink=torch.from_numpy(np.stack(inks)),
        stamp=torch.from_numpy(np.stack(stamps)) if stamps else None,
        looks=torch.tensor(looks, dtype=torch.float32),
        answers=torch.from_numpy(padded),
    )


def endless(
    assets: Path, words: list[str], tokenizer: Path, patches: int, seed: int, progress: object
) -> Iterator[Batch]:
    """Batches for ever; `progress.value` is looked at before each."""
    dice = random.Random(seed)
    painter, engine = Painter(assets, Texts(words)), Tokenizer.open(tokenizer)
    while True:
        yield make_batch(painter, engine, dice, order(dice, progress.value), patches=patches)  # type: ignore[attr-defined]


def repainted(batch: Batch) -> Batch:
    """The same crops in each other's colours and, but for spotting, a little smaller, elsewhere in the picture."""
    looks = batch.looks.roll(random.randrange(len(batch.looks)), 0)
    if batch.task == "spotting":  # the answer names places
        return replace(batch, looks=looks)
    size = torch.empty(len(looks), 2, device=looks.device).uniform_(0.88, 1.0)
    theta = torch.zeros(len(looks), 2, 3, device=looks.device)
    theta[:, (0, 1), (0, 1)] = 1 / size
    theta[:, :, 2] = (1 - size) / size * torch.empty_like(size).uniform_(-1, 1)
    grid = F.affine_grid(theta, [len(looks), 1, *batch.ink.shape[1:]], align_corners=False)

    def moved(mask: Tensor) -> Tensor:
        found = F.grid_sample(mask[:, None].float() - _LOW, grid, align_corners=False)
        return (found[:, 0] + _LOW).round().to(torch.uint8)

    return replace(batch, looks=looks, ink=moved(batch.ink), stamp=None if batch.stamp is None else moved(batch.stamp))


def paint_batch(batch: Batch, dtype: torch.dtype) -> Tensor:
    """Pictures (B, 3, H, W), normalised, of masks: `crops.paint` for a whole batch where the masks lie."""
    papers, inks, stamps, shades, noises = batch.looks.split((3, 3, 3, 1, 1), 1)
    width = batch.ink.shape[2]
    picture = papers[:, :, None, None].expand(-1, -1, *batch.ink.shape[1:])
    if batch.stamp is not None:
        picture = picture * (1 - _covered(batch.stamp) * (1 - stamps[:, :, None, None] / 255))
    picture = picture + _covered(batch.ink) * (inks[:, :, None, None] - picture)
    across = torch.linspace(-0.5, 0.5, width, device=picture.device)
    picture = picture + shades[:, :, None, None] * across
    picture = picture + noises[:, :, None, None] * torch.randn_like(picture)
    return ((picture.clamp(0, 255) - 127.5) / 127.5).to(dtype)


def _covered(mask: Tensor) -> Tensor:
    return (mask[:, None].float() - _LOW) / _RANGE


def _size_near(dice: random.Random, wanted: Order, rows: int, columns: int) -> tuple[int, int]:
    """Another size that is resized to the same."""
    for _ in range(6):
        height, width = (max(12, round(side * dice.uniform(0.9, 1.1))) for side in (wanted.height, wanted.width))
        if smart_resize(height, width, BUDGET) == (rows, columns):
            return height, width
    return wanted.height, wanted.width


def _resized(mask: NDArray[np.uint8], rows: int, columns: int) -> NDArray[np.uint8]:
    return resize((mask.astype(np.uint16) * _RANGE // 255 + _LOW).astype(np.uint8), rows, columns)
