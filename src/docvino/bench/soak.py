"""Memory over many pages: the slope of what the process holds, in MiB a page, and whether that is enough to tell."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from docvino.bench.classic import execution_of
from docvino.bench.corpus import endless_pages
from docvino.bench.job import Job, Tell
from docvino.bench.report import Row
from docvino.errors import InputError
from docvino.machine.resident import UNTOLD, resident_mib
from docvino.parser import Parser

WARM_SHARE = 0.2  # of the pages: caches fill, shapes are compiled
LEAST_PAGES = 20  # after them: fewer say nothing about a slope


def measure_soak(job: Job, tell: Tell) -> list[Row]:
    """Reads pages of ever other sizes for so many minutes, and looks at the memory after each."""
    held: list[float | None] = []
    began = time.monotonic()
    seconds = job.minutes * 60
    with Parser.open(job.runtime) as parser, tempfile.TemporaryDirectory(prefix="docvino-soak-") as folder:
        page = Path(folder) / "page.png"
        for data in endless_pages():
            page.write_bytes(data)
            document = parser.parse(page, job.options)
            if document.pages[0].status == "failed":
                raise InputError(str(document.pages[0].error), fix="docvino verify, then measure again")
            held.append(resident_mib())
            spent = time.monotonic() - began
            tell(int(min(spent, seconds)), int(seconds) or 1)
            if spent >= seconds:
                break
        execution = execution_of(parser)
    told = [mib for mib in held if mib is not None]
    slope, why = slope_of(told) if told else (None, UNTOLD)

    def row(name: str, unit: str, values: Sequence[float], note: str, why: str | None) -> Row:
        return job.row("soak", name, unit, "lower", execution, values, note=note, why=why)

    note = f"least squares over {len(told) - _warm(len(told))} pages after {_warm(len(told))}, {job.minutes:g} minutes"
    ends = f"{told[_warm(len(told))]:.0f} MiB then, {told[-1]:.0f} MiB at the end" if told else ""
    return [
        row("memory slope", "MiB/page", () if slope is None else (slope,), note, why),
        row("most memory held", "MiB", (max(told),) if told else (), ends, None if told else UNTOLD),
    ]


def slope_of(held: Sequence[float]) -> tuple[float | None, str | None]:
    """MiB a page by least squares after the pages that warm up, or why there is no saying.

    held   resident MiB after each page
    """
    counted = np.asarray(held[_warm(len(held)) :], np.float64)
    if len(counted) < LEAST_PAGES:
        return None, f"{len(counted)} pages after the warm-up, and a slope needs {LEAST_PAGES}: give it more minutes"
    pages = np.arange(len(counted), dtype=np.float64)
    slope = np.polynomial.polynomial.polyfit(pages, counted, 1)[1]
    return float(slope), None


def _warm(pages: int) -> int:
    return int(pages * WARM_SHARE)
