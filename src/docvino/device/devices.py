"""Which devices there are, what each is like, and which one is taken."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from docvino.device.core import first_line, open_core
from docvino.device.memory import host_memory_bytes
from docvino.device.profiles import NPU, Profile, cpu_profile, gpu_profile
from docvino.errors import DeviceError, nearest
from docvino.settings import AUTO, ExecutionPrecision, KvPrecision, RuntimeConfig

log = logging.getLogger(__name__)

_CPU_FACTS = Path("/proc/cpuinfo")
_GIB = 2**30


@dataclass(frozen=True)
class DeviceInfo:
    """One device as OpenVINO reports it.

    architecture    as OpenVINO writes it, e.g. "GPU: vendor=0x8086 arch=v12.55.8"
    memory_bytes    of the device; where it shares the processor's, what it may take of that; None: not told
    buffer_bytes    largest single buffer; None: not told
    capabilities    e.g. FP32, INT8, BF16, GPU_HW_MATMUL (matrix units)
    uuid            of this very device; empty: not told
    driver          version of its user-mode driver; None: not told, or it has none
    profile         how it is used unless settings say otherwise
    """

    name: str
    full_name: str
    kind: Literal["discrete", "integrated", "npu", "cpu"]
    architecture: str
    memory_bytes: int | None
    buffer_bytes: int | None
    capabilities: tuple[str, ...]
    uuid: str
    driver: str | None
    profile: Profile

    @property
    def family(self) -> str:
        """CPU, GPU or NPU."""
        return self.name.split(".", 1)[0]

    @property
    def identity(self) -> dict[str, str | None]:
        """What has to be the same for what was compiled or tested on a device to count on it."""
        return {
            "device": self.full_name,
            "architecture": self.architecture,
            "uuid": self.uuid,
            "driver": self.driver,
        }


def list_devices() -> tuple[DeviceInfo, ...]:
    """Every device that docvino can use here, in OpenVINO's order: GPUs of other makers are left out.

    A device that cannot be asked is left out, too, with a warning.
    """
    found = []
    for name in open_core().available_devices:
        try:
            device = _ask(str(name))
        except RuntimeError as error:
            log.warning("device %s does not answer: %s", name, first_line(error))
            continue
        if (vendor := re.search(r"vendor=(0x[0-9a-f]+)", device.architecture)) and vendor[1] != "0x8086":
            log.debug("device %s (%s) is not Intel's", name, device.full_name)
            continue
        found.append(device)
    return tuple(found)


def choose_device(devices: Sequence[DeviceInfo]) -> tuple[DeviceInfo, str]:
    """The device that AUTO means, and why: a discrete GPU before an integrated one before the CPU.

    Never an NPU, which runs few of the models.
    """
    for kind, why in (
        ("discrete", "a GPU with memory of its own"),
        ("integrated", "a GPU, none with memory of its own"),
        ("cpu", "no GPU of Intel"),
    ):
        if candidates := [device for device in devices if device.kind == kind]:
            best = max(candidates, key=_strength)
            return best, why if len(candidates) == 1 else f"{why}, the strongest of {len(candidates)}"
    raise DeviceError("OpenVINO sees no device here, not even the CPU", fix="pip install --force-reinstall openvino")


def find_device(wanted: str) -> DeviceInfo:
    """The device of that name, in any case of letters.

    AUTO is docvino's choice (`choose_device`), not OpenVINO's plugin of that name, which falls to the CPU silently.
    GPU is the strongest GPU; OpenVINO's own GPU is GPU.0, the integrated one where there are both.

    Raises: DeviceError when there is none, naming those there are.
    """
    name, devices = wanted.upper(), list_devices()
    if name == AUTO:
        return choose_device(devices)[0]
    family = [device for device in devices if device.family == name.split(".", 1)[0]]
    for device in family:
        # A single GPU is called GPU by OpenVINO, which takes GPU.0 for it, too.
        if device.name == name or (len(family) == 1 and name == f"{device.name}.0"):
            return device
    if family and name == family[0].family:
        return max(family, key=_strength)
    raise DeviceError(
        f"OpenVINO sees no device {wanted!r} on this machine",
        fix=f"{nearest(name, tuple(device.name for device in devices))}{_HINTS.get(name, '')}; "
        "`docvino doctor` shows the devices",
    )


@dataclass(frozen=True)
class Target:
    """Where and how models run: settings with every choice made that they left to the device's profile."""

    device: DeviceInfo
    execution: ExecutionPrecision
    kv_precision: KvPrecision
    slots: int


