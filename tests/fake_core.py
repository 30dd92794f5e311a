"""An OpenVINO core with devices that this machine does not have: they say what real ones said, and the CPU computes.

Recorded from public dumps of real machines; what a device says of itself is theirs, what it computes is a CPU's, made
wrong where a test wants it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import openvino as ov
from numpy.typing import NDArray

GIB = 2**30
REAL_CORE = ov.Core
Spoil = Callable[[str, NDArray[Any]], NDArray[Any]]

# Names that the GPU plugin of 2026.4.1 takes when it compiles; another one is an error there.
GPU_SETTINGS = frozenset(
    {
        "INFERENCE_PRECISION_HINT",
        "EXECUTION_MODE_HINT",
        "PERFORMANCE_HINT",
        "NUM_STREAMS",
        "CACHE_DIR",
        "KV_CACHE_PRECISION",
        "DYNAMIC_QUANTIZATION_GROUP_SIZE",
        "GPU_ENABLE_LARGE_ALLOCATIONS",
    }
)


@dataclass
class FakeDevice:
    """
    says       properties by name, as OpenVINO's Python gives them
    refuses    model ("vision", "decoder", "decoder paged") and properties -> why it does not compile that, or None
    spoil      model's name, output -> what is made of it
    precision  what it computes in whatever it is asked; None: as asked
    runs_on    what EXECUTION_DEVICES says; None: the device itself
    """

    name: str
    says: dict[str, Any]
    settings: frozenset[str] = GPU_SETTINGS
    refuses: Callable[[str, Mapping[str, Any]], str | None] = lambda _model, _asked: None
    spoil: Callable[[str, Mapping[str, Any]], Spoil | None] = lambda _model, _asked: None
    precision: str | None = None
    runs_on: str | None = None
    compiled: list[tuple[str, dict[str, Any]]] = field(default_factory=list)


def gpu(
    name: str, full_name: str, arch: str, memory_gib: float, *, discrete: bool, xmx: bool, **more: Any
) -> FakeDevice:
    says = {
        "FULL_DEVICE_NAME": full_name,
        "DEVICE_TYPE": "Type.DISCRETE" if discrete else "Type.INTEGRATED",
        "DEVICE_ARCHITECTURE": f"GPU: vendor=0x8086 arch={arch}",
        "DEVICE_UUID": f"8680a0560800000003000000000000{name[-1:].encode().hex()}",
        "OPTIMIZATION_CAPABILITIES": [
            "FP32",
            "BIN",
            "FP16",
            "INT8",
            *(["GPU_HW_MATMUL"] if xmx else []),
            "EXPORT_IMPORT",
        ],
        "GPU_DEVICE_TOTAL_MEM_SIZE": int(memory_gib * GIB),
        "GPU_DEVICE_MAX_ALLOC_MEM_SIZE": 4_294_959_104,
        "GPU_DRIVER_VERSION": "26.22.38646.4",
        "GPU_MEMORY_STATISTICS": {"cl_mem": 0, "usm_host": 0, "usm_device": 0},
    }
    return FakeDevice(name, says, **more)


def a770(name: str = "GPU", **more: Any) -> FakeDevice:
    return gpu(name, "Intel(R) Arc(TM) A770 Graphics (dGPU)", "v12.55.8", 15.11, discrete=True, xmx=True, **more)


def b580(name: str = "GPU.1", **more: Any) -> FakeDevice:
    return gpu(name, "Intel(R) Arc(TM) B580 Graphics (dGPU)", "v20.1.0", 11.4, discrete=True, xmx=True, **more)


def uhd(name: str = "GPU.0", **more: Any) -> FakeDevice:
    return gpu(name, "Intel(R) UHD Graphics 770 (iGPU)", "v12.2.0", 28.0, discrete=False, xmx=False, **more)


def geforce(name: str = "GPU.1") -> FakeDevice:
    """An OpenCL device of another maker, which OpenVINO lists, too."""
    device = gpu(name, "NVIDIA GeForce RTX 4050 Laptop GPU (dGPU)", "v8.9.0", 6.0, discrete=True, xmx=False)
    device.says["DEVICE_ARCHITECTURE"] = "GPU: vendor=0x10de arch=v8.9.0"
    return device


def npu() -> FakeDevice:
    says = {
        "FULL_DEVICE_NAME": "Intel(R) AI Boost",
        "DEVICE_TYPE": "Type.INTEGRATED",
        "DEVICE_ARCHITECTURE": "3720",
        "DEVICE_UUID": "80d1d11eb73811eab3de0242ac130004",
        "OPTIMIZATION_CAPABILITIES": ["FP16", "INT8", "EXPORT_IMPORT"],
        "NPU_DEVICE_TOTAL_MEM_SIZE": 16 * GIB,
        "NPU_DRIVER_VERSION": "1688",
    }
    return FakeDevice(
        "NPU",
        says,
        settings=frozenset({"INFERENCE_PRECISION_HINT", "PERFORMANCE_HINT", "NUM_STREAMS", "CACHE_DIR"}),
        refuses=lambda _model, asked: None if asked["INFERENCE_PRECISION_HINT"] == "f16" else "only f16",
    )


class FakeCore:
    """Real for the CPU and for files; its other devices are those it is given."""

    def __init__(self, *devices: FakeDevice) -> None:
        self._real = REAL_CORE()
        self._devices = {device.name: device for device in devices}

    @property
    def available_devices(self) -> list[str]:
        return ["CPU", *self._devices]

    def get_property(self, name: str, key: str) -> Any:
        if name == "CPU":
            return self._real.get_property(name, key)
        device = self._devices[name]
        if key == "SUPPORTED_PROPERTIES":
            return dict.fromkeys(device.settings | device.says.keys() - {"GPU_DRIVER_VERSION"}, "RW")
        if key not in device.says:
            raise RuntimeError(f"Exception from src/plugin.cpp:1:\n[GPU] Unsupported property {key}")
        if isinstance(device.says[key], Exception):
            raise device.says[key]
        return device.says[key]

    def read_model(self, path: Any) -> Any:
        return self._real.read_model(path)

    def compile_model(self, model: Any, name: str, properties: Mapping[str, Any]) -> Any:
        if name == "CPU":
            return self._real.compile_model(model, name, dict(properties))
        device = self._devices[name]
        title = model.get_friendly_name() + " paged" * any("past_lens" in port.get_names() for port in model.inputs)
        device.compiled.append((title, dict(properties)))
        if unknown := properties.keys() - device.settings:
            raise RuntimeError(f"Exception from src/plugin.cpp:1:\n[GPU] Unsupported properties {sorted(unknown)}")
        if (why := device.refuses(title, properties)) is not None:
            raise RuntimeError(f"Exception from src/plugin.cpp:1:\n{why}")
        on_cpu = {"INFERENCE_PRECISION_HINT": "f32", "CACHE_DIR": properties.get("CACHE_DIR", "")}
        if kept := properties.get("KV_CACHE_PRECISION"):
            on_cpu["KV_CACHE_PRECISION"] = {"i8": "u8"}.get(kept, kept)
        return _Compiled(self._real.compile_model(model, "CPU", on_cpu), device, title, dict(properties))

    def get_default_context(self, name: str) -> Any:
        assert name in self._devices, name
        return _Context()


class _Context:
    def create_tensor(self, kind: Any, shape: Any, properties: Mapping[str, Any]) -> Any:
        assert properties == {}
        return ov.Tensor(kind, shape)


class _Compiled:
    def __init__(self, raw: Any, device: FakeDevice, title: str, asked: dict[str, Any]) -> None:
        self._raw, self._device, self._title, self._asked = raw, device, title, asked
        self.inputs, self.outputs = raw.inputs, raw.outputs

    def get_property(self, key: str) -> Any:
        if key == "EXECUTION_DEVICES":
            return [self._device.runs_on or self._device.name]
        if key == "INFERENCE_PRECISION_HINT":
            name = self._device.precision or self._asked[key]
            return getattr(ov.Type, name)
        if key == "EXECUTION_MODE_HINT":
            return f"ExecutionMode.{self._asked.get(key, 'PERFORMANCE')}"
        return self._raw.get_property(key)

    def create_infer_request(self) -> Any:
        request = self._raw.create_infer_request()
        spoil = self._device.spoil(self._title, self._asked)
        return request if spoil is None else _Spoiling(request, spoil, {port.get_any_name() for port in self.outputs})


class _Spoiling:
    """A request whose outputs are not what was computed."""

    def __init__(self, request: Any, spoil: Spoil, outputs: set[str]) -> None:
        self._request, self._spoil, self._outputs = request, spoil, outputs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)

    def get_tensor(self, name: str) -> Any:
        tensor = self._request.get_tensor(name)
        return ov.Tensor(self._spoil(name, tensor.data.copy())) if name in self._outputs else tensor


def not_numbers(_name: str, values: NDArray[Any]) -> NDArray[Any]:
    return np.full_like(values, np.nan)


def shuffled(_name: str, values: NDArray[Any]) -> NDArray[Any]:
    """The right numbers in wrong places."""
    flat: Sequence[Any] = np.random.default_rng(0).permutation(values.ravel())
    return np.asarray(flat, values.dtype).reshape(values.shape)
