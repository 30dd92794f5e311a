"""The table that readers of lines are compared by: detection on one size, recognition of a line, first page, memory.

Times are those of `Stats`, as a parse reports them: detection is with preparing the page and finding boxes in the
answer, recognition with cutting lines out and decoding them.
"""

from __future__ import annotations

from docvino.bench.job import Job, Tell
from docvino.bench.report import Row
from docvino.document import Stats
from docvino.errors import InferenceError
from docvino.machine.resident import UNTOLD, peak_mib
from docvino.parser import Parser
from docvino.settings import ParseOptions

REQUESTS = tuple(range(1, 9))
REQUESTS_QUICK = (1, 2)
_SIZE = "960 x 960 px"


def measure_models(job: Job, tell: Tell) -> list[Row]:
    """Detection and recognition as a parse does them, and the memory of a process that does nothing else."""
    with Parser.open(job.runtime.model_copy(update={"layout": "none"})) as parser:
        stats = []
        for done in range(job.rounds):
            stats.append(_read(parser, job))
            tell(done + 1, job.rounds)
        execution = execution_of(parser)
    counted = stats[job.warm_up :]
    peak = peak_mib()
    return [
        _row(job, f"text detection, {_SIZE}", "ms", execution, [one.detection_ms for one in counted]),
        _row(
            job,
            "recognition, a line",
            "ms",
            execution,
            [one.recognition_ms / one.lines for one in counted],
            note=f"of {counted[0].lines} lines",
        ),
        _row(
            job,
            "peak memory",
            "MiB",
            execution,
            [] if peak is None else [peak],
            note="of a process that reads this page alone",
            why=UNTOLD if peak is None else None,
        ),
    ]


def measure_requests(job: Job, tell: Tell) -> list[Row]:
    """Recognition with ever more requests in flight, and the first page of each opened parser."""
    counts = REQUESTS_QUICK if job.quick else REQUESTS
    first, by_count = [], {}
    execution = ""
    for place, count in enumerate(counts):
        update = {"layout": "none", "async_slots": count}
        with Parser.open(job.runtime.model_copy(update=update)) as parser:
            stats = [_read(parser, job) for _ in range(1 + job.rounds)]
            execution = execution_of(parser)
        first.append(stats[0].detection_ms + stats[0].recognition_ms)
        by_count[count] = [one.recognition_ms / one.lines for one in stats[1 + job.warm_up :]]
        tell(place + 1, len(counts))
    rows = [
        _row(
            job,
            f"first inference, {_SIZE}",
            "ms",
            execution,
            first,
            note="the first page of a parser that was just opened",
        )
    ]
    rows += [
        _row(job, f"recognition, a line, {count} in flight", "ms", execution, values)
        for count, values in by_count.items()
    ]
    best = min(rows[1:], key=lambda row: row.median or 0)
    count = counts[rows.index(best) - 1]
    note = f"--async-slots {count} was best of {counts[0]} to {counts[-1]}"
    return [*rows, best.model_copy(update={"name": "recognition, a line, best", "note": note})]


def execution_of(parser: Parser) -> str:
    """The arithmetic of its models and where it runs, as the devices say."""
    models = parser.provenance(ParseOptions()).models
    return ", ".join(dict.fromkeys(f"{model.execution_precision} on {'+'.join(model.devices)}" for model in models))


def _read(parser: Parser, job: Job) -> Stats:
    document = parser.parse(job.pages[0], job.options.model_copy(update={"auto_rotate": False}))
    if not document.stats.lines:
        raise InferenceError(
            "no line was read on a page of twenty", fix=f"docvino verify {job.runtime.preset}, then measure again"
        )
    return document.stats


def _row(
    job: Job, name: str, unit: str, execution: str, values: list[float], *, note: str = "", why: str | None = None
) -> Row:
    return job.row("classic", name, unit, "lower", execution, values, note=note, why=why)
