"""The two seams of the corridor, and the clock that times it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from docvino.document import Answer, Crop, PageImage, Region, Task
from docvino.settings import ParseOptions

Watch = Callable[[int, int], None]  # steps of a page that are done, and all of them


def unwatched(_done: int, _total: int) -> None:
    """For those who do not want to know."""


class Clock:
    """Wall-clock milliseconds by stage. What is measured inside a stage as another one counts for that one alone.

    watch   is told by readers that take long how far they are
    """

    def __init__(self, watch: Watch = unwatched) -> None:
        self.watch = watch
        self.ms: Counter[str] = Counter()
        self._inner_ms = 0.0

    @contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        started, before = time.perf_counter(), self._inner_ms
        self._inner_ms = 0.0
        try:
            yield
        finally:
            spent = (time.perf_counter() - started) * 1000
            self.ms[stage] += spent - self._inner_ms  # type: ignore[assignment]
            self._inner_ms = before + spent


class LayoutStage(Protocol):
    """Finds the regions of a page."""

    def detect(self, page: PageImage, options: ParseOptions) -> list[Region]: ...


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
