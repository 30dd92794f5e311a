"""The first time a model is loaded on a device it is asked what others have answered before.

A pass is remembered with the model's files, the device, its driver, OpenVINO and the properties it was compiled with
(`docvino.device.Entry`). A device that answers wrongly is refused, or, when that is allowed, the model is held in f32
on it, else on the CPU; the result says so.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from docvino import golden, golden_vlm
from docvino.bundle import Bundle, VlmBundle
from docvino.codec.prompt import Prompt, Tokenizer, build_prompt, place_image
from docvino.codec.vlm import prepare
from docvino.decoder.choose import TOLERANCE_ROUNDED
from docvino.decoder.contract import Decoder, Embed, Row
from docvino.decoder.paged import PagedDecoder
from docvino.decoder.stateful import StatefulDecoder
from docvino.device import Compiled, Model, compile_model, target_of
from docvino.errors import DeviceError, DocvinoError, InferenceError, VerifyError
from docvino.golden_vlm import PartDifference, VlmCase
from docvino.settings import RuntimeConfig
from docvino.specs.model import ModelSpec, RecognitionFacts

log = logging.getLogger(__name__)

Floats = NDArray[np.float32]
T = TypeVar("T")

FORMATS = {"f32": "fp32", "f16": "fp16", "bf16": "bf16"}  # arithmetic -> the number format that limits are named by


@dataclass(frozen=True, eq=False)
class Loaded(Generic[T]):
    """What was loaded; `fallback` says what else was asked for and why it is not, None when it is as asked."""

    what: T
    fallback: str | None = None


def load_allowed(name: str, runtime: RuntimeConfig, load: Callable[[RuntimeConfig], T]) -> Loaded[T]:
    """What `load` gives for these settings; where it fails and `allow_fallback` is on, for f32, then for the CPU.

    Raises: the first failure.
    """
    first: DocvinoError | None = None
    failures = []
    for settings in _ways(runtime):
        try:
            loaded = load(settings)
        except (InferenceError, VerifyError) as error:
            first = first or error
            failures.append(str(error))
            _forget(error)
            continue
        if not failures:
            return Loaded(loaded)
        target = target_of(settings)
        log.warning("%s runs on %s in %s: %s", name, target.device.name, target.execution, failures[-1])
        return Loaded(loaded, "; ".join(failures))
    assert first is not None
    raise first


def _ways(runtime: RuntimeConfig) -> Iterator[RuntimeConfig]:
    yield runtime
    if not runtime.allow_fallback:
        return
    try:
        target = target_of(runtime)
    except DeviceError:  # an absent device: its own error was raised before
        family = ""
    else:
        family = target.device.family
        if target.execution != "f32":
            yield runtime.model_copy(update={"execution": "f32"})
    if family != "CPU":
        yield runtime.model_copy(update={"device": "CPU", "execution": "f32", "kv_precision": None})


def _forget(error: BaseException | None) -> None:
    """Lets go of what the frames of a failure hold: the memory of the model that failed is for the next."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__


def load_model(bundle: Bundle, spec: ModelSpec[Any], runtime: RuntimeConfig) -> Loaded[Model]:
    """Compiles a model of one graph; the first time it must give the recorded answers.

    Raises: BundleError, DeviceError, InferenceError, VerifyError.
    """

    def load(settings: RuntimeConfig) -> Model:
        model = compile_model(bundle.graph, spec, settings)
        if settings.self_test and model.compiled.entry.passed(_test(model.compiled)) is None:
            comparison = judge(bundle, spec, model)
            if comparison.problem is not None:
                raise _wrong(spec.name, model.compiled, comparison.problem)
        return model

    return load_allowed(spec.name, runtime, load)


def judge(bundle: Bundle, spec: ModelSpec[Any], model: Model) -> golden.Comparison:
    """How near a model comes to its golden case, every request asked; a pass is remembered.

    Raises: BundleError, InferenceError.
    """
    case = golden.load_golden(bundle.golden)
    characters = bundle.characters() if isinstance(spec.facts, RecognitionFacts) else None
    outputs = golden.run(spec, case, model, max(golden.REPEATS, model.slots))
    formats = (bundle.manifest.precision, FORMATS[model.execution_precision])
    comparison = golden.compare_all(spec, case, outputs, characters, formats)
    if comparison.problem is None:
        model.compiled.entry.remember(_test(model.compiled), {"max_abs_diff": comparison.max_abs_diff})
    return comparison


