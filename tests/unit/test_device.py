"""Facts of devices and compiled models, on graphs of one operation on this machine's CPU."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest
from numpy.typing import NDArray
from openvino import opset13 as ops

from docvino.device import Model, Tensors, compile_model, first_line, list_devices, open_core, openvino_version
from docvino.errors import BundleError, DeviceError, InferenceError
from docvino.settings import RuntimeConfig
from docvino.specs.orientation import ORIENTATION
from docvino.specs.pp_ocr import RECOGNITION

Input = dict[str, NDArray[np.float32]]

ONE = dataclasses.replace(ORIENTATION, name="toy")  # a model that runs one request at a time
SEVERAL = dataclasses.replace(RECOGNITION, name="toy")  # a model that runs `async_slots` requests


@pytest.fixture
def runtime(tmp_path: Path) -> RuntimeConfig:
    return RuntimeConfig(model_cache=False, data_dir=tmp_path / "data", cache_dir=tmp_path / "cache")


def save(folder: Path, kind: str) -> Path:
    """x float32 (?, 3) -> y = kind(x), and z = x + 1 when kind is "two"."""
    x = ops.parameter([-1, 3], np.float32, name="x")
    x.output(0).set_names({"x"})
    results = [ops.add(x, ops.constant(np.float32(0 if kind == "two" else 1))) if kind != "log" else ops.log(x)]
    if kind == "two":
        results.append(ops.add(x, ops.constant(np.float32(1))))
    for node, name in zip(results, ("y", "z"), strict=False):
        node.output(0).set_names({name})
    path = folder / f"{kind}.xml"
    ov.save_model(ov.Model(results, [x], "toy"), path, compress_to_fp16=False)
    return path


def rows(count: int, value: float) -> Input:
    return {"x": np.full((count, 3), value, np.float32)}


def ragged(count: int = 25) -> Iterator[Input]:
    """Batches of one to five rows; each holds its own number."""
    return (rows(1 + number % 5, number) for number in range(count))


@pytest.fixture(params=[1, 2, 5], ids=lambda slots: f"{slots} slots")
def plus_one(request: pytest.FixtureRequest, runtime: RuntimeConfig, tmp_path: Path) -> Model:
    with_slots = runtime.model_copy(update={"async_slots": request.param})
    return compile_model(save(tmp_path, "plus_one"), SEVERAL, with_slots)


# ---- devices


def test_the_version_is_that_of_the_package() -> None:
    assert openvino_version().startswith(ov.__version__.split("-")[0][:6])


# ---- compiling


def test_a_compiled_model_says_where_and_in_what_it_computes(runtime: RuntimeConfig, tmp_path: Path) -> None:
    model = compile_model(save(tmp_path, "plus_one"), ONE, runtime)
    assert (model.name, model.devices, model.execution_precision) == ("toy", ("CPU",), "f32")


def test_a_precision_the_device_does_not_have_is_refused(runtime: RuntimeConfig, tmp_path: Path) -> None:
    (cpu,) = (device for device in list_devices() if device.name == "CPU")
    missing = [name for name, kind in (("f16", "FP16"), ("bf16", "BF16")) if kind not in cpu.capabilities]
    if not missing:
        pytest.skip("this CPU has every precision")
    path = save(tmp_path, "plus_one")
    for name in missing:
        with pytest.raises(DeviceError) as caught:
            compile_model(path, ONE, runtime.model_copy(update={"execution": name}))
        # A CPU with bf16 takes that when it is asked for f16.
        said = re.fullmatch(rf".* computes toy in (f32|bf16), not in {name} as asked", str(caught.value))
        assert said
        assert caught.value.fix == f"use --execution {said[1]}"


def test_an_unknown_device_is_refused_before_the_file_is_read(runtime: RuntimeConfig, tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="no device 'XPU'"):
        compile_model(tmp_path / "nowhere.xml", ONE, runtime.model_copy(update={"device": "XPU"}))


def test_a_missing_graph_is_a_bundle_error(runtime: RuntimeConfig, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"OpenVINO cannot read model\.xml of toy") as caught:
        compile_model(tmp_path / "model.xml", ONE, runtime)
    assert caught.value.fix == "docvino convert toy --force"


def test_a_graph_without_its_weights_is_a_bundle_error(runtime: RuntimeConfig, tmp_path: Path) -> None:
    path = save(tmp_path, "plus_one")
    path.with_suffix(".bin").write_bytes(b"")
    with pytest.raises(BundleError, match=r"plus_one\.xml of toy"):
        compile_model(path, ONE, runtime)


def test_a_model_that_the_device_refuses_is_a_device_error(
    runtime: RuntimeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: Any) -> Any:
        raise RuntimeError("Exception from src/x.cpp:1:\nno room for the weights\n")

    monkeypatch.setattr(open_core(), "compile_model", refuses)
    with pytest.raises(DeviceError, match="CPU does not take toy at f32: no room for the weights"):
        compile_model(save(tmp_path, "plus_one"), ONE, runtime)


def test_the_number_of_threads_is_passed_on(runtime: RuntimeConfig, tmp_path: Path) -> None:
    path = save(tmp_path, "plus_one")
    for slots, spec in ((1, ONE), (2, SEVERAL)):
        model = compile_model(path, spec, runtime.model_copy(update={"threads": 2, "async_slots": slots}))
        assert model.run(rows(1, 1))["y"].tolist() == [[2, 2, 2]]


# ---- running


def test_a_model_gives_every_output_by_name(runtime: RuntimeConfig, tmp_path: Path) -> None:
    outputs = compile_model(save(tmp_path, "two"), ONE, runtime).run(rows(2, 4))
    assert {name: values.tolist() for name, values in outputs.items()} == {"y": [[4] * 3] * 2, "z": [[5] * 3] * 2}


def test_outputs_stay_what_they_are_when_the_model_runs_again(plus_one: Model) -> None:
    first = plus_one.run(rows(2, 1))["y"]
    plus_one.run(rows(2, 7))
    assert first.tolist() == [[2, 2, 2]] * 2


def test_outputs_of_ragged_batches_come_in_the_order_of_the_batches(plus_one: Model) -> None:
    found = [(outputs["y"].shape[0], float(outputs["y"][0, 0])) for outputs in plus_one.run_all(ragged())]
    assert found == [(1 + number % 5, number + 1) for number in range(25)]


def test_kept_outputs_of_several_batches_are_copies(plus_one: Model) -> None:
    kept = list(plus_one.run_all(ragged()))
    assert all((outputs["y"] == number + 1).all() for number, outputs in enumerate(kept))


def test_no_batches_give_no_outputs(plus_one: Model) -> None:
    assert list(plus_one.run_all([])) == []


def test_batches_are_pulled_while_others_run_and_not_all_at_once(plus_one: Model) -> None:
    pulled = 0

    def batches() -> Iterator[Input]:
        nonlocal pulled
        for batch in ragged(100):
            pulled += 1
            yield batch

    outputs = plus_one.run_all(batches())
    next(outputs)
    assert pulled < 100
    assert len(list(outputs)) == 99


def test_a_run_that_is_given_up_leaves_nothing_to_the_next(plus_one: Model) -> None:
    outputs = plus_one.run_all(ragged())
    next(outputs)
    del outputs
    assert [float(found["y"][0, 0]) for found in plus_one.run_all(ragged(4))] == [1, 2, 3, 4]


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("slots", [1, 2])
def test_an_output_that_is_not_finite_is_an_inference_error_and_the_model_goes_on(
    runtime: RuntimeConfig, tmp_path: Path, value: float, slots: int
) -> None:
    model = compile_model(save(tmp_path, "log"), SEVERAL, runtime.model_copy(update={"async_slots": slots}))
    bad = rows(1, 1)
    bad["x"][0, 1] = value
    message = "toy gave numbers that are not finite in output 'y' on CPU"
    with pytest.raises(InferenceError, match=message) as caught:
        list(model.run_all([rows(1, 1), bad, rows(1, 1)]))
    assert "--execution f32" in caught.value.fix
    assert [outputs["y"].tolist() for outputs in model.run_all([rows(1, 1)] * 3)] == [[[0, 0, 0]]] * 3
    with pytest.raises(InferenceError, match=message):
        model.run(bad)
    assert model.run(rows(1, 1))["y"].tolist() == [[0, 0, 0]]


def test_what_is_taken_of_outputs_is_kept_and_checked(runtime: RuntimeConfig, tmp_path: Path) -> None:
    model = compile_model(save(tmp_path, "log"), SEVERAL, runtime.model_copy(update={"async_slots": 2}))

    def largest(outputs: Tensors) -> Tensors:
        return {"y": outputs["y"].max(axis=1)}

    found = list(model.run_all([rows(1, value) for value in (1, 2, 3, 4)], largest))
    assert [float(outputs["y"][0]) for outputs in found] == pytest.approx(np.log([1, 2, 3, 4]))
    with pytest.raises(InferenceError, match="not finite in output 'y'"):
        list(model.run_all([rows(1, 1), rows(1, -1)], largest))


def test_an_input_stays_what_it_is_when_the_model_runs_again(runtime: RuntimeConfig, tmp_path: Path) -> None:
    path = save(tmp_path, "plus_one")
    for _ in range(5):
        model = compile_model(path, SEVERAL, runtime.model_copy(update={"async_slots": 2}))
        data = rows(1, 7)
        model.run(data)
        list(model.run_all([rows(1, value) for value in range(4)]))
        assert data["x"].tolist() == [[7, 7, 7]]


def test_infinities_of_both_signs_are_an_inference_error_without_a_warning(
    runtime: RuntimeConfig, tmp_path: Path
) -> None:
    both = {"x": np.array([[np.inf, -np.inf, 1]], np.float32)}
    with pytest.raises(InferenceError, match="not finite"):
        compile_model(save(tmp_path, "plus_one"), ONE, runtime).run(both)


def test_an_input_that_the_model_does_not_have_is_an_inference_error(plus_one: Model) -> None:
    with pytest.raises(InferenceError, match="toy failed on CPU: Port for tensor name z was not found"):
        plus_one.run({"z": np.zeros((1, 3), np.float32)})


def wrong_shape() -> Input:
    return {"x": np.zeros((1, 4), np.float32)}


def test_an_input_of_a_wrong_shape_is_an_inference_error_and_the_model_goes_on(plus_one: Model) -> None:
    with pytest.raises(InferenceError, match="toy failed on CPU"):
        plus_one.run(wrong_shape())
    assert plus_one.run(rows(1, 1))["y"].tolist() == [[2, 2, 2]]


@pytest.mark.parametrize("slots", [2, 5])
def test_a_failure_in_flight_is_an_inference_error_and_the_model_goes_on(
    runtime: RuntimeConfig, tmp_path: Path, slots: int
) -> None:
    path = save(tmp_path, "plus_one")
    model = compile_model(path, SEVERAL, runtime.model_copy(update={"async_slots": slots}))
    with pytest.raises(InferenceError, match="toy failed on CPU"):
        list(model.run_all([rows(1, 1), wrong_shape(), rows(1, 1)]))
    assert [float(outputs["y"][0, 0]) for outputs in model.run_all(ragged(4))] == [1, 2, 3, 4]


# ---- messages


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("Exception from src/a.cpp:1:\nCheck 'x' failed at src/b.cpp:2:\nno such layer\n\n", "no such layer"),
        ("Exception from src/a.cpp:1:\n", "Exception from src/a.cpp:1:"),
        ("", "RuntimeError"),
        ("x" * 400, "x" * 300),
    ],
)
def test_the_most_telling_line_of_a_message_is_shown(message: str, line: str) -> None:
    assert first_line(RuntimeError(message)) == line
