"""Reads crops with a PaddleOCR-VL model: pixels -> image tokens -> prompt -> text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from docvino.bundle import VlmBundle
from docvino.codec import vlm
from docvino.codec.pixels import has_ink
from docvino.codec.prompt import Tokenizer, build_prompt, place_image
from docvino.decoder.choose import DecoderChoice, choose_decoder
from docvino.decoder.contract import KvSettings
from docvino.decoder.paged import PagedDecoder
from docvino.decoder.stateful import StatefulDecoder
from docvino.device import Compiled, Model, PaddedModel, compile_part
from docvino.document import Answer, Crop
from docvino.errors import InferenceError, InputError
from docvino.runtime.engine import Engine, Outcome
from docvino.runtime.repetition import USUAL_LOOPS
from docvino.runtime.sampling import Sampling
from docvino.runtime.scheduler import EngineLimits
from docvino.runtime.sequence import Generation, Request
from docvino.runtime.stages import Clock
from docvino.selftest import Loaded, VlmTest, load_allowed
from docvino.settings import ParseOptions, RuntimeConfig
from docvino.specs.vlm import VlmFacts

LoadedDecoder = PagedDecoder | StatefulDecoder
_NOTHING = Answer("", 0.0)


@dataclass(frozen=True, eq=False)
class VlmPart:
    """One graph as it runs; `fallback` says why it does not run as asked."""

    part: str
    compiled: Compiled
    fallback: str | None


class VlmReader:
    """The reader of the PaddleOCR-VL presets.

    Crops decode side by side; the answer to a crop does not depend on the others. One crop that cannot be read has an
    answer with a `problem`. A crop without ink is not shown to the model, which would make something up: its answer
    is marked "blank".
    """

    def __init__(self, vision: Model, embed: Model, engine: Engine, tokenizer: Tokenizer, facts: VlmFacts) -> None:
        self._vision, self._embed, self._engine = vision, embed, engine
        self._tokenizer, self._facts = tokenizer, facts

    @classmethod
    def open(cls, bundle: VlmBundle, runtime: RuntimeConfig) -> tuple[VlmReader, tuple[VlmPart, ...]]:
        """The reader and what became of its vision graph and its decoder.

        Each graph is loaded on its own stage's device; embeddings go with the decoder. The first time on a device each
        must give the recorded answers.

        Raises: BundleError, ConfigError (kv_cache_mib), DeviceError, InferenceError, VerifyError, MissingExtraError
        (package tokenizers).
        """
        facts = bundle.facts
        tokenizer = Tokenizer.open(bundle.tokenizer)
        test = VlmTest(bundle, tokenizer)

        def load_vision(at: RuntimeConfig) -> Model:
            model = compile_part(bundle.part("vision"), "vision", at, facts.largest_patches())
            if at.self_test:
                test.check_vision(model)
            return model

        def load_embed(at: RuntimeConfig) -> Model:
            model = compile_part(bundle.part("embed"), "embed", at, {"input_ids": (1, at.step_tokens)})
            if at.self_test:
                test.check_embed(model)
            return model

        def load_decoder(at: RuntimeConfig) -> tuple[LoadedDecoder, DecoderChoice]:
            decoder, choice = choose_decoder(
                bundle.part("decoder"),
                "decoder",
                at,
                KvSettings(at.kv_cache_mib, at.kv_precision),
                embed=lambda ids: _embedded(embed.what, ids),
                rotary=lambda positions: vlm.text_rotary(positions, facts.text),
                allow_stateful=at.allow_fallback,
            )
            if at.self_test:
                test.check_decoder(decoder, vision.what, lambda ids: _embedded(embed.what, ids))
            return decoder, choice

        vision = load_allowed("vision", runtime.on_stage("vision"), load_vision)
        embed = load_allowed("embed", runtime.on_stage("decoder"), load_embed)
        decoder = load_allowed("decoder", runtime.on_stage("decoder"), load_decoder)
        reads, choice = decoder.what
        engine = Engine(
            reads, lambda ids: _embedded(embed.what, ids), EngineLimits(runtime.max_rows, runtime.step_tokens)
        )
        parts = (
            VlmPart("vision", vision.what.compiled, vision.fallback),
            VlmPart("embed", embed.what.compiled, embed.fallback),
            VlmPart(
                f"decoder: {choice.form}, keys and values {choice.kv_type}",
                reads.compiled,
                _joined(decoder, choice),
            ),
        )
        return cls(vision.what, embed.what, engine, tokenizer, facts), parts

    @property
    def vision(self) -> Model:
        """The vision graph alone, as `engine` is all that comes after it: for those who measure them."""
        return self._vision

    @property
    def engine(self) -> Engine:
        return self._engine

    def warm(self) -> int:
        """Runs each size of the vision graph that its device compiles for; returns how many there are."""
        if not isinstance(self._vision, PaddedModel):
            return 0
        return self._vision.warm(self._facts.largest_patches()["pixel_values"][1])

    def read(self, crops: Sequence[Crop], options: ParseOptions, clock: Clock) -> list[Answer]:
        """Raises: InferenceError when the device fails in the decoder: then no crop of this call has an answer."""
        answers: dict[int, Answer] = {}
        asked: list[int] = []  # place of the crop of each request

        def tell() -> None:
            # A crop is two steps: what it shows, and what it says.
            waiting = sum(place not in answers for place in asked)
            clock.watch(2 * len(answers) + waiting, 2 * len(crops))

        def requests() -> Iterator[Request]:
            # The engine takes the next request when it has room for it, so few image tokens are held at a time.
            for place, crop in enumerate(crops):
                if not has_ink(crop.pixels):
                    answers[place] = replace(_NOTHING, finish="blank")
                    continue
                try:
                    with clock.measure("vision"):
                        request = self._request(crop, options)
                except (InputError, InferenceError) as problem:
                    answers[place] = replace(_NOTHING, problem=problem)
                    continue
                asked.append(place)
                tell()
                yield request

        with clock.measure("decoding"):
            for index, outcome in self._engine.generate(requests()):
                answers[asked[index]] = self._answer(outcome)
                tell()
        return [answers[place] for place in range(len(crops))]

    def _request(self, crop: Crop, options: ParseOptions) -> Request:
        patches = vlm.prepare(crop.pixels, crop.task, self._facts)
        prompt = build_prompt(self._tokenizer, crop.task, patches.grid, self._facts)
        image_tokens = self._vision.run(patches.inputs())["image_embeds"][0]
        return Request(
            embeddings=place_image(_embedded(self._embed, prompt.ids), image_tokens, prompt),
            positions=prompt.positions,
            max_new_tokens=options.max_new_tokens or self._facts.max_new_tokens,
            stop_tokens=frozenset(self._facts.tokens.end),
            sampling=Sampling(options.temperature, options.top_p, options.seed),
            guard=USUAL_LOOPS if options.loop_guard else None,
            time_limit_s=options.time_limit_s,
        )

    def _answer(self, outcome: Outcome) -> Answer:
        if not isinstance(outcome, Generation):
            return replace(_NOTHING, problem=outcome)
        if outcome.finish == "nonfinite" and not outcome.tokens:
            problem = InferenceError(
                "the decoder gave numbers that are not finite", fix="run `docvino verify`, or use --execution f32"
            )
            return replace(_NOTHING, finish="nonfinite", problem=problem)
        return Answer(
            text=self._tokenizer.decode(outcome.tokens),
            confidence=outcome.confidence,
            finish=outcome.finish,
            prompt_tokens=outcome.prompt_tokens,
            tokens=outcome.generated,
        )


def _joined(decoder: Loaded[tuple[LoadedDecoder, DecoderChoice]], choice: DecoderChoice) -> str | None:
    reasons = [decoder.fallback, choice.reason if choice.form == "stateful" else None]
    return "; ".join(reason for reason in reasons if reason) or None


def _embedded(embed: Model, ids: NDArray[np.int64]) -> NDArray[np.float32]:
    """Token ids int64 (n,) -> float32 (n, E)."""
    rows: NDArray[np.float32] = embed.run({"input_ids": ids[None]})["inputs_embeds"][0]
    return rows
