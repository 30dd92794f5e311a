"""Steps that several models share."""

from __future__ import annotations

import math

import cv2
import numpy as np
from numpy.typing import NDArray

_STRUCTURE_AREAS = 32
_STRUCTURE_STEP = 8.0  # of 255
_NOISE_RANGE = 8.0  # standard deviations that a thousand noisy averages span, with room to spare
_INK_AREA_PX = 8  # side of the areas in which ink is sought: about the size of a small letter


def normalise(
    pixels: NDArray[np.uint8], mean: tuple[float, float, float], std: tuple[float, float, float]
) -> NDArray[np.float32]:
    """uint8 (H, W, 3), 0..255 -> float32 (1, 3, H, W), (p / 255 - mean) / std per channel in the order given."""
    scale = np.float32(1 / 255.0) / np.asarray(std, np.float32)
    shift = np.asarray(mean, np.float32) / np.asarray(std, np.float32)
    tensor = np.empty((1, 3, *pixels.shape[:2]), np.float32)
    for channel in range(3):
        np.multiply(pixels[..., channel], scale[channel], out=tensor[0, channel], casting="unsafe")
        tensor[0, channel] -= shift[channel]
    return tensor


def has_structure(pixels: NDArray[np.uint8]) -> bool:
    """False for plain paper, also when it is noisy: uint8 (H, W, 3).

    The picture is averaged down to at most 32 x 32 areas: where there is print or a photograph they differ in
    brightness by more than what noise leaves, which is judged from the differences of neighbouring pixels.
    """
    height, width = pixels.shape[:2]
    size = (min(width, _STRUCTURE_AREAS), min(height, _STRUCTURE_AREAS))
    small = cv2.resize(np.ascontiguousarray(pixels), size, interpolation=cv2.INTER_AREA)
    brightness = small.astype(np.float32).mean(axis=2)
    sample = pixels[:: max(1, height // 256), :, 1].astype(np.float32)
    noise = float(np.diff(sample, axis=1).std()) / math.sqrt(2) if width > 1 else 0.0
    left_over = noise / math.sqrt(height * width / (size[0] * size[1]))
    return float(brightness.max() - brightness.min()) >= _STRUCTURE_STEP + _NOISE_RANGE * left_over


def has_ink(pixels: NDArray[np.uint8]) -> bool:
    """Whether anything is on the paper, be it one small digit on a large page: uint8 (H, W, 3).

    Finer than `has_structure`, and sure to say yes where there is print; shadows and stains are ink to it, too.
    """
    height, width = pixels.shape[:2]
    if height < 1 or width < 1:
        return False
    size = (max(1, width // _INK_AREA_PX), max(1, height // _INK_AREA_PX))
    small = cv2.resize(np.ascontiguousarray(pixels), size, interpolation=cv2.INTER_AREA).astype(np.float32)
    sample = pixels[:: max(1, height // 256), :, 1].astype(np.float32)
    # The median, as lines of print are edges and no noise.
    noise = float(np.median(np.abs(np.diff(sample, axis=1)))) if width > 1 else 0.0
    range_ = float((small.max(axis=(0, 1)) - small.min(axis=(0, 1))).max())
    return range_ >= _STRUCTURE_STEP + _NOISE_RANGE * noise / _INK_AREA_PX


def to_bgr(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A view of RGB pixels with the channels reversed."""
    return pixels[..., ::-1]


def resize(pixels: NDArray[np.uint8], width_px: int, height_px: int) -> NDArray[np.uint8]:
    """Bilinear, as OpenCV does it (pixel centres at half integers, no antialiasing)."""
    if pixels.shape[1] == width_px and pixels.shape[0] == height_px:
        return pixels
    resized: NDArray[np.uint8] = cv2.resize(
        np.ascontiguousarray(pixels), (width_px, height_px), interpolation=cv2.INTER_LINEAR
    )
    return resized
