"""Asks OpenVINO for its devices and docvino which of them it takes, in a process of its own: a driver may crash it.

Run as `python -m docvino.doctor.ask_openvino`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from docvino.machine.answer import answer

PROPERTIES = (
    "FULL_DEVICE_NAME",
    "DEVICE_TYPE",
    "DEVICE_ARCHITECTURE",
    "OPTIMIZATION_CAPABILITIES",
    "DEVICE_UUID",
    "DEVICE_GOPS",
    "GPU_UARCH_VERSION",
    "GPU_DEVICE_ID",
    "GPU_EXECUTION_UNITS_COUNT",
    "GPU_DEVICE_TOTAL_MEM_SIZE",
    "GPU_DEVICE_MAX_ALLOC_MEM_SIZE",
    "GPU_DRIVER_VERSION",  # not among the properties that a GPU lists, and answered all the same
    "NPU_DRIVER_VERSION",
    "NPU_DEVICE_TOTAL_MEM_SIZE",
)


def read_devices(core: Any) -> dict[str, dict[str, Any]]:
    """Each device with the properties above; one that it refuses is left out."""
    found = {}
    for name in core.available_devices:
        values: dict[str, Any] = {}
        for key in PROPERTIES:
            try:
                value = core.get_property(name, key)
            except Exception:  # noqa: BLE001 - properties differ by device and release, and so do their errors
                continue
            values[key] = str(value).rpartition(".")[2] if key == "DEVICE_TYPE" else plain(value)
        found[str(name)] = values
    return found


def plain(value: Any) -> Any:
    """JSON of a property: what JSON does not know as text."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    return str(value)


def gpu_trouble(core: Any) -> str | None:
    """Why the GPU plugin lists nothing: its own message, or None when it lists devices or has nothing to say.

    `available_devices` hides it; this question is answered with an error when libOpenCL.so.1 is missing.
    """
    try:
        core.get_property("GPU", "AVAILABLE_DEVICES")
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what is asked for
        return " ".join(str(error).split())[-400:]
    return None


def choices(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """What docvino takes for each name that a setting may have: the device, why, and the arithmetic it uses there."""
    from docvino.device import choose_device, find_device, list_devices
    from docvino.errors import DeviceError
    from docvino.settings import AUTO

    found = {}
    for wanted in dict.fromkeys((AUTO, "CPU", "GPU", "GPU.0", "NPU", *names)):
        try:
            device = find_device(wanted)
            why = choose_device(list_devices())[1] if wanted == AUTO else ""
        except DeviceError:
            continue
        found[wanted] = {"name": device.name, "why": why, "execution": device.profile.execution}
    return found


def main() -> None:
    try:
        from docvino.device import open_core, openvino_version
    except Exception as error:  # noqa: BLE001 - a missing library of the system comes as several kinds of error
        problem = " ".join(str(error).split())[-400:]
        answer({"version": None, "problem": problem, "devices": {}, "chosen": {}, "gpu_trouble": None})
        return
    core = open_core()
    devices = read_devices(core)
    answer(
        {
            "version": openvino_version(),
            "problem": None,
            "devices": devices,
            "chosen": choices(devices),
            "gpu_trouble": gpu_trouble(core),
        }
    )


if __name__ == "__main__":
    main()
