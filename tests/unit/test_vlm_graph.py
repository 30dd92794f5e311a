"""Facts of the built graphs: the numbers of transformers, the fusions of OpenVINO, the paged form, the formats."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import openvino as ov
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from openvino import opset15 as ops
from openvino._offline_transformations import paged_attention_transformation

from docvino import golden_vlm
from docvino.codec.prompt import Tokenizer, build_prompt
from docvino.codec.vlm import prepare, text_rotary
from docvino.convert.safetensors import SINGLE, Weights
from docvino.convert.vlm_facts import read_facts
from docvino.convert.vlm_graph import (
    LAST_TOKEN,
    RENAMED,
    Format,
    build_decoder,
    build_embed,
    build_vision,
    quantise_groups,
    quantise_rows,
    tensor_shapes,
)
from docvino.errors import ConvertError
from docvino.specs.vlm import VlmFacts
from vlm_models import TINY, TINY_CASE

EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}


@cache
def facts() -> VlmFacts:
    return read_facts(TINY)


@cache
def compiled(part: str, form: Format = "fp32") -> ov.CompiledModel:
    return ov.Core().compile_model(built(part, form), "CPU", EXACT)


def built(part: str, form: Format = "fp32") -> ov.Model:
    with Weights((TINY / SINGLE,), RENAMED) as weights:
        if part == "embed":
            return build_embed(weights, form)
        return (build_vision if part == "vision" else build_decoder)(weights, facts(), form)


def kinds(model: ov.CompiledModel) -> Counter[str]:
    return Counter(str(node.get_rt_info()["layerType"].astype(str)) for node in model.get_runtime_model().get_ops())


def noise(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


def decoder_inputs(rows: int, places: int, past: int = 0) -> dict[str, NDArray[np.generic]]:
    positions = np.random.default_rng(3).integers(0, 60, (3, places))
    cos, sin = text_rotary(positions, facts().text)
    return {
        "inputs_embeds": noise(rows, places, facts().text.hidden_size),
        "attention_mask": np.ones((rows, past + places), np.int64),
        "rotary_cos": np.repeat(cos[None, None], rows, axis=0),
        "rotary_sin": np.repeat(sin[None, None], rows, axis=0),
        "beam_idx": np.arange(rows, dtype=np.int32),
    }


def test_the_list_of_tensors_is_exactly_the_file_of_transformers() -> None:
    with Weights((TINY / SINGLE,), RENAMED) as weights:
        shapes = tensor_shapes(facts())
        weights.check(shapes)
        assert set(weights.unused) == set(shapes)


def test_a_tied_head_needs_no_tensor_of_its_own() -> None:
    tied = facts().model_copy(update={"text": facts().text.model_copy(update={"tied_head": True})})
    assert set(tensor_shapes(facts())) - set(tensor_shapes(tied)) == {"lm_head.weight"}


# ---- fusions: what makes the graphs fast is named in the compiled model


def test_attention_rotation_and_norms_of_the_vision_graph_are_fused() -> None:
    found, layers = kinds(compiled("vision")), facts().vision.layers
    assert found["RoPE"] == 2 * layers
    assert found["Subgraph"] == layers  # a whole attention each
    assert found["MVN"] == 2 * layers + 2
    assert not {"Softmax", "MatMul", "Sin", "Cos"} & set(found)


@pytest.mark.parametrize("form", ["fp32", "fp16", "int8", "int4"])
def test_attention_with_cache_rotation_and_norms_of_the_decoder_are_fused_at_every_precision(form: Format) -> None:
    found, layers = kinds(compiled("decoder", form)), facts().text.layers
    assert found["ScaledDotProductAttention"] == layers
    assert found["RoPE"] == 2 * layers
    assert found["RMS"] == 2 * layers + 1
    assert found["FullyConnected"] == 7 * layers + 1
    assert found["MemoryInput"] == 2 * layers
    assert not {"Softmax", "MatMul"} & set(found)


def test_weights_stay_compressed_in_the_compiled_graph() -> None:
    for form, width in (("fp16", "f16"), ("int8", "i8"), ("int4", "i4")):
        model = built("decoder", form)  # type: ignore[arg-type]
        found = {op.get_element_type().get_type_name() for op in model.get_ops() if op.get_type_name() == "Constant"}
        assert width in found


# ---- what the graphs compute


@pytest.mark.parametrize("size", [(100, 300), (48, 48), (20, 600)])
def test_the_projector_gives_a_row_for_each_placeholder_of_the_prompt(size: tuple[int, int]) -> None:
    picture = np.random.default_rng(5).integers(0, 256, (*size, 3), dtype=np.uint8)
    crop = prepare(picture, "ocr", facts())
    prompt = build_prompt(Tokenizer.open(TINY / "tokenizer.json"), "ocr", crop.grid, facts())
    placeholders = int((prompt.ids == facts().tokens.image).sum())
    rows = compiled("vision")(crop.inputs())["image_embeds"][0]
    assert len(rows) == placeholders == crop.grid[0] * crop.grid[1] * 14 * 14 // 784


def test_crops_of_one_length_and_different_grids_can_go_through_the_vision_graph_together() -> None:
    pictures = [
        np.random.default_rng(n).integers(0, 256, shape, dtype=np.uint8)
        for n, shape in ((1, (112, 168, 3)), (2, (168, 112, 3)))
    ]
    crops = [prepare(picture, "ocr", facts()) for picture in pictures]
    assert crops[0].grid != crops[1].grid
    together = {name: np.concatenate([crop.inputs()[name] for crop in crops]) for name in crops[0].inputs()}
    both = compiled("vision")(together)["image_embeds"]
    for row, crop in zip(both, crops, strict=True):
        np.testing.assert_allclose(row, compiled("vision")(crop.inputs())["image_embeds"][0], atol=1e-5)


def test_a_prompt_in_two_pieces_gives_the_logits_of_one_piece() -> None:
    whole = decoder_inputs(1, 20)
    request = compiled("decoder").create_infer_request()
    wanted = request.infer(whole)["logits"].copy()
    request.reset_state()
    for begin, end in ((0, 13), (13, 20)):
        found = request.infer(
            {
                "inputs_embeds": whole["inputs_embeds"][:, begin:end],
                "attention_mask": whole["attention_mask"][:, :end],
                "rotary_cos": whole["rotary_cos"][:, :, begin:end],
                "rotary_sin": whole["rotary_sin"][:, :, begin:end],
                "beam_idx": whole["beam_idx"],
            }
        )["logits"]
    np.testing.assert_allclose(found, wanted, atol=2e-5)


def test_padding_on_the_left_that_the_mask_hides_changes_nothing() -> None:
    inputs = decoder_inputs(1, 12)
    wanted = compiled("decoder").create_infer_request().infer(inputs)["logits"].copy()
    wide = {name: np.repeat(values[..., :1, :], 3, axis=-2) for name, values in inputs.items() if values.ndim > 2}
    padded = {
        **{name: np.concatenate([wide[name], inputs[name]], axis=-2) for name in wide},
        "attention_mask": np.array([[0] * 3 + [1] * 12], np.int64),
        "beam_idx": inputs["beam_idx"],
    }
    found = compiled("decoder").create_infer_request().infer(padded)["logits"]
    np.testing.assert_allclose(found, wanted, atol=2e-5)


def paged(model: ov.Model) -> ov.Model:
    """The decoder's paged form, made as `convert.vlm_graph` documents it."""
    last = next(op for op in model.get_ops() if op.get_friendly_name() == LAST_TOKEN)
    rows = ops.parameter([-1], np.int64, "rows")
    rows.output(0).get_tensor().set_names({"rows"})
    chosen = ops.gather(last.input_value(0), rows, ops.constant(np.int64(0)))
    for target in list(last.output(0).get_target_inputs()):
        target.replace_source_output(chosen.output(0))
    model.add_parameters([rows])
    paged_attention_transformation(model)
    embeds = next(node for node in model.get_parameters() if node.get_friendly_name() == "inputs_embeds")
    embeds.set_partial_shape(ov.PartialShape([-1, facts().text.hidden_size]))
    model.validate_nodes_and_infer_types()
    return model


