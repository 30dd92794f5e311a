"""Answers with places become lines; a text without a sound place is not lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docvino.document import Line
from docvino.text import spotting
from docvino.text.spotting import Spotted

BOX = (100, 200, 300, 200, 300, 250, 100, 250)
BELOW = (0, 500, 1000, 500, 1000, 1000, 0, 1000)


def at(*numbers: int) -> str:
    return "".join(f"<|LOC_{number}|>" for number in numbers)


def marked(text: str) -> str:
    return f"<|TEXT_START|>{text}<|TEXT_END|>"


def placed(*numbers: int) -> str:
    return f"<|LOC_BEGIN|>{at(*numbers)}<|LOC_END|>"


def parse(text: str) -> Spotted:
    return spotting.parse(text, 2000, 400, confidence=0.75)


FIRST = Line(text="Hello", polygon=((200.0, 80.0), (600.0, 80.0), (600.0, 100.0), (200.0, 100.0)), confidence=0.75)
SECOND = Line(text="世界 2", polygon=((0.0, 200.0), (2000.0, 200.0), (2000.0, 400.0), (0.0, 400.0)), confidence=0.75)


@pytest.mark.parametrize(
    "text",
    [
        "Hello" + at(*BOX) + "世界 2" + at(*BELOW),
        "Hello" + at(*BOX) + "\n世界 2 " + at(*BELOW) + "</s>",
        marked("Hello") + placed(*BOX) + marked(" 世界 2") + placed(*BELOW),
        placed(*BOX) + marked("Hello") + placed(*BELOW) + marked("世界 2"),
        marked("Hello") + "<|LOC_BEGIN|>" + "<|LOC_SEP|>".join(at(n) for n in BOX) + "<|LOC_END|>世界 2" + at(*BELOW),
    ],
    ids=["bare", "bare with line feeds and an end", "marked", "marked, places first", "with separators"],
)
def test_texts_and_places_become_lines_in_crop_pixels(text: str) -> None:
    assert parse(text) == Spotted(("Hello", "世界 2"), (FIRST, SECOND))


def test_texts_without_any_place_are_kept() -> None:
    assert parse("Hello world") == Spotted(("Hello world",), (), ("texts without a place: 1",))
    assert parse(marked("a") + marked("b")) == Spotted(("a", "b"), (), ("texts without a place: 2",))


def test_nothing_is_nothing() -> None:
    assert parse("") == parse("</s>") == parse(marked("") + "<|LOC_BEGIN|>") == Spotted((), ())


def test_a_missing_place_does_not_move_the_others_where_upstream_moves_them() -> None:
    found = parse(marked("lost") + marked("Hello") + placed(*BOX))
    assert found == Spotted(("lost", "Hello"), (FIRST,), ("texts without a place: 1",))


@pytest.mark.parametrize("numbers", [BOX[:7], BOX[:4], (*BOX[:7], 1001)], ids=["seven", "four", "off the scale"])
def test_a_place_that_is_not_four_corners_leaves_its_text_without_one(numbers: tuple[int, ...]) -> None:
    found = parse("cut" + at(*numbers) + "Hello" + at(*BOX))
    assert found == Spotted(("cut", "Hello"), (FIRST,), ("texts whose place is not four corners: 1",))


def test_an_answer_cut_off_inside_a_place_keeps_its_text() -> None:
    found = parse("Hello" + at(*BOX) + "end" + at(1, 2, 3))
    assert found.texts == ("Hello", "end")
    assert found.lines == (FIRST,)


def test_a_place_without_text_is_counted() -> None:
    found = parse("Hello" + at(*BOX) + at(*BELOW))
    assert found == Spotted(("Hello",), (FIRST,), ("places without a text: 1",))


@given(
    st.lists(st.one_of(st.integers(0, 1200).map(at), st.just(placed(*BOX)), st.text("ab|<>", max_size=3).map(marked)))
)
def test_no_letter_is_lost_whatever_is_mixed(pieces: list[str]) -> None:
    letters = "".join(
        piece.removeprefix("<|TEXT_START|>").removesuffix("<|TEXT_END|>") for piece in pieces if "TEXT" in piece
    )
    found = parse("".join(pieces))
    assert "".join("".join(found.texts).split()) == letters
    assert {line.text for line in found.lines} <= set(found.texts)
