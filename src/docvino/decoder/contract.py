"""What travels between the engine and a decoder. Pure: numpy alone.

A decoder keeps keys and values in numbered *blocks* of `block_tokens` tokens. Who owns which block is the engine's
affair: each call names the blocks of each row, and the decoder checks them, because device kernels do not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from docvino.errors import ConfigError, GenerationError
from docvino.settings import KvPrecision

# How many sequences may decode side by side. See `PREFILL_TOKENS` for why there is a limit.
MAX_ROWS = 64

# A result must not depend on what else is in a call. On CPU, OpenVINO 2026.4.1 multiplies in one of three ways, by the
# number of tokens of the call; within one of them each row of numbers is the same bit for bit, between them it differs
# in the last bits. Measured on AVX2 with int8, int4 and f32 weights: 1 token; 2 to 80; 81 and more (f32: 2 and more).
# So a call of decoding has 2 tokens or more and at most MAX_ROWS, a call of reading prompts PREFILL_TOKENS or more, and
# the two are never mixed. Rows of padding fill up calls that are too small; their blocks belong to the decoder.
DECODE_TOKENS = 2
PREFILL_TOKENS = 128

# OpenVINO keeps something for every number of tokens it has seen in a call. 1,200 random prompts through a decoder of
# 4 MB: from 200 to 465 MB and still growing; with numbers of tokens rounded up to this, 150 MB and flat after 200.
PREFILL_STEP = 32

Form = Literal["paged", "stateful"]
Phase = Literal["prefill", "decode"]
Rotary = Callable[[NDArray[np.int64]], tuple[NDArray[np.float32], NDArray[np.float32]]]
Embed = Callable[[NDArray[np.int64]], NDArray[np.float32]]


@dataclass(frozen=True)
class KvSettings:
    """How much memory keys and values may take, and how they are stored.

    budget_mib   MiB for all blocks together; taken from the system as blocks are used on a CPU, at once on a GPU
    precision    u8 (10.7 KB a token for PaddleOCR-VL), f16 (18.4 KB), f32 (36.9 KB); None: the device's profile
    exact        activations keep the arithmetic's own format; a CPU would round them to 8 bits beside weights of 8
    """

    budget_mib: int = 1024
    precision: KvPrecision | None = None
    exact: bool = False

    def __post_init__(self) -> None:
        if self.budget_mib < 1:
            raise ConfigError(f"kv_cache_mib is {self.budget_mib}", fix="give 1 or more; 1024 is the default")


@dataclass(frozen=True, eq=False)
class Row:
    """The next tokens of one sequence.

    embeddings   float32 (n, H), n >= 1
    positions    int64 (3, n): time, height, width
    past         tokens of the sequence that the decoder has already seen
    blocks       ids of the sequence's blocks, first tokens first; room for past + n tokens or more
    sample       whether the logits after the last of these tokens are wanted
    """

    embeddings: NDArray[np.float32]
    positions: NDArray[np.int64]
    past: int
    blocks: Sequence[int]
    sample: bool = True


class Decoder(Protocol):
    """A loaded decoder. Not for several threads at once."""

    form: Form
    block_tokens: int
    num_blocks: int
    max_rows: int
    hidden: int
    vocabulary: int

    def run(self, rows: Sequence[Row], phase: Phase) -> NDArray[np.float32]:
        """Feeds the rows; float32 (rows that sample, vocabulary) logits, a view that the next call overwrites.

        Raises: GenerationError for tables that contradict each other, InferenceError when the device fails. After any
        error all sequences are lost, and the decoder is ready for new ones.
        """
        ...

    def wipe(self, blocks: Sequence[int]) -> None:
        """Writes zeros: what is not a number in a block would spread to the sequence that gets the block next."""
        ...


@dataclass(frozen=True, eq=False)
class Packed:
    """One call, packed without padding between sequences.

    embeddings            float32 (T, H)
    positions             int64 (3, T)
    past_lens             int32 (B,) tokens in the blocks before this call
    subsequence_begins    int32 (B + 1,) where each row's tokens begin
    block_indices         int32 (blocks,) ids of the blocks each row reads and writes, row after row
    block_indices_begins  int32 (B + 1,) where each row's blocks begin
    max_context_len       the longest row after this call
    sample_idx            int64 (S,) tokens whose logits are wanted; may hold more at the end than were asked for
    """

    embeddings: NDArray[np.float32]
    positions: NDArray[np.int64]
    past_lens: NDArray[np.int32]
    subsequence_begins: NDArray[np.int32]
    block_indices: NDArray[np.int32]
    block_indices_begins: NDArray[np.int32]
    max_context_len: int
    sample_idx: NDArray[np.int64]


def padding_blocks(block_tokens: int) -> int:
    """How many blocks rows of padding need."""
    return -(-PREFILL_TOKENS // block_tokens)


def pack(rows: Sequence[Row], phase: Phase, *, hidden: int, block_tokens: int, num_blocks: int) -> Packed:
    """Checks the rows and packs them into one call, with padding where the call would be too small.

    Blocks `num_blocks` and following are the padding's own.

    Raises: GenerationError when a table is wrong. Device kernels do not check: they would write elsewhere.
    """
    if not rows:
        raise _broken("a call without rows")
    counts, needs, taken = [], [], set[int]()
    for row in rows:
        count = row.embeddings.shape[0]
        if count < 1 or row.embeddings.shape != (count, hidden) or row.embeddings.dtype != np.float32:
            raise _broken(f"embeddings {row.embeddings.dtype} {row.embeddings.shape}, not float32 (n, {hidden})")
        if row.positions.shape != (3, count):
            raise _broken(f"positions {row.positions.shape} for {count} tokens")
        if row.past < 0 or (phase == "decode" and count != 1):
            raise _broken(f"{count} tokens after {row.past} in a call of {phase}")
        need = -(-(row.past + count) // block_tokens)
        own = row.blocks[:need]
        if len(own) < need:
            raise _broken(f"{len(own)} blocks of {block_tokens} tokens for {row.past + count} tokens")
        if min(own) < 0 or max(own) >= num_blocks:
            raise _broken(f"a block outside 0..{num_blocks - 1}")
        before = len(taken)
        taken.update(own)
        if len(taken) != before + need:
            raise _broken("a block that two places of the tables share")
        counts.append(count)
        needs.append(need)
    total = sum(counts)
    least = DECODE_TOKENS if phase == "decode" else max(PREFILL_TOKENS, -(-total // PREFILL_STEP) * PREFILL_STEP)
    if phase == "decode" and total > MAX_ROWS:
        raise _broken(f"{total} rows in a call, more than {MAX_ROWS}")
    if total < least:
        rows = [*rows, _padding(least - total, hidden, range(num_blocks, num_blocks + padding_blocks(block_tokens)))]
        counts.append(least - total)
        needs.append(-(-(least - total) // block_tokens))
    begins = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(counts, out=begins[1:])
    block_begins = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(needs, out=block_begins[1:])
    sample = [end - 1 for row, end in zip(rows, begins[1:].tolist(), strict=True) if row.sample]
    # The multiplication by the vocabulary counts tokens, too: it gets two or more, like the rest of the network.
    sample += [int(begins[-1]) - 1] * (DECODE_TOKENS - len(sample))
    return Packed(
        embeddings=np.concatenate([row.embeddings for row in rows]),
        positions=np.concatenate([row.positions for row in rows], axis=1),
        past_lens=np.array([row.past for row in rows], np.int32),
        subsequence_begins=begins,
        block_indices=np.concatenate(
            [np.asarray(row.blocks[:need], np.int32) for row, need in zip(rows, needs, strict=True)]
        ),
        block_indices_begins=block_begins,
        max_context_len=max(row.past + count for row, count in zip(rows, counts, strict=True)),
        sample_idx=np.array(sample, np.int64),
    )


def _padding(count: int, hidden: int, blocks: Sequence[int]) -> Row:
    return Row(np.zeros((count, hidden), np.float32), np.zeros((3, count), np.int64), 0, blocks, sample=False)


def _broken(what: str) -> GenerationError:
    return GenerationError(f"the decoder was given {what}", fix="this is a bug of docvino: please report it")
