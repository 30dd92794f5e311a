"""Tokens and their probabilities."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from docvino.errors import ConfigError
from docvino.runtime.sampling import GREEDY, Sampler, Sampling

LOGITS = np.array([0.5, 3.0, -1.0, 2.5, 3.0], np.float32)


def choose(logits: np.ndarray, sampling: Sampling = GREEDY) -> tuple[int, float] | None:
    return Sampler(sampling).choose(logits, np.empty_like(logits))


def test_the_first_of_equal_tokens_is_taken() -> None:
    assert choose(LOGITS)[0] == 1


@given(st.lists(st.floats(-80, 80, width=32), min_size=1, max_size=300))
def test_the_log_probability_is_that_of_a_softmax(values: list[float]) -> None:
    logits = np.array(values, np.float32)
    token, logprob = choose(logits)
    exact = logits.astype(np.float64)
    exact = exact - exact.max() - np.log(np.exp(exact - exact.max()).sum())
    assert token == int(np.argmax(logits))
    assert logprob == pytest.approx(exact[token], abs=1e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_logit_that_is_no_number_gives_no_token(bad: float) -> None:
    logits = LOGITS.copy()
    logits[2] = bad
    assert choose(logits) is None


def test_draws_follow_the_probabilities_and_the_seed() -> None:
    def draws(seed: int, **more: float) -> list[int]:
        sampler = Sampler(Sampling(temperature=more.get("temperature", 1.0), top_p=more.get("top_p", 1.0), seed=seed))
        return [sampler.choose(LOGITS, np.empty_like(LOGITS))[0] for _ in range(4000)]

    assert draws(1) == draws(1) != draws(2)
    shares = np.bincount(draws(3), minlength=5) / 4000
    expected = np.exp(LOGITS) / np.exp(LOGITS).sum()
    assert np.abs(shares - expected).max() < 0.03
    assert set(draws(4, top_p=0.5)) == {1, 4}
    assert set(draws(4, top_p=0.01)) == {1}
    assert set(draws(5, temperature=0.01)) <= {1, 4}


@pytest.mark.parametrize("bad", [{"temperature": -1}, {"temperature": float("nan")}, {"top_p": 0}, {"seed": -1}])
def test_bad_settings(bad: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        Sampling(**bad)
