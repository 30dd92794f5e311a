"""Documents are decoded in a child process: what a hostile one breaks is that process, and costs one page.

    Renderer.open(bytes) -> InputDocument, whose pages the child decodes

The child has a memory limit, each page a time limit. When the child ends, the page it worked on is an InputError; the
next page gets a new child.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

import numpy as np

from docvino.document import PageImage, Point, Source
from docvino.errors import InputError
from docvino.inputs import InputDocument
from docvino.process import ended
from docvino.serve.frames import BrokenFrameError, receive, send
from docvino.settings import ParseOptions

_START_LIMIT_S = 60.0  # added to the limit of what a new child is asked first
_RECYCLE_AFTER = 500  # pages: what decoders leave behind goes with their process
_NONSENSE = (LookupError, TypeError, ValueError)  # what an answer raises that is not as it should be
_KEPT = ("PATH", "SYSTEMROOT", "TEMP", "TMP", "LANG", "LC_ALL", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH")


class _Child:
    """One decoding process."""

    def __init__(self, memory_mib: int) -> None:
        self.pages = 0
        self.is_new = True
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "docvino.serve.render_child", str(memory_mib)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**environment, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
            start_new_session=sys.platform != "win32",  # Ctrl-C is for the service, which then ends it in order
        )

    def ask(
        self, header: dict[str, Any], payload: bytes, limit_s: float, most_bytes: int
    ) -> tuple[dict[str, Any], bytearray]:
        """Raises: _DiedError."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        late = threading.Event()

        def stop() -> None:
            late.set()
            self.process.kill()

        timer = threading.Timer(limit_s + (_START_LIMIT_S if self.is_new else 0.0), stop)
        timer.daemon = True
        timer.start()
        try:
            send(self.process.stdin, header, payload)  # type: ignore[arg-type]
            answer = receive(self.process.stdout, most_bytes)  # type: ignore[arg-type]
        except (OSError, BrokenFrameError) as error:
            self.end()
            raise _DiedError(ended(None if late.is_set() else self.process.returncode, limit_s)) from error
        finally:
            timer.cancel()
        self.is_new = False
        return answer

    def end(self) -> None:
        with contextlib.suppress(OSError):
            self.process.kill()
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()
        self.process.wait()


class _DiedError(Exception):
    """In words, how the child ended."""


class Renderer:
    """Owns the decoding process; threads may share it and take turns.

    on_death   told each time the process did not end by our wish
    """

    def __init__(self, memory_mib: int, limit_s: float, on_death: Callable[[], None] = lambda: None) -> None:
        self._memory_mib, self._limit_s, self._on_death = memory_mib, limit_s, on_death
        self._lock = threading.Lock()
        self._child: _Child | None = None
        self._generation = 0
        self._numbers = itertools.count()

    def open(self, data: bytes, name: str, options: ParseOptions) -> InputDocument:
        """As `inputs.open_document`.

        Raises: InputError.
        """
        return _ChildDocument(self, next(self._numbers), data, name, options)

    def ask(
        self, header: dict[str, Any], payload: bytes, what: str, most_bytes: int = 0, generation: int | None = None
    ) -> tuple[dict[str, Any], bytearray, int] | None:
        """The child's answer, and which child it was; None when it is no longer the one of `generation`.

        Raises: InputError when the child says so, or dies of it.
        """
        with self._lock:
            if self._child is not None and self._child.process.poll() is not None:
                self._drop()  # it died between two questions
            if generation is not None and (self._child is None or generation != self._generation):
                return None
            if self._child is None:
                self._child = _Child(self._memory_mib)
                self._generation += 1
            try:
                answer, data = self._child.ask(header, payload, self._limit_s, most_bytes)
            except _DiedError as error:
                self._drop()
                self._on_death()
                raise InputError(
                    f"{what}: decoding it {error}", fix="leave it out, or save the document anew with another program"
                ) from error
            number = self._generation
            self._child.pages += header["do"] == "page"
            if self._child.pages >= _RECYCLE_AFTER:
                self._drop()
        if "error" in answer:
            raise InputError(str(answer["error"]), fix=str(answer.get("fix", "")))
        return answer, data, number

    def _drop(self) -> None:
        if self._child is not None:
            self._child.end()
            self._child = None

    @property
    def pid(self) -> int | None:
        """Of the child that works, for those who watch it."""
        child = self._child
        return None if child is None else child.process.pid

    def close(self) -> None:
        with self._lock:
            self._drop()

    def __enter__(self) -> Renderer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _ChildDocument(InputDocument):
    """A document that is open in the child; in a new one it is opened again."""

    def __init__(self, renderer: Renderer, number: int, data: bytes, name: str, options: ParseOptions) -> None:
        self._renderer, self._number, self._data, self._name = renderer, number, data, name
        self._most_bytes = 3 * options.max_pixels
        self._own = {"dpi": options.dpi, "max_pixels": options.max_pixels, "password": options.password}
        self._generation = 0
        answer = self._open()
        try:
            source, page_count = Source.model_validate(answer["source"]), int(answer["page_count"])
        except _NONSENSE as error:
            raise self._nonsense(name) from error
        super().__init__(source, page_count, options)

    def _open(self) -> dict[str, Any]:
        header = {"do": "open", "document": self._number, "name": self._name, "options": self._own}
        got = self._renderer.ask(header, self._data, self._name)
        assert got is not None
        answer, _, self._generation = got
        return answer

    def _ask(self, header: dict[str, Any], most_bytes: int) -> tuple[dict[str, Any], bytearray]:
        header = {**header, "document": self._number}
        what = f"page {header['index'] + 1} of {self._name}"
        for _ in range(3):
            got = self._renderer.ask(header, b"", what, most_bytes, self._generation)
            if got is not None:
                return got[0], got[1]
            self._open()
        raise InputError(f"{what}: the decoding process was replaced three times", fix="send it again")

    def _read(self, index: int) -> PageImage:
        facts, data = self._ask({"do": "page", "index": index}, self._most_bytes)
        try:
            pixels = np.frombuffer(data, np.uint8).reshape(int(facts["height"]), int(facts["width"]), 3)
            pixels.flags.writeable = False
            dpi, box = facts["dpi"], facts["source_box"]
            return PageImage(
                index=index,
                pixels=pixels,
                dpi=None if dpi is None else float(dpi),
                source_box=None if box is None else (float(box[0]), float(box[1]), float(box[2]), float(box[3])),
                warnings=tuple(map(str, facts["warnings"])),
            )
        except _NONSENSE as error:
            raise self._nonsense(f"page {index + 1} of {self._name}") from error

    def text_points(self, index: int) -> tuple[Point, ...]:
        self._check_open()
        facts, _ = self._ask({"do": "points", "index": index}, 0)
        try:
            return tuple((float(x), float(y)) for x, y in facts["points"])
        except _NONSENSE as error:
            raise self._nonsense(f"page {index + 1} of {self._name}") from error

    @staticmethod
    def _nonsense(what: str) -> InputError:
        return InputError(f"{what}: the decoding process answered nonsense", fix="save the document anew and send that")

    def close(self) -> None:
        if not self._closed:
            super().close()
            with contextlib.suppress(InputError):
                self._renderer.ask(
                    {"do": "close", "document": self._number}, b"", self._name, generation=self._generation
                )
            self._data = b""
