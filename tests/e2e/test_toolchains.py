"""Paddle's real converters on real models: installed once per checkout, run as docvino runs them.

pytest tests/e2e/test_toolchains.py -s -k table    prints roads x models: differences, sizes, times
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest
from numpy.typing import NDArray

import draw
from docvino import golden, toolchain
from docvino.codec import detection, recognition
from docvino.convert.inspect import inspect_model
from docvino.convert.ir import Conversion, convert
from docvino.convert.paddle import Wish, convert_path, export_onnx
from docvino.errors import ConvertError
from docvino.fetch import fetch_all, source_path
from docvino.settings import RuntimeConfig
from docvino.specs import MODELS as SPECS
from docvino.specs.model import ModelSpec
from models import MODELS

pytestmark = [pytest.mark.toolchain, pytest.mark.slow, pytest.mark.network, pytest.mark.timeout(900)]

PADDLE = ("pp-ocrv4-mobile-det", "pp-ocrv4-mobile-rec", "pp-ocr-mobile-v2-cls")

# What PaddlePaddle makes in its toolchain: the parts of a DB detector whose conversion depends on its version.
DRAW_PIR = """
import sys
import paddle
from paddle import nn


class Detector(nn.Layer):
    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2D(3, 8, 3, 2, 1), nn.BatchNorm2D(8)
        self.down, self.side, self.head = nn.Conv2D(8, 16, 3, 2, 1), nn.Conv2D(16, 8, 1), nn.Conv2DTranspose(8, 1, 2, 2)

    def forward(self, x):
        fine = nn.functional.hardswish(self.norm(self.stem(x)))
        coarse = nn.functional.interpolate(self.side(self.down(fine)), scale_factor=2, mode="nearest")
        return nn.functional.sigmoid(self.head(fine + coarse))


paddle.seed(1)
model = Detector()
model.eval()
paddle.jit.save(model, sys.argv[1], input_spec=[paddle.static.InputSpec([None, 3, None, None], "float32", "x")])
"""


@dataclass(frozen=True)
class Road:
    name: str
    outputs: NDArray[np.float32]
    size_bytes: int
    seconds: float


@pytest.fixture(scope="session")
def toolchains() -> RuntimeConfig:
    """A data folder with the Paddle models and both toolchains; this environment is as it was."""
    runtime = RuntimeConfig(data_dir=MODELS, cache_dir=MODELS / "cache")
    before = packages()
    for name in ("pdmodel", "pir"):
        toolchain.install(name, runtime)
    assert packages() == before
    fetch_all([SPECS[name] for name in PADDLE], runtime)
    return runtime


def packages() -> str:
    command = [sys.executable, "-m", "pip", "freeze"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="session")
def pir(toolchains: RuntimeConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a PIR model that the pinned toolchain made."""
    folder = tmp_path_factory.mktemp("pir")
    script = folder / "draw.py"
    script.write_text(DRAW_PIR, encoding="utf-8")
    toolchain.run("pir", script, (folder / "model" / "inference",), toolchains)
    return folder / "model"


def page_input(spec: ModelSpec[Any]) -> NDArray[np.float32]:
    """What a model sees of a drawn Chinese page: all of it, or its lines."""
    pixels = np.asarray(draw.chinese_page()[0].convert("RGB"))
    if spec.role == "text-detection":
        size = detection.input_size(pixels.shape[1], pixels.shape[0], spec.facts)
        return detection.prepare(pixels, size, spec.facts)
    facts = SPECS["pp-ocrv4-mobile-det"].facts
    size = detection.input_size(pixels.shape[1], pixels.shape[0], facts)
    path = source_path(SPECS["pp-ocrv4-mobile-det"], MODELS)
    found = infer(path, detection.prepare(pixels, size, facts))
    boxes = detection.decode(found[0, 0], pixels.shape[1], pixels.shape[0], facts)
    lines = [recognition.cut_line(pixels, box.corners) for box in boxes][:6]
    return golden.prepare(spec, lines)["x"]


