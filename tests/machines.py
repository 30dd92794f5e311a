"""Machines that nobody has here, as recordings for `docvino.machine.border.Recorded`.

Written by hand after public facts, which each function names; values marked "made up" are of the right form only.

* sysfs: Linux i915/gt/intel_gt_sysfs_pm.c, xe/xe_gt_freq.c, xe/xe_gt_throttle.c, pci-sysfs.c; addresses of the A770 and
  the text of its `resource` from compute-runtime issue 618 and a published listing of a 16 GiB card.
* OpenVINO's properties: published dumps of an A770 beside a UHD 750 (2024.3), openvino issues 28920 (B580) and 38235,
  and what 2026.4.1 was seen to say without a driver.
* packages: packages.ubuntu.com, compute-runtime manifests/manifest.yml (which IGC belongs to which runtime).
* Windows: the class keys of the registry as public programs read them.
"""

from __future__ import annotations

import json
from typing import Any

from docvino.machine.adapters import _LIST_DEVICES
from docvino.machine.drivers import PACKAGES

Readings = dict[str, Any]

PCI = "/sys/bus/pci/devices"
GIB = 1 << 30
DPKG = " ".join(("dpkg-query", "-W", r"-f=${db:Status-Abbrev}\t${Package}\t${Version}\n", *PACKAGES))
ICD = "/usr/lib/x86_64-linux-gnu/intel-opencl/libigdrcl.so"
LOADS = {"libOpenCL.so.1": "", "libze_loader.so.1": "", "libze_intel_gpu.so.1": ""}
MISSING = "{0}: cannot open shared object file: No such file or directory"
A770, B580, A380, UHD_770 = "56a0", "e20b", "56a5", "a780"
CPU = {
    "FULL_DEVICE_NAME": "13th Gen Intel(R) Core(TM) i5-13500",
    "DEVICE_TYPE": "INTEGRATED",
    "DEVICE_ARCHITECTURE": "intel64",
    "OPTIMIZATION_CAPABILITIES": ["FP32", "INT8", "BIN", "EXPORT_IMPORT"],
}
INTEL_CPUINFO = (
    "processor\t: 0\nmodel name\t: 13th Gen Intel(R) Core(TM) i5-13500\nflags\t\t: fpu sse avx avx2 avx_vnni\n"
)


def base() -> Readings:
    """Python and packages as docvino was tested, half a terabyte free."""
    return {
        "python": {"version": "3.11.7", "implementation": "CPython", "bits": 64, "environment": True},
        "packages": {
            "openvino": "2026.4.1",
            "numpy": "2.4.6",
            "opencv-python-headless": "5.0.0.93",
            "pillow": "13.0.0",
            "pydantic": "2.14.4",
            "pypdfium2": "5.15.2",
            "tokenizers": "0.23.3",
        },
        "requirements": [
            "numpy>=1.26",
            "opencv-python-headless>=4.10",
            "openvino<2027,>=2026.2",
            "pillow>=11.3",
            "pydantic>=2.10",
            "pypdfium2>=5.0",
            'tokenizers>=0.20; extra == "vlm"',
            'tomli>=2.0; python_version < "3.11"',
        ],
        "disk": {"free_bytes": 500 * GIB, "writable": True},
        "files": {},
        "nodes": {},
        "commands": {},
        "answers": {},
    }


def ubuntu(release: str, kernel: str, upstream: str) -> Readings:
    machine = base()
    machine["files"] |= {
        "/etc/os-release": f'PRETTY_NAME="Ubuntu {release}"\nID=ubuntu\nVERSION_ID="{release}"\nID_LIKE=debian',
        "/proc/sys/kernel/osrelease": kernel,
        "/proc/version_signature": f"Ubuntu {kernel.replace('-generic', '')}.1-generic {upstream}",
        "/proc/cpuinfo": INTEL_CPUINFO,
        "/proc/meminfo": "MemTotal:       32614052 kB\nMemFree: 1 kB",
    }
    return machine


