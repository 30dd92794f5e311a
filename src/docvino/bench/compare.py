"""Two reports of one machine: what became better, what worse, and what only trembles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from docvino.bench.report import Report, Row, figure
from docvino.errors import ConfigError

Verdict = Literal["better", "same", "worse", "not comparable"]
# Two runs of one program on one machine differ by this much even where repeats within a run agree.
LEAST_SHARE = 0.03
UNKNOWN_NOISE = 0.05  # of a figure that was measured once


@dataclass(frozen=True)
class Comparison:
    """`ratio` is new over old; `allowed` the share by which it may differ from 1 and still be noise."""

    row: Row
    old: float | None
    new: float | None
    ratio: float | None
    allowed: float | None
    verdict: Verdict


def compare(old: Report, new: Report) -> list[Comparison]:
    """A verdict for every row that either report has.

    Raises: ConfigError for reports of different machines, presets, pages or kinds of runs: their figures say nothing
    about one another.
    """
    for what, before, after in (
        ("machines", old.machine, new.machine),
        ("presets", old.preset, new.preset),
        ("pages", old.corpus_sha256, new.corpus_sha256),
        ("kinds of weights", _weights(old), _weights(new)),
        ("kinds of runs", _kind(old), _kind(new)),
    ):
        if before != after:
            raise ConfigError(
                f"the reports are of different {what}: {_difference(before, after)}",
                fix="compare reports of one machine, one preset and the same pages",
            )
    before_rows = {row.key: row for row in old.rows}
    found = [_judge(before_rows.pop(row.key, None), row) for row in new.rows]
    return found + [_judge(row, None) for row in before_rows.values()]


def _judge(old: Row | None, new: Row | None) -> Comparison:
    row = new or old
    assert row is not None
    before, after = (side.median if side is not None else None for side in (old, new))
    if old is None or new is None or not before or after is None or old.unit != new.unit:
        return Comparison(row, before, after, None, None, "not comparable")
    ratio = after / before
    allowed = max(LEAST_SHARE, sum(UNKNOWN_NOISE if side.noise is None else side.noise for side in (old, new)))
    verdict: Verdict = "same"
    if abs(ratio - 1) > allowed:
        verdict = "better" if (ratio > 1) == (row.better == "higher") else "worse"
    return Comparison(row, before, after, ratio, allowed, verdict)


def as_markdown(found: list[Comparison]) -> str:
    lines = ["| | weights | unit | old | new | ratio | noise of both | verdict |", "|---|---|---|---|---|---|---|---|"]
    for one in found:
        cells = (
            one.row.name,
            one.row.precision or "",
            one.row.unit,
            figure(one.old),
            figure(one.new),
            "" if one.ratio is None else f"{one.ratio:.2f}",
            "" if one.allowed is None else f"{100 * one.allowed:.0f} %",
            f"**{one.verdict}**" if one.verdict in ("better", "worse") else one.verdict,
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _weights(report: Report) -> str:
    return "random" if report.random_weights else "trained"


def _kind(report: Report) -> str:
    return "quick" if report.quick else "whole"


def _difference(old: object, new: object) -> str:
    if isinstance(old, dict) and isinstance(new, dict):
        names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
        return ", ".join(f"{name} {old.get(name)!r} and {new.get(name)!r}" for name in names)
    return f"{str(old)[:40]} and {str(new)[:40]}"
