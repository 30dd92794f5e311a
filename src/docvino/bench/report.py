"""Rows of figures and the report they make: JSON for programs and for `--compare`, a Markdown table for people.

No paths, no names of people or computers: it is made to be sent.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError, computed_field

from docvino.errors import ConfigError

REPORT_VERSION = 1
Better = Literal["higher", "lower"]
GROUPS = {
    "limits": "Limits of this machine",
    "classic": "Lines: the models one by one",
    "vlm": "Vision-language model: its steps",
    "pages": "Whole pages",
    "starts": "Starts",
    "soak": "Memory over many pages",
}


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")  # a report of a later version may say more


class Row(Frozen):
    """One figure: `values` are those of the repeats, none where `why` says what kept it from being measured.

    precision        stored weights; None where there are none
    execution        arithmetic that the device said it used
    note             what the figure includes
    limit, cost      the limit that it is held against, and what one of its units costs of that (FLOP or bytes)
    random_weights   nobody trained the model: it costs what a trained one costs and reads nothing
    """

    group: str
    name: str
    unit: str
    better: Better
    precision: str | None = None
    execution: str | None = None
    values: tuple[float, ...] = ()
    note: str = ""
    why: str | None = None
    limit: str | None = None
    cost: float | None = None
    random_weights: bool = False

    @property
    def key(self) -> tuple[str, str, str | None]:
        """What makes two rows the same figure."""
        return self.group, self.name, self.precision

    @computed_field  # type: ignore[prop-decorator]
    @property
    def min(self) -> float | None:
        return min(self.values, default=None)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def median(self) -> float | None:
        return statistics.median(self.values) if self.values else None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def p95(self) -> float | None:
        """The smallest value that 95 % of all values do not exceed: of fewer than 20 the largest."""
        return sorted(self.values)[math.ceil(0.95 * len(self.values)) - 1] if self.values else None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def noise(self) -> float | None:
        """Half of the way from the smallest value to p95, as a share of the median; None of a single value."""
        if len(self.values) < 2 or not self.median:
            return None
        assert self.p95 is not None
        return (self.p95 - min(self.values)) / 2 / abs(self.median)


class Report(Frozen):
    """
    machine         what has to be the same for figures to be compared
    versions        what may differ, and is often what a comparison is about
    corpus          the pages in words; `corpus_sha256` is of their bytes
    """

    report_version: int = REPORT_VERSION
    date: str
    machine: dict[str, str]
    versions: dict[str, str]
    preset: str
    precisions: tuple[str, ...]
    corpus: str
    corpus_sha256: str
    random_weights: bool
    quick: bool
    repeats: int
    warm_up: int
    rows: tuple[Row, ...]


def read_report(path: Path) -> Report:
    """Raises: ConfigError for a file that is not a report of this version."""
    fix = "give the bench.json that an earlier `docvino bench` wrote"
    try:
        report = Report.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", fix=fix) from error
    except ValidationError as error:
        raise ConfigError(f"{path} is not a report of docvino bench", fix=fix) from error
    if report.report_version != REPORT_VERSION:
        raise ConfigError(
            f"{path} is a report of version {report.report_version}, this docvino compares version {REPORT_VERSION}",
            fix="measure both with one version of docvino",
        )
    return report


def as_markdown(report: Report) -> str:
    """One table for each group, and above them all that is needed to measure the same again."""
    random = " **Random weights**: the model reads nothing, and costs what a trained one costs." * report.random_weights
    lines = [
        f"# docvino bench: {report.preset}",
        "",
        f"{report.date}. {_listed(report.machine)}. {_listed(report.versions)}. Weights {', '.join(report.precisions)}."
        f"{random}",
        "",
        f"Pages: {report.corpus} (sha256 {report.corpus_sha256[:16]}). {report.repeats} repeats after {report.warm_up} "
        "that warm up; p95 of fewer than 20 repeats is their largest; noise is half of the way from min to p95."
        + " A quick run: its figures are for trying the command, not for comparing."
        * report.quick,
    ]
    for group, rows in groupby(report.rows, key=lambda row: row.group):
        lines += [
            "",
            f"## {GROUPS.get(group, group)}",
            "",
            "| | weights | arithmetic | median | min | p95 | noise | unit | |",
            "|---|---|---|---|---|---|---|---|---|",
            *map(_line, rows),
        ]
    return "\n".join(lines) + "\n"


def _line(row: Row) -> str:
    told = [f"not measured: {row.why}"] if row.why else []
    told += [row.note] if row.note else []
    told += ["random weights"] if row.random_weights else []
    noise = "" if row.noise is None else f"{100 * row.noise:.0f} %"
    cells = (
        row.name,
        row.precision or "",
        row.execution or "",
        *map(figure, (row.median, row.min, row.p95)),
        noise,
        f"{row.unit} {'↑' if row.better == 'higher' else '↓'}",
        "; ".join(told),
    )
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def figure(value: float | None) -> str:
    """Three digits that say something."""
    if value is None:
        return ""
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(digits, 6)}f}"


def _listed(facts: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items())


def missing(rows: Sequence[Row], why: str) -> list[Row]:
    """The same rows without figures, for a part that could not be measured."""
    return [row.model_copy(update={"values": (), "why": why}) for row in rows]
