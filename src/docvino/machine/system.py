"""The operating system, the processor, and whether this is a container or WSL."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Literal

from docvino.machine.border import Machine

_WINDOWS = r"SOFTWARE\Microsoft\Windows NT\CurrentVersion"
_WINDOWS_11_BUILD = 22000  # learn.microsoft.com, Windows 11 release information: 21H2 is build 22000


@dataclass(frozen=True)
class System:
    """`kernel` as `uname -r` says it; `upstream_kernel` the release of kernel.org it was made from, where known.

    `distribution` is the ID of /etc/os-release ("" when unknown), `release` its VERSION_ID or Windows's 24H2.
    `flags` are the processor's, on Linux.
    """

    title: str
    distribution: str = ""
    release: str = ""
    kernel: str = ""
    upstream_kernel: str = ""
    wsl: bool = False
    container: Literal["", "Docker", "Podman", "a container"] = ""
    cpu: str = ""
    flags: frozenset[str] = frozenset()
    memory_bytes: int | None = None


def read_system(machine: Machine) -> System:
    if machine.system == "Windows":
        return _windows(machine)
    if machine.system == "Linux":
        return _linux(machine)
    return System(machine.system or "an unknown system")


def _linux(machine: Machine) -> System:
    release = _assignments(machine.text("/etc/os-release") or machine.text("/usr/lib/os-release") or "")
    kernel = machine.text("/proc/sys/kernel/osrelease") or ""
    # Ubuntu names its kernels 6.8.0-45 whatever stable release of kernel.org they hold; this file has that, too.
    signature = (machine.text("/proc/version_signature") or "").split()
    cpu = machine.text("/proc/cpuinfo") or ""
    name = re.search(r"^model name\s*:\s*(.+)$", cpu, re.M)
    flags = re.search(r"^flags\s*:\s*(.+)$", cpu, re.M)
    memory = re.search(r"^MemTotal:\s*(\d+) kB", machine.text("/proc/meminfo") or "", re.M)
    return System(
        title=release.get("PRETTY_NAME", "Linux, without /etc/os-release"),
        distribution=release.get("ID", ""),
        release=release.get("VERSION_ID", ""),
        kernel=kernel,
        upstream_kernel=signature[2] if len(signature) > 2 else kernel,
        wsl="microsoft" in kernel.lower(),
        container=_container(machine),
        cpu=name.group(1).strip() if name else "",
        flags=frozenset(flags.group(1).split()) if flags else frozenset(),
        memory_bytes=int(memory.group(1)) << 10 if memory else None,
    )


def _container(machine: Machine) -> Literal["", "Docker", "Podman", "a container"]:
    if machine.text("/.dockerenv") is not None:
        return "Docker"
    if machine.text("/run/.containerenv") is not None:
        return "Podman"
    if machine.variable("container") or machine.variable("KUBERNETES_SERVICE_HOST"):
        return "a container"
    return ""


def _windows(machine: Machine) -> System:
    values = machine.registry(_WINDOWS) or {}
    build = str(values.get("CurrentBuild", ""))
    # ProductName still says Windows 10 on Windows 11.
    number = "11" if build.isdigit() and int(build) >= _WINDOWS_11_BUILD else "10"
    release = str(values.get("DisplayVersion", ""))
    cpu = machine.registry(r"HARDWARE\DESCRIPTION\System\CentralProcessor\0") or {}
    return System(
        title=" ".join(part for part in (f"Windows {number}", release, f"build {build}" if build else "") if part),
        release=release,
        kernel=build,
        cpu=str(cpu.get("ProcessorNameString", "")).strip(),
    )


def _assignments(text: str) -> dict[str, str]:
    """NAME=value lines as a shell reads them."""
    found = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals and not name.startswith("#"):
            try:
                words = shlex.split(value)
            except ValueError:  # a quotation mark without its partner
                words = [value]
            found[name.strip()] = words[0] if words else ""
    return found
