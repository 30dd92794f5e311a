"""One line of the doctor, and how a look at something ends in time and as a line whatever happens."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeVar

from docvino.errors import DeviceError
from docvino.machine.adapters import Adapters, find_adapters
from docvino.machine.border import Machine, NoAnswerError
from docvino.machine.drivers import Drivers, IcdFile, Packages, read_drivers, read_icds, read_packages
from docvino.machine.system import System, read_system
from docvino.settings import ExecutionPrecision, Settings

Status = Literal["ok", "warn", "fail", "skip"]
Stage = Literal["fetch", "convert", "verify", "parse"]
STAGES: tuple[Stage, ...] = ("fetch", "convert", "verify", "parse")

LIMIT_S = 30.0  # of a look that reads files and runs a command or two
CHILD_LIMIT_S = 120.0  # of one that waits for a child process, which has a limit of its own
MODELS_LIMIT_S = 300.0  # of hashing 4 GB on a slow disk
REPORT = "docvino doctor --report FILE writes what is needed to find out why"

T = TypeVar("T")


@dataclass(frozen=True)
class Check:
    """One line. `wanted` and `fix` are empty when there is nothing to mend; `exit_code` is that of a failure.

    skip: not looked at, or a consequence of a failure above.
    """

    section: str
    name: str
    status: Status
    found: str
    wanted: str = ""
    fix: str = ""
    exit_code: int = 0


class Chain:
    """Checks of which each needs the one before it: the first that fails is the cause, the others follow from it.

    `severity` is what a failure is called: fail when the device was asked for, warn or skip when it was not.
    """

    def __init__(self, severity: Status) -> None:
        self.severity = severity
        self.cause: str | None = None

    def judge(self, check: Check, *, consequence: bool = False) -> Check:
        """The check as it is to be shown. `consequence`: it has no fix of its own once something above failed."""
        if check.status != "fail":
            return check
        if self.cause is not None:
            fix = "" if consequence else check.fix
            return replace(
                check, status="skip", found=f"{check.found} (first mend: {self.cause})", fix=fix, exit_code=0
            )
        self.cause = check.name
        if self.severity == "fail":
            return replace(check, exit_code=check.exit_code or DeviceError.exit_code)
        return replace(check, status=self.severity, exit_code=0)


class Facts:
    """What was read of a machine, each thing once. What could not be read raises again, at once."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.causes: dict[str, str] = {}
        """The first failure of each family of devices (GPU, NPU), by which later checks know what they follow from."""
        self._known: dict[str, Any] = {}

    def _once(self, name: str, read: Callable[[], T]) -> T:
        if name not in self._known:
            # Until it is answered: a look that was given up must not be begun again by the next check.
            self._known[name] = NoAnswerError("it gave no answer in time")
            try:
                self._known[name] = read()
            except Exception as error:  # noqa: BLE001 - kept and raised again for every check that needs it
                self._known[name] = error
        found = self._known[name]
        if isinstance(found, Exception):
            raise found
        return found  # type: ignore[no-any-return]

    @property
    def system(self) -> System:
        return self._once("system", lambda: read_system(self.machine))

    @property
    def adapters(self) -> Adapters:
        return self._once("adapters", lambda: find_adapters(self.machine))

    @property
    def packages(self) -> Packages:
        return self._once("packages", lambda: read_packages(self.machine))

    @property
    def icds(self) -> tuple[IcdFile, ...]:
        return self._once("icds", lambda: read_icds(self.machine))

    @property
    def drivers(self) -> Drivers:
        return self._once("drivers", lambda: read_drivers(self.machine.ask("drivers")))

    @property
    def openvino(self) -> OpenVino:
        return self._once("openvino", lambda: read_openvino(self.machine.ask("openvino").facts))


