"""How fast a GPU runs and what holds it back, from files of the kernel driver.

Source: Linux i915/gt/intel_gt_sysfs_pm.c, xe/xe_gt_freq.c, xe/xe_gt_throttle.c. Every file may be missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from docvino.machine.adapters import Adapter
from docvino.machine.border import Machine

_THROTTLE = ("pl1", "pl2", "pl4", "thermal", "prochot", "ratl", "vr_thermalert", "vr_tdc")
REASONS: Mapping[str, str] = {
    "pl1": "power limit",
    "pl2": "power limit",
    "pl4": "power limit",
    "thermal": "heat",
    "prochot": "heat of another chip",
    "ratl": "thermal average",
    "vr_thermalert": "heat of the voltage regulator",
    "vr_tdc": "current of the voltage regulator",
}


@dataclass(frozen=True)
class FrequencyFiles:
    """Paths; `throttle` by its reason. Frequencies are in MHz. `actual` reads 0 while the GPU sleeps."""

    actual: str
    highest: str
    lowest: str
    allowed: str
    throttle: Mapping[str, str]

    @property
    def watched(self) -> tuple[str, ...]:
        return (self.actual, *self.throttle.values())


def frequency_files(machine: Machine, adapter: Adapter) -> FrequencyFiles | None:
    """Where this GPU's readings are; None where the kernel offers none."""
    base = f"/sys/bus/pci/devices/{adapter.address}"
    xe = f"{base}/tile0/gt0/freq0"
    new = f"{base}/drm/{adapter.card}/gt/gt0"
    old = f"{base}/drm/{adapter.card}"
    layouts = (
        FrequencyFiles(
            f"{xe}/act_freq",
            f"{xe}/rp0_freq",
            f"{xe}/rpn_freq",
            f"{xe}/max_freq",
            {name: f"{xe}/throttle/reason_{name}" for name in _THROTTLE},
        ),
        FrequencyFiles(
            f"{new}/rps_act_freq_mhz",
            f"{new}/rps_RP0_freq_mhz",
            f"{new}/rps_RPn_freq_mhz",
            f"{new}/rps_max_freq_mhz",
            {name: f"{new}/throttle_reason_{name}" for name in _THROTTLE},
        ),
        FrequencyFiles(
            f"{old}/gt_act_freq_mhz",
            f"{old}/gt_RP0_freq_mhz",
            f"{old}/gt_RPn_freq_mhz",
            f"{old}/gt_max_freq_mhz",
            {name: f"{old}/gt_throttle_reason_status_{name}" for name in _THROTTLE},
        ),
    )
    return next((files for files in layouts if machine.text(files.actual) is not None), None)


@dataclass(frozen=True)
class Frequencies:
    """MHz: the highest seen under load, and what the hardware and the settings allow. `reasons` that were raised."""

    reached: int
    highest: int | None
    lowest: int | None
    allowed: int | None
    reasons: tuple[str, ...]


def read_frequencies(
    machine: Machine, files: FrequencyFiles, seen: Mapping[str, tuple[str, ...]]
) -> Frequencies | None:
    """What was seen of the watched files while the GPU was busy; None when its frequency could not be read."""
    actual = [int(value) for value in seen.get(files.actual, ()) if value.isdigit()]
    if not actual:
        return None
    reasons = tuple(name for name, path in files.throttle.items() if "1" in seen.get(path, ()))
    return Frequencies(
        max(actual),
        _mhz(machine, files.highest),
        _mhz(machine, files.lowest),
        _mhz(machine, files.allowed),
        reasons,
    )


def _mhz(machine: Machine, path: str) -> int | None:
    text = machine.text(path)
    return int(text) if text is not None and text.isdigit() else None
