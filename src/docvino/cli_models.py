"""The commands `docvino models ...` and `docvino toolchain ...`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from docvino.cli_common import (
    Config,
    DataDir,
    Json,
    Offline,
    Precision,
    Which,
    note,
    print_json,
    settings_of,
    stdout,
)
from docvino.errors import DocvinoError

models = typer.Typer(no_args_is_help=True, help="Lists, locates, moves and removes converted models.")
toolchain = typer.Typer(
    no_args_is_help=True, help="Installs, lists and removes the environments of Paddle's converters."
)


@models.command("list")
def models_list(data_dir: DataDir = None, config: Config = None, as_json: Json = False) -> None:
    """Every known model: fetched or not, and the precisions it is converted at."""
    runtime = settings_of(config, data_dir=data_dir).runtime
    from docvino.bundle import Bundle, VlmBundle, list_bundles
    from docvino.fetch import source_path
    from docvino.hub import is_fetched
    from docvino.specs import LAYOUTS, MODELS, PRESETS, VLM_PRESETS

    bundles = list_bundles(runtime.data_dir)
    rows: list[dict[str, object]] = [
        {
            "model": spec.name,
            "title": spec.title,
            "presets": [
                *(preset.name for preset in PRESETS.values() if spec in preset.models),
                *(preset.name for preset in VLM_PRESETS.values() if spec == preset.layout),
            ],
            "licence": spec.licence,
            "fetched": source_path(spec, runtime.data_dir).is_file(),
            "converted": [
                b.manifest.precision for b in bundles if isinstance(b, Bundle) and b.manifest.spec == spec.name
            ],
        }
        for spec in (*MODELS.values(), *LAYOUTS.values())
    ]
    converted: dict[str, list[str]] = {}
    for bundle in bundles:
        if isinstance(bundle, VlmBundle):
            converted.setdefault(bundle.manifest.spec, []).append(bundle.manifest.precision)
    rows += [
        {
            "model": preset.name,
            "title": preset.title,
            "presets": [preset.name],
            "licence": preset.licence,
            "fetched": isinstance(preset.source, Path) or is_fetched(preset.source, runtime.data_dir),
            "converted": converted.pop(preset.name, []),
        }
        for preset in VLM_PRESETS.values()
    ]
    rows += [
        {
            "model": name,
            "title": "vision-language model of your own",
            "presets": [name],
            "licence": "",
            "fetched": None,
            "converted": precisions,
        }
        for name, precisions in sorted(converted.items())
    ]
    if as_json:
        print_json(rows)
        return
    table = Table("model", "what it is", "preset", "licence", "fetched", "converted")
    for row in rows:
        table.add_row(
            str(row["model"]),
            str(row["title"]),
            ", ".join(row["presets"]),  # type: ignore[arg-type]
            str(row["licence"]),
            {True: "yes", False: "no", None: ""}[row["fetched"]],  # type: ignore[index]
            ", ".join(row["converted"]) or "no",  # type: ignore[arg-type]
        )
    stdout.print(table)
    for damaged in bundles:
        if isinstance(damaged, DocvinoError):
            note(f"damaged: {damaged}")


@models.command("path")
def models_path(
    name: Annotated[str, typer.Argument(help="A model's name.")],
    precision: Precision = None,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Prints the folder of a converted model."""
    for folder in _folders(name, precision, data_dir, config):
        from docvino.bundle import is_vlm_bundle, open_bundle, open_vlm_bundle

        opened = open_vlm_bundle(folder) if is_vlm_bundle(folder) else open_bundle(folder)
        stdout.print(str(opened.folder), markup=False)


@models.command("export")
def models_export(
    name: Which,
    out: Annotated[Path, typer.Option("-o", "--out", help="The file to write, a tar.")],
    precision: Precision = None,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Packs converted models into one file, for machines without a network."""
    runtime = settings_of(config, precision=precision, data_dir=data_dir).runtime
    from docvino.archive import export_models
    from docvino.specs import select_models

    made = export_models(select_models(name), runtime, out, report=note)
    note(f"{made.path}: {len(made.bundles)} models, {made.size_bytes / 1e6:.1f} MB")
    if as_json:
        print_json(asdict(made))


@models.command("import")
def models_import(
    file: Annotated[Path, typer.Argument(help="A file that `docvino models export` made.")],
    force: Annotated[bool, typer.Option("--force", help="Replace converted models that differ.")] = False,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Unpacks converted models: every sha256 is checked before any of them appears."""
    runtime = settings_of(config, data_dir=data_dir).runtime
    from docvino.archive import import_models

    found = import_models(file, runtime, force=force, report=note)
    if as_json:
        print_json(asdict(found))


@models.command("remove")
def models_remove(
    name: Annotated[str, typer.Argument(help="A model's or preset's name.")],
    precision: Precision = None,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Deletes a converted model; the fetched file stays."""
    from docvino.bundle import remove_bundle

    for folder in _folders(name, precision, data_dir, config):
        remove_bundle(folder)
        note(f"removed {folder}")


@toolchain.command("install")
def toolchain_install(
    name: Annotated[str, typer.Argument(help="pdmodel or pir.")],
    python: Annotated[Path | None, typer.Option(help="Python to make it from; else this one, or one on PATH.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Make it again when it is there.")] = False,
    data_dir: DataDir = None,
    offline: Offline = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Makes an environment of its own for a converter, in the data folder: pinned, nothing else is touched."""
    runtime = settings_of(config, data_dir=data_dir, offline=offline).runtime
    from docvino.toolchain import install

    made = install(name, runtime, python=python, force=force, report=note)
    note(f"{name}: {(made.size_bytes or 0) / 1e6:.0f} MB, installed in {made.seconds:.0f} s -> {made.folder}")
    if as_json:
        print_json(asdict(made))


@toolchain.command("list")
def toolchain_list(data_dir: DataDir = None, config: Config = None, as_json: Json = False) -> None:
    """Every toolchain: what it is for, installed or not, versions, size."""
    runtime = settings_of(config, data_dir=data_dir).runtime
    from docvino.toolchain import list_toolchains

    found = list_toolchains(runtime)
    if as_json:
        print_json([asdict(entry) for entry in found])
        return
    table = Table("toolchain", "what it is for", "state", "Python", "versions", "MB")
    for entry in found:
        shown = ", ".join(
            f"{key} {(entry.versions or {})[key]}"
            for key in ("paddle2onnx", "paddlepaddle", "onnx")
            if key in (entry.versions or {})
        )
        size = "" if entry.size_bytes is None else f"{entry.size_bytes / 1e6:.0f}"
        table.add_row(entry.name, entry.title, entry.problem or "ok", entry.python, shown, size)
    stdout.print(table)


@toolchain.command("remove")
def toolchain_remove(
    name: Annotated[str, typer.Argument(help="pdmodel or pir.")], data_dir: DataDir = None, config: Config = None
) -> None:
    """Deletes a toolchain's environment."""
    runtime = settings_of(config, data_dir=data_dir).runtime
    from docvino.toolchain import remove

    note(f"removed {remove(name, runtime)}")


def _folders(name: str, precision: str | None, data_dir: Path | None, config: Path | None) -> list[Path]:
    runtime = settings_of(config, precision=precision, data_dir=data_dir).runtime
    from docvino.bundle import bundle_folder, is_vlm_bundle
    from docvino.specs import select_models

    folder = bundle_folder(runtime.data_dir, name, runtime.precision)
    if is_vlm_bundle(folder):
        return [folder]
    return [bundle_folder(runtime.data_dir, spec.name, runtime.precision) for spec in select_models(name)]
