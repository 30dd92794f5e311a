"""What reads: a few threads that take turns with one parser, and a bounded queue in front of them.

A page at a time, so a short document is not kept waiting by a long one.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Literal, TypeVar

from docvino.errors import InputError
from docvino.serve.problems import RefusalError

_T = TypeVar("_T")
Reason = Literal["cancelled", "shutdown", "time"]
_MOST_RETRY_S = 600


class StoppedError(Exception):
    """A reading that was given up: by request, because the service ends, or because its time is up."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Reason = reason


class Stop:
    """Tells a reading when to end. Any thread may set it; the reading asks between pages and within them."""

    def __init__(self, document_limit_s: float, page_limit_s: float) -> None:
        self._limits = document_limit_s, page_limit_s
        self._reason: Reason | None = None
        self._begun_s: float | None = None
        self._page_begun_s: float | None = None

    def begin_page(self) -> None:
        """Raises: StoppedError."""
        self._page_begun_s = None
        if self._begun_s is None:
            self._begun_s = time.monotonic()
        self.check()

    def check(self) -> None:
        """Raises: StoppedError when the reading is to end."""
        if self._reason is None and self._begun_s is not None and time.monotonic() - self._begun_s > self._limits[0]:
            self._reason = "time"
        if self._reason is not None:
            raise StoppedError(self._reason)

    def within_page(self, _done: int, _total: int) -> None:
        """A watch of the parser. Raises: StoppedError; InputError when the page takes too long."""
        self.check()
        if self._page_begun_s is None:
            self._page_begun_s = time.monotonic()  # not before its turn came: other documents do not cost it its time
        if time.monotonic() - self._page_begun_s > self._limits[1]:
            raise InputError(
                f"the page was not read within {self._limits[1]:g} s", fix="lower dpi, or send the page in parts"
            )

    def set(self, reason: Reason) -> None:
        self._reason = self._reason or reason

    @property
    def reason(self) -> Reason | None:
        return self._reason


class Worker:
    """Runs calls in the order they come, `threads` at a time."""

    def __init__(self, threads: int, max_queue: int) -> None:
        self._max_queue = max_queue
        self._lock = threading.RLock()  # a signal may come to whoever holds it
        self._calls: queue.SimpleQueue[tuple[Future[Any], Stop, Callable[[], Any]] | None] = queue.SimpleQueue()
        self._waiting = 0
        self._running: set[Stop] = set()
        self._seconds = 1.0  # that a call takes, as a mean that forgets
        self._closed = False
        self._threads = [
            threading.Thread(target=self._run, name=f"reader-{number}", daemon=True) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        return self._waiting

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def alive(self) -> bool:
        return not self._closed and all(thread.is_alive() for thread in self._threads)

    def admit(self) -> None:
        """Raises: RefusalError when nothing more can wait; asked before a body is read in vain."""
        if self._closed:
            raise RefusalError(503, "shutting_down", "the service is ending", fix="try again", retry_after_s=10)
        if self._waiting >= self._max_queue:
            seconds = self._seconds * (self._waiting + self.running) / len(self._threads)
            raise RefusalError(
                429,
                "queue_full",
                f"{self._waiting} documents wait already",
                fix="try again after the seconds of Retry-After",
                retry_after_s=min(_MOST_RETRY_S, max(1, round(seconds / 4))),
            )

    def submit(self, stop: Stop, call: Callable[[], _T], *, always: bool = False) -> Future[_T]:
        """
        always   for what was admitted before a restart

        Raises: RefusalError.
        """
        future: Future[_T] = Future()
        with self._lock:
            if not always:
                self.admit()
            self._waiting += 1
            self._calls.put((future, stop, call))
        return future

    def _run(self) -> None:
        while (item := self._calls.get()) is not None:
            future, stop, call = item
            with self._lock:
                self._waiting -= 1
                self._running.add(stop)
                if self._closed:
                    stop.set("shutdown")
            begun = time.monotonic()
            try:
                stop.check()
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 - whoever waits for the result gets it; the thread goes on
                future.set_exception(error)
            with self._lock:
                self._running.discard(stop)
                self._seconds += (time.monotonic() - begun - self._seconds) / 8
            del future, stop, call, item

    def close(self, limit_s: float) -> bool:
        """Ends what runs, at its next step, and what waits; true when all threads are gone; may be called again."""
        with self._lock:
            if not self._closed:
                for _ in self._threads:
                    self._calls.put(None)
            self._closed = True
            for stop in self._running:
                stop.set("shutdown")
        until = time.monotonic() + limit_s
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)
