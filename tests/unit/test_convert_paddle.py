"""Facts of converting model files of anyone's, with converters that behave as they are told."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import openvino as ov
import pytest

from docvino.convert import paddle
from docvino.convert.inspect import inspect_model
from docvino.convert.paddle import Outcome, Wish, convert_path, find_submodels, parse_shape, summary
from docvino.errors import ConfigError, ConvertError, InputError
from docvino.settings import RuntimeConfig
from protobuf import message
from toolchains import pretend

# What toolchain pir does here. The ONNX file that is written was prepared by the test, one for each opset.
EXPORT = """
import pathlib, shutil, sys
graph, weights, target, opset = sys.argv[1:]
plan = pathlib.Path(graph).with_name(f"plan-{opset}")
if plan.is_file():
    exec(plan.read_text())
shutil.copyfile(pathlib.Path(graph).with_name("made.bin"), target)
"""
CHECK = """
import pathlib, sys
if b"relu" not in pathlib.Path(sys.argv[1]).read_bytes().lower():
    sys.exit("Error: no valid proto")
"""
PADDLE = """
import sys, numpy
graph, weights, given, target = sys.argv[1:]
numpy.savez(target, fetch_name_0=numpy.maximum(numpy.load(given)["x"], 0) + float(open(weights).read()))
"""


def onnx_relu(*sizes: int | str) -> bytes:
    """y = relu(x), float32."""

    def port(name: str) -> bytes:
        dimensions = [(1, message((2, size) if isinstance(size, str) else (1, size))) for size in sizes]
        return message((1, name), (2, message((1, message((1, 1), (2, message(*dimensions)))))))

    node = message((1, "x"), (2, "y"), (4, "Relu"))
    graph = message((1, node), (2, "g"), (11, port("x")), (12, port("y")))
    return message((1, 8), (7, graph), (8, message((1, ""), (2, 15))))


IMAGE = onnx_relu("n", 3, "h", "w")


def pir(*sizes: int) -> str:
    described = {"TT": {"#": "0.t_dtensor", "D": [{"#": "0.t_f32"}, list(sizes), "NCHW", [], 0]}}

    def named(kind: str, name: str) -> dict[str, object]:
        return {"#": f"1.{kind}", "A": [{"AT": {"#": "0.a_str", "D": name}, "N": "name"}], "O": [described]}

    weight = {"#": "p", "A": [0, 1, 1, "w"], "O": {"TT": {"#": "t", "D": [{"#": "0.t_f32"}, [8, 2], "NCHW", [], 0]}}}
    relu = {"#": "1.relu", "A": [], "O": [described]}
    operations = [weight, named("data", "x"), relu, named("fetch", "fetch_name_0")]
    program = {"regions": [{"#": "r", "blocks": [{"#": "b", "args": [], "ops": operations}]}]}
    return json.dumps({"base_code": {"magic": "pir", "trainable": True, "version": 3}, "program": program})


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RuntimeConfig:
    config = RuntimeConfig(data_dir=tmp_path / "data", cache_dir=tmp_path / "cache")
    pretend("pir", config)
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    for name, code in (("export_pir", EXPORT), ("check_onnx", CHECK), ("run_paddle", PADDLE)):
        (scripts / f"{name}.py").write_text(code, encoding="utf-8")
    monkeypatch.setattr(paddle.toolchain, "SCRIPTS", scripts)
    return config


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder with a PIR model; plan-15 and the like say what goes wrong at that opset."""
    folder = tmp_path / "模型 one"
    folder.mkdir()
    (folder / "inference.json").write_text(pir(-1, 3, -1, -1), encoding="utf-8")
    (folder / "inference.pdiparams").write_text("0", encoding="utf-8")
    (folder / "made.bin").write_bytes(IMAGE)
    return folder


@pytest.fixture
def convert(runtime: RuntimeConfig, tmp_path: Path) -> Callable[..., tuple[Outcome, list[str]]]:
    """Converts the only submodel of a path into tmp_path/out."""

    def run(path: Path, **wish: object) -> tuple[Outcome, list[str]]:
        said: list[str] = []
        (outcome,) = convert_path(path, tmp_path / "out", Wish(**wish), runtime, said.append)  # type: ignore[arg-type]
        return outcome, said

    return run


Convert = Callable[..., tuple[Outcome, list[str]]]


