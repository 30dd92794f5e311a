"""Loads a text decoder, and decides between its two forms by asking both the same."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from docvino.decoder.contract import Decoder, Embed, Form, KvSettings, Rotary, Row
from docvino.decoder.paged import MIB, PagedDecoder
from docvino.decoder.stateful import StatefulDecoder
from docvino.device import check_device
from docvino.errors import ConfigError, DeviceError, InferenceError
from docvino.settings import RuntimeConfig

log = logging.getLogger(__name__)

# Root mean square difference of logits between the two forms, as a share of their standard deviation.
# Measured on CPU, reading_model of the experiments and random decoders: f32 1e-6, u8 keys and values 0.01 to 0.04.
# A wrong layout or position gives 0.5 and more.
TOLERANCE_EXACT = 1e-3
TOLERANCE_ROUNDED = 0.15
_PROMPTS = (41, 150)  # tokens; the second is long enough for several blocks on every device
_STEPS = 4


@dataclass(frozen=True)
class DecoderChoice:
    """Which form runs, and why; for the log, for provenance and for `docvino doctor`.

    difference      of the paged logits from the stateful ones (see TOLERANCE_EXACT); None when they were not compared
    rows_agree      whether a sequence got the same logits alone and beside another, bit for bit; None: not compared
    kv_type         how keys and values are stored, as compiled
    kv_cache_mib    memory for keys and values when all blocks are in use
    """

    form: Form
    reason: str
    difference: float | None
    rows_agree: bool | None
    kv_type: str
    block_tokens: int
    num_blocks: int
    kv_cache_mib: float


def choose_decoder(
    path: Path,
    name: str,
    runtime: RuntimeConfig,
    settings: KvSettings,
    *,
    embed: Embed,
    rotary: Rotary | None = None,
    allow_stateful: bool = False,
) -> tuple[PagedDecoder | StatefulDecoder, DecoderChoice]:
    """The paged decoder when it loads and answers like the stateful one; else that one, if allowed.

    That it did is remembered with the device and its driver: then the paged form is taken at once.

    embed            token ids int64 (n,) -> float32 (n, H); the self-test asks for ids from 0 to 96
    rotary           positions int64 (3, n) -> cos, sin float32 (n, D), for decoders that take tables
    allow_stateful   whether a slow decoder is better than none

    Raises: DeviceError when the paged form does not load or answers wrongly and `allow_stateful` is false; BundleError
    and ConfigError of the decoders in either case.
    """
    paged: PagedDecoder | None = None
    difference: float | None = None
    failure = ""
    try:
        paged = PagedDecoder(path, name, runtime, settings, rotary)
    except (DeviceError, InferenceError) as error:
        failure = str(error)
    if paged is not None:
        _check_room(paged, settings)
        entry, test = paged.compiled.entry, f"forms {paged.compiled.test}"
        if not runtime.self_test:
            return paged, _said(paged, "not compared with the stateful form (self_test is off)", None, None)
        if (passed := entry.passed(test)) is not None:
            reason = "answered like the stateful form when it was first loaded here"
            return paged, _said(paged, reason, passed["difference"], passed["rows_agree"])
    stateful = StatefulDecoder(path, name, runtime, settings, rotary)
    _check_room(stateful, settings)
    if paged is not None:
        try:
            difference, rows_agree = self_test(paged, stateful, embed)
            exact = paged.kv_type == stateful.kv_type == "f32" and paged.execution_precision == "f32"
            if difference <= (TOLERANCE_EXACT if exact else TOLERANCE_ROUNDED):  # NaN is not
                stateful.close()
                entry.remember(test, {"difference": difference, "rows_agree": rows_agree})
                reason = f"answers like the stateful form within {difference:.1e}"
                return paged, _said(paged, reason, difference, rows_agree)
            failure = f"differs from the stateful form by {difference:.2g}"
        except InferenceError as error:
            failure = str(error)
        paged.close()
    if not allow_stateful:
        raise DeviceError(
            f"the paged form of {name} cannot be used on {check_device(runtime.device)}: {failure}",
            fix="allow the stateful form, which reads one crop at a time (--allow-fallback), or use --device CPU",
        )
    return stateful, _said(stateful, f"the paged form cannot be used: {failure}", difference, None)


def _check_room(decoder: PagedDecoder | StatefulDecoder, settings: KvSettings) -> None:
    tokens = decoder.num_blocks * decoder.block_tokens
    if tokens < 2 * sum(_PROMPTS):
        raise ConfigError(
            f"kv_cache_mib {settings.budget_mib} holds {tokens} tokens, less than one crop needs",
            fix="raise kv_cache_mib; 1024 is the default",
        )


def _said(
    decoder: PagedDecoder | StatefulDecoder, reason: str, difference: float | None, rows_agree: bool | None
) -> DecoderChoice:
    choice = DecoderChoice(
        form=decoder.form,
        reason=reason,
        difference=difference,
        rows_agree=rows_agree,
        kv_type=decoder.kv_type,
        block_tokens=decoder.block_tokens,
        num_blocks=decoder.num_blocks,
        kv_cache_mib=decoder.num_blocks * decoder.block_bytes / MIB,
    )
    if rows_agree is False:
        log.warning("%s: on this device results differ in their last bits with the rows of a call", decoder.name)
    level = logging.INFO if choice.form == "paged" else logging.WARNING
    log.log(level, "%s: %s decoder on %s, %s", decoder.name, choice.form, ", ".join(decoder.devices), reason)
    return choice


def self_test(paged: Decoder, stateful: Decoder, embed: Embed) -> tuple[float, bool]:
    """Two prompts and a few tokens after them through both forms -> (difference, whether rows agree bit for bit).

    The prompts go through the paged form in one call, then they decode side by side; the first does so alone, too.
    """
    prompts = [_ids(length, seed) for seed, length in enumerate(_PROMPTS)]
    expected = [_alone(stateful, prompt, embed) for prompt in prompts]
    together = _side_by_side(paged, prompts, embed)
    alone = _side_by_side(paged, prompts[:1], embed)
    difference = distance(np.concatenate(expected), np.concatenate(together))
    return difference, bool(np.array_equal(alone[0], together[0]))


def distance(wanted: NDArray[np.float32], found: NDArray[np.float32]) -> float:
    """Root mean square difference of logits, as a share of the deviation of those wanted; NaN when one is none."""
    with np.errstate(invalid="ignore", over="ignore"):
        return float(np.sqrt(np.mean((found - wanted) ** 2)) / max(float(wanted.std()), 1e-9))


def _ids(length: int, seed: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, 97, length + _STEPS)


def _row(decoder: Decoder, ids: NDArray[np.int64], past: int, first_block: int, embed: Embed) -> Row:
    blocks = range(first_block, first_block + -(-(past + len(ids)) // decoder.block_tokens))
    positions = np.broadcast_to(np.arange(past, past + len(ids)), (3, len(ids)))
    return Row(embed(ids), positions, past, blocks)


def _alone(decoder: Decoder, ids: NDArray[np.int64], embed: Embed) -> NDArray[np.float32]:
    length = len(ids) - _STEPS
    logits = [decoder.run([_row(decoder, ids[:length], 0, 0, embed)], "prefill").copy()]
    for past in range(length, len(ids)):
        logits.append(decoder.run([_row(decoder, ids[past : past + 1], past, 0, embed)], "decode").copy())
    return np.concatenate(logits)


def _side_by_side(decoder: Decoder, prompts: list[NDArray[np.int64]], embed: Embed) -> list[NDArray[np.float32]]:
    """Logits (1 + steps, vocabulary) of each prompt."""
    room = [-(-len(ids) // decoder.block_tokens) for ids in prompts]
    firsts = [sum(room[:place]) for place in range(len(prompts))]
    rows = [_row(decoder, ids[:-_STEPS], 0, first, embed) for ids, first in zip(prompts, firsts, strict=True)]
    steps = [decoder.run(rows, "prefill").copy()]
    for step in range(_STEPS, 0, -1):
        rows = [
            _row(decoder, ids[len(ids) - step : len(ids) - step + 1], len(ids) - step, first, embed)
            for ids, first in zip(prompts, firsts, strict=True)
        ]
        steps.append(decoder.run(rows, "decode").copy())
    return [np.stack([logits[place] for logits in steps]) for place in range(len(prompts))]
