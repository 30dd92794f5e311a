"""nano in plain PyTorch: the PaddleOCR-VL architecture with the published tensor names, for batches of one grid.

transformers has the same network (docvino's own fine-tuning uses it); it takes one picture at a time through its vision
tower. Here all crops of a batch have one size, so attention has a real batch dimension, everything is bfloat16, and
what docvino's codec computes for reading (patch order, position taps, rotations, token positions) is what is trained on.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import tokens
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from docvino.codec.prompt import Tokenizer, build_prompt
from docvino.codec.vlm import Grid, position_taps, text_rotary, vision_rotary
from docvino.document import Task
from docvino.specs import vlm
from docvino.specs.vlm import PixelBudget, PixelFacts, TextFacts, TokenFacts, VisionFacts, VlmFacts

# Crops have at most a fifth of the real model's pixels and at least a ninth: a page's text at 100 dots per inch.
BUDGET = PixelBudget(min_pixels=12_544, max_pixels=200_704)
MAX_NEW_TOKENS = 1024
TEXT = {
    "hidden_size": 192,
    "intermediate_size": 512,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10_000.0,
}
MROPE_SECTION = (8, 12, 12)
VISION = {
    "hidden_size": 192,
    "intermediate_size": 640,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "image_size": 224,
    "patch_size": 14,
    "layer_norm_eps": 1e-6,
}
PROJECTOR_EPS = 1e-5


@cache
def facts() -> VlmFacts:
    """What docvino reads out of the folder that `write_folder` writes."""
    ids = {token: number for number, token in enumerate(tokens.vocabulary())}
    text, vision = TEXT, VISION
    return VlmFacts(
        prompt_style="v1.5",
        vision=VisionFacts(
            hidden_size=vision["hidden_size"],
            intermediate_size=vision["intermediate_size"],
            layers=vision["num_hidden_layers"],
            heads=vision["num_attention_heads"],
            head_dim=vision["hidden_size"] // vision["num_attention_heads"],
            patch_px=vision["patch_size"],
            merge=2,
            position_side=vision["image_size"] // vision["patch_size"],
            rope_theta=10_000.0,
            layer_norm_eps=vision["layer_norm_eps"],
        ),
        text=TextFacts(
            hidden_size=text["hidden_size"],
            intermediate_size=text["intermediate_size"],
            layers=text["num_hidden_layers"],
            heads=text["num_attention_heads"],
            kv_heads=text["num_key_value_heads"],
            head_dim=text["head_dim"],
            vocabulary=len(ids),
            max_positions=text["max_position_embeddings"],
            rope_theta=text["rope_theta"],
            mrope_sections=MROPE_SECTION,
            rms_norm_eps=text["rms_norm_eps"],
            biased=False,
            tied_head=True,
        ),
        pixels=PixelFacts(
            mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5), budgets=dict.fromkeys(vlm.TASKS["v1.5"], BUDGET)
        ),
        tokens=TokenFacts(
            begin=ids[vlm.BEGIN],
            image=ids[vlm.IMAGE],
            image_start=ids[vlm.IMAGE_START],
            image_end=ids[vlm.IMAGE_END],
            end=(ids[vlm.END],),
        ),
        max_new_tokens=MAX_NEW_TOKENS,
    )


class _VisionLayer(nn.Module):
    def __init__(self, facts: VisionFacts) -> None:
        super().__init__()
        size = facts.hidden_size
        self.heads = facts.heads
        self.layer_norm1 = nn.LayerNorm(size, facts.layer_norm_eps)
        self.layer_norm2 = nn.LayerNorm(size, facts.layer_norm_eps)
        self.self_attn = nn.ModuleDict({name: nn.Linear(size, size) for name in ("q_proj", "k_proj", "v_proj", "out_proj")})
        self.mlp = nn.ModuleDict(
            {"fc1": nn.Linear(size, facts.intermediate_size), "fc2": nn.Linear(facts.intermediate_size, size)}
        )

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        normed = self.layer_norm1(x)
        q, k, v = (_split(self.self_attn[name](normed), self.heads) for name in ("q_proj", "k_proj", "v_proj"))
        seen = F.scaled_dot_product_attention(_rotated(q, cos, sin), _rotated(k, cos, sin), v)
        x = x + self.self_attn["out_proj"](_joined(seen))
        return x + self.mlp["fc2"](F.gelu(self.mlp["fc1"](self.layer_norm2(x)), approximate="tanh"))


class _DecoderLayer(nn.Module):
    def __init__(self, facts: TextFacts) -> None:
        super().__init__()
        size, inner = facts.hidden_size, facts.intermediate_size
        self.heads, self.kv_heads = facts.heads, facts.kv_heads
        widths = {"q_proj": facts.heads, "k_proj": facts.kv_heads, "v_proj": facts.kv_heads}
        self.input_layernorm = nn.RMSNorm(size, facts.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(size, facts.rms_norm_eps)
        self.self_attn = nn.ModuleDict(
            {
                **{name: nn.Linear(size, heads * facts.head_dim, bias=False) for name, heads in widths.items()},
                "o_proj": nn.Linear(facts.heads * facts.head_dim, size, bias=False),
            }
        )
        self.mlp = nn.ModuleDict(
            {
                "gate_proj": nn.Linear(size, inner, bias=False),
                "up_proj": nn.Linear(size, inner, bias=False),
                "down_proj": nn.Linear(inner, size, bias=False),
            }
        )

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        normed, attention = self.input_layernorm(x), self.self_attn
        q = _rotated(_split(attention["q_proj"](normed), self.heads), cos, sin)
        k = _rotated(_split(attention["k_proj"](normed), self.kv_heads), cos, sin)
        v = _split(attention["v_proj"](normed), self.kv_heads)
        share = self.heads // self.kv_heads
        k, v = k.repeat_interleave(share, 1), v.repeat_interleave(share, 1)
        x = x + attention["o_proj"](_joined(F.scaled_dot_product_attention(q, k, v, is_causal=True)))
        normed = self.post_attention_layernorm(x)
        return x + self.mlp["down_proj"](F.silu(self.mlp["gate_proj"](normed)) * self.mlp["up_proj"](normed))


class Nano(nn.Module):
    """state_dict has the published names; `lm_head` is the embedding, transposed."""

    def __init__(self, facts: VlmFacts) -> None:
        super().__init__()
        vision, text = facts.vision, facts.text
        self.facts = facts
        self._kept: dict[Any, Any] = {}
        self.visual = nn.ModuleDict({"vision_model": nn.ModuleDict({
            "embeddings": nn.ModuleDict({
                "patch_embedding": nn.Conv2d(3, vision.hidden_size, vision.patch_px, vision.patch_px),
                "position_embedding": nn.Embedding(vision.position_side**2, vision.hidden_size),
            }),
            "encoder": nn.ModuleDict({"layers": nn.ModuleList(_VisionLayer(vision) for _ in range(vision.layers))}),
            "post_layernorm": nn.LayerNorm(vision.hidden_size, vision.layer_norm_eps),
        })})  # fmt: skip
        merged = vision.hidden_size * vision.merge**2
        self.mlp_AR = nn.ModuleDict({
            "pre_norm": nn.LayerNorm(vision.hidden_size, PROJECTOR_EPS),
            "linear_1": nn.Linear(merged, merged),
            "linear_2": nn.Linear(merged, text.hidden_size),
        })  # fmt: skip
        self.model = nn.ModuleDict({
            "embed_tokens": nn.Embedding(text.vocabulary, text.hidden_size),
            "layers": nn.ModuleList(_DecoderLayer(text) for _ in range(text.layers)),
            "norm": nn.RMSNorm(text.hidden_size, text.rms_norm_eps),
        })  # fmt: skip
        self.apply(_start)
        _start_locations(self.model["embed_tokens"].weight)

    def see(self, patches: Tensor, grid: Grid) -> Tensor:
        """Image tokens (B, N / 4, hidden) of patches (B, N, 588) in merge-block order, all of one grid."""
        model, vision = self.visual["vision_model"], self.facts.vision
        table = model["embeddings"]["position_embedding"].weight
        taps, weights, cos, sin = self._vision_tables(grid, table)
        kernel = model["embeddings"]["patch_embedding"]
        x = F.linear(patches, kernel.weight.reshape(vision.hidden_size, -1), kernel.bias)
        x = x + (table[taps] * weights[..., None]).sum(1)
        for layer in model["encoder"]["layers"]:
            x = layer(x, cos, sin)
        x = self.mlp_AR["pre_norm"](model["post_layernorm"](x))
        x = x.reshape(len(x), -1, vision.hidden_size * vision.merge**2)
        return self.mlp_AR["linear_2"](F.gelu(self.mlp_AR["linear_1"](x)))

    def forward(self, patches: Tensor, grid: Grid, task: Task, answers: Tensor, tokenizer: Tokenizer) -> Tensor:
        """Logits (B, T + 1, V): of the first token after the prompt, and of those after each of `answers` (B, T)."""
        return self.say(self.see(patches, grid), grid, task, answers, tokenizer)

    def say(self, image: Tensor, grid: Grid, task: Task, answers: Tensor, tokenizer: Tokenizer) -> Tensor:
        """As `forward`, with image tokens already seen."""
        ids, at, cos, sin = self._prompt(grid, task, tokenizer, image)
        embedding = self.model["embed_tokens"]
        batch, length = answers.shape
        before, after = embedding(ids[: at.start]), embedding(ids[at.stop :])
        x = torch.cat([before.expand(batch, -1, -1), image, after.expand(batch, -1, -1), embedding(answers)], 1)
        end = len(ids) + length
        cos, sin = cos[:end], sin[:end]
        for layer in self.model["layers"]:
            x = layer(x, cos, sin)
        return F.linear(self.model["norm"](x[:, -1 - length :]), embedding.weight)

    # Tables of the codec are kept where the weights are: copying them at every step would make the GPU wait.

    def _vision_tables(self, grid: Grid, like: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        key = (grid, like.device, like.dtype)
        if key not in self._kept:
            taps, weights = position_taps(grid, self.facts.vision.position_side)
            cos, sin = vision_rotary(grid, self.facts.vision)
            tables = (torch.tensor(table, device=like.device, dtype=like.dtype) for table in (weights, cos, sin))
            self._kept[key] = (torch.tensor(taps, device=like.device), *tables)
        return self._kept[key]

    def _prompt(
        self, grid: Grid, task: Task, tokenizer: Tokenizer, like: Tensor
    ) -> tuple[Tensor, slice, Tensor, Tensor]:
        """Ids of the prompt, where the image is, and cos and sin of its tokens and of MAX_NEW_TOKENS after it."""
        key = (grid, task, like.device, like.dtype)
        if key not in self._kept:
            prompt = build_prompt(tokenizer, task, grid, self.facts)
            following = prompt.next_position + np.arange(MAX_NEW_TOKENS, dtype=np.int64)
            answer = np.broadcast_to(following, (3, MAX_NEW_TOKENS))
            tables = text_rotary(np.concatenate([prompt.positions, answer], axis=1), self.facts.text)
            cos, sin = (torch.from_numpy(table).to(like.device, like.dtype) for table in tables)
            self._kept[key] = (torch.from_numpy(prompt.ids).to(like.device), prompt.image, cos, sin)
        return self._kept[key]


def as_patches(pictures: Tensor, patch_px: int) -> Tensor:
    """(B, 3, H, W) -> (B, N, 3 * patch * patch) in merge-block order, as `docvino.codec.vlm.cut` has them."""
    batch, _, height, width = pictures.shape
    down, across = height // (2 * patch_px), width // (2 * patch_px)
    blocks = pictures.reshape(batch, 3, down, 2, patch_px, across, 2, patch_px)
    return blocks.permute(0, 2, 5, 3, 6, 1, 4, 7).reshape(batch, down * across * 4, -1)


def config() -> dict[str, Any]:
    """config.json, with the keys of the published file."""
    ids = facts().tokens
    text = {key: value for key, value in TEXT.items() if key != "rope_theta"}
    return {
        "architectures": ["PaddleOCRVLForConditionalGeneration"],
        "model_type": vlm.MODEL_TYPE,
        **text,
        "vocab_size": facts().text.vocabulary,
        "hidden_act": "silu",
        "use_bias": False,
        "rope_theta": TEXT["rope_theta"],
        "rope_scaling": {"mrope_section": list(MROPE_SECTION), "rope_type": "default", "type": "default"},
        "rope_is_neox_style": True,
        "use_3d_rope": True,
        "compression_ratio": 1.0,
        "sliding_window": None,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "use_cache": False,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": ids.end[0],
        "image_token_id": ids.image,
        "video_token_id": tokens.vocabulary().index(tokens.START),
        "vision_start_token_id": ids.image_start,
        "vision_end_token_id": ids.image_end,
        "vision_config": {
            "model_type": vlm.MODEL_TYPE,
            **VISION,
            "hidden_act": "gelu_pytorch_tanh",
            "num_channels": 3,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "tokens_per_second": 2,
        },
    }


def preprocessor() -> dict[str, Any]:
    """preprocessor_config.json: the real model's values, but for the pixel limits."""
    return {
        "do_convert_rgb": True,
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
        "max_pixels": BUDGET.max_pixels,
        "merge_size": 2,
        "min_pixels": BUDGET.min_pixels,
        "patch_size": 14,
        "resample": 3,
        "rescale_factor": 1 / 255,
        "temporal_patch_size": 1,
    }


