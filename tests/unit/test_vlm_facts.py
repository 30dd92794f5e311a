"""Facts of reading a PaddleOCR-VL folder: every number from its own file, every contradiction named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from docvino.convert.vlm_facts import read_facts
from docvino.errors import ConvertError
from docvino.specs import vlm
from docvino.specs.vlm import PIPELINE_BUDGET, SPOTTING_BUDGET, PixelBudget, VlmFacts
from vlm_models import TINY, character_tokenizer, copy_of_tiny, read_config, tiny_tokens, write_config

Config = dict[str, Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return copy_of_tiny(tmp_path / "model")


def change(folder: Path, edit: Callable[[Config], None], name: str = "config.json") -> None:
    value = read_config(folder, name)
    edit(value)
    write_config(folder, value, name)


def refusal(folder: Path) -> str:
    with pytest.raises(ConvertError) as caught:
        read_facts(folder)
    assert caught.value.fix
    return str(caught.value)


def flat(config: Config) -> Config:
    """A config as the published models have it: the decoder's sizes at the top, rotations in two keys."""
    text = dict(config["text_config"])
    rope = text.pop("rope_parameters")
    text.pop("model_type")
    rest = {key: value for key, value in config.items() if key != "text_config"}
    rest["vision_config"] = {k: v for k, v in config["vision_config"].items() if k != "rope_parameters"}
    return {
        **text,
        **rest,
        "rope_theta": rope["rope_theta"],
        "rope_scaling": {"mrope_section": rope["mrope_section"], "rope_type": "default", "type": "default"},
        "sliding_window": None,
        "compression_ratio": 1.0,
        "use_3d_rope": True,
        "rope_is_neox_style": True,
    }


def test_sizes_come_from_the_config_of_transformers_5() -> None:
    facts = read_facts(TINY)
    assert (facts.text.layers, facts.text.hidden_size, facts.text.heads, facts.text.kv_heads) == (3, 64, 4, 2)
    assert (facts.text.head_dim, facts.text.mrope_sections, facts.text.rope_theta) == (32, (5, 7, 4), 500_000.0)
    assert (facts.vision.layers, facts.vision.hidden_size, facts.vision.head_dim) == (2, 48, 24)
    assert facts.vision.position_side == 7
    assert facts.tokens.end == (2,)
    assert not facts.text.tied_head


def test_a_flat_config_as_published_says_the_same(folder: Path) -> None:
    write_config(folder, flat(read_config(folder)))
    assert read_facts(folder) == read_facts(TINY)


def test_facts_survive_a_trip_through_their_file() -> None:
    facts = read_facts(TINY)
    assert VlmFacts.model_validate_json(facts.model_dump_json()) == facts


@pytest.mark.parametrize("place", ["root", "text"])
def test_the_head_is_tied_where_either_place_says_so(folder: Path, place: str) -> None:
    change(folder, lambda c: (c if place == "root" else c["text_config"]).update(tie_word_embeddings=True))
    assert read_facts(folder).text.tied_head


def test_a_missing_preprocessor_is_refused_because_upstreams_defaults_are_wrong(folder: Path) -> None:
    (folder / "preprocessor_config.json").unlink()
    assert "preprocessor_config.json" in refusal(folder)


def test_the_preprocessor_may_lie_in_processor_config_and_name_its_limits_as_edges(folder: Path) -> None:
    values = read_config(folder, "preprocessor_config.json")
    values["size"] = {"shortest_edge": values.pop("min_pixels"), "longest_edge": values.pop("max_pixels")}
    (folder / "preprocessor_config.json").unlink()
    write_config(folder, {"image_processor": values}, "processor_config.json")
    assert read_facts(folder).pixels == read_facts(TINY).pixels


def test_a_models_own_limits_hold_for_every_task() -> None:
    own = PixelBudget(min_pixels=9_408, max_pixels=50_176)
    assert read_facts(TINY).pixels.budgets == dict.fromkeys(vlm.TASK_PROMPTS, own)


@pytest.mark.parametrize(("limits", "style"), [((112_896, 1_003_520), "v1.5"), ((147_384, 2_822_400), "v1")])
def test_limits_of_the_hub_give_way_to_those_of_the_pipeline_and_tell_the_version(
    folder: Path, limits: tuple[int, int], style: str
) -> None:
    edit = {"min_pixels": limits[0], "max_pixels": limits[1]}
    change(folder, lambda c: c.update(edit), "preprocessor_config.json")
    facts = read_facts(folder)
    assert facts.prompt_style == style
    assert facts.pixels.budgets["ocr"] == facts.pixels.budgets["table"] == PIPELINE_BUDGET
    assert facts.pixels.budgets.get("spotting") == (SPOTTING_BUDGET if style == "v1.5" else None)


@pytest.mark.parametrize(("end", "style"), [("Assistant: ", "v1"), ("Assistant:\\n", "v1.5"), ("Assistant:\n", "v1.5")])
def test_a_chat_template_tells_how_prompts_end(folder: Path, end: str, style: str) -> None:
    (folder / "chat_template.jinja").write_text("{{ '" + end + "' }}", encoding="utf-8")
    assert read_facts(folder).prompt_style == style


