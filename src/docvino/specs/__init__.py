"""Models and presets as data. A new model of a known kind is one new file here and one line in MODELS."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from docvino.errors import ConfigError, nearest
from docvino.specs import orientation, picodet, pp_ocr, pp_ocr_v4
from docvino.specs.model import ModelSpec, Preset

MODELS: Mapping[str, ModelSpec[Any]] = MappingProxyType(
    {
        spec.name: spec
        for spec in (
            pp_ocr.DETECTION,
            pp_ocr.RECOGNITION,
            picodet.LAYOUT,
            orientation.ORIENTATION,
            pp_ocr_v4.DETECTION,
            pp_ocr_v4.RECOGNITION,
            pp_ocr_v4.LINE_ORIENTATION,
        )
    }
)

PRESETS = MappingProxyType(
    {
        preset.name: preset
        for preset in (
            Preset(
                name="pp-ocr",
                title="PP-OCRv6 small lines, PicoDet-CDLA layout, page orientation",
                orientation=orientation.ORIENTATION,
                layout=picodet.LAYOUT,
                detection=pp_ocr.DETECTION,
                recognition=pp_ocr.RECOGNITION,
            ),
            Preset(
                name="pp-ocrv4",
                title="PP-OCRv4 mobile lines (Paddle format), PicoDet-CDLA layout, page orientation",
                orientation=orientation.ORIENTATION,
                layout=picodet.LAYOUT,
                detection=pp_ocr_v4.DETECTION,
                recognition=pp_ocr_v4.RECOGNITION,
            ),
        )
    }
)


def get_preset(name: str) -> Preset:
    """Raises: ConfigError that names the nearest preset."""
    if name not in PRESETS:
        raise ConfigError(f"unknown preset {name!r}", fix=nearest(name, tuple(PRESETS)))
    return PRESETS[name]


def select_models(name: str) -> tuple[ModelSpec[Any], ...]:
    """The models of a preset, or the one model of that name.

    Raises: ConfigError that names the nearest preset or model.
    """
    if name in PRESETS:
        return PRESETS[name].models
    if name in MODELS:
        return (MODELS[name],)
    raise ConfigError(f"unknown model or preset {name!r}", fix=nearest(name, (*PRESETS, *MODELS)))
