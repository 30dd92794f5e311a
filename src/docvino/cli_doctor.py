"""The command `docvino doctor`: the lines of the examination, on a terminal, as JSON, or in a file for a bug report."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from docvino.cli_common import (
    CacheDir,
    Config,
    DataDir,
    DecoderDevice,
    Device,
    Execution,
    Json,
    LayoutDevice,
    Precision,
    Preset,
    VisionDevice,
    note,
    print_json,
    settings_of,
    stdout,
)
from docvino.errors import ConfigError, nearest
from docvino.settings import setting_names

if TYPE_CHECKING:
    from docvino.doctor.check import Check
    from docvino.settings import Settings

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red", "skip": "bright_black"}
_NAME_WIDTH = 24


def doctor(
    preset: Preset = None,
    device: Device = None,
    precision: Precision = None,
    execution: Execution = None,
    layout_device: LayoutDevice = None,
    vision_device: VisionDevice = None,
    decoder_device: DecoderDevice = None,
    data_dir: DataDir = None,
    cache_dir: CacheDir = None,
    config: Config = None,
    stage: Annotated[
        str | None, typer.Option(help="Only what this needs, and failing without it: fetch, convert, verify, parse.")
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="With driver faults that only one person reported.")
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(help="Write all of it to one file for a bug report, without names of people or folders."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Checks this machine from the ground up; the first failure is the cause of those after it.

    System, Python, packages, Intel GPUs and NPUs with their drivers, OpenVINO, a short inference, folders, models,
    settings with their origins. The exit code is that of the first failure, 0 with warnings only.
    """
    given = {key: value for key, value in locals().items() if key in setting_names()}
    settings = settings_of(config, **given)
    from docvino.doctor.check import STAGES
    from docvino.doctor.examine import examine, exit_code
    from docvino.doctor.report import summary, versions, write_report
    from docvino.machine.border import Recording, ThisMachine

    chosen = next((name for name in STAGES if name == stage), None)
    if stage is not None and chosen is None:
        raise ConfigError(f"no stage {stage!r}", fix=nearest(stage, STAGES))
    machine = Recording(ThisMachine())
    examined = examine(settings, machine, stage=chosen, verbose=verbose)
    checks = list(examined) if as_json else show(examined)
    if as_json:
        print_json(summary(checks, settings, versions(machine)))
    else:
        _print_settings(settings)
        show_end(checks)
    if report is not None:
        write_report(report, checks, settings, versions(machine), machine.readings)
        note(f"report: {report}")
    raise typer.Exit(exit_code(checks))


def show(checks: Iterable[Check]) -> list[Check]:
    """Prints each check as it comes, and gives them all."""
    shown: list[Check] = []
    for check in checks:
        if not shown or shown[-1].section != check.section:
            stdout.print(("\n" if shown else "") + check.section, style="bold", markup=False)
        _print_check(check, repeated=bool(shown) and shown[-1].fix == check.fix)
        shown.append(check)
    return shown


def _print_check(check: Check, *, repeated: bool) -> None:
    """`repeated`: the line before had the same fix, so that it need not be read again."""
    _print_row(check.status, check.name, check.found, _COLOURS[check.status])
    if check.status != "ok" and not repeated:
        if check.wanted and check.status != "skip":
            _print_row("", "wanted", check.wanted, "dim")
        if check.fix:
            _print_row("", "fix", check.fix, "dim")


def _print_row(status: str, name: str, text: str, colour: str) -> None:
    """One row; on a terminal the text is wrapped in its own column, elsewhere a row is a line."""
    head = f"  {status:4}  {name:{_NAME_WIDTH}}  "
    lines = [text]
    if stdout.is_terminal:
        lines = textwrap.wrap(
            text, max(30, stdout.width - len(head)), break_long_words=False, break_on_hyphens=False
        ) or [""]
    row = Text(head)
    if status:
        row.stylize(colour, 2, 6)
    else:
        row.stylize(colour)
    stdout.print(row + Text(lines[0]))
    for line in lines[1:]:
        stdout.print(Text(" " * len(head) + line))


def _print_settings(settings: Settings) -> None:
    stdout.print("\nsettings", style="bold")
    for name, origin in settings.origins.items():
        stdout.print(f"  {name} = {origin.value}  ({origin.source})", markup=False)


def show_end(checks: Sequence[Check]) -> None:
    """The last lines are those that are read first."""
    counts = Counter[str](check.status for check in checks)
    words = (("fail", "failed", "failed"), ("warn", "warning", "warnings"))
    said = [f"{counts[status]} {one if counts[status] == 1 else more}" for status, one, more in words if counts[status]]
    stdout.print()
    first = next((check for check in checks if check.status == "fail"), None)
    if first is None:
        stdout.print(Text("all is well" if not said else f"nothing failed, {', '.join(said)}", style="bold"))
        return
    stdout.print(Text(f"{', '.join(said)}; mend this first: {first.name}", style="bold"))
    if first.fix:
        stdout.print(Text(f"  fix: {first.fix}"))