@pytest.mark.parametrize("form", ["fp32", "int8", "int4"])
def test_the_decoder_has_a_paged_form_that_computes_the_same_for_sequences_of_different_length(
    tmp_path: Path, form: Format
) -> None:
    ov.save_model(built("decoder", form), tmp_path / "decoder.xml", compress_to_fp16=False)
    core = ov.Core()
    plain = core.compile_model(tmp_path / "decoder.xml", "CPU", EXACT)
    model = core.compile_model(paged(core.read_model(tmp_path / "decoder.xml")), "CPU", EXACT)
    found, layers = kinds(model), facts().text.layers
    assert (found["PagedAttention"], found["RoPE"], found["RMS"]) == (layers, 2 * layers, 2 * layers + 1)
    request = model.create_infer_request()
    for port in model.inputs:
        if "cache" in port.get_any_name():
            shape = [side.get_length() if side.is_static else 8 for side in port.get_partial_shape()]
            request.set_tensor(port.get_any_name(), ov.Tensor(np.zeros(shape, np.float32)))
    whole = [decoder_inputs(1, length) for length in (5, 40)]
    packed = request.infer(
        {
            "inputs_embeds": np.concatenate([one["inputs_embeds"][0] for one in whole]),
            **{
                name: np.concatenate([one[name][0, 0] for one in whole])[:, None, None]
                for name in ("rotary_cos", "rotary_sin")
            },
            "past_lens": np.zeros(2, np.int32),
            "subsequence_begins": np.array([0, 5, 45], np.int32),
            "block_indices": np.array([3, 7, 1], np.int32),
            "block_indices_begins": np.array([0, 1, 3], np.int32),
            "max_context_len": np.array(40, np.int32),
            "rows": np.array([4, 44]),
        }
    )["logits"]
    for row, one in zip(packed, whole, strict=True):
        wanted = plain.create_infer_request().infer(one)["logits"][0]
        np.testing.assert_allclose(row, wanted, atol=1e-4 if form == "fp32" else 0.02)


