"""What transformers makes of a PaddleOCR-VL folder: the reference that conversions are compared with.

Needs the extra `reference` (torch, transformers); docvino never needs it to read. transformers' own class for the
architecture is used: no code from the folder is run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import NDArray

from docvino.codec.prompt import Tokenizer, build_prompt
from docvino.codec.vlm import prepare, raster_order
from docvino.convert.vlm_facts import TOKENIZER, read_facts
from docvino.document import Task
from docvino.errors import ConfigError, ConvertError, MissingExtraError, nearest
from docvino.golden_vlm import KEPT_LOGITS, Outputs, VlmCase, keep, sample_image, save_case
from docvino.inputs import open_document, read_source
from docvino.settings import ParseOptions
from docvino.specs import vlm
from docvino.specs.vlm import VlmFacts

if TYPE_CHECKING:
    import torch

STEPS = 32
SPREAD = 3.0  # of random matrices, as a multiple of the usual start: with that one every step would say the same token
_HEAD_SPREAD = 0.05


def record(
    folder: Path, out: Path, *, image: NDArray[np.uint8] | None = None, task: Task = "ocr", steps: int = STEPS
) -> VlmCase:
    """Runs the model of `folder` in float32 on the CPU and writes a golden case.

    image   uint8 (H, W, 3) RGB; a drawn sample when None
    steps   greedy tokens; the run goes on over end tokens

    Raises: MissingExtraError without torch and transformers, ConvertError when transformers cannot load the folder.
    """
    torch_, transformers = _stack()
    facts = read_facts(folder)
    tokenizer = Tokenizer.open(folder / TOKENIZER)
    try:
        model = transformers.PaddleOCRVLForConditionalGeneration.from_pretrained(
            str(folder), dtype=torch_.float32, attn_implementation="sdpa"
        ).eval()
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise ConvertError(f"transformers cannot load {folder}: {error}", fix="check the folder's files") from error
    picture = sample_image() if image is None else image
    outputs = run(model, facts, tokenizer, picture, task, steps)
    case = VlmCase(
        image=picture,
        task=task,
        outputs=outputs,
        text=tokenizer.decode(outputs.tokens),
        engine=f"transformers {transformers.__version__}, torch {torch_.__version__}, float32",
    )
    save_case(out, case)
    return case


def record_file(folder: Path, out: Path, image: Path | None, task: str, steps: int) -> VlmCase:
    """`record` with a picture's file and a task's name, as a person gives them.

    Raises: as `record`; InputError for a picture that cannot be read, ConfigError for an unknown task.
    """
    tasks: tuple[Task, ...] = get_args(Task)
    if task not in tasks:
        raise ConfigError(f"unknown task {task!r}", fix=nearest(task, tasks))
    pixels = None
    if image is not None:
        with open_document(*read_source(str(image)), ParseOptions()) as document:
            pixels = document.page(0).pixels
    return record(folder, out, image=pixels, task=next(known for known in tasks if known == task), steps=steps)


def run(model: Any, facts: VlmFacts, tokenizer: Tokenizer, image: NDArray[np.uint8], task: Task, steps: int) -> Outputs:
    """Greedy tokens of a transformers model with what it computed on the way.

    Positions are the model's own (get_rope_index), not docvino's; so are patch order, position table and rotations.
    """
    torch_, _ = _stack()
    patches = prepare(image, task, facts)
    prompt = build_prompt(tokenizer, task, patches.grid, facts)
    side = facts.vision.patch_px
    raster = np.empty_like(patches.pixel_values[0])
    raster[raster_order(patches.grid)] = patches.pixel_values[0]
    ids = torch_.from_numpy(prompt.ids)[None]
    grid = torch_.tensor([[1, *patches.grid]])
    with torch_.no_grad():
        found = model.model.get_image_features(torch_.from_numpy(raster).reshape(-1, 3, side, side), grid)
        image_embeds = torch_.cat(tuple(found.pooler_output), 0)
        kinds = (ids == facts.tokens.image).int()
        positions, delta = model.model.get_rope_index(ids, image_grid_thw=grid, mm_token_type_ids=kinds)
        embeds = model.get_input_embeddings()(ids)
        prompt_embeds = embeds.numpy().copy()
        embeds[0, prompt.image] = image_embeds
        logits: list[NDArray[np.float32]] = []
        tokens: list[int] = []
        memory: dict[str, Any] = {}
        length = ids.shape[1]
        for step in range(steps):
            seen = torch_.ones((1, length + step), dtype=torch_.long)
            output = model(inputs_embeds=embeds, position_ids=positions, attention_mask=seen, use_cache=True, **memory)
            name = "cache" if hasattr(output, "cache") else "past_key_values"  # renamed within transformers 5
            memory = {name: getattr(output, name)}
            logits.append(keep(output.logits[0, -1].numpy(), KEPT_LOGITS))
            tokens.append(int(output.logits[0, -1].argmax()))
            embeds = model.get_input_embeddings()(torch_.tensor([tokens[-1:]]))
            positions = torch_.full((3, 1, 1), length + step + int(delta))
    return Outputs(
        image_embeds=keep(image_embeds.numpy()),
        inputs_embeds=keep(prompt_embeds),
        logits=np.stack(logits),
        tokens=tuple(tokens),
    )


def make_random(
    folder: Path,
    tokenizer: str,
    *,
    text: dict[str, Any],
    vision: dict[str, Any],
    tied: bool = False,
    budget: tuple[int, int] = (112_896, 1_003_520),
    spread: float = SPREAD,
    seed: int = 0,
) -> None:
    """Writes a folder as it would come from a hub, with random bfloat16 weights, for tests and measurements.

    tokenizer      content of its tokenizer.json
    text, vision   sizes by the names of transformers' configs; what is not named has its published size
    budget         fewest and most pixels of a crop
    spread         how far weights are spread; deep models need less, or every rounding error grows to a full one
    """
    torch_, transformers = _stack()
    ids = {entry["content"]: entry["id"] for entry in json.loads(tokenizer)["added_tokens"]}
    config = transformers.PaddleOCRVLConfig(
        text_config={**text, "eos_token_id": ids[vlm.END], "tie_word_embeddings": tied},
        vision_config=vision,
        image_token_id=ids[vlm.IMAGE],
        vision_start_token_id=ids[vlm.IMAGE_START],
        vision_end_token_id=ids[vlm.IMAGE_END],
        tie_word_embeddings=tied,
    )
    torch_.manual_seed(seed)
    model = transformers.PaddleOCRVLForConditionalGeneration(config).eval()
    with torch_.no_grad():
        for name, parameter in model.named_parameters():
            _widen(name, parameter, spread)
        if not tied:
            model.lm_head.weight.normal_(0, _HEAD_SPREAD)
    folder.mkdir(parents=True, exist_ok=True)
    model.to(torch_.bfloat16).save_pretrained(str(folder))
    (folder / TOKENIZER).write_text(tokenizer, encoding="utf-8")
    preprocessor = {
        "do_convert_rgb": True,
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "max_pixels": budget[1],
        "merge_size": 2,
        "min_pixels": budget[0],
        "patch_size": 14,
        "resample": 3,
        "rescale_factor": 1 / 255,
        "temporal_patch_size": 1,
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(preprocessor, indent=2), encoding="utf-8")
    generation = {"eos_token_id": ids[vlm.END], "use_cache": False}
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2), encoding="utf-8")


def _widen(name: str, parameter: torch.Tensor, spread: float) -> None:
    if parameter.ndim == 2 and ("layers" in name or "projector" in name):
        parameter.mul_(spread)
    elif "embed_tokens" in name:
        parameter.mul_(spread**2)
    elif name.endswith("bias"):
        parameter.normal_(0, 0.02)
    elif parameter.ndim == 1 and "norm" in name:
        parameter.normal_(1, 0.1)


def _stack() -> Sequence[Any]:
    try:
        import torch
        import transformers
    except ImportError as error:
        raise MissingExtraError(
            "a reference is computed with torch and transformers", fix='pip install "docvino[reference]"'
        ) from error
    return torch, transformers
