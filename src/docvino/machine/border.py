"""The border to the machine: files, commands, the registry, OpenVINO and the drivers are asked here and nowhere else.

`ThisMachine` asks the real one. `Recorded` answers from a recording, which is how tests have machines that nobody has
here, and how the report of a stranger is looked at. `Recording` passes questions on and keeps the answers.

Whatever may crash or hang (drivers, OpenVINO) is asked in a child process with a time limit.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any, Literal, Protocol, cast

from docvino.process import ended, run_child

Question = Literal["drivers", "openvino", "load"]
ANSWER = "docvino-answer "  # what the line of a child begins with that is its answer
COMMAND_LIMIT_S = 15.0
# Run by their names, each in a process of its own.
MODULES: Mapping[Question, str] = {
    "drivers": "docvino.machine.ask_drivers",
    "openvino": "docvino.doctor.ask_openvino",
    "load": "docvino.machine.ask_load",
}
LIMITS_S: Mapping[Question, float] = {"drivers": 60.0, "openvino": 60.0, "load": 90.0}
TEXT_LIMIT_BYTES = 16 << 10  # of /proc/cpuinfo the first processors, of other files all
_SAMPLE_S = 0.1


class NoAnswerError(Exception):
    """A child that crashed, took too long, or said nothing that can be understood. The message says which."""


@dataclass(frozen=True)
class Node:
    """A device node. `usable`: this process may read and write it. `member`: this user's place in its group."""

    group: str
    usable: bool
    member: Literal["session", "listed", "no"]


@dataclass(frozen=True)
class Ran:
    """`code` is the exit code, None when the time was up; `output` is both streams."""

    code: int | None
    output: str


@dataclass(frozen=True)
class Python:
    version: str
    implementation: str
    bits: int
    environment: bool


@dataclass(frozen=True)
class Disk:
    free_bytes: int
    writable: bool


@dataclass(frozen=True)
class Answer:
    """`facts` as the child printed them; `said` are its other lines (drivers print warnings).

    `seen`: the values that watched files had meanwhile, in order, without those that could not be read.
    """

    facts: Mapping[str, Any]
    said: tuple[str, ...] = ()
    seen: Mapping[str, tuple[str, ...]] | None = None


class Machine(Protocol):
    """Paths are POSIX paths as on Linux; registry keys are below HKEY_LOCAL_MACHINE.

    What is absent is None or empty. What is there and cannot be read raises OSError.
    """

    system: str
    """Linux, Windows or Darwin."""
    architecture: str
    """x86_64 or AMD64, for example."""

    def text(self, path: str) -> str | None:
        """The first 16 KiB of a file, stripped."""

    def names(self, folder: str) -> tuple[str, ...]:
        """What is in a folder, sorted."""

    def node(self, path: str) -> Node | None: ...

    def variable(self, name: str) -> str | None:
        """A variable of the environment."""

    def run(self, command: Sequence[str]) -> Ran | None:
        """Runs a command for at most 15 s; None when there is no such command."""

    def registry(self, key: str) -> Mapping[str, str | int] | None:
        """The values of a key; binary ones of 4 or 8 bytes as little-endian numbers, others left out."""

    def registry_keys(self, key: str) -> tuple[str, ...]: ...

    def on_battery(self) -> bool | None:
        """Windows only; None when unknown."""

    def python(self) -> Python: ...

    def package(self, name: str) -> str | None:
        """The version of an installed Python package."""

    def requirements(self) -> tuple[str, ...]:
        """What the installed docvino asks for, as in `openvino<2027,>=2026.2`."""

    def disk(self, folder: Path) -> Disk:
        """Of the folder, or of the nearest one above that exists."""

    def ask(self, question: Question, *arguments: str, watch: Sequence[str] = ()) -> Answer:
        """Raises: NoAnswerError."""


