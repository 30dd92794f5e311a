"""The command `docvino finetune`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer
from rich.table import Table

from docvino.cli_common import Json, note, number, print_json, stderr, stdout
from docvino.errors import ConfigError, nearest
from docvino.settings import WeightPrecision

if TYPE_CHECKING:
    from docvino.finetune import Progress


def finetune(
    folder: Annotated[Path, typer.Argument(help="Folder of a PaddleOCR-VL model, as a hub gives it.")],
    data: Annotated[Path, typer.Argument(help='JSON lines: {"image": "a.png", "task": "ocr", "text": "..."}.')],
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for the new model; `docvino convert` takes it.")],
    validation: Annotated[
        Path | None, typer.Option(help="JSON lines to validate with; else a share of the data is held out.")
    ] = None,
    share: Annotated[float, typer.Option(min=0.01, max=0.9, help="Share of the data that is held out.")] = 0.1,
    lora: Annotated[int, typer.Option(min=0, help="Rank of LoRA matrices; 0 trains every weight.")] = 0,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the data at most.")] = 10,
    batch: Annotated[int, typer.Option(min=1, help="Crops between two steps.")] = 8,
    rate: Annotated[
        float | None, typer.Option("--learning-rate", min=0, help="Default 2e-4 with LoRA, 2e-5 without.")
    ] = None,
    patience: Annotated[int, typer.Option(min=1, help="Epochs without improvement before it stops.")] = 3,
    seed: Annotated[int, typer.Option(help="For the order of crops and the held-out share.")] = 0,
    device: Annotated[str, typer.Option(help="PyTorch's device: auto, cpu, cuda or xpu.")] = "auto",
    precision: Annotated[
        list[str] | None,
        typer.Option(help="Compare a conversion at this precision; may be repeated. Default fp32, int8."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint in the folder.")] = False,
    as_json: Json = False,
) -> None:
    """Fine-tunes a PaddleOCR-VL model on labelled crops and compares its conversions. Needs the extra finetune.

    Training stops when the character error rate on held-out crops no longer falls, and the best weights are kept. The
    new folder is one that `docvino convert` takes; it also holds the checkpoint, the adapter (with --lora) and
    finetune.json with all figures.
    """
    known: tuple[WeightPrecision, ...] = get_args(WeightPrecision)
    asked = precision or ["fp32", "int8"]
    if unknown := [name for name in asked if name not in known]:
        raise ConfigError(f"unknown precision {unknown[0]!r}", fix=nearest(unknown[0], known))
    from docvino.finetune import Plan
    from docvino.finetune import finetune as run

    plan = Plan(
        epochs=epochs,
        batch=batch,
        lora_rank=lora,
        learning_rate=rate,
        validation_share=share,
        patience=patience,
        seed=seed,
        device=device,
    )
    with _progress() as tell:
        outcome = run(
            folder,
            data,
            out,
            plan,
            validation=validation,
            resume=resume,
            precisions=[name for name in known if name in asked],
            report=note,
            progress=tell,
        )
    note(
        f"character error rate {100 * outcome.cer_before:.2f} % before, {100 * outcome.cer_after:.2f} % after epoch "
        f"{outcome.best_epoch}, {outcome.seconds:.0f} s -> {outcome.folder}"
    )
    if as_json:
        print_json(asdict(outcome))
        return
    table = Table("precision", "same texts as torch", "error rate", "logits' difference", "problem")
    table.add_row("torch float32", "", f"{100 * outcome.torch_cer:.2f} %", "", "")
    for parity in outcome.parities:
        same, rate_shown = f"{parity.same_texts}/{parity.crops}", f"{100 * parity.cer:.2f} %"
        if parity.problem:
            same = rate_shown = ""
        table.add_row(parity.precision, same, rate_shown, number(parity.relative), parity.problem or "")
    stdout.print(table)


@contextmanager
def _progress() -> Iterator[Callable[[Progress], None]]:
    """A bar on a terminal, a line for every tenth of an epoch elsewhere."""
    if not stderr.is_terminal:

        def tell(progress: Progress) -> None:
            if progress.done % max(1, progress.total // 10) == 0 and progress.done < progress.total:
                note(f"epoch {progress.epoch}: {progress.done} of {progress.total} crops, loss {progress.loss:.4f}")

        yield tell
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, console=stderr, transient=True) as bar:
        row = bar.add_task("training", total=None)
        yield lambda progress: bar.update(
            row,
            description=f"epoch {progress.epoch}, loss {progress.loss:.3f}",
            total=progress.total * progress.epochs,
            completed=progress.total * (progress.epoch - 1) + progress.done,
        )
