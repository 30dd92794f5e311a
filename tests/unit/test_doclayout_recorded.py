"""Facts of the steps after PP-DocLayoutV3: on random pages they give what PaddleX 3.7.2 gives.

Recorded by tools/record_layout_steps.py from PaddleX's own functions, faults included: docvino's steps get those back
for the comparison.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from docvino.codec import doclayout
from docvino.document import Polygon
from docvino.settings import LayoutShape, ParseOptions
from docvino.specs.doclayout import FACTS_V3
from docvino.text.routing import route

RECORDED = Path(__file__).resolve().parents[1] / "data" / "doclayout-steps.npz"
SHAPES: tuple[LayoutShape, ...] = ("rect", "quad", "poly", "auto")
PAGES = range(60)


@pytest.fixture
def as_upstream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives docvino's steps the three faults of upstream's that they were rid of."""
    simplified = doclayout.simplified
    monkeypatch.setattr(doclayout, "_is_surer_twin", lambda *_: False)
    monkeypatch.setattr(doclayout, "_widest", lambda found: max(one.box[2] - one.box[1] for one in found))
    monkeypatch.setattr(
        doclayout, "simplified", lambda points, longest: moved_corners(points, simplified(points, longest))
    )


def moved_corners(points: NDArray[np.float64], kept: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Outward corners of 45 degrees moved along their bisector by half the length of both edges."""
    moved = {}
    for place, point in enumerate(points):
        edges = points[place - 1] - point, points[(place + 1) % len(points)] - point
        lengths = [float(np.linalg.norm(edge)) for edge in edges]
        units = [edge / length for edge, length in zip(edges, lengths, strict=True)]
        degrees = np.degrees(np.arccos(np.clip(units[0] @ units[1], -1, 1)))
        is_corner = edges[0][1] * edges[1][0] - edges[0][0] * edges[1][1] < 0
        if is_corner and abs(degrees - 45) < 1:
            bisector = units[0] + units[1]
            x, y = point + bisector / np.linalg.norm(bisector) * sum(lengths) / 2
            moved[tuple(point)] = (float(x), float(y))
    return [moved.get(point, point) for point in kept]


def recorded(page: int) -> tuple[int, int, list[NDArray[Any]], dict[str, Any]]:
    with np.load(RECORDED) as arrays:
        width, height = (int(side) for side in arrays[f"size_{page}"])
        rows = arrays[f"rows_{page}"]
        masks = np.unpackbits(arrays[f"masks_{page}"])[: len(rows) * 200 * 200].reshape(-1, 200, 200)
        wanted = json.loads(str(arrays[f"wanted_{page}"]))
    return width, height, [rows, np.array([len(rows)], np.int32), masks.astype(np.int32)], wanted


def same(polygon: Polygon, wanted: Any, width: int, height: int) -> bool:
    """Whether the outlines have the same corners to a fifth of a pixel, the recorded one cut off at the page."""
    theirs = np.clip(np.array(wanted), 0, [width, height])
    distances = np.linalg.norm(np.array(polygon)[:, None] - theirs[None], axis=2)
    return bool(distances.min(axis=0).max() < 0.2 and distances.min(axis=1).max() < 0.2)


@pytest.mark.usefixtures("as_upstream")
@pytest.mark.parametrize("page", PAGES)
def test_regions_outlines_and_what_is_read_together_are_those_of_upstream(page: int) -> None:
    width, height, outputs, recordings = recorded(page)
    for shape in SHAPES:
        wanted = recordings[shape]
        regions = doclayout.decode(outputs, width, height, FACTS_V3, shape=shape)
        assert [(r.label, list(r.bounds)) for r in regions] == [(r["label"], r["box"]) for r in wanted["regions"]]
        if shape != "rect":
            pairs = zip(regions, wanted["regions"], strict=True)
            assert all(same(mine.polygon, theirs["polygon"], width, height) for mine, theirs in pairs), shape
        groups = sorted(list(element.regions) for element in route(regions, ParseOptions()))
        assert [group for group in groups if len(group) > 1] == [g for g in wanted["groups"] if len(g) > 1]


def test_the_recorded_pages_show_what_was_mended() -> None:
    """Without upstream's faults some of them come out differently: what is said to differ does."""
    lost, other = 0, 0
    for page in PAGES:
        width, height, outputs, recordings = recorded(page)
        regions = doclayout.decode(outputs, width, height, FACTS_V3, shape="poly")
        wanted = recordings["poly"]["regions"]
        lost += len(regions) > len(wanted)
        if len(regions) == len(wanted):
            pairs = zip(regions, wanted, strict=True)
            other += not all(same(mine.polygon, theirs["polygon"], width, height) for mine, theirs in pairs)
    assert lost >= 2  # titles that upstream drops twice
    assert other >= 10
