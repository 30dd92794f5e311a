"""PaddleOCR-VL: prompts as token ids with positions, and answers as text. The only file that uses tokenizers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from docvino.codec.vlm import Grid, prompt_positions
from docvino.document import Task
from docvino.errors import BundleError, ConfigError, MissingExtraError
from docvino.specs import vlm
from docvino.specs.vlm import VlmFacts


@dataclass(frozen=True, eq=False)
class Prompt:
    """One question about one crop.

    ids             int64 (L,), the placeholder token where image tokens go
    image           which places of `ids` those are
    positions       int64 (3, L)
    next_position   of the first generated token; each further one counts on by one
    """

    ids: NDArray[np.int64]
    image: slice
    positions: NDArray[np.int64]
    next_position: int


class Tokenizer:
    """The tokenizer that a tokenizer.json describes."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        # The table tags and locations are the answer itself, even where the tokenizer calls them special.
        self._skipped = frozenset(
            number
            for number, token in engine.get_added_tokens_decoder().items()
            if token.special and token.content not in vlm.KEPT_TOKENS
        )

    @classmethod
    def open(cls, path: Path) -> Tokenizer:
        """Raises: MissingExtraError without the package, BundleError when the file cannot be read."""
        try:
            from tokenizers import Tokenizer as Engine
        except ImportError as error:
            raise MissingExtraError(
                "vision-language models need the package tokenizers", fix='pip install "docvino[vlm]"'
            ) from error
        try:
            return cls(Engine.from_file(str(path)))
        except Exception as error:  # the package raises nothing narrower
            raise BundleError(f"cannot read {path.name}: {error}", fix="convert the model again") from error

    def encode(self, text: str) -> list[int]:
        """Token ids; nothing is put before or behind them."""
        return list(self._engine.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of generated ids: without the tokens that steer the model, with table tags and locations.

        Half a character at the end, as a cut-off leaves it, comes out as U+FFFD.
        """
        return str(self._engine.decode([i for i in ids if i not in self._skipped], skip_special_tokens=False))

    def text_of(self, number: int) -> str | None:
        """The token with this id, None when there is none."""
        token = self._engine.id_to_token(number)
        return None if token is None else str(token)


def prompt_text(task: Task, facts: VlmFacts) -> str:
    """The prompt with one placeholder.

    Raises: ConfigError for a task that the model does not know.
    """
    if task not in facts.tasks:
        raise ConfigError(f"this model does not read {task}", fix=f"it reads {', '.join(facts.tasks)}")
    head = vlm.PROMPT_HEAD.format(begin=vlm.BEGIN, image_start=vlm.IMAGE_START)
    tail = vlm.PROMPT_TAILS[facts.prompt_style].format(image_end=vlm.IMAGE_END, task=vlm.TASK_PROMPTS[task])
    return head + vlm.IMAGE + tail


def build_prompt(tokenizer: Tokenizer, task: Task, grid: Grid, facts: VlmFacts) -> Prompt:
    """The prompt of a task for a crop of `grid` patches.

    The image comes before the text, as in training. The text is tokenized with one placeholder, which is then repeated:
    placeholders are tokens of their own, so the rest cannot depend on their number.

    Raises: ConfigError for a task that the model does not know; BundleError when the tokenizer does not make the prompt
    that the model was trained with.
    """
    ids = _prompt_ids(tokenizer, task, facts)
    at = ids.index(facts.tokens.image)
    count = grid[0] * grid[1] // facts.vision.merge**2
    full = np.array([*ids[:at], *[facts.tokens.image] * count, *ids[at + 1 :]], np.int64)
    positions, following = prompt_positions(at, grid, len(ids) - at - 1)
    return Prompt(ids=full, image=slice(at, at + count), positions=positions, next_position=following)


def place_image(embeds: NDArray[np.float32], image_embeds: NDArray[np.float32], prompt: Prompt) -> NDArray[np.float32]:
    """Prompt embeddings float32 (L, E) with those of the placeholders replaced by image tokens (N / 4, E).

    Raises: BundleError when there are not as many image tokens as placeholders.
    """
    expected = prompt.image.stop - prompt.image.start
    if image_embeds.shape != (expected, embeds.shape[1]):
        raise BundleError(
            f"the vision graph gave image tokens {list(image_embeds.shape)} for {expected} placeholders",
            fix="convert the model again",
        )
    filled: NDArray[np.float32] = embeds.copy()
    filled[prompt.image] = image_embeds
    return filled


def _prompt_ids(tokenizer: Tokenizer, task: Task, facts: VlmFacts) -> list[int]:
    ids = tokenizer.encode(prompt_text(task, facts))
    tokens = facts.tokens
    framed = [ids.count(token) for token in (tokens.begin, tokens.image_start, tokens.image, tokens.image_end)]
    if framed != [1, 1, 1, 1] or ids[0] != tokens.begin:
        raise BundleError(
            f"the tokenizer turns the prompt for {task} into {ids[:12]}, without the frame of an image",
            fix="use the tokenizer that belongs to the weights",
        )
    return ids