def test_a_chat_template_that_says_nothing_plainly_leaves_it_to_the_limits_of_the_hub(folder: Path) -> None:
    change(folder, lambda c: c.update(min_pixels=147_384, max_pixels=2_822_400), "preprocessor_config.json")
    (folder / "chat_template.jinja").write_text("{{ role }}:{{ content }}", encoding="utf-8")
    assert read_facts(folder).prompt_style == "v1"


def test_a_chat_template_of_another_family_is_refused(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("<|im_start|>", encoding="utf-8")
    assert "chat_template.jinja" in refusal(folder)


def test_a_model_of_another_type_is_refused_by_its_type(folder: Path) -> None:
    change(folder, lambda c: c.update(model_type="qwen2_vl"))
    assert "'qwen2_vl'" in refusal(folder)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda c: c["text_config"].update(hidden_act="gelu"), "hidden_act is 'gelu'"),
        (lambda c: c["text_config"].update(sliding_window=4096), "sliding_window is 4096"),
        (lambda c: c["text_config"]["rope_parameters"].update(rope_type="yarn"), "rope type is 'yarn'"),
        (lambda c: c["vision_config"].update(spatial_merge_size=4), "spatial_merge_size is 4"),
        (lambda c: c["text_config"].pop("num_hidden_layers"), "num_hidden_layers"),
        (lambda c: c["text_config"].update(hidden_size=0), "greater than 0"),
        (lambda c: c["text_config"].update(num_key_value_heads=3), "heads do not fit"),
        (lambda c: c["text_config"]["rope_parameters"].update(mrope_section=[1, 2, 3]), "mrope_section"),
        (lambda c: c["vision_config"].update(num_attention_heads=5), "does not fit 5 heads"),
        (lambda c: c.pop("vision_config"), "vision_config"),
    ],
)
def test_a_variant_of_the_architecture_is_refused_by_what_differs(
    folder: Path, edit: Callable[[Config], None], words: str
) -> None:
    change(folder, edit)
    assert words in refusal(folder)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda c: c.update(resample=2), "resample is 2"),
        (lambda c: c.update(do_normalize=False), "do_normalize is False"),
        (lambda c: c.update(patch_size=16), "patch_size of the preprocessor is 16"),
        (lambda c: c.update(rescale_factor=1.0), "rescale_factor"),
        (lambda c: c.pop("image_mean"), "image_mean"),
        (lambda c: c.update(image_std=[0.5]), "Field required"),
        (lambda c: c.update(max_pixels=100), "pixel limits"),
        (lambda c: c.pop("max_pixels"), "valid integer"),
    ],
)
def test_a_preprocessor_of_another_kind_is_refused_by_what_differs(
    folder: Path, edit: Callable[[Config], None], words: str
) -> None:
    change(folder, edit, "preprocessor_config.json")
    assert words in refusal(folder)


@pytest.mark.parametrize("name", ["config.json", "preprocessor_config.json", "tokenizer.json"])
@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff\xfe{}"])
def test_a_damaged_file_is_refused_by_its_name(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    assert name in refusal(folder)


# ---- tokens


def test_a_config_whose_image_token_is_another_in_the_tokenizer_is_refused(folder: Path) -> None:
    change(folder, lambda c: c.update(image_token_id=9))
    assert "image_token_id is 9 in config.json, but <|IMAGE_PLACEHOLDER|> is 4" in refusal(folder)


def test_a_tokenizer_without_the_tokens_of_a_prompt_is_refused_by_what_it_lacks(folder: Path) -> None:
    tokens = [token if token != vlm.BEGIN else "begin" for token in tiny_tokens()]
    (folder / "tokenizer.json").write_text(character_tokenizer(tokens), encoding="utf-8")
    assert f"lacks {vlm.BEGIN}" in refusal(folder)


def test_an_end_token_that_is_another_string_is_refused(folder: Path) -> None:
    change(folder, lambda c: c.update(eos_token_id=1), "generation_config.json")
    assert "decoding ends at <s>, not at </s>" in refusal(folder)


def test_the_end_tokens_may_be_several_and_come_from_the_config_without_a_generation_file(folder: Path) -> None:
    (folder / "generation_config.json").unlink()
    change(folder, lambda c: c["text_config"].update(eos_token_id=[2, 3]))
    assert read_facts(folder).tokens.end == (2, 3)


def test_an_end_token_beyond_the_tokenizer_is_refused(folder: Path) -> None:
    change(folder, lambda c: c.update(eos_token_id=[2, 9999]), "generation_config.json")
    assert "end token 9999" in refusal(folder)


def published(folder: Path, **moved: int) -> None:
    """The tokenizer's ids as published, some of them moved."""
    ids = {**vlm.PUBLISHED_TOKENS, **moved}
    content = {"model": {"vocab": {}}, "added_tokens": [{"content": token, "id": at} for token, at in ids.items()]}
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    change(
        folder,
        lambda c: (
            c["text_config"].update(vocab_size=vlm.PUBLISHED_VOCABULARY),
            c.update(image_token_id=100_295, vision_start_token_id=101_305, vision_end_token_id=101_306),
        ),
    )


def test_the_published_tokenizer_is_known_by_heart(folder: Path) -> None:
    published(folder)
    assert read_facts(folder).tokens.begin == 100_273


def test_a_published_tokenizer_with_a_moved_token_is_refused_by_both_places(folder: Path) -> None:
    published(folder, **{"<fcel>": 101_320})
    assert "<fcel> at 101320 instead of 101309" in refusal(folder)
