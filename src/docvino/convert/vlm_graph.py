"""PaddleOCR-VL as OpenVINO graphs, built from its tensors with OpenVINO operations and NumPy: nothing is traced.

Three graphs; every float input and output is float32 at every precision. B crops or sequences, E hidden size:

    vision    pixel_values      float32 (B, N, 588)  patches in merge-block order (see `codec.vlm`), N alike in a batch
              position_taps     int64 (B, N, 4)      rows of the learned position table
              position_weights  float32 (B, N, 4)
              rotary_cos, _sin  float32 (B, N, d)
           -> image_embeds      float32 (B, N / 4, E), raster order

    embed     input_ids         int64 (B, L)
           -> inputs_embeds     float32 (B, L, E)

    decoder   inputs_embeds     float32 (B, L, E)
              attention_mask    int64 (B, past + L)  0 hides a place (padding on the left)
              rotary_cos, _sin  float32 (B, 1, L, D)
              beam_idx          int32 (B,)           which row of the state each row goes on from
           -> logits            float32 (B, 1, V) of the last place

Rotations come from the host: angles computed in f16 on a GPU are wrong by 0.16 rad at position 1,000, and nothing in
the graph can be computed so when there are no angles in it.

The decoder keeps its keys and values as state. Its paged form is made at load (`LAST_TOKEN` names the one operation
that must be replaced before): the Slice LAST_TOKEN becomes Gather(its first input, row numbers, axis 0), then
openvino._offline_transformations.paged_attention_transformation(model) turns the states into cache inputs.

The shapes of subgraphs below are those that OpenVINO's fusions look for (attention with cache, rotation, RMS norm);
`tests/unit/test_vlm_graph.py` reads the compiled graphs to see that they fired.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import openvino as ov
from numpy.typing import NDArray
from openvino import opset15 as ops
from openvino.op import Constant
from openvino.op.util import Variable, VariableInfo

from docvino.convert.safetensors import Weights
from docvino.errors import ConvertError
from docvino.specs.vlm import VlmFacts

Format = Literal["fp32", "fp16", "int8", "int4"]
Array = NDArray[Any]

LAST_TOKEN = "last_token"  # friendly name of the Slice before the head
# Names in the files of transformers 5 -> names in the published files, which are those used here.
RENAMED = {"model.language_model.": "model.", "model.visual.": "visual.", "model.projector.": "mlp_AR."}

PROJECTOR_EPS = 1e-5  # of its norm. Source: the published modelling code; no config holds it
_TOWER = "visual.vision_model."
_F16_MAX = float(np.finfo(np.float16).max)
_GROUPS = (128, 64)  # sizes of int4 groups, best first; a narrower matrix gets int8
_ROWS_AT_ONCE = 4096  # of a matrix that is quantised: an embedding table would need three copies of itself
_HIDDEN = -65504.0  # added to the score of a place that must not be seen: the largest step f16 can take


def tensor_shapes(facts: VlmFacts) -> dict[str, tuple[int, ...]]:
    """Every tensor that the graphs are built from, by its published name."""
    text, vision = facts.text, facts.vision
    wide, merged = vision.hidden_size, vision.hidden_size * vision.merge**2
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (text.vocabulary, text.hidden_size),
        "model.norm.weight": (text.hidden_size,),
    }
    if not text.tied_head:
        shapes["lm_head.weight"] = (text.vocabulary, text.hidden_size)
    queries, keys = text.heads * text.head_dim, text.kv_heads * text.head_dim
    for layer in range(text.layers):
        start = f"model.layers.{layer}."
        matrices = {
            "self_attn.q_proj": (queries, text.hidden_size),
            "self_attn.k_proj": (keys, text.hidden_size),
            "self_attn.v_proj": (keys, text.hidden_size),
            "self_attn.o_proj": (text.hidden_size, queries),
            "mlp.gate_proj": (text.intermediate_size, text.hidden_size),
            "mlp.up_proj": (text.intermediate_size, text.hidden_size),
            "mlp.down_proj": (text.hidden_size, text.intermediate_size),
        }
        for name, sides in matrices.items():
            shapes[f"{start}{name}.weight"] = sides
            if text.biased:
                shapes[f"{start}{name}.bias"] = sides[:1]
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{start}{name}.weight"] = (text.hidden_size,)
    biased: dict[str, tuple[int, ...]] = {
        f"{_TOWER}embeddings.patch_embedding": (wide, 3, vision.patch_px, vision.patch_px),
        f"{_TOWER}post_layernorm": (wide,),
        "mlp_AR.pre_norm": (wide,),
        "mlp_AR.linear_1": (merged, merged),
        "mlp_AR.linear_2": (text.hidden_size, merged),
    }
    for layer in range(vision.layers):
        start = f"{_TOWER}encoder.layers.{layer}."
        biased |= {f"{start}layer_norm{number}": (wide,) for number in (1, 2)}
        biased |= {f"{start}self_attn.{name}_proj": (wide, wide) for name in ("q", "k", "v", "out")}
        biased[f"{start}mlp.fc1"] = (vision.intermediate_size, wide)
        biased[f"{start}mlp.fc2"] = (wide, vision.intermediate_size)
    for name, shape in biased.items():
        shapes[f"{name}.weight"], shapes[f"{name}.bias"] = shape, shape[:1]
    shapes[f"{_TOWER}embeddings.position_embedding.weight"] = (vision.position_side**2, wide)
    return shapes


def build_embed(weights: Weights, form: Format) -> ov.Model:
    """Token ids -> embeddings. At int4 the table is int8: every answer passes through it."""
    ids = _input("input_ids", [-1, -1], ov.Type.i64)
    name = "model.embed_tokens.weight"
    with _told(name):
        table = _matrix(weights.read(name), "int8" if form == "int4" else form)
    embeds = ops.gather(table, ids, _const(0, np.int64))
    return ov.Model([_output(embeds, "inputs_embeds")], [ids], "embed")


def build_vision(weights: Weights, facts: VlmFacts, form: Format) -> ov.Model:
    """Patches of B crops with N patches each -> image tokens; see the top of this file.

    Crops of one call need the same number of patches, not the same grid: positions are inputs, so no mask is needed.

    Differs: at int4 the tower and the projector are int8. The tower computes more than it reads, so narrower weights
    do not make it faster, and upstream keeps it in fp32 for its precision.
    """
    form = "int8" if form == "int4" else form
    sizes = facts.vision
    wide, heads, dim = sizes.hidden_size, sizes.heads, sizes.head_dim
    pixels = 3 * sizes.patch_px**2
    values = _input("pixel_values", [-1, -1, pixels], ov.Type.f32)
    taps = _input("position_taps", [-1, -1, 4], ov.Type.i64)
    shares = _input("position_weights", [-1, -1, 4], ov.Type.f32)
    cos_in, sin_in = (_input(f"rotary_{name}", [-1, -1, dim], ov.Type.f32) for name in ("cos", "sin"))
    cos, sin = (ops.unsqueeze(table, _const(1, np.int64)) for table in (cos_in, sin_in))  # (B, 1, N, d)

    def linear(x: ov.Node, name: str, stored: Format = form) -> ov.Node:
        return _linear(weights, x, name, stored, biased=True)

    def norm(x: ov.Node, name: str, eps: float) -> ov.Node:
        centred = ops.mvn(x, _const([-1], np.int64), True, eps, "INSIDE_SQRT")
        scale, shift = (weights.read(f"{name}.{part}").reshape(1, 1, -1) for part in ("weight", "bias"))
        return ops.add(ops.multiply(centred, _const(scale)), _const(shift))

    # The patches are an image's only way in: they are multiplied by weights of at least 16 bits.
    x = linear(values, f"{_TOWER}embeddings.patch_embedding", "fp16" if form == "int8" else form)
    table = _const(weights.read(f"{_TOWER}embeddings.position_embedding.weight"))
    for tap in range(4):
        column = _const([tap], np.int64)
        rows = ops.gather(
            table,
            ops.squeeze(ops.gather(taps, column, _const(2, np.int64)), _const([2], np.int64)),
            _const(0, np.int64),
        )
        x = ops.add(x, ops.multiply(rows, ops.gather(shares, column, _const(2, np.int64))))
    for layer in range(sizes.layers):
        start = f"{_TOWER}encoder.layers.{layer}."
        h = norm(x, f"{start}layer_norm1", sizes.layer_norm_eps)
        q, k, v = (_heads(linear(h, f"{start}self_attn.{name}_proj"), heads, dim) for name in "qkv")
        q, k = _rotated(q, cos, sin, dim), _rotated(k, cos, sin, dim)
        seen = ops.scaled_dot_product_attention(q, k, v, causal=False)  # scaled by d ** -0.5
        x = ops.add(x, linear(_joined(seen, wide), f"{start}self_attn.out_proj"))
        h = norm(x, f"{start}layer_norm2", sizes.layer_norm_eps)
        x = ops.add(x, linear(ops.gelu(linear(h, f"{start}mlp.fc1"), "tanh"), f"{start}mlp.fc2"))
    x = norm(x, f"{_TOWER}post_layernorm", sizes.layer_norm_eps)
    x = norm(x, "mlp_AR.pre_norm", PROJECTOR_EPS)
    # Patches come block by block, so the four of a block lie side by side.
    x = ops.reshape(x, _const([0, -1, wide * sizes.merge**2], np.int64), True)
    x = linear(ops.gelu(linear(x, "mlp_AR.linear_1"), "erf"), "mlp_AR.linear_2")
    return ov.Model([_output(x, "image_embeds")], [values, taps, shares, cos_in, sin_in], "vision")


def build_decoder(weights: Weights, facts: VlmFacts, form: Format) -> ov.Model:
    """Embeddings -> logits of the last place, with keys and values as state; see the top of this file.

    At int4 the head is int8: it decides every token.
    """
    sizes = facts.text
    heads, kv_heads, dim = sizes.heads, sizes.kv_heads, sizes.head_dim
    embeds = _input("inputs_embeds", [-1, -1, sizes.hidden_size], ov.Type.f32)
    mask = _input("attention_mask", [-1, -1], ov.Type.i64)
    cos, sin = (_input(f"rotary_{name}", [-1, 1, -1, dim], ov.Type.f32) for name in ("cos", "sin"))
    beams = _input("beam_idx", [-1], ov.Type.i32)
    batch = ops.gather(ops.shape_of(embeds, ov.Type.i64), _const([0], np.int64), _const(0, np.int64))
    bias = _causal_bias(embeds, mask)

    def linear(x: ov.Node, name: str) -> ov.Node:
        return _linear(weights, x, name, form, biased=sizes.biased)

    def norm(x: ov.Node, name: str) -> ov.Node:
        mean = ops.reduce_mean(ops.power(x, _const(2.0)), _const([-1], np.int64), True)
        root = ops.sqrt(ops.add(mean, _const(sizes.rms_norm_eps)))
        scale = weights.read(f"{name}.weight").reshape(1, 1, -1)
        return ops.multiply(ops.multiply(x, ops.divide(_const(1.0), root)), _const(scale))

    x: ov.Node = embeds
    sinks: list[ov.Node] = []
    for layer in range(sizes.layers):
        start = f"model.layers.{layer}."
        h = norm(x, f"{start}input_layernorm")
        q = _heads(linear(h, f"{start}self_attn.q_proj"), heads, dim)
        k, v = (_heads(linear(h, f"{start}self_attn.{name}_proj"), kv_heads, dim) for name in "kv")
        q, k = _rotated(q, cos, sin, dim), _rotated(k, cos, sin, dim)
        cached = []
        for role, new in (("key", k), ("value", v)):
            name = f"past_key_values.{layer}.{role}present.{layer}.{role}"
            whole, sink = _remembered(new, name, batch, beams, kv_heads, dim)
            sinks.append(sink)
            cached.append(_for_all_heads(whole, heads, kv_heads, dim))
        seen = ops.scaled_dot_product_attention(q, *cached, bias, _const(dim**-0.5), causal=False)
        x = ops.add(x, linear(_joined(seen, heads * dim), f"{start}self_attn.o_proj"))
        h = norm(x, f"{start}post_attention_layernorm")
        gated = ops.multiply(ops.swish(linear(h, f"{start}mlp.gate_proj")), linear(h, f"{start}mlp.up_proj"))
        x = ops.add(x, linear(gated, f"{start}mlp.down_proj"))
    x = norm(x, "model.norm")
    # Only the last place goes on: the head is a quarter of the work of a step.
    one = _const([1], np.int64)
    x = ops.slice(x, _const([-1], np.int64), _const([np.iinfo(np.int64).max], np.int64), one, one)
    x.set_friendly_name(LAST_TOKEN)
    head = "model.embed_tokens" if sizes.tied_head else "lm_head"
    logits = _linear(weights, x, head, "int8" if form == "int4" else form, biased=False)
    return ov.Model([_output(logits, "logits")], sinks, [embeds, mask, cos, sin, beams], "decoder")


# ---- weights


def _linear(weights: Weights, x: ov.Node, name: str, form: Format, *, biased: bool) -> ov.Node:
    stored = weights.read(f"{name}.weight")
    with _told(f"{name}.weight"):
        product = ops.matmul(x, _matrix(stored.reshape(stored.shape[0], -1), form), False, True)
    return ops.add(product, _const(weights.read(f"{name}.bias").reshape(1, 1, -1))) if biased else product


def _matrix(values: NDArray[np.float32], form: Format) -> ov.Node:
    """A float32 node (out, in) that unpacks the stored matrix: the pattern that OpenVINO multiplies by unpacked-on-use.

    int8   symmetric, one scale per output row
    int4   symmetric, one scale per group of inputs; the largest value of a group becomes -8 or 8 times its scale
    """
    rows, columns = values.shape
    if form == "fp32":
        return _const(values)
    if form == "fp16":
        if max(float(values.max()), -float(values.min())) > _F16_MAX:
            raise ValueError("holds values beyond the range of fp16")
        stored = ops.convert(_const(values.astype(np.float16)), ov.Type.f32)
        stored.get_rt_info()["decompression_0"] = ""  # or OpenVINO would unpack it once and for all
        return stored
    group = next((size for size in _GROUPS if columns % size == 0), None) if form == "int4" else None
    if group is None:
        quantised, scale = quantise_rows(values)
        unpacked = ops.convert(_const(quantised), ov.Type.f16)
        return ops.convert(ops.multiply(unpacked, _const(scale)), ov.Type.f32)
    numbers, scale = quantise_groups(values.reshape(rows, columns // group, group))
    flat = numbers.view(np.uint8).reshape(-1) & 0xF
    packed = ov.Tensor(flat[0::2] | (flat[1::2] << 4), [rows, columns // group, group], ov.Type.i4)  # low half first
    unpacked = ops.convert(Constant(packed, shared_memory=False), ov.Type.f16)
    restored = ops.reshape(ops.multiply(unpacked, _const(scale)), _const([rows, columns], np.int64), False)
    return ops.convert(restored, ov.Type.f32)


def quantise_rows(values: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    """float32 (rows, columns) -> int8 in -127..127 and float16 scales (rows, 1), their product near the values."""
    largest = np.maximum(values.max(axis=1, keepdims=True), -values.min(axis=1, keepdims=True))
    scale = _stored_scale(largest / np.float32(127))
    numbers = np.empty(values.shape, np.int8)
    for start in range(0, len(values), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        numbers[rows] = np.clip(np.rint(values[rows] / scale[rows].astype(np.float32)), -127, 127)
    return numbers, scale


def quantise_groups(values: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    """float32 (rows, groups, size) -> int8 in -8..7, float16 scales (rows, groups, 1), their product near the values.

    A scale has the sign that brings the group's largest magnitude to -8, the end with one more step.
    """
    place = np.abs(values).argmax(axis=2, keepdims=True)
    extreme = np.take_along_axis(values, place, axis=2)
    scale = np.copysign(_stored_scale(np.abs(extreme) / np.float32(8)), -extreme).astype(np.float16)
    return np.clip(np.rint(values / scale.astype(np.float32)), -8, 7).astype(np.int8), scale


def _stored_scale(scale: NDArray[np.float32]) -> NDArray[np.float16]:
    """Positive scales rounded up to float16: weights are divided by what is stored, and the largest still fits."""
    if float(scale.max(initial=0)) > _F16_MAX:
        raise ValueError("holds values too large to quantise")
    stored = scale.astype(np.float16)
    stored = np.where(stored.astype(np.float32) < scale, np.nextafter(stored, np.float16(np.inf)), stored)
    # A row of zeros, or of numbers below the smallest float16, is zero for any network.
    return np.where(stored > 0, stored, np.float16(1)).astype(np.float16)


@contextmanager
def _told(name: str) -> Iterator[None]:
    """Says which tensor it was that cannot be stored in a format."""
    try:
        yield
    except ValueError as error:
        raise ConvertError(f"tensor {name} {error}", fix="use --precision fp32") from error


# ---- pieces of graphs


def _remembered(
    new: ov.Node, name: str, batch: ov.Node, beams: ov.Node, kv_heads: int, dim: int
) -> tuple[ov.Node, ov.Node]:
    """Keys or values so far with the new ones, (B, kv_heads, past + L, D), and the node that keeps them.

    ReadValue may feed nothing but the Gather, or the attention is not fused with its cache.
    """
    info = VariableInfo()
    info.data_shape, info.data_type, info.variable_id = ov.PartialShape([-1, kv_heads, -1, dim]), ov.Type.f32, name
    variable = Variable(info)
    nothing = ops.broadcast(_const(0.0), ops.concat([batch, _const([kv_heads, 0, dim], np.int64)], 0))
    past = ops.gather(ops.read_value(nothing, variable), beams, _const(0, np.int64))
    whole = ops.concat([past, new], 2)
    return whole, ops.assign(whole, variable)


def _for_all_heads(x: ov.Node, heads: int, kv_heads: int, dim: int) -> ov.Node:
    """(B, kv_heads, T, D) -> (B, heads, T, D): each key head serves several query heads."""
    # broadcast_spec by keyword: the third positional argument is another one, and attention would fall apart.
    copies = _const([1, 1, heads // kv_heads, 1, 1], np.int64)
    spread = ops.broadcast(ops.unsqueeze(x, _const(2, np.int64)), copies, broadcast_spec="BIDIRECTIONAL")
    return ops.reshape(spread, _const([0, heads, -1, dim], np.int64), True)


def _causal_bias(embeds: ov.Node, mask: ov.Node) -> ov.Node:
    """float32 (B, 1, L, past + L): 0 where a place may look, else a large negative number."""

    def side(node: ov.Node) -> ov.Node:
        return ops.squeeze(
            ops.gather(ops.shape_of(node, ov.Type.i64), _const([1], np.int64), _const(0, np.int64)),
            _const([0], np.int64),
        )

    new, total = side(embeds), side(mask)
    queries = ops.range(ops.subtract(total, new), total, _const(1, np.int64), ov.Type.i64)
    keys = ops.range(_const(0, np.int64), total, _const(1, np.int64), ov.Type.i64)
    earlier = ops.less_equal(
        ops.unsqueeze(keys, _const([0, 1, 2], np.int64)), ops.unsqueeze(queries, _const([0, 1, 3], np.int64))
    )
    real = ops.not_equal(ops.unsqueeze(mask, _const([1, 2], np.int64)), _const(0, np.int64))
    return ops.select(ops.logical_and(earlier, real), _const(0.0), _const(_HIDDEN))


def _rotated(x: ov.Node, cos: ov.Node, sin: ov.Node, dim: int) -> ov.Node:
    """(B, heads, L, D) turned: the first half of D with the second. The axis must be 3, not -1, to be fused."""
    halves = ops.variadic_split(x, _const(3, np.int64), _const([dim // 2, dim // 2], np.int64))
    turned = ops.concat([ops.multiply(halves.output(1), _const(-1.0)), halves.output(0)], -1)
    return ops.add(ops.multiply(x, cos), ops.multiply(turned, sin))


def _heads(x: ov.Node, heads: int, dim: int) -> ov.Node:
    """(B, L, heads * D) -> (B, heads, L, D)."""
    return ops.transpose(ops.reshape(x, _const([0, 0, heads, dim], np.int64), True), _const([0, 2, 1, 3], np.int64))


def _joined(x: ov.Node, width: int) -> ov.Node:
    """(B, heads, L, D) -> (B, L, heads * D)."""
    return ops.reshape(ops.transpose(x, _const([0, 2, 1, 3], np.int64)), _const([0, 0, width], np.int64), True)


def _const(values: Any, kind: Any = np.float32) -> ov.Node:
    """A constant: arrays as they are, numbers and lists as `kind`."""
    array: Array = np.asarray(values)
    if not isinstance(values, np.ndarray):
        array = array.astype(kind)
    return ops.constant(np.require(array, requirements="C"))  # ascontiguousarray would make scalars one-dimensional


def _input(name: str, shape: list[int], kind: ov.Type) -> ov.Node:
    node = ops.parameter(ov.PartialShape(shape), kind, name)
    node.output(0).get_tensor().set_names({name})
    node.set_friendly_name(name)  # the paged transformation goes by this name, the runtime by the other
    return node


def _output(node: ov.Node, name: str) -> ov.Node:
    result = ops.result(node)
    result.output(0).get_tensor().set_names({name})
    return result