# ---- what a folder holds


def test_each_subfolder_with_a_model_is_a_submodel_of_that_name(tmp_path: Path) -> None:
    for name in ("det/inference.pdmodel", "a/b/rec.onnx", "layout/inference.json", ".git/x.onnx", "other/config.json"):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text(pir(1) if "layout" in name else "{}", encoding="utf-8")
    found = {(model.name, model.kind) for model in find_submodels(tmp_path)}
    assert found == {("det", "pdmodel"), ("a-b", "onnx"), ("layout", "pir")}


def test_of_one_model_in_several_formats_the_paddle_one_is_taken(tmp_path: Path) -> None:
    for name in ("inference.onnx", "inference.pdmodel", "inference.json"):
        (tmp_path / name).write_text(pir(1), encoding="utf-8")
    assert [model.kind for model in find_submodels(tmp_path)] == ["pdmodel"]


def test_several_models_in_one_folder_are_called_by_their_files(tmp_path: Path) -> None:
    for name in ("det.onnx", "rec.onnx"):
        (tmp_path / name).write_bytes(b"")
    assert [model.name for model in find_submodels(tmp_path)] == ["det", "rec"]
    assert [model.name for model in find_submodels(tmp_path / "rec.onnx")] == ["rec"]


def test_a_folder_without_models_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match="there is no model in"):
        find_submodels(tmp_path)


# ---- PIR through ONNX


def test_a_pir_model_becomes_ir_with_a_record_of_what_was_done(convert: Convert, model: Path, tmp_path: Path) -> None:
    outcome, said = convert(model)
    assert outcome.problem is None, outcome
    assert (outcome.kind, outcome.road, outcome.opset) == ("pir", "onnx", 15)
    assert (outcome.reference, outcome.max_abs_diff) == ("PaddlePaddle 4.5.6", 0.0)
    assert outcome.image == "a drawn page"
    assert (outcome.largest_output or 0) > 1
    folder = tmp_path / "out" / "模型 one"
    assert sorted(path.name for path in folder.iterdir()) == ["conversion.json", "model.bin", "model.xml"]
    record = json.loads((folder / "conversion.json").read_text(encoding="utf-8"))
    assert record["source"].keys() == {"inference.json", "inference.pdiparams"}
    assert record["versions"].items() >= {"paddle2onnx": "1.2.3", "paddlepaddle": "4.5.6"}.items()
    assert record["files"].keys() == {"model.xml", "model.bin"}
    assert (record["opset"], record["precision"]) == (15, "fp32")
    assert said[0].startswith("模型 one: opset 15: valid, ")
    assert "PaddlePaddle 4.5.6" in summary([outcome])[0]
    assert not list((tmp_path / "out").glob(".*"))


