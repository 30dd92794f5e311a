"""The plan of a benchmark: parts in child processes, one after the other, put together as one report."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import get_args

from docvino import __version__
from docvino.bench import corpus, limits, starts
from docvino.bench.chart import write_chart
from docvino.bench.job import Job, Part
from docvino.bench.random_weights import write_published
from docvino.bench.report import GROUPS, Report, Row, as_markdown
from docvino.bench.vlm import options_for
from docvino.bundle import converted_at
from docvino.convert.vlm import convert_vlm
from docvino.device import find_device, openvino_version
from docvino.device.memory import host_memory_bytes
from docvino.errors import BundleError, ConfigError, InputError, nearest
from docvino.process import ended, run_child
from docvino.settings import RuntimeConfig, WeightPrecision
from docvino.specs import PRESETS, VLM_PRESETS, get_preset, how_to_get

PARTS = ("limits", "steps", "pages", "starts")
PRECISIONS: tuple[WeightPrecision, ...] = get_args(WeightPrecision)
# A part of the largest model on a slow machine; one that takes longer hangs.
LIMIT_S = 3 * 3600.0
_TITLES: dict[Part, str] = {
    "limits": "limits of this machine",
    "classic": "the models one by one",
    "requests": "requests in flight",
    "vlm": "steps of the model",
    "pages": "whole pages",
    "start": "a start",
    "soak": "memory over many pages",
}
_GROUP_OF: dict[Part, str] = {"requests": "classic", "start": "starts"}

Progress = Callable[[str, int, int, float], None]  # what is measured; parts done; all parts; share of the present one


@dataclass(frozen=True)
class Wish:
    """What one `docvino bench` is to measure.

    files           pages of the user's own; none: drawn ones
    precisions      stored weights
    parts           of PARTS
    random_weights  name of a published model of which random weights are made
    soak_minutes    0: no soak
    """

    files: tuple[Path, ...] = ()
    precisions: tuple[WeightPrecision, ...] = ()
    parts: tuple[str, ...] = PARTS
    repeats: int = 5
    warm_up: int = 1
    quick: bool = False
    random_weights: str | None = None
    soak_minutes: float = 0.0


def parse_parts(text: str | None) -> tuple[str, ...]:
    """Raises: ConfigError."""
    return PARTS if text is None else tuple(_known(text, PARTS, "part"))


def parse_precisions(text: str | None) -> tuple[WeightPrecision, ...]:
    """Raises: ConfigError."""
    asked = () if text is None else _known(text, PRECISIONS, "precision")
    return tuple(name for name in PRECISIONS if name in asked)


def _known(text: str, known: Sequence[str], what: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise ConfigError(f"unknown {what} {name!r}", fix=nearest(name, tuple(known)))
    if not names:
        raise ConfigError(f"no {what} is named", fix=f"known: {', '.join(known)}")
    return names


def bench(runtime: RuntimeConfig, wish: Wish, *, say: Callable[[str], None], progress: Progress) -> Report:
    """Measures all that is wished; a part that fails is a row that says why.

    Raises: BundleError when the preset is not converted at any precision, DeviceError when the device is absent,
    ConfigError for a wish that cannot be.
    """
    device = find_device(runtime.device)
    with tempfile.TemporaryDirectory(prefix="docvino-bench-") as scratch:
        folder = Path(scratch)
        precisions = wish.precisions
        if wish.random_weights is not None:
            precisions = precisions or ("fp16", "int8", "int4")
            runtime = _with_random_weights(wish.random_weights, runtime, precisions, folder, say)
        is_vlm = _is_vlm(runtime)
        there = _converted(runtime)
        if not there:
            get_preset(runtime.preset)  # an unknown name is the other mistake
            raise BundleError(f"{runtime.preset} is not converted", fix=how_to_get(runtime.preset))
        precisions = precisions or tuple(name for name in PRECISIONS if is_vlm or name != "int4")
        pages, about, digest = _pages(wish, folder)
        usable = [name for name in precisions if name in there]
        rows = [_not_converted(runtime, name, is_vlm=is_vlm) for name in precisions if name not in usable]
        plan = _plan(runtime, wish, usable, pages, folder, is_vlm=is_vlm)
        for place, job in enumerate(plan):
            title = f"{_TITLES[job.part]} {job.way}".rstrip()
            title += f", {job.runtime.precision}" if job.part != "limits" else ""

            def within(share: float, place: int = place, title: str = title) -> None:
                progress(title, place, len(plan), share)

            within(0.0)
            _prepare_cache(job)
            rows += _run(job, folder, within)
        progress("", len(plan), len(plan), 0.0)
    merged = _merged(rows)
    merged += [*limits.shares(merged), *starts.gains(merged)]
    return Report(
        date=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        machine={
            "cpu": _cpu_name(),
            "cores": str(os.cpu_count()),
            "memory": _memory(),
            "device": device.full_name,
            "system": platform.system(),
        },
        versions={
            "docvino": __version__,
            "OpenVINO": openvino_version(),
            "Python": platform.python_version(),
            "numpy": version("numpy"),
            "kernel": platform.release(),
            "driver": device.driver or "none",
        },
        preset=runtime.preset,
        precisions=precisions,
        corpus=about,
        corpus_sha256=digest,
        random_weights=wish.random_weights is not None,
        quick=wish.quick,
        repeats=wish.repeats,
        warm_up=wish.warm_up,
        rows=tuple(_ordered(merged)),
    )


def write_all(report: Report, out: Path) -> list[Path]:
    """bench.json, bench.md and bench.png in the folder `out`.

    Raises: ConfigError when they cannot be written.
    """
    files = [out / f"bench.{kind}" for kind in ("json", "md", "png")]
    try:
        out.mkdir(parents=True, exist_ok=True)
        files[0].write_text(report.model_dump_json(indent=1) + "\n", encoding="utf-8")
        files[1].write_text(as_markdown(report), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write into {out}: {error.strerror}", fix="name another folder with -o") from error
    write_chart(report, files[2])
    return files


def _plan(
    runtime: RuntimeConfig,
    wish: Wish,
    precisions: Sequence[WeightPrecision],
    pages: tuple[Path, ...],
    folder: Path,
    *,
    is_vlm: bool,
) -> list[Job]:
    square, line = folder / "square.png", folder / "line.png"
    square.write_bytes(corpus.square_page())
    line.write_bytes(corpus.line_page())
    random = wish.random_weights is not None
    options = options_for(random)

    def job(part: Part, precision: WeightPrecision, files: tuple[Path, ...] = pages) -> Job:
        return Job(
            part=part,
            runtime=runtime.model_copy(update={"precision": precision}),
            options=options,
            pages=files,
            repeats=wish.repeats,
            warm_up=wish.warm_up,
            quick=wish.quick,
            random_weights=random,
            minutes=wish.soak_minutes if part == "soak" else 0.0,
        )

    plan = []
    if "limits" in wish.parts:
        plan.append(job("limits", precisions[0] if precisions else "fp32"))
    if "steps" in wish.parts:
        parts: tuple[Part, ...] = ("vlm",) if is_vlm else ("classic", "requests")
        plan += [job(part, precision, (square,)) for precision in precisions for part in parts]
    if "pages" in wish.parts:
        plan += [job("pages", precision) for precision in precisions]
    if not precisions:
        return plan
    # The smallest: one precision is enough to tell.
    if "starts" in wish.parts:
        start = job("start", precisions[-1], (line,))
        start = start.model_copy(
            update={"runtime": start.runtime.model_copy(update={"cache_dir": folder / "start-cache"})}
        )
        rounds = 1 if wish.quick else wish.repeats
        plan += [start.model_copy(update={"way": way}) for _ in range(rounds) for way in starts.WAYS]
    if wish.soak_minutes:
        plan.append(job("soak", precisions[-1]))
    return plan


def _prepare_cache(job: Job) -> None:
    """A first start finds nothing."""
    if job.part == "start" and job.way == "first":
        shutil.rmtree(job.runtime.cache_dir, ignore_errors=True)


def _run(job: Job, folder: Path, within: Callable[[float], None]) -> list[Row]:
    """The rows of one part, or one row that says why there are none."""
    given, result, told, log = (folder / name for name in ("job.json", "result.json", "progress", "log.txt"))
    for path in (result, told):
        path.unlink(missing_ok=True)
    given.write_text(job.model_dump_json(), encoding="utf-8")

    def look() -> None:
        with suppress(OSError, ValueError):  # not written yet, or half
            done, total = told.read_text(encoding="ascii").split()
            within(int(done) / int(total))

    command = [sys.executable, "-m", "docvino.bench.child", str(given), str(result), str(told)]
    limit = LIMIT_S + 60 * job.minutes
    code = run_child(command, log, limit, {**os.environ, "PYTHONUTF8": "1"}, look)
    if code == 0 and result.is_file():
        found = json.loads(result.read_text(encoding="utf-8"))
        if "rows" in found:
            return [Row.model_validate(row) for row in found["rows"]]
        why = f"{found['error']}; {found['fix']}"
    else:
        why = f"its process {ended(code, limit)}; {_last_line(log)}"
    precision = None if job.part == "limits" else job.runtime.precision
    return [
        Row(
            group=_GROUP_OF.get(job.part, job.part),
            name=f"{_TITLES[job.part]} {job.way}".rstrip(),
            unit="",
            better="lower",
            precision=precision,
            why=why,
            random_weights=job.random_weights,
        )
    ]


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"


def _merged(rows: Sequence[Row]) -> list[Row]:
    """Rows of one figure that was measured in several processes become one."""
    found: dict[tuple[str, str, str | None], Row] = {}
    for row in rows:
        before = found.get(row.key)
        if before is None:
            found[row.key] = row
        else:
            found[row.key] = before.model_copy(update={"values": before.values + row.values})
    return list(found.values())


def _ordered(rows: Sequence[Row]) -> list[Row]:
    """By group, and within one each figure at all precisions, the figures in the order in which they were measured."""
    first: dict[tuple[str, str], int] = {}
    for place, row in enumerate(rows):
        first.setdefault((row.group, row.name), place)
    return sorted(rows, key=lambda row: (list(GROUPS).index(row.group), first[row.group, row.name]))


def _pages(wish: Wish, folder: Path) -> tuple[tuple[Path, ...], str, str]:
    """The files to read, what they are in words, and the sha256 of their bytes."""
    if wish.files:
        return _copied(wish.files, folder)
    # Nobody waits for a model of a billion weights to read a hundred lines five times and say nothing.
    alone = wish.quick or wish.random_weights is not None
    drawn = [corpus.one_page()] if alone else corpus.drawn_pages()
    paths = []
    for number, data in enumerate(drawn):
        paths.append(folder / f"page-{number + 1}.png")
        paths[-1].write_bytes(data)
    return tuple(paths), corpus.DRAWN + " (the first alone)" * alone, corpus.sha256_of(drawn)


def _copied(files: Sequence[Path], folder: Path) -> tuple[tuple[Path, ...], str, str]:
    """The user's files under numbers: their names may tell what nobody is to know, and errors quote them."""
    copies = []
    for number, path in enumerate(files, 1):
        copies.append(folder / f"file-{number}{path.suffix.lower()}")
        try:
            shutil.copyfile(path, copies[-1])
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}", fix="give files that can be read") from error
    digest = corpus.sha256_of(copy.read_bytes() for copy in copies)
    return tuple(copies), f"{len(copies)} files of the user's own", digest


