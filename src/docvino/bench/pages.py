"""Whole pages through the public Parser: seconds by stage, pages a minute, tokens a second, memory; times of Stats."""

from __future__ import annotations

from docvino.bench.classic import execution_of
from docvino.bench.job import Job, Tell
from docvino.bench.report import Better, Row
from docvino.document import Stats
from docvino.errors import InputError
from docvino.machine.resident import UNTOLD, peak_mib
from docvino.parser import Parser

STAGES = tuple(name for name in Stats.model_fields if name.endswith("_ms"))


def measure_pages(job: Job, tell: Tell) -> list[Row]:
    """
    Raises: InputError when a page was not read, InferenceError and others of Parser.
    """
    rounds: list[Stats] = []
    with Parser.open(job.runtime) as parser:
        for turn in range(job.rounds):
            stats, pages = Stats(), 0
            for place, path in enumerate(job.pages):
                document = parser.parse(path, job.options)
                stats, pages = stats + document.stats, pages + len(document.pages)
                if failed := [page.error for page in document.pages if page.status == "failed"]:
                    raise InputError(f"{path.name}: {failed[0]}", fix="leave this file out, or mend it")
                tell(turn * len(job.pages) + place + 1, job.rounds * len(job.pages))
            rounds.append(stats)
        execution = execution_of(parser)
    return page_rows(job, rounds[job.warm_up :], pages, execution, peak_mib())


def page_rows(job: Job, rounds: list[Stats], pages: int, execution: str, peak: float | None) -> list[Row]:
    """
    rounds   sums over all pages, one for each repeat
    """

    def row(name: str, unit: str, better: Better, values: list[float], note: str = "", why: str | None = None) -> Row:
        return job.row("pages", name, unit, better, execution, values, note=note, why=why)

    last = rounds[-1]
    note = f"{pages} pages, {last.crops} crops, {last.lines} lines, {last.tokens} tokens"
    rows = [row("a page", "s", "lower", [stats.total_ms / 1000 / pages for stats in rounds], note)]
    rows += [
        row(f"a page: {name[:-3]}", "s", "lower", [getattr(stats, name) / 1000 / pages for stats in rounds])
        for name in STAGES
        if any(getattr(stats, name) for stats in rounds)
    ]
    rows.append(row("pages a minute", "pages/min", "higher", [pages * 60_000 / stats.total_ms for stats in rounds]))
    if last.tokens:
        rows += [
            row(
                "tokens a second, decoding",
                "tokens/s",
                "higher",
                [1000 * stats.tokens / stats.decoding_ms for stats in rounds],
                "prompts are read in this time, too",
            ),
            row(
                "tokens a second, all stages",
                "tokens/s",
                "higher",
                [1000 * stats.tokens / stats.total_ms for stats in rounds],
            ),
        ]
    no_peak = UNTOLD if peak is None else None
    rows.append(row("peak memory", "MiB", "lower", [] if peak is None else [peak], "of the process", no_peak))
    return rows