def write_folder(folder: Path, model: Nano) -> None:
    """A complete Hugging Face folder: weights in bfloat16, tokenizer, configs."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: value.detach().to("cpu", torch.bfloat16).contiguous() for name, value in model.state_dict().items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "tokenizer.json").write_text(tokens.tokenizer_json(), encoding="utf-8")
    # `lm_head` is not stored: it is the embedding.
    for name, value in (
        ("config.json", config()),
        ("preprocessor_config.json", preprocessor()),
        ("generation_config.json", {"eos_token_id": facts().tokens.end[0], "use_cache": False}),
    ):
        (folder / name).write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def parameters(model: nn.Module) -> int:
    return sum(value.numel() for value in model.parameters())


def greedy(
    model: Nano, patches: Tensor, grid: Grid, task: Task, tokenizer: Tokenizer, limit: int
) -> Sequence[list[int]]:
    """The most probable tokens of each crop of a batch, without the end token. No cache: short answers, many at once."""
    end = torch.tensor(model.facts.tokens.end, device=patches.device)
    with torch.no_grad():
        image = model.see(patches, grid)
        answers = torch.zeros((len(patches), 0), dtype=torch.long, device=patches.device)
        done = torch.zeros(len(patches), dtype=torch.bool, device=patches.device)
        while answers.shape[1] < limit and not bool(done.all()):
            following = model.say(image, grid, task, answers, tokenizer)[:, -1].argmax(-1)
            answers = torch.cat([answers, torch.where(done, end[0], following)[:, None]], 1)
            done |= torch.isin(following, end)
    ends = set(model.facts.tokens.end)
    return [row[: next((n for n, token in enumerate(row) if token in ends), len(row))] for row in answers.tolist()]


def _split(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def _joined(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


def _start(module: nn.Module) -> None:
    if isinstance(module, (nn.Linear, nn.Conv2d, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
        if getattr(module, "bias", None) is not None:
            nn.init.zeros_(module.bias)


def _start_locations(weight: Tensor) -> None:
    """Locations begin as points on smooth curves: neighbours alike, so that a place is learned roughly, then exactly."""
    first, count, width = tokens.vocabulary().index(vlm.LOCATIONS[0]), len(vlm.LOCATIONS), weight.shape[1]
    frequencies = 2 * np.pi * 300 ** -np.linspace(0, 1, width // 2)[None] * 30
    angles = np.linspace(0, 1, count)[:, None] * frequencies
    curves = np.concatenate([np.cos(angles), np.sin(angles)], 1) * 0.03
    with torch.no_grad():
        weight[first : first + count] = torch.from_numpy(curves).to(weight.dtype)
