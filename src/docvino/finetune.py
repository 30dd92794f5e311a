"""Fine-tunes a PaddleOCR-VL folder on crops with known text, and writes a folder that `docvino convert` takes.

Needs the extra `finetune` (torch, transformers, peft, tokenizers); what it writes needs none of them. A crop becomes a
model's input through docvino's own codec, the code that reads with the model later: pixels, patch order, prompt and
positions in training cannot differ from those in reading.
"""

from __future__ import annotations

import json
import math
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from docvino.bundle import VLM_PARTS
from docvino.codec.prompt import Tokenizer, build_prompt
from docvino.codec.vlm import prepare, raster_order
from docvino.convert.adapter import merge_adapter, published_name, write_folder
from docvino.convert.safetensors import Weights, find_files
from docvino.convert.vlm import convert_vlm
from docvino.convert.vlm_facts import TOKENIZER, read_facts
from docvino.convert.vlm_graph import RENAMED, tensor_shapes
from docvino.device import compile_part
from docvino.document import Task
from docvino.errors import ConfigError, ConvertError, DocvinoError, InputError, MissingExtraError, nearest
from docvino.inputs import open_document, read_source
from docvino.reference import record
from docvino.settings import ParseOptions, RuntimeConfig, WeightPrecision
from docvino.specs.vlm import VlmFacts
from docvino.stateful import StatefulReader

ADAPTER, CHECKPOINT, REPORT = "adapter", "checkpoint", "finetune.json"
_KEYS = ("image", "task", "text")
# Every matrix of the three parts but embeddings and head. peft matches whole module names.
_LORA_TARGETS = (
    r".*(language_model\.layers|vision_model\.encoder|projector)\..*"
    r"(q_proj|k_proj|v_proj|o_proj|out_proj|gate_proj|up_proj|down_proj|fc1|fc2|linear_1|linear_2)"
)
_FULL_RATE, _LORA_RATE = 2e-5, 2e-4  # usual for models of this size; a small model takes ten times as much
_SPARE_TOKENS = 24  # a validation answer may be longer than the truth by this and a half
_EXTRA = "fine-tuning needs torch, transformers and peft"

Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class Example:
    """A picture's file, what to read it as, and what it says."""

    image: Path
    task: Task
    text: str


@dataclass(frozen=True)
class Plan:
    """How to train.

    lora_rank          0 trains every weight; else matrices of this rank beside frozen weights
    batch              crops between two steps
    learning_rate      None: 2e-4 for LoRA, 2e-5 for all weights
    validation_share   of the data that is held out when no validation file is given
    patience           epochs without a better character error rate before training stops
    """

    epochs: int = 10
    batch: int = 8
    lora_rank: int = 0
    learning_rate: float | None = None
    validation_share: float = 0.1
    patience: int = 3
    seed: int = 0
    device: str = "auto"

    @property
    def rate(self) -> float:
        return self.learning_rate or (_LORA_RATE if self.lora_rank else _FULL_RATE)


@dataclass(frozen=True)
class Progress:
    """`loss`: mean cross entropy of the answers' tokens since the epoch began."""

    epoch: int
    epochs: int
    done: int
    total: int
    loss: float


@dataclass(frozen=True)
class Parity:
    """One precision against torch in float32, on the validation crops. `problem`: why it was not converted.

    relative   logits' difference over their length, along the tokens of one answer
    """

    precision: str
    same_texts: int
    crops: int
    cer: float
    relative: float | None
    problem: str | None = None


@dataclass(frozen=True)
class Outcome:
    folder: Path
    trained: int
    validated: int
    best_epoch: int
    cer_before: float
    cer_after: float
    torch_cer: float
    parities: tuple[Parity, ...]
    seconds: float
    trainable: int


@dataclass
class _State:
    """Kept in state.json of the checkpoint: what was reached, and whether training is over."""

    epoch: int = 0
    best_epoch: int = 0
    before: float = 0.0
    best: float = math.inf
    over: bool = False
    log: list[dict[str, float]] = field(default_factory=list)


