"""The two seams of the corridor, and the clock that times it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from docvino.document import Answer, Crop, PageImage, Region
from docvino.settings import ParseOptions


class Clock:
    """Wall-clock milliseconds by stage."""

    def __init__(self) -> None:
        self.ms: Counter[str] = Counter()

    @contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.ms[stage] += (time.perf_counter() - started) * 1000  # type: ignore[assignment]


class LayoutStage(Protocol):
    """Finds the regions of a page."""

    def detect(self, page: PageImage) -> list[Region]: ...


class Reader(Protocol):
    """Reads crops: one answer per crop, in order."""

    def read(self, crops: Sequence[Crop], options: ParseOptions, clock: Clock) -> list[Answer]: ...
