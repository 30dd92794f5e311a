"""Finds the regions of a page, their outlines and their order with PP-DocLayout."""

from __future__ import annotations

from docvino.codec import doclayout
from docvino.device import Model
from docvino.document import PageImage, Region
from docvino.settings import ParseOptions
from docvino.specs.model import DocLayoutFacts, ModelSpec


class DocLayout:
    def __init__(self, model: Model, spec: ModelSpec[DocLayoutFacts]) -> None:
        self._model, self._facts = model, spec.facts
        self._outputs = [contract.name for contract in spec.outputs]

    def detect(self, page: PageImage, options: ParseOptions) -> list[Region]:
        """All regions in reading order, in page pixels, overlapping ones too: `codec.doclayout.choose` drops those.

        Raises: InferenceError when the device fails, or gives something else than regions.
        """
        outputs = self._model.run(doclayout.prepare(page.pixels, self._facts))
        return doclayout.find(
            [outputs[name] for name in self._outputs],
            page.width_px,
            page.height_px,
            self._facts,
            threshold=options.layout_threshold,
            shape=options.layout_shape_mode,
            nms=options.layout_nms,
            merge=options.layout_merge_bboxes_mode,
            unclip=options.layout_unclip_ratio,
        )
