"""Regions and the lines read on a page -> blocks in reading order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from types import MappingProxyType

from docvino.document import Block, Box, Line, Region, Structure, box_polygon, polygon_box
from docvino.text import order, tables
from docvino.text.paragraphs import join_lines, paragraphs

_INSIDE = 0.5  # a line belongs to a region that covers at least this share of it
_NEAR = 1.0  # lines that no region covers join when their gap is below this many line heights
_SAME = 0.7  # text regions that share this much of the smaller one are one
_RUNNING_TEXT = ("text", "reference")
_ROWWISE = ("table",)
_PICTURES = ("figure",)
_WITHOUT_LINES = ("figure", "table", "equation")  # regions that mean something even when no line was read in them
_TEXT_SHARE = 0.25  # a figure covered by lines to this share is text that the layout model took for a picture


@dataclass
class _Draft:
    label: str
    boxes: list[Box]
    score: float | None
    order: int | None = None
    lines: list[Line] = field(default_factory=list)
    grid: tables.Grid | None = None
    table: tables.Table | None = None


def assemble(
    page_index: int,
    regions: Sequence[Region],
    lines: Sequence[Line],
    structures: Mapping[int, Structure] = MappingProxyType({}),
) -> tuple[Block, ...]:
    """Blocks of one page in reading order; all polygons are in page pixels.

    structures   those of tables, by the place of their region

    Lines that no region covers make text blocks of their own, so nothing that was read is lost. The order is the
    regions' own when every block has one; otherwise it is found by XY-cut on the page laid level.
    """
    angle = order.skew_angle([line.polygon for line in lines])
    drafts = _merged(
        [
            _Draft(
                region.label,
                [polygon_box(region.polygon)],
                region.score,
                region.order,
                grid=tables.lay_out(structures[index]) if index in structures else None,
            )
            for index, region in enumerate(regions)
        ]
    )
    drafts = [draft for draft in drafts if not _is_table_too(draft, drafts)]
    orphans: list[Line] = []
    for line in lines:
        home = _table_of(line, drafts) or _home(polygon_box(line.polygon), drafts)
        (orphans if home is None else home.lines).append(line)
    for draft in drafts:
        if draft.grid is not None and draft.grid.broken is None and draft.lines:
            draft.table = tables.fill(draft.grid, draft.lines, angle)
            orphans += draft.table.outside
            draft.lines = [line for line in draft.lines if line not in draft.table.outside]
    drafts += _group(_adopted(orphans, drafts), angle)
    drafts = [draft for draft in drafts if draft.lines or draft.label in _WITHOUT_LINES]
    for draft in drafts:
        if draft.label in _PICTURES and _text_share(draft) >= _TEXT_SHARE:
            draft.label = "text"
    ranking = _ranking(drafts, lines, angle)
    return tuple(_block(page_index, place, drafts[index], angle) for place, index in enumerate(ranking))


def _merged(drafts: list[_Draft]) -> list[_Draft]:
    """Text regions that lie upon each other as one: the surer label, the boxes of both."""
    kept: list[_Draft] = []
    for draft in drafts:
        twin = next((other for other in kept if _alike(draft, other)), None)
        if twin is None:
            kept.append(draft)
            continue
        twin.boxes += draft.boxes
        if (draft.score or 0) > (twin.score or 0):
            twin.label, twin.score = draft.label, draft.score
    return kept


def _alike(a: _Draft, b: _Draft) -> bool:
    if a.label not in _RUNNING_TEXT or b.label not in _RUNNING_TEXT or a.order is not None or b.order is not None:
        return False
    return _shared(a.boxes[0], b.boxes[0]) >= _SAME * min(_area(a.boxes[0]), _area(b.boxes[0]))


def _adopted(orphans: Sequence[Line], drafts: Sequence[_Draft]) -> list[Line]:
    """Gives lines that stand between the lines of a text region to that region; returns those left over."""
    hulls = [(draft, _hull(draft.lines)) for draft in drafts if draft.lines and draft.label in _RUNNING_TEXT]
    left_over: list[Line] = []
    for line in orphans:
        box = polygon_box(line.polygon)
        home = next((draft for draft, hull in hulls if _shared(box, hull) > _INSIDE * _area(box)), None)
        (left_over if home is None else home.lines).append(line)
    return left_over


def _home(box: Box, drafts: Sequence[_Draft]) -> _Draft | None:
    """The region that covers most of the line; of several that cover it alike, the smallest."""
    best: tuple[float, float] | None = None
    home = None
    for draft in drafts:
        for region in draft.boxes:
            share = _shared(box, region) / max(_area(box), 1e-6)
            rank = (round(share, 1), -_area(region))
            if share >= _INSIDE and (best is None or rank > best):
                best, home = rank, draft
    return home


def _is_table_too(draft: _Draft, drafts: Sequence[_Draft]) -> bool:
    """True for a region that layout detection gave a second label where a table with a sound structure lies."""
    return draft.grid is None and any(
        _shared(draft.boxes[0], other.boxes[0]) >= _SAME * max(_area(draft.boxes[0]), _area(other.boxes[0]))
        for other in drafts
        if other.grid is not None and other.grid.broken is None
    )


def _table_of(line: Line, drafts: Sequence[_Draft]) -> _Draft | None:
    """The table between whose cells the line's middle lies: there, no other region may take it."""
    left, top, right, bottom = polygon_box(line.polygon)
    middle = (left + right) / 2, (top + bottom) / 2
    return next((draft for draft in drafts if draft.grid is not None and draft.grid.holds(middle)), None)


