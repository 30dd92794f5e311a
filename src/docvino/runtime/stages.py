"""The two seams of the corridor, and the clock that times it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from docvino.document import Answer, Crop, PageImage, Region, Task
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


class ByTask:
    """A reader that gives each crop to the reader of its task."""

    def __init__(self, readers: Mapping[Task, Reader]) -> None:
        self._readers = dict(readers)

    def read(self, crops: Sequence[Crop], options: ParseOptions, clock: Clock) -> list[Answer]:
        answers: dict[int, Answer] = {}
        for task, reader in self._readers.items():
            places = [place for place, crop in enumerate(crops) if crop.task == task]
            read = reader.read([crops[place] for place in places], options, clock)
            answers |= zip(places, read, strict=True)
        return [answers[place] for place in range(len(crops))]
