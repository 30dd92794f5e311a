"""Facts of whole pages read with a layout model: regions, crops, answers, blocks, Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import MappingProxyType

import numpy as np
import pytest
from PIL import Image

from docvino import cli, specs
from docvino.batch import Batch
from docvino.bundle import bundle_folder
from docvino.convert.ir import convert
from docvino.convert.vlm import convert_vlm
from docvino.document import Answer, Block, Crop, Document, Page, PageImage, Region, Task, box_polygon
from docvino.errors import BundleError, ConfigError, InputError
from docvino.fetch import source_path
from docvino.parser import Parser
from docvino.render.markdown import to_markdown
from docvino.render.text import to_text
from docvino.runtime.stages import Clock
from docvino.settings import ParseOptions, RuntimeConfig, WeightPrecision
from docvino.specs import doclayout
from docvino.specs.model import DocLayoutFacts, HubFile, HubFolder, HubMember, ModelSpec, VlmPreset
from docvino.text.elements import element_blocks
from layout_models import Row, layout_graph, layout_spec
from sample_documents import document as a_document
from vlm_models import TINY

# A page of 800 x 1000 px: title, text around a figure, a table with a picture and a seal, a chart, head and number.
ROWS: tuple[Row, ...] = (
    ("header", 0.9, (0.1, 0.01, 0.9, 0.03), 0),
    ("doc_title", 0.9, (0.1, 0.05, 0.9, 0.1), 1),
    ("text", 0.9, (0.1, 0.12, 0.9, 0.2), 2),
    ("text", 0.9, (0.1, 0.205, 0.5, 0.3), 3),
    ("image", 0.9, (0.55, 0.2, 0.9, 0.3), 4),
    ("table", 0.9, (0.1, 0.35, 0.9, 0.6), 5),
    ("image", 0.9, (0.6, 0.4, 0.7, 0.48), 6),
    ("seal", 0.9, (0.75, 0.4, 0.85, 0.48), 7),
    ("display_formula", 0.9, (0.1, 0.62, 0.9, 0.66), 8),
    ("chart", 0.9, (0.1, 0.7, 0.9, 0.9), 9),
    ("number", 0.9, (0.45, 0.95, 0.55, 0.98), 10),
)
ANSWERS: dict[Task, str] = {
    "ocr": "Words of a text.",
    "table": "<fcel>Name<fcel>Picture<nl><fcel>A [F2] b<fcel>[F3]<nl>",
    "formula": "\\[ x^2 \\]",
    "chart": "Year | Sum\n2026 | 7",
    "seal": "Seal Co.",
}


class Scripted:
    """A reader that answers by task, and remembers what it was shown."""

    def __init__(self, answers: dict[Task, str] | None = None) -> None:
        self._answers = ANSWERS if answers is None else answers
        self.crops: list[Crop] = []

    def read(self, crops: Sequence[Crop], _options: ParseOptions, _clock: Clock) -> list[Answer]:
        self.crops = list(crops)
        return [Answer(self._answers[crop.task], 0.9) for crop in crops]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Converted: the tiny reader at fp32 and int8, and a layout model that finds ROWS at fp32 and fp16."""
    folder = tmp_path_factory.mktemp("data")
    put_layout(folder, ROWS)
    for precision in ("fp32", "int8"):
        convert_vlm(TINY, bundle_folder(folder, "tiny", precision), precision)  # type: ignore[arg-type]
    return folder


def put_layout(folder: Path, rows: Sequence[Row]) -> None:
    spec = layout_spec(layout_graph(rows), source_path(doclayout.V3, folder).parent)
    precisions: tuple[WeightPrecision, ...] = ("fp32", "fp16")
    for precision in precisions:
        convert(spec, source_path(spec, folder), runtime(folder, precision=precision), force=True)


def runtime(data: Path, **settings: object) -> RuntimeConfig:
    base = {"preset": "tiny", "data_dir": data, "model_cache": False, "kv_cache_mib": 64}
    return RuntimeConfig.model_validate({**base, **settings})


