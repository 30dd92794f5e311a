"""User-mode drivers: packages, OpenCL and its devices, Level Zero."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from docvino.machine.border import Answer, Machine
from docvino.machine.table import INTEL
from docvino.machine.versions import parse_version

_ICDS = "/etc/OpenCL/vendors"

# By what each names: Debian and Ubuntu, Fedora and RHEL, Arch. Sources: intel/compute-runtime README.md and releases,
# packages.ubuntu.com, compute-runtime issue 883, intel/linux-npu-driver releases.
_RUNTIME = ("intel-opencl-icd", "intel-opencl", "intel-compute-runtime")
_LEGACY = ("intel-opencl-icd-legacy1", "intel-opencl-icd-legacy")
_COMPILER = ("libigc2", "intel-igc-core-2", "intel-igc", "intel-graphics-compiler", "libigc1", "intel-igc-core")
_LEVEL_ZERO = ("libze-intel-gpu1", "intel-level-zero-gpu", "intel-level-zero")
_OTHERS = (
    "intel-igc-opencl-2",
    "intel-igc-opencl",
    "intel-ocloc",
    "libigdgmm12",
    "intel-gmmlib",
    "libze1",
    "level-zero",
    "level-zero-loader",
    "oneapi-level-zero",
    "ocl-icd-libopencl1",
    "ocl-icd",
    "intel-level-zero-npu",
    "intel-driver-compiler-npu",
    "intel-fw-npu",
    "linux-firmware",
    "firmware-misc-nonfree",
    "firmware-intel-graphics",
)
PACKAGES = (*_RUNTIME, *_LEGACY, *_COMPILER, *_LEVEL_ZERO, *_OTHERS)


@dataclass(frozen=True)
class OpenClDevice:
    """`address` is the PCI address where the driver tells it. `vendor` is a PCI vendor id, four hexadecimal digits.

    Processors are devices of OpenCL, too: PoCL gives any of them Intel's vendor id.
    """

    name: str
    gpu: bool
    vendor: str
    driver: str
    address: str | None
    memory_bytes: int
    largest_allocation_bytes: int


@dataclass(frozen=True)
class Drivers:
    """libraries  name -> "" when it can be loaded, else the loader's message
    problem       what went wrong when OpenCL was asked; None when it answered
    devices       GPUs and other devices of every OpenCL platform
    platforms     their names
    said          what drivers printed meanwhile, such as a warning of a small BAR
    """

    libraries: Mapping[str, str]
    problem: str | None
    platforms: tuple[str, ...] = ()
    devices: tuple[OpenClDevice, ...] = ()
    said: tuple[str, ...] = ()

    def loads(self, start: str) -> bool:
        """Whether a library of that name, in any of its forms, can be loaded."""
        return any(message == "" for name, message in self.libraries.items() if name.startswith(start))

    @property
    def intel(self) -> tuple[OpenClDevice, ...]:
        """GPUs of Intel."""
        return tuple(device for device in self.devices if device.gpu and device.vendor == INTEL)


def read_drivers(answer: Answer) -> Drivers:
    facts = answer.facts
    devices = tuple(
        OpenClDevice(
            device["name"],
            device["gpu"],
            device["vendor"],
            device["driver"],
            device.get("address"),
            device["memory_bytes"],
            device["largest_allocation_bytes"],
        )
        for platform in facts["platforms"]
        for device in platform["devices"]
    )
    names = tuple(platform["name"] for platform in facts["platforms"])
    return Drivers(facts["libraries"], facts["problem"], names, devices, answer.said)


@dataclass(frozen=True)
class Packages:
    """Versions of packages that concern Intel GPUs and NPUs; `manager` is "" where none of the three is there."""

    manager: str
    versions: Mapping[str, str]

    def _first(self, names: tuple[str, ...]) -> str | None:
        return next((self.versions[name] for name in names if name in self.versions), None)

    @property
    def runtime(self) -> str | None:
        return self._first(_RUNTIME)

    @property
    def legacy_runtime(self) -> str | None:
        return self._first(_LEGACY)

    @property
    def compiler(self) -> str | None:
        return self._first(_COMPILER)

    @property
    def level_zero(self) -> str | None:
        return self._first(_LEVEL_ZERO)


def read_packages(machine: Machine) -> Packages:
    """What the system's package manager has installed: dpkg, rpm or pacman, the first that knows any."""
    asked = (
        ("dpkg", ("dpkg-query", "-W", r"-f=${db:Status-Abbrev}\t${Package}\t${Version}\n", *PACKAGES)),
        ("rpm", ("rpm", "-q", "--qf", r"ii \t%{NAME}\t%{VERSION}-%{RELEASE}\n", *PACKAGES)),
        ("pacman", ("pacman", "-Q", *PACKAGES)),
    )
    manager, versions = "", {}
    for name, command in asked:
        ran = machine.run(command)
        if ran is None:
            continue
        manager = manager or name
        for line in ran.output.splitlines():
            # dpkg-query and rpm end with an error and a line of prose for each package that is not there.
            words = line.split("\t") if name != "pacman" else ["ii", *line.split(" ")]
            if len(words) == 3 and words[0].strip() == "ii" and words[1] in PACKAGES and parse_version(words[2]):
                versions[words[1]] = words[2].strip()
        if versions:
            manager = name
            break
    return Packages(manager, versions)


@dataclass(frozen=True)
class IcdFile:
    """A file of /etc/OpenCL/vendors and the library it names; `exists` is None for a bare name: the loader seeks it."""

    name: str
    library: str
    exists: bool | None

    @property
    def intel(self) -> bool:
        return PurePosixPath(self.library).name.startswith("libigdrcl")


def read_icds(machine: Machine) -> tuple[IcdFile, ...]:
    folder = machine.variable("OCL_ICD_VENDORS") or _ICDS
    found = []
    for name in machine.names(folder):
        if not name.endswith(".icd"):
            continue
        library = (machine.text(f"{folder}/{name}") or "").splitlines()
        path = library[0].strip() if library else ""
        there = None
        if path.startswith("/"):
            parent, _, base = path.rpartition("/")
            there = base in machine.names(parent)
        found.append(IcdFile(name, path, there))
    return tuple(found)
