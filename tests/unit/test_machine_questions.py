"""Facts of the child processes that ask drivers and OpenVINO: on this machine, and on made-up libraries."""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import machines
from docvino.doctor import ask_openvino
from docvino.machine import ask_drivers, ask_load
from docvino.machine.answer import answer
from docvino.machine.border import ANSWER, ThisMachine
from fake_core import FakeCore, b580, geforce, uhd

# ---- OpenCL, through a library made of callbacks: what is called is real ctypes


class FakeOpenCl:
    """Two platforms, one of which has no device; information as the driver of Intel gives it."""

    def __init__(self, devices: dict[int, dict[int, bytes]], status: int = 0) -> None:
        pointer, uint, ulong = ctypes.c_void_p, ctypes.c_uint, ctypes.c_ulong
        self._devices, self._status = devices, status
        info = ctypes.CFUNCTYPE(ctypes.c_int, pointer, uint, ctypes.c_size_t, pointer, pointer)
        self.clGetPlatformIDs = ctypes.CFUNCTYPE(ctypes.c_int, uint, pointer, pointer)(self._platforms)
        kind = ulong if sys.platform != "win32" else ctypes.c_ulonglong
        self.clGetDeviceIDs = ctypes.CFUNCTYPE(ctypes.c_int, pointer, kind, uint, pointer, pointer)(self._device_ids)
        self.clGetPlatformInfo = info(self._platform_info)
        self.clGetDeviceInfo = info(self._device_info)

    def _give(self, handles: list[int], into: int | None, count: int | None) -> int:
        if count:
            ctypes.c_uint.from_address(count).value = len(handles)
        if into:
            for index, handle in enumerate(handles):
                ctypes.c_void_p.from_address(into + 8 * index).value = handle
        return 0

    def _platforms(self, _: int, into: int | None, count: int | None) -> int:
        return self._status or self._give([101, 102], into, count)

    def _device_ids(self, platform: int, _: int, __: int, into: int | None, count: int | None) -> int:
        return self._give(list(self._devices), into, count) if platform == 101 else -1

    def _platform_info(self, platform: int, what: int, _: int, into: int | None, size: int | None) -> int:
        names = {0x0902: b"Intel(R) OpenCL Graphics\0" if platform == 101 else b"Empty\0", 0x0901: b"OpenCL 3.0\0"}
        return self._write(names[what], into, size)

    def _device_info(self, device: int, what: int, _: int, into: int | None, size: int | None) -> int:
        value = self._devices[device].get(what)
        return -30 if value is None else self._write(value, into, size)

    def _write(self, value: bytes, into: int | None, size: int | None) -> int:
        if size:
            ctypes.c_size_t.from_address(size).value = len(value)
        if into:
            ctypes.memmove(into, value, len(value))
        return 0


A770 = {
    0x102B: b"Intel(R) Arc(TM) A770 Graphics\0",
    0x1000: struct.pack("<Q", 4),
    0x1001: struct.pack("<I", 0x8086),
    0x102D: b"26.14.37833\0",
    0x101F: struct.pack("<Q", 16225243136),
    0x1010: struct.pack("<Q", 4294959104),
    0x410F: struct.pack("<4I", 0, 3, 0, 0),
}


@pytest.mark.skipif(sys.byteorder != "little", reason="numbers of the fake are little-endian")
def test_opencl_devices_are_listed_with_what_the_driver_says_of_them() -> None:
    processor = {0x102B: b"cpu\0", 0x1000: struct.pack("<Q", 2), 0x1001: struct.pack("<I", 0x10006)}
    first, second = ask_drivers.list_platforms(FakeOpenCl({7: A770, 8: processor}))
    assert (first["name"], first["version"]) == ("Intel(R) OpenCL Graphics", "OpenCL 3.0")
    assert first["devices"][0] == {
        "name": "Intel(R) Arc(TM) A770 Graphics",
        "gpu": True,
        "vendor": "8086",
        "driver": "26.14.37833",
        "address": "0000:03:00.0",
        "memory_bytes": 16225243136,
        "largest_allocation_bytes": 4294959104,
    }
    # What a driver does not know is empty, not an error.
    assert first["devices"][1]["address"] is None
    assert (first["devices"][1]["gpu"], first["devices"][1]["driver"]) == (False, "")
    assert second == {"name": "Empty", "version": "OpenCL 3.0", "devices": []}


def test_no_platform_is_an_empty_list_and_an_error_of_opencl_is_one() -> None:
    assert ask_drivers.list_platforms(FakeOpenCl({}, status=-1001)) == []
    with pytest.raises(OSError, match="OpenCL answers with error -6"):
        ask_drivers.list_platforms(FakeOpenCl({}, status=-6))


def test_a_library_that_is_missing_is_told_with_the_words_of_the_loader() -> None:
    said, library = ask_drivers.load(("libno-such-library-anywhere.so.1",))
    assert library is None
    assert "libno-such-library-anywhere.so.1" in said["libno-such-library-anywhere.so.1"]


def test_the_drivers_of_this_machine_answer_in_a_process_of_their_own() -> None:
    facts = ThisMachine().ask("drivers").facts
    names = ask_drivers.LIBRARIES.get(sys.platform, ())
    assert tuple(facts["libraries"]) == names
    assert (facts["problem"] is None) == (bool(names) and facts["libraries"][names[0]] == "")


