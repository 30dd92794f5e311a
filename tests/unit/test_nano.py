"""Facts of nano, the model that comes with docvino, on drawn crops it never saw: text in, text out.

What only text can show: colours, resizing, order of patches, positions, memory, batches, rounding, tokens. The last
tests make those mistakes on purpose and must see each.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from rapidfuzz.distance import Levenshtein

from docvino import golden_vlm
from docvino.bundle import open_vlm_bundle
from docvino.codec import prompt, vlm
from docvino.convert.vlm import convert_vlm
from docvino.document import Crop, Task
from docvino.runtime.stages import Clock
from docvino.runtime.vlm import VlmReader
from docvino.settings import ParseOptions, RuntimeConfig, WeightPrecision
from docvino.specs.nano import FOLDER
from docvino.text.answers import interpret
from vlm_models import DATA

# Most wrong characters in percent, by group of crops. Measured at fp32: 0.25, 9.0 (one of eight crops loses its lines),
# 0.25, 2.4, 6.7, 7.4, 10.6, halftones 0. The model's card has larger sets.
LIMITS = {
    "line": 0.6,
    "paragraph": 12.0,
    "table": 0.8,
    "formula": 4.0,
    "seal": 12.0,
    "spotting": 10.0,
    "stamped": 14.0,
    "halftone": 2.0,
}
SHORT = ("Every region keeps its place on", "the page and a score of its own", "between 0 and 1.")
LONG = ("Lines are read in small batches of", "like width, several at a time. Each", "line has a confidence of its own")
OPTIONS = ParseOptions(max_new_tokens=300)
Open = Callable[[WeightPrecision], VlmReader]


@dataclass(frozen=True)
class Drawn:
    group: str
    crop: Crop
    text: str


@cache
def drawn() -> tuple[Drawn, ...]:
    """What tests/data/make_nano_crops.py wrote."""
    file = np.load(DATA / "nano-crops.npz")
    ends = file["ends"].tolist()
    found = []
    for about, begin, end in zip(json.loads(str(file["about"])), [0, *ends], ends, strict=False):
        pixels = cv2.cvtColor(cv2.imdecode(file["jpeg"][begin:end], cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)
        found.append(Drawn(about["group"], Crop(pixels.astype(np.uint8), about["task"], ()), about["text"]))
    return tuple(found)


@cache
def halftone() -> tuple[Drawn, ...]:
    """Words on light grey paper, scanned finely in black and white: the network sees an average, or a snow of dots."""
    font, found = ImageFont.load_default(100), []
    for rows in (SHORT, LONG):
        width = max(font.getlength(row) for row in rows)
        picture = Image.new("L", (round(width) + 120, 140 * len(rows) + 60), 235)
        for place, row in enumerate(rows):
            ImageDraw.Draw(picture).text((60, 30 + 140 * place), row, fill=0, font=font)
        found.append(
            Drawn("halftone", Crop(np.asarray(picture.convert("1").convert("RGB")), "ocr", ()), "\n".join(rows))
        )
    return tuple(found)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Open:
    data = tmp_path_factory.mktemp("bundles")

    @cache
    def at(precision: WeightPrecision) -> VlmReader:
        convert_vlm(FOLDER, data / f"nano-{precision}", precision)
        runtime = RuntimeConfig(precision=precision, model_cache=False, kv_cache_mib=128)
        return VlmReader.open(open_vlm_bundle(data / f"nano-{precision}"), runtime)[0]

    return at


@pytest.fixture(scope="module")
def texts(opened: Open) -> Callable[[WeightPrecision], tuple[str, ...]]:
    return cache(lambda precision: said_by(opened(precision), drawn()))


def said_by(reader: VlmReader, shown: Sequence[Drawn]) -> tuple[str, ...]:
    return tuple(answer.text for answer in reader.read([one.crop for one in shown], OPTIONS, Clock()))


def plain(task: Task, text: str) -> str:
    """Spotted text without its places."""
    return interpret(task, text, 1000, 1000, confidence=1).content if task == "spotting" else text


def wrong(shown: Sequence[Drawn], said: Sequence[str], *groups: str) -> float:
    """Wrong characters in percent."""
    errors = letters = 0
    for one, text in zip(shown, said, strict=True):
        if one.group in groups:
            truth = plain(one.crop.task, one.text)
            errors += Levenshtein.distance(plain(one.crop.task, text), truth)
            letters += len(truth)
    return 100 * errors / letters


@pytest.mark.parametrize("group", [group for group in LIMITS if group != "halftone"])
def test_what_was_drawn_is_read(texts: Callable[[WeightPrecision], tuple[str, ...]], group: str) -> None:
    assert wrong(drawn(), texts("fp32"), group) <= LIMITS[group]


@pytest.mark.parametrize(
    ("precision", "points"),
    [
        pytest.param("fp16", 0.1, marks=pytest.mark.slow),
        ("int8", 0.3),
        pytest.param("int4", 0.5, marks=pytest.mark.slow),
    ],
)
def test_a_precision_costs_few_characters(
    texts: Callable[[WeightPrecision], tuple[str, ...]], precision: WeightPrecision, points: float
) -> None:
    groups = ("line", "table", "formula")
    assert wrong(drawn(), texts(precision), *groups) <= wrong(drawn(), texts("fp32"), *groups) + points


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_alone_or_among_16_the_text_is_the_same(
    opened: Open, texts: Callable[[WeightPrecision], tuple[str, ...]], precision: WeightPrecision
) -> None:
    some = drawn()[::4]
    assert tuple(said_by(opened(precision), [one])[0] for one in some) == texts(precision)[::4]


def test_places_of_spotted_lines_are_where_they_were_drawn(
    texts: Callable[[WeightPrecision], tuple[str, ...]],
) -> None:
    off = []
    for one, text in zip(drawn(), texts("fp32"), strict=True):
        if one.group == "spotting":
            height, width = one.crop.pixels.shape[:2]
            true, said = (interpret("spotting", t, width, height, confidence=1).lines for t in (one.text, text))
            known = {line.text: np.array(line.polygon) for line in true}
            off += [
                float(np.abs(known[line.text] - np.array(line.polygon)).max() / max(height, width))
                for line in said
                if line.text in known
            ]
    assert len(off) >= 5
    assert np.median(off) < 0.08


def test_halftones_are_read(opened: Open) -> None:
    assert wrong(halftone(), said_by(opened("fp32"), halftone()), "halftone") <= LIMITS["halftone"]


# Mistakes, made on purpose


def blue_for_red(pixels: NDArray[np.uint8], facts: Any, *, cut: Any = vlm.cut) -> Any:
    return cut(np.ascontiguousarray(pixels[..., ::-1]), facts)


def nearest(pixels: NDArray[np.uint8], rows: int, columns: int) -> NDArray[np.uint8]:
    picture = Image.fromarray(np.ascontiguousarray(pixels))
    return np.asarray(picture.resize((columns, rows), Image.Resampling.NEAREST))


def rows_for_columns(head: int, grid: vlm.Grid, tail: int, *, positions: Any = vlm.prompt_positions) -> Any:
    found, following = positions(head, grid, tail)
    return found[[0, 2, 1]], following


def columns_for_rows(grid: vlm.Grid, *, places: Any = vlm.places) -> Any:
    return places(grid)[::-1]


def raster(values: NDArray[Any], grid: vlm.Grid) -> NDArray[np.int64]:  # noqa: ARG001 the place of the right one
    return values.reshape(-1).astype(np.int64)


@pytest.mark.parametrize(
    ("room", "name", "mistake", "group"),
    [
        (vlm, "cut", blue_for_red, "seal"),
        (vlm, "cut", blue_for_red, "stamped"),
        (vlm, "resize", nearest, "halftone"),
        (prompt, "prompt_positions", rows_for_columns, "line"),
        (prompt, "prompt_positions", rows_for_columns, "table"),
        (vlm, "places", columns_for_rows, "line"),
        (vlm, "_by_blocks", raster, "line"),
    ],
    ids=[
        "BGR for RGB, seals",
        "BGR for RGB, under stamps",
        "nearest for bicubic",
        "height for width in the prompt's positions, lines",
        "height for width in the prompt's positions, tables",
        "height for width in positions of patches",
        "raster order in positions of patches",
    ],
)
def test_a_mistake_is_seen(
    opened: Open, monkeypatch: pytest.MonkeyPatch, room: Any, name: str, mistake: Any, group: str
) -> None:
    shown = halftone() if group == "halftone" else [one for one in drawn() if one.group == group]
    reader = opened("fp32")
    tables = (vlm.position_taps, vlm.vision_rotary)
    monkeypatch.setattr(room, name, mistake)
    for table in tables:
        table.cache_clear()
    try:
        assert wrong(shown, said_by(reader, shown), group) > LIMITS[group]
    finally:
        monkeypatch.undo()
        for table in tables:
            table.cache_clear()


def test_its_graphs_compute_what_transformers_computes_with_it(tmp_path: Path) -> None:
    done = convert_vlm(FOLDER, tmp_path / "nano-fp32", "fp32")
    assert done.comparison is not None
    assert (done.comparison.equal_tokens, done.comparison.tokens) == (62, 62)
    assert golden_vlm.load_case(FOLDER / "golden.npz").engine.startswith("transformers")
