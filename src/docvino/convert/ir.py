"""ONNX or .pdmodel -> OpenVINO IR with fp32, fp16 or int8 weights, as a bundle whose numbers were compared."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
from numpy.typing import NDArray
from openvino import opset13 as ops

from docvino import __version__, golden
from docvino.bundle import (
    CHARACTERS,
    GOLDEN,
    GRAPH,
    MANIFEST,
    MANIFEST_VERSION,
    VERIFICATION,
    Bundle,
    Manifest,
    SourcePin,
    building,
    bundle_folder,
    file_sha256,
    open_bundle,
    write_json,
)
from docvino.codec.sample import sample_page
from docvino.convert.inspect import tensor
from docvino.device import compile_model, first_line, openvino_version
from docvino.errors import BundleError, ConfigError, ConvertError, InferenceError
from docvino.settings import RuntimeConfig
from docvino.specs.model import DocLayoutFacts, ModelSpec, RecognitionFacts, WheelMember

# Which input of an operation holds weights, and along which axis of it the output channels lie.
_WEIGHTS = {
    "Convolution": (1, (0,)),
    "GroupConvolution": (1, (0, 1)),
    "ConvolutionBackpropData": (1, (1,)),
    "GroupConvolutionBackpropData": (1, (0, 2)),
}


@dataclass(frozen=True)
class Conversion:
    bundle: Bundle
    comparison: golden.Comparison
    seconds: float
    size_bytes: int


def convert(
    spec: ModelSpec[Any],
    source: Path,
    runtime: RuntimeConfig,
    *,
    force: bool = False,
    report: Callable[[str], None] = lambda _: None,
) -> Conversion | Bundle:
    """Makes the bundle of `spec` at `runtime.precision` from its file; an existing one is kept unless `force`.

    Returns the conversion, or the bundle that was already there. The comparison runs on the CPU at f32, so that it
    judges the file and not the device.

    Raises: ConvertError when the graph cannot be read, misses its contract, or computes other numbers; ConfigError for
    a precision that is not for this model.
    """
    if runtime.precision not in spec.precisions:
        raise ConfigError(
            f"{spec.name} has no {runtime.precision} form",
            fix=f"use {spec.precisions[-1]}; int4 is for vision-language models",
        )
    folder = bundle_folder(runtime.data_dir, spec.name, runtime.precision)
    if not force and folder.exists():
        try:
            return open_bundle(folder)
        except BundleError as error:
            report(f"{spec.name}: {error}; converting again")
    started = time.perf_counter()
    model = _read(spec, source)
    with building(folder) as workspace:
        if not isinstance(spec.source, WheelMember):
            golden.save_golden(workspace / GOLDEN, _own_case(spec, model, runtime))
        if runtime.precision == "int8":
            count = compress_weights(model, spec.float_convolutions)
            report(f"{spec.name}: {count} weight tensors to int8, one scale per output channel")
        ov.save_model(model, workspace / GRAPH, compress_to_fp16=runtime.precision == "fp16")
        characters = _dictionary(spec, model, source.parent)
        if characters is not None:
            (workspace / CHARACTERS).write_bytes(characters.encode())
        if isinstance(spec.source, WheelMember):
            (workspace / GOLDEN).write_bytes(golden.packaged_golden(spec.name))
        comparison = _compare(spec, workspace, runtime, characters)
        manifest = Manifest(
            manifest_version=MANIFEST_VERSION,
            spec=spec.name,
            precision=runtime.precision,
            source=_pin(spec, source),
            docvino=__version__,
            openvino=openvino_version(),
            inputs=tuple(tensor(port) for port in model.inputs),
            outputs=tuple(tensor(port) for port in model.outputs),
            files={path.name: file_sha256(path) for path in sorted(workspace.iterdir())},
        )
        (workspace / MANIFEST).write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")
        write_json(workspace / VERIFICATION, [{"device": "CPU", "execution": "f32", **asdict(comparison)}])
        size = sum(path.stat().st_size for path in workspace.iterdir())
    return Conversion(open_bundle(folder), comparison, time.perf_counter() - started, size)


def compress_weights(model: ov.Model, float_convolutions: int = 0) -> int:
    """Replaces float weights of convolutions and matrix products by int8 with one symmetric scale per output channel.

    The first `float_convolutions` keep theirs. So does what runs inside a loop: its errors would add up step by step.

    Returns the number of tensors replaced. The arithmetic stays floating point.
    """
    count = 0
    axes: tuple[int, ...]
    seen = 0
    for op in model.get_ordered_ops():
        kind = op.get_type_name()
        seen += kind == "Convolution"
        if kind == "Convolution" and seen <= float_convolutions:
            continue
        if kind == "MatMul":
            index, axes = 1, ((0,) if op.get_attributes()["transpose_b"] else (-1,))
        elif kind in _WEIGHTS:
            index, axes = _WEIGHTS[kind]
        else:
            continue
        constant = op.input_value(index).get_node()
        if constant.get_type_name() != "Constant" or constant.get_element_type() != ov.Type.f32:
            continue
        weights = constant.data
        if weights.ndim < 2:
            continue
        quantised, scale = quantise(weights, axes)
        restored = ops.multiply(ops.convert(ops.constant(quantised), "f32"), ops.constant(scale))
        restored.set_friendly_name(f"{constant.get_friendly_name()}/int8")
        op.input(index).replace_source_output(restored.output(0))
        count += 1
    model.validate_nodes_and_infer_types()
    return count


def quantise(
    weights: NDArray[np.float32], channel_axes: tuple[int, ...]
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Symmetric int8 in -127..127 and float32 scales that broadcast, so that int8 * scale is nearest to the weights."""
    kept = {axis % weights.ndim for axis in channel_axes}
    reduced = tuple(axis for axis in range(weights.ndim) if axis not in kept)
    largest = np.abs(weights).max(axis=reduced, keepdims=True)
    # The smallest normal float: what lies below is zero for any network, and its scale would be zero, too.
    scale = np.where(largest > np.finfo(np.float32).tiny * 127, largest / 127, 1).astype(np.float32)
    return np.rint(weights / scale).astype(np.int8), scale


