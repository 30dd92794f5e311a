"""From logits to a token and its probability. Pure; each row by itself, so no row depends on its neighbours."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from docvino.errors import ConfigError


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen.

    temperature   0: always the likeliest, the first of equals; above: drawn, the higher the wilder
    top_p         draw from the likeliest tokens that together have this probability
    seed          of the draws of one request
    """

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ConfigError(f"temperature is {self.temperature}", fix="give a temperature of 0 or more")
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p is {self.top_p}", fix="give a top_p above 0 and up to 1")
        if self.seed < 0:
            raise ConfigError(f"seed is {self.seed}", fix="give a seed of 0 or more")


GREEDY = Sampling()


class Sampler:
    """Chooses the tokens of one sequence."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._random = np.random.default_rng(sampling.seed)

    def choose(self, logits: NDArray[np.float32], scratch: NDArray[np.float32]) -> tuple[int, float] | None:
        """Logits float32 (V,) -> token and its log-probability at temperature 1; None when a logit is not finite.

        scratch   float32 (V,) that is overwritten: 100,000 numbers a token are not allocated anew
        """
        with np.errstate(invalid="ignore", over="ignore"):
            if not math.isfinite(logits.sum()):  # a sum is not finite when any term is not
                return None
        best = int(logits.argmax())
        highest = float(logits[best])
        np.subtract(logits, logits[best], out=scratch)
        np.exp(scratch, out=scratch)
        total = float(scratch.sum())  # of float32 with pairwise summation; at least 1
        token = best if self._sampling.temperature == 0 else self._draw(logits, highest)
        return token, float(logits[token]) - highest - math.log(total)

    def _draw(self, logits: NDArray[np.float32], highest: float) -> int:
        weights = np.exp((logits.astype(np.float64) - highest) / self._sampling.temperature)
        order = np.argsort(-weights, kind="stable")
        mass = np.cumsum(weights[order])
        last = min(int(np.searchsorted(mass, self._sampling.top_p * mass[-1])), len(mass) - 1)
        place = int(np.searchsorted(mass[: last + 1], self._random.random() * mass[last], side="right"))
        return int(order[min(place, last)])
