"""Facts of the reader of PaddleOCR-VL presets: crops in, answers out, one bad crop harming no other."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from docvino import cli, specs
from docvino.bundle import VlmBundle, bundle_folder
from docvino.codec.pixels import has_ink
from docvino.convert.vlm import convert_vlm
from docvino.device import Model, Tensors, compile_part
from docvino.document import Answer, Crop, Document, Task
from docvino.errors import BundleError, ConfigError, GenerationError, InferenceError, InputError
from docvino.golden_vlm import sample_image
from docvino.parser import Parser
from docvino.runtime.stages import Clock
from docvino.runtime.vlm import VlmReader
from docvino.settings import ParseOptions, RuntimeConfig, WeightPrecision
from docvino.specs.model import HubFile, VlmPreset
from docvino.stateful import StatefulReader
from docvino.text.elements import element_blocks
from vlm_models import TINY

PRECISIONS: tuple[WeightPrecision, ...] = ("fp32", "fp16", "int8", "int4")
SHORT = ParseOptions(max_new_tokens=20)
Open = Callable[..., VlmReader]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def bundle(data: Path) -> Callable[[WeightPrecision], VlmBundle]:
    @cache
    def at(precision: WeightPrecision) -> VlmBundle:
        return convert_vlm(TINY, bundle_folder(data, "tiny", precision), precision).bundle

    return at


@pytest.fixture(scope="module")
def reader(bundle: Callable[[WeightPrecision], VlmBundle], data: Path) -> Open:
    @cache
    def at(precision: WeightPrecision = "fp32", **settings: Any) -> VlmReader:
        return VlmReader.open(bundle(precision), runtime(data, precision=precision, **settings))[0]

    return at


def runtime(data: Path, **settings: Any) -> RuntimeConfig:
    base = {"preset": "tiny", "layout": "none", "data_dir": data, "model_cache": False, "kv_cache_mib": 64}
    return RuntimeConfig(**{**base, **settings})


def crop(seed: int, height: int = 40, width: int = 120, task: Task = "ocr") -> Crop:
    """Noise: the random model says something else of every crop."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height // 4, width // 4, 3), np.uint8)
    return Crop(np.repeat(np.repeat(pixels, 4, 0), 4, 1), task, ())


def read(reader: VlmReader, crops: Sequence[Crop], options: ParseOptions = SHORT) -> list[Answer]:
    return reader.read(crops, options, Clock())


# Reading


def test_each_crop_has_its_answer_in_its_place(reader: Open) -> None:
    crops = [crop(seed) for seed in range(5)]
    together = read(reader(), crops)
    assert len({answer.text for answer in together}) > 1
    assert read(reader(), crops[::-1]) == together[::-1]
    for answer in together:
        assert 0 < answer.confidence < 1
        assert answer.finish in ("stop", "length", "repetition")
        assert 0 < answer.tokens <= 20
        assert answer.prompt_tokens > 10


def test_the_text_is_that_of_the_plain_loop(
    reader: Open, bundle: Callable[[WeightPrecision], VlmBundle], data: Path
) -> None:
    opened = bundle("fp32")
    vision, embed, decoder = (compile_part(opened.part(p), p, runtime(data)) for p in ("vision", "embed", "decoder"))
    plain = StatefulReader(vision, embed, decoder, reader()._tokenizer, opened.facts)
    crops = [crop(seed, 60, 210, task) for seed, task in enumerate(opened.facts.tasks)]
    answers = read(reader(kv_precision="f32"), crops, ParseOptions(max_new_tokens=20, loop_guard=False))
    assert [answer.text for answer in answers] == [plain.read(one.pixels, one.task, 20).text for one in crops]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_alone_or_among_8_or_32_a_crop_reads_the_same_bit_for_bit(reader: Open, precision: WeightPrecision) -> None:
    crops = [crop(seed, 28 + 28 * (seed % 3), 84 + 28 * (seed % 5)) for seed in range(32)]
    alone = [read(reader(precision), [one])[0] for one in crops]
    assert read(reader(precision), crops[:8]) == alone[:8]
    assert read(reader(precision, max_rows=32), crops) == alone


