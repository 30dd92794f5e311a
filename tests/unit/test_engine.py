"""The engine on a decoder that is no network: whose texts depend on every token that a sequence was fed."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from docvino.errors import GenerationError, InferenceError
from docvino.runtime.engine import Engine, Outcome
from docvino.runtime.repetition import LoopGuard
from docvino.runtime.sampling import Sampling
from docvino.runtime.scheduler import EngineLimits
from docvino.runtime.sequence import Generation, Request
from tiny_decoder import FakeDecoder, fake_embed

STOP = frozenset({3, 4})


def request(length: int, seed: int = 0, new: int = 20, **more: object) -> Request:
    tokens = np.random.default_rng(seed).integers(0, 50, (length, 1)).astype(np.float32)
    positions = np.broadcast_to(np.arange(length), (3, length))
    return Request(tokens, positions, new, **{"stop_tokens": STOP, **more})  # type: ignore[arg-type]


def engine(decoder: FakeDecoder, rows: int = 16, tokens: int = 64, **more: object) -> Engine:
    return Engine(decoder, fake_embed, EngineLimits(rows, tokens), **more)  # type: ignore[arg-type]


def alone(one: Request) -> Outcome:
    return engine(FakeDecoder(200, 4)).generate_all([one])[0]


def all_free(built: Engine) -> bool:
    manager = built._scheduler.blocks
    return manager.num_free == manager.num_blocks and built._scheduler.idle and not built._busy


@given(
    st.lists(st.tuples(st.integers(1, 90), st.integers(1, 30)), max_size=20),
    st.integers(1, 8),
    st.integers(1, 80),
    st.sampled_from([(40, 4), (30, 16), (200, 1)]),
)
def test_texts_are_those_of_each_request_alone(
    work: list[tuple[int, int]], rows: int, tokens: int, pool: tuple[int, int]
) -> None:
    decoder = FakeDecoder(*pool)
    built = engine(decoder, rows, tokens)
    requests = [request(length, seed, new) for seed, (length, new) in enumerate(work)]
    outcomes = built.generate_all(requests)
    assert len(outcomes) == len(requests)
    for one, outcome in zip(requests, outcomes, strict=True):
        if isinstance(outcome, GenerationError):
            assert len(one.embeddings) + one.max_new_tokens - 1 > pool[0] * pool[1]
        else:
            assert outcome == alone(one)
    assert decoder.most_blocks <= pool[0]
    assert all(count <= rows for _, count, _ in decoder.calls)
    assert all_free(built)


def test_reasons_for_an_end() -> None:
    outcomes = engine(FakeDecoder(200, 4)).generate_all([request(9, seed, 12) for seed in range(30)])
    reasons = {outcome.finish: outcome for outcome in outcomes}
    assert set(reasons) == {"stop", "length"}
    assert len(reasons["length"].tokens) == reasons["length"].generated == 12
    assert reasons["length"].stop_logprob is None
    assert reasons["stop"].generated == len(reasons["stop"].tokens) + 1
    assert not STOP & set(reasons["stop"].tokens)
    assert reasons["length"].confidence == pytest.approx(np.exp(5) / (np.exp(5) + 49), rel=1e-5)


def test_an_empty_text_is_as_sure_as_its_end() -> None:
    assert Generation((), (), "stop", 5, 1, stop_logprob=float(np.log(0.25))).confidence == pytest.approx(0.25)
    assert Generation((), (), "nonfinite", 5, 0).confidence == 0


class Parrot(FakeDecoder):
    """Says 10 11 12 10 11 12 ... after a prompt that begins with 1, else counts on from its last token."""

    def say(self, seen: np.ndarray) -> np.ndarray:
        logits = np.zeros(self.vocabulary, np.float32)
        last = int(seen[-1])
        following = 10 + (last - 9) % 3 if seen[0] == 1 and last >= 10 else 10 if seen[0] == 1 else (last + 1) % 50
        logits[following] = 5
        return logits


def parrot_request(first: int, new: int = 300, **more: object) -> Request:
    embeddings = np.array([[first], [6]], np.float32)
    positions = np.zeros((3, 2), np.int64)
    return Request(embeddings, positions, new, **{"stop_tokens": frozenset({49}), **more})  # type: ignore[arg-type]


def test_a_loop_ends_and_its_first_copy_is_kept() -> None:
    loop, other = engine(Parrot(400, 4)).generate_all([parrot_request(1), parrot_request(0)])
    assert (loop.finish, loop.tokens, loop.generated) == ("repetition", (10, 11, 12), 128)
    assert (other.finish, other.tokens) == ("stop", tuple(range(7, 49)))


def test_without_a_guard_a_loop_runs_to_the_limit_and_other_texts_are_the_same() -> None:
    loop, other = engine(Parrot(400, 4)).generate_all([parrot_request(1, guard=None), parrot_request(0, guard=None)])
    assert (loop.finish, len(loop.tokens)) == ("length", 300)
    assert other == engine(Parrot(400, 4)).generate_all([parrot_request(0)])[0]
    strict = LoopGuard(longest_period=4, min_repeats=2, min_tokens=6)
    assert engine(Parrot(400, 4)).generate_all([parrot_request(1, guard=strict)])[0].generated == 6


def test_numbers_that_are_none_end_one_crop_and_leave_nothing_behind() -> None:
    bad = request(20, 1)
    bad.embeddings[5] = np.nan
    good = [request(20, seed) for seed in range(2, 12)]
    decoder = FakeDecoder(60, 4)
    built = engine(decoder, rows=4)
    outcomes = built.generate_all([*good[:3], bad, *good[3:]])
    assert outcomes[3] == Generation((), (), "nonfinite", 20, 0)
    assert [*outcomes[:3], *outcomes[4:]] == [alone(one) for one in good]
    assert all_free(built)


def test_time_limit_keeps_what_was_read() -> None:
    now = [0.0]

    class Slow(FakeDecoder):
        def run(self, *call: object) -> np.ndarray:
            now[0] += 1
            return super().run(*call)  # type: ignore[arg-type]

    slow = [request(9, seed, 20, time_limit_s=limit) for seed, limit in ((0, 5.0), (1, None), (2, 0.0))]
    built = engine(Slow(200, 4), clock=lambda: now[0])
    first, second, third = built.generate_all(slow)
    full = alone(slow[0])
    assert first.finish == "time"
    assert 0 < len(first.tokens) < len(full.tokens)
    assert first.tokens == full.tokens[: len(first.tokens)]
    assert second == alone(slow[1])
    assert third.finish == "time"
    assert all_free(built)


def test_cancelling_frees_a_crop_and_leaves_the_others() -> None:
    flag = threading.Event()
    cancelled, other = request(9, 0, 20, cancel=flag), request(30, 1)
    built = engine(FakeDecoder(200, 4))

    def requests() -> Iterator[Request]:
        yield cancelled
        yield other
        flag.set()

    first, second = built.generate_all(requests())
    assert first.finish == "cancelled"
    assert second == alone(other)
    assert all_free(built)


def test_requests_are_taken_when_a_row_is_free() -> None:
    built = engine(FakeDecoder(500, 4), rows=3)
    taken = 0

    def requests() -> Iterator[Request]:
        nonlocal taken
        for seed in range(40):
            taken += 1
            yield request(9, seed)

    ended = 0
    for _ in built.generate(requests()):
        assert taken - ended <= 3
        ended += 1
    assert ended == taken == 40


def test_malformed_requests_have_errors_for_outcomes() -> None:
    good = request(9)
    bad = [
        request(0),
        Request(good.embeddings.astype(np.float64), good.positions, 5, STOP),
        Request(np.zeros((9, 2), np.float32), good.positions, 5, STOP),
        Request(good.embeddings, good.positions[:2], 5, STOP),
        request(9, new=0),
        request(9, stop_tokens=frozenset()),
        request(9, new=5000),
    ]
    outcomes = engine(FakeDecoder(200, 4)).generate_all([*bad, good])
    assert all(isinstance(outcome, GenerationError) for outcome in outcomes[:-1])
    assert outcomes[-1] == alone(good)


@pytest.mark.parametrize("call", [1, 2, 5, 9])
def test_after_an_error_the_engine_is_as_new(call: int) -> None:
    requests = [request(30, seed) for seed in range(8)]
    built = engine(FakeDecoder(100, 4, fail_at=call), rows=4)
    with pytest.raises(InferenceError, match="fell off"):
        built.generate_all(requests)
    assert all_free(built)
    assert built.generate_all(requests) == [alone(one) for one in requests]


def test_an_error_of_the_requests_and_a_closed_iterator_give_everything_up() -> None:
    built = engine(FakeDecoder(100, 4), rows=4)

    def broken() -> Iterable[Request]:
        yield request(9)
        raise KeyError("no more crops")

    with pytest.raises(KeyError):
        built.generate_all(broken())
    assert all_free(built)
    some = built.generate([request(9, seed) for seed in range(20)])
    next(some)
    with pytest.raises(GenerationError, match="already runs"):
        built.generate_all([request(9)])
    some.close()
    assert all_free(built)
    assert built.generate_all([request(9)]) == [alone(request(9))]


def test_drawn_texts_do_not_depend_on_neighbours() -> None:
    warm = [request(9, seed, sampling=Sampling(temperature=3.0, top_p=0.9, seed=seed % 3)) for seed in range(12)]
    outcomes = engine(FakeDecoder(400, 4)).generate_all(warm)
    assert outcomes == [alone(one) for one in warm]
    cold = engine(FakeDecoder(400, 4)).generate_all([request(9, seed) for seed in range(12)])
    assert [one.tokens for one in outcomes] != [one.tokens for one in cold]
