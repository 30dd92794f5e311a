"""Steps that several models share."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray


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