@pytest.fixture
def scan(tmp_path: Path) -> Path:
    """A page with ink in every region."""
    pixels = np.full((1000, 800, 3), 255, np.uint8)
    pixels[::7] = 60
    path = tmp_path / "scan.png"
    Image.fromarray(pixels).save(path)
    return path


class Everywhere:
    """A layout model that sees text where there is none."""

    def detect(self, _page: PageImage, _options: ParseOptions) -> list[Region]:
        return [region("text", 80, 100, 720, 200)]


Read = Callable[..., Page]


@pytest.fixture
def read(data: Path, scan: Path) -> Read:
    def page(reader: Scripted | None = None, **options: object) -> Page:
        with Parser.open(runtime(data)) as parser:
            parser._stages = replace(parser._stages, reader=reader or Scripted())
            return parser.parse(scan, ParseOptions.model_validate(options)).pages[0]

    return page


def labels(blocks: Sequence[Block]) -> list[str]:
    return [block.label for block in blocks]


# A whole page


def test_a_page_is_read_region_by_region_in_reading_order(read: Read) -> None:
    reader = Scripted()
    page = read(reader)
    assert page.status == "ok"
    assert labels(page.blocks) == [
        *("header", "doc_title", "text", "image", "table", "image", "seal", "display_formula", "chart", "number"),
    ]
    assert [block.order for block in page.blocks] == list(range(10))
    assert [block.id for block in page.blocks] == [f"p1-b{number}" for number in range(1, 11)]
    assert [crop.task for crop in reader.crops] == ["ocr", "ocr", "ocr", "table", "formula", "ocr"]
    assert {block.label for block in page.blocks if not block.content} == {"image", "seal", "chart"}


def test_text_around_a_figure_is_one_block_with_two_polygons(read: Read) -> None:
    text = read().blocks[2]
    assert (text.content, text.group, len(text.polygons)) == ("Words of a text.", 2, 2)
    assert text.polygons[1] == box_polygon(80, 205, 400, 300)
    apart = read(merge_layout_blocks=False)
    assert labels(apart.blocks)[2:4] == ["text", "text"]
    assert [block.group for block in apart.blocks[2:4]] == [None, None]


def test_pictures_in_a_table_are_named_by_their_cells_and_follow_it(read: Read) -> None:
    table, image, seal = read().blocks[4:7]
    assert (image.label, seal.label) == ("image", "seal")
    assert f'A <img data-block="{image.id}"> b' in table.content
    assert f'<td><img data-block="{seal.id}"></td>' in table.content
    assert "[F" not in table.content
    assert [(cell.text, cell.figures) for cell in table.cells[2:]] == [("A  b", (image.id,)), ("", (seal.id,))]
    assert image.polygons == (box_polygon(480, 400, 560, 480),)


def test_pictures_whose_marks_the_model_did_not_read_are_still_there(read: Read) -> None:
    page = read(Scripted({**ANSWERS, "table": "<fcel>Name<nl>"}))
    assert labels(page.blocks)[4:7] == ["table", "image", "seal"]
    page = read(Scripted({**ANSWERS, "table": "no table [F2]"}))
    assert page.blocks[4].content == "no table"


def test_charts_and_seals_and_images_are_read_when_asked_for(read: Read) -> None:
    reader = Scripted()
    page = read(reader, use_chart_recognition=True, use_seal_recognition=True, use_ocr_for_image_block=True)
    by_label = {block.label: block for block in page.blocks}
    assert by_label["chart"].content.startswith("<table>")
    assert by_label["seal"].content == "Seal Co."
    assert by_label["image"].content == "Words of a text."
    assert [crop.task for crop in reader.crops].count("ocr") == 7  # text does not go around what is read itself


def test_skipped_heads_and_numbers_are_blocks_without_text(read: Read) -> None:
    reader = Scripted()
    page = read(reader, skip_dropped=True)
    assert len(reader.crops) == 4
    assert [(block.label, block.content) for block in (page.blocks[0], page.blocks[-1])] == [
        ("header", ""),
        ("number", ""),
    ]


