"""Reads safetensors files by memory map: one file, or the shards that an index names.

A file is an unsigned 64-bit little-endian header length, a JSON header (name -> dtype, shape, data_offsets), and the
tensors without gaps. Source: the format's description in the safetensors repository. Nothing in a file is executed,
and nothing in it is believed before it was checked: sizes, offsets, overlaps, names, and numbers that are not finite.
"""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from docvino.errors import ConvertError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"

_ITEM_BYTES = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2"), 1),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
    **dict.fromkeys(("U32", "I32", "F32"), 4),
    **dict.fromkeys(("U64", "I64", "F64"), 8),
}
_READABLE = ("BF16", "F16", "F32")
_HEADER_LIMIT = 100_000_000  # bytes; the limit of the reference reader
_NAMED = 5  # most tensors that one message names
_AGAIN = "fetch the model again"


@dataclass(frozen=True)
class _Entry:
    shard: int
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


class Weights:
    """Tensors by name, out of mapped files: only what is read comes into memory. Use it in a `with` block.

    Names are those that `rename` makes of the names in the files.
    """

    def __init__(self, files: tuple[Path, ...], rename: Mapping[str, str] | None = None) -> None:
        """Maps and checks the files; `rename` gives new beginnings of names by old ones, the longest match counts.

        Raises: ConvertError for a file that is missing, cut off, not safetensors, or names a tensor twice.
        """
        self.files = files
        self._maps: list[mmap.mmap] = []
        self._entries: dict[str, _Entry] = {}
        self._used: set[str] = set()
        beginnings = sorted((rename or {}).items(), key=lambda pair: -len(pair[0]))
        for shard, path in enumerate(files):
            for name, entry in self._map(path, shard).items():
                old = next((old for old, _ in beginnings if name.startswith(old)), "")
                known = (rename or {}).get(old, "") + name[len(old) :]
                if known in self._entries:
                    raise ConvertError(f"{path.name} holds tensor {known} a second time", fix=_AGAIN)
                self._entries[known] = entry

    def __enter__(self) -> Weights:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for opened in self._maps:
            # A view that somebody still holds keeps its file mapped until it goes.
            with suppress(BufferError):
                opened.close()

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def check(self, wanted: Mapping[str, tuple[int, ...]]) -> None:
        """Compares names and shapes with those a model needs, before anything is read.

        Raises: ConvertError that names the missing or misshapen tensors.
        """
        if missing := [name for name in wanted if name not in self._entries]:
            raise ConvertError(f"the weights lack {_listed(missing)}", fix="check that all files are of one model")
        wrong = [
            f"{name} {list(self._entries[name].shape)} instead of {list(shape)}"
            for name, shape in wanted.items()
            if self._entries[name].shape != shape
        ]
        if wrong:
            raise ConvertError(
                f"tensors of another shape than config.json says: {_listed(wrong)}",
                fix="check that config.json belongs to these weights",
            )
        foreign = [
            f"{name} ({self._entries[name].dtype})" for name in wanted if self._entries[name].dtype not in _READABLE
        ]
        if foreign:
            raise ConvertError(
                f"weights in a format that docvino does not read: {_listed(foreign)}",
                fix=f"use a model stored as {', '.join(_READABLE)}",
            )

    def read(self, name: str) -> NDArray[np.float32]:
        """One tensor as float32, a copy or a read-only view of the file.

        Raises: ConvertError when it holds numbers that are not finite.
        """
        entry = self._entries[name]
        raw = np.frombuffer(self._maps[entry.shard], np.uint8, entry.end - entry.begin, entry.begin)
        values: NDArray[np.float32]
        if entry.dtype == "BF16":  # the upper half of a float32
            wide = raw.view("<u2").astype(np.uint32)
            wide <<= 16
            values = wide.view(np.float32)
        else:
            values = raw.view("<f2" if entry.dtype == "F16" else "<f4").astype(np.float32, copy=False)
        # A sum is not finite when any term is not: no mask of the tensor's size is needed.
        with np.errstate(invalid="ignore", over="ignore"):
            finite = np.isfinite(values.sum(dtype=np.float64))
        if not finite:
            raise ConvertError(f"tensor {name} holds numbers that are not finite (NaN or infinity)", fix=_AGAIN)
        self._used.add(name)
        return values.reshape(entry.shape)

    @property
    def names(self) -> tuple[str, ...]:
        """Every tensor's name, sorted."""
        return tuple(sorted(self._entries))

    def shape(self, name: str) -> tuple[int, ...]:
        return self._entries[name].shape

    def stored_as(self, name: str) -> str:
        """BF16, F16, F32 or another format of the file's header."""
        return self._entries[name].dtype

    def forget_pages(self) -> None:
        """Gives the memory of pages read so far back, where the system can: they come from the file again if needed."""
        if hasattr(mmap, "MADV_DONTNEED"):
            for opened in self._maps:
                opened.madvise(mmap.MADV_DONTNEED)

    @property
    def unused(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the tensors that were never read, by name."""
        return {name: entry.shape for name, entry in sorted(self._entries.items()) if name not in self._used}

    def _map(self, path: Path, shard: int) -> dict[str, _Entry]:
        try:
            with path.open("rb") as stream:
                size = stream.seek(0, 2)
                if size < 8:
                    raise ConvertError(f"{path.name} is empty or cut off ({size} bytes)", fix=_AGAIN)
                mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise ConvertError(f"cannot read {path.name}: {error.strerror}", fix=_AGAIN) from error
        self._maps.append(mapped)
        length = int.from_bytes(mapped[:8], "little")
        if not 2 <= length <= _HEADER_LIMIT or mapped[8:9] not in (b"{", b""):
            raise ConvertError(f"{path.name} is not a safetensors file", fix="check that it was not renamed")
        if 8 + length > size:
            raise ConvertError(f"{path.name} is cut off inside its header", fix=_AGAIN)
        try:
            header = json.loads(mapped[8 : 8 + length], object_pairs_hook=_once)
        except ValueError as error:
            raise ConvertError(f"the header of {path.name} is damaged: {error}", fix=_AGAIN) from error
        header.pop("__metadata__", None)
        entries: dict[str, _Entry] = {}
        position = 8 + length
        try:
            ordered = sorted(header.items(), key=lambda pair: tuple(pair[1]["data_offsets"]))
            for name, about in ordered:
                begin, end = (8 + length + int(offset) for offset in about["data_offsets"])
                shape = tuple(int(side) for side in about["shape"])
                needed = math.prod(shape) * _ITEM_BYTES[about["dtype"]]
                if begin < position and begin != end:
                    raise ConvertError(f"tensor {name} of {path.name} overlaps another one", fix=_AGAIN)
                if begin != position or end - begin != needed or min(shape, default=0) < 0:
                    raise ConvertError(f"tensor {name} of {path.name} has another size than its shape", fix=_AGAIN)
                entries[name] = _Entry(shard, str(about["dtype"]), shape, begin, end)
                position = end
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConvertError(f"the header of {path.name} is damaged ({error!r})", fix=_AGAIN) from error
        if position != size:
            what = "cut off" if position > size else "longer than its header says"
            raise ConvertError(f"{path.name} is {what}: {size} bytes, the header says {position}", fix=_AGAIN)
        return entries


def write_tensors(
    path: Path, tensors: Mapping[str, tuple[str, tuple[int, ...]]], value: Callable[[str], NDArray[np.float32]]
) -> None:
    """Writes BF16, F16 and F32 tensors, whose format and shape are given by name; `value` is asked for each in turn.

    Only one tensor is in memory at a time. The file appears when it is whole.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    position = 0
    for name, (kind, shape) in tensors.items():
        size = math.prod(shape) * _ITEM_BYTES[kind]
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [position, position + size]}
        position += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    part = path.with_name(path.name + ".part")
    with part.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for name, (kind, shape) in tensors.items():
            values = np.ascontiguousarray(value(name), np.float32)
            assert values.shape == shape, f"{name}: {values.shape} instead of {shape}"
            stream.write(_packed(values, kind).tobytes())
    part.replace(path)


