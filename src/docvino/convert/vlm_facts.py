"""A PaddleOCR-VL folder from Hugging Face -> VlmFacts: its JSON files, read and checked. No code in it is run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from pydantic import ValidationError

from docvino.document import Task
from docvino.errors import ConvertError
from docvino.specs import vlm
from docvino.specs.vlm import PixelBudget, PixelFacts, PromptStyle, TextFacts, TokenFacts, VisionFacts, VlmFacts

CONFIG = "config.json"
PREPROCESSOR = "preprocessor_config.json"
PROCESSOR = "processor_config.json"  # transformers 5 keeps the preprocessor in here
GENERATION = "generation_config.json"
TOKENIZER = "tokenizer.json"
TEMPLATE = "chat_template.jinja"

_FOREIGN = "docvino converts models of the PaddleOCR-VL architecture"
_AGAIN = "fetch the model again"
_BICUBIC = 3  # of PIL


def read_facts(folder: Path) -> VlmFacts:
    """Sizes, pixel rules, token ids and prompts of the model in `folder`, each taken from its own file.

    Raises: ConvertError for a missing or damaged file, another architecture, or token ids that are not what they say.
    """
    config = _json(folder / CONFIG)
    if config.get("model_type") != vlm.MODEL_TYPE:
        raise ConvertError(
            f"{folder.name} is a model of type {config.get('model_type')!r}, not {vlm.MODEL_TYPE!r}", fix=_FOREIGN
        )
    try:
        text, vision = _text(config), _vision(config)
        style, pixels = _pixels(folder, vision)
    except (KeyError, TypeError, ValueError) as error:  # pydantic's errors are ValueErrors
        about = "; ".join(str(e["msg"]) for e in error.errors()) if isinstance(error, ValidationError) else repr(error)
        raise ConvertError(f"{CONFIG} or {PREPROCESSOR} lacks a value or has a bad one: {about}", fix=_AGAIN) from error
    return VlmFacts(
        prompt_style=style,
        vision=vision,
        text=text,
        pixels=pixels,
        tokens=_tokens(folder, config, text),
        max_new_tokens=min(vlm.MAX_NEW_TOKENS, text.max_positions),
    )


def _text(config: Mapping[str, Any]) -> TextFacts:
    """The decoder's sizes, from a flat config (as published) or one with `text_config` (as transformers 5 writes)."""
    text = config.get("text_config") or config
    rope = {**(text.get("rope_scaling") or {}), **(text.get("rope_parameters") or {})}
    _only("hidden_act", text.get("hidden_act", "silu"), "silu")
    _only("rope type", rope.get("rope_type", rope.get("type", "default")), "default")
    _only("sliding_window", text.get("sliding_window"), None)
    _only("compression_ratio", text.get("compression_ratio", 1.0), 1.0)
    _only("use_3d_rope", text.get("use_3d_rope", True), True)
    _only("rope_is_neox_style", text.get("rope_is_neox_style", True), True)
    heads = int(text["num_attention_heads"])
    head_dim = int(text.get("head_dim") or text["hidden_size"] // heads)
    sections = tuple(int(part) for part in rope["mrope_section"])
    kv_heads = int(text.get("num_key_value_heads") or heads)
    if sum(sections) * 2 != head_dim or heads % kv_heads:
        raise ValueError(f"mrope_section {sections} or {heads}/{kv_heads} heads do not fit head_dim {head_dim}")
    # transformers ties by default where the published file says "untied", and keeps the flag in either place.
    tied = config.get("tie_word_embeddings", False) or text.get("tie_word_embeddings", False)
    return TextFacts(
        hidden_size=text["hidden_size"],
        intermediate_size=text["intermediate_size"],
        layers=text["num_hidden_layers"],
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocabulary=text["vocab_size"],
        max_positions=text.get("max_position_embeddings", 131_072),
        rope_theta=rope.get("rope_theta", text.get("rope_theta", 500_000.0)),
        mrope_sections=sections,
        rms_norm_eps=text.get("rms_norm_eps", 1e-5),
        biased=bool(text.get("use_bias", False)),
        tied_head=bool(tied),
    )


def _vision(config: Mapping[str, Any]) -> VisionFacts:
    vision = config["vision_config"]
    _only("vision hidden_act", vision.get("hidden_act", "gelu_pytorch_tanh"), "gelu_pytorch_tanh")
    _only("num_channels", vision.get("num_channels", 3), 3)
    _only("spatial_merge_size", vision.get("spatial_merge_size", 2), 2)
    hidden, heads, patch = int(vision["hidden_size"]), int(vision["num_attention_heads"]), int(vision["patch_size"])
    if hidden % heads or hidden // heads % 4:
        raise ValueError(f"vision hidden_size {hidden} does not fit {heads} heads with row and column rotations")
    return VisionFacts(
        hidden_size=hidden,
        intermediate_size=vision["intermediate_size"],
        layers=vision["num_hidden_layers"],
        heads=heads,
        head_dim=hidden // heads,
        patch_px=patch,
        merge=2,
        position_side=int(vision["image_size"]) // patch,
        rope_theta=(vision.get("rope_parameters") or {}).get("rope_theta", 10_000.0),
        layer_norm_eps=vision.get("layer_norm_eps", 1e-6),
    )


def _pixels(folder: Path, vision: VisionFacts) -> tuple[PromptStyle, PixelFacts]:
    """Area limits, mean and std of the preprocessor's file, and the version that the limits and the template tell.

    Differs: no defaults. Those of the classes upstream are CLIP's mean and std, and the model was not trained so.
    """
    path = folder / PREPROCESSOR
    if not path.is_file() and (folder / PROCESSOR).is_file():
        values = _json(folder / PROCESSOR).get("image_processor") or {}
    else:
        values = _json(path)
    _only("patch_size of the preprocessor", values.get("patch_size", vision.patch_px), vision.patch_px)
    _only("merge_size", values.get("merge_size", vision.merge), vision.merge)
    _only("temporal_patch_size of the preprocessor", values.get("temporal_patch_size", 1), 1)
    _only("resample", values.get("resample", _BICUBIC), _BICUBIC)
    if abs(values.get("rescale_factor", 1 / 255) - 1 / 255) > 1e-6:
        raise ValueError("rescale_factor is not 1/255")
    for step in ("do_resize", "do_rescale", "do_normalize", "do_convert_rgb"):
        _only(step, values.get(step, True), True)
    size = values.get("size") or {}
    budget = PixelBudget(
        min_pixels=values.get("min_pixels", size.get("min_pixels", size.get("shortest_edge"))),
        max_pixels=values.get("max_pixels", size.get("max_pixels", size.get("longest_edge"))),
    )
    if not vision.factor_px**2 <= budget.min_pixels <= budget.max_pixels:
        raise ValueError(f"pixel limits {budget.min_pixels}..{budget.max_pixels}")
    style = _prompt_style(folder, budget)
    mean, std = tuple(values["image_mean"]), tuple(values["image_std"])
    doubled = vlm.SPOTTING_DOUBLE_BELOW_PX if budget in vlm.HUB_BUDGETS else 0
    return style, PixelFacts(mean=mean, std=std, budgets=_budgets(style, budget), double_below_px=doubled)


def _budgets(style: PromptStyle, own: PixelBudget) -> dict[Task, PixelBudget]:
    """Area limits by task: the pipeline's for the published models, a model's own ones otherwise."""
    if own not in vlm.HUB_BUDGETS:
        return dict.fromkeys(vlm.TASKS[style], own)
    return {task: vlm.SPOTTING_BUDGET if task == "spotting" else vlm.PIPELINE_BUDGET for task in vlm.TASKS[style]}


def _prompt_style(folder: Path, budget: PixelBudget) -> PromptStyle:
    """How prompts end: by the chat template where it is plain, else by the pixel limits, which differ by version."""
    by_limits = vlm.HUB_BUDGETS.get(budget)
    path = folder / TEMPLATE
    if path.is_file():
        template = _text_of(path).replace("\\n", "\n")
        if "Assistant:\n" in template:
            return "v1.5"
        if "Assistant: " in template:
            return "v1"
        if by_limits is None:
            raise ConvertError(f"{TEMPLATE} does not end prompts as v1, 1.5 or 1.6 do", fix=_FOREIGN)
    return by_limits or "v1.5"


def _tokens(folder: Path, config: Mapping[str, Any], text: TextFacts) -> TokenFacts:
    """Token ids, from tokenizer.json, compared with config.json and, for the published tokenizer, with the known ids.

    The published tokenizer is known by its size. Any other one must hold the tokens of a prompt at ids that config.json
    names, where it names them.
    """
    ids = read_vocabulary(folder / TOKENIZER)
    published = text.vocabulary == vlm.PUBLISHED_VOCABULARY
    needed = tuple(vlm.PUBLISHED_TOKENS) if published else (vlm.BEGIN, vlm.IMAGE, vlm.IMAGE_START, vlm.IMAGE_END)
    if missing := [token for token in needed if token not in ids]:
        raise ConvertError(f"{TOKENIZER} lacks {_few(missing)}", fix=_AGAIN)
    if published:
        moved = [
            f"{token} at {ids[token]} instead of {known}"
            for token, known in vlm.PUBLISHED_TOKENS.items()
            if ids[token] != known
        ]
        if moved:
            raise ConvertError(f"{TOKENIZER} has {_few(moved)}", fix="use the tokenizer that belongs to the weights")
    for key, token in (
        ("image_token_id", vlm.IMAGE),
        ("vision_start_token_id", vlm.IMAGE_START),
        ("vision_end_token_id", vlm.IMAGE_END),
    ):
        if key in config and config[key] != ids[token]:
            raise ConvertError(
                f"{key} is {config[key]} in {CONFIG}, but {token} is {ids[token]} in {TOKENIZER}",
                fix="use the tokenizer that belongs to the weights",
            )
    ends = _ends(folder, config)
    names = {number: token for token, number in ids.items()}
    for end in ends:
        if names.get(end) is None:
            raise ConvertError(f"the end token {end} is not in {TOKENIZER}", fix=_AGAIN)
    if ids.get(vlm.END) not in ends:
        raise ConvertError(
            f"decoding ends at {', '.join(names[end] for end in ends)}, not at {vlm.END}",
            fix="use the tokenizer that belongs to the weights",
        )
    if (largest := max(ids[token] for token in needed)) >= text.vocabulary:
        raise ConvertError(
            f"{TOKENIZER} has a token {largest}, the weights have {text.vocabulary} rows",
            fix="use the tokenizer that belongs to the weights",
        )
    return TokenFacts(
        begin=ids[vlm.BEGIN],
        image=ids[vlm.IMAGE],
        image_start=ids[vlm.IMAGE_START],
        image_end=ids[vlm.IMAGE_END],
        end=ends,
    )


def _ends(folder: Path, config: Mapping[str, Any]) -> tuple[int, ...]:
    path = folder / GENERATION
    found = _json(path).get("eos_token_id") if path.is_file() else None
    if found is None:
        found = (config.get("text_config") or config).get("eos_token_id", vlm.PUBLISHED_TOKENS[vlm.END])
    try:
        return tuple(int(end) for end in (found if isinstance(found, list) else [found]))
    except (TypeError, ValueError) as error:
        raise ConvertError(f"eos_token_id is {found!r}", fix=_AGAIN) from error


def read_vocabulary(path: Path) -> dict[str, int]:
    """Every token of a tokenizer.json with its id.

    Raises: ConvertError when the file is missing or damaged.
    """
    content = _json(path)
    try:
        listed = content["model"]["vocab"]
        ids: dict[str, int] = (
            {str(entry[0]): place for place, entry in enumerate(listed)} if isinstance(listed, list) else dict(listed)
        )
        ids |= {str(entry["content"]): int(entry["id"]) for entry in content.get("added_tokens", ())}
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ConvertError(f"{path.name} is damaged ({error!r})", fix=_AGAIN) from error
    return ids


def _only(name: str, found: object, known: object) -> None:
    if found != known:
        _foreign(f"{name} is {found!r}, known is {known!r}")


def _foreign(what: str) -> NoReturn:
    raise ConvertError(f"a variant that docvino does not know: {what}", fix=_FOREIGN)


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(_text_of(path))
    except ValueError as error:
        raise ConvertError(f"{path.name} is no JSON: {error}", fix=_AGAIN) from error
    if not isinstance(value, dict):
        raise ConvertError(f"{path.name} is not a JSON object", fix=_AGAIN)
    return value


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConvertError(f"{path.parent} has no readable {path.name}", fix=_AGAIN) from error
    except UnicodeDecodeError as error:
        raise ConvertError(f"{path.name} is not UTF-8 text", fix=_AGAIN) from error


def _few(items: Sequence[str]) -> str:
    return ", ".join(items[:3]) + (f" and {len(items) - 3} more" if len(items) > 3 else "")
