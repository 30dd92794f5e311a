"""Facts of PaddleOCR-VL's borders: sizes, patches, positions, prompts, answers."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from docvino.codec import vlm
from docvino.codec.prompt import Tokenizer, build_prompt, place_image, prompt_text
from docvino.convert.vlm_facts import read_facts
from docvino.document import Task
from docvino.errors import BundleError, ConfigError, InputError
from docvino.specs.vlm import (
    IMAGE,
    PIPELINE_BUDGET,
    SPOTTING_BUDGET,
    TASK_PROMPTS,
    PixelBudget,
    VlmFacts,
)
from vlm_models import TINY, character_tokenizer, tiny_tokens

V1_ALONE = PixelBudget(min_pixels=147_384, max_pixels=2_822_400)
EVEN = st.integers(1, 12).map(lambda half: 2 * half)


@cache
def facts() -> VlmFacts:
    return read_facts(TINY)


@cache
def tokenizer() -> Tokenizer:
    return Tokenizer.open(TINY / "tokenizer.json")


def noise(height: int, width: int, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


# ---- sizes. Source: the golden vectors of the model's specification, section 2.5


@pytest.mark.parametrize(
    ("size", "pipeline", "v1_alone", "spotting"),
    [
        ((100, 300), (196, 588), (224, 672), (196, 588)),
        ((1200, 800), (1204, 812), (1204, 812), (1204, 812)),
        ((3508, 2480), (1176, 840), (1988, 1400), (1484, 1064)),
        ((20, 600), (84, 1848), (84, 2128), (84, 1848)),
        ((48, 48), (336, 336), (392, 392), (336, 336)),
        ((40, 1600), (56, 2128), (84, 2436), (56, 2128)),
        ((64, 1000), (112, 1344), (112, 1540), (112, 1344)),
    ],
)
def test_sizes_are_those_of_upstream(
    size: tuple[int, int], pipeline: tuple[int, int], v1_alone: tuple[int, int], spotting: tuple[int, int]
) -> None:
    assert vlm.smart_resize(*size, PIPELINE_BUDGET) == pipeline
    assert vlm.smart_resize(*size, V1_ALONE) == v1_alone
    assert vlm.smart_resize(*size, SPOTTING_BUDGET) == spotting


@pytest.mark.parametrize(
    ("size", "budget", "patches", "tokens"),
    [
        ((100, 300), PIPELINE_BUDGET, 588, 147),
        ((1200, 800), PIPELINE_BUDGET, 4988, 1247),
        ((3508, 2480), PIPELINE_BUDGET, 5040, 1260),
        ((20, 600), PIPELINE_BUDGET, 792, 198),
        ((48, 48), PIPELINE_BUDGET, 576, 144),
        ((40, 1600), PIPELINE_BUDGET, 608, 152),
        ((64, 1000), PIPELINE_BUDGET, 768, 192),
        ((3508, 2480), V1_ALONE, 14200, 3550),
        ((3508, 2480), SPOTTING_BUDGET, 8056, 2014),
    ],
)
def test_patches_and_image_tokens_are_as_many_as_upstream_has(
    size: tuple[int, int], budget: PixelBudget, patches: int, tokens: int
) -> None:
    height, width = vlm.smart_resize(*size, budget)
    cut = vlm.cut(np.zeros((height, width, 3), np.uint8), facts())
    assert (cut.pixel_values.shape[1], cut.image_tokens) == (patches, tokens)
    assert tokens == height * width // 784


@given(st.integers(1, 5000), st.integers(1, 5000))
def test_every_crop_gets_sides_of_whole_tokens_within_the_budget(height: int, width: int) -> None:
    rows, columns = vlm.smart_resize(height, width, PIPELINE_BUDGET)
    assert rows % 28 == columns % 28 == 0
    assert min(rows, columns) >= 28
    assert rows * columns >= PIPELINE_BUDGET.min_pixels
    if max(height, width) <= 200 * min(height, width):
        assert rows * columns <= PIPELINE_BUDGET.max_pixels


@pytest.mark.parametrize(("size", "padded"), [((4, 900), (5, 900)), ((1, 1000), (5, 1000)), ((900, 4), (900, 5))])
def test_a_strip_beyond_200_to_1_is_padded_with_its_edge(size: tuple[int, int], padded: tuple[int, int]) -> None:
    pixels = noise(*size)
    strip = vlm.pad_strip(pixels)
    assert strip.shape[:2] == padded
    np.testing.assert_array_equal(strip[: size[0], : size[1]], pixels)
    np.testing.assert_array_equal(strip[-1, -1], pixels[-1, -1])


def test_a_strip_of_200_to_1_is_left_alone() -> None:
    pixels = noise(5, 1000)
    assert vlm.pad_strip(pixels) is pixels


@pytest.mark.parametrize("size", [(1, 1), (4, 900), (900, 4), (33, 47), (700, 500)])
def test_any_crop_becomes_as_many_patches_as_its_grid_says(size: tuple[int, int]) -> None:
    patches = vlm.prepare(noise(*size), "ocr", facts())
    count = patches.grid[0] * patches.grid[1]
    assert {name: values.shape for name, values in patches.inputs().items()} == {
        "pixel_values": (1, count, 588),
        "position_taps": (1, count, 4),
        "position_weights": (1, count, 4),
        "rotary_cos": (1, count, 24),
        "rotary_sin": (1, count, 24),
    }
    assert patches.image_tokens == count // 4


def test_a_crop_without_pixels_and_a_task_of_another_model_are_refused() -> None:
    with pytest.raises(InputError, match="without pixels"):
        vlm.prepare(np.zeros((0, 5, 3), np.uint8), "ocr", facts())
    v1 = facts().model_copy(update={"pixels": facts().pixels.model_copy(update={"budgets": {"ocr": PIPELINE_BUDGET}})})
    with pytest.raises(InputError, match="does not read seal"):
        vlm.prepare(noise(9, 9), "seal", v1)


# ---- pixels


@pytest.mark.parametrize("target", [(56, 112), (140, 28), (301, 77)])
def test_resizing_is_pillows_bicubic_to_the_bit(target: tuple[int, int]) -> None:
    pixels = noise(90, 130)
    wanted = np.asarray(Image.fromarray(pixels).resize((target[1], target[0]), Image.Resampling.BICUBIC))
    np.testing.assert_array_equal(vlm.resize(pixels, *target), wanted)


def test_a_crop_of_the_right_size_is_not_touched() -> None:
    pixels = noise(28, 56)
    assert vlm.resize(pixels, 28, 56) is pixels


def test_pixels_become_minus_one_to_one_in_red_green_blue_order() -> None:
    pixels = np.zeros((28, 28, 3), np.uint8)
    pixels[...] = (255, 51, 0)
    values = vlm.cut(pixels, facts()).pixel_values.reshape(4, 3, 14, 14)
    for channel, wanted in enumerate((1.0, -0.6, -1.0)):
        np.testing.assert_allclose(values[:, channel], wanted, atol=1e-6)


def test_mean_and_std_are_the_models_own() -> None:
    pixels = facts().pixels.model_copy(update={"mean": (0.1, 0.2, 0.3), "std": (0.5, 0.25, 2.0)})
    other = facts().model_copy(update={"pixels": pixels})
    values = vlm.cut(np.full((28, 28, 3), 51, np.uint8), other).pixel_values.reshape(4, 3, 196)
    np.testing.assert_allclose(values[0, :, 0], [0.2, 0.0, -0.05], atol=1e-6)


@given(EVEN, EVEN)
def test_patches_in_block_order_are_the_raster_patches_reordered(down: int, across: int) -> None:
    pixels = noise(down * 14, across * 14, seed=down * 100 + across)
    raster = (
        ((pixels.astype(np.float32) - 127.5) / 127.5)
        .reshape(down, 14, across, 14, 3)
        .transpose(0, 2, 4, 1, 3)
        .reshape(down * across, 588)
    )
    found = vlm.cut(pixels, facts()).pixel_values[0]
    np.testing.assert_allclose(found, raster[vlm.raster_order((down, across))], atol=1e-6)


def test_blocks_hold_top_left_top_right_bottom_left_bottom_right() -> None:
    assert vlm.raster_order((4, 4)).tolist() == [0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15]


# ---- positions


def test_a_grid_as_large_as_the_table_reads_it_row_by_row() -> None:
    taps, weights = vlm.position_taps((8, 8), 8)
    rows, columns = vlm.places((8, 8))
    np.testing.assert_array_equal(taps[:, 0], rows * 8 + columns)
    np.testing.assert_array_equal(weights, np.tile([1, 0, 0, 0], (64, 1)))


@given(EVEN, EVEN, st.integers(1, 27))
def test_taps_are_within_the_table_and_their_weights_sum_to_one(down: int, across: int, side: int) -> None:
    taps, weights = vlm.position_taps((down, across), side)
    assert taps.min() >= 0
    assert taps.max() < side * side
    assert weights.min() >= 0
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-6)


def test_taps_interpolate_a_slope_with_its_ends_held() -> None:
    slope = np.repeat(np.arange(4.0), 4)  # the value is the row
    taps, weights = vlm.position_taps((8, 8), 4)
    rows, _ = vlm.places((8, 8))
    wanted = np.clip((np.arange(8) + 0.5) / 2 - 0.5, 0, 3)[rows]
    np.testing.assert_allclose((slope[taps] * weights).sum(axis=1), wanted, atol=1e-6)


def test_rotations_of_a_patch_are_its_row_then_its_column_then_both_again() -> None:
    cos, sin = vlm.vision_rotary((4, 6), facts().vision)
    frequencies = 10_000.0 ** (-np.arange(0, 12, 2) / 12)
    rows, columns = vlm.places((4, 6))
    patch = 13
    angles = np.concatenate([rows[patch] * frequencies, columns[patch] * frequencies])
    np.testing.assert_allclose(cos[patch], np.cos([*angles, *angles]), atol=1e-6)
    np.testing.assert_allclose(sin[patch], np.sin([*angles, *angles]), atol=1e-6)


def test_tables_of_a_grid_are_kept_and_cannot_be_written_to() -> None:
    first, again = vlm.vision_rotary((4, 6), facts().vision), vlm.vision_rotary((4, 6), facts().vision)
    assert first[0] is again[0]
    with pytest.raises(ValueError, match="read-only"):
        first[0][0, 0] = 2


def test_positions_of_the_worked_example() -> None:
    """Source: section 2.8 of the model's specification: two text tokens, a 4 x 6 grid, three text tokens."""
    positions, following = vlm.prompt_positions(2, (4, 6), 3)
    assert positions.tolist() == [
        [0, 1, 2, 2, 2, 2, 2, 2, 5, 6, 7],
        [0, 1, 2, 2, 2, 3, 3, 3, 5, 6, 7],
        [0, 1, 2, 3, 4, 2, 3, 4, 5, 6, 7],
    ]
    assert following == 8  # 11 tokens and a delta of -3


