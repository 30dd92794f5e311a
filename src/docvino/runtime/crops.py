"""Cuts a page into what a reader reads in one go."""

from __future__ import annotations

from collections.abc import Sequence

from docvino.document import Crop, PageImage, Region


def cut(page: PageImage, regions: Sequence[Region]) -> list[Crop]:
    """One crop of the whole page that covers all its regions: line readers find text where layout saw none, too."""
    return [Crop(page.pixels, "ocr", tuple(range(len(regions))))]
