"""Facts of the document types and of their JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from docvino.document import (
    SCHEMA_VERSION,
    Block,
    Cell,
    Document,
    Frozen,
    Line,
    ModelProvenance,
    Page,
    PageImage,
    Provenance,
    Source,
    Stats,
    box_polygon,
    polygon_box,
)
from docvino.errors import InputError
from docvino.parser import Parser, Stages
from docvino.render.json import from_json, json_schema, to_json
from docvino.settings import ParseOptions, RuntimeConfig

SQUARE = box_polygon(1.5, 2, 30, 44.25)
DOCUMENT = Document(
    source=Source(name="扫描.png", sha256="ab" * 32, media_type="image/png"),
    pages=(
        Page(
            page_index=0,
            width_px=640,
            height_px=480,
            dpi=144.0,
            rotation_degrees=270,
            source_box=(0.0, 0.0, 320.0, 240.0),
            status="ok",
            blocks=(
                Block(
                    id="p1-b1",
                    label="table",
                    polygons=(SQUARE, SQUARE),
                    order=0,
                    content="a\tb",
                    confidence=0.1 + 0.2,
                    layout_score=0.75,
                    lines=(Line(text="a", polygon=SQUARE, confidence=1 / 3),),
                    cells=(Cell(row=0, column=1, text="b"),),
                    warnings=("careful",),
                ),
            ),
        ),
        Page(page_index=1, width_px=0, height_px=0, status="failed", error="damaged"),
    ),
    provenance=Provenance(
        package="docvino 0.1.0",
        preset="pp-ocr",
        openvino="2026.4",
        models=(
            ModelProvenance(
                spec="m", weight_precision="fp16", execution_precision="f32", devices=("CPU",), manifest_sha256="0"
            ),
        ),
        options={"pages": None, "dpi": 144.0, "max_pages": 3, "auto_rotate": True},
    ),
    stats=Stats(render_ms=1.25, crops=1, lines=2),
)

_texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=12)
_numbers = st.floats(allow_nan=False, allow_infinity=False)
_polygons = st.lists(st.tuples(_numbers, _numbers), min_size=3, max_size=5).map(tuple)
_lines = st.builds(Line, text=_texts, polygon=_polygons, confidence=st.floats(0, 1))
_blocks = st.builds(
    Block,
    id=_texts,
    label=_texts,
    polygons=st.lists(_polygons, min_size=1, max_size=2).map(tuple),
    order=st.integers(0, 99),
    group=st.none() | st.integers(0, 9),
    content=_texts,
    format=st.sampled_from(["text", "html", "latex", "none"]),
    confidence=st.none() | st.floats(0, 1),
    lines=st.lists(_lines, max_size=3).map(tuple),
    finish=st.sampled_from(["stop", "length", "repetition", "nonfinite"]),
)
_pages = st.builds(
    Page,
    page_index=st.integers(0, 9999),
    width_px=st.integers(0, 99_999),
    height_px=st.integers(0, 99_999),
    rotation_degrees=st.sampled_from([0, 90, 180, 270]),
    source_box=st.none() | st.tuples(_numbers, _numbers, _numbers, _numbers),
    status=st.sampled_from(["ok", "empty", "partial", "failed"]),
    error=st.none() | _texts,
    blocks=st.lists(_blocks, max_size=3).map(tuple),
)


def objects(value: object) -> Iterator[dict[str, Any]]:
    """Every object in a JSON value, with its own ones."""
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from objects(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from objects(inner)


def test_a_document_is_equal_after_a_trip_through_json() -> None:
    assert from_json(to_json(DOCUMENT)) == DOCUMENT


@given(st.lists(_pages, max_size=3))
def test_every_document_is_equal_after_a_trip_through_json(pages: list[Page]) -> None:
    document = DOCUMENT.model_copy(update={"pages": tuple(pages)})
    assert from_json(to_json(document)) == document


def test_json_keeps_characters_as_they_are_and_ends_with_a_newline() -> None:
    text = to_json(DOCUMENT)
    assert '"name": "扫描.png"' in text
    assert text.endswith("}\n")
    assert json.loads(text)["schema_version"] == SCHEMA_VERSION


def test_documents_differ_when_any_part_of_them_does() -> None:
    page = DOCUMENT.pages[0].model_copy(update={"dpi": 145.0})
    assert DOCUMENT.model_copy(update={"pages": (page, DOCUMENT.pages[1])}) != DOCUMENT


def test_an_unknown_key_is_refused_wherever_it_stands() -> None:
    keys = 0
    for number, _ in enumerate(objects(json.loads(to_json(DOCUMENT)))):
        tree = json.loads(to_json(DOCUMENT))
        place = list(objects(tree))[number]
        if place is tree["provenance"]["options"]:  # the one mapping whose keys are free
            continue
        place["colour"] = "red"
        with pytest.raises(InputError, match=r"extra inputs are not permitted at .*colour"):
            from_json(json.dumps(tree))
        keys += 1
    assert keys == 10


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"pages": []}'])
def test_what_is_no_document_is_an_input_error(text: str) -> None:
    with pytest.raises(InputError, match="not a docvino document"):
        from_json(text)


def test_the_error_names_the_place_of_a_bad_value() -> None:
    tree = json.loads(to_json(DOCUMENT))
    tree["pages"][0]["blocks"][0]["lines"][0]["confidence"] = "high"
    with pytest.raises(InputError, match=r"at pages\.0\.blocks\.0\.lines\.0\.confidence$"):
        from_json(json.dumps(tree))


def test_a_document_of_another_schema_version_is_refused_by_number() -> None:
    tree = json.loads(to_json(DOCUMENT))
    tree["schema_version"] = "7.0"
    with pytest.raises(InputError, match=f"schema version 7.0, this docvino reads {SCHEMA_VERSION}"):
        from_json(json.dumps(tree))


def test_the_schema_refuses_unknown_keys_in_every_type() -> None:
    schema = json_schema()
    kinds = {"Document": schema, **schema["$defs"]}
    assert kinds.keys() == {kind.__name__ for kind in Frozen.__subclasses__()}
    assert all(kind["additionalProperties"] is False for kind in kinds.values())


def test_the_schema_says_of_every_key_what_type_it_has() -> None:
    schema = json_schema()
    for kind in (schema, *schema["$defs"].values()):
        for name, field in kind["properties"].items():
            assert {"type", "$ref", "anyOf", "enum"} & field.keys(), name


def test_documents_do_not_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        DOCUMENT.pages = ()  # type: ignore[misc]
    with pytest.raises(ValidationError, match="frozen"):
        DOCUMENT.pages[0].status = "ok"  # type: ignore[misc]


def test_stats_add_up_by_name() -> None:
    total = Stats(render_ms=1, layout_ms=2, lines=3) + Stats(render_ms=10, recognition_ms=5, lines=4, crops=1)
    assert total == Stats(render_ms=11, layout_ms=2, recognition_ms=5, lines=7, crops=1)
    assert total.total_ms == 18


def test_the_box_of_a_rectangle_is_the_rectangle() -> None:
    assert box_polygon(1, 2, 3, 4) == ((1, 2), (3, 2), (3, 4), (1, 4))
    assert polygon_box(box_polygon(1, 2, 3, 4)) == (1, 2, 3, 4)


def test_the_box_of_a_polygon_is_the_smallest_around_it() -> None:
    assert polygon_box(((5, 0), (9, 4), (5, 8), (1, 4))) == (1, 0, 9, 8)


def test_the_size_of_a_page_image_is_that_of_its_pixels() -> None:
    image = PageImage(0, np.zeros((30, 40, 3), np.uint8))
    assert (image.width_px, image.height_px) == (40, 30)


def test_provenance_holds_every_option_but_the_password() -> None:
    nothing = cast(Any, None)
    parser = Parser(RuntimeConfig(), Stages(nothing, nothing, nothing, ("ocr",), nothing, nothing, (), nothing))
    provenance = parser.provenance(ParseOptions(password="hunter2", pages="1-3"))
    assert provenance.options.keys() == ParseOptions.model_fields.keys() - {"password"}
    assert provenance.options["pages"] == "1-3"
    assert "hunter2" not in provenance.model_dump_json()