@given(st.lists(st.integers(0, 9000), min_size=3, max_size=3))
def test_sections_of_the_decoders_rotations_follow_their_own_position(place: list[int]) -> None:
    text = facts().text
    cos, sin = vlm.text_rotary(np.array(place, np.int64)[:, None], text)
    frequencies = (text.rope_theta ** -(np.arange(0, text.head_dim, 2) / text.head_dim)).astype(np.float32)
    owner = np.repeat(place, text.mrope_sections).astype(np.float32)
    angles = np.tile(owner * frequencies, 2)
    assert cos.shape == (1, text.head_dim)
    np.testing.assert_array_equal(cos[0], np.cos(angles))
    np.testing.assert_array_equal(sin[0], np.sin(angles))


# ---- prompts


def test_the_prompt_of_1_5_and_1_6_ends_with_a_line_feed_that_of_v1_with_a_space() -> None:
    head = "<|begin_of_sentence|>User: <|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>"
    assert prompt_text("table", facts()) == head + "Table Recognition:\nAssistant:\n"
    assert (
        prompt_text("table", facts().model_copy(update={"prompt_style": "v1"}))
        == head + "Table Recognition:\nAssistant: "
    )


def test_v1_does_not_read_seals() -> None:
    with pytest.raises(ConfigError, match="does not read seal"):
        prompt_text("seal", facts().model_copy(update={"prompt_style": "v1"}))


