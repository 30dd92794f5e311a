"""Cuts a page into what a reader reads in one go."""

from __future__ import annotations

from collections.abc import Sequence

from docvino.document import Crop, PageImage, Region, Task, polygon_box

_TABLE_MARGIN = 0.03  # of a table's shorter side: layout boxes cut up to 2 % off (measured on drawn tables)
_LEAST_MARGIN_PX = 8


def cut(page: PageImage, regions: Sequence[Region]) -> list[Crop]:
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
