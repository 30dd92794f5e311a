"""A PDF of two pages with a table over the page break, from its pixels to its files: layout and reader are scripted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import draw
from docvino.batch import Batch
from docvino.codec import doclayout
from docvino.document import Answer, Box, Crop, Document, PageImage, Region, box_polygon
from docvino.parser import Parser, Stages
from docvino.render.json import from_json
from docvino.runtime.crops import cut_regions
from docvino.runtime.stages import Clock
from docvino.settings import ParseOptions, RuntimeConfig
from docvino.specs.vlm import TASK_PROMPTS
from docvino.text.elements import element_blocks

# Page by page: label, box, and what is read there.
SCRIPT: tuple[tuple[tuple[str, Box, str | None], ...], ...] = (
    (
        ("header", (60, 10, 540, 30), "Annual report"),
        ("doc_title", (60, 50, 540, 100), "Report\non tables"),
        ("paragraph_title", (60, 120, 300, 150), "1 Results"),
        ("text", (60, 160, 540, 200), "See the table.\nIt is *long*."),
        ("display_formula", (100, 210, 400, 250), r"\[ E = m c^2 \]"),
        ("formula_number", (480, 215, 540, 245), "(1)"),
        ("table", (60, 260, 540, 700), "<fcel>Name<fcel>Sum<nl><fcel>a & b<fcel>1<nl>"),
        ("number", (290, 760, 310, 780), "1"),
    ),
    (
        ("header", (60, 10, 540, 30), "Annual report"),
        ("figure_title", (200, 40, 400, 60), "Table 1 (continued)"),
        ("table", (62, 70, 538, 400), "<fcel>Name<fcel>Sum<nl><fcel>c<fcel>2<nl><fcel>Total<lcel><nl>"),
        ("paragraph_title", (60, 420, 300, 444), "1.1 Details"),
        ("image", (60, 450, 300, 600), None),
        ("number", (290, 760, 310, 780), "2"),
    ),
)
MARKDOWN = r"""# Report on tables

## 1 Results

See the table.

It is \*long\*.

$$
E = m c^2 \tag*{(1)}
$$

<table>
<tr><td>Name</td><td>Sum</td></tr>
<tr><td>a &amp; b</td><td>1</td></tr>
<tr><td>c</td><td>2</td></tr>
<tr><td colspan="2">Total</td></tr>
</table>

Table 1 (continued)

### 1.1 Details

