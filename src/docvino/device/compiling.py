"""Compiles models: all properties follow from the model's role, the device's profile and the settings.

Conversion, verification and parsing compile here alike, so what was verified is what reads.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import openvino as ov
from openvino.passes import ConstantFolding, Manager

from docvino import __version__
from docvino.device.cache import Entry
from docvino.device.core import first_line, open_core, supported_properties
from docvino.device.devices import DeviceInfo, Target, target_of
from docvino.device.memory import Need, need_of, promise
from docvino.device.model import Compiled, Model, execution_devices, execution_precision, was_cached
from docvino.device.padding import MASK, PaddedModel, add_mask, takes_patches
from docvino.errors import BundleError, DeviceError
from docvino.settings import RuntimeConfig
from docvino.specs.model import DetectionFacts, ModelSpec, RecognitionFacts, TableFacts

log = logging.getLogger(__name__)

Shapes = Mapping[str, Sequence[int]]


def compile_model(path: Path, spec: ModelSpec[Any], runtime: RuntimeConfig) -> Model:
    """Compiles an IR or ONNX file for `runtime.device`, through the model cache when it is on.

    Text recognition gets as many requests as settings or the device's profile say, the other models run one at a time.

    Raises: BundleError for a file OpenVINO cannot read, DeviceError for a device that is absent, has too little memory
    or refuses the model.
    """
    target = target_of(runtime)
    slots = target.slots if spec.role == "text-recognition" else 1
    model = _read(path, spec.name)
    largest = _largest_input(spec, target.device.profile.line_batch)
    return Model(_compile(path, model, spec.name, runtime, target, slots, {}, largest), slots)


def compile_part(path: Path, name: str, runtime: RuntimeConfig, largest: Shapes | None = None) -> Model:
    """Compiles one graph of a vision-language model, with one request; a decoder keeps its state in it.

    Keys and values are kept in the arithmetic's own format where the device lets one choose: a device's default may be
    8 bits, and a comparison would judge that and not the graph.

    largest   shapes of the largest inputs it is going to be given, by name, for the estimate of memory

    Raises: as `compile_model`.
    """
    target = target_of(runtime)
    supported = supported_properties(target.device.name)
    properties: dict[str, Any] = {"KV_CACHE_PRECISION": target.execution} if "KV_CACHE_PRECISION" in supported else {}
    model = _read(path, name)
    step = target.device.profile.steps.patches
    if step > 1 and takes_patches(model):
        add_mask(model)
        largest = {**largest, MASK: (1, 1, 1, largest["pixel_values"][1])} if largest else None
        return PaddedModel(_compile(path, model, name, runtime, target, 1, properties, largest or {}), step)
    if target.device.family == "CPU" and (group := activation_group(model)) is not None:
        properties["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = str(group)
    return Model(_compile(path, model, name, runtime, target, 1, properties, largest or {}), 1)


def _read(path: Path, name: str) -> ov.Model:
    try:
        return open_core().read_model(path)
    except RuntimeError as error:
        raise BundleError(
            f"OpenVINO cannot read {path.name} of {name}: {first_line(error)}",
            fix=f"docvino convert {name} --force",
        ) from error


def _compile(
    path: Path,
    model: ov.Model,
    name: str,
    runtime: RuntimeConfig,
    target: Target,
    slots: int,
    properties: Mapping[str, Any],
    largest: Shapes,
) -> Compiled:
    device = target.device
    if not device.profile.any_size:
        _give_sizes(model, name, device)
    if slots > 1 and device.family == "CPU":
        # OpenVINO 2026.4.1 computes convolutions with int8 weights wrongly when NUM_STREAMS is above 1: text comes out
        # empty. Weights that are unpacked beforehand are not touched by that, and a CPU is no slower with them.
        passes = Manager()
        passes.register_pass(ConstantFolding())
        passes.run_passes(model)
    need = need_of(model, target.execution, largest, slots)
    properties = {**base_properties(target, runtime, slots), **properties}
    return compile_cached(model, name, target, properties, runtime, path, need)


def base_properties(target: Target, runtime: RuntimeConfig, slots: int) -> dict[str, Any]:
    """Properties of every model."""
    supported = supported_properties(target.device.name)
    properties: dict[str, Any] = {
        "INFERENCE_PRECISION_HINT": target.execution,
        # THROUGHPUT could switch on several streams and automatic batching, which no model with a state survives.
        "PERFORMANCE_HINT": "LATENCY",
    }
    if target.device.family == "GPU" and target.execution == "f32" and "EXECUTION_MODE_HINT" in supported:
        # Some GPU kernels round more than the precision says. Source: openvinotoolkit/openvino#28770.
        properties["EXECUTION_MODE_HINT"] = "ACCURACY"
    if runtime.threads and "INFERENCE_NUM_THREADS" in supported:
        properties["INFERENCE_NUM_THREADS"] = runtime.threads
    if slots > 1 and target.device.profile.own_streams:
        properties["NUM_STREAMS"] = str(slots)
    return properties


def large_buffers(device: DeviceInfo, largest_bytes: int) -> dict[str, Any]:
    """A GPU is told of buffers above its limit, which it would refuse; it is slower with them."""
    name = "GPU_ENABLE_LARGE_ALLOCATIONS"
    if device.buffer_bytes is None or largest_bytes <= device.buffer_bytes:
        return {}
    return {name: "YES"} if name in supported_properties(device.name) else {}


def compile_cached(
    model: ov.Model,
    name: str,
    target: Target,
    properties: Mapping[str, Any],
    runtime: RuntimeConfig,
    path: Path,
    need: Need,
    *,
    cacheable: bool = True,
) -> Compiled:
    """Compiles when there is memory for it, from the cache when that can be used; checks that the device obeyed.

    path        the model's file, which the cache is keyed by
    cacheable   whether compiled models of this kind may be kept

    Raises: DeviceError.
    """
    core, device = open_core(), target.device
    promised = promise(device, name, need)
    properties = {**properties, **large_buffers(device, need.buffer)}
    entry = Entry.of(runtime, path, device)
    folder = entry.blobs() if cacheable else None
    # An empty folder switches the cache off, also where a configuration of OpenVINO's own names one.
    no_cache = {**properties, "CACHE_DIR": ""}
    try:
        try:
            raw = core.compile_model(
                model, device.name, no_cache if folder is None else {**properties, "CACHE_DIR": str(folder)}
            )
        except RuntimeError as error:
            if folder is None:
                raise
            log.debug("%s is compiled again without the cache: %s", name, first_line(error))
            folder = None
            raw = core.compile_model(model, device.name, no_cache)
    except RuntimeError as error:
        raise DeviceError(
            f"{device.name} does not take {name} at {target.execution}{_kv(properties)}: {first_line(error)}",
            fix="try --device CPU or --execution f32; `docvino doctor` shows what the device can do",
        ) from error
    _check_obeyed(raw, name, target, properties)
    from_cache = folder is not None and was_cached(raw)
    if folder is not None:
        entry.compiled(from_cache=from_cache)
    return Compiled(raw, name, target, from_cache, entry, _test_key(properties), promised)


def _kv(properties: Mapping[str, Any]) -> str:
    kept = properties.get("KV_CACHE_PRECISION")
    return f", keys and values in {kept}" if kept else ""


def _check_obeyed(compiled: Any, name: str, target: Target, properties: Mapping[str, Any]) -> None:
    device = target.device
    used = execution_devices(compiled)
    if any(part.split(".", 1)[0] != device.family for part in used):
        raise DeviceError(
            f"{name} was compiled for {device.name} and runs on {', '.join(used)}",
            fix=f"use --device {used[0].split('.', 1)[0]}; `docvino doctor` shows what the device can do",
        )
    arithmetic = execution_precision(compiled)
    if arithmetic != target.execution:
        raise DeviceError(
            f"{device.name} computes {name} in {arithmetic}, not in {target.execution} as asked",
            fix=f"use --execution {arithmetic}",
        )
    if mode := properties.get("EXECUTION_MODE_HINT"):
        found = str(compiled.get_property("EXECUTION_MODE_HINT")).rsplit(".", 1)[-1]
        if found != mode:
            raise DeviceError(
                f"{device.name} runs {name} in the mode {found}, not {mode}", fix="use --execution f16, or --device CPU"
            )


def _test_key(properties: Mapping[str, Any]) -> str:
    """What has to be the same, beside model, device, driver and OpenVINO, for a self-test to count."""
    facts = json.dumps([__version__, {key: str(value) for key, value in properties.items()}], sort_keys=True)
    return hashlib.sha256(facts.encode()).hexdigest()[:16]


def _give_sizes(model: ov.Model, name: str, device: DeviceInfo) -> None:
    """One picture at a time; a graph with other sizes to be filled in is not for this device."""
    shapes = {}
    for port in model.inputs:
        shape = port.get_partial_shape()
        if shape.is_static:
            continue
        if shape.rank.is_dynamic or any(size.is_dynamic for size in list(shape)[1:]):
            raise DeviceError(
                f"{device.name} runs graphs of fixed size only, and input {port.get_any_name()} of {name} is {shape}",
                fix=f"use --device CPU or GPU; --layout-device {device.name} is for layout models, whose size is fixed",
            )
        shapes[port.get_any_name()] = [1, *(size.get_length() for size in list(shape)[1:])]
    if shapes:
        model.reshape(shapes)


def _largest_input(spec: ModelSpec[Any], lines: int) -> Shapes:
    """Shapes of the largest input a model of one graph is going to be given."""
    facts, name = spec.facts, spec.inputs[0].name
    if isinstance(facts, RecognitionFacts):
        return {name: (lines, 3, facts.height_px, facts.max_width_px)}
    if isinstance(facts, DetectionFacts):
        side = int(facts.max_area_px**0.5) // facts.stride_px * facts.stride_px
        return {name: (1, 3, side, side)}
    if isinstance(facts, TableFacts):
        return {name: (1, 3, facts.side_px, facts.side_px)}
    return {contract.name: [max(1, size) for size in contract.shape] for contract in spec.inputs}


def activation_group(model: ov.Model) -> int | None:
    """The group in which activations are quantised on a CPU: 128, or the group of the weights where that is smaller.

    A group larger than the weights' own turns the quantisation off without a word. Measured on a CPU with VNNI, full
    size: 128 reads prompts 1.3 times as fast as OpenVINO's 32 and decodes 16 rows 1.16 times as fast.
    None when the weights are not compressed.
    """
    groups = set()
    for node in model.get_ops():
        if node.get_type_name() != "Constant":
            continue
        shape = node.get_output_shape(0)
        kind = node.get_output_element_type(0).get_type_name()
        if kind in ("i4", "u4") and len(shape) == 3 and shape[-1] > 1:
            groups.add(int(shape[-1]))
        elif kind in ("i8", "u8") and len(shape) == 2:
            groups.add(128)
    return min(128, *groups) if groups else None
