"""Where the end-to-end tests keep real models, and the shape of their `docvino` fixture."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

MODELS = Path(__file__).resolve().parent.parent / ".cache" / "test-models"  # kept between runs: the wheels are 40 MB

Command = Callable[..., subprocess.CompletedProcess[str]]
