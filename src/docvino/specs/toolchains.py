"""Toolchains as data: pinned environments in which Paddle's converters run, apart from docvino's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from docvino.errors import ConfigError, nearest


@dataclass(frozen=True)
class Toolchain:
    """One pinned environment.

    requirements  every package of it, pinned, as pip writes them: nothing is resolved at installation
    modules       what must import for the environment to count as installed
    pythons       versions (major, minor) that all of the pinned wheels exist for, best first
    download_mb   what an installation transfers on Linux, about
    """

    name: str
    title: str
    requirements: tuple[str, ...]
    modules: tuple[str, ...]
    pythons: tuple[tuple[int, int], ...]
    download_mb: int


# Source: the package index, 2026-11-30: paddle2onnx 1.3.1, 2.1.0 and onnx 1.17.0 have wheels up to Python 3.12.
_PYTHONS = ((3, 11), (3, 12), (3, 10))
# numpy 2.2.6 is the last one that has wheels for Python 3.10, too.
_COMMON = ("numpy==2.2.6", "onnx==1.17.0", "protobuf==5.29.5")

TOOLCHAINS: Mapping[str, Toolchain] = MappingProxyType(
    {
        toolchain.name: toolchain
        for toolchain in (
            Toolchain(
                name="pdmodel",
                title=".pdmodel -> ONNX: Paddle2ONNX 1.3.1, without PaddlePaddle",
                # Source: measured 2026-11-30: the compiled part of paddle2onnx needs no paddlepaddle, and 2.1.0 writes
                # invalid files for programs of the old format.
                requirements=("paddle2onnx==1.3.1", *_COMMON),
                modules=("onnx.checker",),
                pythons=_PYTHONS,
                download_mb=40,
            ),
            Toolchain(
                name="pir",
                title="PIR inference.json -> ONNX: Paddle2ONNX 2.1.0 with PaddlePaddle 3.2.2",
                # Source: metadata of both packages. packaging and setuptools are imported by them and declared by
                # neither; onnxoptimizer and polygraphy are declared, and used only for a folding that we leave out.
                # paddlepaddle stays below 3.3: with 3.3.1 a nearest upsample does not convert (Paddle#77757).
                requirements=(
                    "paddle2onnx==2.1.0",
                    "paddlepaddle==3.2.2",
                    *_COMMON,
                    "anyio==4.11.0",
                    "certifi==2025.8.3",
                    "h11==0.16.0",
                    "httpcore==1.0.9",
                    "httpx==0.28.1",
                    "idna==3.11",
                    "networkx==3.4.2",
                    "opt-einsum==3.3.0",
                    "packaging==25.0",
                    "pillow==11.3.0",
                    "safetensors==0.6.2",
                    "setuptools==80.9.0",
                    "sniffio==1.3.1",
                    "typing-extensions==4.15.0",
                ),
                modules=("paddle2onnx", "paddle.inference", "onnx.checker"),
                pythons=_PYTHONS,
                download_mb=250,
            ),
        )
    }
)


def get_toolchain(name: str) -> Toolchain:
    """Raises: ConfigError that names the nearest toolchain."""
    if name not in TOOLCHAINS:
        raise ConfigError(f"unknown toolchain {name!r}", fix=nearest(name, tuple(TOOLCHAINS)))
    return TOOLCHAINS[name]
