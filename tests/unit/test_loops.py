"""Loops are cut to one copy, and nothing else is touched."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docvino.text import loops
from docvino.text.loops import cut


def upstream(text: str, least: int = 50) -> str:
    """The rules of upstream, written down as they are described, for comparison."""
    whole = text.strip()
    if len(text) < least or not whole:
        return text
    if "\n" not in whole:
        if len(whole) > 100:
            for length in range(len(whole) // 5, 7, -1):
                unit = whole[-length:]
                if whole.endswith(unit * 5):
                    before, count = whole, 0
                    while before.endswith(unit):
                        before, count = before[:-length], count + 1
                    if 2 * count * length > len(whole):
                        return before
                    break
        if len(whole) > 10:
            units = (whole[:length] for length in range(1, len(whole) // 10 + 1) if len(whole) % length == 0)
            if unit := next((unit for unit in units if unit * (len(whole) // len(unit)) == whole), ""):
                return unit
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    if len(lines) >= 10:
        line, count = Counter(lines).most_common(1)[0]
        if count >= 10 and count >= 0.8 * len(lines):
            return line
    return text


# text: what upstream makes of it, what docvino makes of it
GOLDEN = {
    "ab" * 40: ("ab", "ab"),
    "a" * 200: ("", "a"),
    "Hello world. " + "spam egg " * 40: ("Hello world.", "Hello world. spam egg"),
    "x\n" * 60: ("x", "x"),
}


@pytest.mark.parametrize("text", GOLDEN, ids=["ab", "a", "spam egg", "lines"])
def test_a_golden_vector_keeps_one_copy_where_upstream_may_keep_none(text: str) -> None:
    theirs, ours = GOLDEN[text]
    assert upstream(text) == theirs
    assert cut(text) == (ours, True)


def test_a_short_text_is_left_alone() -> None:
    assert upstream("short " * 5) == "short " * 5
    assert cut("short " * 5) == ("short " * 5, False)
    assert cut("") == ("", False)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("123456789012" * 30, "123456789012"),
        ("No. " + "123456789012" * 30 + "1234", "No. 123456789012"),
        ("7" * 300, "7"),
        ("Fees\n" + "rent 5\nfood 6\n" * 12, "Fees\nrent 5\nfood 6"),
        ("word " * 100 + "and so on " * 30, "word " * 100 + "and so on"),
    ],
    ids=["12 digits", "12 digits after text", "one digit", "two lines", "less than half"],
)
def test_a_loop_is_cut_to_its_first_copy(text: str, kept: str) -> None:
    assert cut(text)[1]
    assert cut(text)[0] == kept


def test_a_loop_after_long_sound_text_is_cut_although_it_is_the_smaller_part() -> None:
    sound = " ".join(f"word{number}" for number in range(200))
    text = sound + " " + "0123456789ab " * 20
    assert upstream(text) == text
    assert cut(text) == (sound + " 0123456789ab", True)


def test_other_lines_are_kept_beside_a_repeated_one_where_upstream_drops_them() -> None:
    text = "Total 512\n" + "\n".join("same line" if number % 7 else f"row {number}" for number in range(40))
    assert upstream(text) == "same line"
    assert cut(text) == ("Total 512\nrow 0\nsame line\nrow 7\nrow 14\nrow 21\nrow 28\nrow 35", True)


def test_rows_of_a_table_may_repeat_until_they_are_a_loop() -> None:
    row = "<ecel><ecel><ecel><nl>"
    form = "<fcel>Name<fcel>Date<fcel>Sum<nl>" + row * 60
    assert cut(form, table=True) == (form, False)
    assert cut(form + row * 300, table=True) == ("<fcel>Name<fcel>Date<fcel>Sum<nl><ecel><ecel><ecel>", True)


@pytest.mark.parametrize(
    "text",
    [
        "111111111111",
        "Tel. 0000 0000 0000, fax 0000 0000 0000, and the number of the account is 1111 1111 1111 1111",
        "Contents\n" + "\n".join(f"Chapter {number} ........................ {number * 7}" for number in range(30)),
        "\n".join(f"{number} | 0.00 | 0.00 | 0.00 | 0.00" for number in range(40)),
        "Signature: " + "_" * 60 + " Date: " + "_" * 30,
        " ".join(f"word{number}" for number in range(60)) + ": " + "_" * 250,
        "He said no, no, no, no, no, and then he said it once more: no, no, no, no.",
    ],
    ids=["twelve ones", "numbers", "leaders", "zeros", "form", "long form", "no, no"],
)
def test_honest_repetition_is_left_alone(text: str) -> None:
    assert cut(text) == (text, False)


@given(st.permutations([f"w{number}" for number in range(40)]), st.sampled_from([" ", "\n", "\n\n"]))
def test_a_text_without_a_loop_comes_back_as_it_is(words: list[str], between: str) -> None:
    text = f" {between.join(words)} \n"
    assert cut(text) == (text, False)


units = st.text(st.sampled_from("ab \n"), min_size=1, max_size=15).filter(lambda unit: unit == unit.strip())


@given(st.text(st.sampled_from("abc \n"), max_size=80), units, st.integers(1, 60))
def test_where_upstream_cuts_docvino_cuts_too_and_keeps_the_begin(before: str, unit: str, count: int) -> None:
    text = before + unit * count
    found, was_cut = cut(text)
    if upstream(text) != text:
        assert was_cut
        assert found
    if not was_cut:
        assert found == text
    assert set("".join(found.split())) == set("".join(text.split()))  # no letter vanishes with its last copy


@given(st.text(st.sampled_from("ab\n"), min_size=1, max_size=30))
def test_equal_tails_are_counted_right(text: str) -> None:
    for period, equal in enumerate(loops._equal_tails(text)):
        if period:
            slow = 0
            while slow + period < len(text) and text[-1 - slow] == text[-1 - slow - period]:
                slow += 1
            assert equal == slow


def test_the_longest_answers_take_no_time() -> None:
    started = time.process_time()
    cut("ab" * 20_000 + "c", table=True)
    cut("a" * 40_000 + "b" * 9)
    assert time.process_time() - started < 1
