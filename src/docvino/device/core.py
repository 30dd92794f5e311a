"""The border to OpenVINO: one core for the whole process. Tests put another one in its place."""

from __future__ import annotations

from functools import cache
from typing import Any

import openvino as ov


@cache
def open_core() -> Any:
    """The process's only `ov.Core`: plugins are loaded once, and a GPU counts the memory of all models together."""
    return ov.Core()


def openvino_version() -> str:
    return str(ov.get_version())


def supported_properties(device: str) -> frozenset[str]:
    return frozenset(open_core().get_property(device, "SUPPORTED_PROPERTIES"))


def first_line(error: BaseException) -> str:
    """The most telling line of an OpenVINO message, which begins with source files and line numbers."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(("Exception from src", "Check '"))]
    return (telling or lines or [type(error).__name__])[-1][:300]
