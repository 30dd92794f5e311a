"""Turns pages upright."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np

from docvino.codec import orientation
from docvino.device import Model
from docvino.document import PageImage, Rotation
from docvino.specs.model import ModelSpec, OrientationFacts

_SURE = 0.5  # a turn is made only when the model gives it more than this


class Orientation:
    def __init__(self, model: Model, spec: ModelSpec[OrientationFacts]) -> None:
        self._model = model
        self._facts = spec.facts
        self._input = spec.inputs[0].name
        self._output = spec.outputs[0].name

    def upright(self, page: PageImage) -> PageImage:
        """The page turned so that its text is upright; `rotation` says by how much."""
        outputs = self._model.run({self._input: orientation.prepare(page.pixels, self._facts)})
        angle, score = orientation.decode(outputs[self._output], self._facts)
        if angle == 0 or score <= _SURE:
            return page
        # The model names the clockwise turn the page has had; rot90 turns counter-clockwise.
        pixels = np.ascontiguousarray(np.rot90(page.pixels, k=angle // 90))
        pixels.flags.writeable = False
        return replace(page, pixels=pixels, rotation=cast(Rotation, (page.rotation + 360 - angle) % 360))
