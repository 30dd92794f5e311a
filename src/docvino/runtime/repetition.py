"""Notices that a generator goes in circles. Pure; looks at tokens, not at text, so it can stop a sequence early."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from docvino.errors import ConfigError


@dataclass(frozen=True)
class LoopGuard:
    """When the end of a sequence counts as a loop: the same `period` tokens again and again.

    longest_period   longest unit that is looked for, in tokens; several lines of text
    min_repeats      copies of the unit, at least
    min_tokens       tokens of all copies together, at least: rules of dots, rows of empty cells and other honest
                     repetitions stay below it

    A loop ends a sequence and changes nothing else: text without one is the same with the guard and without.
    """

    longest_period: int = 256
    min_repeats: int = 6
    min_tokens: int = 128

    def __post_init__(self) -> None:
        if self.longest_period < 1 or self.min_repeats < 2 or self.min_tokens < 2:
            raise ConfigError(
                f"a loop of {self.min_repeats} copies, {self.min_tokens} tokens, periods up to {self.longest_period}",
                fix="a loop has 2 copies or more, 2 tokens or more, and a period of 1 or more",
            )


USUAL_LOOPS = LoopGuard()


@dataclass(frozen=True)
class Loop:
    """A loop at the end of a sequence: its first copy begins at token `start` and is `period` tokens long."""

    start: int
    period: int

    @property
    def end_of_first(self) -> int:
        return self.start + self.period


class LoopDetector:
    """Watches one sequence, token by token, for all periods at once."""

    def __init__(self, guard: LoopGuard) -> None:
        self._tokens = np.full(guard.longest_period + 1, -1, np.int64)  # the latest ones, newest first
        self._count = 0
        # For each period: how many tokens at the end equal the one a period before. The first copy equals nothing.
        self._equal = np.zeros(guard.longest_period, np.int64)
        periods = np.arange(1, guard.longest_period + 1)
        self._needed = np.maximum(guard.min_repeats * periods, guard.min_tokens) - periods

    def push(self, token: int) -> Loop | None:
        """Takes the next token; the loop that it completes, the one of the shortest period."""
        recent = self._tokens
        recent[1:] = recent[:-1]
        recent[0] = token
        self._count += 1
        self._equal += 1
        self._equal *= recent[1:] == token
        looping = np.flatnonzero(self._equal >= self._needed)
        if looping.size == 0:
            return None
        period = int(looping[0]) + 1
        return Loop(start=self._count - int(self._equal[looping[0]]) - period, period=period)
