"""Version numbers of drivers, kernels and packages, and ranges of them."""

from __future__ import annotations

import re
from collections.abc import Sequence

Version = tuple[int, ...]


def parse_version(text: str) -> Version | None:
    """The numbers a version begins with: `1:26.05.37020.3-1ubuntu2` -> (26, 5, 37020, 3); None when there are none.

    Only numbers between dots count: what follows a hyphen, a plus or a tilde is a package's own numbering.
    """
    found = re.match(r"(?:\d+:)?v?(\d+(?:\.\d+)*)", text.strip())
    return tuple(int(part) for part in found.group(1).split(".")) if found else None


def compare(first: Version, second: Version) -> int:
    """-1, 0 or 1 by the parts that both have: 26.18 stands for every 26.18.x."""
    common = min(len(first), len(second))
    return (first[:common] > second[:common]) - (first[:common] < second[:common])


_CHECKS = {
    ">=": lambda order: order >= 0,
    "<=": lambda order: order <= 0,
    "==": lambda order: order == 0,
    "!=": lambda order: order != 0,
    "~=": lambda order: order >= 0,  # its upper bound is not looked at
    ">": lambda order: order > 0,
    "<": lambda order: order < 0,
}


def in_range(version: Version, bounds: str | Sequence[str]) -> bool:
    """Whether a version is in `>=a,<b`, or in any of several such ranges.

    Raises: ValueError for bounds that are none.
    """
    if not isinstance(bounds, str):
        return any(in_range(version, each) for each in bounds)
    for bound in bounds.split(","):
        found = re.fullmatch(r"\s*(>=|<=|==|!=|~=|>|<)\s*(\d+(?:\.\d+)*)[\w.*]*\s*", bound)
        if found is None:
            raise ValueError(f"no bound of a version: {bound!r}")
        limit = tuple(int(part) for part in found.group(2).split("."))
        if not _CHECKS[found.group(1)](compare(version, limit)):
            return False
    return True
