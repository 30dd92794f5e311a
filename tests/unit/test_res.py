"""Facts of the result JSON of PaddleOCR-VL: keys, counting and labels as upstream writes them."""

from __future__ import annotations

import json
from typing import Any

from docvino.document import Block, Cell, Document, Found, Page, box_polygon
from docvino.render.res import LABELS, to_res
from docvino.text.restructure import restructure
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


def found(label: str, left: float, top: float, right: float, bottom: float) -> Found:
    polygon = (*box_polygon(left, top, right, bottom)[:3], (left, (top + bottom) / 2))
    return Found(label=label, score=0.9, box=(left, top, right, bottom), polygon=polygon)


def test_boxes_are_all_that_the_layout_model_found_numbered_as_upstream_does() -> None:
    labels = ("header", "doc_title", "image", "figure_title", "text", "inline_formula", "reference", "table", "number")
    regions = tuple(found(label, 10.0, 20.0 * n, 90.0, 20.0 * n + 18) for n, label in enumerate(labels, start=1))
    made = page(block("doc_title", "x", polygons=(regions[1].polygon,)), regions=regions)
    boxes = result_of(document(made))["layout_det_res"]["boxes"]
    assert [(box["label"], box["order"]) for box in boxes] == [
        ("header", None), ("doc_title", 1), ("image", None), ("figure_title", None), ("text", 2), ("inline_formula", 3),
        ("reference", 4), ("table", None), ("number", 5),
    ]  # fmt: skip
    assert boxes[1]["coordinate"] == [10.0, 40.0, 90.0, 58.0]
    assert boxes[1]["polygon_points"] == [[10.0, 40.0], [90.0, 40.0], [90.0, 58.0], [10.0, 49.0]]
    assert boxes[1]["cls_id"] == 6


def test_a_block_has_the_box_of_its_region_and_not_that_of_its_outline() -> None:
    region = Found(label="text", score=0.9, box=(10, 20, 90, 60), polygon=((12, 20), (90, 30), (80, 55), (14, 40)))
    made = page(block("text", "x", polygons=(region.polygon,), layout_score=0.9), regions=(region,))
    (entry,) = result_of(document(made))["parsing_res_list"]
    assert entry["block_bbox"] == [10, 20, 90, 60]
    assert entry["block_polygon_points"] == [[12, 20], [90, 30], [80, 55], [14, 40]]


def test_text_read_over_several_regions_is_an_entry_each_and_the_first_has_the_words() -> None:
    parts = (box_polygon(10, 10, 90, 50), box_polygon(10, 52, 40, 90))
    blocks = (block("doc_title", "t"), block("text", "words", polygons=parts, group=1), block("text", "more"))
    entries = read(*blocks)["parsing_res_list"]
    assert [(e["block_content"], e["block_id"], e["group_id"], e["block_order"]) for e in entries] == [
        ("t", 0, 0, 1), ("words", 1, 1, 2), ("", 2, 1, 3), ("more", 3, 3, 4),
    ]  # fmt: skip
    assert [e["block_bbox"] for e in entries[1:3]] == [[10, 10, 90, 50], [10, 52, 40, 90]]


def test_outlines_are_left_out_where_rectangles_were_asked_for() -> None:
    made = read(block("text", "x", layout_score=0.9), layout_shape_mode="rect", merge_layout_blocks=False)
    assert "block_polygon_points" not in made["parsing_res_list"][0]
    assert "polygon_points" not in made["layout_det_res"]["boxes"][0]
    assert made["model_settings"]["return_layout_polygon_points"] is False
    assert made["model_settings"]["merge_layout_blocks"] is False


def test_settings_are_what_was_asked_for() -> None:
    asked = {f"use_{name}": True for name in ("chart_recognition", "seal_recognition", "ocr_for_image_block")}
    assert {name: read(**asked)["model_settings"][name] for name in asked} == asked
    assert not any(read(block("seal", "read"))["model_settings"][name] for name in asked)
    # A page that is one chart switches its recognition on.
    assert read(task="chart")["model_settings"]["use_chart_recognition"] is True


def test_a_page_that_was_read_as_one_element_is_called_by_its_task() -> None:
    whole = (box_polygon(0.0, 0.0, 600.0, 800.0),)
    for task in ("ocr", "spotting", "formula"):
        (entry,) = read(block("text", "x", polygons=whole), task=task)["parsing_res_list"]
        assert entry["block_label"] == task
    assert read(block("text", "x"), task="ocr")["parsing_res_list"][0]["block_label"] == "text"


