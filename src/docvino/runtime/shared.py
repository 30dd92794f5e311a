"""One engine for many pages at once: crops of all callers decode side by side, each caller gets its own.

Threads ask; one thread reads. It takes the next crop, of whomever it is, when the engine has room for it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from docvino.document import Answer, Crop
from docvino.errors import InferenceError
from docvino.runtime.stages import Clock
from docvino.runtime.vlm import Asked, VlmReader
from docvino.settings import ParseOptions

_LOOK_S = 0.05  # how often a caller tells how far its page is, and asks whether to go on


@dataclass(eq=False)
class _Page:
    """What one caller asked for."""

    crops: Sequence[Crop]
    options: ParseOptions
    answers: dict[int, Answer] = field(default_factory=dict)
    vision_ms: float = 0.0
    problem: InferenceError | None = None
    cancel: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)

    def answered(self, place: int, answer: Answer) -> None:
        self.answers[place] = answer
        if len(self.answers) == len(self.crops):
            self.done.set()


class SharedReader:
    """A reader for several threads at a time. `close` ends its thread; nothing may be asked then."""

    def __init__(self, reader: VlmReader) -> None:
        self._reader = reader
        self._changed = threading.Condition()
        self._waiting: deque[tuple[_Page, int]] = deque()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def warm(self) -> int:
        return self._reader.warm()

    def read(self, crops: Sequence[Crop], options: ParseOptions, clock: Clock) -> list[Answer]:
        """As `VlmReader.read`. What the clock's watch raises gives the page up.

        Raises: InferenceError when the device fails: then no crop that was being read has an answer.
        """
        if not crops:
            return []
        page = _Page(crops, options)
        with self._changed:
            if self._closed:
                raise InferenceError("the models are closed", fix="open the parser again")
            self._waiting.extend((page, place) for place in range(len(crops)))
            self._changed.notify_all()
        try:
            with clock.measure("decoding"):
                while not page.done.wait(_LOOK_S):
                    clock.watch(2 * len(page.answers), 2 * len(crops))
        finally:
            page.cancel.set()
        clock.ms["vision"] += page.vision_ms  # type: ignore[assignment]
        clock.ms["decoding"] -= page.vision_ms  # type: ignore[assignment]
        if page.problem is not None:
            raise page.problem
        return [page.answers[place] for place in range(len(crops))]

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while self._wait():
            taken: list[_Page] = []
            try:
                self._reader.read_stream(self._asked(taken), lambda item, answer: item[0].answered(item[1], answer))
            except InferenceError as error:
                self._fail(taken, error)
            except Exception as error:  # noqa: BLE001 - callers wait: they must hear of it, and the next ones be read
                problem = InferenceError(f"the reader failed: {type(error).__name__}", fix="report it as a bug")
                problem.__cause__ = error
                self._fail(taken, problem)

    def _wait(self) -> bool:
        """Until there is something to read; false when it is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if self._closed:
                for page, _ in self._waiting:
                    page.problem = InferenceError("the models are closed", fix="open the parser again")
                    page.done.set()
            return not self._closed

    def _asked(self, taken: list[_Page]) -> Iterator[Asked[tuple[_Page, int]] | None]:
        """What is to be read next; None when there is nothing now and others are still being read.

        Ends when everything is answered: then the thread waits without the engine.
        """
        while True:
            with self._changed:
                item = self._waiting.popleft() if self._waiting else None
            if item is None:
                if all(page.done.is_set() or page.cancel.is_set() for page in taken):
                    return
                yield None
                continue
            page, place = item
            if page not in taken:
                taken[:] = [other for other in taken if not other.done.is_set()]
                taken.append(page)
            if not page.cancel.is_set():
                yield Asked(item, page.crops[place], page.options, page.cancel, _timer(page))

    def _fail(self, pages: Sequence[_Page], error: InferenceError) -> None:
        with self._changed:
            for page in pages:
                self._waiting = deque(item for item in self._waiting if item[0] is not page)
                if not page.done.is_set():
                    page.problem = error
                    page.done.set()


def _timer(page: _Page) -> Callable[[float], None]:
    def took(ms: float) -> None:
        page.vision_ms += ms

    return took
