"""Turns pages upright."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np

from docvino.codec import orientation
from docvino.codec.pixels import has_structure
from docvino.device import Model
from docvino.document import PageImage, Rotation
from docvino.specs.model import ModelSpec, OrientationFacts

_SURE = 0.5  # below this score the model has seen too little text to tell


class Orientation:
    def __init__(self, model: Model, spec: ModelSpec[OrientationFacts]) -> None:
        self._model = model
        self._facts = spec.facts
        self._input = spec.inputs[0].name
        self._output = spec.outputs[0].name

    def candidates(self, page: PageImage) -> list[Rotation]:
        """By how many degrees clockwise the page may have to be turned, likeliest first.

        One angle when the model is sure, or when the page is plain paper; else all four, to be tried.
        """
        outputs = self._model.run({self._input: orientation.prepare(page.pixels, self._facts)})
        ranking = orientation.decode(outputs[self._output], self._facts)
        # The model names the clockwise turn that the page has had.
        angles = [cast(Rotation, (360 - angle) % 360) for angle, _ in ranking]
        if ranking[0][1] > _SURE:
            return angles[:1]
        return angles if has_structure(page.pixels) else [0]


def turn(page: PageImage, degrees: Rotation) -> PageImage:
    """The page turned clockwise, as a view of the same pixels; `rotation` says by how much in all."""
    if degrees == 0:
        return page
    pixels = np.rot90(page.pixels, k=-degrees // 90)
    return replace(page, pixels=pixels, rotation=cast(Rotation, (page.rotation + degrees) % 360))
