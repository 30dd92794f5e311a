"""The whole street in one go: set-up of the models, then a page that docvino draws and reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from docvino.bundle import bundle_folder, is_vlm_bundle
from docvino.convert.ir import Conversion, convert
from docvino.convert.vlm import convert_vlm
from docvino.fetch import fetch_all, source_path
from docvino.hub import source_folder
from docvino.settings import RuntimeConfig
from docvino.specs import get_preset, select_models
from docvino.specs.model import ModelSpec, VlmPreset
from docvino.verify import Verification, VlmVerification, raise_failures, verify_model, verify_vlm

DEMO_PRESETS = ("pp-ocr", "nano")  # one reads lines, one is a vision-language model
TITLE = "How a page becomes text"
LEFT = (
    "A page is first turned upright, as",
    "scanners do not care which way it",
    "lies. Then the layout is found: para-",
    "graphs, titles, tables and pictures.",
    "Every region keeps its place on the",
    "page and a score between 0 and 1.",
)
RIGHT = (
    "Lines are read in small batches of",
    "like width, several at a time. Each",
    "line has a confidence of its own.",
    "At last the columns are put into",
    "order, left before right, and words",
    "cut at a line's end are made whole.",
)
FOOT = "This page was drawn by docvino. Total: 1,284.60"


@dataclass(frozen=True)
class Drawn:
    """A drawn page and the text on it, line by line in reading order."""

    image: Image.Image
    lines: tuple[str, ...]


def draw_page() -> Drawn:
    """A two-column English page, 1100 x 760 px, in the typeface that Pillow carries."""
    image = Image.new("RGB", (1100, 760), (252, 251, 247))
    draw = ImageDraw.Draw(image)
    ink = (25, 25, 35)
    draw.text((550, 90), TITLE, font=ImageFont.load_default(44), fill=ink, anchor="mm")
    font = ImageFont.load_default(27)
    for x, lines in ((70, LEFT), (590, RIGHT)):
        for row, line in enumerate(lines):
            draw.text((x, 190 + 52 * row), line, font=font, fill=ink)
    draw.text((550, 640), FOOT, font=font, fill=ink, anchor="mm")
    return Drawn(image, (TITLE, *LEFT, *RIGHT, FOOT))


def prepare(name: str, runtime: RuntimeConfig, report: Callable[[str], None]) -> None:
    """Fetches, converts and verifies the models of a preset; what is there already is kept.

    Raises: FetchError, also for a preset of gigabytes that is not fetched; ConvertError, VerifyError, DeviceError,
    MissingExtraError.
    """
    preset = get_preset(name)
    if isinstance(preset, VlmPreset):
        checks: list[Verification | VlmVerification] = [_prepare_vlm(preset, runtime, report)]
        if isinstance(preset.layout, ModelSpec):
            beside = runtime.model_copy(update={"precision": preset.layout.stored_as(runtime.precision)})
            checks.append(_prepare_graph(preset.layout, source_path(preset.layout, runtime.data_dir), beside, report))
    else:
        specs = select_models(name)
        sources = fetch_all(specs, runtime, report=report)
        checks = [_prepare_graph(spec, sources[spec.name], runtime, report) for spec in specs]
    raise_failures(checks)
    report(f"{name}: every model gives the recorded answers on {checks[0].device}")


def _prepare_graph(
    spec: ModelSpec[Any], source: Path, runtime: RuntimeConfig, report: Callable[[str], None]
) -> Verification:
    result = convert(spec, source, runtime, report=report)
    if isinstance(result, Conversion):
        report(f"{spec.name}: converted to {runtime.precision} in {result.seconds:.1f} s")
    return verify_model(spec, runtime)


def _prepare_vlm(preset: VlmPreset, runtime: RuntimeConfig, report: Callable[[str], None]) -> VlmVerification:
    folder = bundle_folder(runtime.data_dir, preset.name, runtime.precision)
    if not is_vlm_bundle(folder):
        made = convert_vlm(source_folder(preset, runtime.data_dir), folder, runtime.precision)
        report(f"{preset.name}: converted to {runtime.precision} in {made.seconds:.1f} s")
    return verify_vlm(folder, runtime)


def write_page(folder: Path) -> Path:
    """Draws the demo page into `folder` and returns the file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "page.png"
    draw_page().image.save(path)
    return path