def target_of(runtime: RuntimeConfig) -> Target:
    """Raises: DeviceError when the device is absent."""
    device = find_device(runtime.device)
    profile = device.profile
    return Target(
        device,
        runtime.execution or profile.execution,
        runtime.kv_precision or profile.kv_precision,
        runtime.async_slots or profile.async_slots,
    )


def check_device(wanted: str) -> str:
    """The name of the device that is meant; raises as `find_device`."""
    return find_device(wanted).name


# What is missing most often where a device is absent.
_HINTS = {
    "GPU": "; a GPU needs Intel's OpenCL runtime and the rights of the group render, in a container --device /dev/dri",
    "NPU": "; an NPU needs its driver, in a container --device /dev/accel",
}


def _strength(device: DeviceInfo) -> tuple[bool, bool, int]:
    return device.kind == "discrete", "GPU_HW_MATMUL" in device.capabilities, device.memory_bytes or 0


def _ask(name: str) -> DeviceInfo:
    core = open_core()

    def asked(key: str, read: Callable[[Any], Any], default: Any) -> Any:
        """Plugins differ in what they know: only the name is needed."""
        try:
            return read(core.get_property(name, key))
        except (RuntimeError, TypeError, ValueError):
            return default

    family = name.split(".", 1)[0]
    capabilities = tuple(asked("OPTIMIZATION_CAPABILITIES", lambda found: map(str, found), ()))
    architecture = asked("DEVICE_ARCHITECTURE", str, "")
    kind: Literal["discrete", "integrated", "npu", "cpu"]
    if family == "GPU":
        kind = "discrete" if asked("DEVICE_TYPE", str, "").endswith("DISCRETE") else "integrated"
        numbers = re.search(r"v(\d+)\.(\d+)", architecture)
        profile = gpu_profile(
            (int(numbers[1]), int(numbers[2])) if numbers else None,
            discrete=kind == "discrete",
            matrix_units="GPU_HW_MATMUL" in capabilities,
        )
    elif family == "NPU":
        kind, profile = "npu", NPU
    else:
        kind, profile = "cpu", cpu_profile(_cpu_flags(), capabilities)
    return DeviceInfo(
        name=name,
        full_name=str(core.get_property(name, "FULL_DEVICE_NAME")).strip(),
        kind=kind,
        architecture=architecture,
        memory_bytes=host_memory_bytes() if kind == "cpu" else asked(f"{family}_DEVICE_TOTAL_MEM_SIZE", int, None),
        buffer_bytes=asked(f"{family}_DEVICE_MAX_ALLOC_MEM_SIZE", int, None),
        capabilities=capabilities,
        uuid=asked("DEVICE_UUID", str, ""),
        # Not among the properties that a GPU lists, and answered all the same: its model cache is keyed by it.
        driver=asked(f"{family}_DRIVER_VERSION", str, None),
        profile=profile,
    )


def _cpu_flags() -> frozenset[str]:
    """Abilities of the processor as Linux names them; empty on other systems."""
    try:
        text = _CPU_FACTS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    found = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    return frozenset(found[1].split()) if found else frozenset()


def said(device: DeviceInfo) -> str:
    """A device in one line: `GPU.1 (Intel(R) Arc(TM) A770 Graphics (dGPU), 15.1 GiB, driver 26.22.38646.4)`."""
    memory = "" if device.memory_bytes is None else f", {device.memory_bytes / _GIB:.1f} GiB"
    driver = "" if device.driver is None else f", driver {device.driver}"
    return f"{device.name} ({device.full_name}{memory}{driver})"
