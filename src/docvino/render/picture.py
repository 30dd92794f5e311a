"""Pixels of a page -> a picture file."""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from docvino.document import Rotation

_QUALITY = 88  # letters have no halo yet


def encode_jpeg(pixels: NDArray[np.uint8], rotation: Rotation = 0, longest_px: int | None = None) -> bytes:
    """uint8 (H, W, 3) RGB, turned clockwise by so many degrees, scaled down so that its longer side is `longest_px`."""
    turned = np.ascontiguousarray(np.rot90(pixels, -rotation // 90))
    image = Image.fromarray(turned)
    if longest_px is not None:
        image.thumbnail((longest_px, longest_px))
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=_QUALITY)
    return stream.getvalue()