def packages(machine: Readings, **versions: str) -> None:
    """What dpkg-query says: names with _ for -; those that are not installed are lines of prose and an error."""
    lines = [f"ii \t{name.replace('_', '-')}\t{version}" for name, version in versions.items()]
    lines += ["dpkg-query: no packages found matching intel-compute-runtime"]
    machine["commands"][DPKG] = {"code": 1, "output": "\n".join(lines) + "\n"}


def runtime(machine: Readings, version: str, igc: str) -> None:
    """Intel's driver, installed: packages, the ICD file and its library."""
    packages(
        machine,
        intel_opencl_icd=f"{version}-1~24.04~ppa1",
        libigc2=f"{igc}-1~24.04~ppa1",
        libze_intel_gpu1=f"{version}-1~24.04~ppa1",
        libze1="1.21.9-1~24.04~ppa1",
        ocl_icd_libopencl1="2.3.2-1build1",
        linux_firmware="20240318.git3b128b60-0ubuntu2.9",
    )
    machine["files"] |= {"/etc/OpenCL/vendors/intel.icd": ICD, ICD: "\x7fELF"}


def card(machine: Readings, address: str, device: str, driver: str | None, number: int, bar_bytes: int) -> None:
    """A GPU on the PCI bus with its nodes and frequencies (i915: 2400 MHz at most, xe: 2850; the least is made up)."""
    at = f"{PCI}/{address}"
    first = 0x4000000000
    machine["files"] |= {
        f"{at}/class": "0x030000",
        f"{at}/vendor": "0x8086",
        f"{at}/device": f"0x{device}",
        f"{at}/uevent": f"DRIVER={driver}\nPCI_CLASS=30000\nPCI_ID=8086:{device.upper()}"
        if driver
        else "PCI_CLASS=30000",
        f"{at}/resource": "\n".join(
            [
                "0x0000000084000000 0x0000000084ffffff 0x0000000000140204",
                "0x0000000000000000 0x0000000000000000 0x0000000000000000",
                f"{first:#018x} {first + bar_bytes - 1:#018x} 0x000000000014220c",
            ]
        ),
    }
    if driver is None:
        return
    machine["files"] |= {f"{at}/drm/card{number}/dev": f"226:{number}"}
    machine["files"] |= {f"{at}/drm/renderD{127 + number}/dev": f"226:{127 + number}"}
    machine["nodes"] |= {f"/dev/dri/renderD{127 + number}": {"group": "render", "usable": True, "member": "session"}}
    if driver == "xe":
        at_freq, names = f"{at}/tile0/gt0/freq0", ("act_freq", "rp0_freq", "rpn_freq", "max_freq")
        values = (0, 2850, 400, 2850)
        throttle = {f"{at_freq}/throttle/reason_{name}": "0" for name in ("pl1", "thermal", "prochot")}
    else:
        at_freq = f"{at}/drm/card{number}/gt/gt0"
        names = ("rps_act_freq_mhz", "rps_RP0_freq_mhz", "rps_RPn_freq_mhz", "rps_max_freq_mhz")
        values = (0, 2400, 300, 2400)
        throttle = {f"{at_freq}/throttle_reason_{name}": "0" for name in ("pl1", "thermal", "prochot")}
    machine["files"] |= {f"{at_freq}/{name}": str(value) for name, value in zip(names, values, strict=True)} | throttle


def act_file(machine: Readings, address: str) -> str:
    """The file with the frequency that a GPU runs at."""
    ends = ("act_freq", "rps_act_freq_mhz")
    return next(path for path in machine["files"] if address in path and path.rsplit("/", 1)[1] in ends)


def uuid(device: str, address: str) -> str:
    """DEVICE_UUID as OpenVINO gives it for a GPU: vendor, device, revision, domain, bus, device, function."""
    domain, bus, rest = address.split(":")
    slot, function = rest.split(".")
    values = [0x8086, int(device, 16), 8, int(domain, 16)]
    data = b"".join(value.to_bytes(2, "little") for value in values)
    return (data + bytes([int(bus, 16), int(slot, 16), int(function, 16)]) + bytes(5)).hex()


