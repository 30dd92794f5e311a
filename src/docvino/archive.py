"""Converted models in one file: a plain tar of bundles behind an index with the sha256 of every byte in it.

The index comes first. Then follow the files of the bundles in its order, as regular files and nothing else: no links,
no devices, no extended headers, no compression. The same bundles give the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import os
import secrets
import shutil
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from docvino import __version__
from docvino.bundle import (
    MANIFEST,
    MANIFEST_VERSION,
    Bundle,
    building,
    bundle_folder,
    file_sha256,
    open_bundle,
)
from docvino.errors import BundleError
from docvino.settings import RuntimeConfig, WeightPrecision
from docvino.specs.model import ModelSpec, is_safe_path

ARCHIVE_VERSION = 1
INDEX = "docvino-models.json"

_MOST_INDEX_BYTES = 1 << 20
_MOST_BUNDLES = 1000
_CHUNK_BYTES = 1 << 20
_BLOCK_BYTES = tarfile.BLOCKSIZE

Report = Callable[[str], None]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ArchivedFile(_Strict):
    name: str
    size_bytes: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class ArchivedBundle(_Strict):
    """One bundle; its files in the order in which they follow."""

    spec: str
    precision: WeightPrecision
    files: tuple[ArchivedFile, ...]

    @property
    def folder_name(self) -> str:
        return f"{self.spec}-{self.precision}"


class Index(_Strict):
    archive_version: int
    manifest_version: int
    docvino: str
    bundles: tuple[ArchivedBundle, ...] = Field(min_length=1, max_length=_MOST_BUNDLES)


@dataclass(frozen=True)
class Archive:
    """What an archive holds, or was made of."""

    path: Path
    bundles: tuple[str, ...]
    size_bytes: int


def export_models(
    specs: Sequence[ModelSpec[Any]], runtime: RuntimeConfig, out: Path, *, report: Report = lambda _line: None
) -> Archive:
    """Writes the bundles of `specs` at `runtime.precision` into one file, each checked against its manifest first.

    verify.json stays out: it says what was measured on this machine, and would change the bytes with every run.
    An existing file is replaced.

    Raises: BundleError when a bundle is missing or damaged, or the file cannot be written.
    """
    bundles = [open_bundle(bundle_folder(runtime.data_dir, spec.name, runtime.precision)) for spec in specs]
    for bundle in bundles:
        bundle.check_files()
    index = Index(
        archive_version=ARCHIVE_VERSION,
        manifest_version=MANIFEST_VERSION,
        docvino=__version__,
        bundles=tuple(_archived(bundle) for bundle in sorted(bundles, key=lambda bundle: bundle.folder.name)),
    )
    folder = runtime.data_dir / "bundles"
    part = out.with_name(f".{out.name}.part-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        if out.is_dir():
            raise BundleError(f"{out} is a folder", fix="name a file, e.g. -o models.tar")
        with part.open("xb") as file:
            with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
                text = (index.model_dump_json(indent=2) + "\n").encode()
                tar.addfile(_header(INDEX, len(text)), io.BytesIO(text))
                for archived in index.bundles:
                    for entry in archived.files:
                        name = f"{archived.folder_name}/{entry.name}"
                        with (folder / name).open("rb") as stream:
                            tar.addfile(_header(f"bundles/{name}", entry.size_bytes), stream)
                    report(f"{archived.folder_name}: {_megabytes(archived)}")
            file.flush()
            os.fsync(file.fileno())
        part.replace(out)
        return Archive(out, tuple(archived.folder_name for archived in index.bundles), out.stat().st_size)
    except OSError as error:
        raise BundleError(
            f"cannot write {out}: {error.strerror or error}",
            fix="name a file in a folder with space that you may write",
        ) from error
    finally:
        part.unlink(missing_ok=True)


def import_models(
    path: Path, runtime: RuntimeConfig, *, force: bool = False, report: Report = lambda _line: None
) -> Archive:
    """Puts the bundles of an archive in place, none of them before all are checked; needs no network.

    A bundle that is there already, byte for byte, is left alone; another one of its name is replaced only by `force`.

    Raises: BundleError when the archive is damaged, hostile or of another version, or a bundle is in its way.
    """
    with _reading(path) as stream:
        index, text_bytes = _read_index(stream, path)
        kept = _already_there(index, runtime, path, force)
        _check_room(index, runtime, path)
        _check_length(index, text_bytes, path)
        with ExitStack() as stack:
            for archived in index.bundles:
                target = bundle_folder(runtime.data_dir, archived.spec, archived.precision)
                workspace = None if archived in kept else stack.enter_context(building(target))
                for entry in archived.files:
                    _extract(stream, path, archived, entry, workspace)
                if workspace is not None:
                    _check_manifest(workspace, archived, path)
            _expect_end(stream, path)
        # Here they have appeared.
    for archived in index.bundles:
        report(
            f"{archived.folder_name}: {'is there already' if archived in kept else _megabytes(archived) + ', checked'}"
        )
    return Archive(path, tuple(archived.folder_name for archived in index.bundles), path.stat().st_size)


def _archived(bundle: Bundle) -> ArchivedBundle:
    files = []
    for name in sorted((MANIFEST, *bundle.manifest.files)):
        file = bundle.folder / name
        files.append(ArchivedFile(name=name, size_bytes=file.stat().st_size, sha256=file_sha256(file)))
    return ArchivedBundle(spec=bundle.manifest.spec, precision=bundle.manifest.precision, files=tuple(files))


def _header(name: str, size_bytes: int) -> tarfile.TarInfo:
    """No time, no owner: what is not of the content is the same for everybody."""
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime, info.uid, info.gid, info.uname, info.gname = size_bytes, 0o644, 0, 0, 0, "", ""
    return info


def _megabytes(archived: ArchivedBundle) -> str:
    return f"{sum(entry.size_bytes for entry in archived.files) / 1e6:.1f} MB"


@contextmanager
def _reading(path: Path) -> Iterator[BinaryIO]:
    try:
        stream = path.open("rb")
    except OSError as error:
        raise BundleError(
            f"cannot read {path}: {error.strerror or error}", fix="name a file made by `docvino models export`"
        ) from error
    with stream:
        yield stream


def _damaged(path: Path, what: str) -> BundleError:
    return BundleError(
        f"{path.name} is refused: {what}", fix="copy it again, or make it again with `docvino models export`"
    )


def _next_header(stream: BinaryIO, path: Path) -> tarfile.TarInfo | None:
    """The header of the next file, None at the end.

    Block by block and not by tarfile's own reader: that one follows extended headers of any size, links and holes
    before anybody can say no.
    """
    block = stream.read(_BLOCK_BYTES)
    if block == bytes(_BLOCK_BYTES):
        return None
    try:
        info = tarfile.TarInfo.frombuf(block, "ascii", "strict")
    except (tarfile.HeaderError, UnicodeDecodeError) as error:
        what = "it is cut off" if len(block) < _BLOCK_BYTES else "it is no plain tar file"
        raise _damaged(path, what) from error
    if info.type != tarfile.REGTYPE:
        raise _damaged(path, f"{info.name!r} is not a regular file")
    if info.size < 0:
        raise _damaged(path, f"{info.name!r} has a size below nothing")
    return info


def _skip_padding(stream: BinaryIO, size_bytes: int) -> None:
    stream.read(-size_bytes % _BLOCK_BYTES)


def _read_index(stream: BinaryIO, path: Path) -> tuple[Index, int]:
    """The index, looked through for what it may not say, and its length."""
    info = _next_header(stream, path)
    if info is None or info.name != INDEX or info.size > _MOST_INDEX_BYTES:
        raise _damaged(path, f"it does not begin with {INDEX}")
    text = stream.read(info.size)
    if len(text) < info.size:
        raise _damaged(path, "it is cut off")
    _skip_padding(stream, info.size)
    try:
        index = Index.model_validate_json(text)
    except ValidationError as error:
        raise BundleError(
            f"the index of {path.name} is damaged or of another version",
            fix=f"make it again with the docvino that is to read it ({__version__})",
        ) from error
    for name, found, mine in (
        ("archive", index.archive_version, ARCHIVE_VERSION),
        ("manifest", index.manifest_version, MANIFEST_VERSION),
    ):
        if found != mine:
            raise BundleError(
                f"{path.name} has {name} version {found}, this docvino reads {mine}",
                fix=f"make it again with the docvino that is to read it ({__version__})",
            )
    names = [f"{archived.folder_name}/{entry.name}" for archived in index.bundles for entry in archived.files]
    for archived in index.bundles:
        for name in (archived.folder_name, *(entry.name for entry in archived.files)):
            if not is_safe_path(name) or "/" in name:
                raise _damaged(path, f"{name!r} is no name for a file of a bundle")
    # On Windows and macOS, names that differ in case alone are one file.
    if len({name.lower() for name in names}) != len(names):
        raise _damaged(path, "its index names a file twice")
    return index, info.size


def _already_there(index: Index, runtime: RuntimeConfig, path: Path, force: bool) -> list[ArchivedBundle]:
    """The bundles that need nothing done. Raises: BundleError for those that are in the way."""
    same: list[ArchivedBundle] = []
    other: list[ArchivedBundle] = []
    for archived in index.bundles:
        folder = bundle_folder(runtime.data_dir, archived.spec, archived.precision)
        if not folder.exists():
            continue
        (same if _is_same(folder, archived) else other).append(archived)
    if other and not force:
        names = ", ".join(archived.folder_name for archived in other)
        raise BundleError(
            f"another {names} is there already", fix=f"docvino models import {path.name} --force replaces it"
        )
    return same


def _is_same(folder: Path, archived: ArchivedBundle) -> bool:
    try:
        return all(file_sha256(folder / entry.name) == entry.sha256 for entry in archived.files)
    except OSError:
        return False


def _check_room(index: Index, runtime: RuntimeConfig, path: Path) -> None:
    needed = sum(entry.size_bytes for archived in index.bundles for entry in archived.files)
    there = next(parent for parent in (runtime.data_dir, *runtime.data_dir.absolute().parents) if parent.exists())
    free = shutil.disk_usage(there).free
    if needed > free:
        raise BundleError(
            f"{path.name} unpacks to {needed / 1e6:.1f} MB, {free / 1e6:.1f} MB are free in {there}",
            fix="free some space, or set --data-dir",
        )


def _check_length(index: Index, text_bytes: int, path: Path) -> None:
    """Whether the file is as long as its index says: a cut is told at once, a swollen index before it costs disk."""
    sizes = [text_bytes, *(entry.size_bytes for archived in index.bundles for entry in archived.files)]
    least = sum(_BLOCK_BYTES + size + -size % _BLOCK_BYTES for size in sizes)
    if path.stat().st_size < least:
        raise _damaged(path, f"it has {path.stat().st_size} bytes, and its index speaks of {least} at least")


def _extract(
    stream: BinaryIO, path: Path, archived: ArchivedBundle, entry: ArchivedFile, workspace: Path | None
) -> None:
    """Reads the next file, which must be `entry`, into the workspace; without one only to check it."""
    name = f"bundles/{archived.folder_name}/{entry.name}"
    info = _next_header(stream, path)
    if info is None:
        raise _damaged(path, f"it lacks {name}")
    if info.name != name:
        raise _damaged(path, f"{info.name!r} is where its index has {name}")
    if info.size != entry.size_bytes:
        raise _damaged(path, f"{name} has {info.size} bytes, not {entry.size_bytes}")
    digest = hashlib.sha256()
    left = entry.size_bytes
    file = (workspace / entry.name).open("xb") if workspace is not None else None
    try:
        while left:
            chunk = stream.read(min(_CHUNK_BYTES, left))
            if not chunk:
                raise _damaged(path, "it is cut off")
            digest.update(chunk)
            left -= len(chunk)
            if file is not None:
                file.write(chunk)
    finally:
        if file is not None:
            file.close()
    _skip_padding(stream, entry.size_bytes)
    if digest.hexdigest() != entry.sha256:
        raise _damaged(path, f"{name} has sha256 {digest.hexdigest()}, not {entry.sha256}")


def _check_manifest(workspace: Path, archived: ArchivedBundle, path: Path) -> None:
    """Whether what was unpacked is the bundle that the index calls it, with no file that its manifest does not know."""
    # open_bundle goes by the folder's name, which the workspace does not have yet.
    bundle = open_bundle(workspace, name=archived.folder_name)
    names = {entry.name for entry in archived.files}
    extra = names - {MANIFEST, *bundle.manifest.files}
    if extra:
        raise _damaged(path, f"{archived.folder_name} has files that its manifest does not know: {', '.join(extra)}")
    bundle.check_files()


def _expect_end(stream: BinaryIO, path: Path) -> None:
    info = _next_header(stream, path)
    if info is not None:
        raise _damaged(path, f"{info.name!r} is not in its index")
    while chunk := stream.read(_CHUNK_BYTES):
        if chunk.strip(b"\0"):
            raise _damaged(path, "something follows its end")