# ---- OpenVINO


class Core:
    available_devices = ("CPU", "GPU")

    def get_property(self, device: str, name: str) -> Any:
        values = {
            ("GPU", "FULL_DEVICE_NAME"): "Intel(R) Arc(TM) A770 Graphics (dGPU)",
            ("GPU", "OPTIMIZATION_CAPABILITIES"): ["FP32", "GPU_HW_MATMUL"],
            ("GPU", "DEVICE_GOPS"): {"f32": 19660.8},
            ("CPU", "FULL_DEVICE_NAME"): "a processor",
        }
        if (device, name) not in values:
            raise RuntimeError("Unsupported property")
        return values[device, name]


def test_properties_that_a_device_refuses_are_left_out() -> None:
    assert ask_openvino.read_devices(Core()) == {
        "CPU": {"FULL_DEVICE_NAME": "a processor"},
        "GPU": {
            "FULL_DEVICE_NAME": "Intel(R) Arc(TM) A770 Graphics (dGPU)",
            "OPTIMIZATION_CAPABILITIES": ["FP32", "GPU_HW_MATMUL"],
            "DEVICE_GOPS": {"f32": 19660.8},
        },
    }


def test_openvino_of_this_machine_answers_in_a_process_of_its_own() -> None:
    facts = ThisMachine().ask("openvino").facts
    assert facts["problem"] is None
    assert facts["version"].startswith("20")
    assert "FP32" in facts["devices"]["CPU"]["OPTIMIZATION_CAPABILITIES"]
    assert facts["devices"]["CPU"]["DEVICE_TYPE"] in ("INTEGRATED", "DISCRETE")
    assert facts["chosen"]["CPU"] == {"name": "CPU", "why": "", "execution": "f32"}
    assert facts["chosen"]["AUTO"]["name"] in facts["devices"]
    assert facts["chosen"]["AUTO"]["why"]


def test_what_docvino_takes_for_each_name_is_told_with_its_arithmetic(machine: Callable[..., FakeCore]) -> None:
    core = machine(uhd("GPU.0"), b580("GPU.1"), geforce("GPU.2"))
    told = ask_openvino.choices(core.available_devices)
    assert {wanted: choice["name"] for wanted, choice in told.items()} == {
        "AUTO": "GPU.1",
        "CPU": "CPU",
        "GPU": "GPU.1",
        "GPU.0": "GPU.0",
        "GPU.1": "GPU.1",
    }
    assert told["AUTO"]["why"] == "a GPU with memory of its own"
    assert (told["CPU"]["execution"], told["GPU.1"]["execution"]) == ("f32", "f16")
    # The recorded machines of other tests choose alike.
    devices = ask_openvino.read_devices(core)
    assert machines.chosen(devices) == told
    assert devices["GPU.1"]["GPU_DRIVER_VERSION"] == "26.22.38646.4"


def test_why_there_is_no_gpu_is_told_by_its_plugin() -> None:
    import openvino as ov

    said = ask_openvino.gpu_trouble(ov.Core())
    drivers = ThisMachine().ask("drivers").facts
    # With the OpenCL loader the plugin loads and lists nothing; without it, it says so.
    assert (said is None) == (drivers["problem"] is None)


# ---- load


def test_the_convolution_is_that_of_its_definition() -> None:
    generator = np.random.default_rng(3)
    pixels = generator.standard_normal((1, 2, 3, 4)).astype(np.float32)
    weights = generator.standard_normal((5, 2, 3, 3)).astype(np.float32)
    padded = np.pad(pixels, ((0, 0), (0, 0), (1, 1), (1, 1)))
    wanted = np.zeros((1, 5, 3, 4))
    for channel, row, column in np.ndindex(5, 3, 4):
        wanted[0, channel, row, column] = (padded[0, :, row : row + 3, column : column + 3] * weights[channel]).sum()
    np.testing.assert_allclose(ask_load.expected(pixels, weights), np.maximum(wanted, 0), rtol=1e-5, atol=1e-6)


def test_a_busy_processor_computes_rightly_and_says_how_fast() -> None:
    facts = ThisMachine().ask("load", "CPU", "0.1", "f32").facts
    assert facts["problem"] is None
    assert (facts["devices"], facts["execution"]) == (["CPU"], "f32")
    assert facts["difference"] < 1e-4
    assert facts["gflops"] > 0.1
    assert facts["inferences"] >= 2


def test_wrong_numbers_of_a_device_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    import openvino as ov

    right = ask_load.expected
    monkeypatch.setattr(ask_load, "expected", lambda pixels, weights: right(pixels, weights) + np.float32(1))
    assert ask_load.run(ov.Core(), "CPU", 0.01, "f32")["difference"] > 0.1


def test_a_device_that_is_not_there_is_the_answer_and_no_crash() -> None:
    facts = ThisMachine().ask("load", "GPU.9", "0.1", "f32").facts
    assert facts["problem"]


def test_an_answer_begins_a_line_even_after_a_line_that_was_not_ended(capsys: pytest.CaptureFixture[str]) -> None:
    sys.stdout.write("a driver's unfinished line")
    answer({"a": "ü"})
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == ANSWER + '{"a": "\\u00fc"}'
