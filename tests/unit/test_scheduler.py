"""The scheduler alone: who runs next, on sequences without tensors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from docvino.errors import ConfigError, GenerationError
from docvino.runtime.scheduler import BlockManager, EngineLimits, Scheduler, Step
from docvino.runtime.sequence import Request, Sequence


def sequence(index: int, prompt: int, new: int) -> Sequence:
    embeddings, positions = np.zeros((prompt, 1), np.float32), np.zeros((3, prompt), np.int64)
    return Sequence(index, Request(embeddings, positions, new, frozenset({2})))


def run(scheduler: Scheduler, answers: dict[int, int]) -> Iterator[tuple[Step, list[int]]]:
    """Steps until nothing is left; a sequence ends after `answers[index]` tokens. Yields each step and who ended."""
    done: dict[int, int] = dict.fromkeys(answers, 0)
    while (step := scheduler.next_step()) is not None:
        for piece in step.pieces:
            piece.sequence.cached_tokens = piece.stop
        for one in step.decode:
            one.cached_tokens += 1
        ended = []
        for one in [piece.sequence for piece in step.pieces if piece.last] + list(step.decode):
            done[one.index] += 1
            if done[one.index] == answers[one.index]:
                scheduler.end(one)
                ended.append(one.index)
        yield step, ended


jobs = st.lists(st.tuples(st.integers(1, 90), st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=25)


@given(jobs, st.integers(1, 12), st.integers(1, 70), st.sampled_from([4, 16, 32]), st.integers(8, 60))
def test_every_sequence_ends_within_its_blocks(
    work: list[tuple[int, int, int]], max_rows: int, step_tokens: int, block_tokens: int, num_blocks: int
) -> None:
    manager = BlockManager(num_blocks, block_tokens)
    scheduler = Scheduler(manager, EngineLimits(max_rows, step_tokens))
    answers = {}
    for index, (prompt, most, real) in enumerate(work):
        one = sequence(index, prompt, most)
        if manager.needed(one.most_tokens) > num_blocks:
            with pytest.raises(GenerationError):
                scheduler.add(one)
            continue
        scheduler.add(one)
        answers[index] = min(most, real)
    ended: list[int] = []
    begun: list[int] = []
    for step, over in run(scheduler, answers):
        assert bool(step.pieces) != bool(step.decode)
        rows = [piece.sequence for piece in step.pieces] + list(step.decode)
        assert len({one.index for one in rows}) == len(rows) <= max_rows
        owned = [block for one in scheduler.sequences for block in one.blocks]
        assert len(owned) == len(set(owned)) == num_blocks - manager.num_free
        if len(step.pieces) > 1:
            assert sum(piece.stop - piece.start for piece in step.pieces) <= step_tokens
        for piece in step.pieces:
            assert piece.last or piece.stop % block_tokens == 0
        begun += [piece.sequence.index for piece in step.pieces if piece.start == 0]
        ended += over
    assert sorted(ended) == sorted(answers)
    assert begun == sorted(answers)
    assert manager.num_free == num_blocks
    assert scheduler.idle


@given(jobs, st.integers(1, 5))
def test_pieces_of_a_prompt_do_not_depend_on_its_neighbours(work: list[tuple[int, int, int]], max_rows: int) -> None:
    def pieces(indices: list[int]) -> dict[int, list[tuple[int, int]]]:
        scheduler = Scheduler(BlockManager(1000, 4), EngineLimits(max_rows, 16))
        for index in indices:
            scheduler.add(sequence(index, work[index][0], work[index][1]))
        found: dict[int, list[tuple[int, int]]] = {index: [] for index in indices}
        for step, _ in run(scheduler, {index: work[index][1] for index in indices}):
            for piece in step.pieces:
                found[piece.sequence.index].append((piece.start, piece.stop))
        return found

    together = pieces(list(range(len(work))))
    assert all(pieces([index])[index] == together[index] for index in range(len(work)))


def test_prompts_with_empty_answers_do_not_starve_those_that_decode() -> None:
    scheduler = Scheduler(BlockManager(1000, 4), EngineLimits(2, 16))
    answers = dict.fromkeys(range(50), 1) | {0: 10}
    for index in answers:
        scheduler.add(sequence(index, 8, 10))
    begun = 0
    for step, ended in run(scheduler, answers):
        begun = 0 if step.decode else begun + len(step.pieces)
        assert begun <= 2
        if 0 in ended:
            break
    assert scheduler.sequences


def test_a_large_crop_is_not_overtaken_for_ever() -> None:
    manager = BlockManager(10, 4)
    scheduler = Scheduler(manager, EngineLimits(4, 16))
    for index, new in enumerate((20, 36, 1, 1, 1)):
        scheduler.add(sequence(index, 4, new))
    ended = [index for _, over in run(scheduler, {0: 20, 1: 36, 2: 1, 3: 1, 4: 1}) for index in over]
    assert ended.index(1) == 1


def test_a_crop_larger_than_the_budget_names_the_setting() -> None:
    scheduler = Scheduler(BlockManager(10, 4), EngineLimits())
    with pytest.raises(GenerationError, match="20 tokens with up to 100 new") as caught:
        scheduler.add(sequence(0, 20, 100))
    assert "kv_cache_mib by a factor of 3.0" in caught.value.fix


@pytest.mark.parametrize(("rows", "tokens"), [(0, 512), (65, 512), (16, 0)])
def test_limits_out_of_range(rows: int, tokens: int) -> None:
    with pytest.raises(ConfigError, match=r"max_rows|step_tokens"):
        EngineLimits(rows, tokens)
