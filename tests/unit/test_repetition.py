"""Loops are found, honest repetitions are not, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from docvino.errors import ConfigError
from docvino.runtime.repetition import USUAL_LOOPS, Loop, LoopDetector, LoopGuard


def first_loop(tokens: list[int], guard: LoopGuard = USUAL_LOOPS) -> tuple[int, Loop] | None:
    """After how many tokens a loop was found, and which."""
    detector = LoopDetector(guard)
    for count, token in enumerate(tokens, start=1):
        if (loop := detector.push(token)) is not None:
            return count, loop
    return None


def is_loop(tokens: list[int], guard: LoopGuard) -> int | None:
    """The shortest period with which the end of `tokens` repeats often enough, found the slow way."""
    for period in range(1, guard.longest_period + 1):
        span = max(guard.min_repeats * period, guard.min_tokens)
        if len(tokens) >= span and all(tokens[-i] == tokens[-i - period] for i in range(1, span - period + 1)):
            return period
    return None


@pytest.mark.parametrize("period", [1, 2, 7, 21, 60, 200, 256])
def test_a_loop_is_found_as_soon_as_it_is_one(period: int) -> None:
    unit = list(range(1000, 1000 + period))
    text = [5, 6, 7, 8, 9]
    span = max(6 * period, 128)
    assert first_loop(text + unit * 300) == (5 + span, Loop(5, period))


def test_a_loop_over_several_lines_is_found() -> None:
    lines = [11, 12, 13, 10, 21, 22, 23, 24, 10, 31, 32, 10]  # 10 is the line feed
    found = first_loop([1, 2, 3] + lines * 20)
    assert found is not None
    assert found[1] == Loop(3, len(lines))


def test_a_unit_longer_than_the_window_is_no_loop() -> None:
    assert first_loop(list(range(257)) * 8) is None


@pytest.mark.parametrize(
    "honest",
    [
        [7] * 127,  # dots of a table of contents
        [1, 1, 1, 1, 9] * 25,  # empty rows of a form
        [*range(40)] * 5,  # five equal addresses
        [n for row in range(500) for n in (50, row, 51)],  # a column that counts
    ],
)
def test_honest_repetitions_are_no_loop(honest: list[int]) -> None:
    assert first_loop(honest) is None


@given(
    st.lists(st.integers(0, 2), max_size=60),
    st.lists(st.integers(0, 2), min_size=1, max_size=6),
    st.integers(0, 12),
    st.integers(2, 5),
    st.integers(2, 24),
)
def test_the_quick_way_finds_what_the_slow_way_finds(
    text: list[int], unit: list[int], copies: int, repeats: int, tokens: int
) -> None:
    guard = LoopGuard(longest_period=8, min_repeats=repeats, min_tokens=tokens)
    whole = text + unit * copies
    slow = next((n for n in range(1, len(whole) + 1) if is_loop(whole[:n], guard)), None)
    found = first_loop(whole, guard)
    assert (found[0] if found else None) == slow
    if found:
        assert found[1].period == is_loop(whole[: found[0]], guard)
        assert found[1].end_of_first <= found[0]


def test_text_without_loops_passes() -> None:
    detector = LoopDetector(USUAL_LOOPS)
    for token in np.random.default_rng(0).integers(0, 1000, 5000).tolist():
        assert detector.push(token) is None


@pytest.mark.parametrize("bad", [{"longest_period": 0}, {"min_repeats": 1}, {"min_tokens": 1}])
def test_guards_that_make_no_sense(bad: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="a loop of"):
        LoopGuard(**bad)
