"""The child process that decodes documents."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from docvino.errors import InputError
from docvino.inputs import open_document
from docvino.serve.frames import BrokenFrameError, receive, send
from docvino.serve.rendering import Renderer
from docvino.settings import ParseOptions
from serving import grey_pdf, grey_png, until

linux = pytest.mark.skipif(sys.platform != "linux", reason="signals and limits as Linux has them")


@pytest.fixture(scope="module")
def renderer() -> Iterator[Renderer]:
    with Renderer(1024, 30.0) as one:
        yield one


def test_pages_are_those_that_are_decoded_here(renderer: Renderer) -> None:
    options = ParseOptions(dpi=96, pages="2-3")
    for data in (grey_pdf(10, 100, 200), grey_pdf(1, 2, 3, size=200)):
        with renderer.open(data, "a.pdf", options) as there, open_document(data, "a.pdf", options) as here:
            assert (there.source, there.page_indices, there.data) == (here.source, here.page_indices, data)
            for index in here.page_indices:
                ours, theirs = here.page(index), there.page(index)
                assert np.array_equal(ours.pixels, theirs.pixels)
                assert not theirs.pixels.flags.writeable
                assert (ours.dpi, ours.source_box, ours.warnings) == (theirs.dpi, theirs.source_box, theirs.warnings)
                assert here.text_points(index) == there.text_points(index)


def test_errors_of_documents_come_back_as_they_are(renderer: Renderer) -> None:
    with pytest.raises(InputError, match="not a document"):
        renderer.open(b"nothing", "a", ParseOptions())
    with pytest.raises(InputError, match="no page 9"):
        renderer.open(grey_pdf(1), "a", ParseOptions(pages="9"))
    with pytest.raises(InputError, match="more than the limit"):
        renderer.open(grey_png(1, side=200), "a", ParseOptions(max_pixels=100))


@linux
def test_what_kills_the_child_costs_one_page_and_other_documents_nothing() -> None:
    deaths = []
    with Renderer(1024, 30.0, lambda: deaths.append(1)) as renderer:
        one = renderer.open(grey_pdf(10, 20), "one.pdf", ParseOptions())
        other = renderer.open(grey_png(30), "other.png", ParseOptions())
        assert renderer.pid is not None
        os.kill(renderer.pid, signal.SIGSTOP)  # so that it dies with a page asked for
        threading.Timer(0.2, os.kill, (renderer.pid, signal.SIGKILL)).start()
        with pytest.raises(InputError, match=r"page 1 of one\.pdf: decoding it was ended by SIGKILL"):
            one.page(0)
        assert one.page(1).pixels.mean() == pytest.approx(20, abs=1)
        assert other.page(0).pixels.mean() == 30
        assert deaths == [1]


@linux
def test_a_page_that_takes_too_long_is_given_up() -> None:
    with Renderer(1024, 0.5) as renderer:
        one = renderer.open(grey_pdf(10, 20), "one.pdf", ParseOptions())
        assert renderer.pid is not None
        os.kill(renderer.pid, signal.SIGSTOP)
        with pytest.raises(InputError, match=r"did not finish within 0\.5 s"):
            one.page(0)
        assert one.page(1).width_px == 144


@linux
def test_a_page_cannot_have_more_memory_than_the_child() -> None:
    with Renderer(256, 30.0) as renderer:
        vast = renderer.open(grey_pdf(10, size=14_000), "vast.pdf", ParseOptions(dpi=72))
        with pytest.raises(InputError):
            vast.page(0)  # 588 MB of pixels
        assert renderer.open(grey_png(7), "a.png", ParseOptions()).page(0).pixels.mean() == 7


@linux
def test_the_child_ends_with_the_service() -> None:
    renderer = Renderer(1024, 30.0)
    renderer.open(grey_png(1), "a.png", ParseOptions())
    pid = renderer.pid
    assert pid is not None
    renderer.close()
    until(lambda: not os.path.exists(f"/proc/{pid}"))  # noqa: PTH110


def test_frames_are_refused_that_say_nonsense() -> None:
    stream = io.BytesIO()
    send(stream, {"a": 1}, b"xyz")
    whole = stream.getvalue()
    assert receive(io.BytesIO(whole), 3) == ({"a": 1, "bytes": 3}, bytearray(b"xyz"))
    bad = [whole[:-1], b"", b"\xff" * 8, b"\0\0\0\2[]", b"\0\0\0\1{", b'\0\0\0\x0c{"bytes":-1}']
    for frame in bad:
        with pytest.raises(BrokenFrameError):
            receive(io.BytesIO(frame), 3)
    with pytest.raises(BrokenFrameError, match="the most"):
        receive(io.BytesIO(whole), 2)
