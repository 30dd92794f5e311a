"""Document -> the result JSON of PaddleOCR-VL, for programs that read that.

Source: PaddleX 3.7.2, the `res` object of a PaddleOCR-VL result, as a format; one object a page.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from docvino.document import Block, Box, Document, Found, Page, box_polygon, polygon_box
from docvino.render.flow import FIGURE, FURNITURE, PICTURES, pages_to_read
from docvino.render.tables import rows_of
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
# Source: PaddleX 3.7.2: SKIP_ORDER_LABELS, labels without a number of their own in the reading order.
_UNNUMBERED = frozenset(
    {"aside_text", "chart", "figure_title", "footer", "footer_image", "footnote", "header", "header_image", "image"}
    | {"table", "vision_footnote"}
)
_BETWEEN_TAGS = re.compile(r">\n<")

Result = dict[str, Any]


def to_res(
    document: Document, input_path: str | None, images: Mapping[str, str] = MappingProxyType({})
) -> Iterator[tuple[Page | None, str]]:
    """The result of each page, as upstream writes it to `NAME_res.json`: indented by 4, characters as they are.

    images   block id -> link target, for figures in cells; one without is left out

    One result of all pages, which has no page, where the document was read with `concatenate_pages`.
    """
    for page, result in results(document, input_path, images):
        yield page, json.dumps(result, ensure_ascii=False, indent=4) + "\n"


def results(
    document: Document, input_path: str | None, images: Mapping[str, str] = MappingProxyType({})
) -> Iterator[tuple[Page | None, Result]]:
    """The result of each page, or the one of all.

    Differs: `page_index` is that of the source where only some pages were read, and `page_count` counts those read.
    A page that failed is there without blocks. `group_id` is the `block_id` of the first block of a group also where
    pages are concatenated (upstream then has the same one for a group of each page).
    """
    made = _Results(document, input_path, images)
    if not document.provenance.options.get("concatenate_pages") or not document.pages:
        yield from made.pages()
        return
    parts = [result for _, result in made.pages()]
    whole = {**parts[0], "page_index": None, "page_count": len(parts)}
    whole["parsing_res_list"] = made.numbered([entry for part in parts for entry in part["parsing_res_list"]])
    for name in ("doc_preprocessor_res", "layout_det_res"):
        if name in whole:
            whole[name] = [part[name] for part in parts]
    yield None, whole


class _Results:
    """Results of the pages of one document."""

    def __init__(self, document: Document, input_path: str | None, images: Mapping[str, str]) -> None:
        self._document, self._input_path, self._images = document, input_path, images
        self._options = document.provenance.options
        self._is_picture = document.source.media_type != "application/pdf" and len(document.pages) == 1
        self._has_layout = any(
            page.regions or any(block.layout_score is not None for block in page.blocks) for page in document.pages
        )
        self._was_turned = any(page.rotation_degrees for page in document.pages)
        self._has_outlines = self._options.get("layout_shape_mode") != "rect"
        self._texts = {
            block.id: block.content for page in document.pages for block in page.blocks if block.label in PICTURES
        }

    def pages(self) -> Iterator[tuple[Page, Result]]:
        document, options = self._document, self._options
        task = None if self._has_layout else options.get("task")
        settings = {
            "use_doc_preprocessor": self._was_turned,
            "use_layout_detection": self._has_layout,
            "use_chart_recognition": bool(options.get("use_chart_recognition")) or task == "chart",
            "use_seal_recognition": bool(options.get("use_seal_recognition")) or task == "seal",
            "use_ocr_for_image_block": bool(options.get("use_ocr_for_image_block")),
            "format_block_content": False,
            "merge_layout_blocks": options.get("merge_layout_blocks", True),
            "markdown_ignore_labels": sorted(FURNITURE),
            "return_layout_polygon_points": self._has_outlines,
        }
        known: dict[str, int] = {}  # the number over all pages of the first entry of each block
        count = 0
        for page, joined in zip(document.pages, pages_to_read(document), strict=True):
            place = {"input_path": self._input_path, "page_index": None if self._is_picture else page.page_index}
            entries = list(self._entries(joined, known, count))
            count += len(entries)
            found: Result = {
                **place,
                "page_count": None if self._is_picture else len(document.pages),
                "width": page.width_px,
                "height": page.height_px,
                "model_settings": settings,
                "parsing_res_list": self.numbered(entries),
            }
            if task == "spotting":
                found["spotting_res"] = _spotted(page)
            if self._was_turned:
                how = {"use_doc_orientation_classify": True, "use_doc_unwarping": False}
                # Upstream counts counter-clockwise.
                angle = (360 - page.rotation_degrees) % 360
                found["doc_preprocessor_res"] = {**place, "model_settings": how, "angle": angle}
            if self._has_layout:
                found["layout_det_res"] = {**place, "boxes": self._boxes(page)}
            yield page, found

    def numbered(self, entries: Sequence[Result]) -> list[Result]:
        """The entries with their places and their numbers in the reading order; `group_id` counts back to its first."""
        made = []
        order = 0
        for place, entry in enumerate(entries):
            has_number = entry["block_label"] not in _UNNUMBERED | FURNITURE
            order += has_number
            back = entry["block_id"] - entry["group_id"]
            numbers = {"block_id": place, "block_order": order if has_number else None, "group_id": place - back}
            made.append({**entry, **numbers})
        return made

    def _entries(self, page: Page, known: dict[str, int], count: int) -> Iterator[Result]:
        """One for each region of a block; the first of them has the text of all.

        A figure that a cell names is part of its table.

        Source: PaddleX 3.7.2, merge_blocks, restructure_pages and tokenize_figure_of_table.
        """
        in_cells = {name for block in page.blocks for cell in block.cells for name in cell.figures}
        boxes = {region.polygon: region.box for region in page.regions}
        place = 0
        for block in page.blocks:
            if block.id in in_cells:
                continue
            known[block.id] = count + place
            first = place
            for polygons in [(one,) for one in block.polygons] if block.group is not None else [block.polygons]:
                entry: Result = {
                    "block_label": self._label(page, block),
                    "block_content": self._content(block) if place == first else "",
                    "block_bbox": _box([boxes.get(polygon) or polygon_box(polygon) for polygon in polygons]),
                    "block_id": place,
                    "block_order": None,
                    "group_id": first,
                }
                if self._options.get("restructure_pages"):
                    entry["global_block_id"] = count + place
                    # A table that goes on belongs to the group of its first part.
                    known[block.id] = group = known.get(block.continues or "", known[block.id])
                    entry["global_group_id"] = group if place == first else count + place
                if self._has_outlines:
                    entry["block_polygon_points"] = [list(point) for point in polygons[0]]
                yield entry
                place += 1

    def _boxes(self, page: Page) -> list[Result]:
        """What the layout model found, before overlapping regions were dropped; of other layouts what became blocks."""
        found: Sequence[Found] = page.regions or [
            Found(label=label, score=block.layout_score, box=polygon_box(polygon), polygon=polygon)
            for block in page.blocks
            for label in [_named(block, first=page.page_index == 0 and block.order == 0)]
            if block.layout_score is not None and label in LABELS
            for polygon in block.polygons
        ]
        boxes = []
        order = 0
        for region in found:
            has_number = region.label not in _UNNUMBERED
            order += has_number
            box = {
                "cls_id": LABELS.index(region.label),
                "label": region.label,
                "score": region.score,
                "coordinate": list(region.box),
                "order": order if has_number else None,
            }
            if self._has_outlines:
                box["polygon_points"] = [list(point) for point in region.polygon]
            boxes.append(box)
        return boxes

    def _label(self, page: Page, block: Block) -> str:
        """A page that was read as one element is called by its task."""
        whole = (box_polygon(0.0, 0.0, float(page.width_px), float(page.height_px)),)
        if block.layout_score is None and block.polygons == whole and "task" in self._options:
            return str(self._options["task"])
        return _named(block, first=page.page_index == 0 and block.order == 0)

    def _content(self, block: Block) -> str:
        if block.label == "chart" and block.cells:
            return "\n".join(" | ".join(row) for row in rows_of(block.cells))
        if block.format == "html":
            return _BETWEEN_TAGS.sub("><", FIGURE.sub(lambda found: self._figure(found[1]), block.content))
        if block.format == "latex":
            return "".join(f" $$ {formula} $$ " for formula in block.content.split("\n\n"))
        # Source: PaddleX 3.7.2, the formula rule of the pipeline PaddleOCR-VL, blank by blank.
        written = {"text": "{}", "inline": " $ {} $", "display": " $$ {} $$ "}
        text = "".join(written[kind].replace("{}", piece) for kind, piece in math.split(block.content))
        return text.replace("$", "") if block.label == "formula_number" else text

    def _figure(self, name: str) -> str:
        """Source: PaddleX 3.7.2, untokenize_figure_of_table. Differs: the tag is sound HTML (upstream has `""`)."""
        tag = f'<img src="{html.escape(self._images[name])}" alt="Image" />' if name in self._images else ""
        return tag + html.escape(self._texts.get(name, ""), quote=False)


def _spotted(page: Page) -> Result:
    lines = [line for block in page.blocks for line in block.lines]
    polygons = [[list(point) for point in line.polygon] for line in lines]
    return {"rec_polys": polygons, "rec_texts": [line.text for line in lines]}


def _box(boxes: Sequence[Box]) -> list[int]:
    """Whole pixels around all of them."""
    return [
        *(int(min(box[side] for box in boxes)) for side in (0, 1)),
        *(round(max(box[side] for box in boxes)) for side in (2, 3)),
    ]


def _named(block: Block, *, first: bool) -> str:
    """The label as PP-DocLayoutV3 says it; one that it does not know stays."""
    if block.label == "title" and first:
        return "doc_title"
    return _ALIASES.get(block.label, block.label)
