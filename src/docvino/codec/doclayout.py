"""Layout detection with PP-DocLayoutV2 and V3: a page as the graph takes it, and its rows as regions in reading order.

The steps of `decode` and their order are those of PaddleX 3.7.2 (models/layout_analysis/processors.py, then
filter_overlap_boxes of the pipeline paddleocr_vl).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import cv2
import numpy as np
import pyclipper
from numpy.typing import NDArray

from docvino.document import Box, Polygon, Region, box_polygon
from docvino.errors import InferenceError
from docvino.settings import LayoutMerge, LayoutShape
from docvino.specs.model import DocLayoutFacts

Values = NDArray[np.float64]

# Source: LayoutAnalysisProcess.apply.
_IOU_SAME, _IOU_OTHER = 0.6, 0.98
_LARGEST_IMAGE_LANDSCAPE, _LARGEST_IMAGE = 0.82, 0.93
_CONTAINED = 0.9  # Source: is_contained
# Source: mask2polygon, extract_custom_vertices.
_EPSILON = 0.004
_LEAST_CONCAVE_DEGREES = 120.0
_LONGEST_EDGE = 0.3
_WIDE = 0.6
# Source: _normalize_layout_polygon.
_IS_RECTANGLE, _IS_QUAD, _APART = 0.95, 0.8, 0.01
# Source: filter_overlap_boxes.
_LEAST_SIDE_PX = 6
_FORMULA_OVERLAP, _OVERLAP = 0.5, 0.7
_WITH_CONTENT_OF_THEIR_OWN = frozenset({"image", "table", "seal", "chart"})

_CLIPPER_SCALE = 16.0  # pyclipper counts in integers: sixteenths of a pixel


@dataclass(frozen=True, eq=False)
class _Found:
    """One row of the graph: corners in whole page pixels, the mask uint8 (side, side) of the whole page."""

    label: str
    score: float
    box: Box
    order: tuple[float, float]
    mask: NDArray[np.uint8] | None
    absorbs: bool

    @property
    def area(self) -> float:
        return (self.box[2] - self.box[0]) * (self.box[3] - self.box[1])


def prepare(pixels: NDArray[np.uint8], facts: DocLayoutFacts) -> dict[str, NDArray[np.float32]]:
    """uint8 (H, W, 3) RGB -> by input: image float32 (1, 3, 800, 800) RGB 0..1, im_shape and scale_factor (1, 2).

    The page is stretched, bicubic as OpenCV does it. Both pairs are height, width: 800, 800 and 800 / H, 800 / W, by
    which the graph turns its boxes into page pixels.

    Source: inference.yml of the models (interp 2, mean 0, std 1) and the predictor of PaddleX.
    """
    height, width = pixels.shape[:2]
    side = facts.side_px
    small = cv2.resize(np.ascontiguousarray(pixels), (side, side), interpolation=cv2.INTER_CUBIC)
    image = np.ascontiguousarray(small.transpose(2, 0, 1)[None], np.float32) / np.float32(255)
    return {
        "image": image,
        "im_shape": np.array([[side, side]], np.float32),
        "scale_factor": np.array([[side / height, side / width]], np.float32),
    }


def decode(
    outputs: Sequence[NDArray[np.generic]], width_px: int, height_px: int, facts: DocLayoutFacts, **wishes: Any
) -> list[Region]:
    """The regions that are read: those of `find` (which takes the same arguments), without what others overlap."""
    return choose(find(outputs, width_px, height_px, facts, **wishes))


def choose(regions: Sequence[Region]) -> list[Region]:
    """Those that are read, with `order` from 0 again."""
    return [replace(region, order=place) for place, region in enumerate(filter_overlaps(regions))]


def find(
    outputs: Sequence[NDArray[np.generic]],
    width_px: int,
    height_px: int,
    facts: DocLayoutFacts,
    *,
    threshold: float | None = None,
    shape: LayoutShape = "auto",
    nms: bool = True,
    merge: LayoutMerge = "auto",
    unclip: float = 1.0,
) -> list[Region]:
    """Outputs of the graph for one page, by place, -> all regions in reading order, `order` from 0.

    outputs     rows float32 (N, 7 or 8): class, score, left, top, right, bottom in page pixels, then the order (V2 has
                a second column that decides ties, largest first); counts int (1,); V3: masks int (N, S, S), 0 or 1
    threshold   for every label, in place of the model's own
    nms         drop what covers a better one
    merge       of regions in regions, "large" drops the inner ones, "small" the outer ones, "union" none; "auto" the
                inner ones of the labels that the published pipelines name
    unclip      makes regions this many times as wide and high, about their centres

    Differs: upstream compares with a threshold only when it is a float; an integer one switches that off. Outlines end
    at the page like boxes; upstream leaves them as long as the network says, and judges overlaps by that. Outlines grow
    with their boxes; upstream's stay, and what was won around them is painted white.

    Raises: InferenceError when these are no such outputs.
    """
    rows, masks = _rows(outputs, facts)
    found = _above_threshold(rows, masks, facts, threshold)
    if nms:
        found = _suppressed(found)
    found = _without_page_images(found, width_px, height_px)
    found = _merged(found, merge)
    found.sort(key=lambda one: one.order)
    polygons = _polygons(found, width_px, height_px, shape)
    regions: list[Region] = []
    for one, polygon in zip(found, polygons, strict=True):
        box, outline = _grown(one.box, polygon, unclip)
        left, top, right, bottom = _clamped(box, width_px, height_px)
        if right > left and bottom > top:
            within = tuple((min(max(x, 0.0), float(width_px)), min(max(y, 0.0), float(height_px))) for x, y in outline)
            regions.append(Region(one.label, one.score, within, len(regions), (left, top, right, bottom)))
    return regions


def _rows(outputs: Sequence[NDArray[np.generic]], facts: DocLayoutFacts) -> tuple[Values, NDArray[np.generic] | None]:
    wanted = 3 if facts.masks else 2
    if len(outputs) >= wanted:
        rows, counts, masks = outputs[0], outputs[1], outputs[2] if facts.masks else None
        good = rows.ndim == 2 and rows.shape[1] in (7, 8) and counts.size == 1
        if good and (masks is None or (masks.ndim == 3 and len(masks) == len(rows))):
            count = int(counts.ravel()[0])
            return rows[:count].astype(np.float64), None if masks is None else masks[:count]
    shapes = ", ".join(str(list(output.shape)) for output in outputs)
    raise InferenceError(
        f"the layout model gave outputs of shapes {shapes}, which are no regions of one page",
        fix="fetch and convert the layout model again",
    )


def _above_threshold(
    rows: Values, masks: NDArray[np.generic] | None, facts: DocLayoutFacts, threshold: float | None
) -> list[_Found]:
    """Rows with a label and more than the threshold's score, their corners rounded to whole pixels."""
    found = []
    for place, row in enumerate(rows):
        number = int(row[0])
        if not 0 <= number < len(facts.labels):
            continue
        label = facts.labels[number]
        if row[1] > (label.threshold if threshold is None else threshold):
            left, top, right, bottom = (float(value) for value in np.round(row[2:6]))
            order = (float(row[6]), -float(row[7]) if len(row) > 7 else 0.0)
            mask = None if masks is None else (masks[place] != 0).astype(np.uint8)
            found.append(_Found(label.name, float(row[1]), (left, top, right, bottom), order, mask, label.absorbs))
    return found