def _with_random_weights(
    name: str,
    runtime: RuntimeConfig,
    precisions: Sequence[WeightPrecision],
    folder: Path,
    say: Callable[[str], None],
) -> RuntimeConfig:
    """A data folder of its own with the model at every precision; elements are found by ink, which needs no weights."""
    say(f"{name} with random weights: written and converted to {', '.join(precisions)}")
    source = folder / "source"
    write_published(name, source)
    for precision in precisions:
        convert_vlm(source, folder / "data" / "bundles" / f"{name}-{precision}", precision)
    shutil.rmtree(source)
    return runtime.model_copy(
        update={
            "preset": name,
            "data_dir": folder / "data",
            "cache_dir": folder / "cache",
            "layout": "whitespace",
        }
    )


def _is_vlm(runtime: RuntimeConfig) -> bool:
    return runtime.preset in VLM_PRESETS or runtime.preset not in PRESETS


def _not_converted(runtime: RuntimeConfig, precision: str, *, is_vlm: bool) -> Row:
    return Row(
        group="vlm" if is_vlm else "classic",
        name="steps, pages, starts",
        unit="",
        better="lower",
        precision=precision,
        why=f"{runtime.preset} is not converted at {precision}; {how_to_get(runtime.preset, precision)}",
    )


def _converted(runtime: RuntimeConfig) -> list[str]:
    """The precisions at which all that the preset needs is converted."""
    bundles = runtime.data_dir / "bundles"
    if _is_vlm(runtime):
        return converted_at(bundles, runtime.preset)
    models = [converted_at(bundles, spec.name) for spec in PRESETS[runtime.preset].models]
    return [name for name in PRECISIONS if all(name in found for found in models)]


def _cpu_name() -> str:
    return find_device("CPU").full_name


def _memory() -> str:
    size = host_memory_bytes()
    return "not told" if size is None else re.sub(r"\.0$", "", f"{size / 2**30:.0f}") + " GiB"
