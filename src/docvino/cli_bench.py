"""The command `docvino bench`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from docvino.cli_common import (
    CacheDir,
    Config,
    DataDir,
    DecoderDevice,
    Device,
    Execution,
    Json,
    LayoutDevice,
    Preset,
    VisionDevice,
    announce,
    note,
    print_json,
    settings_of,
    stderr,
    stdout,
)
from docvino.errors import ConfigError

if TYPE_CHECKING:
    from docvino.bench.measure import Progress


def bench(
    inputs: Annotated[
        list[str] | None, typer.Argument(help="Pages to read: files, folders, patterns. Default: drawn ones.")
    ] = None,
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for bench.json, bench.md, bench.png.")] = Path(
        "docvino-bench"
    ),
    only: Annotated[str | None, typer.Option(help="Parts by comma: limits, steps, pages, starts. Default all.")] = None,
    precision: Annotated[
        str | None, typer.Option(help="Stored weights by comma: fp32, fp16, int8, int4. Default all there are.")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, max=1000, help="Values of each figure.")] = 5,
    warm_up: Annotated[int, typer.Option(min=0, max=100, help="Runs before them that do not count.")] = 1,
    quick: Annotated[bool, typer.Option("--quick", help="Smallest sizes, one page, two repeats: a trial.")] = False,
    soak: Annotated[float, typer.Option(min=0, max=10_000, help="Minutes of reading for the memory's slope.")] = 0.0,
    compare: Annotated[Path | None, typer.Option(help="A bench.json of before: a verdict for every figure.")] = None,
    random_weights: Annotated[
        str | None,
        typer.Option(help="A published model of which random weights are made: paddleocr-vl-1.6, -1.5, -v1."),
    ] = None,
    preset: Preset = None,
    layout: Annotated[
        str | None, typer.Option(help="auto (default), none (a page is one element), whitespace or picodet.")
    ] = None,
    device: Device = None,
    layout_device: LayoutDevice = None,
    vision_device: VisionDevice = None,
    decoder_device: DecoderDevice = None,
    execution: Execution = None,
    data_dir: DataDir = None,
    cache_dir: CacheDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Measures docvino on this machine: models, pages, starts, memory, and what the machine could do at most.

    Writes a report that others can compare with theirs. Each part runs in a process of its own; one that cannot be
    measured is a row that says why.
    """
    settings = settings_of(
        config,
        preset=preset,
        layout=layout,
        device=device,
        layout_device=layout_device,
        vision_device=vision_device,
        decoder_device=decoder_device,
        execution=execution,
        data_dir=data_dir,
        cache_dir=cache_dir,
    )
    from docvino.bench.compare import as_markdown as compared
    from docvino.bench.compare import compare as judge
    from docvino.bench.measure import Wish, parse_parts, parse_precisions, write_all
    from docvino.bench.measure import bench as measure
    from docvino.bench.report import as_markdown, read_report
    from docvino.inputs import find_inputs

    if random_weights is not None and preset is not None:
        raise ConfigError("--preset and --random-weights name two models", fix="leave one of them out")
    before = None if compare is None else read_report(compare)
    files = tuple(map(Path, find_inputs(inputs or [])))
    wish = Wish(
        files=files,
        precisions=parse_precisions(precision),
        parts=parse_parts(only),
        repeats=2 if quick else repeats,
        warm_up=warm_up,
        quick=quick,
        random_weights=random_weights,
        soak_minutes=soak,
    )
    announce(settings.runtime)
    with _progress() as progress:
        report = measure(settings.runtime, wish, say=note, progress=progress)
    for path in write_all(report, out):
        note(f"written: {path}")
    verdicts = None if before is None else judge(before, report)
    if as_json:
        from dataclasses import asdict

        shown = report.model_dump(mode="json")
        if verdicts is not None:
            shown["comparison"] = [{**asdict(one), "row": one.row.model_dump(mode="json")} for one in verdicts]
        print_json(shown)
        return
    stdout.print(as_markdown(report), markup=False, end="")
    if verdicts is not None:
        stdout.print(f"\n## Against {compare}\n\n{compared(verdicts)}", markup=False, end="")


@contextmanager
def _progress() -> Iterator[Progress]:
    """A bar on a terminal, a line for each part elsewhere."""
    if not stderr.is_terminal:
        last = ""

        def tell(what: str, done: int, total: int, _share: float) -> None:
            nonlocal last
            if what and (line := f"{done + 1} of {total}: {what}") != last:
                last = line
                note(line)

        yield tell
        return
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[parts]}"))
    with Bar(*columns, TimeElapsedColumn(), console=stderr, transient=True) as bar:
        row = bar.add_task("", total=1.0, parts="")
        yield lambda what, done, total, share: bar.update(
            row, description=what, completed=done + share, total=total, parts=f"{done}/{total}"
        )
