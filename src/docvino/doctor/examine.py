"""The examination, from the ground up: the first failure is the cause of those after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from docvino.doctor import on_gpus, on_house, on_openvino, on_system
from docvino.doctor.check import CHILD_LIMIT_S, LIMIT_S, MODELS_LIMIT_S, Check, Context, Facts, Stage, look
from docvino.errors import DeviceError
from docvino.machine.border import Machine
from docvino.settings import Settings


class Part(NamedTuple):
    """`name` is that of its line when it could not be looked at, `fails_with` the exit code then (0: a warning).

    `stages` are those that need it; without a stage all parts are looked at.
    """

    section: str
    name: str
    checks: Callable[[Context], Iterable[Check]]
    limit_s: float
    stages: tuple[Stage, ...]
    fails_with: int = 0


_ALL: tuple[Stage, ...] = ("fetch", "convert", "verify", "parse")
_RUNNING: tuple[Stage, ...] = ("convert", "verify", "parse")  # a conversion ends with its model being run
_READING: tuple[Stage, ...] = ("verify", "parse")

PARTS = (
    Part(on_system.SECTION, "operating system", on_system.check_system, LIMIT_S, _ALL),
    Part(on_system.SECTION, "Python", on_system.check_python, LIMIT_S, _ALL),
    Part(on_system.SECTION, "packages", on_system.check_packages, LIMIT_S, _ALL),
    Part(on_gpus.SECTION, "GPUs", on_gpus.check_gpus, CHILD_LIMIT_S, _RUNNING),
    Part(on_gpus.NPU_SECTION, "NPUs", on_gpus.check_npus, CHILD_LIMIT_S, _RUNNING),
    Part(on_openvino.SECTION, "OpenVINO", on_openvino.check_openvino, CHILD_LIMIT_S, _RUNNING, DeviceError.exit_code),
    Part(on_openvino.SECTION, "device asked for", on_openvino.check_device, CHILD_LIMIT_S, _RUNNING),
    Part(on_openvino.SECTION, "power", on_openvino.check_power, LIMIT_S, _READING),
    Part(on_openvino.SECTION, "inference", on_openvino.check_inference, 3 * CHILD_LIMIT_S, _READING),
    Part(on_house.SECTION, "folders", on_house.check_folders, LIMIT_S, _ALL),
    Part(on_house.SECTION, "pip for fetching", on_house.check_pip, LIMIT_S, ("fetch",)),
    Part(on_house.SECTION, "models", on_house.check_models, MODELS_LIMIT_S, _READING),
)


def examine(
    settings: Settings, machine: Machine, *, stage: Stage | None = None, verbose: bool = False
) -> Iterator[Check]:
    """Every check as a line, as soon as it is done. Ends in time and raises nothing, whatever the machine does.

    stage    only what this stage of the road needs; what it lacks is a failure. None: everything, and models that are
             not there yet are warnings
    verbose  with problems of drivers that only one person reported
    """
    context = Context(settings, Facts(machine), stage, verbose)
    for part in PARTS:
        if stage is None or stage in part.stages:
            checks = partial(part.checks, context)
            yield from look(part.section, part.name, checks, part.limit_s, fails_with=part.fails_with)


def exit_code(checks: Iterable[Check]) -> int:
    """That of the first failure; 0 when nothing failed."""
    return next((check.exit_code for check in checks if check.status == "fail"), 0)
