"""Crops of many callers in one engine: each gets its own answers, the same as alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from docvino.document import Answer, Crop
from docvino.errors import InferenceError
from docvino.runtime.shared import SharedReader
from docvino.runtime.stages import Clock
from docvino.runtime.vlm import Asked
from docvino.settings import ParseOptions


class StreamReader:
    """Holds up to four crops at a time and says their mean grey, the last one first."""

    def __init__(self) -> None:
        self.most_at_once = self.streams = 0
        self.owners_at_once = 0
        self.gate = threading.Event()
        self.gate.set()

    def read_stream(self, asked: Iterable[Asked[Any] | None], answered: Callable[[Any, Answer], None]) -> None:
        self.streams += 1
        held: list[Asked[Any]] = []
        source, more = iter(asked), True
        while more or held:
            while more and len(held) < 4:
                try:
                    one = next(source)
                except StopIteration:
                    more = False
                    break
                if one is None:
                    break
                if one.crop.pixels[0, 0, 0] == 13:
                    raise InferenceError("the device is gone", fix="none")
                if one.crop.pixels[0, 0, 0] == 14:
                    raise RuntimeError("a bug")
                one.took(1.0)
                held.append(one)
            self.most_at_once = max(self.most_at_once, len(held))
            self.owners_at_once = max(self.owners_at_once, len({id(one.key[0]) for one in held}))
            assert self.gate.wait(10)
            if held:
                one = held.pop()
                grey = int(one.crop.pixels.mean())
                cancelled = one.cancel is not None and one.cancel.is_set()
                answered(one.key, Answer(str(grey), 1.0, finish="cancelled" if cancelled else "stop"))


def crops(*greys: int) -> list[Crop]:
    return [Crop(np.full((4, 4, 3), grey, np.uint8), "ocr", ()) for grey in greys]


def texts(reader: SharedReader, *greys: int, clock: Clock | None = None) -> list[str]:
    return [answer.text for answer in reader.read(crops(*greys), ParseOptions(), clock or Clock())]


def test_many_callers_get_their_own_answers_in_their_order() -> None:
    stream = StreamReader()
    reader = SharedReader(stream)  # type: ignore[arg-type]
    with ThreadPoolExecutor(8) as pool:
        asked = [[20 + (7 * call + place) % 200 for place in range(1 + call % 6)] for call in range(60)]
        found = list(pool.map(lambda greys: texts(reader, *greys), asked))
    assert found == [[str(grey) for grey in greys] for greys in asked]
    assert texts(reader) == []
    reader.close()


def test_crops_of_several_callers_are_in_the_engine_at_once() -> None:
    stream = StreamReader()
    stream.gate.clear()
    reader = SharedReader(stream)  # type: ignore[arg-type]
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(texts, reader, grey) for grey in (21, 22, 23, 24)]
        # The first are in the engine, which waits at the gate; the others queue behind it.
        while len(reader._waiting) + stream.most_at_once < 4:
            assert not any(one.done() for one in waiting)
        stream.gate.set()
        assert [one.result(20) for one in waiting] == [["21"], ["22"], ["23"], ["24"]]
    assert stream.owners_at_once >= 3
    reader.close()


def test_a_caller_that_gives_up_disturbs_nobody() -> None:
    stream = StreamReader()
    stream.gate.clear()
    reader = SharedReader(stream)  # type: ignore[arg-type]

    def stop(_done: int, _total: int) -> None:
        raise TimeoutError

    with ThreadPoolExecutor(2) as pool:
        leaving = pool.submit(texts, reader, *range(30, 50), clock=Clock(stop))
        with pytest.raises(TimeoutError):
            leaving.result(20)
        staying = pool.submit(texts, reader, 90, 91)
        stream.gate.set()
        assert staying.result(20) == ["90", "91"]
    assert texts(reader, 92) == ["92"]
    reader.close()


@pytest.mark.parametrize("grey", [13, 14])
def test_a_failure_is_told_to_those_it_hit_and_the_next_are_read(grey: int) -> None:
    reader = SharedReader(StreamReader())  # type: ignore[arg-type]
    with pytest.raises(InferenceError):
        texts(reader, 50, grey, 51)
    assert texts(reader, 52) == ["52"]
    reader.close()
    with pytest.raises(InferenceError, match="closed"):
        texts(reader, 53)


def test_the_time_of_image_tokens_is_told_apart() -> None:
    reader = SharedReader(StreamReader())  # type: ignore[arg-type]
    clock = Clock()
    texts(reader, 60, 61, clock=clock)
    assert clock.ms["vision"] == 2.0
    reader.close()
