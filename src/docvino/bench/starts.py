"""How long a start takes, with and without what is kept between runs: each start is a process of its own.

`WAYS` take turns, so that a busy machine slows them alike. A start is from the first import to a parser that is there,
and to the first text: that of a page of one line.
"""

from __future__ import annotations

import time

from docvino.bench.job import Job, Tell
from docvino.bench.report import Row

WAYS = {
    "no cache": "nothing kept, nothing tested: models are compiled",
    "first": "with an empty cache: models are compiled, kept, and tested against their recorded answers",
    "second": "from what the first start has kept",
    "no test": "from the cache, with the self-test switched off",
}


def measure_start(job: Job, tell: Tell) -> list[Row]:
    """One start in the way of the job and its first text."""
    began = time.perf_counter()
    from docvino.parser import Parser  # the import is part of a start

    runtime = job.runtime.model_copy(
        update={"model_cache": job.way != "no cache", "self_test": job.way in ("first", "second")}
    )
    with Parser.open(runtime) as parser:
        opened_s = time.perf_counter() - began
        document = parser.parse(job.pages[0], job.options)
        models = document.provenance.models
    first_text_s = document.stats.total_ms / 1000
    tell(1, 1)
    cached = sum(model.from_cache for model in models)
    note = f"{WAYS[job.way]}; {cached} of {len(models)} models from the cache"

    def row(name: str, value: float) -> Row:
        execution = models[-1].execution_precision
        return job.row("starts", f"{job.way}: {name}", "s", "lower", execution, [value], note=note)

    return [row("ready", opened_s), row("first text", opened_s + first_text_s)]


def gains(rows: list[Row]) -> list[Row]:
    """How many times as fast the second start is there as the first: to a reader that is ready, and to a text."""
    found = []
    by_key = {row.key: row for row in rows if row.group == "starts" and row.values}
    for (group, name, precision), second in by_key.items():
        first = by_key.get((group, name.replace("second: ", "first: "), precision))
        if not name.startswith("second: ") or first is None:
            continue
        pairs = zip(first.values, second.values, strict=False)
        found.append(
            second.model_copy(
                update={
                    "name": f"second start against the first: {name.removeprefix('second: ')}",
                    "unit": "times as fast",
                    "better": "higher",
                    "values": tuple(slow / fast for slow, fast in pairs),
                    "note": "",
                }
            )
        )
    return found