def gpu_properties(device: str, address: str, name: str, kind: str, arch: str, memory: int, *, xmx: bool) -> Readings:
    capabilities = ["FP32", "BIN", "FP16", "INT8", *(["GPU_HW_MATMUL"] if xmx else []), "EXPORT_IMPORT"]
    return {
        "FULL_DEVICE_NAME": f"{name} ({'dGPU' if kind == 'DISCRETE' else 'iGPU'})",
        "DEVICE_TYPE": kind,
        "DEVICE_ARCHITECTURE": f"GPU: vendor=0x8086 arch=v{arch}",
        "OPTIMIZATION_CAPABILITIES": capabilities,
        "DEVICE_UUID": uuid(device, address),
        "GPU_UARCH_VERSION": arch,
        "GPU_DEVICE_TOTAL_MEM_SIZE": memory,
        "GPU_DEVICE_MAX_ALLOC_MEM_SIZE": 4294959104,
    }


def opencl_device(
    name: str, driver: str, address: str | None, memory: int, vendor: str = "8086", *, gpu: bool = True
) -> Readings:
    return {
        "name": name,
        "gpu": gpu,
        "vendor": vendor,
        "driver": driver,
        "address": address,
        "memory_bytes": memory,
        "largest_allocation_bytes": 4294959104,
    }


def drivers(machine: Readings, *devices: Readings, said: tuple[str, ...] = ()) -> None:
    platforms = (
        [{"name": "Intel(R) OpenCL Graphics", "version": "OpenCL 3.0", "devices": list(devices)}] if devices else []
    )
    machine["answers"]["drivers"] = {
        "facts": {"libraries": dict(LOADS), "problem": None, "platforms": platforms},
        "said": list(said),
    }


def no_loader(machine: Readings, name: str = "libOpenCL.so.1") -> None:
    libraries = {each: MISSING.format(each) for each in LOADS} | ({} if name in LOADS else {name: "not found"})
    machine["answers"]["drivers"] = {"facts": {"libraries": libraries, "problem": libraries[name], "platforms": []}}


def openvino(machine: Readings, trouble: str | None = None, **gpus: Readings) -> None:
    """Devices by name, with _ for the dot."""
    devices = {"CPU": CPU} | {name.replace("_", "."): values for name, values in gpus.items()}
    facts = {
        "version": "2026.4.1-22982-e213a147257",
        "problem": None,
        "devices": devices,
        "chosen": chosen(devices),
        "gpu_trouble": trouble,
    }
    machine["answers"]["openvino"] = {"facts": facts}
    for name in devices:
        load(machine, name)


def chosen(devices: Readings) -> Readings:
    """What docvino takes for each name: docvino.device.devices, whose own tests are tests/unit/test_devices.py."""
    named = {name: choice(name) for name in devices if name != "NPU" and is_intel(devices[name])}
    gpus = [name for name in named if name.startswith("GPU")]
    discrete = [name for name in gpus if devices[name].get("DEVICE_TYPE") == "DISCRETE"]
    best = (discrete or gpus or ["CPU"])[0]
    integrated = "a GPU, none with memory of its own" if gpus else "no GPU of Intel"
    why = "a GPU with memory of its own" if discrete else integrated
    named["AUTO"] = choice(best) | {"why": why}
    if gpus:
        named["GPU"] = choice(best)
        named.setdefault("GPU.0", choice(best))
    if "NPU" in devices:
        named["NPU"] = choice("NPU")
    return named


def choice(name: str) -> Readings:
    return {"name": name, "why": "", "execution": "f32" if name == "CPU" else "f16"}


def is_intel(properties: Readings) -> bool:
    return "vendor=0x10de" not in properties.get("DEVICE_ARCHITECTURE", "")


