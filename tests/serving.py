"""The service for tests: the real one around a reader that says what it is shown, and waits when it is told to."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image
from reportlab.pdfgen.canvas import Canvas
from starlette.testclient import TestClient

from docvino.document import Answer, Crop
from docvino.parser import Parser, Stages
from docvino.runtime.crops import whole
from docvino.runtime.stages import Clock
from docvino.serve.app import build_app
from docvino.serve.service import Service
from docvino.settings import ParseOptions, RuntimeConfig, ServeConfig, Settings
from docvino.text.elements import element_blocks

KEY = "a key of the tests"


@dataclass
class SayingReader:
    """Says the mean grey of what it is shown. `gate` closed: it waits in the middle of a page."""

    gate: threading.Event = field(default_factory=threading.Event)
    begun: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    pages: int = 0

    def read(self, crops: Sequence[Crop], _options: ParseOptions, clock: Clock) -> list[Answer]:
        self.begun.release()
        self.pages += 1
        until = time.monotonic() + 30
        while not self.gate.wait(0.005):
            assert time.monotonic() < until, "nobody opened the gate"
            clock.watch(1, 2)
        return [Answer(f"grey {round(float(crop.pixels.mean()))}", 0.9, prompt_tokens=3, tokens=2) for crop in crops]


def parser(reader: SayingReader, data_dir: Path) -> Parser:
    stages = Stages(
        orientation=None,
        layout=None,
        reader=reader,
        tasks=("ocr", "table"),
        cut=lambda page, _, options: whole(page, options.task),
        assemble=lambda reading: element_blocks(*reading.parts),
        models=(),
        warm=lambda: 0,
        elements=("ocr", "table"),
    )
    return Parser(RuntimeConfig(preset="saying", data_dir=data_dir), stages)


@dataclass
class Served:
    service: Service
    client: TestClient
    reader: SayingReader


@contextmanager
def served(folder: Path, *, gate: bool = True, options: ParseOptions | None = None, **config: Any) -> Iterator[Served]:
    """A service in `folder` and a client of it that has the key; `gate` is open or not."""
    reader = SayingReader()
    if gate:
        reader.gate.set()
    own = parser(reader, folder)
    config.setdefault("api_key", KEY)
    settings = Settings(own.runtime, options or ParseOptions(), ServeConfig(**config), {})
    with Service.open(own, settings) as service:
        headers = {"X-API-Key": KEY} if config["api_key"] else {}
        client = TestClient(build_app(service), base_url="http://localhost", headers=headers)
        try:
            yield Served(service, client, reader)
        finally:
            reader.gate.set()


def grey_pdf(*greys: int, size: int = 72) -> bytes:
    """A PDF of small pages, each of one grey."""
    stream = io.BytesIO()
    canvas = Canvas(stream, pagesize=(size, size))
    for grey in greys:
        canvas.setFillGray(grey / 255)
        canvas.rect(0, 0, size, size, stroke=0, fill=1)
        canvas.showPage()
    canvas.save()
    return stream.getvalue()


def grey_png(grey: int, side: int = 20) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (side, side), (grey,) * 3).save(stream, "PNG")
    return stream.getvalue()


def until(done: Any, limit_s: float = 20.0) -> Any:
    """What `done` gives when it is something."""
    end = time.monotonic() + limit_s
    while not (value := done()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)
    return value