def _suppressed(found: Sequence[_Found]) -> list[_Found]:
    """Best scores first, without what covers a better one nearly. Widths count one pixel more, as upstream's do."""
    kept: list[_Found] = []
    for one in sorted(found, key=lambda one: -one.score):
        if all(_iou(one.box, other.box) < _limit(one, other) for other in kept):
            kept.append(one)
    return kept


def _limit(one: _Found, other: _Found) -> float:
    return _IOU_SAME if one.label == other.label else _IOU_OTHER


def _iou(a: Box, b: Box) -> float:
    width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]) + 1)
    height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]) + 1)
    areas = [(box[2] - box[0] + 1) * (box[3] - box[1] + 1) for box in (a, b)]
    return width * height / (sum(areas) - width * height)


def _without_page_images(found: list[_Found], width_px: int, height_px: int) -> list[_Found]:
    """Without images that are nearly the whole page, unless nothing else is there."""
    share = _LARGEST_IMAGE_LANDSCAPE if width_px > height_px else _LARGEST_IMAGE
    if len(found) < 2:
        return found
    kept = []
    for one in found:
        left, top, right, bottom = _clamped(one.box, width_px, height_px)
        if one.label != "image" or (right - left) * (bottom - top) <= share * width_px * height_px:
            kept.append(one)
    return kept or found


