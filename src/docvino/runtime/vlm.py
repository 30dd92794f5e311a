"""Reads crops with a PaddleOCR-VL model: pixels -> image tokens -> prompt -> text."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, TypeVar

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

_Key = TypeVar("_Key")
LoadedDecoder = PagedDecoder | StatefulDecoder
_NOTHING = Answer("", 0.0)


@dataclass(frozen=True, eq=False)
class VlmPart:
    """One graph as it runs; `fallback` says why it does not run as asked."""

    part: str
    compiled: Compiled
    fallback: str | None


@dataclass(frozen=True, eq=False)
class Asked(Generic[_Key]):
    """A crop to be read, and by what its answer is known.

    cancel   set: it is given up before its next token
    took     told the milliseconds that its image tokens took
    """

    key: _Key
    crop: Crop
    options: ParseOptions
    cancel: threading.Event | None
    took: Callable[[float], None]


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
        shown: set[int] = set()

        def tell() -> None:
            # A crop is two steps: what it shows, and what it says.
            clock.watch(2 * len(answers) + len(shown - answers.keys()), 2 * len(crops))

        def asked() -> Iterator[Asked[int]]:
            for place, crop in enumerate(crops):
                yield Asked(place, crop, options, None, partial(took, place))

        def took(place: int, ms: float) -> None:
            clock.ms["vision"] += ms  # type: ignore[assignment]
            clock.ms["decoding"] -= ms  # type: ignore[assignment]
            shown.add(place)
            tell()

        def answered(place: int, answer: Answer) -> None:
            answers[place] = answer
            tell()

        with clock.measure("decoding"):
            self.read_stream(asked(), answered)
        return [answers[place] for place in range(len(crops))]

    def read_stream(self, asked: Iterable[Asked[_Key] | None], answered: Callable[[_Key, Answer], None]) -> None:
        """Tells the answers as they come, each with the key of its crop; None means that there is no crop now.

        Raises: InferenceError when the device fails in the decoder; what `asked` and `answered` raise.
        """
        keys: list[_Key] = []  # of each request

        def requests() -> Iterator[Request | None]:
            # The engine takes the next request when it has room for it, so few image tokens are held at a time.
            for one in asked:
                if one is None:
                    yield None
                    continue
                if not has_ink(one.crop.pixels):
                    answered(one.key, replace(_NOTHING, finish="blank"))
                    continue
                begun = time.perf_counter()
                try:
                    request = self._request(one.crop, one.options, one.cancel)
                except (InputError, InferenceError) as problem:
                    answered(one.key, replace(_NOTHING, problem=problem))
                    continue
                finally:
                    one.took((time.perf_counter() - begun) * 1000)
                keys.append(one.key)
                yield request

        for index, outcome in self._engine.generate(requests()):
            answered(keys[index], self._answer(outcome))

    def _request(self, crop: Crop, options: ParseOptions, cancel: threading.Event | None) -> Request:
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
            cancel=cancel,
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
