"""Finds the structure of tables; their text is read with the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from docvino.codec import table
from docvino.device import Model
from docvino.document import Answer, Box, Crop, Structure, moved
from docvino.runtime.stages import Clock
from docvino.settings import ParseOptions
from docvino.specs.model import ModelSpec, TableFacts
from docvino.text import tables

# Paper left around a table, as shares of its longer side. The model takes paper for a row: with none, every table of
# the end-to-end tests has its rows, with 0.6 % those of 81 rows get some too many. The others are tried where the grid
# is not sound.
_MARGINS = (0.0, 0.006, 0.012)
# Rows read at once: the picture goes through the network at 488 px a side, and its sequence ends at 501 tokens. Of 21
# rows none was missed, of 81 the number was never right. Longer tables are read in strips.
_MOST_ROWS = 20


class TableReader:
    """Answers have a structure and no text; their confidence is the structure's score."""

    def __init__(self, model: Model, spec: ModelSpec[TableFacts]) -> None:
        self._model = model
        self._facts = spec.facts
        self._input = spec.inputs[0].name
        self._coordinates, self._probabilities = (contract.name for contract in spec.outputs)

    def read(self, crops: Sequence[Crop], options: ParseOptions, clock: Clock) -> list[Answer]:  # noqa: ARG002 the seam
        answers = []
        for crop in crops:
            with clock.measure("tables"):
                structure = self._structure(crop.pixels)
            answers.append(Answer("", structure.score, finish=structure.finish, structure=structure))
        return answers

    def _structure(self, pixels: NDArray[np.uint8]) -> Structure:
        """The best of several readings: in strips when the table is long, and whole."""
        left, top, right, bottom = table.content_box(pixels)
        cuts = [top + cut for cut in table.row_cuts(pixels[top:bottom, left:right], _MOST_ROWS)]
        if cuts:
            edges = [top, *cuts, bottom]
            strips = [self._sound(pixels, (left, above, right, below)) for above, below in pairwise(edges)]
            joined = _stacked(strips)
            if not _faults(joined):
                return joined
        return self._sound(pixels, (left, top, right, bottom))

    def _sound(self, pixels: NDArray[np.uint8], box: Box) -> Structure:
        """The first reading that makes a sound grid, or the best one."""
        tried = []
        for share in _MARGINS:
            margin = round(share * max(box[2] - box[0], box[3] - box[1]))
            x, y = max(0, int(box[0]) - margin), max(0, int(box[1]) - margin)
            part = pixels[y : int(box[3]) + margin, x : int(box[2]) + margin]
            structure = self._run(part)
            structure = replace(structure, polygons=tuple(moved(polygon, (x, y)) for polygon in structure.polygons))
            if not _faults(structure):
                return structure
            tried.append(structure)
        return min(tried, key=lambda structure: (_faults(structure), -structure.score))

    def _run(self, pixels: NDArray[np.uint8]) -> Structure:
        outputs = self._model.run({self._input: table.prepare(pixels, self._facts)})
        height, width = pixels.shape[:2]
        return table.decode(outputs[self._coordinates][0], outputs[self._probabilities][0], width, height, self._facts)


def _faults(structure: Structure) -> int:
    """How far a structure is from a sound table; 0 is sound."""
    grid = tables.lay_out(structure)
    return len(grid.faults) + (1000 if grid.broken else 0)


def _stacked(strips: Sequence[Structure]) -> Structure:
    """One table of strips that lie under each other."""
    count = sum(len(strip.tokens) for strip in strips)
    return Structure(
        tokens=tuple(token for strip in strips for token in strip.tokens),
        polygons=tuple(polygon for strip in strips for polygon in strip.polygons),
        score=sum(strip.score * len(strip.tokens) for strip in strips) / max(1, count),
        finish="stop" if all(strip.finish == "stop" for strip in strips) else "length",
    )
