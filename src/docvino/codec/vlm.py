"""PaddleOCR-VL: a crop as patches with positions, and the positions of a whole prompt. Pure, without OpenVINO.

Patches lie in merge-block order: the four patches of a 2 x 2 block side by side (top left, top right, bottom left,
bottom right), blocks in raster order. Attention does not care, and one image token becomes one row of four patches.
Differs: upstream keeps patches in raster order and regroups them in the projector; `raster_order` converts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from docvino.document import Task
from docvino.errors import InputError
from docvino.specs.vlm import MAX_SIDE_RATIO, PixelBudget, TextFacts, VisionFacts, VlmFacts

Grid = tuple[int, int]  # patches down and across, both even
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

N = TypeVar("N", bound=np.generic)

_GRIDS_KEPT = 64  # grids whose tables are kept: 5,000 patches of 72 numbers are 3 MB
_TABLE_STEP = 4096  # positions by which the rotary table of the decoder grows


@dataclass(frozen=True, eq=False)
class Patches:
    """One crop as the vision graph takes it; several of one length may be stacked along the first axis.

    pixel_values       float32 (1, N, 3 * patch * patch), (channel, y, x) inside a patch
    position_taps      int64 (1, N, 4), position_weights float32 (1, N, 4): bilinear taps into the position table
    rotary_cos, _sin   float32 (1, N, head_dim)
    """

    grid: Grid
    pixel_values: Floats
    position_taps: Ints
    position_weights: Floats
    rotary_cos: Floats
    rotary_sin: Floats

    @property
    def image_tokens(self) -> int:
        return self.grid[0] * self.grid[1] // 4

    def inputs(self) -> dict[str, Floats | Ints]:
        """By the names of the graph's inputs."""
        return {
            "pixel_values": self.pixel_values,
            "position_taps": self.position_taps,
            "position_weights": self.position_weights,
            "rotary_cos": self.rotary_cos,
            "rotary_sin": self.rotary_sin,
        }


def smart_resize(height: int, width: int, budget: PixelBudget, factor: int = 28) -> tuple[int, int]:
    """Height and width, multiples of `factor`, near the crop's shape and within the budget's area.

    Source: smart_resize of PaddleX 3.7.2 and transformers 5.24 (Python's rounding: half to even).
    Differs: strips with sides beyond 200 : 1 are `pad_strip`'s business and not an error.
    """
    tall, wide = height, width
    if tall < factor:
        wide, tall = round(wide * factor / tall), factor
    if wide < factor:
        tall, wide = round(tall * factor / wide), factor
    rows, columns = round(tall / factor) * factor, round(wide / factor) * factor
    if rows * columns > budget.max_pixels:
        shrink = math.sqrt(tall * wide / budget.max_pixels)
        rows = max(factor, math.floor(tall / shrink / factor) * factor)
        columns = max(factor, math.floor(wide / shrink / factor) * factor)
    elif rows * columns < budget.min_pixels:
        grow = math.sqrt(budget.min_pixels / (tall * wide))
        rows = math.ceil(tall * grow / factor) * factor
        columns = math.ceil(wide * grow / factor) * factor
    return rows, columns


