"""Counters and gauges in Prometheus' text format."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from docvino.machine.resident import resident_mib

_Labels = tuple[tuple[str, str], ...]
_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)

# name -> kind, help
_KNOWN: Mapping[str, tuple[Literal["counter", "gauge", "histogram"], str]] = {
    "docvino_requests_total": ("counter", "HTTP requests answered, by route and status."),
    "docvino_request_seconds": ("histogram", "Time from the first byte of a request to the last of its answer."),
    "docvino_rejected_total": ("counter", "Requests refused before anything was read, by reason."),
    "docvino_documents_total": ("counter", "Documents that were read, by how it ended."),
    "docvino_pages_total": ("counter", "Pages that were read, by status."),
    "docvino_tokens_total": ("counter", "Tokens of a text generator, prompts and generated."),
    "docvino_stage_seconds_total": ("counter", "Time spent in each stage of reading."),
    "docvino_renderer_deaths_total": ("counter", "Times the process that decodes documents had to be replaced."),
    "docvino_queue_documents": ("gauge", "Documents that wait to be read."),
    "docvino_queue_limit": ("gauge", "Documents that may wait."),
    "docvino_reading_documents": ("gauge", "Documents that are being read."),
    "docvino_memory_bytes": ("gauge", "Resident memory of the service, without the decoding process."),
    "docvino_open_files": ("gauge", "Open files and sockets of the service."),
    "docvino_info": ("gauge", "1, with what the service runs as labels."),
}


class Metrics:
    """All figures of one service. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, dict[_Labels, float]] = {name: {} for name in _KNOWN}
        self._gauges: dict[str, Callable[[], float]] = {
            "docvino_memory_bytes": lambda: (resident_mib() or 0.0) * 2**20,
            "docvino_open_files": open_files,
        }

    def count(self, name: str, by: float = 1.0, **labels: str) -> None:
        key = tuple(sorted(labels.items()))
        with self._lock:
            series = self._values[name]
            series[key] = series.get(key, 0.0) + by

    def observe(self, name: str, value: float) -> None:
        """Of a histogram."""
        for bucket in _BUCKETS_S:
            self.count(name, float(value <= bucket), part="bucket", le=f"{bucket:g}")
        self.count(name, part="bucket", le="+Inf")
        self.count(name, value, part="sum")
        self.count(name, part="count")

    def watch(self, name: str, value: Callable[[], float]) -> None:
        """A gauge that is asked when somebody looks."""
        self._gauges[name] = value

    def text(self) -> str:
        with self._lock:
            values = {name: dict(series) for name, series in self._values.items()}
        for name, gauge in self._gauges.items():
            values[name][()] = gauge()
        lines = []
        for name, (kind, about) in _KNOWN.items():
            lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
            for labels, value in values[name].items():
                part = dict(labels).get("part") if kind == "histogram" else None
                shown = [f'{key}="{_escaped(text)}"' for key, text in labels if key != "part" or part is None]
                full = f"{name}_{part}" if part else name
                lines.append(f"{full}{'{' + ','.join(shown) + '}' if shown else ''} {value:.10g}")
        return "\n".join(lines) + "\n"


def open_files() -> float:
    try:
        return float(sum(1 for _ in Path("/proc/self/fd").iterdir()))
    except OSError:
        return 0.0


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
