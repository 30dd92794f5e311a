"""Loads a text decoder, and decides between its two forms by asking both the same."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from docvino.decoder.contract import Decoder, Embed, Form, KvSettings, Rotary, Row
from docvino.decoder.paged import MIB, PagedDecoder
from docvino.decoder.stateful import StatefulDecoder
from docvino.device import check_device
from docvino.errors import ConfigError, DeviceError, InferenceError
from docvino.settings import KvPrecision, RuntimeConfig

log = logging.getLogger(__name__)
Logits = NDArray[np.float32]

# Limits of the root mean square difference of logits, as a share of their standard deviation.
# The two forms, both with keys, values and activations in the arithmetic's own format. Measured on CPUs in f32: 1e-5
# and less; a sequence that misses its last token is off by 0.09 and more, a wrong layout or position by 0.3 and more.
TOLERANCE_EXACT = 1e-3
TOLERANCE_HALF = 0.15
# A decoder with keys and values, or activations, of 8 bits, from one without. Measured: trained weights 0.02, random
# ones of the full size, where rounding errors grow from layer to layer, 0.27; random ones that are broken 0.7 and more.
TOLERANCE_ROUNDED = 0.4
_TEST_MIB = 128  # for keys and values of the forms that are only compared
_PROMPTS = (41, 150)  # tokens; the second is long enough for several blocks on every device
_STEPS = 4


@dataclass(frozen=True)
class DecoderChoice:
    """Which form runs, and why; for the log, for provenance and for `docvino doctor`.

    difference      of the paged logits from the stateful ones (see TOLERANCE_EXACT); None when they were not compared
    rounding        how far 8 bits for keys, values or activations move the logits; 0 where nothing is in 8 bits
    rows_agree      whether a sequence got the same logits alone and beside another, bit for bit; None: not compared
    kv_type         how keys and values are stored, as compiled
    kv_cache_mib    memory for keys and values when all blocks are in use
    """

    form: Form
    reason: str
    difference: float | None
    rounding: float | None
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
    test: _Test | None = None
    failure = ""
    try:
        paged = PagedDecoder(path, name, runtime, settings, rotary)
        _check_room(paged, settings)
        entry, key = paged.compiled.entry, f"forms and rounding {paged.compiled.test}"
        if not runtime.self_test:
            return paged, _said(paged, "not compared with the stateful form (self_test is off)", None)
        if (passed := entry.passed(key)) is not None:
            reason = "answered like the stateful form when it was first loaded here"
            return paged, _said(paged, reason, _Test(**passed))
        # With nothing rounded the forms agree to the last digits, and small mistakes show.
        precision: KvPrecision = "f32" if paged.execution_precision == "f32" else "f16"
        plain = KvSettings(_TEST_MIB, precision, exact=True)
        stateful = StatefulDecoder(path, name, runtime, plain, rotary)
        expected = [_alone(stateful, prompt, embed) for prompt in _prompts()]
        stateful.close()
        del stateful
        unrounded = PagedDecoder(path, name, runtime, plain, rotary) if _rounds(paged) else paged
        test = _compare(paged, unrounded, expected, embed)
        failure = test.failure(exact=paged.execution_precision == "f32")
        if not failure:
            entry.remember(key, asdict(test))
            reason = f"answers like the stateful form within {test.difference:.1e}"
            return paged, _said(paged, reason, test)
    except (DeviceError, InferenceError) as error:
        failure = str(error)
    if paged is not None:
        paged.close()
        del paged
    if not allow_stateful:
        raise DeviceError(
            f"the paged form of {name} cannot be used on {check_device(runtime.device)}: {failure}",
            fix="allow the stateful form, which reads one crop at a time (--allow-fallback), or use --device CPU",
        )
    slow = StatefulDecoder(path, name, runtime, settings, rotary)
    _check_room(slow, settings)
    return slow, _said(slow, f"the paged form cannot be used: {failure}", test)


@dataclass(frozen=True)
class _Test:
    """Found by comparing; fields as in `DecoderChoice`."""

    difference: float
    rounding: float
    rows_agree: bool

    def failure(self, *, exact: bool) -> str:
        """Why the paged form cannot be used, "" when it can."""
        if not self.difference <= (TOLERANCE_EXACT if exact else TOLERANCE_HALF):  # NaN is not
            return f"differs from the stateful form by {self.difference:.2g}"
        if not self.rounding <= TOLERANCE_ROUNDED:
            return f"differs by {self.rounding:.2g} when keys, values and activations are rounded"
        return ""


def _check_room(decoder: PagedDecoder | StatefulDecoder, settings: KvSettings) -> None:
    tokens = decoder.num_blocks * decoder.block_tokens
    if tokens < 2 * sum(_PROMPTS):
        raise ConfigError(
            f"kv_cache_mib {settings.budget_mib} holds {tokens} tokens, less than one crop needs",
            fix="raise kv_cache_mib; 1024 is the default",
        )


def _said(decoder: PagedDecoder | StatefulDecoder, reason: str, test: _Test | None) -> DecoderChoice:
    choice = DecoderChoice(
        form=decoder.form,
        reason=reason,
        difference=test.difference if test else None,
        rounding=test.rounding if test else None,
        rows_agree=test.rows_agree if test else None,
        kv_type=decoder.kv_type,
        block_tokens=decoder.block_tokens,
        num_blocks=decoder.num_blocks,
        kv_cache_mib=decoder.num_blocks * decoder.block_bytes / MIB,
    )
    if choice.rows_agree is False:
        log.warning("%s: on this device results differ in their last bits with the rows of a call", decoder.name)
    level = logging.INFO if choice.form == "paged" else logging.WARNING
    log.log(level, "%s: %s decoder on %s, %s", decoder.name, choice.form, ", ".join(decoder.devices), reason)
    return choice


def _rounds(decoder: PagedDecoder) -> bool:
    """Whether keys and values, or activations, have fewer bits than the arithmetic."""
    return decoder.rounds_activations or decoder.kv_type != decoder.execution_precision


def _compare(asked: PagedDecoder, unrounded: PagedDecoder, expected: list[Logits], embed: Embed) -> _Test:
    """`asked` is what will run, `unrounded` the same with nothing rounded, which is closed; they may be one.

    expected   logits of the stateful form after each prompt and the tokens behind it

    The prompts go through the paged form in one call, then they decode side by side; the first does so alone, too.
    """
    prompts = _prompts()
    right = _side_by_side(unrounded, prompts, embed)
    together = right
    if asked is not unrounded:
        unrounded.close()
        together = _side_by_side(asked, prompts, embed)
    alone = _side_by_side(asked, prompts[:1], embed)
    return _Test(
        difference=distance(np.concatenate(expected), np.concatenate(right)),
        rounding=distance(np.concatenate(right), np.concatenate(together)),
        rows_agree=bool(np.array_equal(alone[0], together[0])),
    )


def distance(wanted: NDArray[np.float32], found: NDArray[np.float32]) -> float:
    """Root mean square difference of logits, as a share of the deviation of those wanted; NaN when one is none."""
    with np.errstate(invalid="ignore", over="ignore"):
        return float(np.sqrt(np.mean((found - wanted) ** 2)) / max(float(wanted.std()), 1e-9))


def _prompts() -> list[NDArray[np.int64]]:
    return [np.random.default_rng(s).integers(0, 97, length + _STEPS) for s, length in enumerate(_PROMPTS)]


def _row(decoder: Decoder, ids: NDArray[np.int64], past: int, first_block: int, embed: Embed) -> Row:
    blocks = range(first_block, first_block + -(-(past + len(ids)) // decoder.block_tokens))
    positions = np.broadcast_to(np.arange(past, past + len(ids)), (3, len(ids)))
    return Row(embed(ids), positions, past, blocks)


def _alone(decoder: Decoder, ids: NDArray[np.int64], embed: Embed) -> Logits:
    """Logits (1 + steps, vocabulary)."""
    length = len(ids) - _STEPS
    logits = [decoder.run([_row(decoder, ids[:length], 0, 0, embed)], "prefill").copy()]
    for past in range(length, len(ids)):
        logits.append(decoder.run([_row(decoder, ids[past : past + 1], past, 0, embed)], "decode").copy())
    return np.concatenate(logits)


def _side_by_side(decoder: Decoder, prompts: list[NDArray[np.int64]], embed: Embed) -> list[Logits]:
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