def test_the_watch_is_told_of_every_crop_twice_and_of_the_end(reader: Open) -> None:
    seen: list[tuple[int, int]] = []
    blank = Crop(np.full((40, 300, 3), 250, np.uint8), "ocr", ())
    reader().read([crop(0), blank, crop(1)], SHORT, Clock(lambda done, total: seen.append((done, total))))
    assert {total for _, total in seen} == {6}
    steps = [done for done, _ in seen]
    assert steps == sorted(steps)
    assert (steps[0], steps[-1]) == (1, 6)
    assert len(steps) == 5  # the blank one is told once


def test_time_in_the_vision_graph_is_not_counted_twice() -> None:
    clock = Clock()
    with clock.measure("outer"):
        with clock.measure("inner"):
            sum(range(200_000))
        with clock.measure("inner"):
            sum(range(200_000))
    assert clock.ms["outer"] < clock.ms["inner"] / 2


def test_draws_are_repeatable_by_their_seed_and_greedy_without(reader: Open) -> None:
    hot = ParseOptions(max_new_tokens=20, temperature=2.0, seed=1)
    first, again, other, greedy = (
        read(reader(), [crop(0)], options)[0].text for options in (hot, hot, hot.model_copy(update={"seed": 2}), SHORT)
    )
    assert first == again
    assert len({first, other, greedy}) == 3


# Bad crops


def test_paper_without_ink_is_not_shown_to_the_model(reader: Open) -> None:
    dice = np.random.default_rng(0)
    noisy = np.clip(dice.normal(240, 6, (300, 400, 3)), 0, 255).astype(np.uint8)
    blank = [np.full((40, 300, 3), 250, np.uint8), noisy, np.zeros((9, 9, 3), np.uint8), np.zeros((1, 1, 3), np.uint8)]
    crops = [Crop(pixels, "ocr", ()) for pixels in blank]
    answers = read(reader(), [crops[0], crop(1), *crops[1:]])
    assert [answer.tokens for answer in answers] == [0, answers[1].tokens, 0, 0, 0]
    assert answers[1] == read(reader(), [crop(1)])[0]
    assert all(answer.problem is None and answer.text == "" for answer in (answers[0], *answers[2:]))
    assert [answer.finish for answer in (answers[0], *answers[2:])] == ["blank"] * 4


def test_noise_ends_in_bounded_time_and_is_flagged(reader: Open) -> None:
    """A random model seldom ends by itself: loops, the token limit and the time limit end it, and each is said."""
    crops = [crop(seed) for seed in range(4)]
    started = time.monotonic()
    guarded = read(reader(), crops, ParseOptions(max_new_tokens=600, time_limit_s=20))
    assert time.monotonic() - started < 60
    assert {"repetition", "length"} <= {answer.finish for answer in guarded}
    blocks = element_blocks(0, [], crops, guarded)
    assert [bool(block.warnings) for block in blocks if block.finish != "stop"] == [True] * 3
    (late,) = read(reader(), crops[:1], ParseOptions(max_new_tokens=100_000, time_limit_s=0.2, loop_guard=False))
    assert late.finish == "time"


@pytest.mark.parametrize("darker_by", [90, 250])
def test_one_small_digit_on_a_large_page_is_ink(darker_by: int) -> None:
    page = np.full((3300, 2500, 3), 255, np.uint8)
    page[3200:3218, 1240:1243] -= np.uint8(darker_by)
    assert has_ink(page)


def test_red_print_on_paper_of_the_same_brightness_is_ink() -> None:
    page = np.full((60, 300, 3), (90, 90, 90), np.uint8)
    page[20:40, 50:55] = (170, 60, 60)
    assert has_ink(page)


@pytest.mark.parametrize("size", [(4, 900), (900, 4), (1, 1), (2, 2), (3, 1000)])
def test_the_thinnest_crops_are_read(reader: Open, size: tuple[int, int]) -> None:
    pixels = np.random.default_rng(5).integers(0, 256, (*size, 3), np.uint8)
    (answer,) = read(reader(), [Crop(pixels, "ocr", ())], ParseOptions(max_new_tokens=3))
    assert answer.problem is None


