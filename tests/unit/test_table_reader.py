"""The table reader: which readings it tries, and what it keeps. The network is a stand-in that counts dark bands."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from docvino.document import Answer, Crop, Line, box_polygon
from docvino.runtime.stages import ByTask, Clock
from docvino.runtime.tables import TableReader
from docvino.settings import ParseOptions
from docvino.specs.slanet import TABLE

TOKENS = TABLE.facts.tokens
COORDINATES, PROBABILITIES = (contract.name for contract in TABLE.outputs)


class Network:
    """Says for each call the tokens that `say` gives for the picture; every cell is the whole picture."""

    def __init__(self, say: Callable[[np.ndarray], list[str]]) -> None:
        self._say = say
        self.calls = 0

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        self.calls += 1
        tokens = [*self._say(inputs["x"][0, 0]), "eos"]
        probabilities = np.zeros((1, len(tokens), 50), np.float32)
        for step, token in enumerate(tokens):
            probabilities[0, step, TOKENS.index(token)] = 1
        coordinates = np.tile(np.array([0, 0, 1, 0, 1, 1, 0, 1], np.float32), (1, len(tokens), 1))
        return {COORDINATES: coordinates, PROBABILITIES: probabilities}


def rows(*widths: int) -> list[str]:
    return [token for width in widths for token in ("<tr>", *["<td></td>"] * width, "</tr>")]


def bands(picture: np.ndarray) -> int:
    dark = (picture < 0).any(axis=1)
    return int(np.diff(np.concatenate([[False], dark]).astype(int)).clip(0).sum())


def page(count: int) -> np.ndarray:
    pixels = np.full((count * 30 + 30, 900, 3), 255, np.uint8)
    for row in range(count):
        pixels[30 + row * 30 : 45 + row * 30, 30:280] = pixels[30 + row * 30 : 45 + row * 30, 620:870] = 0
    return pixels


def read(network: Network, pixels: np.ndarray) -> Answer:
    reader = TableReader(network, TABLE)  # type: ignore[arg-type]
    (answer,) = reader.read([Crop(pixels, "table", (0,))], ParseOptions(), Clock())
    return answer


def test_a_sound_table_is_read_once() -> None:
    network = Network(lambda _: rows(2, 2))
    answer = read(network, page(2))
    assert network.calls == 1
    assert answer.structure is not None
    assert answer.structure.tokens == tuple(rows(2, 2))
    assert (answer.text, answer.confidence, answer.finish) == ("", 1.0, "stop")


def test_polygons_lie_in_the_crop_where_the_content_lies() -> None:
    structure = read(Network(lambda _: rows(2, 2)), page(2)).structure
    assert structure is not None
    # Print lies from (30, 30) to (870, 75); corners outside of it are moved to its edge.
    assert structure.polygons[0] == ((30, 30), (870, 30), (870, 75), (30, 75))


def test_a_ragged_table_is_tried_with_other_margins_and_the_best_is_kept() -> None:
    answers = iter([rows(3, 2, 3, 3, 3), rows(3, 3, 3, 3, 3)])
    network = Network(lambda _: next(answers))
    structure = read(network, page(5)).structure
    assert network.calls == 2
    assert structure is not None
    assert structure.tokens == tuple(rows(3, 3, 3, 3, 3))


def test_when_no_reading_is_sound_the_least_faulty_is_kept() -> None:
    answers = iter([rows(1, 2, 3), rows(3, 2, 3, 3, 3, 3), rows(1, 2, 3)])
    structure = read(Network(lambda _: next(answers)), page(5)).structure
    assert structure is not None
    assert structure.tokens == tuple(rows(3, 2, 3, 3, 3, 3))


def test_a_table_of_many_rows_is_read_in_strips() -> None:
    network = Network(lambda picture: rows(*[2] * bands(picture)))
    structure = read(network, page(50)).structure
    assert network.calls == 3
    assert structure is not None
    assert structure.tokens.count("<tr>") == 50
    tops = [polygon[0][1] for polygon in structure.polygons]
    assert tops == sorted(tops)
    assert len(set(tops)) == 3


def test_strips_that_do_not_fit_together_are_given_up_for_the_whole() -> None:
    widths = iter([2, 3, 2])
    network = Network(lambda picture: rows(*[2] * 50) if bands(picture) > 20 else rows(*[next(widths)] * 17))
    structure = read(network, page(50)).structure
    assert structure is not None
    assert structure.tokens.count("<tr>") == 50
    assert network.calls == 4


def test_crops_go_to_the_reader_of_their_task_and_answers_come_back_in_order() -> None:
    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

        def read(self, crops: list[Crop], _options: ParseOptions, _clock: Clock) -> list[Answer]:
            line = Line(text=self.name, polygon=box_polygon(0, 0, 1, 1), confidence=1)
            return [Answer(f"{self.name} {crop.regions[0]}", 1.0, (line,)) for crop in crops]

    pixels = np.zeros((1, 1, 3), np.uint8)
    crops = [Crop(pixels, task, (index,)) for index, task in enumerate(("table", "ocr", "table"))]
    reader = ByTask({"ocr": Named("line"), "table": Named("table")})
    answers = reader.read(crops, ParseOptions(), Clock())
    assert [answer.text for answer in answers] == ["table 0", "line 1", "table 2"]
