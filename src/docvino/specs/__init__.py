"""Models and presets as data. A new model of a known kind is one new file here and one line in MODELS."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from docvino.errors import ConfigError, nearest
from docvino.specs import doclayout, orientation, paddleocr_vl, picodet, pp_ocr, pp_ocr_v4, slanet
from docvino.specs.model import DocLayoutFacts, HubFolder, ModelSpec, Preset, VlmPreset
from docvino.specs.nano import NANO

MODELS: Mapping[str, ModelSpec[Any]] = MappingProxyType(
    {
        spec.name: spec
        for spec in (
            pp_ocr.DETECTION,
            pp_ocr.RECOGNITION,
            picodet.LAYOUT,
            orientation.ORIENTATION,
            slanet.TABLE,
            pp_ocr_v4.DETECTION,
            pp_ocr_v4.RECOGNITION,
            pp_ocr_v4.LINE_ORIENTATION,
        )
    }
)

# Models of one graph that are folders on hubs: they find what vision-language models read.
LAYOUTS: Mapping[str, ModelSpec[DocLayoutFacts]] = MappingProxyType(
    {spec.name: spec for spec in (doclayout.V3, doclayout.V2)}
)

# All that are folders on hubs.
FOLDERS: Mapping[str, HubFolder] = MappingProxyType(
    {
        folder.name: folder
        for folder in (
            paddleocr_vl.V1_6,
            paddleocr_vl.V1_5,
            paddleocr_vl.V1,
            doclayout.FOLDER_V3,
            doclayout.FOLDER_V2,
        )
    }
)

PRESETS = MappingProxyType(
    {
        preset.name: preset
        for preset in (
            Preset(
                name="pp-ocr",
                title="PP-OCRv6 small lines, PicoDet-CDLA layout, page orientation, SLANet-plus tables",
                orientation=orientation.ORIENTATION,
                layout=picodet.LAYOUT,
                detection=pp_ocr.DETECTION,
                recognition=pp_ocr.RECOGNITION,
                table=slanet.TABLE,
            ),
            Preset(
                name="pp-ocrv4",
                title="PP-OCRv4 mobile lines (Paddle format), PicoDet-CDLA layout, page orientation",
                orientation=orientation.ORIENTATION,
                layout=picodet.LAYOUT,
                detection=pp_ocr_v4.DETECTION,
                recognition=pp_ocr_v4.RECOGNITION,
                table=slanet.TABLE,
            ),
        )
    }
)

VLM_PRESETS = MappingProxyType(
    {
        NANO.name: NANO,
        **{
            folder.name: VlmPreset(folder.name, folder.title, folder.licence, folder, layout)
            for folder, layout in (
                (paddleocr_vl.V1_6, doclayout.V3),
                (paddleocr_vl.V1_5, doclayout.V3),
                (paddleocr_vl.V1, doclayout.V2),
            )
        },
    }
)


def get_preset(name: str) -> Preset | VlmPreset:
    """Raises: ConfigError that names the nearest preset."""
    preset = PRESETS.get(name) or VLM_PRESETS.get(name)
    if preset is None:
        raise ConfigError(f"unknown preset {name!r}", fix=nearest(name, (*PRESETS, *VLM_PRESETS)))
    return preset


def layout_of(name: str) -> ModelSpec[DocLayoutFacts] | Literal["whitespace"]:
    """What `--layout auto` is for a vision-language model: that of its preset, PP-DocLayoutV3 for any other."""
    return VLM_PRESETS[name].layout if name in VLM_PRESETS else doclayout.V3


def select_models(name: str) -> tuple[ModelSpec[Any], ...]:
    """The models of a preset of line models, or the one model of one graph of that name.

    Raises: ConfigError that names the nearest preset or model.
    """
    if name in PRESETS:
        return PRESETS[name].models
    if name in MODELS:
        return (MODELS[name],)
    if name in LAYOUTS:
        return (LAYOUTS[name],)
    if name in VLM_PRESETS:
        raise ConfigError(f"{name} is not converted at this precision", fix=how_to_get(name))
    known = (*PRESETS, *MODELS, *LAYOUTS, *VLM_PRESETS)
    raise ConfigError(f"unknown model or preset {name!r}", fix=nearest(name, known))


def how_to_get(name: str, precision: str = "") -> str:
    """The commands that make a model's bundle."""
    convert = f"docvino convert {name}" + (f" --precision {precision}" if precision else "")
    preset = VLM_PRESETS.get(name)
    shipped = preset is not None and not isinstance(preset.source, HubFolder)
    return convert if shipped else f"docvino fetch {name} && {convert}"
