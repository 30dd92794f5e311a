"""Keeps a device busy for some seconds and compares what it computes, in a process of its own.

    python -m docvino.machine.ask_load DEVICE SECONDS EXECUTION

One convolution of 3 x 3 over 64 channels, as text detectors are made of, against numpy in float32.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from docvino.machine.answer import answer

CHANNELS, SIDE = 64, 64
FLOP = 2 * 9 * CHANNELS * CHANNELS * SIDE * SIDE  # of one picture


def expected(pixels: NDArray[np.float32], weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """float32 (N, C, H, W), (O, C, 3, 3) -> (N, O, H, W): convolution with a border of zeros, negative values cut."""
    padded = np.pad(pixels, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    summed: NDArray[np.float32] = np.tensordot(windows, weights, axes=((1, 4, 5), (1, 2, 3)))
    positive: NDArray[np.float32] = np.maximum(summed.transpose(0, 3, 1, 2), np.float32(0))
    return positive


def run(core: Any, device: str, seconds: float, execution: str) -> dict[str, Any]:
    """Times, rate and the largest difference from numpy, relative to the largest value."""
    import openvino as ov
    from openvino import opset13 as ops

    batch = 1 if device == "CPU" else 8
    generator = np.random.default_rng(7)
    pixels = generator.standard_normal((batch, CHANNELS, SIDE, SIDE)).astype(np.float32)
    weights = (generator.standard_normal((CHANNELS, CHANNELS, 3, 3)) / np.sqrt(9 * CHANNELS)).astype(np.float32)
    x = ops.parameter(pixels.shape, np.float32, name="x")
    made = ops.relu(ops.convolution(x, ops.constant(weights), [1, 1], [1, 1], [1, 1], [1, 1]))
    started = time.perf_counter()
    compiled = core.compile_model(
        ov.Model([made], [x], "load"),
        device,
        {"INFERENCE_PRECISION_HINT": execution, "PERFORMANCE_HINT": "THROUGHPUT"},
    )
    compile_s = time.perf_counter() - started
    requests = [compiled.create_infer_request() for _ in range(2)]  # while one is read, the other runs
    started = time.perf_counter()
    output = np.array(requests[0].infer({0: pixels})[0])
    first_s = time.perf_counter() - started
    wanted = expected(pixels, weights)
    difference = float(np.abs(output - wanted).max() / np.abs(wanted).max())
    count = 0
    started = time.perf_counter()
    for request in requests:
        request.start_async({0: pixels})
    while time.perf_counter() - started < seconds:
        for request in requests:
            request.wait()
            request.start_async({0: pixels})
            count += 1
    for request in requests:
        request.wait()
    elapsed_s = time.perf_counter() - started
    return {
        "devices": [str(name) for name in compiled.get_property("EXECUTION_DEVICES")],
        "execution": str(compiled.get_property("INFERENCE_PRECISION_HINT").to_string()),
        "compile_s": compile_s,
        "first_s": first_s,
        "seconds": elapsed_s,
        "inferences": count + len(requests),
        "gflops": (count + len(requests)) * batch * FLOP / elapsed_s / 1e9,
        "difference": difference if np.isfinite(difference) else None,
        "problem": None,
    }


def main() -> None:
    device, seconds, execution = sys.argv[1:4]
    try:
        import openvino as ov

        facts = run(ov.Core(), device, float(seconds), execution)
    except Exception as error:  # noqa: BLE001 - whatever the device does not like is what is asked for
        facts = {"problem": " ".join(str(error).split())[-400:]}
    answer(facts)


if __name__ == "__main__":
    main()
