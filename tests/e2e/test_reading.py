"""What the pp-ocr preset reads on pages whose text is known."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import pytest
from PIL import Image

import draw
from docvino.demo import draw_page
from docvino.document import Document
from docvino.errors import InputError
from docvino.parser import Parser
from docvino.render.json import from_json, to_json
from docvino.render.markdown import to_markdown
from docvino.settings import ParseOptions, RuntimeConfig
from score import cer, whole_text

CHINESE, CHINESE_TRUTH = draw.chinese_page()
ENGLISH, ENGLISH_TRUTH = draw.english_two_columns()
MIXED, MIXED_TRUTH = draw.mixed_page()

PAGES = {
    "chinese": (draw.png(CHINESE), CHINESE_TRUTH),
    "english in two columns": (draw.png(ENGLISH), ENGLISH_TRUTH),
    "mixed scripts": (draw.png(MIXED), MIXED_TRUTH),
    "turned by 90": (draw.jpeg(draw.turned(CHINESE, 90)), CHINESE_TRUTH),
    "turned by 180": (draw.jpeg(draw.turned(CHINESE, 180)), CHINESE_TRUTH),
    "turned by 270": (draw.jpeg(draw.turned(CHINESE, 270)), CHINESE_TRUTH),
    "english turned by 180": (draw.png(draw.turned(ENGLISH, 180)), ENGLISH_TRUTH),
    "turned by EXIF": (draw.exif_turned(CHINESE, 6), CHINESE_TRUTH),
    "skewed scan": (draw.jpeg(draw.skewed(CHINESE)), CHINESE_TRUTH),
    "half size": (draw.png(draw.low_resolution(CHINESE)), CHINESE_TRUTH),
    "inverted": (draw.png(draw.inverted(CHINESE)), CHINESE_TRUTH),
    "CMYK": (draw.cmyk_jpeg(CHINESE), CHINESE_TRUTH),
    "black on transparent": (draw.png(draw.on_transparent(CHINESE, 0)), CHINESE_TRUTH),
    "white on transparent": (draw.png(draw.on_transparent(CHINESE, 255)), CHINESE_TRUTH),
    "16 bit": (draw.png(draw.gray16(CHINESE)), CHINESE_TRUTH),
    "1 bit": (draw.g4_tiff(CHINESE), CHINESE_TRUTH),
}


@pytest.fixture(scope="module")
def readings(parser: Parser) -> dict[str, Document]:
    return {name: parser.parse(data, name=name) for name, (data, _) in PAGES.items()}


@pytest.mark.parametrize("name", PAGES)
def test_each_page_is_read_with_at_most_two_errors_in_a_hundred_characters(
    name: str, readings: dict[str, Document]
) -> None:
    assert readings[name].pages[0].status == "ok"
    assert cer(PAGES[name][1].text, whole_text(readings[name])) <= 0.02


def test_all_pages_together_have_at_most_three_errors_in_a_thousand_characters(
    readings: dict[str, Document],
) -> None:
    rates = {name: cer(truth.text, whole_text(readings[name])) for name, (_, truth) in PAGES.items()}
    assert sum(rates.values()) / len(rates) <= 0.003, rates


@pytest.mark.parametrize(("degrees", "recorded"), [(90, 90), (180, 180), (270, 270)])
def test_the_turn_that_made_a_page_upright_is_recorded(
    degrees: int, recorded: int, readings: dict[str, Document]
) -> None:
    # The pages were turned counter-clockwise, so docvino turns them clockwise by the same angle.
    assert readings[f"turned by {degrees}"].pages[0].rotation_degrees == recorded


def test_without_auto_rotate_the_page_stays_as_it_is(parser: Parser) -> None:
    document = parser.parse(PAGES["turned by 90"][0], ParseOptions(auto_rotate=False))
    assert document.pages[0].rotation_degrees == 0
    assert cer(CHINESE_TRUTH.text, whole_text(document)) > 0.5


def test_every_line_lies_on_the_page_and_has_a_confidence(readings: dict[str, Document]) -> None:
    for document in readings.values():
        page = document.pages[0]
        lines = [line for block in page.blocks for line in block.lines]
        assert len(lines) >= 5
        for line in lines:
            assert 0.5 <= line.confidence <= 1.0001
            assert len(line.polygon) == 4
            for x, y in line.polygon:
                assert 0 <= x <= page.width_px
                assert 0 <= y <= page.height_px


def test_line_boxes_cover_the_ink_they_name(parser: Parser) -> None:
    drawn = draw_page()
    page = parser.parse(draw.png(drawn.image)).pages[0]
    title = page.blocks[0].lines[0]
    (left, top), (right, bottom) = title.polygon[0], title.polygon[2]
    # The title is drawn around (550, 90) in a size of 44 px.
    assert left < 320
    assert right > 780
    assert top < 80
    assert bottom > 100
    assert bottom - top < 80


def test_columns_are_read_one_after_the_other_and_a_divided_word_is_made_whole(parser: Parser) -> None:
    markdown = to_markdown(parser.parse(draw.png(draw_page().image)))
    assert markdown.startswith("# How a page becomes text\n")
    assert "paragraphs, titles" in markdown
    assert markdown.index("between 0 and 1") < markdown.index("Lines are read in small batches")


def test_a_document_survives_json(readings: dict[str, Document]) -> None:
    for document in readings.values():
        assert from_json(to_json(document)) == document


@pytest.mark.parametrize(
    "data",
    [
        draw.png(draw.blank()[0]),
        draw.png(Image.new("L", (900, 1200), 200)),
        draw.png(draw.noise_page()[0]),
        draw.png(Image.new("RGB", (1, 1))),
        draw.png(Image.new("RGB", (900, 4), "white")),
        draw.png(Image.new("RGB", (4, 900), "white")),
    ],
    ids=["white", "grey", "noise", "one pixel", "900x4", "4x900"],
)
def test_a_page_without_text_is_empty_and_gives_empty_markdown(parser: Parser, data: bytes) -> None:
    document = parser.parse(data)
    assert document.pages[0].status == "empty"
    assert to_markdown(document) == ""


def test_a_broken_page_costs_itself_only(parser: Parser) -> None:
    document = parser.parse(draw.null_page_pdf())
    assert [page.status for page in document.pages] == ["ok", "failed", "ok", "ok"]
    assert "page 2" in (document.pages[1].error or "")


def test_two_tiff_pages_are_two_pages(parser: Parser) -> None:
    document = parser.parse(draw.g4_tiff(CHINESE, draw.turned(CHINESE, 180)))
    assert [page.rotation_degrees for page in document.pages] == [0, 180]
    for page in document.pages:
        assert cer(CHINESE_TRUTH.text, "".join(block.content for block in page.blocks)) <= 0.02


def test_an_unknown_file_is_an_input_error(parser: Parser) -> None:
    with pytest.raises(InputError, match="not a document"):
        parser.parse(b"this is no document\n", name="notes.txt")


@pytest.mark.parametrize("precision", [pytest.param("fp16", marks=pytest.mark.slow), "int8"])
def test_smaller_weights_read_the_same_pages(runtime: RuntimeConfig, precision: str) -> None:
    with Parser.open(runtime.model_copy(update={"precision": precision})) as parser:
        for name in ("chinese", "english in two columns", "mixed scripts"):
            data, truth = PAGES[name]
            document = parser.parse(data)
            assert cer(truth.text, whole_text(document)) <= 0.02, name
            assert {model.weight_precision for model in document.provenance.models} == {precision}


@pytest.mark.slow
def test_the_number_of_slots_does_not_change_a_letter(runtime: RuntimeConfig) -> None:
    texts = []
    for slots in (1, 3):
        with Parser.open(runtime.model_copy(update={"async_slots": slots})) as parser:
            texts.append(whole_text(parser.parse(PAGES["english in two columns"][0])))
    assert texts[0] == texts[1]


@pytest.mark.slow
def test_threads_that_share_a_parser_get_the_answers_of_one_thread(parser: Parser) -> None:
    names = ["chinese", "mixed scripts"] * 4
    alone = {name: parser.parse(PAGES[name][0]).pages for name in set(names)}
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda name: parser.parse(PAGES[name][0]).pages, names))
    assert together == [alone[name] for name in names]


def test_provenance_says_what_really_ran_and_never_holds_the_password(parser: Parser) -> None:
    document = parser.parse(draw.encrypted(draw.english_pdf()[0]), ParseOptions(password=draw.PASSWORD, pages="1"))
    assert {model.execution_precision for model in document.provenance.models} == {"f32"}
    assert {model.devices for model in document.provenance.models} == {("CPU",)}
    assert len({model.manifest_sha256 for model in document.provenance.models}) == 5
    assert draw.PASSWORD not in to_json(document)


def test_times_of_all_stages_are_recorded(parser: Parser) -> None:
    stats = parser.parse(PAGES["chinese"][0]).stats
    assert stats.crops == 1
    assert stats.lines >= 8
    for value in (stats.render_ms, stats.orientation_ms, stats.layout_ms, stats.detection_ms, stats.recognition_ms):
        assert value > 0
    assert math.isclose(stats.total_ms, sum(v for k, v in stats.model_dump().items() if k.endswith("_ms")))