@pytest.mark.parametrize("task", list(TASK_PROMPTS))
def test_a_prompt_has_one_placeholder_for_each_image_token(task: Task) -> None:
    prompt = build_prompt(tokenizer(), task, (6, 10), facts())
    assert prompt.image == slice(8, 23)
    assert (prompt.ids == facts().tokens.image).sum() == 15
    assert set(prompt.ids[prompt.image]) == {facts().tokens.image}
    assert prompt.positions.shape == (3, len(prompt.ids))
    assert prompt.next_position == prompt.positions.max() + 1
    words = "".join(str(tokenizer().text_of(int(number))) for number in prompt.ids)
    assert words == prompt_text(task, facts()).replace(IMAGE, IMAGE * 15)


def test_a_tokenizer_of_another_model_cannot_make_the_prompt(tmp_path: Path) -> None:
    content = json.loads((TINY / "tokenizer.json").read_text(encoding="utf-8"))
    content["added_tokens"] = [entry for entry in content["added_tokens"] if entry["content"] != IMAGE]
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(BundleError, match="frame of an image"):
        build_prompt(Tokenizer.open(tmp_path / "tokenizer.json"), "ocr", (4, 4), facts())


def test_image_tokens_take_the_places_of_placeholders_and_no_other_number_of_them_does() -> None:
    prompt = build_prompt(tokenizer(), "ocr", (4, 4), facts())
    embeds = np.zeros((len(prompt.ids), 3), np.float32)
    filled = place_image(embeds, np.ones((4, 3), np.float32), prompt)
    assert filled[:, 0].nonzero()[0].tolist() == list(range(8, 12))
    assert not embeds.any()
    with pytest.raises(BundleError, match=r"\[5, 3\] for 4 placeholders"):
        place_image(embeds, np.ones((5, 3), np.float32), prompt)


