"""What the commands share: options, settings, and how they speak. stdout is the result, stderr the log."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from docvino.errors import DeviceError
from docvino.settings import AUTO, RuntimeConfig, Settings, default_config_file, resolve

stdout = Console(highlight=False, soft_wrap=True)
stderr = Console(stderr=True, highlight=False, soft_wrap=True)

Preset = Annotated[
    str | None,
    typer.Option(
        help="pp-ocr (default), pp-ocrv4, nano, paddleocr-vl-1.6, -1.5, -v1, or a converted model of that kind."
    ),
]
Device = Annotated[
    str | None, typer.Option(help="CPU, GPU, GPU.0, GPU.1, NPU, or AUTO (default): the best GPU, else CPU.")
]
LayoutDevice = Annotated[str | None, typer.Option(help="Device of the layout model. Default --device.")]
VisionDevice = Annotated[str | None, typer.Option(help="Device of a VLM's vision tower. Default --device.")]
DecoderDevice = Annotated[str | None, typer.Option(help="Device of a VLM's decoder. Default --device.")]
Precision = Annotated[str | None, typer.Option(help="Stored weights: fp32, fp16, int8, int4. Default fp32.")]
Execution = Annotated[
    str | None, typer.Option(help="Arithmetic on the device: f32, bf16, f16. Default f32 on a CPU, else f16.")
]
DataDir = Annotated[Path | None, typer.Option(help="Where fetched and converted models live.")]
CacheDir = Annotated[Path | None, typer.Option(help="Where compiled models are cached.")]
Offline = Annotated[bool | None, typer.Option("--offline", help="Never use the network.", show_default=False)]
Config = Annotated[Path | None, typer.Option(help="TOML file with settings.", envvar="DOCVINO_CONFIG")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Which = Annotated[str, typer.Argument(help="A preset or one model of it; `docvino models list` shows them.")]


def settings_of(config: Path | None, **flags: Any) -> Settings:
    default = default_config_file()
    file = config if config is not None else default if default.is_file() else None
    return resolve(flags, environ=os.environ, config_file=file)


def announce(runtime: RuntimeConfig) -> None:
    """Says which device is meant where the settings leave a choice."""
    from docvino.device import choose_device, find_device, list_devices, said

    devices = list_devices()
    if len(devices) == 1 or runtime.device.upper() in {device.name for device in devices}:
        return
    try:
        found = find_device(runtime.device)
    except DeviceError:  # an absent device is for whoever needs it: it may be allowed to be another
        return
    note(f"device {said(found)}" + (f": {choose_device(devices)[1]}" if runtime.device.upper() == AUTO else ""))


def note(line: str) -> None:
    stderr.print(line, markup=False)


def complain(message: str, fix: str) -> None:
    stderr.print("[red]error:[/] ", end="")
    stderr.print(message, markup=False)
    stderr.print(f"  fix: {fix}", markup=False)


def print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2, default=str) + "\n")


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.2g}"
