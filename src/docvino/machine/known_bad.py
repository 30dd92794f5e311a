"""Drivers and kernels that are known to fail (`known_bad.toml`), and which of those entries hold for a machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, cast

from docvino.machine.table import read_toml
from docvino.machine.versions import in_range, parse_version


@dataclass(frozen=True)
class Card:
    """What entries ask of one GPU; None is unknown, and an entry that asks for what is unknown does not hold."""

    family: str | None = None
    device: str | None = None
    kernel_driver: str | None = None
    resizable_bar: bool | None = None
    windows_driver: str | None = None


@dataclass(frozen=True)
class Situation:
    """What entries ask of a machine. Versions are texts; None is unknown."""

    system: str
    cards: tuple[Card, ...]
    runtime: str | None = None
    igc: str | None = None
    kernel: str | None = None
    openvino: str | None = None
    windows_release: str | None = None
    opencl_empty: bool = False
    legacy_beside: bool = False


@dataclass(frozen=True)
class Problem:
    id: str
    grade: Literal["A", "B", "C"]
    symptom: str
    fix: str
    source: str
    not_ours: str
    conditions: Mapping[str, Any]

    @property
    def confirmed(self) -> bool:
        """Whether it warns by itself: seen by its makers or bisected by a reporter, and docvino's business."""
        return self.grade != "C" and not self.not_ours

    @property
    def hides_gpus(self) -> bool:
        """Whether it is why OpenCL lists no GPU."""
        return "opencl" in self.conditions


def _version(found: str | None, bounds: str | Sequence[str]) -> bool:
    version = parse_version(found) if found else None
    return version is not None and in_range(version, bounds)


_OF_MACHINE: Mapping[str, Callable[[Situation, Any], bool]] = {
    "system": lambda here, wanted: here.system == wanted,
    "runtime": lambda here, wanted: _version(here.runtime, wanted),
    "igc": lambda here, wanted: _version(here.igc, wanted),
    "kernel": lambda here, wanted: _version(here.kernel, wanted),
    "openvino": lambda here, wanted: _version(here.openvino, wanted),
    "windows_release": lambda here, wanted: here.windows_release == wanted,
    "opencl": lambda here, wanted: wanted == "empty" and here.opencl_empty,
    "legacy_beside": lambda here, wanted: here.legacy_beside is wanted,
}
_OF_CARD: Mapping[str, Callable[[Card, Any], bool]] = {
    "family": lambda card, wanted: card.family in wanted,
    "device": lambda card, wanted: card.device in wanted,
    "kernel_driver": lambda card, wanted: card.kernel_driver == wanted,
    "resizable_bar": lambda card, wanted: wanted == "off" and card.resizable_bar is False,
    "windows_driver": lambda card, wanted: _version(card.windows_driver, wanted),
}
_TEXTS = ("id", "grade", "symptom", "fix", "source", "not_ours")


@cache
def known_problems() -> tuple[Problem, ...]:
    """Every entry of the file.

    Raises: ValueError for a condition that nothing looks at.
    """
    found = []
    for row in read_toml("known_bad.toml")["problem"]:
        conditions = {key: value for key, value in row.items() if key not in _TEXTS}
        unknown = set(conditions) - set(_OF_MACHINE) - set(_OF_CARD) - {"cards"}
        if unknown:
            raise ValueError(f"known_bad.toml, {row['id']}: no such condition: {', '.join(sorted(unknown))}")
        grade = cast("Literal['A', 'B', 'C']", row["grade"])
        texts = (row["symptom"], row["fix"], row["source"], row.get("not_ours", ""))
        found.append(Problem(row["id"], grade, *texts, conditions))
    return tuple(found)


def holds(problem: Problem, here: Situation) -> bool:
    """Whether every condition is met: those of a card by one card, or by as many as `cards` says."""
    wanted = problem.conditions
    if not all(check(here, wanted[key]) for key, check in _OF_MACHINE.items() if key in wanted):
        return False
    if not any(key in wanted for key in (*_OF_CARD, "cards")):
        return True
    fitting = [
        card for card in here.cards if all(check(card, wanted[key]) for key, check in _OF_CARD.items() if key in wanted)
    ]
    return len(fitting) >= int(wanted.get("cards", 1))
