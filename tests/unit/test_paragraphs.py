"""Facts of paragraphs. Lines are 20 px high and 500 px wide unless a test says otherwise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docvino.document import Box
from docvino.text.paragraphs import join_lines, paragraphs


def at(top: float, left: float = 0, right: float = 500, height: float = 20) -> Box:
    return left, top, right, top + height


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (["one line", "and another"], "one line and another"),
        (["文档解析分为", "两个步骤。"], "文档解析分为两个步骤。"),
        (["第一步是", "layout"], "第一步是layout"),
        (["the word", "版面"], "the word版面"),
        (["文本，", "continues"], "文本，continues"),
        (["カタカナの", "テキスト"], "カタカナのテキスト"),
        (["한국어 문장은", "띄어 씁니다"], "한국어 문장은 띄어 씁니다"),
        (["price 5", "6 pieces"], "price 5 6 pieces"),
    ],
)
def test_lines_join_with_a_blank_where_the_script_has_blanks(lines: list[str], text: str) -> None:
    assert join_lines(lines) == text


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (["a docu-", "ment"], "a document"),
        (["a docu\u00ad", "ment"], "a document"),
        (["a docu‐", "ment"], "a document"),
        (["PP-", "OCR"], "PP- OCR"),
        (["North-", "America"], "North- America"),
        (["pages 3-", "7"], "pages 3- 7"),
        (["A-", "level"], "A- level"),
        (["either -", "or"], "either - or"),
        (["-", "or"], "- or"),
        (["docu-", "men-", "tation"], "documentation"),
    ],
)
def test_a_hyphen_is_dropped_only_inside_a_word_of_small_letters(lines: list[str], text: str) -> None:
    assert join_lines(lines) == text


def test_empty_lines_and_blanks_around_lines_leave_no_trace() -> None:
    assert join_lines(["  one ", "", "   ", "\ttwo"]) == "one two"
    assert join_lines([]) == ""
    assert join_lines(["", " "]) == ""


def test_no_lines_are_no_paragraphs() -> None:
    assert paragraphs([]) == []


def test_one_line_is_one_paragraph() -> None:
    assert paragraphs([("alone", at(0))]) == ["alone"]


def test_evenly_spaced_full_lines_are_one_paragraph() -> None:
    assert paragraphs([(f"line {n}", at(30 * n)) for n in range(4)]) == ["line 0 line 1 line 2 line 3"]


def test_a_larger_gap_begins_a_paragraph() -> None:
    lines = [("a", at(0)), ("b", at(30)), ("c", at(60)), ("d", at(60 + 49)), ("e", at(60 + 79))]
    assert paragraphs(lines) == ["a b c", "d e"]


def test_a_gap_of_one_and_a_half_pitches_begins_none() -> None:
    lines = [("a", at(0)), ("b", at(30)), ("c", at(60)), ("d", at(60 + 45)), ("e", at(60 + 75))]
    assert paragraphs(lines) == ["a b c d e"]


def test_an_indented_line_after_a_short_one_begins_a_paragraph() -> None:
    lines = [("a", at(0)), ("b", at(30, right=300)), ("c", at(60, left=40)), ("d", at(90))]
    assert paragraphs(lines) == ["a b", "c d"]


def test_an_indented_line_after_a_full_one_begins_none() -> None:
    lines = [("a", at(0)), ("b", at(30)), ("c", at(60, left=40)), ("d", at(90))]
    assert paragraphs(lines) == ["a b c d"]


def test_a_short_line_before_one_at_the_margin_ends_none() -> None:
    lines = [("a", at(0)), ("b", at(30, right=300)), ("c", at(60)), ("d", at(90))]
    assert paragraphs(lines) == ["a b c d"]


def test_overlapping_lines_make_no_paragraphs_of_their_own() -> None:
    assert paragraphs([(f"{n}", at(8 * n)) for n in range(4)]) == ["0 1 2 3"]


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 100), st.integers(101, 500)), max_size=12))
def test_no_line_is_lost_and_none_changes_its_place(places: list[tuple[int, int, int]]) -> None:
    lines = [(f"w{n}", at(*place)) for n, place in enumerate(places)]
    assert " ".join(paragraphs(lines)).split() == [text for text, _ in lines]


@given(st.lists(st.text(alphabet="aB 中-。한", max_size=6), max_size=8))
def test_joining_keeps_every_character_but_blanks_and_hyphens(lines: list[str]) -> None:
    def bare(text: str) -> str:
        return text.replace(" ", "").replace("-", "")

    joined = join_lines(lines)
    assert bare(joined) == bare("".join(lines))
    assert joined == joined.strip()