def read_examples(path: Path) -> tuple[Example, ...]:
    """Lines of JSON objects with image (a path, from the file's folder on), task and text.

    Raises: InputError that names the line for anything else, and for a picture that is not there.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}", fix="give a file of JSON lines in UTF-8") from error
    found = [_example(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise InputError(
            f"{path} holds no examples", fix='one line each: {"image": "a.png", "task": "ocr", "text": "..."}'
        )
    return tuple(found)


def split_examples(examples: Sequence[Example], share: float, seed: int) -> tuple[list[Example], list[Example]]:
    """Examples to train on and to validate with, at least one each, by chance that `seed` fixes.

    Raises: InputError when there are fewer than two.
    """
    if len(examples) < 2:
        raise InputError("one example is not enough to train and to validate", fix="label more crops")
    order = random.Random(seed).sample(range(len(examples)), len(examples))
    count = min(len(examples) - 1, max(1, round(share * len(examples))))
    held = set(order[:count])
    return [e for n, e in enumerate(examples) if n not in held], [examples[n] for n in sorted(held)]


def check_folder(folder: Path) -> VlmFacts:
    """The model's facts, when everything that training and conversion need is in its folder.

    Raises: ConvertError that names what is missing: a file, a tensor or its shape, another processor's values.
    """
    facts = read_facts(folder)
    with Weights(find_files(folder), RENAMED) as weights:
        weights.check(tensor_shapes(facts))
    tokenizer = Tokenizer.open(folder / TOKENIZER)
    for task in facts.tasks:
        build_prompt(tokenizer, task, (2, 2), facts)
    return facts


def error_rate(said: Sequence[str], truths: Sequence[str]) -> float:
    """Characters to insert, delete or replace over the truths' length, of all texts together."""
    wrong = sum(edit_distance(one, other) for one, other in zip(said, truths, strict=True))
    return wrong / max(1, sum(map(len, truths)))


def edit_distance(one: str, other: str) -> int:
    """Fewest characters to insert, delete or replace."""
    row = list(range(len(other) + 1))
    for number, a in enumerate(one, 1):
        last, row = row, [number]
        for place, b in enumerate(other, 1):
            row.append(min(last[place] + 1, row[-1] + 1, last[place - 1] + (a != b)))
    return row[-1]


def finetune(
    folder: Path,
    data: Path,
    out: Path,
    plan: Plan,
    *,
    validation: Path | None = None,
    resume: bool = False,
    precisions: Sequence[WeightPrecision] = ("fp32", "int8"),
    report: Callable[[str], None] = lambda _: None,
    progress: Callable[[Progress], None] = lambda _: None,
) -> Outcome:
    """Trains, keeps the weights of the best epoch, writes them to `out` and compares conversions with torch.

    out    becomes a Hugging Face folder, with `checkpoint` (to resume from), `adapter` (LoRA alone) and finetune.json

    Raises: MissingExtraError without the extra; ConvertError for a folder that cannot be trained or converted;
    InputError for data that cannot be read; ConfigError when `out` is in use and `resume` was not asked for, or there
    is nothing to resume.
    """
    begun = time.perf_counter()
    facts = check_folder(folder)
    examples = read_examples(data)
    if validation is None:
        training, held = split_examples(examples, plan.validation_share, plan.seed)
    else:
        training, held = list(examples), list(read_examples(validation))
    _check_tasks([*training, *held], facts)
    checkpoint = out / CHECKPOINT
    if resume and not (checkpoint / "state.json").is_file():
        raise ConfigError(f"{out} holds no checkpoint", fix="leave out --resume")
    if not resume and out.is_dir() and any(out.iterdir()):
        raise ConfigError(f"{out} is not empty", fix="give another folder, or --resume to go on with what is there")
    learner = _Learner(folder, facts, plan)
    state = learner.restore(checkpoint) if resume else _State()
    report(
        f"{len(training)} crops to train on, {len(held)} to validate with, "
        f"{learner.trainable / 1e6:.2f} M weights change"
    )
    if not state.epoch:
        state.before = state.best = learner.validate(held)
        learner.keep(checkpoint, state, best=True)
        report(f"before: character error rate {100 * state.before:.2f} %")
    while state.epoch < plan.epochs and not state.over:
        loss = learner.epoch(training, state.epoch, progress)
        cer = learner.validate(held)
        state.epoch += 1
        better = cer < state.best
        if better:
            state.best, state.best_epoch = cer, state.epoch
        state.over = state.epoch - state.best_epoch >= plan.patience
        state.log.append({"epoch": state.epoch, "loss": loss, "cer": cer})
        learner.keep(checkpoint, state, best=better)
        report(f"epoch {state.epoch}: loss {loss:.4f}, character error rate {100 * cer:.2f} %{' *' if better else ''}")
    learner.write(checkpoint, out)
    del learner
    torch_cer, parities = _parity(out, facts, held, precisions, report)
    outcome = Outcome(
        folder=out,
        trained=len(training),
        validated=len(held),
        best_epoch=state.best_epoch,
        cer_before=state.before,
        cer_after=state.best,
        torch_cer=torch_cer,
        parities=parities,
        seconds=time.perf_counter() - begun,
        trainable=_trainable(checkpoint),
    )
    about = {**asdict(outcome), "base": str(folder), "plan": asdict(plan), "log": state.log}
    (out / REPORT).write_text(json.dumps(about, indent=2, default=str) + "\n", encoding="utf-8")
    return outcome


