"""Facts of conversion, on made-up models of a few weights with golden cases of their own."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from openvino import opset13 as ops

from docvino import golden
from docvino.bundle import Bundle, bundle_folder, open_bundle
from docvino.convert.inspect import inspect_model
from docvino.convert.ir import Conversion, compress_weights, convert, quantise
from docvino.errors import ConvertError
from docvino.golden import Golden, Item, save_golden
from docvino.settings import RuntimeConfig
from docvino.specs.model import ModelSpec
from docvino.specs.orientation import ORIENTATION
from docvino.specs.pp_ocr import RECOGNITION
from protobuf import message

Weights = NDArray[np.float32]

SPEC: ModelSpec[Any] = dataclasses.replace(ORIENTATION, name="toy")
READER: ModelSpec[Any] = dataclasses.replace(
    RECOGNITION, name="reader", outputs=(dataclasses.replace(RECOGNITION.outputs[0], shape=(-1, -1, 5)),)
)
MIXING = np.array([[0.5, -1.25, 2.0, 0.1], [-0.75, 1.5, 0.3, -2.0], [1.0, 0.2, -0.4, 0.6]], np.float32)
PAGE = np.full((300, 400, 3), (250, 40, 90), np.uint8)


def normal(*shape: int) -> Weights:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def parameter(*shape: int) -> ov.Node:
    node = ops.parameter(list(shape), np.float32, name="x")
    node.output(0).set_names({"x"})
    return node


def finished(x: ov.Node, y: ov.Node, name: str = "fetch_name_0") -> ov.Model:
    y.output(0).set_names({name})
    return ov.Model([y], [x], "toy")


def classifier(mixing: Weights = MIXING) -> ov.Model:
    """float32 (?, 3, 224, 224) -> (?, 4): softmax of the mean colour times `mixing`."""
    x = parameter(-1, 3, 224, 224)
    mean = ops.reduce_mean(x, ops.constant(np.array([2, 3], np.int64)))
    return finished(x, ops.softmax(ops.matmul(mean, ops.constant(mixing), False, False), 1))


def reader(dictionary: str | None = "a\r\n版\nc") -> ov.Model:
    """float32 (?, 3, 48, ?) -> (?, W, 5), with a dictionary as ONNX metadata has it."""
    x = parameter(-1, 3, 48, -1)
    mean = ops.unsqueeze(ops.reduce_mean(x, ops.constant(np.array([1, 2], np.int64))), ops.constant(np.int64(2)))
    model = finished(x, ops.softmax(ops.matmul(mean, ops.constant(normal(1, 5)), False, False), 2))
    if dictionary is not None:
        model.set_rt_info(dictionary, ["framework", "character"])
    return model


def run(model: ov.Model, data: Weights) -> Weights:
    compiled = ov.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    values: Weights = compiled({0: data})[0].copy()
    return values


def saved(model: ov.Model, folder: Path) -> Path:
    path = folder / "source" / "model.xml"
    path.parent.mkdir(exist_ok=True)
    ov.save_model(model, path, compress_to_fp16=False)
    return path


def case_of(spec: ModelSpec[Any], model: ov.Model, images: tuple[NDArray[np.uint8], ...], characters: str) -> Golden:
    """The golden case that this very model fulfils."""
    (data,) = golden.prepare(spec, images).values()
    outputs = {"fetch_name_0": run(model, data)}
    return Golden(images, outputs, {}, golden.interpret(spec, outputs, images[0], characters), "numbers of this test")


@pytest.fixture
def ship(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Golden], None]:
    """Makes a golden case the one that the package ships."""

    def put(case: Golden) -> None:
        path = tmp_path / "shipped.npz"
        save_golden(path, case)
        monkeypatch.setattr(golden, "packaged_golden", lambda _: path.read_bytes())

    return put


@pytest.fixture
def shipped(ship: Callable[[Golden], None]) -> Golden:
    case = case_of(SPEC, classifier(), (PAGE,), "")
    ship(case)
    return case


@pytest.fixture
def runtime(tmp_path: Path) -> RuntimeConfig:
    return RuntimeConfig(data_dir=tmp_path / "data", cache_dir=tmp_path / "cache")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ---- quantising


@given(st.integers(0, 2**32 - 1), st.floats(1e-6, 1e6))
def test_no_weight_moves_by_more_than_half_a_step(seed: int, size: float) -> None:
    weights = (np.random.default_rng(seed).standard_normal((6, 5)) * size).astype(np.float32)
    quantised, scale = quantise(weights, (0,))
    assert (np.abs(quantised * scale.astype(np.float64) - weights) <= scale * 0.5001).all()


def test_the_largest_weight_of_each_channel_becomes_127() -> None:
    quantised, scale = quantise(np.array([[0.5, -1.0], [300.0, 10.0]], np.float32), (0,))
    assert quantised.dtype == np.int8
    assert quantised.tolist() == [[64, -127], [127, 4]]
    assert scale.ravel() == pytest.approx([1 / 127, 300 / 127])


def test_a_channel_of_zeros_stays_zero_with_a_scale_of_one() -> None:
    quantised, scale = quantise(np.array([[0, 0], [1, 2]], np.float32), (0,))
    assert quantised[0].tolist() == [0, 0]
    assert scale[0, 0] == 1.0


@pytest.mark.parametrize(
    ("axes", "shape"),
    [((0,), (2, 1, 1)), ((-1,), (1, 1, 4)), ((0, 1), (2, 3, 1)), ((1,), (1, 3, 1))],
)
def test_the_scale_has_one_value_per_channel_and_broadcasts(axes: tuple[int, ...], shape: tuple[int, ...]) -> None:
    assert quantise(normal(2, 3, 4), axes)[1].shape == shape


# ---- compressing a graph


def matmul(*, transpose: bool) -> tuple[ov.Model, Weights]:
    x, weights = parameter(2, 6), normal(*((4, 6) if transpose else (6, 4)))
    return finished(x, ops.matmul(x, ops.constant(weights), False, transpose)), weights


def convolution() -> tuple[ov.Model, Weights]:
    x, weights = parameter(1, 3, 8, 8), normal(5, 3, 3, 3)
    return finished(x, ops.convolution(x, ops.constant(weights), [1, 1], [1, 1], [1, 1], [1, 1])), weights


def group_convolution() -> tuple[ov.Model, Weights]:
    x, weights = parameter(1, 4, 8, 8), normal(4, 1, 1, 3, 3)
    return finished(x, ops.group_convolution(x, ops.constant(weights), [1, 1], [1, 1], [1, 1], [1, 1])), weights


def deconvolution() -> tuple[ov.Model, Weights]:
    x, weights = parameter(1, 3, 8, 8), normal(3, 5, 2, 2)
    y = ops.convolution_backprop_data(x, ops.constant(weights), [2, 2], pads_begin=[0, 0], pads_end=[0, 0])
    return finished(x, y), weights


def group_deconvolution() -> tuple[ov.Model, Weights]:
    x, weights = parameter(1, 4, 8, 8), normal(2, 2, 3, 2, 2)
    y = ops.group_convolution_backprop_data(x, ops.constant(weights), [2, 2], pads_begin=[0, 0], pads_end=[0, 0])
    return finished(x, y), weights


GRAPHS: dict[str, tuple[Callable[[], tuple[ov.Model, Weights]], tuple[int, ...]]] = {
    "MatMul": (lambda: matmul(transpose=False), (1, 4)),
    "MatMul, second matrix transposed": (lambda: matmul(transpose=True), (4, 1)),
    "Convolution": (convolution, (5, 1, 1, 1)),
    "GroupConvolution": (group_convolution, (4, 1, 1, 1, 1)),
    "ConvolutionBackpropData": (deconvolution, (1, 5, 1, 1)),
    "GroupConvolutionBackpropData": (group_deconvolution, (2, 1, 3, 1, 1)),
}


def constants(model: ov.Model, kind: str) -> Iterator[NDArray[Any]]:
    for op in model.get_ops():
        if op.get_type_name() == "Constant" and op.get_element_type().get_type_name() == kind:
            yield op.data.copy()


@pytest.mark.parametrize("name", GRAPHS)
def test_weights_become_int8_with_one_scale_per_output_channel(name: str) -> None:
    build, scale_shape = GRAPHS[name]
    model, weights = build()
    data = normal(*model.input(0).shape)
    before = run(model, data)
    assert compress_weights(model) == 1
    (quantised,), (scale,) = constants(model, "i8"), constants(model, "f32")
    assert scale.shape == scale_shape
    assert (np.abs(quantised * scale - weights) <= scale * 0.5001).all()
    after = run(model, data)
    assert after.shape == before.shape
    assert np.abs(after - before).max() < 0.02 * np.abs(before).max()
    assert not np.array_equal(after, before)


def test_a_compressed_model_computes_the_same_after_it_was_saved(tmp_path: Path) -> None:
    model, _ = convolution()
    compress_weights(model)
    data = normal(1, 3, 8, 8)
    path = saved(model, tmp_path)
    assert np.array_equal(run(ov.Core().read_model(path), data), run(model, data))
    assert path.with_suffix(".bin").stat().st_size < 5 * 3 * 3 * 3 + 5 * 4 + 64


def test_a_scale_on_the_wrong_axis_would_be_seen() -> None:
    """Guards the tests above: channels of unlike size need scales of their own."""
    weights = normal(4, 6) * np.array([[1], [10], [100], [1000]], np.float32)
    quantised, scale = quantise(weights, (0,))
    assert (np.abs(quantised * scale - weights) <= np.abs(weights).max(axis=1, keepdims=True) / 250).all()
    quantised, scale = quantise(weights, (1,))
    assert not (np.abs(quantised * scale - weights) <= np.abs(weights).max(axis=1, keepdims=True) / 250).all()


def test_what_is_no_matrix_of_float_weights_is_left_alone() -> None:
    x = parameter(2, 6)
    half = ops.convert(ops.constant(normal(6, 6).astype(np.float16)), "f32")
    y = ops.matmul(ops.matmul(x, half, False, False), ops.constant(normal(6)), False, False)
    model = finished(x, ops.add(y, ops.constant(normal(2))))
    assert compress_weights(model) == 0
    assert list(constants(model, "i8")) == []


def test_weights_that_two_operations_share_are_compressed_in_both() -> None:
    x, weights = parameter(2, 6), ops.constant(normal(6, 6))
    model = finished(x, ops.matmul(ops.matmul(x, weights, False, False), weights, False, False))
    data = normal(2, 6)
    before = run(model, data)
    assert compress_weights(model) == 2
    assert np.abs(run(model, data) - before).max() < 0.05 * np.abs(before).max()


def test_the_first_convolutions_keep_float_weights_when_a_spec_says_so() -> None:
    x = parameter(1, 3, 8, 8)
    weights = normal(4, 3, 3, 3), normal(5, 4, 1, 1)
    first = ops.convolution(x, ops.constant(weights[0]), [1, 1], [0, 0], [0, 0], [1, 1])
    model = finished(x, ops.convolution(first, ops.constant(weights[1]), [1, 1], [0, 0], [0, 0], [1, 1]))
    assert compress_weights(model, 1) == 1
    assert [values.shape for values in constants(model, "i8")] == [(5, 4, 1, 1)]
    assert compress_weights(model, 2) == 0


# ---- converting


@pytest.mark.usefixtures("shipped")
@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_a_model_becomes_a_bundle_that_was_compared(precision: str, runtime: RuntimeConfig, tmp_path: Path) -> None:
    said: list[str] = []
    wanted = runtime.model_copy(update={"precision": precision})
    result = convert(SPEC, saved(classifier(), tmp_path), wanted, report=said.append)
    assert isinstance(result, Conversion)
    folder = bundle_folder(runtime.data_dir, "toy", precision)
    assert names(folder) == ["golden.npz", "manifest.json", "model.bin", "model.xml", "verify.json"]
    bundle = open_bundle(folder)
    bundle.check_files()
    assert bundle == result.bundle
    assert (bundle.manifest.spec, bundle.manifest.precision) == ("toy", precision)
    assert bundle.manifest.source.sha256 == SPEC.source.sha256
    assert bundle.manifest.files.keys() == {"golden.npz", "model.bin", "model.xml"}
    assert [(port.name, port.shape) for port in bundle.manifest.inputs] == [("x", "[?,3,224,224]")]
    assert [(port.name, port.shape) for port in bundle.manifest.outputs] == [("fetch_name_0", "[?,4]")]
    assert result.comparison.problem is None
    assert result.size_bytes == sum(path.stat().st_size for path in folder.iterdir())
    assert said == (["toy: 1 weight tensors to int8, one scale per output channel"] if precision == "int8" else [])
    (verdict,) = json.loads((folder / "verify.json").read_text(encoding="utf-8"))
    assert (verdict["device"], verdict["execution"], verdict["problem"]) == ("CPU", "f32", None)


@pytest.mark.usefixtures("shipped")
@pytest.mark.parametrize(("precision", "kind"), [("fp32", "f32"), ("fp16", "f16"), ("int8", "i8")])
def test_the_weights_of_a_bundle_are_stored_as_asked(
    precision: str, kind: str, runtime: RuntimeConfig, tmp_path: Path
) -> None:
    wanted = runtime.model_copy(update={"precision": precision})
    result = convert(SPEC, saved(classifier(), tmp_path), wanted)
    assert isinstance(result, Conversion)
    model = ov.Core().read_model(result.bundle.graph)
    assert (3, 4) in [values.shape for values in constants(model, kind)]


def test_a_model_that_computes_other_numbers_is_refused_and_leaves_nothing(
    runtime: RuntimeConfig, tmp_path: Path, ship: Callable[[Golden], None], shipped: Golden
) -> None:
    other = {"fetch_name_0": shipped.outputs["fetch_name_0"] + np.float32(0.005)}
    ship(dataclasses.replace(shipped, outputs=other))
    with pytest.raises(ConvertError, match=r"toy at fp32 computes other numbers than numbers of this test: outputs d"):
        convert(SPEC, saved(classifier(), tmp_path), runtime)
    assert names(runtime.data_dir / "bundles") == []


def test_a_model_that_gives_another_answer_is_refused(
    runtime: RuntimeConfig, tmp_path: Path, ship: Callable[[Golden], None], shipped: Golden
) -> None:
    ship(dataclasses.replace(shipped, items=(Item("90", shipped.items[0].score),)))
    with pytest.raises(ConvertError, match="nothing like '90'") as caught:
        convert(SPEC, saved(classifier(), tmp_path), runtime)
    assert "--precision fp32" in caught.value.fix


@pytest.mark.usefixtures("shipped")
def test_a_refused_conversion_keeps_the_bundle_that_was_there(runtime: RuntimeConfig, tmp_path: Path) -> None:
    convert(SPEC, saved(classifier(), tmp_path), runtime)
    with pytest.raises(ConvertError):
        convert(SPEC, saved(classifier(MIXING[:, ::-1].copy()), tmp_path), runtime, force=True)
    open_bundle(bundle_folder(runtime.data_dir, "toy", "fp32")).check_files()


@pytest.mark.usefixtures("shipped")
def test_a_bundle_that_is_there_is_kept_unless_force_is_used(runtime: RuntimeConfig, tmp_path: Path) -> None:
    source = saved(classifier(), tmp_path)
    first = convert(SPEC, source, runtime)
    assert isinstance(first, Conversion)
    assert convert(SPEC, tmp_path / "nowhere.xml", runtime) == first.bundle
    assert isinstance(convert(SPEC, source, runtime, force=True), Conversion)


@pytest.mark.usefixtures("shipped")
def test_a_damaged_bundle_is_converted_again_and_that_is_said(runtime: RuntimeConfig, tmp_path: Path) -> None:
    source = saved(classifier(), tmp_path)
    first = convert(SPEC, source, runtime)
    assert isinstance(first, Conversion)
    first.bundle.graph.unlink()
    said: list[str] = []
    assert isinstance(convert(SPEC, source, runtime, report=said.append), Conversion)
    assert said == ["toy: toy-fp32 lacks model.xml; converting again"]
    assert isinstance(convert(SPEC, source, runtime), Bundle)


def test_a_model_that_was_not_fetched_is_said_to_be_so(runtime: RuntimeConfig, tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match="toy is not fetched") as caught:
        convert(SPEC, tmp_path / "nowhere.onnx", runtime)
    assert caught.value.fix == "docvino fetch toy"


def test_a_source_that_cannot_be_read_is_refused_by_name(runtime: RuntimeConfig, tmp_path: Path) -> None:
    source = tmp_path / "model.onnx"
    source.write_bytes(b"no model")
    with pytest.raises(ConvertError, match=r"OpenVINO cannot read model\.onnx of toy") as caught:
        convert(SPEC, source, runtime)
    assert "docvino fetch toy" in caught.value.fix


def test_a_model_without_the_tensors_of_its_contract_is_refused_with_those_it_has(
    runtime: RuntimeConfig, tmp_path: Path
) -> None:
    source = saved(reader(), tmp_path)
    with pytest.raises(ConvertError, match=r"no tensor x of shape \[\?,3,224,224\]; it has {'x': '\[\?,3,48,\?\]'}"):
        convert(SPEC, source, runtime)
    other = dataclasses.replace(SPEC, outputs=(dataclasses.replace(SPEC.outputs[0], name="absent"),))
    with pytest.raises(ConvertError, match="no tensor absent"):
        convert(other, saved(classifier(), tmp_path), runtime)


def test_the_characters_of_a_reader_are_kept_byte_by_byte(
    runtime: RuntimeConfig, tmp_path: Path, ship: Callable[[Golden], None]
) -> None:
    ship(case_of(READER, reader(), (PAGE[:48], PAGE[:48, :99]), "a\r\n版\nc"))
    result = convert(READER, saved(reader(), tmp_path), runtime)
    assert isinstance(result, Conversion)
    assert (result.bundle.folder / "characters.txt").read_bytes() == "a\r\n版\nc".encode()
    assert result.bundle.characters() == "a\r\n版\nc"
    assert "characters.txt" in result.bundle.manifest.files


@pytest.mark.parametrize(
    ("dictionary", "message"),
    [
        (None, "reader has no metadata entry 'character'"),
        ("a\nb", "the dictionary of reader gives 4 classes, the graph has 5"),
    ],
)
def test_a_reader_whose_characters_do_not_fit_is_refused(
    dictionary: str | None, message: str, runtime: RuntimeConfig, tmp_path: Path
) -> None:
    with pytest.raises(ConvertError, match=message):
        convert(READER, saved(reader(dictionary), tmp_path), runtime)
    assert names(runtime.data_dir / "bundles") == []


# ---- looking into model files


def onnx_relu() -> bytes:
    """An ONNX model y = relu(x), x float32 (?, 3), with one metadata entry."""

    def port(name: str) -> bytes:
        shape = message((1, message((2, "rows"))), (1, message((1, 3))))
        return message((1, name), (2, message((1, message((1, 1), (2, shape))))))

    node = message((1, "x"), (2, "y"), (4, "Relu"))
    graph = message((1, node), (2, "a graph " + "x" * 200), (11, port("x")), (12, port("y")))
    entry = message((1, "character"), (2, "a\nb"))
    opset = message((1, ""), (2, 17))
    return message((1, 8), (2, "by hand"), (3, "1.0"), (7, graph), (8, opset), (14, entry))


def test_an_onnx_file_says_who_made_it_its_opset_its_tensors_and_its_metadata(tmp_path: Path) -> None:
    path = tmp_path / "relu.onnx"
    path.write_bytes(onnx_relu())
    facts = inspect_model(path)
    assert (facts.format, facts.producer, facts.opsets) == ("ONNX", "by hand 1.0", {"": 17})
    assert [port.model_dump() for port in facts.inputs] == [{"name": "x", "dtype": "f32", "shape": "[?,3]"}]
    assert [port.name for port in facts.outputs] == ["y"]
    assert facts.metadata == ("character",)
    assert facts.weights == {}


def test_an_ir_file_says_what_its_weights_are(tmp_path: Path) -> None:
    model, _ = convolution()
    compress_weights(model)
    facts = inspect_model(saved(model, tmp_path))
    assert facts.format == "OpenVINO IR"
    assert facts.opsets == {"": 1}
    assert facts.weights == {"i8": 5 * 3 * 3 * 3, "f32": 5 * 4}
    assert facts.operations == len(ov.Core().read_model(tmp_path / "source/model.xml").get_ops())


@pytest.mark.parametrize(
    ("name", "content", "message_part"),
    [
        ("nowhere.onnx", None, "no file"),
        ("model.bin", b"x", "is not one of .onnx"),
        ("model.pdmodel", b"x", "OpenVINO cannot read model.pdmodel"),
        ("model.onnx", b"no model", "OpenVINO cannot read model.onnx"),
        ("model.onnx", onnx_relu()[:-40], "OpenVINO cannot read model.onnx"),
    ],
)
def test_what_is_no_model_file_is_refused(tmp_path: Path, name: str, content: bytes | None, message_part: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConvertError, match=message_part):
        inspect_model(tmp_path / name)
