"""Records what PaddleX makes of random rows and masks of PP-DocLayoutV3, for tests/unit/test_doclayout_recorded.py.

    python -m pip install paddlex==3.7.2 shapely opencv-contrib-python numpy    (in an environment of its own)
    python tools/record_layout_steps.py

Nothing of docvino is imported: PaddleX's own functions do all the work, from the rows of the graph to the groups of
texts that are read together. Needed only when a newer PaddleX is to be followed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from paddlex.inference.models.layout_analysis.processors import LayoutAnalysisProcess
from paddlex.inference.pipelines.paddleocr_vl.uilts import filter_overlap_boxes, merge_blocks

TARGET = Path(__file__).resolve().parents[1] / "tests" / "data" / "doclayout-steps.npz"
PAGES = 60
SHAPES = ("rect", "quad", "poly", "auto")
# Source: inference.yml of PP-DocLayoutV3 and PaddleOCR-VL-1.6.yaml of PaddleX 3.7.2.
LABELS = (
    *("abstract", "algorithm", "aside_text", "chart", "content", "display_formula", "doc_title", "figure_title"),
    *("footer", "footer_image", "footnote", "formula_number", "header", "header_image", "image", "inline_formula"),
    *("number", "paragraph_title", "reference", "reference_content", "seal", "table", "text", "vertical_text"),
    "vision_footnote",
)
LARGE = ("chart", "display_formula", "doc_title", "inline_formula", "paragraph_title")
MODES = {number: "large" if label in LARGE else "union" for number, label in enumerate(LABELS)}
DRAWN = [LABELS.index(label) for label in ("text",) * 5 + ("table", "image", "chart", "seal", "doc_title", "footer")]
DRAWN += [LABELS.index(label) for label in ("paragraph_title", "inline_formula", "display_formula", "reference")]
NOT_MERGED = ["image", "header_image", "footer_image", "chart", "seal", "table"]


def page(dice: np.random.Generator) -> tuple[int, int, NDArray[np.float32], NDArray[np.int32]]:
    """Width, height, rows (N, 7), masks (N, 200, 200): boxes beside, under and upon each other, any outlines."""
    width, height = (int(side) for side in dice.integers(400, 1600, 2))
    rows: list[list[float]] = []
    masks = []
    for _ in range(int(dice.integers(3, 14))):
        box = box_near(rows, dice, width, height)
        box = np.clip(box, 0, [width, height, width, height])
        if min(box[2] - box[0], box[3] - box[1]) < 3:
            continue
        rows.append([int(dice.choice(DRAWN)), float(dice.uniform(0.2, 1)), *(float(value) for value in box), 0])
        masks.append(mask(box * np.tile([200 / width, 200 / height], 2), dice))
    for row, order in zip(rows, dice.permutation(len(rows)), strict=True):
        row[6] = int(order)
    return width, height, np.array(rows, np.float32), np.array(masks, np.int32)


def box_near(rows: list[list[float]], dice: np.random.Generator, width: int, height: int) -> NDArray[np.float64]:
    """A box anywhere, or one that stands to the last one as parts of a text do."""
    if not rows or dice.random() < 0.3:
        left, top = dice.uniform(0, width * 0.8), dice.uniform(0, height * 0.8)
        return np.array([left, top, left + dice.uniform(10, width / 2), top + dice.uniform(10, height / 3)])
    left, top, right, bottom = rows[-1][2:6]
    kind = dice.integers(4)
    if kind == 0:  # upon it
        return np.array(rows[-1][2:6]) + dice.normal(0, 8, 4)
    if kind == 1:  # under it, the left edges aligned
        return np.array([left + dice.integers(-6, 7), bottom + dice.integers(-5, 30), right - 90, bottom + 120])
    if kind == 2:  # under it, the right edges aligned
        return np.array([left + 60, bottom + dice.integers(-5, 30), right + dice.integers(-6, 7), bottom + 90])
    return np.array([right + dice.integers(2, 60), top - 80, 2 * right - left, top + 60])  # the next column


def mask(box: NDArray[np.float64], dice: np.random.Generator) -> NDArray[np.uint8]:
    """One outline in the box, both in mask pixels: all of it, an L, a turned rectangle or a star."""
    drawn = np.zeros((200, 200), np.uint8)
    (left, top, right, bottom), middle = box, (box[:2] + box[2:]) / 2
    kind = dice.integers(4)
    if kind == 0:
        points = np.array([(left, top), (right, top), (right, bottom), (left, bottom)])
    elif kind == 1:
        x, y = middle
        points = np.array([(left, top), (right, top), (right, y), (x, y), (x, bottom), (left, bottom)])
    elif kind == 2:
        angle, half = dice.uniform(-0.6, 0.6), (box[2:] - box[:2]) * 0.4
        turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
        points = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)]) * half @ turn + middle
    else:
        angles, reach = np.sort(dice.uniform(0, 2 * np.pi, 12)), dice.uniform(0.3, 1, (12, 1))
        points = np.stack([np.cos(angles), np.sin(angles)], 1) * reach * (box[2:] - box[:2]) / 2 + middle
    cv2.fillPoly(drawn, [points.round().astype(np.int32)], 1)
    return drawn


def steps(width: int, height: int, rows: NDArray[Any], masks: NDArray[Any], shape: str) -> dict[str, Any]:
    """What PaddleX makes of a page: regions after all steps, and which of them are read together."""
    process = LayoutAnalysisProcess(labels=list(LABELS), scale_size=[800, 800])
    found = process.apply(
        rows.copy(), (width, height), 0.3, True, [1.0, 1.0], MODES, masks=masks.copy(), layout_shape_mode=shape
    )
    boxes = filter_overlap_boxes({"boxes": list(found)}, shape)["boxes"]
    regions = [
        {
            "label": box["label"],
            "box": [int(value) for value in box["coordinate"]],
            "polygon": np.round(np.asarray(box["polygon_points"], float), 3).tolist()
            if "polygon_points" in box
            else None,
        }
        for box in boxes
    ]
    blocks = []
    for number, region in enumerate(regions):
        left, top, right, bottom = region["box"]
        blocks.append({**region, "number": number, "img": np.zeros((bottom - top, right - left, 3), np.uint8)})
    groups: dict[int, list[int]] = {}
    for block in merge_blocks(blocks, NOT_MERGED):
        groups.setdefault(block.get("group_id", block["number"]), []).append(block["number"])
    return {"regions": regions, "groups": sorted(groups.values())}


def main() -> None:
    dice = np.random.default_rng(20261130)
    pages = [page(dice) for _ in range(PAGES)]
    arrays: dict[str, NDArray[Any]] = {}
    for number, (width, height, rows, masks) in enumerate(pages):
        arrays[f"size_{number}"] = np.array([width, height])
        arrays[f"rows_{number}"] = rows
        arrays[f"masks_{number}"] = np.packbits(masks.astype(np.uint8))
        wanted = {shape: steps(width, height, rows, masks, shape) for shape in SHAPES}
        arrays[f"wanted_{number}"] = np.array(json.dumps(wanted))
    np.savez_compressed(TARGET, **arrays)
    print(f"{TARGET}: {PAGES} pages, {sum(len(rows) for _, _, rows, _ in pages)} rows, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