![image](images/p2-b5.png)
"""


class Scripted:
    """The layout stage and the reader of the script."""

    def __init__(self) -> None:
        self._page = 0

    def detect(self, page: PageImage, _options: ParseOptions) -> list[Region]:
        self._page = page.index
        return [Region(label, 0.9, box_polygon(*box), box=box) for label, box, _ in SCRIPT[page.index]]

    def read(self, crops: Sequence[Crop], _options: ParseOptions, _clock: Clock) -> list[Answer]:
        return [Answer(SCRIPT[self._page][crop.regions[0]][2] or "", 0.9) for crop in crops]


@pytest.fixture
def read(tmp_path: Path) -> Any:
    page = Image.fromarray(np.where(np.arange(800)[:, None] % 9, 255, 90).astype(np.uint8).repeat(600, axis=1))
    pdf = tmp_path / "split.pdf"
    pdf.write_bytes(draw.image_pdf(page, page, dpi=72))

    def files(*formats: str, **options: Any) -> Path:
        stage = Scripted()
        stages = Stages(
            orientation=None,
            layout=stage,
            reader=stage,
            tasks=tuple(TASK_PROMPTS),
            cut=cut_regions,
            assemble=lambda reading: element_blocks(*reading.parts),
            models=(),
            warm=lambda: 0,
            choose=doclayout.choose,
        )
        wish = ParseOptions(dpi=72, restructure_pages=True, **options)
        batch = Batch(Parser(RuntimeConfig(), stages), tmp_path / "out", wish, formats=formats)  # type: ignore[arg-type]
        (outcome,) = batch.run([str(pdf)])
        assert (outcome.status, outcome.error) == ("ok", None)
        return tmp_path / "out" / "split"

    return files


def test_the_markdown_has_one_table_where_it_begins(read: Any) -> None:
    folder = read("md")
    assert (folder / "split.md").read_text(encoding="utf-8") == MARKDOWN
    assert (folder / "images/p2-b5.png").is_file()


def test_the_json_keeps_pages_boxes_and_confidences(read: Any) -> None:
    document: Document = from_json((read("json") / "split.json").read_text(encoding="utf-8"))
    assert document.schema_version == "1.1"
    first, second = document.pages
    assert [(b.label, b.level, b.continues) for b in first.blocks] == [
        ("header", None, None), ("doc_title", None, None), ("paragraph_title", 1, None), ("text", None, None),
        ("display_formula", None, None), ("formula_number", None, None), ("table", None, None), ("number", None, None),
    ]  # fmt: skip
    table = second.blocks[2]
    assert (table.continues, table.repeated_rows, table.confidence) == ("p1-b7", 1, 0.9)
    assert table.polygons == (box_polygon(62, 70, 538, 400),)
    assert [cell.text for cell in table.cells] == ["Name", "Sum", "c", "2", "Total"]
    assert [b.level for b in second.blocks if b.label == "paragraph_title"] == [2]
    assert [found.label for found in second.regions] == [label for label, _, _ in SCRIPT[1]]


def test_the_result_of_upstream_has_its_numbers_groups_and_boxes(read: Any) -> None:
    folder = read("res")
    first, second = (json.loads((folder / f"split_{n}_res.json").read_text(encoding="utf-8")) for n in (0, 1))
    assert {key: first[key] for key in ("input_path", "page_index", "page_count", "width", "height")} == {
        "input_path": "split.pdf", "page_index": 0, "page_count": 2, "width": 600, "height": 800,
    }  # fmt: skip
    keys = ("block_label", "block_order", "group_id", "global_block_id", "global_group_id", "block_content")
    assert [tuple(entry[key] for key in keys) for entry in first["parsing_res_list"]] == [
        ("header", None, 0, 0, 0, "Annual report"),
        ("doc_title", 1, 1, 1, 1, "Report\non tables"),
        ("paragraph_title", 2, 2, 2, 2, "1 Results"),
        ("text", 3, 3, 3, 3, "See the table.\nIt is *long*."),
        ("display_formula", 4, 4, 4, 4, " $$ E = m c^2 $$ "),
        ("formula_number", 5, 5, 5, 5, "(1)"),
        (
            *("table", None, 6, 6, 6),
            "<table><tr><td>Name</td><td>Sum</td></tr><tr><td>a &amp; b</td><td>1</td></tr>"
            '<tr><td>c</td><td>2</td></tr><tr><td colspan="2">Total</td></tr></table>',
        ),
        ("number", None, 7, 7, 7, "1"),
    ]
    assert [tuple(entry[key] for key in keys) for entry in second["parsing_res_list"]] == [
        ("header", None, 0, 8, 8, "Annual report"),
        ("figure_title", None, 1, 9, 9, "Table 1 (continued)"),
        ("table", None, 2, 10, 6, ""),
        ("paragraph_title", 1, 3, 11, 11, "1.1 Details"),
        ("image", None, 4, 12, 12, ""),
        ("number", None, 5, 13, 13, "2"),
    ]
    assert [(box["label"], box["order"]) for box in second["layout_det_res"]["boxes"]] == [
        ("header", None), ("figure_title", None), ("table", None), ("paragraph_title", 1), ("image", None),
        ("number", 2),
    ]  # fmt: skip
    assert second["parsing_res_list"][2]["block_bbox"] == [62, 70, 538, 400]


def test_concatenated_it_is_one_result(read: Any) -> None:
    folder = read("res", concatenate_pages=True)
    result = json.loads((folder / "split_res.json").read_text(encoding="utf-8"))
    assert [entry["block_id"] for entry in result["parsing_res_list"]] == list(range(14))
    assert len(result["layout_det_res"]) == 2


def test_each_half_can_be_left_out(read: Any) -> None:
    text = (read("md", merge_tables=False, relevel_titles=False) / "split.md").read_text(encoding="utf-8")
    assert text.count("<table>") == 2
    assert "\n\n### 1.1 Details" in text  # by its own number
