"""The commands `docvino devices` and `docvino cache ...`."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from docvino.cli_common import (
    CacheDir,
    Config,
    DataDir,
    DecoderDevice,
    Device,
    Execution,
    Json,
    LayoutDevice,
    Precision,
    Preset,
    VisionDevice,
    announce,
    note,
    print_json,
    settings_of,
    stdout,
)

if TYPE_CHECKING:
    from docvino.device import Kept

cache = typer.Typer(no_args_is_help=True, help="Lists, fills and clears what is kept of compiled models.")


def devices(as_json: Json = False) -> None:
    """Shows the devices that docvino can use, how it uses each, and which one AUTO is."""
    from docvino.device import choose_device, list_devices

    found = list_devices()
    chosen, why = choose_device(found)
    if as_json:
        print_json({"auto": chosen.name, "why": why, "devices": [asdict(device) for device in found]})
        return
    table = Table("device", "what it is", "GiB", "driver", "can", "used with")
    for device in found:
        profile = device.profile
        table.add_row(
            device.name,
            device.full_name,
            "" if device.memory_bytes is None else f"{device.memory_bytes / 2**30:.1f}",
            device.driver or "",
            " ".join(name for name in device.capabilities if name not in ("BIN", "EXPORT_IMPORT")),
            f"{profile.name}: {profile.execution}, keys and values {profile.kv_precision}, "
            f"{profile.async_slots} requests; {profile.about}",
        )
    stdout.print(table)
    stdout.print(f"AUTO is {chosen.name}: {why}", markup=False)


@cache.command("path")
def cache_path(cache_dir: CacheDir = None, config: Config = None) -> None:
    """Prints the folder of the cache."""
    stdout.print(str(settings_of(config, cache_dir=cache_dir).runtime.cache_dir), markup=False)


@cache.command("list")
def cache_list(cache_dir: CacheDir = None, config: Config = None, as_json: Json = False) -> None:
    """Every entry: model, device, OpenVINO, driver, size, and whether it is of use or why not."""
    found = _entries(cache_dir, config)
    if as_json:
        print_json([asdict(kept) for kept in found])
        return
    table = Table("model", "device", "OpenVINO", "driver", "MB", "used", "self-tests", "state")
    for kept in found:
        table.add_row(
            kept.model,
            kept.device,
            kept.openvino.split("-")[0],
            kept.driver or "",
            f"{kept.size_bytes / 1e6:.1f}",
            time.strftime("%Y-%m-%d %H:%M", time.localtime(kept.used_at)),
            str(kept.self_tests),
            "live" if kept.stale is None else f"stale: {kept.stale}",
        )
    stdout.print(table)
    total = sum(kept.size_bytes for kept in found) / 1e6
    stale = sum(kept.size_bytes for kept in found if kept.stale is not None) / 1e6
    stdout.print(f"{total:.1f} MB, {stale:.1f} of them stale (docvino cache prune)", markup=False)


@cache.command("prune")
def cache_prune(
    everything: Annotated[bool, typer.Option("--all", help="Remove the entries that are of use, too.")] = False,
    cache_dir: CacheDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Removes entries that are of no more use: of another OpenVINO or driver, of devices and models that are gone."""
    from docvino.device import remove_kept

    found = [kept for kept in _entries(cache_dir, config) if everything or kept.stale is not None]
    remove_kept(found)
    note(f"removed {len(found)} entries, {sum(kept.size_bytes for kept in found) / 1e6:.1f} MB")
    if as_json:
        print_json([asdict(kept) for kept in found])


@cache.command("warm")
def cache_warm(
    preset: Preset = None,
    device: Device = None,
    layout_device: LayoutDevice = None,
    vision_device: VisionDevice = None,
    decoder_device: DecoderDevice = None,
    precision: Precision = None,
    execution: Execution = None,
    data_dir: DataDir = None,
    cache_dir: CacheDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Compiles and tests the models of a preset ahead of time, on a GPU for every size they will be given."""
    given = {key: value for key, value in locals().items() if key not in ("config", "as_json")}
    runtime = settings_of(config, **given).runtime
    from docvino.parser import Parser
    from docvino.settings import ParseOptions

    announce(runtime)
    started = time.perf_counter()
    with Parser.open(runtime) as parser:
        sizes = parser.warm()
        models = parser.provenance(ParseOptions()).models
    for model in models:
        name = model.spec if model.part is None else f"{model.spec} {model.part}"
        how = "was there" if model.from_cache else "compiled"
        note(f"{name}: {how}, {', '.join(model.devices)} in {model.execution_precision}")
    note(f"{sizes} sizes run, {time.perf_counter() - started:.1f} s")
    if as_json:
        print_json([model.model_dump() for model in models])


def _entries(cache_dir: CacheDir, config: Config) -> list[Kept]:
    from docvino.device import list_cache, list_devices

    return list_cache(settings_of(config, cache_dir=cache_dir).runtime.cache_dir, list_devices())
