"""The steps of a vision-language model one by one: crops by patches, prompts by tokens, decoding by sequences.

They run in the reader that a parse uses, on its vision graph and in its engine, with inputs of exact sizes; times are
those of the clock that fills Stats. Inputs are random: they cost what pages cost.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from docvino.bench.job import Job, Tell
from docvino.bench.limits import MEMORY
from docvino.bench.report import Better, Row
from docvino.bundle import VlmBundle, open_vlm_bundle, vlm_folder
from docvino.codec import vlm
from docvino.decoder.contract import Decoder, Phase
from docvino.decoder.contract import Row as DecoderRow
from docvino.errors import BundleError, InferenceError
from docvino.machine.resident import UNTOLD, peak_mib
from docvino.runtime.engine import Engine
from docvino.runtime.scheduler import EngineLimits
from docvino.runtime.sequence import Generation, Request
from docvino.runtime.stages import Clock
from docvino.runtime.vlm import VlmReader
from docvino.settings import ParseOptions
from docvino.specs import how_to_get
from docvino.specs.vlm import VisionFacts, VlmFacts

GRIDS = {576: (24, 24), 1024: (32, 32), 3024: (54, 56)}  # patches: rows and columns of them
PROMPTS = (300, 1000, 2000)  # tokens
SEQUENCES = (1, 4, 8, 16, 32)
CONTEXT = 300  # tokens before the first that is decoded
STEPS = 6  # of decoding, of which the median counts
RANDOM_TOKENS = 70  # of each element on pages of a model that nobody trained: what a line of text comes to
QUICK = {"grids": 1, "prompts": 1, "sequences": 2}  # how many of each a quick run takes


class Timed:
    """A decoder that notes when its calls began and ended.

    prompts   False: prompts are not computed, what lies in the blocks is taken for them; it does not matter for speed
    """

    def __init__(self, decoder: Decoder, *, prompts: bool) -> None:
        self._decoder, self._prompts = decoder, prompts
        self.calls: list[tuple[Phase, int, float, float]] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._decoder, name)

    def run(self, rows: Sequence[DecoderRow], phase: Phase) -> NDArray[np.float32]:
        if phase == "prefill" and not self._prompts:
            return np.zeros((sum(row.sample for row in rows), self._decoder.vocabulary), np.float32)
        began = time.perf_counter()
        logits = self._decoder.run(rows, phase)
        self.calls.append((phase, len(rows), began, time.perf_counter()))
        return logits


def request(random: np.random.Generator, hidden: int, prompt: int, new: int) -> Request:
    """A prompt of random embeddings that goes on for `new` tokens whatever they are."""
    embeddings = (random.standard_normal((prompt, hidden)) * 0.02).astype(np.float32)
    # -1 is no token: nothing stops before `new`.
    return Request(embeddings, np.broadcast_to(np.arange(prompt), (3, prompt)), new, frozenset({-1}), guard=None)


def squares(grid: tuple[int, int], side_px: int, seed: int = 0) -> NDArray[np.uint8]:
    """uint8 (H, W, 3): squares of half a patch in random colours. Single pixels of noise would be no ink."""
    half = side_px // 2
    small = np.random.default_rng(seed).integers(0, 256, (grid[0] * 2, grid[1] * 2, 3), np.uint8)
    return np.repeat(np.repeat(small, half, 0), half, 1)


class Steps:
    """The steps of one opened reader; each gives seconds."""

    def __init__(self, reader: VlmReader, facts: VlmFacts) -> None:
        self._reader, self._facts = reader, facts
        self._random = np.random.default_rng(0)

    def vision(self, patches: int) -> float:
        """Seconds of the vision graph for one crop."""
        inputs = vlm.cut(squares(GRIDS[patches], self._facts.vision.patch_px), self._facts).inputs()
        clock = Clock()
        with clock.measure("vision"):
            self._reader.vision.run(inputs)
        return clock.ms["vision"] / 1000

    def prefill(self, tokens: int) -> float:
        """Seconds of a prompt to its first new token."""
        clock = Clock()
        with clock.measure("decoding"):
            self._generate(Timed(self._reader.engine.decoder, prompts=True), tokens, new=1, rows=1)
        return clock.ms["decoding"] / 1000

    def decode(self, rows: int) -> float:
        """Seconds of a step of so many sequences, with all that the engine does for it."""
        timed = Timed(self._reader.engine.decoder, prompts=False)
        self._generate(timed, CONTEXT, new=STEPS + 2, rows=rows)
        calls = [call for call in timed.calls if call[0] == "decode" and call[1] == rows]
        return statistics.median(after[2] - before[2] for before, after in itertools.pairwise(calls[1:]))

    def _generate(self, timed: Timed, prompt: int, *, new: int, rows: int) -> None:
        engine = self._reader.engine
        requests = [request(self._random, engine.decoder.hidden, prompt, new) for _ in range(rows)]
        # A Timed is a Decoder by what it passes on.
        run = Engine(cast(Decoder, timed), engine.embed, EngineLimits(rows))
        for outcome in run.generate_all(requests):
            if not isinstance(outcome, Generation):
                raise InferenceError(str(outcome), fix=outcome.fix)


def measure_steps(job: Job, tell: Tell) -> list[Row]:
    bundle = _opened(job)
    facts = bundle.facts
    most = max(SEQUENCES)
    runtime = job.runtime.model_copy(update={"max_rows": max(job.runtime.max_rows, most)})
    reader, parts = VlmReader.open(bundle, runtime)
    execution = ", ".join(
        dict.fromkeys(f"{part.compiled.execution_precision} on {'+'.join(part.compiled.devices)}" for part in parts)
    )
    steps = Steps(reader, facts)
    table = _table(job, facts, reader)
    times: dict[str, list[float]] = {name: [] for name, *_ in table}
    for turn in range(job.rounds):
        for place, (name, kind, count, why) in enumerate(table):
            if why is None:
                seconds = float(getattr(steps, kind)(count))
                if turn >= job.warm_up:
                    times[name].append(count / seconds)
            tell(turn * len(table) + place + 1, job.rounds * len(table))

    def row(
        name: str,
        unit: str,
        better: Better,
        values: list[float],
        *,
        why: str | None = None,
        note: str = "",
        limit: str | None = None,
        cost: float | None = None,
    ) -> Row:
        return job.row("vlm", name, unit, better, execution, values, note=note, why=why, limit=limit, cost=cost)

    multiplied = f"matmul {'int8' if job.runtime.precision in ('int8', 'int4') else execution.split(' ')[0]}"
    rows = []
    for name, kind, count, why in table:
        limit, cost = None, None
        if kind == "vision":
            limit, cost = multiplied, vision_flop(facts, count) / count
        elif kind == "decode" and count == 1:
            limit, cost = MEMORY, float(bundle.part("decoder").with_suffix(".bin").stat().st_size)
        unit = "patches/s" if kind == "vision" else "tokens/s"
        rows.append(row(name, unit, "higher", times[name], why=why, limit=limit, cost=cost))
    peak = peak_mib()
    no_peak = UNTOLD if peak is None else None
    rows.append(
        row("peak memory", "MiB", "lower", [] if peak is None else [peak], note="of all these steps", why=no_peak)
    )
    return rows


def _opened(job: Job) -> VlmBundle:
    folder = vlm_folder(job.runtime)
    if folder is None:
        raise BundleError(f"{job.runtime.preset} is no vision-language model", fix=how_to_get(job.runtime.preset))
    return open_vlm_bundle(folder)


def _table(job: Job, facts: VlmFacts, reader: VlmReader) -> list[tuple[str, str, int, str | None]]:
    """Name, step and size of each row, and why it cannot be measured."""
    largest = facts.largest_patches()["pixel_values"][1]
    decoder = reader.engine.decoder
    room = decoder.num_blocks * decoder.block_tokens
    grids, prompts, sequences = list(GRIDS), list(PROMPTS), list(SEQUENCES)
    if job.quick:
        grids, prompts = grids[: QUICK["grids"]], prompts[: QUICK["prompts"]]
        sequences = sequences[: QUICK["sequences"]]
    table: list[tuple[str, str, int, str | None]] = []
    for count in grids:
        why = f"crops of this model have {largest} patches at most" if count > largest else None
        table.append((f"vision, {count} patches", "vision", count, why))
    for count in prompts:
        why = "more than --kv-cache-mib holds" if count + 1 > room else None
        table.append((f"prefill, {count} tokens", "prefill", count, why))
    for count in sequences:
        why = None
        if count > decoder.max_rows:
            why = f"this form of the decoder takes {decoder.max_rows} at a time"
        elif count * (CONTEXT + STEPS + 2 + decoder.block_tokens) > room:
            why = "more than --kv-cache-mib holds"
        table.append((f"decode, {count} sequence{'s' * (count > 1)}", "decode", count, why))
    return table


def vision_flop(facts: VlmFacts, patches: int) -> float:
    """Multiplications and additions of tower and projector for one crop of so many patches."""
    vision: VisionFacts = facts.vision
    wide = vision.hidden_size
    layer = 2 * (4 * wide * wide + 2 * wide * vision.intermediate_size) + 4 * patches * wide
    merged = wide * vision.merge**2
    projector = 2 * (merged * merged + merged * facts.text.hidden_size) / vision.merge**2
    return patches * (2 * 3 * vision.patch_px**2 * wide + vision.layers * layer + projector)


def options_for(random_weights: bool) -> ParseOptions:
    """What pages are read with. A model that nobody trained ends no text by itself."""
    return ParseOptions(max_new_tokens=RANDOM_TOKENS, loop_guard=False) if random_weights else ParseOptions()
