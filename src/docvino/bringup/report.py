"""What a bring-up found. No paths, no names of people or machines: it is made to be sent."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from docvino.errors import ConfigError

Status = Literal["ok", "fail", "skip"]
_MARKS = {"ok": "ok", "fail": "**FAIL**", "skip": "skipped"}


@dataclass(frozen=True)
class Step:
    """One question and its answer.

    wanted    what passes
    found     figures by name
    problem   what failed, or why it was not asked; None when all is well
    """

    name: str
    status: Status
    wanted: str
    found: dict[str, Any]
    problem: str | None
    seconds: float


@dataclass
class Report:
    """What somebody without the device needs to know. `active` is the form of the decoder that docvino would use."""

    docvino: str
    openvino: str
    python: str
    system: str
    device: dict[str, Any]
    model: str
    precisions: tuple[str, ...]
    execution: str
    active: str = "none"
    steps: list[Step] = field(default_factory=list)

    @property
    def failed(self) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if step.status == "fail")


def write_report(found: Report, path: Path) -> tuple[Path, Path]:
    """Writes `path`.json and `path`.md.

    Raises: ConfigError when they cannot be written.
    """
    files = path.with_name(f"{path.name}.json"), path.with_name(f"{path.name}.md")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files[0].write_text(json.dumps(asdict(found), ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
        files[1].write_text(as_markdown(found), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {files[0].name}: {error.strerror}", fix="name another file with -o") from error
    return files


def as_markdown(found: Report) -> str:
    device = found.device
    lines = [
        f"# Bring-up of {found.model} on {device['full_name']}",
        "",
        f"docvino {found.docvino}, OpenVINO {found.openvino}, Python {found.python}, {found.system}; {device['name']}, "
        f"driver {device['driver'] or 'not told'}, profile {device['profile']}; arithmetic {found.execution}, weights "
        f"{', '.join(found.precisions)}.",
        "",
        f"{len(found.failed)} of {len(found.steps)} steps failed. Decoder: {found.active}.",
        "",
        "| | step | wanted | found | s |",
        "|---|---|---|---|---|",
    ]
    for step in found.steps:
        told = [step.problem] if step.problem else []
        told += [f"{key}: {_figure(value)}" for key, value in step.found.items() if not isinstance(value, dict)]
        cells = (_MARKS[step.status], step.name, step.wanted, "; ".join(told), f"{step.seconds:.1f}")
        lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _figure(value: object) -> str:
    return f"{value:.2g}" if isinstance(value, float) else str(value)
