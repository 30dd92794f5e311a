"""One part of a benchmark in a process of its own: python -m docvino.bench.child JOB RESULT PROGRESS

JOB is a file with a `Job`; RESULT becomes {"rows": [...]}, or {"error": ..., "fix": ...}; PROGRESS holds how far it is.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from contextlib import suppress
from pathlib import Path

from docvino.bench.job import Job, Tell
from docvino.bench.report import Row
from docvino.errors import DocvinoError


def run(job: Job, tell: Tell) -> list[Row]:
    """Each part imports what it needs: a start is measured from its first import."""
    if job.part == "start":
        from docvino.bench.starts import measure_start

        return measure_start(job, tell)
    if job.part == "limits":
        from docvino.bench.limits import measure_limits

        return measure_limits(job, tell)
    if job.part == "vlm":
        from docvino.bench.vlm import measure_steps

        return measure_steps(job, tell)
    if job.part == "pages":
        from docvino.bench.pages import measure_pages

        return measure_pages(job, tell)
    if job.part == "soak":
        from docvino.bench.soak import measure_soak

        return measure_soak(job, tell)
    from docvino.bench.classic import measure_models, measure_requests

    return (measure_models if job.part == "classic" else measure_requests)(job, tell)


def teller(progress: Path, parent: int) -> Tell:
    """Writes how far it is, and ends the process when its parent is not there any more: nobody waits for the rest."""

    def tell(done: int, total: int) -> None:
        if os.getppid() != parent:
            raise SystemExit("the benchmark that this part belongs to has ended")
        with suppress(OSError):  # Windows: somebody looks at it just now
            progress.write_text(f"{done} {total}", encoding="ascii")

    return tell


def main() -> None:
    parent = os.getppid()
    given, result, progress = map(Path, sys.argv[1:4])
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    job = Job.model_validate_json(given.read_bytes())
    try:
        said: dict[str, object] = {"rows": [row.model_dump(mode="json") for row in run(job, teller(progress, parent))]}
    except DocvinoError as error:
        said = {"error": str(error), "fix": error.fix}
    result.write_text(json.dumps(said), encoding="utf-8")


if __name__ == "__main__":
    main()
