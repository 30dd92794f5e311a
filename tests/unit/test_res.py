"""Facts of the result JSON of PaddleOCR-VL: keys, counting and labels as upstream writes them."""

from __future__ import annotations

import json
from typing import Any

from docvino.document import Block, Document, box_polygon
from docvino.render.res import LABELS, to_res
from sample_documents import block, document, line, page, table


def read(*blocks: Block, **options: Any) -> dict[str, Any]:
    return result_of(document(page(*blocks), **options))


def result_of(made: Document, index: int = 0) -> dict[str, Any]:
    return dict(json.loads(list(to_res(made, "scan.png"))[index][1]))


def test_the_keys_of_a_result_are_those_of_upstream() -> None:
    found = read(block("text", "a", layout_score=0.9))
    assert list(found) == [
        "input_path", "page_index", "page_count", "width", "height", "model_settings", "parsing_res_list",
        "layout_det_res",
    ]  # fmt: skip
    assert list(found["model_settings"]) == [
        "use_doc_preprocessor", "use_layout_detection", "use_chart_recognition", "use_seal_recognition",
        "use_ocr_for_image_block", "format_block_content", "merge_layout_blocks", "markdown_ignore_labels",
        "return_layout_polygon_points",
    ]  # fmt: skip
    assert list(found["parsing_res_list"][0]) == [
        "block_label", "block_content", "block_bbox", "block_id", "block_order", "group_id", "block_polygon_points",
    ]  # fmt: skip
    assert list(found["layout_det_res"]["boxes"][0]) == [
        "cls_id", "label", "score", "coordinate", "order", "polygon_points",
    ]  # fmt: skip


def test_a_picture_has_no_page_number_and_the_pages_of_a_pdf_count_from_0() -> None:
    assert [read()[key] for key in ("page_index", "page_count", "width", "height")] == [None, None, 600, 800]
    pages = (page(), page(index=1))
    made = document(*pages, media_type="application/pdf")
    found = result_of(made, 1)
    assert [found[key] for key in ("input_path", "page_index", "page_count")] == ["scan.png", 1, 2]


def test_blocks_without_a_number_in_the_reading_order_are_not_counted() -> None:
    labels = ("header", "doc_title", "image", "figure_title", "text", "table", "seal", "footnote", "text")
    found = read(*(block(label, "x") for label in labels))["parsing_res_list"]
    assert [entry["block_order"] for entry in found] == [None, 1, None, None, 2, None, 3, None, 4]
    assert [entry["block_id"] for entry in found] == list(range(9))


def test_boxes_are_whole_numbers_around_all_regions_of_a_block() -> None:
    polygons = (box_polygon(10.6, 20.4, 50, 60), box_polygon(70, 5.9, 90.4, 61.7))
    (found,) = read(block("text", "x", polygons=polygons))["parsing_res_list"]
    assert found["block_bbox"] == [10, 5, 90, 62]


def test_labels_of_other_layout_models_are_said_as_upstream_says_them() -> None:
    labels = ("title", "title", "figure", "figure_caption", "table_caption", "equation", "reference", "formula")
    found = read(*(block(label, "x", layout_score=0.5) for label in labels))
    expected = [
        "doc_title", "paragraph_title", "image", "figure_title", "figure_title", "display_formula", "reference",
        "display_formula",
    ]  # fmt: skip
    assert [entry["block_label"] for entry in found["parsing_res_list"]] == expected
    boxes = found["layout_det_res"]["boxes"]
    assert [LABELS[box["cls_id"]] for box in boxes] == [box["label"] for box in boxes] == expected


def test_the_numbers_of_labels_are_those_of_the_layout_model() -> None:
    numbers = {"abstract": 0, "display_formula": 5, "image": 14, "table": 21, "vision_footnote": 24}
    assert {label: LABELS.index(label) for label in numbers} == numbers
    assert len(LABELS) == 25


def test_content_is_written_as_upstream_writes_it() -> None:
    found = read(block("text", r"so \(x\) is"), block("formula", "a\n\nb", "latex"), table(["1", "2"], ["3", "4"]))
    assert [entry["block_content"] for entry in found["parsing_res_list"]] == [
        "so  $ x $ is",
        " $$ a $$  $$ b $$ ",
        "<table><tr><td>1</td><td>2</td></tr><tr><td>3</td><td>4</td></tr></table>",
    ]


def test_without_layout_detection_there_are_no_boxes() -> None:
    found = read(block("text", "x"))
    assert "layout_det_res" not in found
    assert found["model_settings"]["use_layout_detection"] is False


def test_spotted_lines_are_there_with_their_places() -> None:
    found = read(block("text", "a", lines=(line("a", 1, 2, 3, 4),)), task="spotting")
    assert found["spotting_res"] == {"rec_polys": [[[1, 2], [3, 2], [3, 4], [1, 4]]], "rec_texts": ["a"]}
    assert "spotting_res" not in read(block("text", "a"), task="ocr")


def test_a_turned_page_says_its_angle_counter_clockwise() -> None:
    made = page(block("text", "x"), rotation_degrees=90)
    found = result_of(document(made))
    assert found["doc_preprocessor_res"]["angle"] == 270
    assert found["model_settings"]["use_doc_preprocessor"] is True


def test_the_file_is_indented_by_four_and_keeps_its_characters() -> None:
    ((_, text),) = to_res(document(page(block("text", "第三章"))), None)
    assert '\n    "input_path": null,' in text
    assert "第三章" in text
