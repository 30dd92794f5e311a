"""Real models for the end-to-end tests: fetched once per checkout, converted by docvino itself."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from docvino.convert.ir import convert
from docvino.fetch import fetch_all
from docvino.parser import Parser
from docvino.settings import RuntimeConfig
from docvino.specs import PRESETS
from models import MODELS, Command

PRECISIONS = ("fp32", "fp16", "int8")


@pytest.fixture(scope="session")
def runtime() -> RuntimeConfig:
    """A data folder with the pp-ocr models at every precision."""
    base = RuntimeConfig(data_dir=MODELS, cache_dir=MODELS / "cache")
    specs = PRESETS["pp-ocr"].models
    sources = fetch_all(specs, base)
    for precision in PRECISIONS:
        for spec in specs:
            convert(spec, sources[spec.name], base.model_copy(update={"precision": precision}))
    return base


@pytest.fixture(scope="session")
def parser(runtime: RuntimeConfig) -> Iterator[Parser]:
    with Parser.open(runtime) as opened:
        yield opened


@pytest.fixture
def docvino(runtime: RuntimeConfig) -> Command:
    """Runs the real command line in a process of its own."""

    def run(
        *arguments: object, stdin: bytes | None = None, timeout_s: float = 240, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "docvino", *map(str, arguments)],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            timeout=timeout_s,
            check=False,
            env={
                **os.environ,
                "DOCVINO_DATA_DIR": str(runtime.data_dir),
                "DOCVINO_CACHE_DIR": str(runtime.cache_dir),
                "PYTHONUTF8": "1",
                **environment,
            },
        )
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    return run
