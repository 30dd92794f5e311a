"""What is kept of a model between runs, in a folder of its own for each OpenVINO, device, driver and model.

CACHE/compiled/NAME-PART-DEVICE-KEY/
    *.blob       compiled models, which OpenVINO names by graph and properties; on a GPU its kernels beside them
    entry.json   what the key was made of, the checksum of each blob, and which self-tests passed

OpenVINO takes a blob with a changed byte for good, computes other numbers with it and says nothing (2026.4.1, CPU:
four of eight were loaded). So blobs are checked before it sees them. It compiles again what it cannot read, and says
nothing of a disk that is full or cannot be written; that is said here, once.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from docvino.device.core import openvino_version
from docvino.device.devices import DeviceInfo
from docvino.errors import ConfigError
from docvino.settings import RuntimeConfig

log = logging.getLogger(__name__)

COMPILED = "compiled"
_ENTRY = "entry.json"
_CHUNK = 1 << 22
_BEING_WRITTEN_S = 600.0  # a blob that nobody has recorded is left to who writes it for so long


class Entry:
    """The folder of one model on one device; `path` is None when nothing can be kept."""

    def __init__(self, path: Path | None, facts: Mapping[str, str | None]) -> None:
        self.path, self.facts = path, dict(facts)
        self._record: dict[str, Any] = {"facts": self.facts, "files": {}, "passes": {}}
        if path is not None and (record := _read_record(path)) is not None:
            self._record = record

    @classmethod
    def of(cls, runtime: RuntimeConfig, graph: Path, device: DeviceInfo) -> Entry:
        """
        graph   the model's file, in a folder that is named like the model
        """
        facts = {
            "openvino": openvino_version(),
            **device.identity,
            "name": device.name,
            "model": f"{graph.parent.name}/{graph.stem}",
            "graph": str(graph.resolve()),
            "stamp": _stamp(graph),
        }
        folder = runtime.cache_dir / COMPILED
        if not runtime.model_cache or not _usable(folder):
            return cls(None, facts)
        key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]
        return cls(folder / f"{graph.parent.name}-{graph.stem}-{device.name}-{key}", facts)

    def blobs(self) -> Path | None:
        """The folder for OpenVINO, with none but sound blobs in it; None when it cannot be used now."""
        if self.path is None:
            return None
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            found, known = _checksums(self.path), self._record["files"]
            unknown = [self.path / name for name in found if name not in known]
            if any(time.time() - path.stat().st_mtime < _BEING_WRITTEN_S for path in unknown):
                log.debug("%s is being written by somebody else", self.path)
                return None
            for path in unknown:
                path.unlink()
            for name in [name for name, wanted in known.items() if found.get(name) != wanted]:
                _warn(f"a compiled model of {self.facts['model']} was damaged or lost: it is compiled again")
                (self.path / name).unlink(missing_ok=True)
                del known[name]
        except OSError as error:
            _warn(f"no model cache: {self.path.parent} cannot be used ({error.strerror})")
            return None
        return self.path

    def compiled(self, *, from_cache: bool) -> None:
        """Writes down what OpenVINO left here."""
        if self.path is None:
            return
        try:
            if from_cache:
                os.utime(self.path / _ENTRY)  # when it was used last
                return
            found = _checksums(self.path)
        except OSError as error:
            _warn(f"no model cache: {self.path.parent} cannot be used ({error.strerror})")
            return
        if not found:
            _warn(f"no model cache: nothing could be written to {self.path.parent}; is the disk full?")
            return
        self._record["files"] = found
        self._write()

    def passed(self, test: str) -> Mapping[str, Any] | None:
        """What was remembered of a self-test that passed."""
        found: Mapping[str, Any] | None = self._record["passes"].get(test)
        return found

    def remember(self, test: str, facts: Mapping[str, Any]) -> None:
        """A self-test passed; `facts` are JSON."""
        self._record["passes"][test] = dict(facts)
        if self.path is not None:
            self._write()

    def _write(self) -> None:
        assert self.path is not None
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            _write_json(self.path / _ENTRY, self._record)
        except OSError as error:
            _warn(f"no model cache: {self.path.parent} cannot be written ({error.strerror})")


@dataclass(frozen=True)
class Kept:
    """One entry of the cache as `docvino cache list` shows it. `stale` says why it is of no more use."""

    path: Path
    model: str
    device: str
    openvino: str
    driver: str | None
    size_bytes: int
    used_at: float
    blobs: int
    self_tests: int
    stale: str | None


def list_cache(cache_dir: Path, devices: Iterable[DeviceInfo]) -> list[Kept]:
    """Everything that lies in the cache, by model; what is no entry of docvino is stale."""
    folder = cache_dir / COMPILED
    here = tuple(devices)
    try:
        return sorted((_kept(path, here) for path in folder.iterdir()), key=lambda kept: (kept.model, kept.device))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(f"cannot read {folder}: {error.strerror}", fix="set --cache-dir") from error


def remove_kept(entries: Iterable[Kept]) -> None:
    """Raises: ConfigError when one cannot be deleted."""
    for kept in entries:
        try:
            shutil.rmtree(kept.path) if kept.path.is_dir() else kept.path.unlink()
        except OSError as error:
            raise ConfigError(
                f"cannot remove {kept.path.name}: {error.strerror}", fix="close programs that use it, check its rights"
            ) from error


def _kept(path: Path, devices: tuple[DeviceInfo, ...]) -> Kept:
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    size = sum(file.stat().st_size for file in files)
    record = _read_record(path)
    if record is None:
        return Kept(path, path.name, "", "", None, size, path.stat().st_mtime, 0, 0, "not made by this docvino")
    facts = record["facts"]
    return Kept(
        path,
        str(facts["model"]),
        str(facts["name"]),
        str(facts["openvino"]),
        facts["driver"],
        size,
        (path / _ENTRY).stat().st_mtime,
        len(record["files"]),
        len(record["passes"]),
        _staleness(facts, devices),
    )


def _staleness(facts: Mapping[str, Any], devices: tuple[DeviceInfo, ...]) -> str | None:
    if facts["openvino"] != openvino_version():
        return f"OpenVINO is {openvino_version()}"
    device = next((device for device in devices if device.name == facts["name"]), None)
    if device is None or (device.full_name, device.uuid) != (facts["device"], facts["uuid"]):
        return "the device is not here"
    if device.driver != facts["driver"]:
        return f"the driver is {device.driver}"
    if device.architecture != facts["architecture"]:
        return "the device calls itself otherwise"
    if _stamp(Path(facts["graph"])) != facts["stamp"]:
        return "the model is gone or another"
    return None


def _stamp(graph: Path) -> str:
    """Changes with the files of a graph; empty when they are gone."""
    try:
        stats = [path.stat() for path in (graph, graph.with_suffix(".bin")) if path.is_file()]
    except OSError:
        return ""
    return " ".join(f"{stat.st_size}:{stat.st_mtime_ns}" for stat in stats)


def _usable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _warn(f"no model cache: {folder} cannot be made ({error.strerror})")
        return False
    if not os.access(folder, os.W_OK):
        _warn(f"no model cache: {folder} cannot be written")
        return False
    return True


def _checksums(folder: Path) -> dict[str, list[int]]:
    """Size and CRC-32 of each blob: against accidents, at 2.5 GB/s; a sha256 takes 2.5 times as long."""
    found = {}
    for path in folder.glob("*.blob"):
        total = 0
        with path.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                total = zlib.crc32(chunk, total)
        found[path.name] = [path.stat().st_size, total]
    return found


def _read_record(folder: Path) -> dict[str, Any] | None:
    """None for what is missing, damaged or of another form."""
    try:
        record = json.loads((folder / _ENTRY).read_text(encoding="utf-8"))
        facts, files, passes = record["facts"], record["files"], record["passes"]
        wanted = ("openvino", "device", "architecture", "uuid", "driver", "name", "model", "graph", "stamp")
        sound = all(key in facts for key in wanted) and all(isinstance(part, dict) for part in (files, passes))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return record if sound else None


def _write_json(path: Path, value: object) -> None:
    """Whole or not at all: other processes may read it."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump(value, stream, ensure_ascii=False, indent=2)
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


@cache
def _warn(message: str) -> None:
    """Once for each message: several models of a run meet the same disk."""
    log.warning("%s", message)