class ThisMachine:
    """The machine that docvino runs on."""

    def __init__(self) -> None:
        self.system = platform.system()
        self.architecture = platform.machine()

    def text(self, path: str) -> str | None:
        try:
            with Path(path).open("rb") as stream:
                return stream.read(TEXT_LIMIT_BYTES).decode("utf-8", "replace").strip("\0 \t\r\n")
        except (FileNotFoundError, NotADirectoryError):
            return None

    def names(self, folder: str) -> tuple[str, ...]:
        try:
            return tuple(sorted(entry.name for entry in Path(folder).iterdir()))
        except (FileNotFoundError, NotADirectoryError):
            return ()

    def node(self, path: str) -> Node | None:
        if sys.platform == "win32":
            return None
        import grp
        import pwd

        try:
            found = Path(path).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        group, members = str(found.st_gid), []
        with contextlib.suppress(KeyError):  # a container often has no name for it
            entry = grp.getgrgid(found.st_gid)
            group, members = entry.gr_name, entry.gr_mem
        user = ""
        with contextlib.suppress(KeyError):
            user = pwd.getpwuid(os.geteuid()).pw_name
        in_session = found.st_gid in (os.getegid(), *os.getgroups())
        member: Literal["session", "listed", "no"] = (
            "session" if in_session else "listed" if user and user in members else "no"
        )
        return Node(group, os.access(path, os.R_OK | os.W_OK), member)

    def variable(self, name: str) -> str | None:
        return os.environ.get(name)

    def run(self, command: Sequence[str]) -> Ran | None:
        found = shutil.which(command[0])
        if found is None:
            return None
        with _log_file() as log:
            # The language of messages is fixed; the rest of the environment is the user's.
            code = run_child([found, *command[1:]], log, COMMAND_LIMIT_S, {**os.environ, "LC_ALL": "C"})
            return Ran(code, log.read_text(encoding="utf-8", errors="replace"))

    def registry(self, key: str) -> Mapping[str, str | int] | None:
        if sys.platform != "win32":
            return None
        import winreg

        try:
            with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, key) as handle:
                values: dict[str, str | int] = {}
                for index in range(winreg.QueryInfoKey(handle)[1]):
                    name, data, _ = winreg.EnumValue(handle, index)
                    if (value := registry_value(data)) is not None:
                        values[name] = value
                return values
        except FileNotFoundError:
            return None

    def registry_keys(self, key: str) -> tuple[str, ...]:
        if sys.platform != "win32":
            return ()
        import winreg

        try:
            with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, key) as handle:
                return tuple(winreg.EnumKey(handle, index) for index in range(winreg.QueryInfoKey(handle)[0]))
        except FileNotFoundError:
            return ()

    def on_battery(self) -> bool | None:
        if sys.platform != "win32":
            return None
        import ctypes

        buffer = ctypes.create_string_buffer(12)  # SYSTEM_POWER_STATUS: its first byte is ACLineStatus
        if not ctypes.windll.kernel32.GetSystemPowerStatus(buffer):
            return None
        return {0: True, 1: False}.get(buffer.raw[0])

    def python(self) -> Python:
        return Python(
            platform.python_version(),
            platform.python_implementation(),
            8 * struct.calcsize("P"),
            sys.prefix != sys.base_prefix,
        )

    def package(self, name: str) -> str | None:
        try:
            return version(name)
        except PackageNotFoundError:
            return None

    def requirements(self) -> tuple[str, ...]:
        try:
            return tuple(requires("docvino") or ())
        except PackageNotFoundError:
            return ()

    def disk(self, folder: Path) -> Disk:
        there = next(parent for parent in (folder, *folder.parents) if os.path.exists(parent))  # noqa: PTH110 - Path.exists raises where the folder above may not be entered
        return Disk(shutil.disk_usage(there).free, os.access(there, os.W_OK))

    def ask(self, question: Question, *arguments: str, watch: Sequence[str] = ()) -> Answer:
        command = [sys.executable, "-m", MODULES[question], *arguments]
        limit_s = LIMITS_S[question]
        with _log_file() as log, _watching(self.text, watch) as seen:
            code = run_child(command, log, limit_s, {**os.environ, "PYTHONIOENCODING": "utf-8"})
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        answers = [line.removeprefix(ANSWER) for line in lines if line.startswith(ANSWER)]
        said = tuple(line.strip() for line in lines if line.strip() and not line.startswith(ANSWER))
        if not answers:
            last = f": {said[-1]}" if said and code not in (None, 0) else ""
            raise NoAnswerError(f"the process that asked {ended(code, limit_s)}{last}")
        # A driver may crash while its process ends: what was found out before stands.
        return Answer(json.loads(answers[-1]), said, {path: tuple(values) for path, values in seen.items()})