# ---- stored formats


@given(arrays(np.float32, (3, 64), elements=st.floats(-1e4, 1e4, width=32)))
def test_int8_is_within_half_a_step_of_every_weight_whatever_the_range(values: NDArray[np.float32]) -> None:
    numbers, scale = quantise_rows(values)
    assert numbers.dtype == np.int8
    assert scale.dtype == np.float16
    step = scale.astype(np.float64)
    smallest = 2.0**-24  # of float16: a row below it is zero
    assert (np.abs(numbers * step - values) <= np.maximum(step * 0.5001, smallest * 127)).all()


@given(arrays(np.float32, (2, 1, 64), elements=st.floats(-100, 100, width=32)))
def test_int4_is_within_a_step_of_every_weight_and_exact_enough_at_the_largest(values: NDArray[np.float32]) -> None:
    numbers, scale = quantise_groups(values)
    assert numbers.min() >= -8
    assert numbers.max() <= 7
    step = np.abs(scale.astype(np.float64))
    error = np.abs(numbers * scale.astype(np.float64) - values)
    assert (error <= np.maximum(step, 2.0**-24 * 8)).all()


def test_the_largest_weight_of_a_group_keeps_its_sign_and_size() -> None:
    values = np.zeros((1, 2, 64), np.float32)
    values[0, 0, 5], values[0, 1, 9] = 3.0, -5.0
    numbers, scale = quantise_groups(values)
    restored = numbers * scale.astype(np.float32)
    np.testing.assert_allclose(restored[0, 0, 5], 3.0, rtol=1e-3)
    np.testing.assert_allclose(restored[0, 1, 9], -5.0, rtol=1e-3)


def test_a_weight_beyond_the_range_of_fp16_is_refused_by_its_name(tmp_path: Path) -> None:
    from vlm_models import write_safetensors

    table = np.zeros((facts().text.vocabulary, facts().text.hidden_size), np.float32)
    table[3, 3] = 1e6
    write_safetensors(tmp_path / SINGLE, {"model.embed_tokens.weight": table})
    with Weights((tmp_path / SINGLE,)) as weights, pytest.raises(ConvertError, match=r"model\.embed_tokens\.weight"):
        build_embed(weights, "fp16")


def test_the_recorded_case_holds_enough_different_tokens_to_mean_something() -> None:
    case = golden_vlm.load_case(TINY_CASE)
    assert len(case.outputs.tokens) >= 32
    assert len(set(case.outputs.tokens)) >= 10
    assert "transformers" in case.engine
