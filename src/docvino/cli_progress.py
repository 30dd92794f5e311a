"""How far a reading is: bars on a terminal, elsewhere a line for each page and now and then one within a page."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from docvino.cli_common import complain, note, stderr
from docvino.download import human_size

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from docvino.batch import Batch, Outcome, Progress
    from docvino.hub import Progress as FetchProgress
    from docvino.runtime.stages import Watch

LINE_EVERY_S = 30.0  # where there is no terminal to draw a bar on
_LONGEST_ETA_S = 24 * 3600.0  # what the speed of the first small files promises of large ones is nonsense


@contextmanager
def loading(what: str) -> Iterator[None]:
    """Says on a terminal what is being loaded while it is."""
    if not stderr.is_terminal:
        yield
        return
    with stderr.status(f"loading {what}"):
        yield


@contextmanager
def page_bar(total: int) -> Iterator[tuple[Watch, Watch]]:
    """For one document: what is told the pages that are done, and what is told how far the present page is."""
    if not stderr.is_terminal:
        yield lambda _done, _total: None, _lines()
        return
    with _bar(transient=True) as bar:
        shown = _Tasks(bar, bar.add_task("pages", total=total), _page_task(bar))
        yield shown.page_done, shown.within_page


def run_with_progress(batch: Batch, files: Sequence[str]) -> list[Outcome]:
    """Runs the batch and shows how far it is; what failed is said."""
    outcomes: list[Outcome] = []
    if not stderr.is_terminal:
        batch.on_page, batch.watch = _page_line, _lines()
        for outcome in batch.run(files):
            outcomes.append(outcome)
            _outcome_line(outcome)
        return outcomes
    with _bar(transient=False) as bar:
        documents = bar.add_task("documents", total=len(files))
        shown = _Tasks(bar, bar.add_task("pages", total=None), _page_task(bar))
        batch.on_page, batch.watch = shown.batch_page_done, shown.within_page
        for outcome in batch.run(files):
            outcomes.append(outcome)
            bar.update(documents, advance=1)
            if outcome.error:
                _outcome_line(outcome)
    return outcomes


@contextmanager
def fetch_progress(name: str) -> Iterator[Callable[[FetchProgress], None]]:
    """Shows how far a folder is: a bar with size and speed on a terminal, a plain line now and then elsewhere."""
    if not stderr.is_terminal:
        last = time.monotonic()

        def tell(progress: FetchProgress) -> None:
            nonlocal last
            if time.monotonic() - last >= LINE_EVERY_S:
                last = time.monotonic()
                done, total = human_size(progress.done_bytes), human_size(progress.total_bytes)
                note(f"{name}/{progress.file}: {done} of {total} of all files")

        yield tell
        return
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    # Without the model's name, and the time as short as can be: all of it has to fit into a line.
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Bar(*columns, TextColumn("{task.fields[left]}"), console=stderr) as bar:
        task = bar.add_task(name, total=None, left="")

        def show(progress: FetchProgress) -> None:
            seconds = bar.tasks[task].time_remaining
            left = "" if seconds is None or seconds > _LONGEST_ETA_S else str(timedelta(seconds=round(seconds)))
            bar.update(
                task,
                description=Path(progress.file).name,
                completed=progress.done_bytes,
                total=progress.total_bytes or None,
                left=left,
            )

        yield show


@dataclass(frozen=True)
class _Tasks:
    """The rows of the display that tell of pages, and of one page."""

    bar: Bar
    pages: TaskID
    page: TaskID

    def page_done(self, done: int, total: int) -> None:
        self.bar.update(self.pages, completed=done, total=total)
        self.bar.reset(self.page, visible=False)

    def batch_page_done(self, progress: Progress) -> None:
        self.bar.update(self.pages, description=Path(progress.input).name)
        self.page_done(progress.done, progress.total)

    def within_page(self, done: int, total: int) -> None:
        self.bar.update(self.page, completed=done, total=total, visible=True, refresh=True)


def _bar(*, transient: bool) -> Bar:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=stderr, transient=transient)


def _page_task(bar: Bar) -> TaskID:
    return bar.add_task("steps of this page", total=None, visible=False)


def _lines() -> Watch:
    last = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= LINE_EVERY_S:
            last = time.monotonic()
            note(f"this page: {done} of {total} steps")

    return tell


def _page_line(progress: Progress) -> None:
    page = progress.page
    note(
        f"{progress.input} page {page.page_index + 1} ({progress.done} of {progress.total}): {page.status}, "
        f"{progress.stats.total_ms / 1000:.2f} s"
    )


def _outcome_line(outcome: Outcome) -> None:
    if outcome.error:
        complain(f"{outcome.input}: {outcome.error}", outcome.fix or "")
    else:
        note(f"{outcome.input}: {outcome.status}, {outcome.pages} pages in {outcome.seconds:.2f} s -> {outcome.folder}")