def _merged(found: Sequence[_Found], mode: LayoutMerge) -> list[_Found]:
    """Without regions of any label that lie to 90 % in one of an absorbing label, or as `mode` says.

    Differs: of two that absorb each other (one title, found as doc_title and as paragraph_title) the surer one stays;
    upstream drops both, and the title is lost.
    """
    if mode == "union":
        return list(found)
    if mode == "small":
        return [one for one in found if not _any_in(found, one) or _in_any(one, found)]
    if mode == "large":
        found = [replace(one, absorbs=True) for one in found]
    return [
        one
        for one in found
        if not any(
            other is not one and other.absorbs and _lies_in(one, other) and not _is_surer_twin(one, other)
            for other in found
        )
    ]


def _any_in(found: Sequence[_Found], one: _Found) -> bool:
    return any(_lies_in(other, one) for other in found if other is not one)


def _in_any(one: _Found, found: Sequence[_Found]) -> bool:
    return any(_lies_in(one, other) for other in found if other is not one)


def _is_surer_twin(one: _Found, other: _Found) -> bool:
    """Whether `one` is absorbed by `other` and absorbs it, too, and goes before it."""
    return one.absorbs and _lies_in(other, one) and (one.score, -one.order[0]) > (other.score, -other.order[0])


def _lies_in(one: _Found, other: _Found) -> bool:
    return one.area > 0 and _shared(one.box, other.box) / one.area >= _CONTAINED


def _polygons(found: Sequence[_Found], width_px: int, height_px: int, shape: LayoutShape) -> list[Polygon]:
    """The outline of each region by its mask: a rectangle, a turned rectangle, or a polygon; V2 gives rectangles."""
    widest = _widest(found)
    polygons: list[Polygon] = []
    for one in found:
        outline = None
        if shape != "rect" and one.mask is not None:
            outline = _outline(one.box, one.mask, width_px, height_px, widest)
        polygons.append(choose_shape(one.box, outline, shape, polygons[-1] if polygons else None))
    return polygons


def _widest(found: Sequence[_Found]) -> float:
    """Differs: the largest width is that of the boxes; upstream takes right minus top."""
    return max((one.box[2] - one.box[0] for one in found), default=0.0)


