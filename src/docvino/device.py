"""Devices and compiled models: the only runtime file that knows OpenVINO.

OpenVINO's errors become DeviceError (cannot compile) and InferenceError (cannot run) here.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
from numpy.typing import NDArray
from openvino.passes import ConstantFolding, Manager

from docvino.errors import BundleError, DeviceError, InferenceError, nearest
from docvino.settings import RuntimeConfig
from docvino.specs.model import ModelSpec

log = logging.getLogger(__name__)

Tensors = dict[str, NDArray[np.float32]]


@dataclass(frozen=True)
class DeviceInfo:
    """One device as OpenVINO reports it. `kind` is DISCRETE or INTEGRATED; `capabilities` e.g. FP32, INT8, BF16."""

    name: str
    full_name: str
    kind: str
    capabilities: tuple[str, ...]


def openvino_version() -> str:
    return str(ov.get_version())


def list_devices() -> tuple[DeviceInfo, ...]:
    """Every device that OpenVINO can use here, in its own order."""
    core = ov.Core()
    return tuple(
        DeviceInfo(
            name=name,
            full_name=str(core.get_property(name, "FULL_DEVICE_NAME")).strip(),
            kind=str(core.get_property(name, "DEVICE_TYPE")).rsplit(".", 1)[-1],
            capabilities=tuple(core.get_property(name, "OPTIMIZATION_CAPABILITIES")),
        )
        for name in core.available_devices
    )


def check_device(wanted: str) -> str:
    """The device's name in capitals.

    Raises: DeviceError when OpenVINO does not list it, naming those it does.
    """
    name = wanted.upper()
    available = tuple(ov.Core().available_devices)
    families = {device.split(".", 1)[0] for device in available}
    if name not in available and name not in families:
        raise DeviceError(
            f"OpenVINO sees no device {wanted!r} on this machine",
            fix=f"{nearest(name, available)}; `docvino doctor` shows the devices",
        )
    return name


class Model:
    """A compiled model with one pool of inference requests that are reused for its whole life.

    `devices` and `execution_precision` are read back from the compiled model. Not for several threads at once.
    """

    def __init__(self, compiled: Any, name: str, slots: int) -> None:
        self.name = name
        self.devices = tuple(str(device) for device in compiled.get_property("EXECUTION_DEVICES"))
        self.execution_precision = _precision_name(compiled)
        self._outputs = [port.get_any_name() for port in compiled.outputs]
        # Requests of OpenVINO's own and no AsyncInferQueue: one that is dropped after a failure crashes the process.
        self._requests = [compiled.create_infer_request() for _ in range(slots)]
        self._request = self._requests[0]

    def reset_state(self) -> None:
        """A model that remembers (a decoder with its keys and values) begins anew."""
        self._request.reset_state()

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> Tensors:
        """One inference. The outputs are copies.

        Raises: InferenceError when the device fails or an output is not finite.
        """
        try:
            # Inputs are copied: shared memory of the caller would stay bound to the request after the call.
            self._request.infer(dict(inputs), share_inputs=False)
        except RuntimeError as error:
            raise self._failure(error) from error
        return self._copy_outputs(self._request)

    def run_all(self, batches: Iterable[Mapping[str, NDArray[np.float32]]]) -> Iterator[Tensors]:
        """Inferences of all batches, several in flight; outputs come in the order of the batches.

        Batches are pulled as slots become free, so preparing one overlaps with running another.

        Raises: InferenceError when the device fails or an output is not finite.
        """
        running: deque[Any] = deque()
        try:
            for index, batch in enumerate(batches):
                if len(running) == len(self._requests):
                    yield self._finished(running.popleft())
                request = self._requests[index % len(self._requests)]
                self._start(request, batch)
                running.append(request)
            while running:
                yield self._finished(running.popleft())
        finally:
            # Given up or failed: what is on its way must land before its request is used again.
            for request in running:
                with suppress(RuntimeError):
                    request.wait()

    def _start(self, request: Any, batch: Mapping[str, NDArray[np.float32]]) -> None:
        try:
            request.start_async(dict(batch), share_inputs=False)
        except RuntimeError as error:
            raise self._failure(error) from error

    def _finished(self, request: Any) -> Tensors:
        try:
            request.wait()
        except RuntimeError as error:
            raise self._failure(error) from error
        return self._copy_outputs(request)

    def _copy_outputs(self, request: Any) -> Tensors:
        return self._checked({name: request.get_tensor(name).data.copy() for name in self._outputs})

    def _checked(self, outputs: Tensors) -> Tensors:
        for name, values in outputs.items():
            # A sum is not finite when any term is not: one pass, no mask of the size of the tensor.
            with np.errstate(invalid="ignore"):
                total = values.sum(dtype=np.float64)
            if not np.isfinite(total):
                raise InferenceError(
                    f"{self.name} gave numbers that are not finite in output {name!r} on {', '.join(self.devices)}",
                    fix="run `docvino verify`, or use --execution f32",
                )
        return outputs

    def _failure(self, error: RuntimeError) -> InferenceError:
        return InferenceError(
            f"{self.name} failed on {', '.join(self.devices)}: {first_line(error)}",
            fix="run `docvino doctor` and `docvino verify`, or use --device CPU",
        )


def compile_model(path: Path, spec: ModelSpec[Any], runtime: RuntimeConfig) -> Model:
    """Compiles an IR or ONNX file for `runtime.device` at `runtime.execution`, through the model cache when it is on.

    Text recognition gets `runtime.async_slots` requests, the other models run one request at a time. Verification and
    parsing compile here alike, so what was verified is what reads.

    Raises: BundleError for a file OpenVINO cannot read, DeviceError for a device that is absent or refuses the model.
    """
    device, name = check_device(runtime.device), spec.name
    slots = runtime.async_slots if spec.role == "text-recognition" else 1
    return _compile(path, name, runtime, device, slots, {})


def compile_part(path: Path, name: str, runtime: RuntimeConfig) -> Model:
    """Compiles one graph of a vision-language model, with one request; a decoder keeps its state in it.

    Keys and values are kept in the arithmetic's own format where the device lets one choose: a device's default may be
    8 bits, and a comparison would judge that and not the graph.

    Raises: as `compile_model`.
    """
    device = check_device(runtime.device)
    supported = set(ov.Core().get_property(device, "SUPPORTED_PROPERTIES"))
    kept = {"KV_CACHE_PRECISION": runtime.execution} if "KV_CACHE_PRECISION" in supported else {}
    return _compile(path, name, runtime, device, 1, kept, grouped=True)


def _compile(
    path: Path,
    name: str,
    runtime: RuntimeConfig,
    device: str,
    slots: int,
    properties: Mapping[str, Any],
    *,
    grouped: bool = False,
) -> Model:
    core = ov.Core()
    try:
        model = core.read_model(path)
    except RuntimeError as error:
        raise BundleError(
            f"OpenVINO cannot read {path.name} of {name}: {first_line(error)}",
            fix=f"docvino convert {name} --force",
        ) from error
    if slots > 1 and device == "CPU":
        # OpenVINO 2026.4.1 computes convolutions with int8 weights wrongly when NUM_STREAMS is above 1: text comes out
        # empty. Weights that are unpacked beforehand are not touched by that, and a CPU is no slower with them.
        passes = Manager()
        passes.register_pass(ConstantFolding())
        passes.run_passes(model)
    if grouped and device == "CPU" and (group := activation_group(model)) is not None:
        properties = {**properties, "DYNAMIC_QUANTIZATION_GROUP_SIZE": str(group)}
    try:
        compiled = core.compile_model(model, device, {**_properties(core, device, runtime, slots), **properties})
    except RuntimeError as error:
        raise DeviceError(
            f"{device} does not take {name} at {runtime.execution}: {first_line(error)}",
            fix="try --device CPU or --execution f32; `docvino doctor` shows what the device can do",
        ) from error
    built = Model(compiled, name, slots)
    if built.execution_precision != runtime.execution:
        raise DeviceError(
            f"{device} computes {name} in {built.execution_precision}, not in {runtime.execution} as asked",
            fix=f"use --execution {built.execution_precision}",
        )
    return built


def _properties(core: ov.Core, device: str, runtime: RuntimeConfig, slots: int) -> dict[str, Any]:
    supported = set(core.get_property(device, "SUPPORTED_PROPERTIES"))
    properties: dict[str, Any] = {"INFERENCE_PRECISION_HINT": runtime.execution, "PERFORMANCE_HINT": "LATENCY"}
    if runtime.threads and "INFERENCE_NUM_THREADS" in supported:
        properties["INFERENCE_NUM_THREADS"] = runtime.threads
    if slots > 1 and device == "CPU":
        # On a CPU, requests run side by side only when each has its own stream.
        properties["NUM_STREAMS"] = str(slots)
    if runtime.model_cache and (folder := usable_cache(runtime.cache_dir)) is not None:
        properties["CACHE_DIR"] = str(folder)
    return properties


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


def usable_cache(cache_dir: Path) -> Path | None:
    folder = cache_dir / "compiled"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        log.warning("no model cache: %s cannot be made (%s)", folder, error.strerror)
        return None
    if not os.access(folder, os.W_OK):
        log.warning("no model cache: %s cannot be written", folder)
        return None
    return folder


def _precision_name(compiled: Any) -> str:
    """The arithmetic the plugin really uses: it answers f32 where it has no bf16 or f16."""
    return str(compiled.get_property("INFERENCE_PRECISION_HINT").to_string())


def first_line(error: BaseException) -> str:
    """The most telling line of an OpenVINO message, which begins with source files and line numbers."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(("Exception from src", "Check '"))]
    return (telling or lines or [type(error).__name__])[-1][:300]
