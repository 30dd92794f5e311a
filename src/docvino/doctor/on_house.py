"""Checks of docvino's own things: folders, pip, converted models."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from docvino import __version__
from docvino.bundle import bundle_folder, open_bundle, open_vlm_bundle, vlm_folder
from docvino.doctor.check import Check, Context
from docvino.errors import BundleError, ConfigError, MissingExtraError
from docvino.fetch import find_pip, source_path
from docvino.hub import is_fetched
from docvino.specs import FOLDERS, get_preset, layout_of, select_models
from docvino.specs.model import DocLayoutFacts, ModelSpec

SECTION = "docvino"
DISK_NEEDED_MIB = 500  # sources and bundles of pp-ocr at three precisions, and their compiled caches
DISK_OF_VLM_MIB = 6000  # weights of 2 GB from a hub, and a conversion of them at fp16
CACHE_LARGE_MIB = 10_000


def check_folders(context: Context) -> Iterator[Check]:
    yield Check(SECTION, "docvino", "ok", __version__)
    runtime = context.settings.runtime
    yield _disk(context, "data folder", runtime.data_dir, "--data-dir")
    if runtime.model_cache:
        yield _cache(context)
    else:
        yield Check(SECTION, "model cache", "ok", "off: every start compiles the models anew")


def _disk(context: Context, name: str, folder: Path, flag: str) -> Check:
    disk = context.facts.machine.disk(folder)
    if not disk.writable:
        found = f"{folder} cannot be written"
        return Check(SECTION, name, "fail", found, "a folder of yours", f"set {flag}", ConfigError.exit_code)
    needed = DISK_NEEDED_MIB if vlm_folder(context.settings.runtime) is None else DISK_OF_VLM_MIB
    found, wanted = f"{folder}, {disk.free_bytes / 2**30:.1f} GiB free", f"{needed / 1024:.1f} GiB free"
    if disk.free_bytes >> 20 < needed:
        return Check(SECTION, name, "warn", found, wanted, f"free some space, or set {flag}")
    return Check(SECTION, name, "ok", found, wanted)


def _cache(context: Context) -> Check:
    folder = context.settings.runtime.cache_dir / "compiled"
    disk = context.facts.machine.disk(folder)
    if not disk.writable:
        found = f"{folder} cannot be written: every start compiles the models anew"
        return Check(SECTION, "model cache", "warn", found, "a folder of yours", "set --cache-dir")
    size, entries = 0, set()
    for parent, _, names in os.walk(folder):
        for name in names:
            entries.add(parent)
            size += (Path(parent) / name).stat().st_size
    count = "1 entry" if len(entries) == 1 else f"{len(entries)} entries"
    found = f"{folder}: {count}, {size >> 20} MiB; {disk.free_bytes / 2**30:.1f} GiB free"
    if size >> 20 > CACHE_LARGE_MIB:
        fix = "docvino cache prune removes what is of no more use"
        return Check(SECTION, "model cache", "warn", found, f"less than {CACHE_LARGE_MIB} MiB", fix)
    if disk.free_bytes >> 20 < DISK_NEEDED_MIB:
        return Check(SECTION, "model cache", "warn", found, f"{DISK_NEEDED_MIB} MiB free", "free some space")
    return Check(SECTION, "model cache", "ok", found)


def check_pip(context: Context) -> Iterator[Check]:
    if context.settings.runtime.offline:
        yield Check(SECTION, "pip for fetching", "ok", "not needed: offline")
        return
    try:
        _, origin = find_pip()
    except MissingExtraError as error:
        status, code = ("fail", error.exit_code) if context.stage == "fetch" else ("warn", 0)
        yield Check(SECTION, "pip for fetching", status, str(error), fix=error.fix, exit_code=code)  # type: ignore[arg-type]
        return
    yield Check(SECTION, "pip for fetching", "ok", origin)


def check_models(context: Context) -> Iterator[Check]:
    """Each model of the preset: there, whole, and with the sha256 it had when it was converted."""
    runtime = context.settings.runtime
    if vlm_folder(runtime) is not None:
        if context.facts.machine.package("tokenizers") is None:
            yield Check(
                SECTION,
                "package tokenizers",
                "fail" if context.stage == "parse" else "warn",
                "not installed",
                f"tokenizers, for {runtime.preset}",
                "pip install 'docvino[vlm]'",
                MissingExtraError.exit_code if context.stage == "parse" else 0,
            )
        yield _vlm_model(context)
        if runtime.layout == "auto" and isinstance(layout := layout_of(runtime.preset), ModelSpec):
            yield _layout_model(layout, context)
        return
    try:
        preset = get_preset(runtime.preset)
    except ConfigError as error:
        yield Check(SECTION, "preset", "fail", str(error), fix=error.fix, exit_code=error.exit_code)
        return
    for spec in select_models(preset.name):
        try:
            open_bundle(bundle_folder(runtime.data_dir, spec.name, runtime.precision)).check_files()
        except BundleError as error:
            if source_path(spec, runtime.data_dir).is_file():
                yield _absent(context, spec.name, f"fetched; {error}", f"docvino convert {preset.name}")
            else:
                fix = f"docvino fetch {preset.name} && docvino convert {preset.name}"
                yield _absent(context, spec.name, str(error), fix)
        else:
            yield _whole(spec.name, runtime.precision)


def _absent(context: Context, model: str, found: str, fix: str) -> Check:
    """A warning, as long as nobody said that documents are to be read now."""
    if context.stage in ("verify", "parse"):
        return Check(SECTION, f"model {model}", "fail", found, "converted", fix, BundleError.exit_code)
    return Check(SECTION, f"model {model}", "warn", found, "converted", fix)


def _whole(model: str, precision: str) -> Check:
    return Check(SECTION, f"model {model}", "ok", f"{precision}, files match their sha256")


def _vlm_model(context: Context) -> Check:
    runtime = context.settings.runtime
    try:
        open_vlm_bundle(bundle_folder(runtime.data_dir, runtime.preset, runtime.precision)).check_files()
    except BundleError as error:
        folder = FOLDERS.get(runtime.preset)
        if folder is not None and is_fetched(folder, runtime.data_dir):
            fix = f"docvino convert {runtime.preset} --precision {runtime.precision}"
            return _absent(context, runtime.preset, f"fetched; {error}", fix)
        return _absent(context, runtime.preset, str(error), error.fix)
    return _whole(runtime.preset, runtime.precision)


def _layout_model(spec: ModelSpec[DocLayoutFacts], context: Context) -> Check:
    """Without it a vision-language model reads pages that are one element, or line by line."""
    runtime = context.settings.runtime
    precision = spec.stored_as(runtime.precision)
    try:
        open_bundle(bundle_folder(runtime.data_dir, spec.name, precision)).check_files()
    except BundleError as error:
        if source_path(spec, runtime.data_dir).is_file():
            fix = f"docvino convert {spec.name} --precision {precision}"
            return _absent(context, spec.name, f"fetched; {error}", fix)
        return _absent(context, spec.name, str(error), error.fix)
    return _whole(spec.name, precision)