def _outline(box: Box, mask: NDArray[np.uint8], width_px: int, height_px: int, widest: float) -> Polygon | None:
    """The largest piece of the mask inside the box as a polygon in page pixels; None for less than four points."""
    width, height = int(box[2] - box[0]), int(box[3] - box[1])
    if width <= 0 or height <= 0:
        return None
    rows, columns = mask.shape
    left, right = (min(max(round(x * columns / width_px), 0), columns) for x in (box[0], box[2]))
    top, bottom = (min(max(round(y * rows / height_px), 0), rows) for y in (box[1], box[3]))
    part = mask[top:bottom, left:right]
    if not part.any():
        return None
    full = cv2.resize(np.ascontiguousarray(part), (width, height), interpolation=cv2.INTER_NEAREST)
    contours, _ = cv2.findContours(full, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    contour = max(contours, key=cv2.contourArea)
    points = cv2.approxPolyDP(contour, _EPSILON * cv2.arcLength(contour, True), True).reshape(-1, 2)
    reach = width if width > _WIDE * widest else widest
    kept = simplified(points.astype(np.float64), _LONGEST_EDGE * reach)
    if len(kept) < 4:
        return None
    return _clockwise([(x + box[0], y + box[1]) for x, y in kept])


def simplified(points: Values, longest: float) -> list[tuple[float, float]]:
    """An outline without its small dents: float64 (N, 2), anticlockwise as OpenCV gives outer contours.

    Outward corners stay. Dents stay where two or more follow each other, at their corners of 120 degrees and more.
    Between neighbours further apart than `longest` original points come back, evenly.

    Differs: upstream moves outward corners of 45 degrees along their bisector by half the length of both edges, far
    into the region; they stay where they are. A run of dents over the first point is a run here.
    """
    count = len(points)
    before, after = np.roll(points, 1, axis=0) - points, np.roll(points, -1, axis=0) - points
    is_corner = (-before[:, 0] * after[:, 1] + before[:, 1] * after[:, 0]) < 0
    lengths = np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
    cosines = (before * after).sum(axis=1) / np.maximum(lengths, 1e-9)
    degrees = np.degrees(np.arccos(np.clip(cosines, -1, 1)))
    in_run = ~is_corner & (~np.roll(is_corner, 1) | ~np.roll(is_corner, -1))
    kept = [i for i in range(count) if is_corner[i] or (in_run[i] and degrees[i] >= _LEAST_CONCAVE_DEGREES)]
    chosen = set(kept)
    for place, current in enumerate(kept):
        following = kept[(place + 1) % len(kept)]
        distance = float(np.linalg.norm(points[current] - points[following]))
        between = [i % count for i in range(current + 1, following + (count if following <= current else 0))]
        if distance > longest and between:
            wanted = min(len(between), math.ceil(distance / longest) - 1)
            chosen.update(between[int(i * len(between) / wanted)] for i in range(wanted))
    return [(float(x), float(y)) for x, y in points[sorted(chosen)]]


def choose_shape(box: Box, outline: Polygon | None, shape: LayoutShape, previous: Polygon | None) -> Polygon:
    """The outline as `shape` asks.

    auto: the rectangle where it is nearly the smallest turned one; that one where it is nearly the outline, and the
    region before is clear of the box; else the outline.
    """
    rectangle = box_polygon(*box)
    if shape == "rect" or outline is None:
        return rectangle
    if shape == "poly":
        return outline
    quad = _quad(outline)
    if shape == "quad":
        return quad
    if _overlap(rectangle, quad) >= _IS_RECTANGLE:
        return rectangle
    apart = previous is None or share_of_smaller(previous, rectangle) < _APART
    return quad if apart and _overlap(outline, quad) >= _IS_QUAD else outline


def _quad(outline: Polygon) -> Polygon:
    """The smallest turned rectangle around the outline."""
    corners = cv2.boxPoints(cv2.minAreaRect(np.array(outline, np.float32)))
    return _clockwise([(float(x), float(y)) for x, y in corners])


def _clockwise(points: Sequence[tuple[float, float]]) -> Polygon:
    """The same outline, clockwise on the page from the point nearest to its top-left corner."""
    area = sum(x * v - u * y for (x, y), (u, v) in zip(points, (*points[1:], points[0]), strict=True))
    ordered = list(points) if area > 0 else list(points)[::-1]
    first = min(range(len(ordered)), key=lambda i: ordered[i][0] + ordered[i][1])
    return tuple(ordered[first:] + ordered[:first])


def filter_overlaps(regions: Sequence[Region]) -> list[Region]:
    """Without references, specks, formulas inside other regions, and the smaller of two that overlap by 70 %.

    Pictures, tables, seals and charts may overlap each other, and pictures, seals and charts text.
    """
    kept = [region for region in regions if region.label != "reference"]
    dropped: set[int] = set()
    for place, region in enumerate(kept):
        left, top, right, bottom = region.bounds
        if right - left < _LEAST_SIDE_PX or bottom - top < _LEAST_SIDE_PX:
            dropped.add(place)
    for i, one in enumerate(kept):
        for j in range(i + 1, len(kept)):
            if i not in dropped and j not in dropped:
                dropped |= _losers(i, one, j, kept[j])
    return [region for place, region in enumerate(kept) if place not in dropped]


def _losers(i: int, one: Region, j: int, other: Region) -> set[int]:
    """Which of two regions goes, by their places."""
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one.bounds, other.bounds)]
    share = _shared(one.bounds, other.bounds) / min(areas)
    formulas = {place for place, region in ((i, one), (j, other)) if region.label == "inline_formula"}
    if formulas and share > _FORMULA_OVERLAP:
        return formulas
    if share <= _OVERLAP or share_of_smaller(one.polygon, other.polygon) < _OVERLAP:
        return set()
    labels = {one.label, other.label}
    may_overlap = len(labels) > 1 and bool(labels & _WITH_CONTENT_OF_THEIR_OWN)
    if may_overlap and ("table" not in labels or labels <= _WITH_CONTENT_OF_THEIR_OWN):
        return set()
    return {j} if areas[0] >= areas[1] else {i}