def test_figures_in_a_table_are_in_its_html_and_no_entries() -> None:
    cells = (Cell(row=0, column=0, text="a", figures=("p1-b2", "p1-b3")), Cell(row=0, column=1, text="b"))
    html = '<table>\n<tr><td>a <img data-block="p1-b2"><img data-block="p1-b3"></td><td>b</td></tr>\n</table>'
    one = block("table", html, "html", cells=cells)
    made = document(page(one, block("image", "", "none"), block("seal", "Seal & Co."), block("text", "x")))
    ((_, text),) = to_res(made, None, {"p1-b2": "images/p1-b2.png", "p1-b3": "images/p1-b3.png"})
    entries = json.loads(text)["parsing_res_list"]
    assert [entry["block_label"] for entry in entries] == ["table", "text"]
    assert entries[0]["block_content"] == (
        '<table><tr><td>a <img src="images/p1-b2.png" alt="Image" />'
        '<img src="images/p1-b3.png" alt="Image" />Seal &amp; Co.</td><td>b</td></tr></table>'
    )
    assert "<img" not in result_of(made)["parsing_res_list"][0]["block_content"]  # without files


def test_a_chart_stays_the_lines_that_it_is_upstream() -> None:
    chart = table(["Year", "Sum"], ["2026", "7"]).model_copy(update={"label": "chart"})
    assert read(chart)["parsing_res_list"][0]["block_content"] == "Year | Sum\n2026 | 7"


def test_the_number_of_a_formula_has_no_dollar_signs() -> None:
    assert read(block("formula_number", r"\((3)\)"))["parsing_res_list"][0]["block_content"].strip() == "(3)"


# Several pages


def restructured(*pages: Page, **options: Any) -> Document:
    made = document(*pages, media_type="application/pdf", restructure_pages=True, **options)
    return restructure(made)


PAGES = (
    page(block("paragraph_title", "1 One"), table(["h", "i"], ["a", "1"])),
    page(block("number", "2"), table(["h", "i"], ["b", "2"]), block("text", "End"), index=1),
)


def test_a_table_that_goes_on_is_in_the_first_part_and_has_its_group() -> None:
    first, second = (json.loads(text)["parsing_res_list"] for _, text in to_res(restructured(*PAGES), "x.pdf"))
    assert first[1]["block_content"].count("<tr>") == 3
    assert [(e["block_content"], e["global_block_id"], e["global_group_id"]) for e in second] == [
        ("2", 2, 2), ("", 3, 1), ("End", 4, 4),
    ]  # fmt: skip
    assert [(e["block_id"], e["group_id"]) for e in second] == [(0, 0), (1, 1), (2, 2)]
    assert "global_block_id" not in result_of(document(*PAGES))["parsing_res_list"][0]


def test_a_table_over_three_pages_is_one_group() -> None:
    pages = (*PAGES[:1], page(table(["b", "2"]), index=1), page(table(["c", "3"]), index=2))
    results = [json.loads(text)["parsing_res_list"] for _, text in to_res(restructured(*pages), "x.pdf")]
    assert [entries[-1]["global_group_id"] for entries in results] == [1, 1, 1]


def test_concatenated_pages_are_one_result() -> None:
    pages = tuple(one.model_copy(update={"regions": (found("text", 0, 0, 9, 9),)}) for one in PAGES)
    ((which, text),) = to_res(restructured(*pages, concatenate_pages=True), "x.pdf")
    result = json.loads(text)
    assert which is None
    assert (result["page_index"], result["page_count"]) == (None, 2)
    assert [e["block_id"] for e in result["parsing_res_list"]] == [0, 1, 2, 3, 4]
    assert [e["block_order"] for e in result["parsing_res_list"]] == [1, None, None, None, 2]
    assert [e["group_id"] for e in result["parsing_res_list"]] == [0, 1, 2, 3, 4]
    assert [e["global_group_id"] for e in result["parsing_res_list"]] == [0, 1, 2, 1, 4]
    assert [len(part["boxes"]) for part in result["layout_det_res"]] == [1, 1]
    assert list(to_res(restructured(concatenate_pages=True), None)) == []


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