@dataclass(frozen=True, eq=False)
class VlmTest:
    """The golden case of a vision-language model, put to the graphs and to the decoder that read crops."""

    bundle: VlmBundle
    tokenizer: Tokenizer

    def check_vision(self, vision: Model) -> None:
        """Raises: VerifyError, InferenceError (numbers that are not finite)."""
        if self._knows(vision.compiled):
            return
        case = golden_vlm.load_case(self.bundle.golden)
        found = golden_vlm.keep(self._image_tokens(vision, case))
        self._judge(vision.compiled, golden_vlm.difference_of("vision", case.outputs.image_embeds, found))

    def check_embed(self, embed: Model) -> None:
        """Raises: as `check_vision`."""
        if self._knows(embed.compiled):
            return
        case = golden_vlm.load_case(self.bundle.golden)
        ids = self._prompt(case).ids
        found = golden_vlm.keep(embed.run({"input_ids": ids[None]})["inputs_embeds"][0])
        self._judge(embed.compiled, golden_vlm.difference_of("embed", case.outputs.inputs_embeds, found))

    def check_decoder(self, decoder: PagedDecoder | StatefulDecoder, vision: Model, embed: Embed) -> None:
        """Raises: as `check_vision`."""
        compiled = decoder.compiled
        if self._knows(compiled):
            return
        case = golden_vlm.load_case(self.bundle.golden)
        prompt = self._prompt(case)
        embeddings = place_image(embed(prompt.ids), self._image_tokens(vision, case), prompt)
        logits = follow(decoder, embeddings, prompt, embed, case.outputs.tokens)
        found = np.stack([golden_vlm.keep(step, golden_vlm.KEPT_LOGITS) for step in logits])
        # The recorded ones had keys and values in full.
        rounded = TOLERANCE_ROUNDED if decoder.rounds_activations or decoder.kv_type != "f32" else 0.0
        self._judge(compiled, golden_vlm.difference_of("decoder", case.outputs.logits, found), rounded)

    def _knows(self, compiled: Compiled) -> bool:
        return compiled.entry.passed(_test(compiled)) is not None

    def _prompt(self, case: VlmCase) -> Prompt:
        grid = prepare(case.image, case.task, self.bundle.facts).grid
        return build_prompt(self.tokenizer, case.task, grid, self.bundle.facts)

    def _image_tokens(self, vision: Model, case: VlmCase) -> Floats:
        patches = prepare(case.image, case.task, self.bundle.facts)
        tokens: Floats = vision.run(patches.inputs())["image_embeds"][0]
        return tokens

    def _judge(self, compiled: Compiled, difference: PartDifference, at_least: float = 0.0) -> None:
        formats = (self.bundle.manifest.precision, FORMATS[compiled.execution_precision])
        allowed = max(at_least, *(golden_vlm.LIMITS[name] for name in formats))
        if not difference.relative <= allowed:  # a NaN must not pass
            problem = f"differs by {difference.relative:.2g}, allowed is {allowed:.2g}"
            raise _wrong(f"{self.bundle.folder.name} {difference.part}", compiled, problem)
        compiled.entry.remember(_test(compiled), {"relative": difference.relative})


def follow(decoder: Decoder, embeddings: Floats, prompt: Prompt, embed: Embed, tokens: tuple[int, ...]) -> list[Floats]:
    """Logits float32 (V,) before each of `tokens`, the decoder being fed the prompt and then these tokens.

    embeddings   float32 (L, H) of the prompt with its image
    """
    length = len(prompt.ids)
    blocks = range(-(-(length + len(tokens)) // decoder.block_tokens))
    logits = [decoder.run([Row(embeddings, prompt.positions, 0, blocks)], "prefill")[0].copy()]
    for step, token in enumerate(tokens[:-1]):
        positions = np.full((3, 1), prompt.next_position + step, np.int64)
        row = Row(embed(np.array([token], np.int64)), positions, length + step, blocks)
        logits.append(decoder.run([row], "decode")[0].copy())
    decoder.wipe(blocks)
    return logits


def _test(compiled: Compiled) -> str:
    return f"answers {compiled.test}"


def _wrong(name: str, compiled: Compiled, problem: str) -> VerifyError:
    return VerifyError(
        f"{name} answers wrongly on {', '.join(compiled.devices)} in {compiled.execution_precision}: {problem}",
        fix="use --execution f32 or --device CPU, or --allow-fallback to have that done where it is needed; "
        "`docvino verify` shows each model",
    )
