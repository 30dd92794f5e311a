"""What a path on the command line holds, so that `docvino convert PATH` takes the right road."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from docvino.errors import ConvertError
from docvino.specs.vlm import MODEL_TYPE

Kind = Literal["paddleocr-vl"]


def find_kind(path: Path) -> Kind:
    """The kind of model in a folder.

    Raises: ConvertError when it is none that docvino converts.
    """
    config = path / "config.json"
    try:
        about = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        about = None
    if isinstance(about, dict) and about.get("model_type") == MODEL_TYPE:
        return "paddleocr-vl"
    raise ConvertError(
        f"{path} holds no model that docvino converts",
        fix=f"give a folder whose config.json says model_type {MODEL_TYPE}, or a model's name",
    )
