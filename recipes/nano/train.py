"""Trains nano on crops drawn on the way. One command, run again and again, goes on where the last run ended.

    python recipes/nano/train.py --assets build/nano/assets --run build/nano/run --plan-seconds 1500 --seconds 540
    python recipes/nano/train.py --run build/nano/run --export src/docvino/models/nano

The curriculum and the learning rate follow the seconds trained of those planned, over all runs. One GPU and 16 CPU
cores are enough; `--device cpu` works, slowly. For several GPUs begin with `torchrun --nproc-per-node 2 --` and go on
with recipes/nano/train.py and its options: each GPU learns from batches of its own, gradients are averaged. Crops wait
for nobody: when no new batch is drawn in time, an old one is painted anew (other colours and noise, moved a little), at
most a few times.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import queue
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

import tokens
from batches import PADDING, PATCHES, Batch, endless, make_batch, order, paint_batch, repainted
from crops import Painter
from docvino.codec.prompt import Tokenizer
from model import Nano, as_patches, facts, greedy, parameters, write_folder
from texts import Texts, split_words

PEAK, WARM_UP, STEADY, LAST = 1.2e-3, 300, 0.55, 0.02
REPLAYS, POOL = 3, 300
REPORT_STEPS = 200
SAVE_SECONDS = 120.0  # what a run that ends in an error loses at most
_PART_BYTES = 15 << 20  # a checkpoint comes in files of at most this size


class Crops(IterableDataset[Batch]):
    def __init__(self, assets: Path, words: list[str], tokenizer: Path, patches: int, progress: Any) -> None:
        self._made_of = (assets, words, tokenizer, patches)
        self._progress = progress

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        seed = time.time_ns() ^ ((worker.id if worker else 0) << 40) ^ (os.getpid() << 48)
        return endless(*self._made_of, seed, self._progress)


def learning_rate(step: int, progress: float) -> float:
    """Up over the first steps, steady, then down along half a cosine to 2 %."""
    fall = max(0.0, min(1.0, (progress - STEADY) / (1 - STEADY)))
    return PEAK * min(1.0, (step + 1) / WARM_UP) * (LAST + (1 - LAST) * 0.5 * (1 + math.cos(math.pi * fall)))


class State:
    """Weights in float32 with their squared gradients, and how far training is; kept in `folder`."""

    def __init__(self, folder: Path, device: str, start: Path | None = None) -> None:
        """`start`: a Hugging Face folder whose weights a new run begins with."""
        self.folder = folder
        self.step, self.images, self.seconds = 0, 0, 0.0
        torch.manual_seed(1)
        model = Nano(facts())
        files = sorted(folder.glob("weights-*.safetensors"))
        moments: dict[str, Tensor] = {}
        if files:
            model.load_state_dict({name: value for file in files for name, value in load_file(file).items()})
            moments = load_file(folder / "moments.safetensors")
            known = json.loads((folder / "state.json").read_text(encoding="utf-8"))
            self.step, self.images, self.seconds = known["step"], known["images"], known["seconds"]
        elif start is not None:
            model.load_state_dict(
                {name: value.float() for name, value in load_file(start / "model.safetensors").items()}
            )
        self.dtype = torch.float32 if device == "cpu" else torch.bfloat16
        self.model = model.to(device)
        self.names = [name for name, _ in self.model.named_parameters()]
        self.masters = [value.detach().clone().float().requires_grad_() for value in self.model.parameters()]
        self._gradients = torch.zeros(sum(master.numel() for master in self.masters), device=device)
        parts = self._gradients.split([master.numel() for master in self.masters])
        for master, part in zip(self.masters, parts, strict=True):
            master.grad = part.view_as(master)
        self.model.to(self.dtype)
        self.optimiser = torch.optim.AdamW(
            self.masters, lr=PEAK, betas=(0.9, 0.98), weight_decay=0.05, fused=device != "cpu"
        )
        for name, master in zip(self.names, self.masters, strict=True):
            if name in moments:
                # Momentum is not kept: it is made anew in ten steps, squared gradients would take fifty.
                self.optimiser.state[master] = {
                    "step": torch.tensor(float(self.step), device=device),
                    "exp_avg": torch.zeros_like(master),
                    "exp_avg_sq": moments[name].to(device, torch.float32),
                }

    def update(self, rate: float) -> None:
        """One step along the gradients of the model's bfloat16 weights; these are then the rounded float32 ones."""
        values = list(self.model.parameters())
        torch._foreach_copy_([master.grad for master in self.masters], [value.grad for value in values])
        for value in values:
            value.grad = None
        if dist.is_initialized():
            dist.all_reduce(self._gradients)
            self._gradients /= dist.get_world_size()
        torch.nn.utils.clip_grad_norm_(self.masters, 1.0)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self.optimiser.step()
        with torch.no_grad():
            torch._foreach_copy_(values, self.masters)

    def save(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        part: dict[str, Tensor] = {}
        number = size = 0
        pairs = list(zip(self.names, self.masters, strict=True))
        for place, (name, master) in enumerate(pairs):
            part[name] = master.detach().cpu()
            size += master.numel() * 4
            if place == len(pairs) - 1 or size + pairs[place + 1][1].numel() * 4 > _PART_BYTES:
                save_file(part, self.folder / f"weights-{number}.safetensors")
                part, size, number = {}, 0, number + 1
        squares = {
            n: self.optimiser.state[m]["exp_avg_sq"].to("cpu", torch.bfloat16)
            for n, m in pairs
            if m in self.optimiser.state
        }
        save_file(squares, self.folder / "moments.safetensors")
        known = {"step": self.step, "images": self.images, "seconds": round(self.seconds, 1)}
        (self.folder / "state.json").write_text(json.dumps(known) + "\n", encoding="utf-8")


def loss_of(model: Nano, batch: Batch, tokenizer: Tokenizer, dtype: torch.dtype) -> Tensor:
    """Mean cross entropy of the answer's tokens and its end."""
    patches = as_patches(paint_batch(batch, dtype), facts().vision.patch_px)
    given = batch.answers[:, :-1].clamp(min=0)
    logits = model(patches, batch.grid, batch.task, given, tokenizer)
    return F.cross_entropy(logits.float().flatten(0, 1), batch.answers.flatten(), ignore_index=PADDING)


def train(arguments: argparse.Namespace) -> None:
    device, run = arguments.device, arguments.run
    rank, ranks = _join(device)
    if device != "cpu":
        device = f"cuda:{rank}"
        torch.cuda.set_device(device)
        torch.set_float32_matmul_precision("high")
    state = State(run, device, arguments.start)
    torch.manual_seed(state.step * ranks + rank)  # of noise: State began all ranks alike

    def place() -> float:
        """Where in the whole training this is, 0..1."""
        return arguments.begin + (1 - arguments.begin) * state.seconds / arguments.plan_seconds

    run.mkdir(parents=True, exist_ok=True)
    tokenizer_file = run / f"tokenizer-{rank}.json"
    tokenizer_file.write_text(tokens.tokenizer_json(), encoding="utf-8")
    tokenizer = Tokenizer.open(tokenizer_file)
    words, _ = split_words(arguments.assets / "words.txt")
    progress = multiprocessing.Value("d", place())
    crops = Crops(arguments.assets, words, tokenizer_file, arguments.patches, progress)
    loader = DataLoader(
        crops,
        batch_size=None,
        num_workers=arguments.workers,
        prefetch_factor=2 if arguments.workers else None,
        collate_fn=lambda batch: batch,
    )
    ready: queue.Queue[Batch | BaseException] = queue.Queue(maxsize=24)

    def fetch() -> None:
        try:
            for batch in loader if device == "cpu" else _copied(loader, device):
                ready.put(batch)
        except Exception as error:  # noqa: BLE001  # the training thread would wait for ever
            ready.put(error)

    threading.Thread(target=fetch, daemon=True).start()
    print(
        f"{parameters(state.model) / 1e6:.2f} M parameters, {len(tokens.vocabulary())} tokens, step {state.step}",
        flush=True,
    )

    before, first = state.seconds, _checked(ready.get())  # drawing the first batch is not training
    _summed(0)  # nor is waiting for that of another rank
    begun, pool, uses = time.perf_counter(), [first], [0]
    losses: dict[str, list[Tensor]] = {}
    fresh = steps = images = 0
    reported = saved = begun
    while True:
        batch = _next(ready, pool, uses)
        is_new = uses[-1] == 0 and batch is pool[-1]
        # One clock for all: learning rates and the end must be the same everywhere.
        elapsed, shown, new = _summed(0 if rank else time.perf_counter() - begun, len(batch.answers), is_new)
        if elapsed > arguments.seconds:
            break
        state.seconds = before + elapsed
        progress.value = place()
        loss = loss_of(state.model, batch, tokenizer, state.dtype)
        loss.backward()
        state.update(learning_rate(state.step, progress.value))
        state.step, steps = state.step + 1, steps + 1
        state.images, images, fresh = state.images + round(shown), images + round(shown), fresh + new
        losses.setdefault(batch.group, []).append(loss.detach())
        if rank:
            continue
        if time.perf_counter() - saved > SAVE_SECONDS:
            state.save()
            saved = time.perf_counter()
        if steps % arguments.report_steps == 0:
            now = time.perf_counter()
            line = {
                "step": state.step,
                "seconds": round(state.seconds, 1),
                "images_per_second": round(images / (now - reported)),
                "new": round(fresh / arguments.report_steps / ranks, 2),
                "learning_rate": round(learning_rate(state.step, progress.value), 7),
                "loss": {group: round(torch.stack(each).mean().item(), 4) for group, each in sorted(losses.items())},
            }
            losses, images, fresh, reported = {}, 0, 0, time.perf_counter()
            _note(run, line)
    if rank == 0:
        state.save()
    if rank == 0 and arguments.check:
        line = {
            "step": state.step,
            "seconds": round(state.seconds, 1),
            **check(state.model, arguments.assets, tokenizer, device),
        }
        _note(run, line)
    print(f"{state.step} steps, {state.images} images, {state.seconds:.0f} s", flush=True)
    os._exit(0)  # the workers draw for ever


def _join(device: str) -> tuple[int, int]:
    """This process's number and how many there are; several when torchrun started them, one for each GPU of a host."""
    if "WORLD_SIZE" not in os.environ:
        return 0, 1
    dist.init_process_group("gloo" if device == "cpu" else "cpu:gloo,cuda:nccl")
    return dist.get_rank(), dist.get_world_size()


def _summed(*values: float) -> list[float]:
    """Values summed over all ranks; the call ends when all have come to it."""
    together = torch.tensor(values, dtype=torch.float64)
    if dist.is_initialized():
        dist.all_reduce(together)
    return together.tolist()


def _note(run: Path, line: dict[str, Any]) -> None:
    text = json.dumps(line, ensure_ascii=False)
    print(text, flush=True)
    with (run / "log.jsonl").open("a", encoding="utf-8") as log:
        log.write(text + "\n")


def _copied(loader: DataLoader[Batch], device: str) -> Iterator[Batch]:
    """Batches on the GPU, by a stream of its own: else every copy would wait for the steps that are under way."""
    torch.cuda.set_device(device)  # of this thread
    side, training = torch.cuda.Stream(device), torch.cuda.default_stream(device)
    for batch in loader:
        with torch.cuda.stream(side):
            copied = batch.to(device)
        side.synchronize()
        for tensor in copied.tensors():
            tensor.record_stream(training)
        yield copied


def _checked(found: Batch | BaseException) -> Batch:
    if isinstance(found, BaseException):
        raise found
    return found


def _next(ready: queue.Queue[Batch | BaseException], pool: list[Batch], uses: list[int]) -> Batch:
    """A new batch if one is there, else one of the pool again, else the next one when it comes."""
    try:
        batch = _checked(ready.get_nowait())
    except queue.Empty:
        fit = [place for place, count in enumerate(uses) if count < REPLAYS]
        if fit:
            place = random.choice(fit)
            uses[place] += 1
            return repainted(pool[place])
        batch = _checked(ready.get())
    pool.append(batch)
    uses.append(0)
    if len(pool) > POOL:
        del pool[0], uses[0]
    return batch


def check(
    model: Nano, assets: Path, tokenizer: Tokenizer, device: str, batches: int = 16, crops: int = 48
) -> dict[str, Any]:
    """Character error rate by task on crops of unseen words; a quick look, evaluate.py is the judge."""
    dice = random.Random(20261130)
    painter = Painter(assets, Texts(split_words(assets / "words.txt")[1]))
    wrong: dict[str, list[int]] = {}
    missed: list[tuple[str, str, str]] = []
    for _ in range(batches):
        batch = make_batch(painter, tokenizer, dice, order(dice, 1.0), most=crops).to(device)
        patches = as_patches(paint_batch(batch, next(model.parameters()).dtype), facts().vision.patch_px)
        truths = [[token for token in row if token >= 0][:-1] for row in batch.answers.tolist()]
        found = greedy(model, patches, batch.grid, batch.task, tokenizer, batch.answers.shape[1] + 8)
        for truth, said in zip(truths, found, strict=True):
            counts = wrong.setdefault(batch.group, [0, 0, 0, 0])
            for place, value in enumerate((_distance(said, truth), len(truth), said == truth, 1)):
                counts[place] += value
            if said != truth and len(missed) < 16:
                missed.append((batch.task, tokenizer.decode(truth), tokenizer.decode(said)))
    for miss in missed:
        print("MISS", *map(repr, miss), flush=True)
    return {
        "cer": {task: round(100 * counts[0] / max(1, counts[1]), 2) for task, counts in sorted(wrong.items())},
        "exact": {task: f"{counts[2]}/{counts[3]}" for task, counts in sorted(wrong.items())},
    }


def _distance(one: list[int], other: list[int]) -> int:
    row = list(range(len(other) + 1))
    for number, a in enumerate(one, 1):
        last, row = row, [number]
        for place, b in enumerate(other, 1):
            row.append(min(last[place] + 1, row[-1] + 1, last[place - 1] + (a != b)))
    return row[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--run", type=Path, required=True, help="folder of the checkpoint and the log")
    parser.add_argument("--assets", type=Path, help="what assets.py collected")
    parser.add_argument("--seconds", type=float, default=1500, help="of this run; at most 25 minutes are meant")
    parser.add_argument("--plan-seconds", type=float, default=1500, help="of all runs together")
    parser.add_argument("--start", type=Path, help="folder whose weights a new training begins with")
    parser.add_argument("--begin", type=float, default=0.0, help="where in the curriculum it begins, 0..1")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    share = (os.cpu_count() or 2) // int(os.environ.get("WORLD_SIZE", "1"))
    parser.add_argument("--workers", type=int, default=max(1, share - 1), help="processes that draw, for each GPU")
    parser.add_argument("--patches", type=int, default=PATCHES, help="of a batch; less on a CPU")
    parser.add_argument("--report-steps", type=int, default=REPORT_STEPS)
    parser.add_argument("--no-check", dest="check", action="store_false", help="no error rates at the end")
    parser.add_argument("--export", type=Path, help="write the Hugging Face folder of the checkpoint, and nothing else")
    arguments = parser.parse_args()
    if arguments.export:
        write_folder(arguments.export, State(arguments.run, "cpu").model)
    else:
        train(arguments)


if __name__ == "__main__":
    main()
