"""Checks of the operating system, the processor, Python and its packages."""

from __future__ import annotations

import re
from collections.abc import Iterator

from docvino.doctor.check import Check, Context
from docvino.errors import ConfigError, DeviceError, MissingExtraError
from docvino.machine.border import Python
from docvino.machine.system import System
from docvino.machine.table import read_toml
from docvino.machine.versions import in_range, parse_version

SECTION = "this machine"
# What speeds up models on a CPU, in the order of OpenVINO's preference; names of /proc/cpuinfo.
_SPEEDS = (
    ("amx_int8", "AMX"),
    ("avx512_bf16", "AVX512-BF16"),
    ("avx512_vnni", "AVX512-VNNI"),
    ("avx_vnni", "AVX-VNNI"),
    ("avx512f", "AVX512"),
    ("avx2", "AVX2"),
)


def check_system(context: Context) -> Iterator[Check]:
    facts = context.facts
    yield _operating_system(facts.system, facts.machine.architecture)
    if facts.system.wsl or facts.system.container:
        yield _container(facts.system)
    yield _processor(facts.system)


def check_python(context: Context) -> Iterator[Check]:
    yield _python(context.facts.machine.python())


def _operating_system(system: System, architecture: str) -> Check:
    # Windows has its build in the title.
    kernel = f", kernel {system.kernel}" if system.kernel and not system.title.startswith("Windows") else ""
    found = f"{system.title}{kernel}, {architecture}"
    wanted = "Linux or Windows on x86-64"
    if architecture.lower() not in ("x86_64", "amd64"):
        fix = "docvino runs where OpenVINO's wheels do, but only x86-64 is tested"
        return Check(SECTION, "operating system", "warn", found, wanted, fix)
    if not (system.title.startswith("Windows") or system.kernel):
        return Check(SECTION, "operating system", "warn", found, wanted, "the kernel's version cannot be read")
    return Check(SECTION, "operating system", "ok", found, wanted)


def _container(system: System) -> Check:
    if not system.container:
        return Check(SECTION, "container", "ok", "WSL: the GPU is the Windows driver's, through /dev/dxg")
    inside = f"{system.container}, inside WSL" if system.wsl else system.container
    return Check(SECTION, "container", "ok", f"{inside}: a GPU is seen when its device nodes are passed in")


def _processor(system: System) -> Check:
    speeds = [title for flag, title in _SPEEDS if flag in system.flags]
    memory = f"{system.memory_bytes / 2**30:.1f} GiB of memory" if system.memory_bytes else ""
    if not (system.cpu or system.memory_bytes):
        return Check(SECTION, "processor", "skip", "cannot be told here")
    parts = [system.cpu, ", ".join(speeds), memory]
    found = "; ".join(part for part in parts if part)
    if system.flags and "avx2" not in system.flags:
        fix = "OpenVINO's wheels need AVX2: another machine, or, for a virtual one, its host's processor"
        return Check(SECTION, "processor", "fail", found, "AVX2", fix, DeviceError.exit_code)
    return Check(SECTION, "processor", "ok", found)


def _python(python: Python) -> Check:
    tested = read_toml("tested.toml")["python"]
    where = "in a virtual environment" if python.environment else "no virtual environment"
    found = f"{python.implementation} {python.version}, {python.bits} bits, {where}"
    wanted = f"64 bits, {tested['range']} (tested: {', '.join(tested['versions'])})"
    version = parse_version(python.version)
    if python.bits != 64:
        return Check(SECTION, "Python", "fail", found, wanted, "install a Python of 64 bits", ConfigError.exit_code)
    if version is None or not in_range(version, tested["range"]) or python.implementation != "CPython":
        fix = f"python{tested['versions'][-1].rpartition('.')[0]} -m venv .venv && .venv/bin/pip install docvino"
        return Check(SECTION, "Python", "warn", found, wanted, fix)
    return Check(SECTION, "Python", "ok", found, wanted)


def check_packages(context: Context) -> Iterator[Check]:
    """One line for all packages that are as docvino asks and as it was tested, one for each that is not."""
    machine = context.facts.machine
    tested = read_toml("tested.toml")["packages"]
    good, wrong = [], []
    for name, bounds in sorted(_requirements(machine.requirements()).items()):
        found = machine.package(name)
        version = parse_version(found) if found else None
        if found is None:
            fix = f"pip install '{name}{bounds}'"
            wrong.append(
                Check(SECTION, f"package {name}", "fail", "not installed", bounds, fix, MissingExtraError.exit_code)
            )
        elif version is not None and bounds and not in_range(version, bounds):
            fix = f"pip install '{name}{bounds}'"
            wrong.append(Check(SECTION, f"package {name}", "fail", found, bounds, fix, MissingExtraError.exit_code))
        elif version is not None and name in tested and not in_range(version, tested[name]["range"]):
            wanted = f"{tested[name]['range']} (tested: {', '.join(tested[name]['versions'])})"
            fix = f"pip install '{name}{tested[name]['range']}', unless this one does its work"
            wrong.append(Check(SECTION, f"package {name}", "warn", found, wanted, fix))
        elif name in tested:
            good.append(f"{name} {found}")
    if good:
        yield Check(SECTION, "packages", "ok", ", ".join(good))
    yield from wrong
    if not good and not wrong:
        yield Check(
            SECTION, "packages", "warn", "docvino is not installed as a package", fix="pip install docvino, or -e ."
        )


def _requirements(lines: tuple[str, ...]) -> dict[str, str]:
    """Bounds by package, of what every installation needs: extras and those of one Python alone are left out."""
    found = {}
    for line in lines:
        needed, _, marker = line.partition(";")
        matched = re.match(r"\s*([A-Za-z0-9._-]+?)\s*(?:\[[^\]]*\])?\s*\(?((?:[<>=!~]=?.*?)?)\)?\s*$", needed)
        if matched is not None and not marker.strip():
            found[matched.group(1)] = matched.group(2).replace(" ", "")
    return found
