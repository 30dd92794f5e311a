"""What a device multiplies a second at most: large matrices and nothing else."""

from __future__ import annotations

import time
from typing import Any, Literal

import numpy as np
import openvino as ov
from openvino import opset13 as ops

from docvino.device.core import first_line, open_core
from docvino.device.devices import DeviceInfo
from docvino.device.model import execution_precision
from docvino.errors import DeviceError

Kind = Literal["f32", "bf16", "f16", "int8"]
# Of a layer of the vision tower of PaddleOCR-VL: wide enough for any device, and what docvino multiplies most.
_INNER, _OUTER = 1152, 4304
_PAIRS = 2  # products one after the other: what comes in and goes out must not count


def can_multiply(device: DeviceInfo) -> tuple[Kind, ...]:
    """The kinds of numbers that the device says it has units for; every CPU has f32 and int8."""
    kinds: list[Kind] = ["f32"] if device.family != "NPU" else []
    kinds += [kind for name, kind in _NAMES.items() if name in device.capabilities]
    return (*kinds, "int8")


_NAMES: dict[str, Kind] = {"BF16": "bf16", "FP16": "f16"}


def multiply_rate(device: DeviceInfo, kind: Kind, rows: int, seconds: float) -> float:
    """Floating-point (or integer) operations a second, the best of all runs within `seconds`, of two at least.

    int8   weights and activations in 8 bits; the faster of the two ways to get there: activations quantised with
           fixed scales, and for each call (as docvino's int8 models run)

    Raises: DeviceError when the device refuses it, or computes in another arithmetic.
    """
    if kind == "int8":
        return max(
            _rate(device, _model(rows, form), "f32" if device.family == "CPU" else "f16", rows, seconds)
            for form in ("fixed", "each call")
        )
    return _rate(device, _model(rows, "plain"), kind, rows, seconds)


def _rate(device: DeviceInfo, model: ov.Model, execution: str, rows: int, seconds: float) -> float:
    properties = {"INFERENCE_PRECISION_HINT": execution, "PERFORMANCE_HINT": "LATENCY", "CACHE_DIR": ""}
    if device.family == "CPU":
        properties["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = "128"
    try:
        compiled = open_core().compile_model(model, device.name, properties)
        request = compiled.create_infer_request()
        request.set_tensor(compiled.inputs[0], ov.Tensor(np.full((rows, _INNER), 0.01, np.float32)))
        best, began = float("inf"), time.perf_counter()
        runs = 0
        while runs < 3 or time.perf_counter() - began < seconds:
            started = time.perf_counter()
            request.infer()
            if runs:  # the first run sets things up
                best = min(best, time.perf_counter() - started)
            runs += 1
    except RuntimeError as error:
        raise DeviceError(
            f"{device.name} does not multiply in {execution}: {first_line(error)}", fix="run `docvino doctor`"
        ) from error
    if (used := execution_precision(compiled)) != execution:
        raise DeviceError(
            f"{device.name} multiplies in {used}, not in {execution} as asked", fix="run `docvino doctor`"
        )
    return 2 * rows * _INNER * _OUTER * 2 * _PAIRS / best


def _model(rows: int, form: Literal["plain", "fixed", "each call"]) -> ov.Model:
    random = np.random.default_rng(0)
    given = ops.parameter([rows, _INNER], np.float32, name="x")
    x: Any = given
    for inner, outer in ((_INNER, _OUTER), (_OUTER, _INNER)) * _PAIRS:
        numbers = random.integers(-127, 128, (outer, inner), dtype=np.int8)
        if form == "plain":
            weights: Any = ops.constant(numbers.astype(np.float32) / np.float32(8 * inner))
        elif form == "each call":
            unpacked = ops.convert(ops.constant(numbers), ov.Type.f16)
            scale = ops.constant(np.full((outer, 1), 1 / (8 * inner), np.float16))
            weights = ops.convert(ops.multiply(unpacked, scale), ov.Type.f32)
        else:
            x = ops.fake_quantize(x, *(ops.constant(np.float32(side)) for side in (-1, 1, -1, 1)), levels=256)
            scale = ops.constant(np.full((outer, 1), 1 / (8 * inner), np.float32))
            weights = ops.multiply(ops.convert(ops.constant(numbers), ov.Type.f32), scale)
        x = ops.matmul(x, weights, False, True)
    return ov.Model([ops.result(x)], [given], "products")
