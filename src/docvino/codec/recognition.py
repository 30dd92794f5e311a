"""Text recognition with connectionist temporal classification (CTC)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from docvino.codec.pixels import resize, to_bgr
from docvino.specs.model import RecognitionFacts

_BLANK = 0
_TALL = 1.5  # Source: get_rotate_crop_image in PaddleOCR: a crop this much taller than wide is a vertical line
_MARGIN = 0.25  # line heights added before and after a line; without it final points and commas are lost


def cut_line(pixels: NDArray[np.uint8], corners: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Straightens one line: uint8 (H, W, 3) page and float32 (4, 2) corners -> uint8 (h, w, 3).

    A line much taller than wide is turned counter-clockwise, so that text running down the page runs to the right.
    Source: get_rotate_crop_image in PaddleOCR (perspective, bicubic, replicated border).
    Differs: a quarter of a line height more at both ends. On 15 drawn pages this takes the error from 0.31 % to 0.13 %.
    """
    corners = _widened(corners, pixels.shape[1], pixels.shape[0])
    width = max(1, round(max(np.linalg.norm(corners[0] - corners[1]), np.linalg.norm(corners[2] - corners[3]))))
    height = max(1, round(max(np.linalg.norm(corners[0] - corners[3]), np.linalg.norm(corners[1] - corners[2]))))
    # Work on the neighbourhood only: warpPerspective refuses images with a side above 32,767 px.
    x0, y0 = np.floor(corners.min(axis=0) - 2).clip(0).astype(int)
    x1, y1 = np.ceil(corners.max(axis=0) + 3).astype(int)
    patch = np.ascontiguousarray(pixels[y0:y1, x0:x1])
    target = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float32)
    transform = cv2.getPerspectiveTransform((corners - (x0, y0)).astype(np.float32), target)
    line: NDArray[np.uint8] = cv2.warpPerspective(
        patch, transform, (width, height), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE
    )
    return np.rot90(line) if height >= _TALL * width else line


def _widened(corners: NDArray[np.float32], width_px: int, height_px: int) -> NDArray[np.float32]:
    """The corners with both ends of the line moved outwards, within the page."""
    along, across = corners[1] - corners[0], corners[3] - corners[0]
    length, height = float(np.linalg.norm(along)), float(np.linalg.norm(across))
    if height >= _TALL * length:
        return corners  # the columns of vertical text end in a full character, and a margin shows the next one
    step = along / max(length, 1e-6) * height * _MARGIN
    moved: NDArray[np.float32] = np.clip(
        corners + np.array([-step, step, step, -step]), 0, (width_px, height_px)
    ).astype(np.float32)
    return moved


def input_width(line: NDArray[np.uint8], facts: RecognitionFacts) -> int:
    """Width in pixels of the line at the network's height, within what the network was made for."""
    height, width = line.shape[:2]
    return max(1, min(facts.max_width_px, math.ceil(facts.height_px * int(width) / int(height))))


def padded_width(line: NDArray[np.uint8], facts: RecognitionFacts, step_px: int = 1) -> int:
    """Width in pixels at which the line goes through the network when it goes alone."""
    return -(-max(facts.min_width_px, input_width(line, facts)) // step_px) * step_px


def batches(widths: Sequence[int], most: int, *, mixed: bool) -> list[list[int]]:
    """Places of lines that share an inference, the longest lines first.

    Long ones begin so that several inferences at once end at nearly the same time.

    widths   padded width of each line
    most     lines in one batch
    mixed    whether lines of other widths may fill a batch up
    """
    groups: list[list[int]] = []
    for place in sorted(range(len(widths)), key=lambda place: -widths[place]):
        if not groups or len(groups[-1]) == most or not (mixed or widths[groups[-1][0]] == widths[place]):
            groups.append([])
        groups[-1].append(place)
    return groups


def prepare(lines: Sequence[NDArray[np.uint8]], facts: RecognitionFacts, step_px: int = 1) -> NDArray[np.float32]:
    """Line images uint8 (h, w, 3) RGB -> float32 (B, 3, 48, W) BGR in -1..1.

    W is the widest line, at least `min_width_px`, and a multiple of `step_px`; shorter lines are padded with 0 on the
    right, which is mid grey.
    Source: resize_norm_img in PaddleOCR.
    """
    widths = [input_width(line, facts) for line in lines]
    widest = max(padded_width(line, facts, step_px) for line in lines)
    batch = np.zeros((len(lines), 3, facts.height_px, widest), np.float32)
    for row, (line, width) in enumerate(zip(lines, widths, strict=True)):
        small = to_bgr(resize(line, width, facts.height_px))
        batch[row, :, :, :width] = small.transpose(2, 0, 1) * np.float32(2 / 255.0) - np.float32(1)
    return batch


def alphabet(dictionary: str) -> tuple[str, ...]:
    """One character per line -> characters by class: the blank first, the space last.

    Source: CTCLabelDecode in PaddleOCR.
    """
    return ("", *dictionary.split("\n"), " ")


def best(probabilities: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """float32 (B, T, C) probabilities -> the likeliest class of each column, int64 (B, T), and its probability.

    A column that holds a NaN has a NaN for probability.
    """
    classes = probabilities.argmax(axis=2)
    return classes, np.take_along_axis(probabilities, classes[..., None], axis=2)[..., 0]


def spell(
    classes: NDArray[np.int64], certainty: NDArray[np.float32], characters: Sequence[str]
) -> list[tuple[str, float]]:
    """What `best` gives -> text and confidence [0, 1] of each row, by best path.

    The confidence is the mean probability of the characters kept, 0 where none is.
    """
    answers = []
    for row, scores in zip(classes, certainty, strict=True):
        keep = row != _BLANK
        keep[1:] &= row[1:] != row[:-1]
        text = "".join(characters[index] for index in row[keep])
        answers.append((text, float(scores[keep].mean()) if keep.any() else 0.0))
    return answers


def decode(probabilities: NDArray[np.float32], characters: Sequence[str]) -> list[tuple[str, float]]:
    """float32 (B, T, C) probabilities -> text and confidence of each row, see `spell`."""
    return spell(*best(probabilities), characters)
