"""Finds the regions of a page with PicoDet."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from docvino.codec import layout
from docvino.codec.pixels import has_structure
from docvino.device import Model
from docvino.document import Box, PageImage, Region, box_polygon
from docvino.settings import ParseOptions
from docvino.specs.model import LayoutFacts, ModelSpec

_MIN_SIDE_PX = 8  # nothing smaller is a region: on a page of one pixel the model still sees a figure


class PicoDetLayout:
    def __init__(self, model: Model, spec: ModelSpec[LayoutFacts]) -> None:
        self._model = model
        self._facts = spec.facts
        self._input = spec.inputs[0].name
        self._outputs = [contract.name for contract in spec.outputs]

    def detect(self, page: PageImage, options: ParseOptions) -> list[Region]:
        """Regions in page pixels, best score first, without an order.

        Regions of plain paper are left out: on an empty page the model sees a figure.
        """
        facts = self._facts
        if options.layout_threshold is not None:
            facts = replace(facts, score_threshold=options.layout_threshold)
        outputs = self._model.run({self._input: layout.prepare(page.pixels, facts)})
        tensors = [outputs[name] for name in self._outputs]
        half = len(tensors) // 2
        boxes = layout.decode(tensors[:half], tensors[half:], page.width_px, page.height_px, facts)
        return [
            Region(found.label, found.score, box_polygon(*found.box))
            for found in boxes
            if min(found.box[2] - found.box[0], found.box[3] - found.box[1]) >= _MIN_SIDE_PX
            and has_structure(_inside(page, found.box))
        ]


def _inside(page: PageImage, box: Box) -> NDArray[np.uint8]:
    left, top, right, bottom = (round(value) for value in box)
    return page.pixels[top:bottom, left:right]
