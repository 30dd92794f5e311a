"""What of a page is read in one go, and as what: regions of PP-DocLayout -> elements. Geometry only, no pixels.

Source: PaddleX 3.7.2, the pipeline paddleocr_vl (merge_blocks, tokenize_figure_of_table and the routing of labels).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from docvino.document import Box, Region, Task
from docvino.settings import ParseOptions
from docvino.specs.doclayout import LABELS

Align = Literal["left", "center", "right"]

# Source: merge_blocks.
_EDGE_PX = 5
_COLUMN_GAP = 0.3
_ROW_GAP = 0.5
_TALLEST = 3.0  # height over width of a stack
_MERGED = "text"
_FIGURES = ("image", "seal")  # Source: gather_imgs; upstream's third one, "figure", is no label of these models
_LEAST_FIGURE_PX = 25  # Source: tokenize_figure_of_table
_CLEAR_DIGITS = frozenset("2345678")  # 0, 1 and 9 are easily taken for letters and each other


@dataclass(frozen=True)
class Element:
    """What a reader gets as one picture.

    regions   places in the page's list, stacked from top to bottom when there are several
    task      None: it is not read: a picture, or what the options leave out
    aligns    how each part but the first stands to those above it
    figures   regions inside this table, each with the mark that is painted over it; "" where it is too small for one
    """

    regions: tuple[int, ...]
    task: Task | None
    aligns: tuple[Align, ...] = ()
    figures: tuple[tuple[str, int], ...] = ()


def task_of(label: str, options: ParseOptions) -> Task | None:
    """What a region of this label is, under these options; None: a picture."""
    facts = LABELS[label]
    if facts.asking is not None and getattr(options, facts.asking[0]):
        return facts.asking[1]
    return facts.task


def route(regions: Sequence[Region], options: ParseOptions) -> list[Element]:
    """Elements in reading order; each region is in one of them, or is a figure of one.

    Differs: where texts are not stacked for their height, all stays in order; upstream moves pictures between them
    behind the last. Marks of figures are numbered in order; upstream shuffles the numbers with a fixed seed, and takes
    figures from the list before overlapping ones are dropped.
    """
    tasks = [task_of(region.label, options) for region in regions]
    boxes = [region.bounds for region in regions]
    inside = _figures(regions, boxes)
    taken = {place for figures in inside.values() for _, place in figures}
    merged = _groups(regions, boxes, tasks) if options.merge_layout_blocks else {}
    taken |= {place for group, _ in merged.values() for place in group[1:]}
    elements = []
    for place, task in enumerate(tasks):
        if place in taken:
            continue
        if options.skip_dropped and LABELS[regions[place].label].running:
            task = None
        group, aligns = merged.get(place, ((place,), ()))
        figures = inside.get(place, ())
        elements.append(Element(group, task, aligns, figures))
        # A figure of a table is read where an option asks for it, and then belongs right behind the table.
        elements += [Element((figure,), tasks[figure]) for mark, figure in figures if mark]
    return elements


def _figures(regions: Sequence[Region], boxes: Sequence[Box]) -> dict[int, tuple[tuple[str, int], ...]]:
    """Marks and places of the figures that lie whole in a table, by the table; each in the first one that has it."""
    found: dict[int, tuple[tuple[str, int], ...]] = {}
    marks = _marks()
    homeless = [place for place, region in enumerate(regions) if region.label in _FIGURES]
    for place, region in enumerate(regions):
        if region.label != "table":
            continue
        here = [figure for figure in homeless if _holds(boxes[place], boxes[figure])]
        homeless = [figure for figure in homeless if figure not in here]
        if here:
            found[place] = tuple((next(marks) if _can_be_marked(boxes[figure]) else "", figure) for figure in here)
    return found


def _marks() -> Iterator[str]:
    number = 0
    while True:
        number += 1
        if _CLEAR_DIGITS.issuperset(str(number)):
            yield f"[F{number}]"


def _holds(table: Box, figure: Box) -> bool:
    return figure[0] >= table[0] and figure[1] >= table[1] and figure[2] <= table[2] and figure[3] <= table[3]


def _can_be_marked(box: Box) -> bool:
    return min(box[2] - box[0], box[3] - box[1]) >= _LEAST_FIGURE_PX


def _groups(
    regions: Sequence[Region], boxes: Sequence[Box], tasks: Sequence[Task | None]
) -> dict[int, tuple[tuple[int, ...], tuple[Align, ...]]]:
    """Texts that go on in another box, by the place of the first: around a figure, or in the next column.

    Pictures and tables between the boxes of a text do not part it.
    """
    apart = [place for place, task in enumerate(tasks) if task is None or regions[place].label == "table"]
    flowing = [place for place in range(len(regions)) if place not in apart]
    found: list[tuple[list[int], list[Align]]] = []
    for before, place in zip([None, *flowing], flowing, strict=False):
        align = None
        if before is not None and regions[before].label == regions[place].label == _MERGED:
            align = _continuation(boxes[before], boxes[place], [boxes[other] for other in apart])
        if align is None:
            found.append(([place], []))
        else:
            found[-1][0].append(place)
            found[-1][1].append(align)
    return {
        group[0]: (tuple(group), tuple(aligns))
        for group, aligns in found
        if len(group) > 1 and _is_low([boxes[place] for place in group])
    }


def _continuation(a: Box, b: Box, apart: Sequence[Box]) -> Align | None:
    """How the text of box `b` stands under that of `a` when it goes on from it; None when it does not."""
    widths, heights = (a[2] - a[0], b[2] - b[0]), (a[3] - a[1], b[3] - b[1])
    if min(a[2], b[2]) <= max(a[0], b[0]):
        gap = b[0] - a[2]
        return "center" if gap > 0 and b[1] < a[3] and gap < _COLUMN_GAP * max(widths) else None
    if b[3] < a[1] or abs(b[1] - a[3]) >= _ROW_GAP * max(heights):
        return None
    left, right = abs(a[0] - b[0]) <= _EDGE_PX, abs(a[2] - b[2]) <= _EDGE_PX
    around = (min(a[0], b[0]), min(a[1], b[1]), max(a[2], b[2]), max(a[3], b[3]))
    if left == right or not any(_touch(around, other) for other in apart):
        return None
    return "left" if left else "right"


def _touch(a: Box, b: Box) -> bool:
    return min(a[2], b[2]) > max(a[0], b[0]) and min(a[3], b[3]) > max(a[1], b[1])


def _is_low(boxes: Sequence[Box]) -> bool:
    """Whether a stack of these is low enough to be read as one picture."""
    return sum(box[3] - box[1] for box in boxes) / max(box[2] - box[0] for box in boxes) < _TALLEST