def _read(spec: ModelSpec[Any], source: Path) -> ov.Model:
    if not source.is_file():
        raise ConvertError(f"{spec.name} is not fetched", fix=f"docvino fetch {spec.name}")
    try:
        model = ov.Core().read_model(source)
    except RuntimeError as error:
        raise ConvertError(
            f"OpenVINO cannot read {source.name} of {spec.name}: {first_line(error)}",
            fix=f"delete the file and run `docvino fetch {spec.name}`",
        ) from error
    if isinstance(spec.facts, DocLayoutFacts):
        _give_names(model, spec)
    for ports, contracts in ((model.inputs, spec.inputs), (model.outputs, spec.outputs)):
        for contract in contracts:
            port = next((port for port in ports if contract.name in port.get_names()), None)
            wanted = ov.PartialShape(list(contract.shape))
            if port is None or not port.get_partial_shape().compatible(wanted):
                found = {name: str(port.get_partial_shape()) for port in ports for name in port.get_names()}
                raise ConvertError(
                    f"{source.name} has no tensor {contract.name} of shape {wanted}; it has {found}",
                    fix=f"delete the file and run `docvino fetch {spec.name}`",
                )
    if isinstance(spec.facts, DocLayoutFacts):
        _fix_shapes(model, spec)
    return model


def _give_names(model: ov.Model, spec: ModelSpec[Any]) -> None:
    """Names the outputs by their place: exporters name them as they like, and keep them in order."""
    for port, contract in zip(model.outputs, spec.outputs, strict=False):
        port.get_tensor().set_names({contract.name})


