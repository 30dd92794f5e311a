"""Regions found by white space: for readers of lines and small elements, where no layout model is wanted or there."""

from __future__ import annotations

from collections.abc import Sequence

from docvino.codec import ink
from docvino.document import Box, Crop, PageImage, Region, Task, box_polygon, polygon_box
from docvino.runtime.stages import LayoutStage
from docvino.settings import ParseOptions

LINE = "line"
# What a region of a layout model is read as whole, by label; other regions only say where lines belong.
ELEMENTS: dict[str, Task] = {"table": "table", "equation": "formula"}
_UNREAD = ("figure",)  # what is written in a picture is part of it
# Paper around a line, as a share of its height: line detectors leave as much, and paragraphs are made by the white
# between lines in heights of lines.
_MARGIN = 0.18


class InkLayout:
    """Lines by white space, and tables with rules; or lines by white space in the regions of a layout model."""

    def __init__(self, layout: LayoutStage | None = None) -> None:
        self._layout = layout

    def detect(self, page: PageImage, options: ParseOptions) -> list[Region]:
        """Regions of elements first, then one region labelled "line" for each line outside them."""
        found = ink.find(page.pixels)
        if self._layout is None:
            regions = [Region("table", 1.0, box_polygon(*box)) for box in found.tables]
        else:
            regions = self._layout.detect(page, options)
        whole = [polygon_box(region.polygon) for region in regions if region.label in (*ELEMENTS, *_UNREAD)]
        lines = [box for box in found.lines if not any(_holds(other, box) for other in whole)]
        return regions + [Region(LINE, 1.0, box_polygon(*_with_paper(box, page))) for box in lines]


def cut_elements(page: PageImage, regions: Sequence[Region]) -> list[Crop]:
    """A crop of each line and of each element that is read whole."""
    crops = []
    for index, region in enumerate(regions):
        task: Task | None = "ocr" if region.label == LINE else ELEMENTS.get(region.label)
        if task is None:
            continue
        x, y, right, bottom = (round(value) for value in polygon_box(region.polygon))
        crops.append(Crop(page.pixels[y:bottom, x:right], task, (index,), (float(x), float(y))))
    return crops


def _with_paper(box: Box, page: PageImage) -> Box:
    margin = _MARGIN * (box[3] - box[1])
    return (
        max(0.0, box[0] - margin),
        max(0.0, box[1] - margin),
        min(float(page.width_px), box[2] + margin),
        min(float(page.height_px), box[3] + margin),
    )


def _holds(region: Box, line: Box) -> bool:
    middle = (line[0] + line[2]) / 2, (line[1] + line[3]) / 2
    return region[0] <= middle[0] <= region[2] and region[1] <= middle[1] <= region[3]
