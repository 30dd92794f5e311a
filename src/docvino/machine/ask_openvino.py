"""Asks OpenVINO for its devices, in a process of its own: a driver may crash or hang it.

python -m docvino.machine.ask_openvino
"""

from __future__ import annotations

import re
from collections.abc import Mapping
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
            values[key] = plain(value)
        found[str(name)] = values
    return found


def plain(value: Any) -> Any:
    """JSON of a property: enumerations by their name, keys as text."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    return re.sub(r"^\w+\.", "", str(value))


def gpu_trouble(core: Any) -> str | None:
    """Why the GPU plugin lists nothing: its own message, or None when it lists devices or has nothing to say.

    `available_devices` hides it; this question is answered with an error when libOpenCL.so.1 is missing.
    """
    try:
        core.get_property("GPU", "AVAILABLE_DEVICES")
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what is asked for
        return " ".join(str(error).split())[-400:]
    return None


def main() -> None:
    try:
        import openvino
    except Exception as error:  # noqa: BLE001 - a missing library of the system comes as several kinds of error
        answer({"version": None, "problem": " ".join(str(error).split())[-400:], "devices": {}, "gpu_trouble": None})
        return
    core = openvino.Core()
    answer(
        {
            "version": str(openvino.get_version()),
            "problem": None,
            "devices": read_devices(core),
            "gpu_trouble": gpu_trouble(core),
        }
    )


if __name__ == "__main__":
    main()