def load(machine: Readings, device: str, seen: dict[str, list[str]] | None = None, **facts: object) -> None:
    """What some seconds of work gave; rates are made up."""
    seconds = "5" if device.startswith("GPU") else "0.5"
    execution = choice(device)["execution"]
    machine["answers"][f"load {device} {seconds} {execution}"] = {
        "facts": {
            "devices": [device],
            "execution": execution,
            "compile_s": 0.41,
            "first_s": 0.012,
            "seconds": float(seconds),
            "inferences": 1000,
            "gflops": 6400.0 if device.startswith("GPU") else 480.0,
            "difference": 2e-6 if execution == "f32" else 4e-4,
            "problem": None,
            **facts,
        },
        "seen": seen or {},
    }


def a770() -> Readings:
    """Arc A770 16 GB, Ubuntu 24.04 with kernel 6.11, i915, current runtime: all is well."""
    machine = ubuntu("24.04", "6.11.0-26-generic", "6.11.11")
    address = "0000:03:00.0"
    card(machine, address, A770, "i915", 1, 16 * GIB)
    runtime(machine, "26.14.37833.4", "2.32.7")
    drivers(machine, opencl_device("Intel(R) Arc(TM) A770 Graphics", "26.14.37833", address, 16225243136))
    name = "Intel(R) Arc(TM) A770 Graphics"
    openvino(machine, GPU=gpu_properties(A770, address, name, "DISCRETE", "12.55.8", 16225243136, xmx=True))
    load(machine, "GPU", {act_file(machine, address): ["0", "300", "2400", "2350", "2400"]})
    return machine


def b580() -> Readings:
    """Arc B580, Ubuntu 25.10 with kernel 6.17, xe."""
    machine = ubuntu("25.10", "6.17.0-6-generic", "6.17.1")
    address = "0000:04:00.0"
    card(machine, address, B580, "xe", 1, 16 * GIB)
    machine["files"][f"{PCI}/{address}/tile0/physical_vram_size_bytes"] = str(12 * GIB)
    runtime(machine, "26.14.37833.4", "2.32.7")
    drivers(machine, opencl_device("Intel(R) Arc(TM) B580 Graphics", "26.14.37833", address, 12168933376))
    name = "Intel(R) Arc(TM) B580 Graphics"
    openvino(machine, GPU=gpu_properties(B580, address, name, "DISCRETE", "20.1.0", 12168933376, xmx=True))
    load(machine, "GPU", {act_file(machine, address): ["400", "2850", "2700"]})
    return machine