FAULTS = {
    "abort": ("print('[ERROR] Due to opset version', flush=True); import os; os.abort()", "SIGABRT|exit code"),
    "exit 255": ("print('(Unimplemented) elementwise MUST be'); sys.exit(255)", "exit code 255: .*MUST be"),
    "invalid file": ("pathlib.Path(target).write_bytes(b'junk'); sys.exit()", "not valid: Error: no valid proto"),
    "not loadable": ("pathlib.Path(target).write_bytes(b'a relu'); sys.exit()", "OpenVINO cannot read 15.onnx"),
    "no file": ("sys.exit('paddle2onnx wrote no file')", "wrote no file"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_opset_that_fails_is_said_and_the_next_one_is_tried(convert: Convert, model: Path, fault: str) -> None:
    code, cause = FAULTS[fault]
    (model / "plan-15").write_text(code, encoding="utf-8")
    outcome, said = convert(model)
    assert outcome.opset == 17
    assert "opset 15: " in said[0]
    assert re.search(cause, said[0]), said[0]


def test_when_every_opset_fails_one_line_says_why(convert: Convert, model: Path, tmp_path: Path) -> None:
    for opset in (15, 17):
        (model / f"plan-{opset}").write_text(FAULTS["exit 255"][0], encoding="utf-8")
    (model / "plan-13").write_text(FAULTS["no file"][0], encoding="utf-8")
    outcome, said = convert(model)
    assert len(said) == 3
    assert outcome.exit_code == 4
    assert outcome.problem == (
        "inference.json does not become ONNX: opset 15, 17: export_pir in toolchain pir ended with exit code 255: "
        "(Unimplemented) elementwise MUST be; opset 13: export_pir in toolchain pir ended with exit code 1: "
        "paddle2onnx wrote no file"
    )
    assert "3.2.2" in outcome.fix
    assert not (tmp_path / "out" / "模型 one").exists()


def test_a_converter_that_hangs_is_stopped(convert: Convert, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paddle, "EXPORT_LIMIT_S", 2.0)
    (model / "plan-15").write_text("import time; time.sleep(60)", encoding="utf-8")
    outcome, _ = convert(model, opset=15)
    assert "did not finish within 2 s and was stopped" in str(outcome.problem)


def test_a_given_opset_is_the_only_one_tried(convert: Convert, model: Path) -> None:
    (model / "plan-13").write_text(FAULTS["no file"][0], encoding="utf-8")
    outcome, said = convert(model, opset=13)
    assert len(said) == 1
    assert "opset 13: " in str(outcome.problem)
    assert convert(model, opset=17)[0].opset == 17


def test_other_numbers_than_paddles_are_a_failure(convert: Convert, model: Path) -> None:
    (model / "inference.pdiparams").write_text("0.1", encoding="utf-8")
    outcome, _ = convert(model)
    assert "opset 15, 17, 13: its numbers differ from those of PaddlePaddle 4.5.6 by 0.0" in str(outcome.problem)


def test_without_the_toolchain_the_command_that_installs_it_is_named(
    convert: Convert, model: Path, runtime: RuntimeConfig
) -> None:
    paddle.toolchain.remove("pir", runtime)
    outcome, _ = convert(model)
    assert (outcome.exit_code, outcome.fix) == (3, "docvino toolchain install pir")


def test_pir_does_not_go_through_the_frontend(convert: Convert, model: Path) -> None:
    outcome, _ = convert(model, road="frontend")
    assert "does not read PIR" in str(outcome.problem)


def test_weights_that_are_not_there_are_named(convert: Convert, model: Path) -> None:
    (model / "inference.pdiparams").unlink()
    assert "has no inference.pdiparams beside it" in str(convert(model)[0].problem)


# ---- shapes, pictures, precision, targets


def test_a_fixed_shape_is_the_shape_of_the_result(convert: Convert, model: Path) -> None:
    outcome, _ = convert(model, input_shapes=dict([parse_shape("x=1,3,64,?")]))
    graph = ov.Core().read_model(Path(str(outcome.folder)) / "model.xml")
    assert str(graph.input(0).get_partial_shape()) == "[1,3,64,?]"
    assert outcome.image == "a drawn text line"


@pytest.mark.parametrize(
    ("shape", "problem"),
    [("y=1,3,64,64", "has no input 'y'"), ("x=1,4,64,64", "x is [?,3,?,?], which [1,4,64,64] does not fit")],
)
def test_a_shape_that_does_not_fit_is_refused(convert: Convert, model: Path, shape: str, problem: str) -> None:
    (model / "made.bin").write_bytes(onnx_relu("n", 3, "h", "w"))
    outcome, _ = convert(model, input_shapes=dict([parse_shape(shape)]))
    assert problem in str(outcome.problem)


@pytest.mark.parametrize("text", ["x", "x=", "=1,3", "x=1,a", "x=1,0", "x=1,-2"])
def test_a_shape_that_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not understood"):
        parse_shape(text)


def test_the_comparison_runs_on_the_given_picture(convert: Convert, model: Path, tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "scan.png"), np.full((90, 200, 3), 255, np.uint8))
    outcome, _ = convert(model, image=tmp_path / "scan.png")
    assert outcome.image == "scan.png"
    assert outcome.largest_output == pytest.approx((1 - 0.406) / 0.225, abs=0.1)


def test_outputs_near_zero_are_a_warning_that_nothing_was_seen(convert: Convert, model: Path, tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "black.png"), np.zeros((90, 200, 3), np.uint8))
    outcome, _ = convert(model, image=tmp_path / "black.png")
    assert "are all near 0 (0): compare on a real one with --image" in outcome.warnings[-1]


def test_a_picture_that_cannot_be_read_is_an_error_of_the_whole_call(convert: Convert, model: Path) -> None:
    with pytest.raises(InputError):
        convert(model, image=model / "inference.json")