def _group(lines: Sequence[Line], angle: float) -> list[_Draft]:
    """Lines that lie under each other become one text block each."""
    boxes = [order.straight_box(line.polygon, angle) for line in lines]
    parent = list(range(len(lines)))

    def root(index: int) -> int:
        while parent[index] != index:
            index = parent[index]
        return index

    for a in range(len(lines)):
        for b in range(a + 1, len(lines)):
            if _adjacent(boxes[a], boxes[b]):
                parent[root(b)] = root(a)
    groups: dict[int, list[Line]] = {}
    for index, line in enumerate(lines):
        groups.setdefault(root(index), []).append(line)
    return [_Draft("text", [_hull(group)], None, None, group) for group in groups.values()]


def _adjacent(a: Box, b: Box) -> bool:
    vertical = order.is_tall(a) or order.is_tall(b)
    if vertical:
        a, b = order.lying(a), order.lying(b)
    width_a, width_b, height_a, height_b = a[2] - a[0], b[2] - b[0], a[3] - a[1], b[3] - b[1]
    unit = min(height_a, height_b)
    if max(height_a, height_b) > 1.5 * unit:
        return False
    gap = max(a[1], b[1]) - min(a[3], b[3])
    overlap = min(a[2], b[2]) - max(a[0], b[0])
    if vertical and gap < -0.5 * unit:
        return overlap > -_NEAR * unit  # pieces of one column
    return -0.5 * unit < gap < _NEAR * unit and overlap > 0.5 * min(width_a, width_b)


def _ranking(drafts: Sequence[_Draft], lines: Sequence[Line], angle: float) -> list[int]:
    if drafts and all(draft.order is not None for draft in drafts):
        return sorted(range(len(drafts)), key=lambda index: drafts[index].order or 0)
    # Boxes of the text itself are truer than those of the layout model, which overlap and cut.
    boxes = [_level_hull(draft, angle) for draft in drafts]
    line_boxes = [order.straight_box(line.polygon, angle) for line in lines]
    if _runs_down(line_boxes):
        boxes, line_boxes = [order.lying(box) for box in boxes], [order.lying(box) for box in line_boxes]
    heights = [box[3] - box[1] for box in line_boxes]
    headings = frozenset(index for index, draft in enumerate(drafts) if draft.label == "title")
    return order.reading_order(boxes, median(heights) if heights else None, headings)


def _level_hull(draft: _Draft, angle: float) -> Box:
    if not draft.lines:
        return order.straight_box(box_polygon(*draft.boxes[0]), angle)
    return _union([order.straight_box(line.polygon, angle) for line in draft.lines])


def _block(page_index: int, place: int, draft: _Draft, angle: float) -> Block:
    boxes = [order.straight_box(line.polygon, angle) for line in draft.lines]
    if draft.table is not None:
        ranking = [index for row in order.rows(boxes) for index in row]
        content = draft.table.html
    elif draft.label in _ROWWISE:
        table_rows = order.rows(boxes)
        ranking = [index for row in table_rows for index in row]
        content = "\n".join("\t".join(draft.lines[index].text for index in row) for row in table_rows)
    else:
        if vertical := _runs_down(boxes):
            boxes = [order.lying(box) for box in boxes]
        ranking = order.reading_order(boxes)
        ordered = [(draft.lines[index].text, boxes[index]) for index in ranking]
        content = "\n\n".join(paragraphs(_one_box_a_row(ordered, vertical=vertical)))
    lines = tuple(draft.lines[index] for index in ranking)
    letters = sum(len(line.text) for line in lines)
    return Block(
        id=f"p{page_index + 1}-b{place + 1}",
        label=draft.label,
        polygons=tuple(box_polygon(*box) for box in draft.boxes),
        order=place,
        content=content,
        format="html" if draft.table else "text" if content else "none",
        confidence=sum(line.confidence * len(line.text) for line in lines) / letters if letters else None,
        layout_score=draft.score,
        lines=lines,
        cells=draft.table.cells if draft.table else (),
        warnings=_table_warnings(draft),
    )


def _table_warnings(draft: _Draft) -> tuple[str, ...]:
    if draft.table is not None:
        return tuple(f"table: {warning}" for warning in draft.table.warnings)
    if draft.grid is not None and draft.grid.broken is not None:
        return (f"the structure of this table was not found, it is given row by row: {draft.grid.broken}",)
    return ()


def _runs_down(boxes: Sequence[Box]) -> bool:
    """True for vertical text: most of its area is in lines that run down (detection may cut a column into pieces)."""
    tall = sum(_area(box) for box in boxes if order.is_tall(box))
    return len(boxes) > 1 and 2 * tall > sum(_area(box) for box in boxes)


def _one_box_a_row(lines: Sequence[tuple[str, Box]], *, vertical: bool) -> list[tuple[str, Box]]:
    """Neighbours on one row joined by a blank, so that paragraphs are made of whole rows."""
    joined: list[tuple[str, Box]] = []
    for text, box in lines:
        if joined:
            before, last = joined[-1]
            middle = (box[1] + box[3]) / 2
            if last[1] < middle < last[3] and box[0] >= last[2] - (box[3] - box[1]):
                joined[-1] = (join_lines([before, text]) if vertical else f"{before} {text}", _union([last, box]))
                continue
        joined.append((text, box))
    return joined


def _text_share(draft: _Draft) -> float:
    return sum(_area(polygon_box(line.polygon)) for line in draft.lines) / max(_area(draft.boxes[0]), 1e-6)


def _hull(lines: Sequence[Line]) -> Box:
    return _union([polygon_box(line.polygon) for line in lines])


def _union(boxes: Sequence[Box]) -> Box:
    return min(b[0] for b in boxes), min(b[1] for b in boxes), max(b[2] for b in boxes), max(b[3] for b in boxes)


def _area(box: Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def _shared(a: Box, b: Box) -> float:
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    return width * height if width > 0 and height > 0 else 0.0