def test_what_is_asked_of_a_model_that_cannot_is_refused(data: Path, scan: Path) -> None:
    with Parser.open(runtime(data)) as parser:
        parser._stages = replace(parser._stages, tasks=("ocr", "table", "formula", "chart"))
        parser.check(ParseOptions(use_chart_recognition=True))
        with pytest.raises(ConfigError, match="does not read seals") as caught:
            parser.parse(scan, ParseOptions(use_seal_recognition=True))
    assert "--use-seal-recognition" in caught.value.fix


@pytest.mark.parametrize("rows", [(("image", 0.9, (0.1, 0.1, 0.9, 0.5), 0),), (("text", 0.01, (0, 0, 1, 1), 0),)])
def test_a_page_without_anything_to_read_is_no_failure(
    tmp_path: Path, data: Path, scan: Path, rows: Sequence[Row]
) -> None:
    put_layout(tmp_path, rows)
    (tmp_path / "bundles" / "tiny-fp32").symlink_to(bundle_folder(data, "tiny", "fp32"))
    with Parser.open(runtime(tmp_path)) as parser:
        document = parser.parse(scan)
    (page,) = document.pages
    assert (page.status, labels(page.blocks)) == (("ok", ["image"]) if rows[0][0] == "image" else ("empty", []))
    assert document.stats.crops == 0


def test_the_real_reader_takes_the_crops_and_the_document_says_what_ran(data: Path, scan: Path) -> None:
    with Parser.open(runtime(data, precision="int8")) as parser:
        document = parser.parse(scan, ParseOptions(max_new_tokens=4))
    assert (document.stats.crops, document.stats.layout_ms > 0) == (6, True)
    layout, vision, *_ = document.provenance.models
    assert (layout.spec, layout.weight_precision) == ("pp-doclayout-v3", "fp16")  # it has no int8 form
    assert (vision.spec, vision.weight_precision) == ("tiny", "int8")
    assert Document.model_validate_json(document.model_dump_json()) == document


# Blocks


def region(label: str, *box: float) -> Region:
    return Region(label, 0.9, box_polygon(*box), box=box)  # type: ignore[arg-type]


def crop(task: Task, *places: int, **more: object) -> Crop:
    return replace(Crop(np.zeros((40, 60, 3), np.uint8), task, places), **more)  # type: ignore[arg-type]


def test_a_region_without_text_says_why() -> None:
    regions = [region("seal", 0, 0, 60, 40), region("text", 0, 50, 60, 90), region("text", 0, 90, 60, 130)]
    crops = [crop("seal", 0, is_picture=True), crop("ocr", 1), crop("ocr", 2)]
    failed = Answer("", 0.0, problem=InputError("no", fix="none"))
    blocks = element_blocks(0, regions, crops, [failed, Answer("", 0.0, finish="blank"), Answer("", 0.9)])
    assert [(block.label, block.format, block.confidence) for block in blocks] == [
        ("seal", "none", None), ("text", "none", None), ("text", "none", None),
    ]  # fmt: skip
    assert [(block.finish, block.warnings) for block in blocks] == [
        ("stop", ("it was not read: no",)),
        ("blank", ("it has no ink, so that it was not shown to the model",)),
        ("stop", ()),
    ]


def test_an_element_without_regions_and_text_is_no_block() -> None:
    assert element_blocks(0, [], [crop("ocr")], [Answer("", 0.0, finish="blank")]) == ()


def test_a_page_knows_what_the_layout_model_found_and_what_of_it_was_read(read: Read) -> None:
    page = read()
    assert [found.label for found in page.regions] == [row[0] for row in ROWS]
    assert page.regions[1].box == (80, 50, 720, 100)
    assert [found.score for found in page.regions] == pytest.approx([0.9] * len(ROWS))