def pad_strip(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A strip longer than 200 : 1 gets more of its last row or column until it is not; others come back as they are."""
    height, width = pixels.shape[:2]
    shortest = -(-max(height, width) // MAX_SIDE_RATIO)
    missing_rows, missing_columns = max(0, shortest - height), max(0, shortest - width)
    if not missing_rows and not missing_columns:
        return pixels
    return np.pad(pixels, ((0, missing_rows), (0, missing_columns), (0, 0)), mode="edge")


def prepare(pixels: NDArray[np.uint8], task: Task, facts: VlmFacts) -> Patches:
    """uint8 (H, W, 3) RGB -> patches with positions, the crop being resized to its task's budget.

    Raises: InputError for a crop without pixels or a task that the model does not know.
    """
    if task not in facts.pixels.budgets:
        raise InputError(f"this model does not read {task}", fix=f"it reads {', '.join(facts.pixels.budgets)}")
    if not pixels.size:
        raise InputError("a crop without pixels", fix="leave out regions without area")
    strip = pad_strip(pixels)
    height, width = strip.shape[:2]
    if task == "spotting" and max(height, width) < facts.pixels.double_below_px:
        strip = np.asarray(Image.fromarray(strip).resize((2 * width, 2 * height), Image.Resampling.LANCZOS))
        height, width = strip.shape[:2]
    rows, columns = smart_resize(height, width, facts.pixels.budgets[task], facts.vision.factor_px)
    return cut(resize(strip, rows, columns), facts)


def resize(pixels: NDArray[np.uint8], rows: int, columns: int) -> NDArray[np.uint8]:
    """Bicubic as Pillow does it, uint8 in and out: the model was trained on pictures that Pillow resized.

    OpenCV's bicubic is another filter: it does not widen when a picture becomes smaller.
    """
    if pixels.shape[:2] == (rows, columns):
        return pixels
    picture = Image.fromarray(np.ascontiguousarray(pixels))
    return np.asarray(picture.resize((columns, rows), Image.Resampling.BICUBIC))


def cut(pixels: NDArray[np.uint8], facts: VlmFacts) -> Patches:
    """uint8 (H, W, 3) RGB with sides that are multiples of 28 -> patches with positions."""
    side = facts.vision.patch_px
    down, across = pixels.shape[0] // side, pixels.shape[1] // side
    # As upstream's processors compute it: 255 goes into mean and std first.
    mean, std = (np.asarray(values, np.float32) * np.float32(255) for values in (facts.pixels.mean, facts.pixels.std))
    values = (pixels.astype(np.float32) - mean) / std
    blocks = values.reshape(down // 2, 2, side, across // 2, 2, side, 3)
    # block row, block column, row in block, column in block, channel, y, x
    patches = blocks.transpose(0, 3, 1, 4, 6, 2, 5).reshape(1, down * across, 3 * side * side)
    taps, weights = position_taps((down, across), facts.vision.position_side)
    cos, sin = vision_rotary((down, across), facts.vision)
    return Patches(
        grid=(down, across),
        pixel_values=np.ascontiguousarray(patches),
        position_taps=taps[None],
        position_weights=weights[None],
        rotary_cos=cos[None],
        rotary_sin=sin[None],
    )


def places(grid: Grid) -> tuple[Ints, Ints]:
    """Row and column of every patch, int64 (N,) each, in merge-block order."""
    rows, columns = np.meshgrid(np.arange(grid[0]), np.arange(grid[1]), indexing="ij")
    return _by_blocks(rows, grid), _by_blocks(columns, grid)


def raster_order(grid: Grid) -> Ints:
    """int64 (N,): raster_patches[raster_order(grid)] are the patches in merge-block order."""
    rows, columns = places(grid)
    return rows * grid[1] + columns


@lru_cache(_GRIDS_KEPT)
def position_taps(grid: Grid, side: int) -> tuple[Ints, Floats]:
    """Where each patch reads the learned side x side position table: int64 rows (N, 4) and float32 weights (N, 4).

    Bilinear with centres at half integers, the border repeated.
    Source: the interpolation of the published modelling code (align_corners off).
    """
    rows, columns = places(grid)
    (low_row, high_row, down), (low_column, high_column, right) = (
        _taps(rows, grid[0], side),
        _taps(columns, grid[1], side),
    )
    taps = np.stack(
        [
            low_row * side + low_column,
            low_row * side + high_column,
            high_row * side + low_column,
            high_row * side + high_column,
        ],
        axis=1,
    )
    weights = np.stack(
        [(1 - down) * (1 - right), (1 - down) * right, down * (1 - right), down * right], axis=1, dtype=np.float32
    )
    return _frozen(taps), _frozen(weights)


@lru_cache(_GRIDS_KEPT)
def vision_rotary(grid: Grid, facts: VisionFacts) -> tuple[Floats, Floats]:
    """cos and sin of every patch's angles, float32 (N, head_dim): rows, then columns, then both again.

    Source: the published modelling code; head_dim / 4 frequencies theta ** (-2k / (head_dim / 2)), computed in float32.
    """
    half = facts.head_dim // 2
    frequencies = _frequencies(half, facts.rope_theta)
    rows, columns = places(grid)
    angles = np.concatenate([np.multiply.outer(place.astype(np.float32), frequencies) for place in (rows, columns)], 1)
    angles = np.concatenate([angles, angles], axis=1)
    return _frozen(np.cos(angles)), _frozen(np.sin(angles))


def prompt_positions(head: int, grid: Grid, tail: int) -> tuple[Ints, int]:
    """Time, row and column position of every token of a prompt, int64 (3, L), and the position of the next token.

    head   tokens before the image; tail: tokens after it

    A text token has its number three times. An image that begins at p has time p, row p + its row, column p + its
    column, counted in image tokens; the text goes on after the largest of these. A generated token counts on by one.
    Source: section 2.8 of the model's specification, get_rope_index of transformers.
    """
    down, across = grid[0] // 2, grid[1] // 2
    image = np.stack(
        [
            np.zeros(down * across, np.int64),
            np.repeat(np.arange(down, dtype=np.int64), across),
            np.tile(np.arange(across, dtype=np.int64), down),
        ]
    )
    after = head + max(down, across)
    before_image = np.broadcast_to(np.arange(head, dtype=np.int64), (3, head))
    after_image = np.broadcast_to(np.arange(after, after + tail, dtype=np.int64), (3, tail))
    return np.concatenate([before_image, image + head, after_image], axis=1), after + tail


def text_rotary(positions: Ints, facts: TextFacts) -> tuple[Floats, Floats]:
    """cos and sin of the decoder's angles for int64 positions (3, n), float32 (n, head_dim) each.

    The first frequencies use the time, the next the row, the last the column position (`mrope_sections`).
    """
    cos, sin = _text_tables(facts.head_dim, facts.rope_theta, -(-(int(positions.max(initial=0)) + 1) // _TABLE_STEP))
    ends = np.cumsum(facts.mrope_sections)
    parts = [slice(end - size, end) for end, size in zip(ends, facts.mrope_sections, strict=True)]
    chosen = [
        np.concatenate([table[row][:, part] for row, part in zip(positions, parts, strict=True)], axis=1)
        for table in (cos, sin)
    ]
    return np.tile(chosen[0], 2), np.tile(chosen[1], 2)


@lru_cache(4)
def _text_tables(head_dim: int, theta: float, steps: int) -> tuple[Floats, Floats]:
    """float32 (steps * 4096, head_dim / 2) each."""
    numbers = np.arange(steps * _TABLE_STEP, dtype=np.float32)
    angles = np.multiply.outer(numbers, _frequencies(head_dim, theta))
    return _frozen(np.cos(angles)), _frozen(np.sin(angles))


def _frequencies(dim: int, theta: float) -> Floats:
    """theta ** (-2k / dim), k = 0 .. dim / 2 - 1."""
    return (1.0 / theta ** (np.arange(0, dim, 2, dtype=np.float64) / dim)).astype(np.float32)


def _taps(place: Ints, count: int, side: int) -> tuple[Ints, Ints, Floats]:
    """The two table lines around a place among `count`, and the share of the second one."""
    source = np.maximum((place + 0.5) * (side / count) - 0.5, 0.0)
    low = np.minimum(np.floor(source).astype(np.int64), side - 1)
    return low, np.minimum(low + 1, side - 1), (source - low).astype(np.float32)


def _by_blocks(values: Ints, grid: Grid) -> Ints:
    down, across = grid
    blocks = values.reshape(down // 2, 2, across // 2, 2).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(blocks).reshape(-1).astype(np.int64)


def _frozen(values: NDArray[N]) -> NDArray[N]:
    """Read-only, as it is kept and handed out many times."""
    values.setflags(write=False)
    return values
