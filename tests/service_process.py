"""A real `docvino serve` in a process of its own, with the small model that comes with docvino."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from PIL import Image, ImageDraw, ImageFont

from docvino.bundle import bundle_folder
from docvino.convert.vlm import convert_vlm
from docvino.specs import nano
from models import MODELS

START_LIMIT_S = 120.0
KEY = "the key of the tests"


def converted() -> Path:
    """A data folder with nano in it."""
    folder = bundle_folder(MODELS, "nano", "fp32")
    if not folder.exists():
        convert_vlm(nano.FOLDER, folder, "fp32")
    return folder


@dataclass
class Running:
    process: subprocess.Popen[str]
    client: httpx.Client
    said: list[str]

    @property
    def url(self) -> str:
        return str(self.client.base_url)

    def kill(self) -> None:
        """As a power cut would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(20)


@contextmanager
def serving(data_dir: Path, *arguments: object, **environment: str) -> Iterator[Running]:
    """A service that keeps its jobs in `data_dir`, as long as the block runs."""
    link = data_dir / "bundles" / "nano-fp32"
    if not link.exists():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(converted())
    process = subprocess.Popen(
        [sys.executable, "-m", "docvino", "serve", "--preset", "nano", "--port", "0", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "DOCVINO_DATA_DIR": str(data_dir),
            "DOCVINO_CACHE_DIR": str(MODELS / "cache"),
            "PYTHONUTF8": "1",
            **environment,
        },
    )
    said: list[str] = []
    assert process.stderr is not None
    stream = process.stderr
    listener = threading.Thread(target=lambda: said.extend(stream), daemon=True)
    listener.start()
    try:
        until = time.monotonic() + START_LIMIT_S
        while not (found := re.search(r"docvino serves at (\S+)", "".join(said))):
            assert process.poll() is None, "".join(said)
            assert time.monotonic() < until, "it did not start: " + "".join(said)
            time.sleep(0.05)
        with httpx.Client(base_url=found[1], timeout=120) as client:
            yield Running(process, client, said)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(20)
        listener.join(20)
        stream.close()


def words(number: int) -> Image.Image:
    """A small page with one line of its own."""
    image = Image.new("RGB", (420, 80), "white")
    ImageDraw.Draw(image).text((20, 20), f"Page number {number:03d}", "black", ImageFont.load_default(32))
    return image


def png(number: int) -> bytes:
    stream = io.BytesIO()
    words(number).save(stream, "PNG")
    return stream.getvalue()


def pdf(pages: int) -> bytes:
    first, *others = [words(number) for number in range(1, pages + 1)]
    stream = io.BytesIO()
    first.save(stream, "PDF", save_all=True, append_images=others, resolution=144)
    return stream.getvalue()