def test_a_crop_without_pixels_or_of_an_unknown_task_fails_alone(reader: Open) -> None:
    good = [crop(seed) for seed in range(4)]
    want = read(reader(), good)
    strange = Crop(good[0].pixels, "poem", ())  # type: ignore[arg-type]
    answers = read(reader(), [good[0], strange, *good[1:], replace(good[0], pixels=good[0].pixels[:0])])
    assert isinstance(answers[1].problem, InputError)
    assert "poem" in str(answers[1].problem)
    assert [answers[0], *answers[2:5]] == want
    assert answers[5].tokens == 0


class Sick:
    """A vision graph that fails at some calls, and gives no numbers at others."""

    def __init__(self, vision: Model, failing: int, nan: int) -> None:
        self._vision, self._failing, self._nan, self._calls = vision, failing, nan, -1

    def run(self, inputs: dict[str, NDArray[Any]]) -> Tensors:
        self._calls += 1
        if self._calls == self._failing:
            raise InferenceError("the device coughed", fix="let it rest")
        outputs = self._vision.run(inputs)
        if self._calls == self._nan:
            outputs["image_embeds"][:] = np.nan
        return outputs


def test_what_fails_in_the_device_for_one_crop_harms_no_other(reader: Open) -> None:
    crops = [crop(seed) for seed in range(6)]
    healthy = reader()
    want = read(healthy, crops)
    sick = VlmReader(
        Sick(healthy._vision, 1, 3),  # type: ignore[arg-type]
        healthy._embed,
        healthy._engine,
        healthy._tokenizer,
        healthy._facts,
    )
    answers = read(sick, crops)
    assert str(answers[1].problem) == "the device coughed"
    assert isinstance(answers[3].problem, InferenceError)
    assert "not finite" in str(answers[3].problem)
    assert [answers[place] for place in (0, 2, 4, 5)] == [want[place] for place in (0, 2, 4, 5)]
    assert read(healthy, crops) == want


def test_a_crop_too_large_for_the_memory_fails_alone(reader: Open) -> None:
    small = reader(kv_cache_mib=1, kv_precision="f32")
    answers = read(small, [crop(0)], ParseOptions(max_new_tokens=1_000_000))
    assert isinstance(answers[0].problem, GenerationError)
    assert "kv_cache_mib" in answers[0].problem.fix
    assert read(small, [crop(0)])[0].problem is None


# Blocks


def test_an_element_becomes_a_block_that_says_how_its_text_ended() -> None:
    crops = [crop(0), replace(crop(1), offset_px=(10.0, 20.0)), crop(2), crop(3)]
    answers = [
        Answer("Hello", 0.9),
        Answer("The end is", 0.8, finish="length"),
        Answer("", 0.0),
        Answer("", 0.0, problem=InputError("no pixels", fix="none")),
    ]
    first, second = element_blocks(4, (), crops, answers)
    assert (first.id, first.label, first.content, first.confidence, first.warnings) == (
        *("p5-b1", "text", "Hello", 0.9),
        (),
    )
    assert second.polygons == (((10, 20), (130, 20), (130, 60), (10, 60)),)
    assert second.finish == "length"
    assert "--max-new-tokens" in second.warnings[0]


# The parser and the command line


@pytest.fixture
def scan(tmp_path: Path) -> Path:
    path = tmp_path / "scan.png"
    Image.fromarray(sample_image()).save(path)
    return path


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        cli.main([str(word) for word in words])
    out, err = capsys.readouterr()
    return int(caught.value.code or 0), out, err


@pytest.fixture
def tiny_data(bundle: Callable[[WeightPrecision], VlmBundle], data: Path) -> list[object]:
    bundle("fp32")
    return ["--preset", "tiny", "--data-dir", data, "--cache-dir", data / "cache", "--kv-cache-mib", 64]


