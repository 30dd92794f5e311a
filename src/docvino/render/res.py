"""Document -> the result JSON of PaddleOCR-VL, for programs that read that.

Source: PaddleX 3.7.2, the `res` object of a PaddleOCR-VL result, as a format; one object a page.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from docvino.document import Block, Document, Page, polygon_box
from docvino.render.flow import FIGURE, FURNITURE
from docvino.text import math

# Source: PaddleX 3.7.2, labels of PP-DocLayoutV3 in the order of their numbers.
LABELS = (
    "abstract", "algorithm", "aside_text", "chart", "content", "display_formula", "doc_title", "figure_title", "footer",
    "footer_image", "footnote", "formula_number", "header", "header_image", "image", "inline_formula", "number",
    "paragraph_title", "reference", "reference_content", "seal", "table", "text", "vertical_text", "vision_footnote",
)  # fmt: skip

# What other layout models and whole-page reading call the same things.
_ALIASES = {
    "figure": "image",
    "figure_caption": "figure_title",
    "table_caption": "figure_title",
    "chart_title": "figure_title",
    "table_title": "figure_title",
    "title": "paragraph_title",
    "abstract_title": "paragraph_title",
    "reference_title": "paragraph_title",
    "content_title": "paragraph_title",
    "equation": "display_formula",
    "formula": "display_formula",
}
# Source: PaddleX 3.7.2: labels without a number of their own in the reading order.
_UNNUMBERED = frozenset(
    {"aside_text", "chart", "figure_title", "footer", "footer_image", "footnote", "header", "header_image", "image"}
    | {"number", "table", "vision_footnote"}
)
_BETWEEN_TAGS = re.compile(r">\n<")


def to_res(document: Document, input_path: str | None) -> Iterator[tuple[Page, str]]:
    """The result of each page, as upstream writes it to `NAME_res.json`: indented by 4, characters as they are."""
    for page, result in results(document, input_path):
        yield page, json.dumps(result, ensure_ascii=False, indent=4) + "\n"


def results(document: Document, input_path: str | None) -> Iterator[tuple[Page, dict[str, Any]]]:
    """The result of each page.

    Differs: `page_index` is that of the source where only some pages were read, and `page_count` counts those read.
    A page that failed is there without blocks.
    """
    is_picture = document.source.media_type != "application/pdf" and len(document.pages) == 1
    has_layout = any(block.layout_score is not None for one in document.pages for block in one.blocks)
    was_turned = any(one.rotation_degrees for one in document.pages)
    settings = {
        "use_doc_preprocessor": was_turned,
        "use_layout_detection": has_layout,
        "use_chart_recognition": _any(document, "chart"),
        "use_seal_recognition": _any(document, "seal"),
        "use_ocr_for_image_block": _any(document, "image"),
        "format_block_content": False,
        "merge_layout_blocks": True,
        "markdown_ignore_labels": sorted(FURNITURE),
        "return_layout_polygon_points": True,
    }
    for page in document.pages:
        place = {"input_path": input_path, "page_index": None if is_picture else page.page_index}
        found: dict[str, Any] = {
            **place,
            "page_count": None if is_picture else len(document.pages),
            "width": page.width_px,
            "height": page.height_px,
            "model_settings": settings,
            "parsing_res_list": _parsed(page),
        }
        if document.provenance.options.get("task") == "spotting" and not has_layout:
            found["spotting_res"] = _spotted(page)
        if was_turned:
            how = {"use_doc_orientation_classify": True, "use_doc_unwarping": False}
            # Upstream counts counter-clockwise.
            angle = (360 - page.rotation_degrees) % 360
            found["doc_preprocessor_res"] = {**place, "model_settings": how, "angle": angle}
        if has_layout:
            found["layout_det_res"] = {**place, "boxes": _boxes(page)}
        yield page, found


def _spotted(page: Page) -> dict[str, Any]:
    lines = [line for block in page.blocks for line in block.lines]
    polygons = [[list(point) for point in line.polygon] for line in lines]
    return {"rec_polys": polygons, "rec_texts": [line.text for line in lines]}


def _any(document: Document, label: str) -> bool:
    """True when text was read in blocks of this label."""
    return any(
        _label(block, first=False) == label and block.content for page in document.pages for block in page.blocks
    )


def _parsed(page: Page) -> list[dict[str, Any]]:
    entries = []
    numbered = 0
    for place, block in enumerate(page.blocks):
        label = _label(block, first=page.page_index == 0 and block.order == 0)
        has_number = label not in _UNNUMBERED and label not in FURNITURE
        numbered += has_number
        boxes = [polygon_box(polygon) for polygon in block.polygons]
        hull = [
            *(int(min(box[side] for box in boxes)) for side in (0, 1)),
            *(round(max(box[side] for box in boxes)) for side in (2, 3)),
        ]
        entries.append(
            {
                "block_label": label,
                "block_content": _content(block),
                "block_bbox": hull,
                "block_id": place,
                "block_order": numbered if has_number else None,
                "group_id": place if block.group is None else block.group,
                "block_polygon_points": [list(point) for point in block.polygons[0]],
            }
        )
    return entries


def _boxes(page: Page) -> list[dict[str, Any]]:
    boxes = []
    for block in page.blocks:
        label = _label(block, first=page.page_index == 0 and block.order == 0)
        if block.layout_score is None or label not in LABELS:
            continue
        boxes += [
            {
                "cls_id": LABELS.index(label),
                "label": label,
                "score": block.layout_score,
                "coordinate": list(polygon_box(polygon)),
                "order": None if label in _UNNUMBERED else block.order + 1,
                "polygon_points": [list(point) for point in polygon],
            }
            for polygon in block.polygons
        ]
    return boxes


def _label(block: Block, *, first: bool) -> str:
    """The label as PP-DocLayoutV3 says it; one that it does not know stays."""
    if block.label == "title" and first:
        return "doc_title"
    return _ALIASES.get(block.label, block.label)


def _content(block: Block) -> str:
    if block.format == "html":
        return _BETWEEN_TAGS.sub("><", FIGURE.sub("", block.content))
    if block.format == "latex":
        return "".join(f" $$ {formula} $$ " for formula in block.content.split("\n\n"))
    # Source: PaddleX 3.7.2, the formula rule of the pipeline PaddleOCR-VL, blank by blank.
    written = {"text": "{}", "inline": " $ {} $", "display": " $$ {} $$ "}
    return "".join(written[kind].replace("{}", piece) for kind, piece in math.split(block.content))