class _Learner:
    """A transformers model of the folder, or its adapter, with an optimiser."""

    def __init__(self, folder: Path, facts: VlmFacts, plan: Plan) -> None:
        self._torch, transformers = _stack()
        self._folder, self._facts, self._plan = folder, facts, plan
        self._tokenizer = Tokenizer.open(folder / TOKENIZER)
        self._device = _choose_device(self._torch, plan.device)
        self._torch.manual_seed(plan.seed)
        self._model = _load(transformers, self._torch, folder)
        self._wrapped = None
        if plan.lora_rank:
            peft = _peft()
            about = peft.LoraConfig(r=plan.lora_rank, lora_alpha=2 * plan.lora_rank, target_modules=_LORA_TARGETS)
            self._wrapped = peft.get_peft_model(self._model, about)
        self._model.to(self._device)
        self._weights = {name: value for name, value in self._model.named_parameters() if value.requires_grad}
        self._optimiser = self._torch.optim.AdamW(self._weights.values(), lr=plan.rate, weight_decay=0.01)
        self._step = 0

    @property
    def trainable(self) -> int:
        return sum(value.numel() for value in self._weights.values())

    def epoch(self, examples: Sequence[Example], number: int, progress: Callable[[Progress], None]) -> float:
        """One pass in an order of its own; the mean loss."""
        plan = self._plan
        order = random.Random(plan.seed + 1 + number).sample(range(len(examples)), len(examples))
        steps = math.ceil(len(examples) / plan.batch) * plan.epochs
        self._model.train()
        total = 0.0
        for done, place in enumerate(order, 1):
            group = min(plan.batch, len(order) - (done - 1) // plan.batch * plan.batch)
            loss = self._loss(examples[place])
            (loss / group).backward()
            total += float(loss.detach())
            if done % plan.batch == 0 or done == len(order):
                for settings in self._optimiser.param_groups:
                    settings["lr"] = plan.rate * _shape(self._step, steps)
                self._torch.nn.utils.clip_grad_norm_(self._weights.values(), 1.0)
                self._optimiser.step()
                self._optimiser.zero_grad(set_to_none=True)
                self._step += 1
            progress(Progress(number + 1, plan.epochs, done, len(order), total / done))
        return total / len(order)

    def validate(self, examples: Sequence[Example]) -> float:
        self._model.eval()
        said = [self.read(example) for example in examples]
        return error_rate(said, [example.text for example in examples])

    def read(self, example: Example) -> str:
        return _read(self._torch, self._model, self._facts, self._tokenizer, example, self._device)

    def keep(self, checkpoint: Path, state: _State, *, best: bool) -> None:
        """Weights, optimiser and state; `best` weights a second time. state.json comes last: it says all is there."""
        from safetensors.torch import save_file

        checkpoint.mkdir(parents=True, exist_ok=True)
        values = {name: value.detach().cpu().contiguous() for name, value in self._weights.items()}
        for name in ("best", "latest") if best else ("latest",):
            part = checkpoint / f"{name}.part"
            save_file(values, part)
            part.replace(checkpoint / f"{name}.safetensors")
        self._torch.save({"optimiser": self._optimiser.state_dict(), "step": self._step}, checkpoint / "optimiser.pt")
        part = checkpoint / "state.part"
        part.write_text(json.dumps(asdict(state)) + "\n", encoding="utf-8")
        part.replace(checkpoint / "state.json")

    def restore(self, checkpoint: Path) -> _State:
        """Raises: ConfigError when the checkpoint is of another model or plan, or damaged."""
        try:
            state = _State(**json.loads((checkpoint / "state.json").read_text(encoding="utf-8")))
            kept = self._torch.load(checkpoint / "optimiser.pt", map_location=self._device, weights_only=True)
            self._take(checkpoint / "latest.safetensors")
            self._optimiser.load_state_dict(kept["optimiser"])
            self._step = int(kept["step"])
        except (OSError, ValueError, TypeError, KeyError, RuntimeError) as error:
            raise ConfigError(
                f"the checkpoint {checkpoint} does not fit: {error}",
                fix="resume with the model and options it began with",
            ) from error
        return state

    def write(self, checkpoint: Path, out: Path) -> None:
        """The folder with the best weights; a LoRA adapter beside it, and merged into it as `convert --base` would."""
        self._take(checkpoint / "best.safetensors")
        if self._wrapped is not None:
            self._wrapped.save_pretrained(str(out / ADAPTER))
            merge_adapter(out / ADAPTER, self._folder, out)
            return
        trained = {published_name(name): value for name, value in self._weights.items()}
        with Weights(find_files(self._folder), RENAMED) as weights:

            def value(name: str) -> NDArray[np.float32]:
                if name not in trained:
                    return weights.read(name)
                changed: NDArray[np.float32] = trained[name].detach().cpu().float().numpy()
                return changed

            write_folder(self._folder, out, weights, value)

    def _take(self, path: Path) -> None:
        from safetensors.torch import load_file

        kept = load_file(path)
        if kept.keys() != self._weights.keys():
            raise ValueError("other weights were trained")
        with self._torch.no_grad():
            for name, value in kept.items():
                self._weights[name].copy_(value)

    def _loss(self, example: Example) -> Any:
        """Mean cross entropy of the answer's tokens and the end token; the prompt is not learned."""
        answer = [*self._tokenizer.encode(example.text), self._facts.tokens.end[0]]
        with self._torch.autocast(self._device, self._torch.bfloat16, enabled=self._device != "cpu"):
            embeds, positions = _inputs(
                self._torch, self._model, self._facts, self._tokenizer, example, answer[:-1], self._device
            )
            seen = self._torch.ones(embeds.shape[:2], dtype=self._torch.long, device=self._device)
            output = self._model(
                inputs_embeds=embeds,
                position_ids=positions,
                attention_mask=seen,
                use_cache=False,
                logits_to_keep=len(answer),
            )
        wanted = self._torch.tensor(answer, device=self._device)
        return self._torch.nn.functional.cross_entropy(output.logits[0].float(), wanted)


def _inputs(
    torch: Any,
    model: Any,
    facts: VlmFacts,
    tokenizer: Tokenizer,
    example: Example,
    answer: Sequence[int],
    device: str,
) -> tuple[Any, Any]:
    """Embeddings (1, L, E) and positions (3, 1, L) of the prompt with its image and of `answer`."""
    patches = prepare(_pixels(example.image), example.task, facts)
    prompt = build_prompt(tokenizer, example.task, patches.grid, facts)
    side = facts.vision.patch_px
    raster = np.empty_like(patches.pixel_values[0])
    raster[raster_order(patches.grid)] = patches.pixel_values[0]
    pictures = torch.from_numpy(raster).reshape(-1, 3, side, side).to(device)
    found = model.model.get_image_features(pictures, torch.tensor([[1, *patches.grid]], device=device))
    ids = torch.from_numpy(np.concatenate([prompt.ids, np.asarray(answer, np.int64)])).to(device)
    embeds = model.get_input_embeddings()(ids)[None]
    image = torch.cat(tuple(found.pooler_output), 0).to(embeds.dtype)
    embeds = torch.cat([embeds[:, : prompt.image.start], image[None], embeds[:, prompt.image.stop :]], 1)
    following = np.broadcast_to(prompt.next_position + np.arange(len(answer), dtype=np.int64), (3, len(answer)))
    positions = np.concatenate([prompt.positions, following], axis=1)
    return embeds, torch.from_numpy(positions)[:, None].to(device)


def _read(torch: Any, model: Any, facts: VlmFacts, tokenizer: Tokenizer, example: Example, device: str) -> str:
    """The model's greedy answer, somewhat longer than the truth at most."""
    limit = min(facts.max_new_tokens, int(1.5 * len(tokenizer.encode(example.text))) + _SPARE_TOKENS)
    said: list[int] = []
    memory: dict[str, Any] = {}
    with torch.no_grad():
        embeds, positions = _inputs(torch, model, facts, tokenizer, example, (), device)
        length, following = embeds.shape[1], int(positions.max()) + 1
        while len(said) < limit:
            seen = torch.ones((1, length + len(said)), dtype=torch.long, device=device)
            output = model(inputs_embeds=embeds, position_ids=positions, attention_mask=seen, use_cache=True, **memory)
            name = "cache" if hasattr(output, "cache") else "past_key_values"  # renamed within transformers 5
            memory = {name: getattr(output, name)}
            token = int(output.logits[0, -1].argmax())
            if token in facts.tokens.end:
                break
            said.append(token)
            embeds = model.get_input_embeddings()(torch.tensor([[token]], device=device))
            positions = torch.full((3, 1, 1), following + len(said) - 1, device=device)
    return tokenizer.decode(said)


def _parity(
    folder: Path,
    facts: VlmFacts,
    held: Sequence[Example],
    precisions: Sequence[WeightPrecision],
    report: Callable[[str], None],
) -> tuple[float, tuple[Parity, ...]]:
    """Reads the validation crops with the written folder: torch in float32, then every precision on the CPU."""
    torch, transformers = _stack()
    tokenizer = Tokenizer.open(folder / TOKENIZER)
    model = _load(transformers, torch, folder).eval()
    truths = [example.text for example in held]
    known = [_read(torch, model, facts, tokenizer, example, "cpu") for example in held]
    del model
    found = []
    with tempfile.TemporaryDirectory() as workspace:
        reference = Path(workspace) / "reference.npz"
        record(folder, reference, image=_pixels(held[0].image), task=held[0].task, steps=16)
        for precision in precisions:
            try:
                made = convert_vlm(folder, Path(workspace) / f"tuned-{precision}", precision, reference=reference)
            except DocvinoError as error:
                found.append(Parity(precision, 0, len(held), 1.0, None, str(error)))
                report(f"{precision}: {error}")
                continue
            on_cpu = RuntimeConfig(device="CPU", execution="f32", model_cache=False)
            vision, embed, decoder = (compile_part(made.bundle.part(part), part, on_cpu) for part in VLM_PARTS)
            reader = StatefulReader(vision, embed, decoder, tokenizer, facts)
            limits = [int(1.5 * len(tokenizer.encode(text))) + _SPARE_TOKENS for text in truths]
            said = [
                reader.read(_pixels(example.image), example.task, min(limit, facts.max_new_tokens)).text
                for example, limit in zip(held, limits, strict=True)
            ]
            same = sum(one == other for one, other in zip(said, known, strict=True))
            difference = (
                max((part.relative for part in made.comparison.parts), default=None) if made.comparison else None
            )
            found.append(Parity(precision, same, len(held), error_rate(said, truths), difference))
            report(
                f"{precision}: {same} of {len(held)} texts as torch reads them, error rate {100 * found[-1].cer:.2f} %"
            )
            del reader, vision, embed, decoder, made
    return error_rate(known, truths), tuple(found)


def _example(path: Path, number: int, line: str) -> Example:
    where = f"{path.name}, line {number}"
    try:
        about = json.loads(line)
    except ValueError as error:
        raise InputError(f"{where} is no JSON: {error}", fix="one JSON object a line") from error
    if not isinstance(about, dict):
        raise InputError(f"{where} is not a JSON object", fix='{"image": "a.png", "task": "ocr", "text": "..."}')
    if unknown := sorted(set(about) - set(_KEYS)):
        raise InputError(f"{where} has {unknown[0]!r}", fix=nearest(unknown[0], _KEYS))
    if missing := [key for key in _KEYS if not isinstance(about.get(key), str)]:
        raise InputError(f"{where} lacks a text for {missing[0]!r}", fix=f"give {', '.join(_KEYS)}")
    tasks: tuple[Task, ...] = get_args(Task)
    if about["task"] not in tasks:
        raise InputError(f"{where}: unknown task {about['task']!r}", fix=nearest(about["task"], tasks))
    image = path.parent / about["image"]
    if not image.is_file():
        raise InputError(f"{where}: no picture {image}", fix="paths start at the folder of the JSON lines")
    return Example(image, next(task for task in tasks if task == about["task"]), about["text"])


def _check_tasks(examples: Sequence[Example], facts: VlmFacts) -> None:
    if foreign := sorted({example.task for example in examples} - set(facts.tasks)):
        raise InputError(f"this model does not read {', '.join(foreign)}", fix=f"it reads {', '.join(facts.tasks)}")


def _pixels(path: Path) -> Pixels:
    with open_document(*read_source(str(path)), ParseOptions()) as document:
        return document.page(0).pixels


def _shape(step: int, steps: int) -> float:
    """Up over a twentieth of the steps, then down along half a cosine to a tenth."""
    warm = max(1, steps // 20)
    if step < warm:
        return (step + 1) / warm
    return 0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, (step - warm) / max(1, steps - warm))))