def test_blank_paper_in_a_region_is_a_marked_block_and_a_page_of_it_is_empty(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "blank.png"
    Image.fromarray(np.full((1000, 800, 3), 255, np.uint8)).save(path)
    with Parser.open(runtime(data)) as parser:
        parser._stages = replace(parser._stages, layout=Everywhere())
        (page,) = parser.parse(path).pages
    assert (page.status, [(block.label, block.finish) for block in page.blocks]) == ("empty", [("text", "blank")])
    assert to_text(a_document(page)) == ""


def test_a_mark_of_a_picture_too_small_for_one_is_no_block() -> None:
    regions = [region("table", 0, 0, 60, 40), region("image", 0, 0, 9, 9)]
    blocks = element_blocks(0, regions, [crop("table", 0, figures=(("", 1),))], [Answer("<fcel>x<nl>", 0.9)])
    assert labels(blocks) == ["table"]


def test_figures_found_before_their_table_come_after_it() -> None:
    regions = [region("image", 0, 0, 30, 30), region("table", 0, 0, 60, 40), region("text", 0, 50, 60, 90)]
    crops = [crop("table", 1, figures=(("[F2]", 0),)), crop("ocr", 2)]
    blocks = element_blocks(0, regions, crops, [Answer("<fcel>[F2]<nl>", 0.9), Answer("x", 0.9)])
    assert labels(blocks) == ["table", "image", "text"]
    assert 'data-block="p1-b2"' in blocks[0].content


# Markdown and files


def test_markdown_has_titles_pictures_and_no_running_heads(read: Read) -> None:
    page = read(use_seal_recognition=True)
    document = a_document(page)
    images = {block.id: f"images/{block.id}.png" for block in page.blocks if block.label in ("image", "seal", "chart")}
    text = to_markdown(document, images)
    pieces = text.strip().split("\n\n")
    assert pieces[0] == "# Words of a text."
    assert pieces[1] == "Words of a text."
    assert pieces[2] == "![image](images/p1-b4.png)"
    assert '<img src="images/p1-b6.png" alt="image">' in pieces[3]
    assert pieces[4] == "Seal Co."  # its picture stands in the table
    assert pieces[5] == "$$\nx^2\n$$"
    assert pieces[6:] == ["![chart](images/p1-b9.png)"]
    assert "<img" not in to_markdown(document)  # every link resolves: without files there are none


def test_every_picture_of_the_markdown_is_a_file(data: Path, scan: Path, tmp_path: Path) -> None:
    with Parser.open(runtime(data)) as parser:
        parser._stages = replace(parser._stages, reader=Scripted())
        list(Batch(parser, tmp_path / "out", ParseOptions()).run([str(scan)]))
    text = (tmp_path / "out" / "scan" / "scan.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)]+)\)|src=\"([^\"]+)\"", text)
    assert len(links) == 4
    for link in links:
        assert (tmp_path / "out" / "scan" / "".join(link)).is_file()


# The command line


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        cli.main([str(word) for word in words])
    out, err = capsys.readouterr()
    return int(caught.value.code or 0), out, err


def test_without_a_layout_model_the_error_says_how_to_get_one(
    tmp_path: Path, data: Path, scan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bundles").mkdir()
    (tmp_path / "bundles" / "tiny-int8").symlink_to(bundle_folder(data, "tiny", "int8"))
    words = ("--preset", "tiny", "--precision", "int8", "--data-dir", tmp_path)
    code, _, err = run(capsys, "parse", scan, *words)
    assert code == BundleError.exit_code
    assert "whole pages need a layout model: model pp-doclayout-v3 is not converted at fp16" in err
    assert "docvino fetch pp-doclayout-v3 && docvino convert pp-doclayout-v3 --precision fp16" in err
    assert "--layout none" in err
    assert "model pp-doclayout-v3 is not converted at fp16" in run(capsys, "doctor", *words)[1]


@pytest.mark.parametrize(
    ("words", "skipped"),
    [
        ((), True),
        (("--json",), False),
        (("--no-skip-dropped",), False),
        (("--json", "--skip-dropped"), True),
        (("-o", "out", "--format", "md"), True),
        (("-o", "out"), False),
    ],
)
def test_where_only_markdown_is_written_what_it_drops_is_not_read(
    data: Path,
    scan: Path,
    words: tuple[str, ...],
    skipped: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(scan.parent)
    asked: list[bool] = []
    check = Parser.check
    monkeypatch.setattr(Parser, "check", lambda self, wish: (asked.append(wish.skip_dropped), check(self, wish))[1])
    common = ("--preset", "tiny", "--data-dir", data, "--max-new-tokens", 1, "--kv-cache-mib", 64)
    assert run(capsys, "parse", scan, *common, *words)[0] == 0
    assert set(asked) == {skipped}


def on_hub(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[HubFolder, ModelSpec[DocLayoutFacts]]:
    """Puts a layout model into `folder`, and makes it and the tiny reader those of paddleocr-vl-1.6."""
    files = tuple(HubFile(path.name, path.stat().st_size) for path in sorted(TINY.iterdir()))
    reader = replace(specs.FOLDERS["paddleocr-vl-1.6"], files=files)
    layout = layout_spec(layout_graph(ROWS), folder)
    assert isinstance(layout.source, HubMember)
    folders = {reader.name: reader, layout.name: layout.source.folder}
    presets = {reader.name: VlmPreset(reader.name, reader.title, reader.licence, reader, layout)}
    monkeypatch.setattr(specs, "FOLDERS", MappingProxyType(folders))
    monkeypatch.setattr(specs, "LAYOUTS", MappingProxyType({layout.name: layout}))
    monkeypatch.setattr(specs, "VLM_PRESETS", MappingProxyType(presets))
    return reader, layout


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def test_fetching_a_preset_brings_its_layout_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hub = tmp_path / "hub"
    reader, layout = on_hub(hub / "pp-doclayout-v3", monkeypatch)
    (hub / reader.name).symlink_to(TINY)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(hub))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}"
            code, out, _ = run(capsys, "fetch", reader.name, "--from", url, "--data-dir", tmp_path / "data", "--json")
        finally:
            server.shutdown()
            thread.join()
    fetched = json.loads(out)
    assert (code, set(fetched)) == (0, {reader.name, layout.name})
    assert all((Path(folder) / "fetched.json").is_file() for folder in fetched.values())


def test_a_preset_is_fetched_converted_and_read_with_its_layout_model(
    tmp_path: Path, scan: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hub = tmp_path / "hub" / "pp-doclayout-v3"
    reader, layout = on_hub(hub, monkeypatch)
    data = ("--data-dir", tmp_path / "data")
    code, _, err = run(capsys, "fetch", reader.name, "--local", TINY, *data)
    assert (code, "docvino fetch pp-doclayout-v3 --local FOLDER" in err) == (0, True)
    code, _, err = run(capsys, "convert", reader.name, *data)
    assert (code, "not fetched: docvino fetch pp-doclayout-v3" in err) == (0, True)
    assert run(capsys, "fetch", layout.name, "--local", hub, *data)[0] == 0
    assert "fetched; " in run(capsys, "doctor", "--preset", reader.name, *data)[1]
    assert run(capsys, "convert", reader.name, *data)[0] == 0
    code, out, _ = run(capsys, "verify", reader.name, *data, "--json")
    assert (code, layout.name in out) == (0, True)
    assert run(capsys, "verify", layout.name, *data)[0] == 0
    assert '"fp32"' in run(capsys, "models", "list", "--json", *data)[1].split(layout.name)[1].split("}")[0]
    words = ("parse", scan, "--preset", reader.name, *data, "--max-new-tokens", 3, "--kv-cache-mib", 64, "--json")
    code, out, _ = run(capsys, *words)
    assert code == 0
    assert "doc_title" in labels(Document.model_validate_json(out).pages[0].blocks)
    assert run(capsys, "doctor", "--preset", reader.name, *data)[0] == 0
