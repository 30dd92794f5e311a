"""Golden case of a vision-language model: one crop, what a reference engine made of it, and how near a device comes.

`golden.npz` of a bundle, recorded by `docvino.reference` with transformers, or, where nobody recorded one, by the
conversion itself (CPU, float32 arithmetic): then it proves that a device computes what a CPU computes.

    image          uint8 (H, W, 3) RGB, with its task
    image_embeds, inputs_embeds, logits   float32 values at fixed places of each graph's output
    tokens         int64 (steps,) greedy tokens; the logits are those before each of them
    text           what they say
    engine         what computed all this

The decoder is fed the recorded tokens, so each step is judged by itself, and a free run gives the same tokens exactly
when every step does.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from docvino.codec.prompt import Tokenizer, build_prompt
from docvino.codec.vlm import prepare
from docvino.document import Task
from docvino.errors import BundleError
from docvino.specs.vlm import VlmFacts
from docvino.stateful import StatefulReader

Floats = NDArray[np.float32]

# Largest distance of an output from the recorded one, as a share of the recorded one's length (Euclidean), by the
# coarsest format in use; outputs that have nothing to do with each other are 1.4 apart. Rounding errors grow from layer
# to layer, most in a deep model with random weights: the limits leave room for that, and tell wrong graphs from right
# ones, not good weights from bad ones.
LIMITS = {"fp32": 1e-4, "fp16": 0.02, "bf16": 0.25, "int8": 0.5, "int4": 0.9}
EXACT_FORMATS = frozenset({"fp32"})  # in which every token must be the recorded one
KEPT_VALUES = 4096  # of each graph's output; all when it is smaller
KEPT_LOGITS = 512  # of each step


@dataclass(frozen=True, eq=False)
class Outputs:
    """What the three graphs gave: at the places a case keeps, float32 (k,), (k,), (steps, k), and each step's best."""

    image_embeds: Floats
    inputs_embeds: Floats
    logits: Floats
    tokens: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class VlmCase:
    image: NDArray[np.uint8]
    task: Task
    outputs: Outputs
    text: str
    engine: str


@dataclass(frozen=True)
class PartDifference:
    """`relative` is the length of the difference over the length of the recorded output."""

    part: str
    max_abs_diff: float
    relative: float


@dataclass(frozen=True)
class VlmComparison:
    """How near a device came. `problem` says in words what is wrong, None when it passes."""

    parts: tuple[PartDifference, ...]
    allowed: float
    equal_tokens: int
    tokens: int
    problem: str | None


def kept_places(size: int, count: int) -> NDArray[np.int64]:
    """`count` places of a flat tensor of `size` values, spread evenly; all of them when there are fewer."""
    return np.unique(np.linspace(0, size - 1, min(size, count)).astype(np.int64))


def keep(values: Floats, count: int = KEPT_VALUES) -> Floats:
    flat = values.reshape(-1)
    return flat[kept_places(flat.size, count)].astype(np.float32)


def sample_image() -> NDArray[np.uint8]:
    """A crop of no meaning that is different in every row, column and colour, uint8 (60, 210, 3).

    It is not square, so that rows taken for columns are seen; and its colours differ, so that BGR is.
    """
    rows, columns = np.meshgrid(np.arange(60), np.arange(210), indexing="ij")
    ink = (np.sin(columns / 3.0) + np.sin(rows / 4.0 + columns / 40.0) > 0.4) * 180
    colours = [250 - ink, 240 - ink * 0.9 - rows, 200 - ink * 0.5 + columns / 6]
    return np.clip(np.stack(colours, axis=2), 0, 255).astype(np.uint8)


def run(
    reader: StatefulReader,
    tokenizer: Tokenizer,
    facts: VlmFacts,
    image: NDArray[np.uint8],
    task: Task,
    *,
    follow: Sequence[int] = (),
    steps: int = 0,
) -> Outputs:
    """What the graphs make of a crop: along the tokens `follow`, or `steps` greedy tokens when there are none.

    A greedy run goes on over end tokens: the steps after it are arithmetic like any other.
    """
    patches = prepare(image, task, facts)
    prompt = build_prompt(tokenizer, task, patches.grid, facts)
    image_embeds = reader.see(patches)
    logits = [reader.begin(prompt, image_embeds)]
    best = [int(logits[0].argmax())]
    for step in range(1, len(follow) or steps):
        logits.append(reader.go_on(follow[step - 1] if follow else best[-1]))
        best.append(int(logits[-1].argmax()))
    return Outputs(
        image_embeds=keep(image_embeds),
        inputs_embeds=keep(reader.embed(prompt.ids)),
        logits=np.stack([keep(step, KEPT_LOGITS) for step in logits]),
        tokens=tuple(best),
    )


def compare(case: VlmCase, found: Outputs, formats: Sequence[str]) -> VlmComparison:
    """Outputs of a device against the recorded ones.

    formats   the number formats in use (weights and arithmetic): the coarsest one sets the limit
    """
    allowed = max(LIMITS[name] for name in formats)
    parts = tuple(
        difference_of(name, getattr(case.outputs, field), getattr(found, field))
        for name, field in (("vision", "image_embeds"), ("embed", "inputs_embeds"), ("decoder", "logits"))
    )
    wanted = case.outputs.tokens
    equal = sum(one == other for one, other in zip(wanted, found.tokens, strict=True))
    problem = None
    # "not <=" and not ">": a NaN must not pass.
    if bad := [part for part in parts if not part.relative <= allowed]:
        problem = "; ".join(f"{part.part} differs by {part.relative:.2g}, allowed is {allowed:.2g}" for part in bad)
    elif EXACT_FORMATS.issuperset(formats) and equal < len(wanted):
        problem = f"{equal} of {len(wanted)} tokens are the recorded ones"
    return VlmComparison(parts, allowed, equal, len(wanted), problem)


def save_case(path: Path, case: VlmCase) -> None:
    np.savez_compressed(
        path,
        image=case.image,
        task=np.array(case.task),
        image_embeds=case.outputs.image_embeds,
        inputs_embeds=case.outputs.inputs_embeds,
        logits=case.outputs.logits,
        tokens=np.array(case.outputs.tokens, np.int64),
        text=np.array(case.text),
        engine=np.array(case.engine),
    )


def load_case(path: Path) -> VlmCase:
    """Raises: BundleError when the file is missing or damaged."""
    try:
        with path.open("rb") as stream, np.load(stream) as arrays:
            task = str(arrays["task"])
            if task not in get_args(Task):
                raise ValueError(task)
            return VlmCase(
                image=arrays["image"],
                task=task,  # type: ignore[arg-type]
                outputs=Outputs(
                    image_embeds=arrays["image_embeds"],
                    inputs_embeds=arrays["inputs_embeds"],
                    logits=arrays["logits"],
                    tokens=tuple(int(token) for token in arrays["tokens"]),
                ),
                text=str(arrays["text"]),
                engine=str(arrays["engine"]),
            )
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise BundleError(f"cannot read golden case {path.name}", fix="record it again, or convert again") from error


def difference_of(part: str, wanted: Floats, found: Floats) -> PartDifference:
    if wanted.shape != found.shape:
        return PartDifference(part, float("inf"), float("inf"))
    difference = np.abs(wanted.astype(np.float64) - found)
    length = float(np.linalg.norm(wanted.astype(np.float64))) or 1.0
    return PartDifference(part, float(difference.max()), float(np.linalg.norm(difference)) / length)