def _trainable(checkpoint: Path) -> int:
    with Weights((checkpoint / "best.safetensors",)) as weights:
        return sum(math.prod(weights.shape(name)) for name in weights.names)


def _choose_device(torch: Any, wanted: str) -> str:
    have = ["cpu", *(name for name in ("cuda", "xpu") if getattr(torch, name).is_available())]
    if wanted == "auto":
        return have[-1]
    if wanted not in have:
        raise ConfigError(f"torch has no device {wanted!r}", fix=f"it has {', '.join(have)}")
    return wanted


def _load(transformers: Any, torch: Any, folder: Path) -> Any:
    try:
        return transformers.PaddleOCRVLForConditionalGeneration.from_pretrained(
            str(folder), dtype=torch.float32, attn_implementation="sdpa"
        )
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise ConvertError(f"transformers cannot load {folder}: {error}", fix="check the folder's files") from error


def _stack() -> tuple[Any, Any]:
    try:
        import torch
        import transformers
    except ImportError as error:
        raise MissingExtraError(_EXTRA, fix='pip install "docvino[finetune]"') from error
    return torch, transformers


def _peft() -> Any:
    try:
        import peft
    except ImportError as error:
        raise MissingExtraError(_EXTRA, fix='pip install "docvino[finetune]"') from error
    return peft
