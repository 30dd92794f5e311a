"""Resident memory of this process in MiB."""

from __future__ import annotations

import re
from pathlib import Path

_STATUS = Path("/proc/self/status")
UNTOLD = "this system does not say how much memory a process has; Linux does"


def resident_mib() -> float | None:
    """At this moment; None where the system does not say."""
    return _read("VmRSS")


def peak_mib() -> float | None:
    """The most so far; None where the system does not say."""
    return _read("VmHWM")


def _read(name: str) -> float | None:
    try:
        found = re.search(rf"^{name}:\s+(\d+) kB", _STATUS.read_text(encoding="ascii"), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) / 1024 if found else None
