"""What a path on the command line holds, so that `docvino convert PATH` takes the right road."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from docvino.specs.vlm import MODEL_TYPE

Kind = Literal["paddleocr-vl", "adapter"]


def find_kind(path: Path) -> Kind | None:
    """The kind of model in a folder, None for anything else. Nothing is checked but what tells kinds apart."""
    if (path / "adapter_config.json").is_file():
        return "adapter"
    config = path / "config.json"
    try:
        about = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        about = None
    if isinstance(about, dict) and about.get("model_type") == MODEL_TYPE:
        return "paddleocr-vl"
    return None
