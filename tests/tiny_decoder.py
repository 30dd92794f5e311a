"""A random text decoder of the shape that docvino converts, small enough for a test; and one that is no network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import openvino as ov
from numpy.typing import NDArray
from openvino import opset15 as ops
from openvino.op.util import Variable, VariableInfo

from docvino.decoder.contract import Phase, Row
from docvino.errors import InferenceError

HIDDEN, HEADS, KV_HEADS, HEAD, LAYERS, VOCABULARY = 64, 4, 2, 32, 2, 97
STOP = frozenset({2})


def save_tiny_decoder(path: Path, *, int8: bool = False, last_token: bool = True) -> Path:
    """Writes the stateful decoder: embeddings, mask, rotary tables, beam_idx -> logits (B, 1, V) of the last token."""
    random = np.random.default_rng(7)

    def const(values: object, kind: type = np.int64) -> ov.Node:
        return ops.constant(np.require(np.asarray(values, kind), requirements="C"))

    def linear(x: ov.Node, outputs: int, inputs: int) -> ov.Node:
        weights = random.standard_normal((outputs, inputs)).astype(np.float32) / np.sqrt(inputs)
        if not int8:
            return ops.matmul(x, const(weights, np.float32), False, True)
        scale = np.abs(weights).max(1, keepdims=True) / 127
        whole = ops.convert(const(np.rint(weights / scale), np.int8), ov.Type.f16)
        unpacked = ops.convert(ops.multiply(whole, const(scale, np.float16)), ov.Type.f32)
        return ops.matmul(x, unpacked, False, True)

    def norm(x: ov.Node) -> ov.Node:
        square = ops.reduce_mean(ops.power(x, const(2, np.float32)), const([-1]), True)
        return ops.multiply(x, ops.divide(const(1, np.float32), ops.sqrt(ops.add(square, const(1e-5, np.float32)))))

    def heads(x: ov.Node, count: int) -> ov.Node:
        return ops.transpose(ops.reshape(x, const([0, 0, count, HEAD]), True), const([0, 2, 1, 3]))

    def parameter(shape: list[int], kind: type, name: str) -> ov.Node:
        node = ops.parameter(shape, kind, name)
        node.output(0).set_names({name})
        return node

    embeds = parameter([-1, -1, HIDDEN], np.float32, "inputs_embeds")
    mask = parameter([-1, -1], np.int64, "attention_mask")
    cos = parameter([-1, 1, -1, HEAD], np.float32, "rotary_cos")
    sin = parameter([-1, 1, -1, HEAD], np.float32, "rotary_sin")
    beam = parameter([-1], np.int32, "beam_idx")
    zero = const(0)
    batch = ops.gather(ops.shape_of(embeds), const([0]), zero)
    new = ops.squeeze(ops.gather(ops.shape_of(embeds), const([1]), zero), const([0]))
    total = ops.squeeze(ops.gather(ops.shape_of(mask), const([1]), zero), const([0]))
    rows = ops.range(ops.subtract(total, new), total, const(1), ov.Type.i64)
    columns = ops.range(const(0), total, const(1), ov.Type.i64)
    seen = ops.less_equal(ops.unsqueeze(columns, const([0, 1, 2])), ops.unsqueeze(rows, const([0, 1, 3])))
    seen = ops.logical_and(seen, ops.not_equal(ops.unsqueeze(mask, const([1, 2])), zero))
    bias = ops.select(seen, const(0, np.float32), const(-65504, np.float32))

    def rotate(x: ov.Node) -> ov.Node:
        halves = ops.variadic_split(x, const(3), const([HEAD // 2, HEAD // 2]))
        turned = ops.concat([ops.multiply(halves.output(1), const(-1, np.float32)), halves.output(0)], -1)
        return ops.add(ops.multiply(x, cos), ops.multiply(turned, sin))

    sinks = []

    def remembered(x: ov.Node, name: str) -> ov.Node:
        info = VariableInfo()
        info.data_shape, info.data_type = ov.PartialShape([-1, KV_HEADS, -1, HEAD]), ov.Type.f32
        info.variable_id = f"past_key_values.{name}present.{name}"
        variable = Variable(info)
        empty = ops.broadcast(const(0, np.float32), ops.concat([batch, const([KV_HEADS, 0, HEAD])], 0))
        full = ops.concat([ops.gather(ops.read_value(empty, variable), beam, zero), x], 2)
        sinks.append(ops.assign(full, variable))
        groups = const([1, 1, HEADS // KV_HEADS, 1, 1])
        spread = ops.broadcast(ops.unsqueeze(full, const(2)), groups, broadcast_spec="BIDIRECTIONAL")
        return ops.reshape(spread, const([0, HEADS, -1, HEAD]), True)

    x = embeds
    for layer in range(LAYERS):
        inner = norm(x)
        query = rotate(heads(linear(inner, HEADS * HEAD, HIDDEN), HEADS))
        key = remembered(rotate(heads(linear(inner, KV_HEADS * HEAD, HIDDEN), KV_HEADS)), f"{layer}.key")
        value = remembered(heads(linear(inner, KV_HEADS * HEAD, HIDDEN), KV_HEADS), f"{layer}.value")
        scale = const(HEAD**-0.5, np.float32)
        attended = ops.scaled_dot_product_attention(query, key, value, bias, scale, causal=False)
        attended = ops.reshape(ops.transpose(attended, const([0, 2, 1, 3])), const([0, 0, HEADS * HEAD]), True)
        x = ops.add(x, linear(attended, HIDDEN, HEADS * HEAD))
        x = ops.add(x, linear(ops.swish(linear(norm(x), 128, HIDDEN)), HIDDEN, 128))
    x = norm(x)
    if last_token:
        x = ops.slice(x, const([-1]), const([np.iinfo(np.int64).max]), const([1]), const([1]))
    logits = ops.result(linear(x, VOCABULARY, HIDDEN))
    logits.output(0).set_names({"logits"})
    ov.save_model(ov.Model([logits], sinks, [embeds, mask, cos, sin, beam], "decoder"), path, compress_to_fp16=False)
    return path


_EMBEDDINGS = np.random.default_rng(8).standard_normal((VOCABULARY, HIDDEN)).astype(np.float32)


def embed(ids: NDArray[np.int64]) -> NDArray[np.float32]:
    return _EMBEDDINGS[ids]


def rotary(positions: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Height and width turn a quarter of the pairs each, time the rest."""
    half = HEAD // 2
    row = np.repeat([0, 1, 2], [half // 2, half // 4, half // 4])
    frequencies = 10000.0 ** (-np.arange(half) / half)
    angles = positions[row].T * frequencies
    angles = np.concatenate([angles, angles], axis=1)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def prompt(length: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Embeddings and positions of a prompt whose middle has positions like an image."""
    random = np.random.default_rng(seed)
    positions = np.broadcast_to(np.arange(length), (3, length)).copy()
    third = length // 3
    positions[1:, third : 2 * third] = third + random.integers(0, max(1, third), (2, third))
    return embed(random.integers(0, VOCABULARY, length)), positions


class FakeDecoder:
    """Writes down what it was fed, and says the next token by a rule that looks at all of a sequence. Blocks hold it.

    The text of a sequence depends on every token it was fed and on nothing else, so an engine that mixes up blocks,
    rows or lengths gets other texts.
    """

    form = "paged"
    hidden, vocabulary = 1, 50

    def __init__(self, num_blocks: int, block_tokens: int, max_rows: int = 64, fail_at: int | None = None) -> None:
        self.num_blocks, self.block_tokens, self.max_rows = num_blocks, block_tokens, max_rows
        self.cache = np.zeros((num_blocks, block_tokens), np.float32)
        self.calls: list[tuple[Phase, int, int]] = []  # phase, rows, tokens
        self.most_blocks = 0
        self._fail_at = fail_at

    def run(self, rows: Sequence[Row], phase: Phase) -> NDArray[np.float32]:
        self.calls.append((phase, len(rows), sum(len(row.embeddings) for row in rows)))
        if len(self.calls) == self._fail_at:
            raise InferenceError("the device fell off", fix="put it back")
        owned = [block for row in rows for block in row.blocks]
        assert len(owned) == len(set(owned)), "two sequences share a block"
        self.most_blocks = max(self.most_blocks, len(owned))
        logits = np.zeros((len(rows), self.vocabulary), np.float32)
        for place, row in enumerate(rows):
            for offset, value in enumerate(row.embeddings[:, 0]):
                at = row.past + offset
                self.cache[row.blocks[at // self.block_tokens], at % self.block_tokens] = value
            total = row.past + len(row.embeddings)
            stored = np.concatenate([self.cache[block] for block in row.blocks])
            # Like kernels that multiply what is behind the end with zero: what is no number there spreads.
            logits[place] = self.say(stored[:total]) + 0 * stored[total:].sum()
        return logits[[row.sample for row in rows]]

    def say(self, seen: NDArray[np.float32]) -> NDArray[np.float32]:
        logits = np.zeros(self.vocabulary, np.float32)
        checksum = float(seen @ np.arange(1, len(seen) + 1)) * 7
        logits[int(checksum) % self.vocabulary if np.isfinite(checksum) else 0] = 5 if np.isfinite(checksum) else np.nan
        return logits

    def wipe(self, blocks: Sequence[int]) -> None:
        self.cache[list(blocks)] = 0


def fake_embed(ids: NDArray[np.int64]) -> NDArray[np.float32]:
    return ids[:, None].astype(np.float32)
