"""What the machine could do at most, measured in the same run or, of Intel GPUs, published; and the share reached."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from docvino.bench.job import Job, Tell
from docvino.bench.report import Row, figure
from docvino.device import DeviceInfo, find_device
from docvino.device.rates import can_multiply, multiply_rate
from docvino.errors import DeviceError
from docvino.machine.table import read_toml

MEMORY = "memory read"
_PUBLISHED = ", published"
_READERS = 16  # threads that read memory at the same time, at most
_READ_BYTES = 256 << 20  # of each: far more than any cache holds
_READ_BYTES_QUICK = 32 << 20


@dataclass(frozen=True)
class Published:
    """Figures of one card. `gb_s` and `int8_tops` are None where no source was found."""

    name: str
    gb_s: float | None
    int8_tops: float | None
    source: str


def measure_limits(job: Job, tell: Tell) -> list[Row]:
    """Reading of memory by all cores, and products of large matrices on the device."""
    device = find_device(job.runtime.device)
    kinds = can_multiply(device)
    steps = (1 + len(kinds)) * job.repeats
    rates = []
    for done in range(job.repeats):
        rates.append(read_bandwidth(job.quick))
        tell(done + 1, steps)
    rows = [_row(MEMORY, "GB/s", rates, f"by {_readers()} threads on the host")]
    for number, kind in enumerate(kinds):
        values, why = [], None
        try:
            for done in range(job.repeats):
                values.append(multiply_rate(device, kind, 64 if job.quick else 1024, 0.0 if job.quick else 1.0) / 1e9)
                tell((1 + number) * job.repeats + done + 1, steps)
        except DeviceError as error:
            values, why = [], str(error)
        unit = "GOP/s" if kind == "int8" else "GFLOP/s"
        rows.append(_row(f"matmul {kind}", unit, values, f"large matrices on {device.name}", why))
    return rows + published_rows(device)


def read_bandwidth(quick: bool = False) -> float:
    """GB/s at which all cores together read memory: the sum of an array each, the best of three."""
    size = _READ_BYTES_QUICK if quick else _READ_BYTES
    arrays = [np.ones(size // 4, np.float32) for _ in range(_readers())]
    best = 0.0
    with ThreadPoolExecutor(len(arrays)) as pool:
        for _ in range(3):
            started = time.perf_counter()
            list(pool.map(np.sum, arrays))
            best = max(best, len(arrays) * size / (time.perf_counter() - started) / 1e9)
    return best


def _readers() -> int:
    return min(_READERS, os.cpu_count() or 1)


def published_rows(device: DeviceInfo) -> list[Row]:
    """What is published of an Intel GPU, said as such; nothing was measured."""
    if device.family != "GPU":
        return []
    card = published(device.full_name)
    if card is None:
        why = f"no published figures of {device.full_name} are known to docvino"
        return [_row(MEMORY + _PUBLISHED, "GB/s", [], "", why)]
    note = f"not measured: published, {card.source}"
    no_source = "no source was found"
    rows = []
    for name, unit, value in (
        (MEMORY, "GB/s", card.gb_s),
        ("matmul int8", "GOP/s", None if card.int8_tops is None else 1000 * card.int8_tops),
        ("matmul f16", "GFLOP/s", None if card.int8_tops is None else 500 * card.int8_tops),
    ):
        values = [] if value is None else [value]
        rows.append(_row(name + _PUBLISHED, unit, values, note, None if values else no_source))
    return rows


def published(full_name: str) -> Published | None:
    """The row whose name is in the name that the device gives itself, the longest of them."""
    found = [
        Published(row["name"], row.get("gb_s"), row.get("int8_tops"), row["source"])
        for row in read_published()
        if f" {row['name']} ".lower() in f" {full_name.replace('(', ' ').replace(')', ' ')} ".lower()
    ]
    return max(found, key=lambda card: len(card.name), default=None)


def read_published() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = read_toml("published.toml")["gpu"]
    return rows


def shares(rows: Sequence[Row]) -> list[Row]:
    """For each row that has a limit the share of it that was reached, in percent."""
    limits = {row.name: row for row in rows if row.group == "limits" and row.values}
    found = []
    for row in rows:
        if row.limit is None or row.cost is None or not row.values:
            continue
        limit = limits.get(row.limit + _PUBLISHED) or limits.get(row.limit)
        best = max(limit.values) if limit else 0.0
        found.append(
            row.model_copy(
                update={
                    "name": f"{row.name}: share of {limit.name if limit else row.limit}",
                    "unit": "%",
                    "better": "higher",
                    "values": tuple(100 * value * row.cost / (best * 1e9) for value in row.values) if limit else (),
                    "note": f"of {figure(best)} {limit.unit}{_beyond(row, best)}" if limit else "",
                    "why": None if limit else "this limit was not measured in the same run",
                    "limit": None,
                    "cost": None,
                }
            )
        )
    return found


def _beyond(row: Row, best: float) -> str:
    assert row.cost is not None
    return "; above 100 %: weights that stay in a cache" if max(row.values) * row.cost > best * 1e9 else ""


def _row(name: str, unit: str, values: list[float], note: str, why: str | None = None) -> Row:
    return Row(group="limits", name=name, unit=unit, better="higher", values=tuple(values), note=note, why=why)