class Recorded:
    """A machine of answers: `Recording.readings`, or a part of them. What is not in it is absent.

    files       path -> text; a value of {"error": "…"} raises OSError
    folders     path -> names; what is missing here follows from the paths of files and nodes
    nodes       path -> {"group", "usable", "member"}
    variables   name -> value
    commands    words joined by blanks -> {"code", "output"}
    registry    key -> values
    answers     question and arguments joined by blanks -> {"facts", "said", "seen"} or {"crashed": "…"}
    python, packages, requirements, disk, system, architecture, on_battery
    """

    def __init__(self, readings: Mapping[str, Any]) -> None:
        self._readings = readings
        self.system = str(readings.get("system", "Linux"))
        self.architecture = str(readings.get("architecture", "x86_64"))

    def _part(self, name: str) -> Mapping[str, Any]:
        return cast("Mapping[str, Any]", self._readings.get(name, {}))

    def text(self, path: str) -> str | None:
        found = self._part("files").get(path)
        if isinstance(found, Mapping):
            raise OSError(found["error"])
        return found

    def names(self, folder: str) -> tuple[str, ...]:
        if folder in self._part("folders"):
            return tuple(self._part("folders")[folder])
        start = folder.rstrip("/") + "/"
        paths = (*self._part("files"), *self._part("nodes"))
        return tuple(sorted({path[len(start) :].split("/")[0] for path in paths if path.startswith(start)}))

    def node(self, path: str) -> Node | None:
        found = self._part("nodes").get(path)
        return None if found is None else Node(**found)

    def variable(self, name: str) -> str | None:
        return self._part("variables").get(name)

    def run(self, command: Sequence[str]) -> Ran | None:
        found = self._part("commands").get(" ".join(command))
        return None if found is None else Ran(**found)

    def registry(self, key: str) -> Mapping[str, str | int] | None:
        return self._part("registry").get(key)

    def registry_keys(self, key: str) -> tuple[str, ...]:
        start = key + "\\"
        return tuple(sorted({k[len(start) :].split("\\")[0] for k in self._part("registry") if k.startswith(start)}))

    def on_battery(self) -> bool | None:
        return self._readings.get("on_battery")

    def python(self) -> Python:
        return Python(**self._readings["python"])

    def package(self, name: str) -> str | None:
        return self._part("packages").get(name)

    def requirements(self) -> tuple[str, ...]:
        return tuple(self._readings.get("requirements", ()))

    def disk(self, folder: Path) -> Disk:  # noqa: ARG002 - a recording has one disk
        return Disk(**self._readings["disk"])

    def ask(self, question: Question, *arguments: str, watch: Sequence[str] = ()) -> Answer:  # noqa: ARG002 - as seen then
        found = self._part("answers").get(" ".join((question, *arguments)))
        if found is None:
            raise NoAnswerError("the recording has no answer")
        if "crashed" in found:
            raise NoAnswerError(found["crashed"])
        seen = {path: tuple(values) for path, values in found.get("seen", {}).items()}
        return Answer(found["facts"], tuple(found.get("said", ())), seen)


class Recording:
    """Passes every question on to `machine` and keeps what it answered in `readings`, for `Recorded`."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.system = machine.system
        self.architecture = machine.architecture
        self.readings: dict[str, Any] = {"system": self.system, "architecture": self.architecture}

    def _keep(self, part: str, key: str, value: Any) -> None:
        if value is not None:
            self.readings.setdefault(part, {})[key] = value

    def text(self, path: str) -> str | None:
        try:
            found = self._machine.text(path)
        except OSError as error:
            self._keep("files", path, {"error": error.strerror or str(error)})
            raise
        self._keep("files", path, found)
        return found

    def names(self, folder: str) -> tuple[str, ...]:
        found = self._machine.names(folder)
        self._keep("folders", folder, list(found))
        return found

    def node(self, path: str) -> Node | None:
        found = self._machine.node(path)
        self._keep("nodes", path, found and asdict(found))
        return found

    def variable(self, name: str) -> str | None:
        found = self._machine.variable(name)
        self._keep("variables", name, found)
        return found

    def run(self, command: Sequence[str]) -> Ran | None:
        found = self._machine.run(command)
        self._keep("commands", " ".join(command), found and asdict(found))
        return found

    def registry(self, key: str) -> Mapping[str, str | int] | None:
        found = self._machine.registry(key)
        self._keep("registry", key, found and dict(found))
        return found

    def registry_keys(self, key: str) -> tuple[str, ...]:
        return self._machine.registry_keys(key)

    def on_battery(self) -> bool | None:
        found = self._machine.on_battery()
        self.readings["on_battery"] = found
        return found

    def python(self) -> Python:
        found = self._machine.python()
        self.readings["python"] = asdict(found)
        return found

    def package(self, name: str) -> str | None:
        found = self._machine.package(name)
        self._keep("packages", name, found)
        return found

    def requirements(self) -> tuple[str, ...]:
        self.readings["requirements"] = list(self._machine.requirements())
        return tuple(self.readings["requirements"])

    def disk(self, folder: Path) -> Disk:
        found = self._machine.disk(folder)
        self.readings["disk"] = asdict(found)
        return found

    def ask(self, question: Question, *arguments: str, watch: Sequence[str] = ()) -> Answer:
        key = " ".join((question, *arguments))
        try:
            found = self._machine.ask(question, *arguments, watch=watch)
        except NoAnswerError as error:
            self._keep("answers", key, {"crashed": str(error)})
            raise
        self._keep("answers", key, asdict(found))
        return found


def registry_value(data: object) -> str | int | None:
    """What a registry value means: QWORDs come as numbers or as 8 bytes, by driver; other binary data is dropped."""
    if isinstance(data, (str, int)):
        return data
    if isinstance(data, bytes) and len(data) in (4, 8):
        return int.from_bytes(data, "little")
    return None


@contextlib.contextmanager
def _log_file() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="docvino-", ignore_cleanup_errors=True) as folder:
        yield Path(folder) / "log"


@contextlib.contextmanager
def _watching(read: Callable[[str], str | None], paths: Sequence[str]) -> Iterator[dict[str, list[str]]]:
    """Reads the files again and again until the block ends."""
    seen: dict[str, list[str]] = {path: [] for path in paths}
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            for path in paths:
                with contextlib.suppress(OSError):
                    if (value := read(path)) is not None:
                        seen[path].append(value)
            time.sleep(_SAMPLE_S)

    if not paths:
        yield seen
        return
    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join(2.0)