# ---- answers


def ids(*tokens: str) -> list[int]:
    return [tiny_tokens().index(token) for token in tokens]


def test_answers_keep_table_tags_and_locations_and_lose_what_steers_the_model() -> None:
    answer = ids(
        "<|begin_of_sentence|>", "<fcel>", "a", " ", "b", "<ecel>", "<nl>", "<|LOC_40|>", "<|LOC_SEP|>", "</s>"
    )
    assert tokenizer().decode(answer) == "<fcel>a b<ecel><nl><|LOC_40|><|LOC_SEP|>"


def test_table_tags_and_locations_survive_where_a_tokenizer_calls_them_special(tmp_path: Path) -> None:
    content = json.loads(character_tokenizer(tiny_tokens()))
    for entry in content["added_tokens"]:
        entry["special"] = True
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    special = Tokenizer.open(tmp_path / "tokenizer.json")
    assert special.decode(ids("<s>", "<lcel>", "x", "<|LOC_1000|>", "</s>")) == "<lcel>x<|LOC_1000|>"


def test_line_feeds_and_spaces_are_text() -> None:
    assert tokenizer().decode(ids(" ", "a", "\n", " ", " ")) == " a\n  "


def test_a_damaged_tokenizer_is_a_bundle_error(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    with pytest.raises(BundleError, match=r"cannot read tokenizer\.json"):
        Tokenizer.open(tmp_path / "tokenizer.json")
