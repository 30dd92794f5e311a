"""What the commands share: options, settings, and how they speak. stdout is the result, stderr the log."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from docvino.settings import Settings, default_config_file, resolve

stdout = Console(highlight=False, soft_wrap=True)
stderr = Console(stderr=True, highlight=False, soft_wrap=True)

Preset = Annotated[
    str | None,
    typer.Option(
        help="pp-ocr (default), pp-ocrv4, nano, paddleocr-vl-1.6, -1.5, -v1, or a converted model of that kind."
    ),
]
Device = Annotated[str | None, typer.Option(help="OpenVINO device: CPU, GPU, GPU.0, NPU. Default CPU.")]
Precision = Annotated[str | None, typer.Option(help="Stored weights: fp32, fp16, int8, int4. Default fp32.")]
Execution = Annotated[str | None, typer.Option(help="Arithmetic on the device: f32, bf16 or f16. Default f32.")]
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
