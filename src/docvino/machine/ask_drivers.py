"""Asks the user-mode drivers, in a process of its own: a broken driver may take it down.

    python -m docvino.machine.ask_drivers

Loads the libraries of OpenCL and Level Zero and lists OpenCL's devices. Level Zero is loaded and not called: its
initialisation aborts on some pairs of card and kernel, and OpenVINO's GPU plugin does not need it.

Source of the numbers: Khronos OpenCL-Headers, CL/cl.h and CL/cl_ext.h.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any

from docvino.machine.answer import answer

LIBRARIES: dict[str, tuple[str, ...]] = {
    "linux": (
        "libOpenCL.so.1",
        "libze_loader.so.1",
        "libze_intel_gpu.so.1",
        # Renamed with linux-npu-driver 1.17 (its release notes).
        "libze_intel_npu.so.1",
        "libze_intel_vpu.so.1",
    ),
    "win32": ("OpenCL.dll", "ze_loader.dll"),
}

_PLATFORM_NAME, _PLATFORM_VERSION = 0x0902, 0x0901
_DEVICE_TYPE_ALL = 0xFFFFFFFF
_TYPE, _TYPE_GPU = 0x1000, 1 << 2
_NAME, _VENDOR_ID, _DRIVER_VERSION, _GLOBAL_MEM, _MAX_ALLOC = 0x102B, 0x1001, 0x102D, 0x101F, 0x1010
_PCI_BUS_INFO = 0x410F  # cl_khr_pci_bus_info: domain, bus, device, function
_NO_PLATFORM, _NO_DEVICE = -1001, -1  # CL_PLATFORM_NOT_FOUND_KHR, CL_DEVICE_NOT_FOUND


def load(names: Sequence[str]) -> tuple[dict[str, str], Any]:
    """What the loader says of each library ("" when it loads), and the first of them, or None."""
    said: dict[str, str] = {}
    first = None
    for index, name in enumerate(names):
        try:
            library = ctypes.CDLL(name)
        except OSError as error:
            said[name] = str(error)
        else:
            said[name] = ""
            first = library if index == 0 else first
    return said, first


def list_platforms(library: Any) -> list[dict[str, Any]]:
    """Platforms with their devices. An ICD that fails leaves out its own platform only.

    Raises: OSError when OpenCL itself refuses to answer.
    """
    handles = _handles(lambda size, into, count: library.clGetPlatformIDs(size, into, count), _NO_PLATFORM)
    return [
        {
            "name": _text(library.clGetPlatformInfo, platform, _PLATFORM_NAME),
            "version": _text(library.clGetPlatformInfo, platform, _PLATFORM_VERSION),
            "devices": _devices(library, platform),
        }
        for platform in handles
    ]


def _devices(library: Any, platform: int) -> list[dict[str, Any]]:
    def ask(size: int, into: Any, count: Any) -> int:
        kind = ctypes.c_ulong(_DEVICE_TYPE_ALL) if sys.platform != "win32" else ctypes.c_ulonglong(_DEVICE_TYPE_ALL)
        return int(library.clGetDeviceIDs(ctypes.c_void_p(platform), kind, size, into, count))

    found = []
    for device in _handles(ask, _NO_DEVICE):
        bus = _bytes(library.clGetDeviceInfo, device, _PCI_BUS_INFO)
        found.append(
            {
                "name": _text(library.clGetDeviceInfo, device, _NAME),
                "gpu": bool(_number(library.clGetDeviceInfo, device, _TYPE) & _TYPE_GPU),
                "vendor": f"{_number(library.clGetDeviceInfo, device, _VENDOR_ID):04x}",
                "driver": _text(library.clGetDeviceInfo, device, _DRIVER_VERSION),
                "address": "{:04x}:{:02x}:{:02x}.{:x}".format(*struct.unpack("<4I", bus)) if len(bus) == 16 else None,
                "memory_bytes": _number(library.clGetDeviceInfo, device, _GLOBAL_MEM),
                "largest_allocation_bytes": _number(library.clGetDeviceInfo, device, _MAX_ALLOC),
            }
        )
    return found


def _handles(ask: Callable[[int, Any, Any], int], none: int) -> list[int]:
    count = ctypes.c_uint(0)
    status = ask(0, None, ctypes.byref(count))
    if status == none or (status == 0 and count.value == 0):
        return []
    if status != 0:
        raise OSError(f"OpenCL answers with error {status}")
    handles = (ctypes.c_void_p * count.value)()
    status = ask(count.value, handles, None)
    if status != 0:
        raise OSError(f"OpenCL answers with error {status}")
    return [handle for handle in handles if handle is not None]


def _bytes(ask: Any, handle: int, what: int) -> bytes:
    size = ctypes.c_size_t(0)
    if ask(ctypes.c_void_p(handle), ctypes.c_uint(what), ctypes.c_size_t(0), None, ctypes.byref(size)) != 0:
        return b""
    buffer = ctypes.create_string_buffer(size.value)
    if ask(ctypes.c_void_p(handle), ctypes.c_uint(what), size, buffer, None) != 0:
        return b""
    return buffer.raw


def _text(ask: Any, handle: int, what: int) -> str:
    return _bytes(ask, handle, what).split(b"\0")[0].decode("utf-8", "replace").strip()


def _number(ask: Any, handle: int, what: int) -> int:
    return int.from_bytes(_bytes(ask, handle, what), "little")


def main() -> None:
    libraries, opencl = load(LIBRARIES.get(sys.platform, ()))
    platforms: list[dict[str, Any]] = []
    problem = None
    if opencl is None:
        problem = next(iter(libraries.values()), f"docvino knows no OpenCL library on {sys.platform}")
    else:
        try:
            platforms = list_platforms(opencl)
        except OSError as error:
            problem = str(error)
    answer({"libraries": libraries, "problem": problem, "platforms": platforms})


if __name__ == "__main__":
    main()
