"""What is right and wrong on this machine, one check a line, with the fix."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

from docvino import __version__
from docvino.bundle import bundle_folder, open_bundle, open_vlm_bundle, vlm_folder
from docvino.device import check_device, list_devices, openvino_version
from docvino.errors import BundleError, ConfigError, DeviceError, DocvinoError, MissingExtraError
from docvino.fetch import find_pip, source_path
from docvino.hub import is_fetched
from docvino.settings import Settings
from docvino.specs import FOLDERS, get_preset, layout_of, select_models
from docvino.specs.model import DocLayoutFacts, ModelSpec

OPENVINO_TESTED = "2026.4"
DISK_NEEDED_MIB = 500  # sources and bundles of pp-ocr at three precisions, and their compiled caches


@dataclass(frozen=True)
class Check:
    """One line of the report. `fix` is empty when there is nothing to mend; `exit_code` is that of a failure."""

    name: str
    status: Literal["ok", "warn", "fail"]
    found: str
    fix: str = ""
    exit_code: int = 0


def examine(settings: Settings) -> Iterator[Check]:
    """Checks from the ground up: the first that fails is the cause of those after it."""
    runtime = settings.runtime
    yield Check("docvino", "ok", f"{__version__}, Python {platform.python_version()}, {platform.platform(terse=True)}")
    yield _openvino()
    devices = list_devices()
    for device in devices:
        yield Check(
            f"device {device.name}",
            "ok",
            f"{device.full_name} ({device.kind.lower()}; {', '.join(device.capabilities)})",
        )
    try:
        yield Check("device asked for", "ok", check_device(runtime.device))
    except DeviceError as error:
        yield _failure("device asked for", error)
    yield _pip()
    yield _data_dir(settings)
    if vlm_folder(runtime) is not None:
        yield _vlm_model(settings)
        if runtime.layout == "auto" and isinstance(layout := layout_of(runtime.preset), ModelSpec):
            yield _layout_model(layout, settings)
        return
    try:
        preset = get_preset(runtime.preset)
    except ConfigError as error:
        yield _failure("preset", error)
        return
    for spec in select_models(preset.name):
        try:
            bundle = open_bundle(bundle_folder(runtime.data_dir, spec.name, runtime.precision))
            bundle.check_files()
            yield Check(f"model {spec.name}", "ok", f"{runtime.precision}, files match their sha256")
        except BundleError as error:
            if source_path(spec, runtime.data_dir).is_file():
                yield Check(f"model {spec.name}", "warn", f"fetched; {error}", f"docvino convert {preset.name}")
            else:
                fix = f"docvino fetch {preset.name} && docvino convert {preset.name}"
                yield Check(f"model {spec.name}", "warn", str(error), fix)


def _vlm_model(settings: Settings) -> Check:
    runtime = settings.runtime
    name = f"model {runtime.preset}"
    try:
        open_vlm_bundle(bundle_folder(runtime.data_dir, runtime.preset, runtime.precision)).check_files()
    except BundleError as error:
        folder = FOLDERS.get(runtime.preset)
        if folder is not None and is_fetched(folder, runtime.data_dir):
            fix = f"docvino convert {runtime.preset} --precision {runtime.precision}"
            return Check(name, "warn", f"fetched; {error}", fix)
        return Check(name, "warn", str(error), error.fix)
    return Check(name, "ok", f"{runtime.precision}, files match their sha256")


def _layout_model(spec: ModelSpec[DocLayoutFacts], settings: Settings) -> Check:
    """Without it a vision-language model reads pages that are one element, or line by line."""
    runtime = settings.runtime
    precision = spec.stored_as(runtime.precision)
    try:
        open_bundle(bundle_folder(runtime.data_dir, spec.name, precision)).check_files()
    except BundleError as error:
        if source_path(spec, runtime.data_dir).is_file():
            fix = f"docvino convert {spec.name} --precision {precision}"
            return Check(f"model {spec.name}", "warn", f"fetched; {error}", fix)
        return Check(f"model {spec.name}", "warn", str(error), error.fix)
    return Check(f"model {spec.name}", "ok", f"{precision}, files match their sha256")


def _openvino() -> Check:
    found = openvino_version()
    if found.startswith(OPENVINO_TESTED):
        return Check("OpenVINO", "ok", found)
    return Check(
        "OpenVINO",
        "warn",
        f"{found}; docvino was tested with {OPENVINO_TESTED}",
        f"pip install openvino~={OPENVINO_TESTED}.0",
    )


def _pip() -> Check:
    try:
        _, origin = find_pip()
    except MissingExtraError as error:
        return Check("pip for fetching", "warn", str(error), error.fix)
    return Check("pip for fetching", "ok", origin)


def _data_dir(settings: Settings) -> Check:
    folder = settings.runtime.data_dir
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not os.access(there, os.W_OK):
        return Check("data folder", "fail", f"{folder} cannot be written", "set --data-dir", ConfigError.exit_code)
    free_mib = shutil.disk_usage(there).free >> 20
    if free_mib < DISK_NEEDED_MIB:
        return Check("data folder", "warn", f"{folder}: {free_mib} MiB free", "free some space or set --data-dir")
    return Check("data folder", "ok", f"{folder}, {free_mib / 1024:.1f} GiB free")


def _failure(name: str, error: DocvinoError) -> Check:
    return Check(name, "fail", str(error), error.fix, error.exit_code)


def package_versions() -> dict[str, str]:
    """Versions of what docvino stands on; "missing" for what is not installed."""
    found = {}
    for name in ("openvino", "numpy", "opencv-python-headless", "pillow", "pypdfium2", "pydantic"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "missing"
    return found
