"""Intel GPUs and NPUs by PCI id, the drivers they need, and how to install those: `intel.toml`, with its sources."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from docvino.machine.versions import compare, parse_version

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

INTEL = "8086"


@dataclass(frozen=True)
class Family:
    """What GPUs of one architecture share. Versions are texts; None where no source was found."""

    key: str
    title: str
    discrete: bool
    kernel_driver: str
    kernel: str | None = None
    windows: str | None = None
    windows_date: str | None = None
    legacy_runtime: bool = False


@dataclass(frozen=True)
class GpuFacts:
    """`memory_gib`: sizes it is sold with. `runtime`: oldest compute runtime that knows it; 22.43 is a bound."""

    name: str
    ids: tuple[str, ...]
    family: Family
    ip: str | None = None
    memory_gib: tuple[int, ...] = ()
    runtime: str | None = None


@dataclass(frozen=True)
class NpuFacts:
    name: str
    ids: tuple[str, ...]


@dataclass(frozen=True)
class Install:
    command: str
    note: str = ""


@dataclass(frozen=True)
class Table:
    families: Mapping[str, Family]
    gpus: Mapping[str, GpuFacts]
    """By PCI device id, four small hexadecimal digits."""
    npus: Mapping[str, NpuFacts]
    igc: Mapping[str, str]
    """Series of the compute runtime -> the compiler that release was made with."""
    install: Mapping[str, Install]
    """By the ID of /etc/os-release."""


def read_toml(name: str) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((Path(__file__).parent / name).read_text(encoding="utf-8"))
    return found


@cache
def table() -> Table:
    raw = read_toml("intel.toml")
    families = {key: Family(key, **facts) for key, facts in raw["family"].items()}
    gpus = [
        GpuFacts(
            row["name"],
            tuple(row["ids"]),
            families[row["family"]],
            row.get("ip"),
            tuple(row.get("memory_gib", ())),
            row.get("runtime"),
        )
        for row in raw["gpu"]
    ]
    npus = [NpuFacts(row["name"], tuple(row["ids"])) for row in raw["npu"]]
    return Table(
        families,
        {pci_id: gpu for gpu in gpus for pci_id in gpu.ids},
        {pci_id: npu for npu in npus for pci_id in npu.ids},
        raw["igc"],
        {key: Install(**facts) for key, facts in raw["install"].items()},
    )


def compiler_of(runtime: str) -> str | None:
    """The IGC that the release of a compute runtime was made with; None for releases that are not in the table."""
    found = parse_version(runtime)
    if found is None:
        return None
    for series, igc in table().igc.items():
        known = parse_version(series)
        if known is not None and compare(found, known) == 0:
            return igc
    return None