def share_of_smaller(a: Polygon, b: Polygon) -> float:
    """What two polygons share as a part of the smaller one, 0..1."""
    smaller = min(_common(a, a), _common(b, b))
    return _common(a, b) / smaller if smaller > 0 else 0.0


def _overlap(a: Polygon, b: Polygon) -> float:
    """Intersection over union of two polygons."""
    common = _common(a, b)
    union = _common(a, a) + _common(b, b) - common
    return common / union if union > 0 else 0.0


def _common(a: Polygon, b: Polygon) -> float:
    """The area that two polygons share, in square pixels; they may be concave and cross themselves."""
    clipper = pyclipper.Pyclipper()
    try:
        for polygon, kind in ((a, pyclipper.PT_SUBJECT), (b, pyclipper.PT_CLIP)):
            clipper.AddPath([(round(x * _CLIPPER_SCALE), round(y * _CLIPPER_SCALE)) for x, y in polygon], kind, True)
    except pyclipper.ClipperException:  # one of them has no area
        return 0.0
    paths = clipper.Execute(pyclipper.CT_INTERSECTION, pyclipper.PFT_NONZERO, pyclipper.PFT_NONZERO)
    # Outer contours count positive, holes negative.
    return abs(float(sum(pyclipper.Area(path) for path in paths))) / _CLIPPER_SCALE**2


def _clamped(box: Box, width_px: int, height_px: int) -> Box:
    return max(0.0, box[0]), max(0.0, box[1]), min(float(width_px), box[2]), min(float(height_px), box[3])


def _grown(box: Box, outline: Polygon, ratio: float) -> tuple[Box, Polygon]:
    """Both so many times as wide and high, about the centre of the box, which keeps whole pixels."""
    if ratio == 1.0:
        return box, outline
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    points = tuple((x + (u - x) * ratio, y + (v - y) * ratio) for u, v in (*outline, box[:2], box[2:]))
    left, top, right, bottom = (float(round(value)) for value in (*points[-2], *points[-1]))
    if outline == box_polygon(*box):
        return (left, top, right, bottom), box_polygon(left, top, right, bottom)
    return (left, top, right, bottom), points[:-2]


def _shared(a: Box, b: Box) -> float:
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    return width * height if width > 0 and height > 0 else 0.0
