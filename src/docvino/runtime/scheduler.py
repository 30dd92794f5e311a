"""Who runs next. Pure: no tensors, no device, no clock.

Life of a sequence: waiting -> reading its prompt, in pieces -> decoding, a token a step -> ended.

All blocks that a sequence can ever need are given to it when it leaves the queue, and none later, so a sequence that
has begun can always go on. The other way, giving blocks one by one and throwing a sequence out when none are left, uses
memory better, but what was thrown out has to be computed again in other calls than the first time, and its text would
depend on its neighbours. Blocks that are given and not used yet cost address space, not memory (on a CPU).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from docvino.decoder.contract import MAX_ROWS
from docvino.errors import ConfigError, GenerationError
from docvino.runtime.sequence import Sequence


class BlockManager:
    """Numbered blocks of keys and values: free, or owned by one sequence."""

    def __init__(self, num_blocks: int, block_tokens: int) -> None:
        self.num_blocks, self.block_tokens = num_blocks, block_tokens
        # The block freed last is given next: memory that was never touched stays untouched.
        self._free = list(range(num_blocks - 1, -1, -1))

    @property
    def num_free(self) -> int:
        return len(self._free)

    def needed(self, tokens: int) -> int:
        return -(-tokens // self.block_tokens)

    def take(self, tokens: int) -> list[int] | None:
        """Blocks for so many tokens, or None when too few are free."""
        count = self.needed(tokens)
        return [self._free.pop() for _ in range(count)] if count <= len(self._free) else None

    def give_back(self, blocks: list[int]) -> None:
        self._free.extend(reversed(blocks))


@dataclass(frozen=True)
class Piece:
    """Prompt tokens `start` to `stop` of a sequence; `last` when its first new token comes out."""

    sequence: Sequence
    start: int
    stop: int

    @property
    def last(self) -> bool:
        return self.stop == self.sequence.prompt_tokens


@dataclass(frozen=True)
class Step:
    """What runs in the next call: pieces of prompts, or one token each of some sequences. Never both, never neither."""

    pieces: tuple[Piece, ...] = ()
    decode: tuple[Sequence, ...] = ()


@dataclass(frozen=True)
class EngineLimits:
    """`max_rows` sequences at once, `step_tokens` of prompts in a call. Measured best on a CPU with two cores."""

    max_rows: int = 16
    step_tokens: int = 512

    def __post_init__(self) -> None:
        if not 1 <= self.max_rows <= MAX_ROWS:
            raise ConfigError(f"max_rows is {self.max_rows}", fix=f"give max_rows from 1 to {MAX_ROWS}")
        if self.step_tokens < 1:
            raise ConfigError(f"step_tokens is {self.step_tokens}", fix="give 1 or more; 512 is the default")


class Scheduler:
    """First come, first served.

    Prompts go first while rows are free, then all rows decode: a call that decodes costs nearly the same for one row as
    for many, so rows that stand empty cost most. Between two calls of decoding at most `max_rows` prompts begin:
    prompts whose answer is empty give their row back at once, and many of them could hold up the others for long.

    A prompt is cut into pieces by its own length alone, never by what its neighbours leave free, and pieces end where
    blocks end: quantised keys are rounded block by block, so other cuts would give other numbers.
    """

    def __init__(self, blocks: BlockManager, limits: EngineLimits) -> None:
        self.blocks = blocks
        self._max_rows, self._step_tokens = limits.max_rows, limits.step_tokens
        self._piece = max(1, limits.step_tokens // blocks.block_tokens) * blocks.block_tokens
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []  # by arrival
        self._begun = 0  # prompts since the last call of decoding

    @property
    def sequences(self) -> tuple[Sequence, ...]:
        """All that run or wait, by arrival."""
        return (*self._running, *self._waiting)

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._running

    @property
    def wants_more(self) -> bool:
        """Whether another request could start at once: rows are free and nobody waits."""
        return not self._waiting and len(self._running) < self._max_rows

    def add(self, sequence: Sequence) -> None:
        """Puts a sequence into the queue.

        Raises: GenerationError when all blocks together are too few for it.
        """
        needed = self.blocks.needed(sequence.most_tokens)
        if needed > self.blocks.num_blocks:
            tokens = self.blocks.num_blocks * self.blocks.block_tokens
            raise GenerationError(
                f"a crop of {sequence.prompt_tokens} tokens with up to {sequence.request.max_new_tokens} new ones does "
                f"not fit into the memory for keys and values, which holds {tokens}",
                fix=f"raise kv_cache_mib by a factor of {needed / self.blocks.num_blocks:.1f}, or lower max_new_tokens",
            )
        self._waiting.append(sequence)

    def next_step(self) -> Step | None:
        """The next call; None when there is nothing to do.

        The caller runs it, sets `cached_tokens` of its sequences, and calls `end` for those that have ended.
        """
        pieces: list[Piece] = []
        left = self._step_tokens
        for sequence in self._running:
            if sequence.prompt_left and (not pieces or min(sequence.prompt_left, self._piece) <= left):
                pieces.append(self._next_piece(sequence))
                left -= pieces[-1].stop - pieces[-1].start
        decode = tuple(sequence for sequence in self._running if not sequence.prompt_left)
        while self._waiting and len(self._running) < self._max_rows and (self._begun < self._max_rows or not decode):
            sequence = self._waiting[0]
            if pieces and min(sequence.prompt_tokens, self._piece) > left:
                break
            blocks = self.blocks.take(sequence.most_tokens)
            if blocks is None:
                break  # the queue waits with it: otherwise small crops would overtake a large one for ever
            sequence.blocks = blocks
            self._running.append(self._waiting.popleft())
            self._begun += 1
            pieces.append(self._next_piece(sequence))
            left -= pieces[-1].stop - pieces[-1].start
        if pieces:
            return Step(pieces=tuple(pieces))
        self._begun = 0
        return Step(decode=decode) if decode else None

    def _next_piece(self, sequence: Sequence) -> Piece:
        start = sequence.cached_tokens
        return Piece(sequence, start, min(start + self._piece, sequence.prompt_tokens))

    def end(self, sequence: Sequence) -> None:
        """Takes a sequence out, whatever its state, and its blocks back."""
        if sequence in self._running:
            self._running.remove(sequence)
        else:
            self._waiting.remove(sequence)
        self.blocks.give_back(sequence.blocks)
        sequence.blocks = []
