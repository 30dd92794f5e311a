"""Direction of a page, as a classification of its middle, and of a single text line."""

from __future__ import annotations

import math
from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from docvino.codec.pixels import normalise, resize, to_bgr
from docvino.document import Rotation
from docvino.specs.model import LineOrientationFacts, OrientationFacts


def prepare(pixels: NDArray[np.uint8], facts: OrientationFacts) -> NDArray[np.float32]:
    """uint8 (H, W, 3) RGB -> float32 (1, 3, 224, 224) RGB: shorter side to `resize_px`, central square."""
    # The square is cut before resizing, as a strip would become a huge picture only to be cut.
    height, width = pixels.shape[:2]
    ratio = facts.resize_px / min(height, width)
    side = math.ceil(facts.crop_px / ratio)
    left, top = max(0, (width - side) // 2), max(0, (height - side) // 2)
    pixels = pixels[top : top + side, left : left + side]
    height, width = pixels.shape[:2]
    size = max(facts.crop_px, round(width * ratio)), max(facts.crop_px, round(height * ratio))
    # Area averaging where upstream uses Lanczos: a page is reduced many times, and thin strokes must not alias away.
    method = cv2.INTER_AREA if ratio < 1 else cv2.INTER_LINEAR
    small = cv2.resize(np.ascontiguousarray(pixels), size, interpolation=method)
    left, top = (size[0] - facts.crop_px) // 2, (size[1] - facts.crop_px) // 2
    return normalise(small[top : top + facts.crop_px, left : left + facts.crop_px], facts.mean, facts.std)


def decode(scores: NDArray[np.float32], facts: OrientationFacts) -> list[tuple[Rotation, float]]:
    """Class scores float32 (1, 4) -> the clockwise turns the page may have had, each with its score, best first."""
    ranking = np.argsort(-scores[0], kind="stable")
    return [(facts.angles[index], float(scores[0, index])) for index in ranking]


def prepare_lines(lines: Sequence[NDArray[np.uint8]], facts: LineOrientationFacts) -> NDArray[np.float32]:
    """Line images uint8 (h, w, 3) RGB -> float32 (B, 3, 48, 192) BGR in -1..1; short lines are padded with 0, mid grey.

    Source: resize_norm_img in PaddleOCR (tools/infer/predict_cls.py).
    """
    batch = np.zeros((len(lines), 3, facts.height_px, facts.width_px), np.float32)
    for row, line in enumerate(lines):
        height, width = line.shape[:2]
        scaled = max(1, min(facts.width_px, math.ceil(facts.height_px * width / height)))
        small = to_bgr(resize(line, scaled, facts.height_px))
        batch[row, :, :, :scaled] = small.transpose(2, 0, 1) * np.float32(2 / 255.0) - np.float32(1)
    return batch


def decode_lines(scores: NDArray[np.float32], facts: LineOrientationFacts) -> list[tuple[int, float]]:
    """Class scores float32 (B, 2) -> the turn of each line, 0 or 180 degrees, with its score [0, 1]."""
    best = scores.argmax(axis=1)
    return [(facts.angles[index], float(row[index])) for index, row in zip(best, scores, strict=True)]