def test_parse_reads_an_element_and_says_what_ran(
    tiny_data: list[object], scan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["parse", scan, *tiny_data, "--layout", "none", "--max-new-tokens", 9]
    code, out, _ = run(capsys, *words, "--json")
    document = Document.model_validate_json(out)
    (page,) = document.pages
    assert code == 0
    assert (page.status, page.blocks[0].finish) == ("partial", "length")  # a random model finds no end
    assert "(length)" in page.warnings[0]
    assert (document.stats.tokens, document.stats.crops) == (9, 1)
    assert document.stats.vision_ms > 0 < document.stats.decoding_ms
    parts = [model.part for model in document.provenance.models]
    assert parts == ["vision", "embed", "decoder: paged, keys and values u8"]
    code, _, _ = run(capsys, *words, "-o", tmp_path / "out", "--task", "formula")
    (block,) = json.loads((tmp_path / "out" / "scan" / "scan.json").read_text(encoding="utf-8"))["pages"][0]["blocks"]
    assert (code, block["label"], block["format"]) == (0, "formula", "latex")


def test_a_page_is_read_line_by_line_where_white_space_is_its_layout(
    tiny_data: list[object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = Image.new("RGB", (600, 400), "white")
    pen = ImageDraw.Draw(page)
    for row, text in enumerate(("One line", "and another", "and a third")):
        pen.text((40, 60 + 90 * row), text, fill=0, font=ImageFont.load_default(36))
    page.save(tmp_path / "page.png")
    words = ("parse", tmp_path / "page.png", *tiny_data, "--layout", "whitespace", "--max-new-tokens", 4)
    code, out, _ = run(capsys, *words, "--json")
    document = Document.model_validate_json(out)
    assert (code, document.stats.crops) == (0, 3)
    assert document.pages[0].status == "partial"  # a random model finds no end
    lines = [line for block in document.pages[0].blocks for line in block.lines]
    assert len(lines) == 3
    assert run(capsys, *words, "--task", "table")[0] == ConfigError.exit_code


def test_a_task_of_another_preset_is_refused_before_anything_is_read(
    data: Path, bundle: Callable[[WeightPrecision], VlmBundle], scan: Path
) -> None:
    bundle("fp32")
    with Parser.open(runtime(data)) as parser:
        parser._stages = replace(parser._stages, tasks=("ocr", "table"))
        with pytest.raises(ConfigError, match="does not read a page as seal"):
            parser.parse(scan, ParseOptions(task="seal"))


def test_a_page_whose_only_element_has_no_answer_failed(
    data: Path, bundle: Callable[[WeightPrecision], VlmBundle], scan: Path
) -> None:
    bundle("fp32")
    with Parser.open(runtime(data, kv_cache_mib=1)) as parser:
        document = parser.parse(scan, ParseOptions(max_new_tokens=1_000_000))
    assert document.pages[0].status == "failed"
    assert "memory for keys and values" in str(document.pages[0].error)


def test_a_preset_that_is_not_there_says_how_to_get_it(
    tmp_path: Path, scan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--preset", "paddleocr-vl-1.6", "--precision", "int8", "--data-dir", tmp_path)
    code, _, err = run(capsys, "parse", scan, *words, "--layout", "none")
    assert code == BundleError.exit_code
    assert "docvino fetch paddleocr-vl-1.6 && docvino convert paddleocr-vl-1.6 --precision int8" in err
    _, out, _ = run(capsys, "doctor", *words)
    assert "model paddleocr-vl-1.6 is not converted at int8" in out


def test_a_fetched_folder_is_converted_verified_and_read_by_its_name(
    tmp_path: Path, scan: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = tuple(HubFile(path.name, path.stat().st_size) for path in sorted(TINY.iterdir()))
    folder = replace(specs.FOLDERS["paddleocr-vl-1.6"], files=files)
    monkeypatch.setattr(specs, "FOLDERS", MappingProxyType({folder.name: folder}))
    monkeypatch.setattr(
        specs,
        "VLM_PRESETS",
        MappingProxyType({folder.name: VlmPreset(folder.name, "title", "Apache-2.0", folder, "whitespace")}),
    )
    data = ("--data-dir", tmp_path)
    code, _, err = run(capsys, "convert", folder.name, *data)
    assert (code, "docvino fetch paddleocr-vl-1.6" in err) == (BundleError.exit_code, True)
    assert run(capsys, "fetch", folder.name, "--local", TINY, *data)[0] == 0
    assert "fetched" in run(capsys, "doctor", "--preset", folder.name, *data)[1]
    assert run(capsys, "convert", folder.name, *data)[0] == 0
    assert run(capsys, "verify", folder.name, *data)[0] == 0
    words = ("parse", scan, "--preset", folder.name, *data, "--layout", "none", "--max-new-tokens", 3)
    assert run(capsys, *words, "--kv-cache-mib", 64)[0] == 0
    assert "files match their sha256" in run(capsys, "doctor", "--preset", folder.name, *data)[1]
