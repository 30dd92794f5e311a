"""A LoRA adapter and the PaddleOCR-VL folder it was trained on -> one folder with the adapter merged. No PyTorch."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from docvino.convert.safetensors import SINGLE, Weights, find_files, write_tensors
from docvino.convert.vlm_facts import CONFIG, GENERATION, PREPROCESSOR, PROCESSOR, TEMPLATE, TOKENIZER, read_facts
from docvino.convert.vlm_graph import RENAMED, tensor_shapes
from docvino.errors import ConvertError

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"

_TAKEN = (
    *(CONFIG, PREPROCESSOR, PROCESSOR, GENERATION, TOKENIZER, TEMPLATE),
    *("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "tokenizer.model"),
)
_PREFIX = "base_model.model."  # peft's, before the names that transformers gives
_SUFFIXES = (".lora_A.weight", ".lora_B.weight")
# Settings of peft that change more than W + scale * B A, with the values that do not.
_PLAIN: Mapping[str, tuple[Any, ...]] = {
    "use_dora": (None, False),
    "bias": (None, "none"),
    "modules_to_save": (None, []),
    "rank_pattern": (None, {}),
    "alpha_pattern": (None, {}),
    "fan_in_fan_out": (None, False),
    "lora_bias": (None, False),
}


def merge_adapter(adapter: Path, base: Path, out: Path) -> None:
    """Writes the folder `out`: `base` with the adapter's matrices added to its weights, in the formats of `base`.

    Raises: ConvertError when the adapter is not plain LoRA, was made for another model, or a file is missing.
    """
    scale = _scale(adapter)
    facts = read_facts(base)
    if not (adapter / ADAPTER_WEIGHTS).is_file():
        raise ConvertError(f"{adapter} has no {ADAPTER_WEIGHTS}", fix="give the folder as peft wrote it")
    with Weights((adapter / ADAPTER_WEIGHTS,)) as low, Weights(find_files(base), RENAMED) as weights:
        weights.check(tensor_shapes(facts))
        targets = _targets(low, weights)

        def merged(name: str) -> NDArray[np.float32]:
            value = weights.read(name)
            if name not in targets:
                return value
            first, second = (low.read(targets[name] + suffix) for suffix in _SUFFIXES)
            total: NDArray[np.float32] = value + np.float32(scale) * (second @ first)
            return total

        write_folder(base, out, weights, merged)


def write_folder(base: Path, out: Path, weights: Weights, value: Callable[[str], NDArray[np.float32]]) -> None:
    """`base` again with other numbers in its tensors: `value(name)`, float32, for every tensor of `weights`."""
    out.mkdir(parents=True, exist_ok=True)
    for name in _TAKEN:
        if (base / name).is_file():
            shutil.copyfile(base / name, out / name)
    readable = [name for name in weights.names if weights.stored_as(name) in ("BF16", "F16", "F32")]
    kinds = {name: (weights.stored_as(name), weights.shape(name)) for name in readable}
    write_tensors(out / SINGLE, kinds, value)


def published_name(name: str) -> str:
    """A tensor's name in the published files, from the one that transformers gives it."""
    old = next((old for old in RENAMED if name.startswith(old)), "")
    return RENAMED.get(old, "") + name[len(old) :]


def _scale(adapter: Path) -> float:
    try:
        about = json.loads((adapter / ADAPTER_CONFIG).read_text(encoding="utf-8"))
        kind, rank, alpha = about["peft_type"], int(about["r"]), float(about["lora_alpha"])
        rooted = bool(about.get("use_rslora"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConvertError(
            f"{adapter / ADAPTER_CONFIG} is missing or damaged: {error!r}", fix="save it again"
        ) from error
    foreign = [f"{key} {about[key]!r}" for key, plain in _PLAIN.items() if about.get(key) not in plain]
    if kind != "LORA" or foreign or rank < 1:
        raise ConvertError(
            f"docvino merges plain LoRA, this adapter is {kind} of rank {rank} {' '.join(foreign)}",
            fix="merge it with peft (merge_and_unload), save the whole model and convert that",
        )
    return alpha / (rank**0.5 if rooted else rank)


def _targets(low: Weights, weights: Weights) -> dict[str, str]:
    """By name of a tensor of the model: the beginning of the adapter's names for it.

    Raises: ConvertError for what is not a pair of matrices that fits a tensor of the model.
    """
    found: dict[str, str] = {}
    for name in low.names:
        suffix = next((suffix for suffix in _SUFFIXES if name.endswith(suffix)), None)
        stem = name[: -len(suffix)] if suffix else name
        target = published_name(stem.removeprefix(_PREFIX)) + ".weight"
        if suffix is None or target not in weights or any(stem + other not in low for other in _SUFFIXES):
            raise ConvertError(
                f"the adapter's tensor {name} belongs to nothing in the model", fix="give the model it was trained on"
            )
        rows, columns = low.shape(stem + _SUFFIXES[1])[0], low.shape(stem + _SUFFIXES[0])[-1]
        inner = {low.shape(stem + _SUFFIXES[0])[0], low.shape(stem + _SUFFIXES[1])[-1]}
        if weights.shape(target) != (rows, columns) or len(inner) != 1:
            raise ConvertError(
                f"the adapter changes {target} as a matrix {[rows, columns]}, in the model it is "
                f"{list(weights.shape(target))}",
                fix="give the model it was trained on",
            )
        found[target] = stem
    if not found:
        raise ConvertError("the adapter is empty", fix="save it again")
    return found
