"""One crop at a time through the three graphs of a vision-language model, as they lie on disk.

This is the plain road: the decoder keeps its keys and values itself, one sequence at a time. It is what conversions are
compared by and what a device is verified by; reading many crops fast is the engine's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from docvino.codec.prompt import Prompt, Tokenizer, build_prompt, place_image
from docvino.codec.vlm import Patches, prepare, text_rotary
from docvino.document import Finish, Task
from docvino.specs.vlm import VlmFacts

Floats = NDArray[np.float32]


class Graph(Protocol):
    """What a graph is run on; `docvino.device.Model` is one."""

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> Mapping[str, Floats]: ...

    def reset_state(self) -> None: ...


@dataclass(frozen=True, eq=False)
class Generated:
    """Token ids without the end token; `finish` is "stop" or "length"."""

    ids: tuple[int, ...]
    text: str
    finish: Finish


class StatefulReader:
    """Reads one crop after the other, greedily."""

    def __init__(self, vision: Graph, embed: Graph, decoder: Graph, tokenizer: Tokenizer, facts: VlmFacts) -> None:
        self._vision, self._embed, self._decoder = vision, embed, decoder
        self._tokenizer, self._facts = tokenizer, facts
        self._seen = 0
        self._next_position = 0

    def see(self, patches: Patches) -> Floats:
        """Image tokens float32 (N / 4, E) of one crop."""
        image_embeds: Floats = self._vision.run(patches.inputs())["image_embeds"][0]
        return image_embeds

    def embed(self, ids: NDArray[np.int64]) -> Floats:
        """Embeddings float32 (L, E) of token ids int64 (L,)."""
        embeds: Floats = self._embed.run({"input_ids": ids[None]})["inputs_embeds"][0]
        return embeds

    def begin(self, prompt: Prompt, image_embeds: Floats) -> Floats:
        """Logits float32 (V,) of the first token after the prompt; forgets what was read before."""
        self._decoder.reset_state()
        self._seen, self._next_position = 0, prompt.next_position
        return self._decode(place_image(self.embed(prompt.ids), image_embeds, prompt), prompt.positions)

    def go_on(self, token: int) -> Floats:
        """Logits float32 (V,) of the token that follows `token`."""
        positions = np.full((3, 1), self._next_position, np.int64)
        self._next_position += 1
        return self._decode(self.embed(np.array([token], np.int64)), positions)

    def read(self, pixels: NDArray[np.uint8], task: Task, limit: int | None = None) -> Generated:
        """The most probable token at each step until the end token, at most `limit` (or the model's own limit).

        pixels   uint8 (H, W, 3) RGB
        """
        patches = prepare(pixels, task, self._facts)
        logits = self.begin(build_prompt(self._tokenizer, task, patches.grid, self._facts), self.see(patches))
        ids: list[int] = []
        limit = self._facts.max_new_tokens if limit is None else limit
        while len(ids) < limit:
            token = int(logits.argmax())
            if token in self._facts.tokens.end:
                return Generated(tuple(ids), self._tokenizer.decode(ids), "stop")
            ids.append(token)
            if len(ids) < limit:
                logits = self.go_on(token)
        return Generated(tuple(ids), self._tokenizer.decode(ids), "length")

    def _decode(self, embeds: Floats, positions: NDArray[np.int64]) -> Floats:
        cos, sin = text_rotary(positions, self._facts.text)
        self._seen += len(embeds)
        outputs = self._decoder.run(
            {
                "inputs_embeds": embeds[None],
                "attention_mask": np.ones((1, self._seen), np.int64),
                "rotary_cos": cos[None, None],
                "rotary_sin": sin[None, None],
                "beam_idx": np.zeros(1, np.int32),
            }
        )
        logits: Floats = outputs["logits"][0, -1]
        return logits
