"""A request to the engine, its state while it runs, and what comes of it. Pure."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from docvino.document import Finish
from docvino.errors import GenerationError
from docvino.runtime.repetition import USUAL_LOOPS, Loop, LoopDetector, LoopGuard
from docvino.runtime.sampling import GREEDY, Sampler, Sampling


@dataclass(frozen=True, eq=False)
class Request:
    """One prompt to be continued.

    embeddings       float32 (S, H): the prompt with its image tokens in place
    positions        int64 (3, S): time, height, width. A new token has the largest of them plus one in all three rows
                     (Source: get_rope_index of transformers' PaddleOCR-VL)
    max_new_tokens   most tokens to generate
    stop_tokens      ids that end the text and are no part of it
    guard            ends loops; None lets them run to max_new_tokens
    time_limit_s     seconds from the first call it takes part in; None: no limit. What was read by then is kept
    cancel           set by anybody, from any thread: the request ends before its next token
    """

    embeddings: NDArray[np.float32]
    positions: NDArray[np.int64]
    max_new_tokens: int
    stop_tokens: frozenset[int]
    sampling: Sampling = GREEDY
    guard: LoopGuard | None = USUAL_LOOPS
    time_limit_s: float | None = None
    cancel: threading.Event | None = None


@dataclass(frozen=True)
class Generation:
    """What a request became.

    tokens       without the stop token; of a loop, the first copy
    logprobs     log-probability of each token, natural logarithm
    generated    how many tokens were computed: with the stop token, and with all copies of a loop
    stop_logprob of the stop token, None unless `finish` is "stop"
    """

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: Finish
    prompt_tokens: int
    generated: int
    stop_logprob: float | None = None

    @property
    def confidence(self) -> float:
        """In [0, 1]: geometric mean of the tokens' probabilities; of an empty text, that of its being empty."""
        if self.logprobs:
            return math.exp(math.fsum(self.logprobs) / len(self.logprobs))
        return math.exp(self.stop_logprob) if self.stop_logprob is not None else 0.0


@dataclass(eq=False)
class Sequence:
    """The one object that carries the state of a request through scheduler and engine.

    index           place of the request, from 0
    cached_tokens   tokens whose keys and values the decoder has
    blocks          ids of its blocks, first tokens first; empty while it waits and after its end
    tokens          generated so far, without the stop token; logprobs likewise
    finish          why it ended; None while it lives
    started_s       when it first took part in a call
    """

    index: int
    request: Request
    cached_tokens: int = 0
    blocks: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: Finish | None = None
    started_s: float | None = None
    stop_logprob: float | None = None
    loop: Loop | None = None

    def __post_init__(self) -> None:
        self._sampler = Sampler(self.request.sampling)
        self._detector = LoopDetector(self.request.guard) if self.request.guard else None
        self._first_position = int(self.request.positions.max(initial=-1)) + 1

    @property
    def prompt_tokens(self) -> int:
        return int(self.request.embeddings.shape[0])

    @property
    def prompt_left(self) -> int:
        return max(0, self.prompt_tokens - self.cached_tokens)

    @property
    def most_tokens(self) -> int:
        """Keys and values it can ever have; those of the last token are never computed."""
        return self.prompt_tokens + self.request.max_new_tokens - 1

    @property
    def position(self) -> int:
        """Of the latest token, in all three rows."""
        return self._first_position + len(self.tokens) - 1

    def check(self, hidden: int) -> None:
        """Raises: GenerationError for a request that makes no sense."""
        request = self.request
        if request.embeddings.dtype != np.float32 or request.embeddings.shape != (self.prompt_tokens, hidden):
            wrong = f"embeddings {request.embeddings.dtype} {request.embeddings.shape}, not float32 (S, {hidden})"
        elif self.prompt_tokens < 1:
            wrong = "a prompt without tokens"
        elif request.positions.shape != (3, self.prompt_tokens) or request.positions.dtype != np.int64:
            shape = request.positions.shape
            wrong = f"positions {request.positions.dtype} {shape}, not int64 (3, {self.prompt_tokens})"
        elif request.max_new_tokens < 1:
            wrong = f"max_new_tokens {request.max_new_tokens}"
        elif not request.stop_tokens:
            wrong = "no stop token"
        else:
            return
        raise GenerationError(f"a request has {wrong}", fix="give prompts as Request describes them")

    def overdue(self, now_s: float) -> Finish | None:
        """Why it must end before its next token, if so."""
        if self.request.cancel is not None and self.request.cancel.is_set():
            return "cancelled"
        limit = self.request.time_limit_s
        return "time" if limit is not None and self.started_s is not None and now_s - self.started_s >= limit else None

    def accept(self, logits: NDArray[np.float32], scratch: NDArray[np.float32]) -> None:
        """Takes the next token from logits float32 (V,), and sets `finish` when it is the last one."""
        chosen = self._sampler.choose(logits, scratch)
        if chosen is None:
            self.finish = "nonfinite"
            return
        token, logprob = chosen
        if token in self.request.stop_tokens:
            self.finish, self.stop_logprob = "stop", logprob
            return
        self.tokens.append(token)
        self.logprobs.append(logprob)
        self.loop = self._detector.push(token) if self._detector else None
        if self.loop is not None:
            self.finish = "repetition"
        elif len(self.tokens) == self.request.max_new_tokens:
            self.finish = "length"

    def result(self) -> Generation:
        if self.finish is None:
            raise GenerationError("a sequence that runs has no result", fix="a bug of docvino: please report it")
        kept = len(self.tokens) if self.loop is None else self.loop.end_of_first
        return Generation(
            tokens=tuple(self.tokens[:kept]),
            logprobs=tuple(self.logprobs[:kept]),
            finish=self.finish,
            prompt_tokens=self.prompt_tokens,
            generated=len(self.tokens) + (self.finish == "stop"),
            stop_logprob=self.stop_logprob,
        )
