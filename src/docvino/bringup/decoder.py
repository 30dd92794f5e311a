"""What a paged decoder is asked, and what a plain one says to the same: logits of every step."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from docvino.decoder.contract import Decoder, Embed, Row
from docvino.decoder.paged import PagedDecoder

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]

_MOST_ROWS = 8  # of mixed work
_LONGEST = 400  # prompt of mixed work, tokens


@dataclass(frozen=True)
class Case:
    """Prompts of these lengths in one call, then `steps` tokens after each, side by side.

    begins    position of the first token
    cut       whether the prompt goes through in two pieces, cut at the end of a block
    copied    whether the prompt is gone on with in copies of its full blocks
    """

    name: str
    lengths: tuple[int, ...]
    steps: int
    begins: int = 0
    cut: bool = False
    copied: bool = False


CASES = (
    Case("prompt", (41,), 0),
    Case("64 tokens after it", (150,), 64),
    Case("two sequences of other lengths", (41, 150), 8),
    Case("a prompt in two pieces", (150,), 4, cut=True),
    Case("positions from 3000", (150,), 8, begins=3000),
    Case("a copied beginning", (150,), 8, copied=True),
)


def ids_of(case: Case, vocabulary: int) -> list[Ids]:
    """Token ids of each sequence, those of its steps at its end."""
    dice = np.random.default_rng(len(case.name))
    return [dice.integers(0, vocabulary, length + case.steps) for length in case.lengths]


def plainly(decoder: Decoder, case: Case, embed: Embed, vocabulary: int) -> Floats:
    """Logits float32 (sequences * (1 + steps), V), one sequence after the other, nothing cut and nothing copied."""
    found = []
    for ids, length in zip(ids_of(case, vocabulary), case.lengths, strict=True):
        blocks = range(_blocks(decoder, len(ids)))
        for start, stop in [(0, length), *((at, at + 1) for at in range(length, len(ids)))]:
            row = _row(embed, ids, start, stop, blocks, case.begins)
            found.append(decoder.run([row], "prefill" if start == 0 else "decode")[0].copy())
    return np.stack(found)


def paged(decoder: PagedDecoder, case: Case, embed: Embed, vocabulary: int) -> Floats:
    """The same through blocks: sequences side by side."""
    everyone = ids_of(case, vocabulary)
    room = [_blocks(decoder, len(ids)) for ids in everyone]
    ends = list(itertools.accumulate(room))
    tables: list[Sequence[int]] = [range(end - count, end) for end, count in zip(ends, room, strict=True)]
    starts = [0] * len(everyone)
    if case.cut or case.copied:
        starts = [length // decoder.block_tokens * decoder.block_tokens for length in case.lengths]
        first = [
            _row(embed, ids, 0, stop, blocks, case.begins)
            for ids, stop, blocks in zip(everyone, starts, tables, strict=True)
        ]
        decoder.run(first, "prefill")
    if case.copied:
        copies: list[Sequence[int]] = [[block + ends[-1] for block in blocks] for blocks in tables]
        for blocks, copy in zip(tables, copies, strict=True):
            decoder.copy(blocks, copy)
            decoder.wipe(blocks)  # what still looked there would read zeros
        tables = copies
    rows = [
        _row(embed, ids, start, length, blocks, case.begins)
        for ids, start, length, blocks in zip(everyone, starts, case.lengths, tables, strict=True)
    ]
    steps = [decoder.run(rows, "prefill").copy()]
    for step in range(case.steps):
        rows = [
            _row(embed, ids, length + step, length + step + 1, blocks, case.begins)
            for ids, length, blocks in zip(everyone, case.lengths, tables, strict=True)
        ]
        steps.append(decoder.run(rows, "decode").copy())
    return np.concatenate([np.stack([logits[place] for logits in steps]) for place in range(len(everyone))])


def wander(decoder: PagedDecoder, embed: Embed, vocabulary: int, calls: int) -> Iterator[int]:
    """Random prompts in random company with random answers; yields the number of calls after each."""
    dice = np.random.default_rng(0)
    done = 0
    while done < calls:
        lengths = dice.integers(5, _LONGEST, int(dice.integers(1, _MOST_ROWS + 1))).tolist()
        steps = int(dice.integers(1, 9))
        everyone = [dice.integers(0, vocabulary, length + steps) for length in lengths]
        ends = list(itertools.accumulate(_blocks(decoder, len(ids)) for ids in everyone))
        tables = [range(end - _blocks(decoder, len(ids)), end) for end, ids in zip(ends, everyone, strict=True)]
        for step in range(-1, steps):
            rows = [
                _row(embed, ids, 0 if step < 0 else length + step, length + step + 1, blocks, 0)
                for ids, length, blocks in zip(everyone, lengths, tables, strict=True)
            ]
            decoder.run(rows, "prefill" if step < 0 else "decode")
            done += 1
            yield done
            if done == calls:
                return


def _blocks(decoder: Decoder, tokens: int) -> int:
    return -(-tokens // decoder.block_tokens)


def _row(embed: Embed, ids: Ids, start: int, stop: int, blocks: Sequence[int], begins: int) -> Row:
    positions = np.broadcast_to(np.arange(begins + start, begins + stop), (3, stop - start))
    return Row(embed(ids[start:stop]), positions, start, blocks)
