"""A toolchain for unit tests: the Python that runs the tests, with scripts that behave as they are told."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from docvino.settings import RuntimeConfig
from docvino.specs.toolchains import TOOLCHAINS
from docvino.toolchain import toolchain_folder


def pretend(name: str, runtime: RuntimeConfig) -> Path:
    """An environment that counts as installed."""
    folder = toolchain_folder(name, runtime.data_dir)
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    python.parent.mkdir(parents=True)
    if os.name == "nt":  # a copy of the launcher finds its home in pyvenv.cfg
        python.write_bytes(Path(sys.executable).read_bytes())
    else:
        # A script, because a link to the Python of an environment would lose that environment's packages.
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
        python.chmod(0o755)
    if os.name == "nt":
        (folder / "pyvenv.cfg").write_bytes((Path(sys.prefix) / "pyvenv.cfg").read_bytes())
    (folder / "toolchain.json").write_text(
        json.dumps(
            {
                "requirements": TOOLCHAINS[name].requirements,
                "python": "3.11.7",
                "versions": {"paddle2onnx": "1.2.3", "paddlepaddle": "4.5.6", "onnx": "7.8.9", "numpy": "1.0"},
                "seconds": 12.5,
                "size_bytes": 127_000_000,
            }
        ),
        encoding="utf-8",
    )
    return folder