def _packed(values: NDArray[np.float32], kind: str) -> NDArray[Any]:
    if kind == "BF16":
        # To the nearest, halves to even, as PyTorch rounds.
        bits = values.view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
    return values.astype("<f2" if kind == "F16" else "<f4")


def find_files(folder: Path) -> tuple[Path, ...]:
    """The weight files of a Hugging Face folder: the shards of its index, else model.safetensors.

    Raises: ConvertError when there are none, or the index names files or tensors that are not there.
    """
    index = folder / INDEX
    if not index.is_file():
        if (folder / SINGLE).is_file():
            return (folder / SINGLE,)
        others = sorted(path.name for path in folder.glob("*.safetensors"))
        raise ConvertError(
            f"{folder} has no {SINGLE}" + (f", only {_listed(others)}" if others else ""),
            fix="give the folder as it was downloaded, without renaming files",
        )
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        shards = tuple(folder / str(name) for name in names)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConvertError(f"{INDEX} is damaged ({error!r})", fix=_AGAIN) from error
    if outside := [path.name for path in shards if path.parent != folder]:
        raise ConvertError(f"{INDEX} names files outside its folder: {_listed(outside)}", fix=_AGAIN)
    if missing := [path.name for path in shards if not path.is_file()]:
        raise ConvertError(f"{folder} lacks {_listed(missing)}, named by {INDEX}", fix=_AGAIN)
    return shards


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object whose keys must differ: the second of two equal names would silently win."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands there twice")
    return found


def _listed(names: list[str]) -> str:
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")
