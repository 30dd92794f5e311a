"""Cuts a page into what a reader reads in one go."""

from __future__ import annotations

from collections.abc import Sequence

from docvino.codec import crops
from docvino.document import Crop, PageImage, Region, Task, polygon_box
from docvino.settings import ParseOptions
from docvino.specs.doclayout import PICTURES
from docvino.text.routing import Element, route

_TABLE_MARGIN = 0.03  # of a table's shorter side: layout boxes cut up to 2 % off (measured on drawn tables)
_LEAST_MARGIN_PX = 8


def cut_lines(page: PageImage, regions: Sequence[Region]) -> list[Crop]:
    """One crop of the whole page that covers all its regions: line readers find text where layout saw none, too.

    Then one crop for the structure of each table, with some paper around it.
    """
    crops = [Crop(page.pixels, "ocr", tuple(range(len(regions))))]
    for index, region in enumerate(regions):
        if region.label == "table":
            left, top, right, bottom = polygon_box(region.polygon)
            margin = max(_LEAST_MARGIN_PX, _TABLE_MARGIN * min(right - left, bottom - top))
            x, y = max(0, round(left - margin)), max(0, round(top - margin))
            pixels = page.pixels[y : round(bottom + margin), x : round(right + margin)]
            crops.append(Crop(pixels, "table", (index,), (float(x), float(y))))
    return crops


def whole(page: PageImage, task: Task) -> list[Crop]:
    """The page as one element."""
    return [Crop(page.pixels, task, ())]


def cut_regions(page: PageImage, regions: Sequence[Region], options: ParseOptions) -> list[Crop]:
    """What of the page is read, element by element, in reading order; pictures that are not read are in none."""
    return [_crop(page, regions, element, element.task) for element in route(regions, options) if element.task]


def _crop(page: PageImage, regions: Sequence[Region], element: Element, task: Task) -> Crop:
    shown = [regions[place] for place in element.regions]
    parts = [crops.cut_region(page.pixels, region.bounds, region.polygon) for region in shown]
    pixels = crops.stack(parts, element.aligns)
    left, top = shown[0].bounds[:2]
    for mark, figure in element.figures:
        if mark:
            x, y, right, bottom = regions[figure].bounds
            crops.paint_mark(pixels, (x - left, y - top, right - left, bottom - top), mark)
    if task == "formula":
        pixels, (right_by, down_by) = crops.trim(pixels)
        left, top = left + right_by, top + down_by
    return Crop(pixels, task, element.regions, (left, top), element.figures, shown[0].label in PICTURES)
