"""A PaddleOCR-VL of the published size with random weights: for speed and memory, not for reading. numpy alone.

Names and shapes are those that a conversion asks for, so it goes the whole road of a fetched model. Spread of the
numbers: as torch starts such layers, times three, or every step would say the same token; deep towers stay finite.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from docvino.convert.safetensors import SINGLE
from docvino.convert.vlm_facts import CONFIG, GENERATION, PREPROCESSOR, TOKENIZER, read_facts
from docvino.convert.vlm_graph import tensor_shapes
from docvino.errors import BundleError, ConfigError
from docvino.specs import vlm

# Source: config.json of the three published models, which have one architecture (spec of PaddleOCR-VL, section 2).
TEXT: Mapping[str, Any] = {
    "vocab_size": vlm.PUBLISHED_VOCABULARY,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 18,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "hidden_act": "silu",
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-5,
    "use_bias": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0, "mrope_section": [16, 24, 24]},
}
VISION: Mapping[str, Any] = {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
    "num_channels": 3,
    "image_size": 384,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "hidden_act": "gelu_pytorch_tanh",
    "layer_norm_eps": 1e-6,
}
BUDGETS = {
    "paddleocr-vl-1.6": (112_896, 1_003_520),
    "paddleocr-vl-1.5": (112_896, 1_003_520),
    "paddleocr-vl-v1": (147_384, 2_822_400),
}
_SPREAD = 0.06  # of matrices
_HEAD_SPREAD = 0.05
_EMBEDDING_SPREAD = 0.18
_AT_ONCE = 1 << 24  # numbers that are drawn at a time


def write_published(name: str, folder: Path) -> None:
    """Writes `folder` as it would come from a hub: 1.8 GB.

    Raises: ConfigError for a name that is none of the published models, BundleError when there is no room.
    """
    if name not in BUDGETS:
        raise ConfigError(f"no random weights are made of {name!r}", fix=f"it may be {', '.join(BUDGETS)}")
    write_random(folder, published_tokenizer(), text=TEXT, vision=VISION, budget=BUDGETS[name])


def write_random(
    folder: Path,
    tokenizer: str,
    *,
    text: Mapping[str, Any],
    vision: Mapping[str, Any],
    budget: tuple[int, int],
    seed: int = 0,
) -> None:
    """
    tokenizer      content of tokenizer.json
    text, vision   sizes by their names in config.json
    budget         fewest and most pixels of a crop

    Raises: BundleError when the folder cannot be written.
    """
    ids = {entry["content"]: entry["id"] for entry in json.loads(tokenizer)["added_tokens"]}
    config = {
        "model_type": vlm.MODEL_TYPE,
        "image_token_id": ids[vlm.IMAGE],
        "vision_start_token_id": ids[vlm.IMAGE_START],
        "vision_end_token_id": ids[vlm.IMAGE_END],
        "tie_word_embeddings": False,
        "text_config": {**text, "eos_token_id": ids[vlm.END]},
        "vision_config": dict(vision),
    }
    preprocessor = {
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
        "min_pixels": budget[0],
        "max_pixels": budget[1],
        "patch_size": vision["patch_size"],
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in (
            (CONFIG, config),
            (PREPROCESSOR, preprocessor),
            (GENERATION, {"eos_token_id": ids[vlm.END]}),
        ):
            (folder / name).write_text(json.dumps(value, indent=2), encoding="utf-8")
        (folder / TOKENIZER).write_text(tokenizer, encoding="utf-8")
        _write_tensors(folder / SINGLE, tensor_shapes(read_facts(folder)), seed)
    except OSError as error:
        raise BundleError(
            f"cannot write random weights: {error.strerror or error}",
            fix="free some space, or set TMPDIR to a folder with more",
        ) from error


def published_tokenizer() -> str:
    """A tokenizer.json with as many tokens as the published one and its special tokens at their ids.

    Ordinary tokens are single characters and place holders.
    """
    by_id = {number: token for token, number in vlm.PUBLISHED_TOKENS.items()}
    letters = iter(map(chr, [10, *range(32, 127)]))
    tokens = [by_id.get(number) or next(letters, f"<token {number}>") for number in range(vlm.PUBLISHED_VOCABULARY)]
    added = [
        {
            "id": number,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": token not in vlm.KEPT_TOKENS,
        }
        for number, token in sorted(by_id.items())
    ]
    model = {
        "type": "BPE",
        "unk_token": "<unk>",
        "vocab": {token: number for number, token in enumerate(tokens)},
        "merges": [],
    }
    return json.dumps({"version": "1.0", "added_tokens": added, "decoder": {"type": "Fuse"}, "model": model})


def _write_tensors(path: Path, shapes: Mapping[str, tuple[int, ...]], seed: int) -> None:
    """bfloat16, drawn piece by piece: the whole file never is in memory."""
    header, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    random = np.random.default_rng(seed)
    with path.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for name, shape in shapes.items():
            middle, spread = _spread(name, shape)
            left = math.prod(shape)
            while left:
                count = min(left, _AT_ONCE)
                values: NDArray[np.float32] = random.standard_normal(count, np.float32) * np.float32(spread)
                values += np.float32(middle)
                stream.write((values.view(np.uint32) >> 16).astype("<u2").tobytes())
                left -= count


def _spread(name: str, shape: tuple[int, ...]) -> tuple[float, float]:
    """Mean and standard deviation of a tensor's numbers."""
    if name.endswith(".bias"):
        return 0.0, 0.02
    if len(shape) == 1:
        return 1.0, 0.1  # of norms
    if "embed_tokens" in name:
        return 0.0, _EMBEDDING_SPREAD
    return 0.0, _HEAD_SPREAD if name.startswith("lm_head") else _SPREAD