@pytest.mark.parametrize(
    ("wish", "message_part"),
    [({"road": "train"}, "unknown road"), ({"road": "frontend", "opset": 15}, "an opset is")],
)
def test_a_wish_that_contradicts_itself_is_refused(
    convert: Convert, model: Path, wish: dict[str, object], message_part: str
) -> None:
    with pytest.raises(ConfigError, match=message_part):
        convert(model, **wish)


def test_a_folder_that_was_not_made_here_is_left_alone(convert: Convert, model: Path, tmp_path: Path) -> None:
    mine = tmp_path / "out" / model.name
    mine.mkdir(parents=True)
    (mine / "thesis.txt").write_text("mine", encoding="utf-8")
    outcome, _ = convert(model)
    assert (outcome.exit_code, (mine / "thesis.txt").exists()) == (2, True)
    (mine / "thesis.txt").unlink()
    assert convert(model)[0].problem is None
    assert convert(model)[0].problem is None


# ---- ONNX, several models


def test_an_onnx_file_is_converted_as_it_is(convert: Convert, tmp_path: Path) -> None:
    (tmp_path / "plain.onnx").write_bytes(IMAGE)
    outcome, _ = convert(tmp_path / "plain.onnx")
    assert (outcome.name, outcome.kind, outcome.reference, outcome.problem) == ("plain", "onnx", None, None)
    assert outcome.stored_max_diff == 0


def test_inputs_that_take_no_picture_get_reproducible_numbers_and_that_is_said(
    convert: Convert, tmp_path: Path
) -> None:
    (tmp_path / "vector.onnx").write_bytes(onnx_relu("n", 7))
    outcome, said = convert(tmp_path / "vector.onnx")
    assert outcome.problem is None
    assert "vector: input x takes no picture: random numbers stand in for it" in said


def test_one_model_that_fails_does_not_stop_the_others(runtime: RuntimeConfig, tmp_path: Path) -> None:
    for name, data in (("good", IMAGE), ("bad", b"no model")):
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / "inference.onnx").write_bytes(data)
    outcomes = {one.name: one for one in convert_path(tmp_path / "models", tmp_path / "out", Wish(), runtime)}
    assert outcomes["good"].problem is None
    assert "OpenVINO cannot read inference.onnx" in str(outcomes["bad"].problem)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["good"]


# ---- differences


def test_outputs_go_by_name_or_by_order_and_large_values_in_proportion() -> None:
    one = {"a": np.array([1.0, 2.0]), "b": np.array([100.0])}
    assert paddle._differences(one, {"b": np.array([101.0]), "a": np.array([1.0, 2.5])}) == (0.25, 0.125)
    assert paddle._differences(one, {"x": np.array([1.0, 2.0]), "y": np.array([100.0])}) == (0, 0)
    assert paddle._differences({"a": np.zeros(0)}, {"a": np.zeros(0)}) == (0, 0)


@pytest.mark.parametrize("other", [{"a": np.ones(3)}, {"a": np.array([1, np.nan])}, {}])
def test_other_shapes_and_numbers_that_are_none_differ_without_bound(other: dict[str, np.ndarray]) -> None:
    assert paddle._differences({"a": np.ones(2)}, other)[0] == np.inf


# ---- inspecting


def test_a_pir_file_says_its_tensors_its_weights_and_what_is_missing(model: Path) -> None:
    facts = inspect_model(model / "inference.json")
    assert (facts.format, facts.producer, facts.opsets) == ("Paddle PIR", "PaddlePaddle, PIR version 3", {})
    assert [port.model_dump() for port in facts.inputs] == [{"name": "x", "dtype": "f32", "shape": "[?,3,?,?]"}]
    assert [port.name for port in facts.outputs] == ["fetch_name_0"]
    assert (facts.operations, facts.weights) == (3, {"f32": 64})
    assert [warning.split(":")[0] for warning in facts.warnings][1:] == ["there is no inference.yml beside it"]
    (model / "inference.pdiparams").unlink()
    assert "without weights" in inspect_model(model / "inference.json").warnings[-1]


@pytest.mark.parametrize("content", ["{}", "[1]", '{"base_code": {"magic": "pir"}, "program": {}}', "no JSON"])
def test_json_that_is_no_pir_program_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content, encoding="utf-8")
    with pytest.raises(ConvertError, match="no PIR program"):
        inspect_model(tmp_path / "config.json")
