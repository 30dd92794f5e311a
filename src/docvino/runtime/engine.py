"""One loop that continues many prompts at once: what runs next is the scheduler's word, how is the decoder's.

The text of a request does not depend on its neighbours, bit for bit: see `decoder/contract.py` (how calls are filled),
`scheduler.py` (how prompts are cut) and `choose.py` (which measures it when a decoder is loaded).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from docvino.decoder.contract import Decoder, Embed, Row
from docvino.errors import GenerationError, InferenceError
from docvino.runtime.scheduler import BlockManager, EngineLimits, Piece, Scheduler
from docvino.runtime.sequence import Generation, Request, Sequence

log = logging.getLogger(__name__)

Outcome = Generation | GenerationError


class Engine:
    """Continues prompts with one decoder. Not for several threads at once, and for one `generate` at a time."""

    def __init__(
        self,
        decoder: Decoder,
        embed: Embed,
        limits: EngineLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        embed   token ids int64 (n,) -> float32 (n, H)
        clock   seconds, for time limits
        """
        limits = limits or EngineLimits()
        self._decoder, self._embed, self._clock = decoder, embed, clock
        self._scheduler = Scheduler(
            BlockManager(decoder.num_blocks, decoder.block_tokens),
            EngineLimits(min(limits.max_rows, decoder.max_rows), limits.step_tokens),
        )
        self._scratch = np.empty(decoder.vocabulary, np.float32)
        self._busy = False

    @property
    def decoder(self) -> Decoder:
        """What it calls, for those who measure it alone."""
        return self._decoder

    @property
    def embed(self) -> Embed:
        return self._embed

    def generate(self, requests: Iterable[Request | None]) -> Iterator[tuple[int, Outcome]]:
        """Each request's place and outcome, as they end.

        Requests are taken from `requests` when a row is free for them, so an iterator that computes its prompts holds a
        few of them at a time; None from it means that there is none now, while others still run, and is no place. A
        request that cannot run (it is malformed, or larger than all blocks together) has a
        GenerationError for an outcome; the others go on. Closing the iterator gives everything up.

        Raises: InferenceError when the device fails; then, too, the engine is ready for another call.
        """
        if self._busy:
            raise GenerationError(
                "the engine already runs another list of requests",
                fix="read one list to its end, or close its iterator, before the next",
            )
        self._busy = True
        try:
            following = iter(requests)
            place = 0
            more = True
            while more or not self._scheduler.idle:
                while more and self._scheduler.wants_more:
                    try:
                        request = next(following)
                    except StopIteration:
                        more = False
                        break
                    if request is None:
                        break
                    if (refusal := self._add(place, request)) is not None:
                        yield place, refusal
                    place += 1
                for sequence in self._step():
                    yield sequence.index, sequence.result()
        finally:
            self._give_up()
            self._busy = False

    def generate_all(self, requests: Iterable[Request]) -> list[Outcome]:
        """All outcomes in the order of the requests; otherwise like `generate`."""
        outcomes = dict(self.generate(requests))
        return [outcomes[place] for place in range(len(outcomes))]

    def _add(self, place: int, request: Request) -> GenerationError | None:
        sequence = Sequence(place, request)
        try:
            sequence.check(self._decoder.hidden)
            self._scheduler.add(sequence)
        except GenerationError as error:
            return error
        return None

    def _step(self) -> list[Sequence]:
        """One call of the decoder; the sequences that ended."""
        ended = self._end_overdue()
        step = self._scheduler.next_step()
        if step is None:
            return ended
        if step.pieces:
            logits = self._decoder.run([self._piece_row(piece) for piece in step.pieces], "prefill")
            for piece in step.pieces:
                piece.sequence.cached_tokens = piece.stop
            sampled = [piece.sequence for piece in step.pieces if piece.last]
        else:
            sampled = list(step.decode)
            embeddings = self._embed(np.array([sequence.tokens[-1] for sequence in sampled], np.int64))
            logits = self._decoder.run(
                [
                    Row(embeddings[i : i + 1], np.full((3, 1), one.position), one.cached_tokens, one.blocks)
                    for i, one in enumerate(sampled)
                ],
                "decode",
            )
            for sequence in sampled:
                sequence.cached_tokens += 1
        for sequence, row in zip(sampled, logits, strict=True):
            sequence.accept(row, self._scratch)
            if sequence.finish is not None:
                self._end(sequence)
                ended.append(sequence)
        return ended

    def _piece_row(self, piece: Piece) -> Row:
        sequence, part = piece.sequence, slice(piece.start, piece.stop)
        if sequence.started_s is None:
            sequence.started_s = self._clock()
        request = sequence.request
        return Row(request.embeddings[part], request.positions[:, part], piece.start, sequence.blocks, piece.last)

    def _end_overdue(self) -> list[Sequence]:
        now = self._clock()
        ended = []
        for sequence in self._scheduler.sequences:
            sequence.finish = sequence.overdue(now)
            if sequence.finish is not None:
                self._end(sequence)
                ended.append(sequence)
        return ended

    def _end(self, sequence: Sequence) -> None:
        if sequence.blocks and sequence.finish not in ("stop", "length", "repetition"):
            # Its last logits were not finite, or nobody looked: what is no number would reach the blocks' next owner.
            self._decoder.wipe(sequence.blocks)
        self._scheduler.end(sequence)

    def _give_up(self) -> None:
        """Ends all that still runs, after an error or when nobody wants the rest."""
        for sequence in self._scheduler.sequences:
            try:
                if sequence.blocks:
                    self._decoder.wipe(sequence.blocks)
            except InferenceError as error:
                log.warning("blocks were not cleared: %s", error)
            self._scheduler.end(sequence)
