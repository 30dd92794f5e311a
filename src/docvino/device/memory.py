"""How much memory a model is going to need on a device, and whether it is there: asked before compiling.

An estimate from the graph: weights as they will be held, and twice the most intermediate results that are alive at once
at the largest input; docs/devices.md has what was measured beside it.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import openvino as ov

from docvino.device.core import first_line
from docvino.errors import DeviceError

if TYPE_CHECKING:
    from docvino.device.devices import DeviceInfo

log = logging.getLogger(__name__)

MIB = 2**20
# Source: openvino.genai counts 1.1 times what is in use, and the GPU plugin makes dynamic buffers 1.1 times as large.
_OVERHEAD = 1.1
# Buffers are not reused as well as they could be. Measured on a CPU at the largest inputs: models of pp-ocr grew by 1.4
# to 2.4 times what is alive at once (benchmarks/memory_estimate.py).
_AT_WORK = 2
_FLOATS = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2}


@dataclass(frozen=True)
class Need:
    """Bytes: weights and keys and values once, activations for each request in flight. `buffer` is the largest one."""

    weights: int
    activations: int = 0
    slots: int = 1
    keys_and_values: int = 0
    buffer: int = 0

    @property
    def total(self) -> int:
        return round(_OVERHEAD * (self.weights + self.slots * self.activations + self.keys_and_values))

    def __str__(self) -> str:
        parts = [f"weights {_mib(self.weights)}", f"{self.slots} x {_mib(self.activations)} at work"]
        if self.keys_and_values:
            parts.append(f"keys and values {_mib(self.keys_and_values)}")
        return f"{_mib(self.total)} MiB ({', '.join(parts)})"


class Promise:
    """Memory of a device that somebody who holds this object is going to use."""

    _given: ClassVar[weakref.WeakSet[Promise]] = weakref.WeakSet()

    def __init__(self, device: DeviceInfo, need: Need) -> None:
        self.device_name, self.bytes = device.name, need.total
        self._given.add(self)

    @classmethod
    def on(cls, device: DeviceInfo) -> int:
        """Bytes of all promises that are still held."""
        return sum(promise.bytes for promise in cls._given if promise.device_name == device.name)


def promise(device: DeviceInfo, name: str, need: Need) -> Promise:
    """
    Raises: DeviceError when the device has not so much memory beside what models loaded before were promised, naming
    the setting that takes most.
    """
    before = Promise.on(device)
    if device.memory_bytes is not None and need.total > device.memory_bytes - before:
        beside = f", {_mib(before)} MiB of them promised to other models" if before else ""
        raise DeviceError(
            f"{name} needs about {need}, and {device.name} ({device.full_name}) has "
            f"{_mib(device.memory_bytes)} MiB{beside}",
            fix=_remedy(need),
        )
    return Promise(device, need)


def _remedy(need: Need) -> str:
    working = need.slots * need.activations
    if need.keys_and_values >= max(working, need.weights):
        return "lower --kv-cache-mib, or use another --device"
    if working >= need.weights:
        return "lower --async-slots, or use another --device" if need.slots > 1 else "use another --device"
    return "use a smaller --precision (int8; int4 for vision-language models), or another --device"


def need_of(
    model: ov.Model, execution: str, largest: Mapping[str, Sequence[int]], slots: int = 1, keys_and_values: int = 0
) -> Need:
    """What a model is going to need.

    execution   arithmetic: floating-point weights and results are held in it
    largest     shape of the largest input by name; a model whose other inputs have no size counts as its weights
    """
    width = _FLOATS[execution]
    weights = buffer = 0
    for node in model.get_ops():
        if node.get_type_name() == "Constant":
            kind = node.get_output_element_type(0).get_type_name()
            size = node.get_byte_size()
            held = size * width // _FLOATS[kind] if kind in _FLOATS else size
            weights, buffer = weights + held, max(buffer, held)
    alive, widest = _alive(model, width, largest)
    return Need(weights, _AT_WORK * alive, slots, keys_and_values, max(buffer, widest))


def _alive(model: ov.Model, width: int, largest: Mapping[str, Sequence[int]]) -> tuple[int, int]:
    """Most bytes of results alive at once when the operations run in order, and the largest of them."""
    sized = model.clone()
    shapes = {port: ov.PartialShape(list(largest[name])) for port in sized.inputs if (name := port.any_name) in largest}
    if len(shapes) < len([port for port in sized.inputs if port.partial_shape.is_dynamic]):
        return 0, 0
    try:
        if shapes:
            sized.reshape(shapes)
    except RuntimeError as error:  # a graph of other inputs than was said; to estimate is no reason to stop
        log.debug("no estimate of what %s needs at work: %s", model.get_friendly_name(), first_line(error))
        return 0, 0
    order = sized.get_ordered_ops()
    fixed: set[str] = set()  # results that follow from weights alone
    sizes: dict[str, int] = {}
    last_use: dict[str, int] = {}
    for place, node in enumerate(order):
        inputs = [value.get_node().get_name() for value in node.input_values()]
        name = node.get_name()
        if node.get_type_name() == "Constant" or (inputs and fixed.issuperset(inputs)):
            fixed.add(name)
            continue
        sizes[name] = sum(_bytes(port, width) for port in node.outputs())
        last_use |= dict.fromkeys((name, *(i for i in inputs if i in sizes)), place)
    ends: dict[int, list[str]] = {}
    for name, place in last_use.items():
        ends.setdefault(place, []).append(name)
    alive = most = 0
    for place, node in enumerate(order):
        alive += sizes.get(node.get_name(), 0)
        most = max(most, alive)
        alive -= sum(sizes[name] for name in ends.get(place, ()))
    return most, max(sizes.values(), default=0)


def _bytes(port: ov.Output, width: int) -> int:
    """Of one result; results whose size is known only when they are computed count as nothing."""
    shape = port.get_partial_shape()
    if shape.is_dynamic:
        return 0
    kind = port.get_element_type()
    return int(math.prod(shape.to_shape()) * (width if kind.get_type_name() in _FLOATS else kind.size))


def _mib(size: int) -> str:
    return f"{size / MIB:.0f}"


def host_memory_bytes() -> int | None:
    """Memory of this machine, or of the container it is seen from; None where the system does not say."""
    if sys.platform == "win32":
        return _windows_memory()
    try:
        limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    except (OSError, ValueError):
        return None
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            limits.append(int((Path("/sys/fs/cgroup") / name).read_text(encoding="ascii")))
        except (OSError, ValueError):  # not there, or "max"
            continue
    return min(limits)


def _windows_memory() -> int | None:
    import ctypes

    class Status(ctypes.Structure):
        """MEMORYSTATUSEX of the Windows API."""

        _fields_ = (
            ("length", ctypes.c_ulong),
            ("load", ctypes.c_ulong),
            *(
                (name, ctypes.c_ulonglong)
                for name in ("total", "free", "pages", "free_pages", "virtual", "free_virtual")
            ),
            ("extended", ctypes.c_ulonglong),
        )

    status = Status(length=ctypes.sizeof(Status))
    windows = getattr(ctypes, "windll").kernel32  # noqa: B009 - other systems have no windll
    return int(status.total) if windows.GlobalMemoryStatusEx(ctypes.byref(status)) else None
