"""The stateful form of the decoder: one sequence at a time, keys and values inside OpenVINO.

Slower by the number of rows the paged form would run, but every OpenVINO device has it, and it needs no private pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from docvino.decoder.contract import Form, KvSettings, Phase, Rotary, Row, pack
from docvino.decoder.paged import (
    MIB,
    blocks_of_budget,
    compile_decoder,
    decoder_need,
    input_names,
    needed_rotary,
    position_inputs,
    quantisation_group,
    read_decoder,
    rounds_activations,
    widths,
)
from docvino.device import first_line, target_of
from docvino.errors import GenerationError, InferenceError
from docvino.settings import RuntimeConfig

_BLOCK_TOKENS = 32  # a unit to count the budget with: nothing is stored in blocks here
_LONG_TOKENS = 8192  # of a prompt with the largest picture, and its answer
_BYTES = {"u8": 1, "f16": 2, "f32": 4}


class StatefulDecoder:
    """One sequence at a time. Implements `Decoder`; a row that begins at 0 makes the decoder forget the one before."""

    form: Form = "stateful"
    max_rows = 1

    def __init__(
        self,
        path: Path,
        name: str,
        runtime: RuntimeConfig,
        settings: KvSettings,
        rotary: Rotary | None = None,
    ) -> None:
        """Loads the decoder at `path`; arguments and errors are those of `PagedDecoder`."""
        self.name, target = name, target_of(runtime)
        model = read_decoder(path)
        self.hidden, self.vocabulary = widths(model, path)
        precision = settings.precision or target.kv_precision
        token_bytes = _token_bytes(model, _BYTES[precision])
        # One sequence at a time does not fill the whole budget.
        kv_bytes = min(settings.budget_mib * MIB, _LONG_TOKENS * token_bytes)
        need = decoder_need(model, target, runtime, kv_bytes)
        group = quantisation_group(model, settings)
        self.rounds_activations = rounds_activations(group, target)
        self.compiled = compile_decoder(model, name, path, target, runtime, precision, group, need, cacheable=True)
        self.devices, self.execution_precision = self.compiled.devices, self.compiled.execution_precision
        self.kv_type = precision
        names = input_names(self.compiled.raw)
        self._position_inputs = position_inputs(names)
        self._rotary = needed_rotary(self._position_inputs, rotary, name)
        self.block_tokens = _BLOCK_TOKENS
        self.block_bytes = _BLOCK_TOKENS * token_bytes
        self.num_blocks = blocks_of_budget(settings, self.block_bytes, self.block_tokens)
        self._request = self.compiled.raw.create_infer_request()
        self._past = 0

    def run(self, rows: Sequence[Row], phase: Phase) -> NDArray[np.float32]:
        pack(rows, phase, hidden=self.hidden, block_tokens=self.block_tokens, num_blocks=self.num_blocks)
        if len(rows) != 1 or rows[0].past not in (0, self._past):
            raise GenerationError(
                f"the stateful decoder was given {len(rows)} rows after {rows[0].past} tokens, it holds {self._past}",
                fix="this is a bug of docvino: please report it",
            )
        row = rows[0]
        count = row.embeddings.shape[0]
        inputs: dict[str, NDArray[Any]] = {
            "inputs_embeds": row.embeddings[None],
            "attention_mask": np.ones((1, row.past + count), np.int64),
            "beam_idx": np.zeros(1, np.int32),
        }
        if self._rotary is not None:
            tables = self._rotary(row.positions)
            inputs |= {n: table[None, None] for n, table in zip(self._position_inputs, tables, strict=True)}
        else:
            inputs["position_ids"] = row.positions[:, None]
        try:
            if row.past == 0:
                self._request.reset_state()
            self._request.infer(inputs, share_inputs=False, share_outputs=True)
            logits: NDArray[np.float32] = self._request.get_tensor("logits").data
        except RuntimeError as error:
            self._request, self._past = self.compiled.raw.create_infer_request(), 0
            raise InferenceError(
                f"{self.name} failed on {', '.join(self.devices)}: {first_line(error)}",
                fix="run `docvino doctor`, or use --device CPU",
            ) from error
        self._past = row.past + count
        return logits.reshape(1, self.vocabulary)[: int(row.sample)]

    def wipe(self, blocks: Sequence[int]) -> None:  # noqa: ARG002 - nothing is stored in blocks here
        self._request.reset_state()

    def close(self) -> None:
        del self._request


def _token_bytes(model: ov.Model, value_bytes: int) -> int:
    """Bytes that one token of one sequence takes in all states."""
    values = 0
    for variable in model.get_variables():
        shape = variable.info.data_shape  # (B, heads, tokens, head size)
        values += shape[1].get_length() * shape[3].get_length()
    return values * value_bytes