def infer(path: Path, data: NDArray[np.float32]) -> NDArray[np.float32]:
    core = ov.Core()
    compiled = core.compile_model(core.read_model(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    values: NDArray[np.float32] = compiled({0: data})[0].copy()
    return values


@pytest.fixture(scope="session")
def roads(toolchains: RuntimeConfig, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Road]]:
    """Each model by each road, run on a real page; Paddle itself is the fourth."""
    found: dict[str, list[Road]] = {}
    for name in PADDLE:
        spec, source = SPECS[name], source_path(SPECS[name], MODELS)
        data = page_input(spec)
        out = tmp_path_factory.mktemp(name)
        for road, wish in (
            ("frontend", Wish(road="frontend")),
            ("ONNX opset 15", Wish(opset=15)),
            ("ONNX opset 17", Wish(opset=17)),
        ):
            started = time.perf_counter()
            (outcome,) = convert_path(source, out / road.replace(" ", "-"), wish, toolchains)
            seconds = time.perf_counter() - started
            assert outcome.problem is None, outcome
            graph = Path(str(outcome.folder)) / "model.xml"
            found.setdefault(name, []).append(Road(road, infer(graph, data), outcome.size_bytes or 0, seconds))
        np.savez(out / "in.npz", x=data)
        started = time.perf_counter()
        arguments = (source, source.with_suffix(".pdiparams"), out / "in.npz", out / "out.npz")
        toolchain.run("pir", "run_paddle.py", arguments, toolchains)
        seconds = time.perf_counter() - started
        with np.load(out / "out.npz") as arrays:
            found[name].append(Road("Paddle 3.2.2", arrays[arrays.files[0]], 0, seconds))
    return found


def test_the_table_of_roads_and_models_shows_the_same_numbers(roads: dict[str, list[Road]]) -> None:
    print("\n| model | largest output | pair | max abs difference |\n|---|---|---|---|")
    for name, entries in roads.items():
        largest = float(np.abs(entries[0].outputs).max())
        assert largest > 0.5, "the page is not blank to this model"
        for index, one in enumerate(entries):
            for other in entries[index + 1 :]:
                difference = float(np.abs(one.outputs - other.outputs).max())
                print(f"| {name} | {largest:.2f} | {one.name} / {other.name} | {difference:.1e} |")
                assert difference < 1e-3, (name, one.name, other.name)
    print("\n| model | road | IR, bytes | seconds, checks included |\n|---|---|---|---|")
    for name, entries in roads.items():
        for entry in entries[:3]:
            print(f"| {name} | {entry.name} | {entry.size_bytes} | {entry.seconds:.1f} |")


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("name", PADDLE)
def test_the_models_give_what_another_engine_recorded(toolchains: RuntimeConfig, name: str, precision: str) -> None:
    wanted = toolchains.model_copy(update={"precision": precision})
    result = convert(SPECS[name], source_path(SPECS[name], MODELS), wanted, force=True)
    assert isinstance(result, Conversion)
    assert result.comparison.problem is None


def test_both_toolchains_are_listed_with_their_versions(toolchains: RuntimeConfig) -> None:
    for entry in toolchain.list_toolchains(toolchains):
        assert entry.problem is None
        print(f"\n{entry.name}: Python {entry.python}, {(entry.size_bytes or 0) / 1e6:.0f} MB, {entry.seconds} s")
    assert toolchain.versions("pdmodel", toolchains)["paddle2onnx"] == "1.3.1"
    found = toolchain.versions("pir", toolchains)
    assert (found["paddle2onnx"], found["paddlepaddle"]) == ("2.1.0", "3.2.2")


@pytest.mark.parametrize("opset", [None, 17, 13])
def test_a_pir_model_converts_and_computes_what_paddle_computes(
    toolchains: RuntimeConfig, pir: Path, tmp_path: Path, opset: int | None
) -> None:
    (tmp_path / "page.png").write_bytes(draw.png(draw.chinese_page()[0]))
    (outcome,) = convert_path(pir, tmp_path / "out", Wish(opset=opset, image=tmp_path / "page.png"), toolchains)
    assert outcome.problem is None, outcome
    assert (outcome.opset, outcome.reference, outcome.image) == (opset or 15, "PaddlePaddle 3.2.2", "page.png")
    assert (outcome.max_abs_diff or 0) < 1e-5
    assert (outcome.largest_output or 0) > 0.1
    print(f"\nPIR by opset {outcome.opset}: {outcome.max_abs_diff:.1e} from Paddle, {outcome.seconds} s")


def test_a_pir_file_that_paddle_saved_is_described(pir: Path) -> None:
    facts = inspect_model(pir / "inference.json")
    assert [(port.name, port.shape) for port in facts.inputs] == [("x", "[?,3,?,?]")]
    assert [(port.name, port.shape) for port in facts.outputs] == [("fetch_name_0", "[?,1,?,?]")]


def test_a_paddle_program_is_described_with_the_classes_of_its_dictionary(toolchains: RuntimeConfig) -> None:
    path = source_path(SPECS["pp-ocrv4-mobile-rec"], toolchains.data_dir)
    facts = inspect_model(path)
    assert facts.format == "Paddle program"
    assert facts.producer.startswith("PaddlePaddle 2.")
    assert facts.outputs[0].shape.endswith(",6625]")
    assert not [warning for warning in facts.warnings if "dictionary" in warning]  # 6623 + blank + space


# ---- pairs that fail


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGABRT")
@pytest.mark.parametrize("name", PADDLE)
@pytest.mark.parametrize("opset", [11, 13])
def test_an_opset_below_14_aborts_the_converter_and_is_one_line(
    toolchains: RuntimeConfig, tmp_path: Path, name: str, opset: int
) -> None:
    (outcome,) = convert_path(source_path(SPECS[name], MODELS), tmp_path, Wish(opset=opset), toolchains)
    assert outcome.problem == (
        f"inference.pdmodel does not become ONNX: opset {opset}: export_pdmodel in toolchain pdmodel was ended by "
        "SIGABRT: [ERROR] Due to opset version, the model exporting is aborted."
    )
    assert (outcome.exit_code, outcome.fix) == (4, "try --road frontend")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["pp-ocrv4-mobile-rec", "pp-ocr-mobile-v2-cls"])