def pair() -> Readings:
    """UHD 770 beside an Arc B580: OpenVINO calls the integrated one GPU.0."""
    machine = ubuntu("25.10", "6.17.0-6-generic", "6.17.1")
    inside, outside = "0000:00:02.0", "0000:04:00.0"
    card(machine, inside, UHD_770, "i915", 1, GIB // 4)
    card(machine, outside, B580, "xe", 2, 16 * GIB)
    runtime(machine, "26.14.37833.4", "2.32.7")
    drivers(
        machine,
        opencl_device("Intel(R) UHD Graphics 770", "26.14.37833", inside, 30477434880),
        opencl_device("Intel(R) Arc(TM) B580 Graphics", "26.14.37833", outside, 12168933376),
    )
    small = gpu_properties(UHD_770, inside, "Intel(R) UHD Graphics 770", "INTEGRATED", "12.2.0", 30477434880, xmx=False)
    large = gpu_properties(B580, outside, "Intel(R) Arc(TM) B580 Graphics", "DISCRETE", "20.1.0", 12168933376, xmx=True)
    openvino(machine, GPU_0=small, GPU_1=large)
    load(machine, "GPU.0", {act_file(machine, inside): ["300", "1550"]})
    load(machine, "GPU.1", {act_file(machine, outside): ["400", "2850"]})
    return machine


def known_bad() -> Readings:
    """Arc A380 with Resizable BAR off under compute runtime 25.18.33578.6: compute-runtime issue 831."""
    machine = ubuntu("24.04", "6.11.0-26-generic", "6.11.11")
    address = "0000:03:00.0"
    card(machine, address, A380, "i915", 1, GIB // 4)
    runtime(machine, "25.18.33578.6", "2.11.7")
    drivers(machine, said=(f"WARNING: Small BAR detected for device {address}",))
    openvino(machine)
    return machine


def old_kernel() -> Readings:
    """Arc A770 on a kernel 6.8 of Ubuntu 24.04 that holds 6.8.8 of kernel.org: compute-runtime issues 726 and 734."""
    machine = a770()
    machine["files"] |= {
        "/proc/sys/kernel/osrelease": "6.8.0-38-generic",
        "/proc/version_signature": "Ubuntu 6.8.0-38.38-generic 6.8.8",
    }
    return machine


DISPLAY_CLASS = r"SYSTEM\CurrentControlSet\Control\Class\{4d36e968-e325-11ce-bfc1-08002be10318}"


def windows() -> Readings:
    """Windows 11 24H2 with an Arc B580 and a UHD 770; the registry remembers an NVIDIA card that was taken out."""
    machine = base() | {"system": "Windows", "architecture": "AMD64", "on_battery": False}
    machine["registry"] = {
        r"SOFTWARE\Microsoft\Windows NT\CurrentVersion": {
            "ProductName": "Windows 10 Pro",
            "DisplayVersion": "24H2",
            "CurrentBuild": "26100",
        },
        r"HARDWARE\DESCRIPTION\System\CentralProcessor\0": {
            "ProcessorNameString": "13th Gen Intel(R) Core(TM) i5-13500"
        },
        rf"{DISPLAY_CLASS}\0000": {
            "DriverDesc": "Intel(R) UHD Graphics 770",
            "DriverVersion": "32.0.101.7076",
            "DriverDate": "9-19-2025",
            "MatchingDeviceId": r"PCI\VEN_8086&DEV_A780",
            "HardwareInformation.qwMemorySize": 134217728,
        },
        rf"{DISPLAY_CLASS}\0001": {
            "DriverDesc": "Intel(R) Arc(TM) B580 Graphics",
            "DriverVersion": "32.0.101.8724",
            "DriverDate": "5-12-2026",
            "MatchingDeviceId": r"PCI\VEN_8086&DEV_E20B",
            "HardwareInformation.qwMemorySize": 12 * GIB,
        },
        rf"{DISPLAY_CLASS}\0002": {
            "DriverDesc": "NVIDIA GeForce RTX 3050",
            "DriverVersion": "31.0.15.5222",
            "MatchingDeviceId": r"PCI\VEN_10DE&DEV_2582",
            "HardwareInformation.qwMemorySize": 8 * GIB,
        },
        rf"{DISPLAY_CLASS}\Configuration": {},
        r"SYSTEM\CurrentControlSet\Control\Power\User\PowerSchemes": {
            "ActivePowerScheme": "381b4222-f694-41f0-9685-ff5bb260df2e",
            "ActiveOverlayAcPowerScheme": "ded574b5-45a0-4f42-8737-46345c09c238",
        },
    }
    plugged_in(machine, {"PCI\\VEN_8086&DEV_A780&SUBSYS_1": 0, "PCI\\VEN_8086&DEV_E20B&SUBSYS_2": 0})
    windows_drivers(
        machine,
        opencl_device("Intel(R) UHD Graphics 770", "32.0.101.7076", "0000:00:02.0", 13000000000),
        opencl_device("Intel(R) Arc(TM) B580 Graphics", "32.0.101.8724", "0000:04:00.0", 12627000000),
    )
    small = ("Intel(R) UHD Graphics 770", "INTEGRATED", "12.2.0", 13000000000)
    large = ("Intel(R) Arc(TM) B580 Graphics", "DISCRETE", "20.1.0", 12627000000)
    openvino(
        machine,
        GPU_0=gpu_properties(UHD_770, "0000:00:02.0", *small, xmx=False),
        GPU_1=gpu_properties(B580, "0000:04:00.0", *large, xmx=True),
    )
    return machine


def plugged_in(machine: Readings, problems: dict[str, int]) -> None:
    rows = [{"PNPDeviceID": name, "ConfigManagerErrorCode": code} for name, code in problems.items()]
    # ConvertTo-Json writes one object as itself and several as a list.
    output = json.dumps(rows[0] if len(rows) == 1 else rows)
    machine["commands"][" ".join(_LIST_DEVICES)] = {"code": 0, "output": output}


def windows_drivers(machine: Readings, *devices: Readings) -> None:
    platforms = [{"name": "Intel(R) OpenCL Graphics", "version": "OpenCL 3.0", "devices": list(devices)}]
    libraries = {"OpenCL.dll": "", "ze_loader.dll": ""}
    machine["answers"]["drivers"] = {"facts": {"libraries": libraries, "problem": None, "platforms": platforms}}


def wsl() -> Readings:
    """Ubuntu 24.04 in WSL 2 with an Arc A770 of the Windows host: no PCI device, /dev/dxg, 1 GiB an allocation."""
    machine = ubuntu("24.04", "5.15.167.4-microsoft-standard-WSL2", "5.15.167.4")
    del machine["files"]["/proc/version_signature"]
    machine["files"]["/usr/lib/wsl/lib/libdxcore.so"] = "\x7fELF"
    machine["nodes"]["/dev/dxg"] = {"group": "root", "usable": True, "member": "no"}
    runtime(machine, "26.14.37833.4", "2.32.7")
    device = opencl_device("Intel(R) Graphics [0x56a0]", "26.14.37833", None, 16225243136)
    drivers(machine, device | {"largest_allocation_bytes": GIB})
    properties = gpu_properties(
        A770, "0000:03:00.0", "Intel(R) Graphics [0x56a0]", "DISCRETE", "12.55.8", 16225243136, xmx=True
    )
    openvino(machine, GPU=properties | {"GPU_DEVICE_MAX_ALLOC_MEM_SIZE": GIB})
    return machine


def empty() -> Readings:
    """A container of almost nothing: no /etc/os-release, no /sys, no package manager, no libOpenCL."""
    machine = base()
    machine["files"] = {"/.dockerenv": "", "/proc/sys/kernel/osrelease": "6.11.0-26-generic"}
    no_loader(machine)
    trouble = 'Cannot load library "libopenvino_intel_gpu_plugin.so": ' + MISSING.format("libOpenCL.so.1")
    openvino(machine, trouble=trouble)
    return machine


def container() -> Readings:
    """The A770 machine seen from a Docker container without --device: /sys is the host's, /dev/dri is not there."""
    machine = a770()
    machine["files"]["/.dockerenv"] = ""
    machine["nodes"] = {}
    drivers(machine)
    openvino(machine)
    return machine


def npu() -> Readings:
    """A Meteor Lake laptop with its NPU in order: intel/linux-npu-driver, Linux drivers/accel/ivpu."""
    machine = ubuntu("24.04", "6.11.0-26-generic", "6.11.11")
    at = f"{PCI}/0000:00:0b.0"
    machine["files"] |= {
        f"{at}/class": "0x120000",
        f"{at}/vendor": "0x8086",
        f"{at}/device": "0x7d1d",
        f"{at}/uevent": "DRIVER=intel_vpu\nPCI_CLASS=120000",
        f"{at}/accel/accel0/dev": "261:0",
    }
    machine["nodes"]["/dev/accel/accel0"] = {"group": "render", "usable": True, "member": "session"}
    packages(machine, intel_level_zero_npu="1.17.0.20250508-14912879441", libze1="1.21.9-1")
    no_loader(machine)
    libraries = machine["answers"]["drivers"]["facts"]["libraries"]
    libraries |= {"libze_loader.so.1": "", "libze_intel_npu.so.1": ""}
    openvino(machine, NPU={"FULL_DEVICE_NAME": "Intel(R) AI Boost", "DEVICE_TYPE": "INTEGRATED"})
    return machine


MACHINES = {
    "a770": a770,
    "b580": b580,
    "pair": pair,
    "known_bad": known_bad,
    "old_kernel": old_kernel,
    "windows": windows,
    "wsl": wsl,
    "empty": empty,
    "container": container,
    "npu": npu,
}