@dataclass(frozen=True)
class OpenVinoDevice:
    """One device as OpenVINO names it, with its properties as plain values."""

    name: str
    properties: Mapping[str, Any]

    @property
    def full_name(self) -> str:
        return str(self.properties.get("FULL_DEVICE_NAME", "")).strip()

    @property
    def kind(self) -> str:
        return str(self.properties.get("DEVICE_TYPE", "")).lower()

    @property
    def is_gpu(self) -> bool:
        return self.name.split(".")[0] == "GPU"

    @property
    def intel(self) -> bool:
        """Its GPU plugin lists any OpenCL GPU, as `GPU: vendor=0x10de arch=v8.9.0`; older releases name no vendor."""
        architecture = str(self.properties.get("DEVICE_ARCHITECTURE", ""))
        return "vendor=" not in architecture or "vendor=0x8086" in architecture

    @cached_property
    def address(self) -> str | None:
        """The PCI address in a GPU's UUID: ids and revision in 6 bytes, domain in 2, bus, device, function.

        Source: decoded from the UUIDs of an A770, a Meteor Lake and a Rocket Lake GPU.
        """
        try:
            uuid = bytes.fromhex(str(self.properties.get("DEVICE_UUID", "")))
        except ValueError:
            return None
        if not self.is_gpu or len(uuid) != 16 or uuid[:2] != b"\x86\x80":
            return None
        return f"{int.from_bytes(uuid[6:8], 'little'):04x}:{uuid[8]:02x}:{uuid[9]:02x}.{uuid[10]:x}"


@dataclass(frozen=True)
class Choice:
    """The device that docvino takes for a name, why (for AUTO), and the arithmetic it uses there by itself."""

    name: str
    why: str
    execution: ExecutionPrecision


@dataclass(frozen=True)
class OpenVino:
    """`problem`: why it cannot be imported; `gpu_trouble`: why its GPU plugin cannot be loaded.

    `chosen`: what docvino takes for a name such as AUTO or GPU, where there is a device for it.
    """

    version: str | None
    problem: str | None
    gpu_trouble: str | None
    devices: tuple[OpenVinoDevice, ...]
    chosen: Mapping[str, Choice]

    def device(self, name: str) -> OpenVinoDevice:
        return next(device for device in self.devices if device.name == name)


def read_openvino(facts: Mapping[str, Any]) -> OpenVino:
    devices = tuple(OpenVinoDevice(name, values) for name, values in facts["devices"].items())
    chosen = {wanted: Choice(**choice) for wanted, choice in facts["chosen"].items()}
    return OpenVino(facts["version"], facts["problem"], facts["gpu_trouble"], devices, chosen)


@dataclass(frozen=True)
class Context:
    """What a check may know. `stage` None: everything is looked at, and what is not there yet is a warning."""

    settings: Settings
    facts: Facts
    stage: Stage | None = None
    verbose: bool = False

    @property
    def wanted(self) -> dict[str, str]:
        """Devices that were asked for, in capitals, by what they are for; only stages with one of their own."""
        runtime = self.settings.runtime
        found = {"device asked for": runtime.device}
        for stage, own in (
            ("layout", runtime.layout_device),
            ("vision", runtime.vision_device),
            ("decoder", runtime.decoder_device),
        ):
            if own is not None:
                found[f"device for {stage}"] = own
        return {purpose: name.upper() for purpose, name in found.items()}

    def severity(self, family: str, otherwise: Status) -> Status:
        """fail when a device of that family was asked for by name and there is none."""
        names = [name for name in self.wanted.values() if name.split(".")[0] == family]
        if not names:
            return otherwise
        try:
            chosen = self.facts.openvino.chosen
        except Exception:  # noqa: BLE001 - OpenVINO has lines of its own; here only the wish counts
            return "fail"
        return otherwise if all(name in chosen for name in names) else "fail"


def look(
    section: str, name: str, checks: Callable[[], Iterable[Check]], limit_s: float = LIMIT_S, *, fails_with: int = 0
) -> list[Check]:
    """The checks; what raises or takes too long becomes one line that says so, after those that were done.

    fails_with   exit code, where nothing works without an answer; 0: the line is a warning
    """
    done: list[Check] = []
    problem: list[str] = []

    def work() -> None:
        try:
            for check in checks():
                done.append(check)
        except NoAnswerError as error:
            problem.append(str(error))
        except OSError as error:
            problem.append(error.strerror or str(error))
        except Exception as error:  # noqa: BLE001 - a check that fails is a line, never the end of the examination
            problem.append(f"{type(error).__name__}: {error}")

    # A thread that hangs in a system call cannot be ended, but it need not be waited for.
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(limit_s)
    if thread.is_alive():
        problem.append(f"no answer within {limit_s:g} s")
    if problem:
        status: Status = "fail" if fails_with else "warn"
        return [*done, Check(section, name, status, f"could not look: {problem[0]}", fix=REPORT, exit_code=fails_with)]
    return done