def test_the_pir_toolchain_saves_invalid_files_of_old_programs_and_that_is_one_line(
    toolchains: RuntimeConfig, tmp_path: Path, name: str
) -> None:
    source = source_path(SPECS[name], MODELS)
    with pytest.raises(ConvertError) as caught:
        export_onnx(source, source.with_suffix(".pdiparams"), tmp_path / "x.onnx", 15, "pir", toolchains)
    assert "\n" not in str(caught.value)
    assert "toolchain pir said that it saved inference.pdmodel as ONNX, and the file is not valid" in str(caught.value)
    print(f"\n{name}: {caught.value}")


def test_a_program_that_is_cut_off_is_one_line_by_either_toolchain(
    toolchains: RuntimeConfig, pir: Path, tmp_path: Path
) -> None:
    old = source_path(SPECS["pp-ocr-mobile-v2-cls"], MODELS)
    for name, graph in (("pdmodel", old), ("pir", pir / "inference.json")):
        broken = tmp_path / graph.name
        broken.write_bytes(graph.read_bytes()[:-5000])
        weights = tmp_path / "inference.pdiparams"
        weights.write_bytes(graph.with_suffix(".pdiparams").read_bytes())
        with pytest.raises(ConvertError) as caught:
            export_onnx(broken, weights, tmp_path / "x.onnx", 15, name, toolchains)
        assert "\n" not in str(caught.value)
        print(f"\n{name}: {caught.value}")


def test_the_command_line_converts_a_folder_of_submodels(toolchains: RuntimeConfig, pir: Path, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    for name, origin in (("cls", source_path(SPECS["pp-ocr-mobile-v2-cls"], MODELS)), ("pir", pir / "inference.json")):
        (folder / name).mkdir(parents=True)
        for file in (origin, origin.with_suffix(".pdiparams")):
            (folder / name / file.name).write_bytes(file.read_bytes())
    (folder / "broken").mkdir()
    (folder / "broken" / "model.onnx").write_bytes(b"no model")
    environment = {**os.environ, "DOCVINO_DATA_DIR": str(toolchains.data_dir), "PYTHONUTF8": "1"}
    command = [sys.executable, "-m", "docvino", "convert", str(folder), "-o", str(tmp_path / "out"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False, env=environment)
    assert done.returncode == 8, done.stderr
    found = {entry["name"]: entry for entry in json.loads(done.stdout)}
    assert {name: entry["problem"] is None for name, entry in found.items()} == {
        "cls": True,
        "pir": True,
        "broken": False,
    }
    assert found["cls"]["road"] == "frontend"
    assert "error: broken: OpenVINO cannot read model.onnx" in done.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["cls", "pir"]