def _fix_shapes(model: ov.Model, spec: ModelSpec[Any]) -> None:
    """One page at a time: with all sizes known, devices that take no others run the model, too."""
    try:
        model.reshape({contract.name: ov.PartialShape(list(contract.shape)) for contract in spec.inputs})
    except RuntimeError as error:
        raise ConvertError(
            f"{spec.name} does not take one page at a time: {first_line(error)}",
            fix=f"delete the file and run `docvino fetch {spec.name}`",
        ) from error


def _own_case(spec: ModelSpec[Any], model: ov.Model, runtime: RuntimeConfig) -> golden.Golden:
    """What the graph as it came gives for a drawn page on the CPU: nobody has recorded it for us."""
    page = sample_page()
    with tempfile.TemporaryDirectory(prefix="docvino-convert-", ignore_cleanup_errors=True) as scratch:
        path = Path(scratch) / GRAPH
        ov.save_model(model, path, compress_to_fp16=False)
        outputs = compile_model(path, spec, _on_cpu(runtime)).run(golden.prepare(spec, (page,)))
    try:
        items = golden.interpret(spec, outputs, page, None)
    except InferenceError as error:
        raise ConvertError(
            f"{spec.name} has another graph than it should: {error}",
            fix=f"delete the file and run `docvino fetch {spec.name}`",
        ) from error
    engine = f"the published graph in OpenVINO {openvino_version()} on a CPU"
    return golden.Golden((page,), golden.measured(spec, outputs), {}, items, engine)


def _pin(spec: ModelSpec[Any], source: Path) -> SourcePin:
    origin = spec.source
    if isinstance(origin, WheelMember):
        return SourcePin(package=origin.package, version=origin.version, member=origin.member, sha256=origin.sha256)
    repository = origin.folder.repositories["huggingface"]
    return SourcePin(
        package=repository.name, version=repository.revision, member=origin.member, sha256=file_sha256(source)
    )


def _dictionary(spec: ModelSpec[Any], model: ov.Model, folder: Path) -> str | None:
    if not isinstance(spec.facts, RecognitionFacts):
        return None
    if spec.facts.dictionary_file is not None:
        try:
            # Bytes: no character of a dictionary is a line end, and none may change.
            text = (folder / spec.facts.dictionary_file).read_bytes().decode().removesuffix("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ConvertError(
                f"{spec.name} lacks its dictionary {spec.facts.dictionary_file}",
                fix=f"run `docvino fetch {spec.name}`",
            ) from error
    else:
        path = ["framework", str(spec.facts.dictionary_key)]
        if not model.has_rt_info(path):
            raise ConvertError(
                f"{spec.name} has no metadata entry {spec.facts.dictionary_key!r} with its characters",
                fix=f"delete the file and run `docvino fetch {spec.name}`",
            )
        text = str(model.get_rt_info(path).value)
    # Class 0 is the blank and the last one the space; both are not in the dictionary.
    classes, wanted = len(text.split("\n")) + 2, spec.outputs[0].shape[-1]
    if classes != wanted:
        raise ConvertError(
            f"the dictionary of {spec.name} gives {classes} classes, the graph has {wanted}",
            fix=f"delete the file and run `docvino fetch {spec.name}`",
        )
    return text


def _compare(
    spec: ModelSpec[Any], workspace: Path, runtime: RuntimeConfig, characters: str | None
) -> golden.Comparison:
    case = golden.load_golden(workspace / GOLDEN)
    outputs = golden.run(spec, case, compile_model(workspace / GRAPH, spec, _on_cpu(runtime)))
    comparison = golden.compare_all(spec, case, outputs, characters, (runtime.precision,))
    if comparison.problem is not None:
        raise ConvertError(
            f"{spec.name} at {runtime.precision} computes other numbers than {case.engine}: {comparison.problem}",
            fix="use --precision fp32, and report this with the output of `docvino doctor`",
        )
    return comparison


def _on_cpu(runtime: RuntimeConfig) -> RuntimeConfig:
    return runtime.model_copy(update={"device": "CPU", "execution": "f32", "model_cache": False})
