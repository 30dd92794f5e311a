"""Toolchains: isolated environments for Paddle's converters, under the data folder, run as child processes.

<data_dir>/toolchains/NAME is a virtual environment with the packages that `specs.toolchains` pins and a file
toolchain.json, which is written last: what has none is not installed. The environment is made under another name and
renamed, never touches the one docvino runs in, and sees nothing of it or of the user's own packages (python -I).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from docvino.bundle import building, write_json
from docvino.errors import ConfigError, ConvertError, FetchError, MissingExtraError
from docvino.fetch import find_pip
from docvino.process import ended, run_child
from docvino.settings import RuntimeConfig
from docvino.specs.toolchains import TOOLCHAINS, Toolchain, get_toolchain

MARKER = "toolchain.json"
SCRIPTS = Path(__file__).parent / "convert" / "paddle_scripts"

# pip's own time limits are per read, so a trickling index never reaches them. PaddlePaddle is 190 MB.
INSTALL_LIMIT_S = 1800.0
_PROBE_LIMIT_S = 120.0
_VENV_LIMIT_S = 180.0
_MESSAGE_CHARACTERS = 300
_Report = Callable[[str], None]


@dataclass(frozen=True)
class Installed:
    """One toolchain on this machine. `problem` is None when it can be used; "not installed" is a problem, too.

    versions   of every package in it, by name
    seconds    the installation took
    size_bytes after the installation
    """

    name: str
    title: str
    folder: str
    problem: str | None
    python: str = ""
    versions: Mapping[str, str] | None = None
    seconds: float | None = None
    size_bytes: int | None = None


def toolchain_folder(name: str, data_dir: Path) -> Path:
    return data_dir / "toolchains" / name


def list_toolchains(runtime: RuntimeConfig) -> list[Installed]:
    """Every toolchain that docvino knows, installed or not."""
    return [_state(toolchain, runtime) for toolchain in TOOLCHAINS.values()]


def is_installed(name: str, runtime: RuntimeConfig) -> bool:
    return _state(get_toolchain(name), runtime).problem is None


def versions(name: str, runtime: RuntimeConfig) -> dict[str, str]:
    """The pinned converters of an installed toolchain by package, e.g. {"paddle2onnx": "1.3.1"}."""
    found = _state(get_toolchain(name), runtime).versions or {}
    return {key: found[key] for key in ("paddle2onnx", "paddlepaddle", "onnx") if key in found}


def install(
    name: str,
    runtime: RuntimeConfig,
    *,
    python: Path | None = None,
    force: bool = False,
    report: _Report = lambda _: None,
) -> Installed:
    """Makes the environment with venv and pip, through this machine's own pip configuration.

    python   an interpreter to make it from; without it this one, or one on PATH whose version has wheels
    force    makes it again when it is there

    Raises: MissingExtraError when there is no fitting Python or no pip, FetchError when a package cannot be had,
    BundleError when the folder cannot be written, ConfigError for an unknown name or a `python` that does not fit.
    """
    toolchain = get_toolchain(name)
    there = _state(toolchain, runtime)
    if there.problem is None and not force:
        return there
    if runtime.offline:
        raise FetchError(
            f"toolchain {name} is not installed, and the network must not be used",
            fix=f"run once without offline: docvino toolchain install {name}",
        )
    interpreter = _interpreter(toolchain, python)
    report(f"{name}: {toolchain.title}; about {toolchain.download_mb} MB to download")
    started = time.perf_counter()
    folder = toolchain_folder(name, runtime.data_dir)
    with building(folder) as workspace, tempfile.TemporaryDirectory(prefix="docvino-toolchain-") as scratch:
        log = Path(scratch, "log")
        pip = _make_environment(interpreter, workspace, log, report)
        _pip_install(toolchain, [*pip, "install"], Path(scratch), report)
        found = _probe(toolchain, workspace, log)
        size = sum(path.lstat().st_size for path in workspace.rglob("*") if not path.is_dir())
        write_json(
            workspace / MARKER,
            {
                "requirements": toolchain.requirements,
                "python": found.pop("python"),
                "versions": found,
                "seconds": round(time.perf_counter() - started, 1),
                "size_bytes": size,
            },
        )
    return _state(toolchain, runtime)


def remove(name: str, runtime: RuntimeConfig) -> Path:
    """Deletes the environment and returns where it was.

    Raises: ConfigError when there is none, ConvertError when it cannot be deleted.
    """
    folder = toolchain_folder(get_toolchain(name).name, runtime.data_dir)
    if not folder.is_dir():
        raise ConfigError(f"toolchain {name} is not installed", fix="`docvino toolchain list` shows those that are")
    try:
        (folder / MARKER).unlink(missing_ok=True)  # first of all: half an environment must not count
        shutil.rmtree(folder)
    except OSError as error:
        raise ConvertError(f"cannot remove {folder}: {error.strerror}", fix="close programs that use it") from error
    return folder


def run(
    name: str,
    script: Path | str,
    arguments: Sequence[str | Path],
    runtime: RuntimeConfig,
    *,
    limit_s: float = 600.0,
) -> str:
    """Runs a Python file in a toolchain and returns what it said on both streams.

    script   the name of one of docvino's own scripts, or a path

    Raises: MissingExtraError when the toolchain is not installed; ConvertError when the process fails, is ended by a
    signal or does not finish in time, with the telling lines of what it said.
    """
    toolchain = get_toolchain(name)
    state = _state(toolchain, runtime)
    if state.problem is not None:
        raise MissingExtraError(
            f"toolchain {name} is needed ({toolchain.title}): {state.problem}",
            fix=f"docvino toolchain install {name}",
        )
    path = script if isinstance(script, Path) else SCRIPTS / script
    code, said = _python(Path(state.folder), [str(path), *map(str, arguments)], limit_s)
    if code != 0:
        raise ConvertError(
            f"{path.stem} in toolchain {name} {ended(code, limit_s)}{telling_lines(said)}",
            fix="see `docvino convert --help` for other roads and opsets, and `docvino inspect` for the model",
        )
    return said


def telling_lines(log: str) -> str:
    """`: ` and the lines of a converter's log that say why it failed, in one line; empty when it said nothing.

    The last lines that speak of an error, or else the very last ones. Colours, stacks and source positions are cut.
    """
    lines = [_POSITION.sub("", _COLOUR.sub("", line)).strip() for line in log.splitlines()]
    lines = [line for line in lines if line and not _NOISE.match(line)]
    errors = [line for line in lines if _ERROR.search(line)]
    kept = list(dict.fromkeys((errors or lines)[-2:]))
    text = " | ".join(kept)
    if len(text) > _MESSAGE_CHARACTERS:
        text = text[: _MESSAGE_CHARACTERS - 1] + "…"
    return f": {text}" if text else ""


_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_POSITION = re.compile(r"\s*\(at [^()]*:\d+\)|^\d{4}-\d\d-\d\d [\d:,.]+\s+|^[IWEF]\d{4} [\d:.]+\s+\d+ \S+\] ")
_NOISE = re.compile(r"^(Traceback|File \"|[-=~^ ]+$|\d+\s+\S+.*::|C\+\+ Traceback|warnings\.warn|\[operator <)")
_ERROR = re.compile(r"error|unimplemented|unsupported|not support|invalid|abort|fail|must|cannot|can't", re.IGNORECASE)


def _state(toolchain: Toolchain, runtime: RuntimeConfig) -> Installed:
    folder = toolchain_folder(toolchain.name, runtime.data_dir)
    base = Installed(toolchain.name, toolchain.title, str(folder), "not installed")
    try:
        marker = json.loads((folder / MARKER).read_text(encoding="utf-8"))
        found = Installed(
            **{
                **asdict(base),
                "problem": None,
                "python": str(marker["python"]),
                "versions": dict(marker["versions"]),
                "seconds": float(marker["seconds"]),
                "size_bytes": int(marker["size_bytes"]),
            }
        )
        pins = tuple(marker["requirements"])
    except FileNotFoundError:
        return base
    except (OSError, ValueError, KeyError, TypeError):
        return Installed(**{**asdict(base), "problem": f"{MARKER} is damaged"})
    problem = None
    if pins != toolchain.requirements:
        problem = "made by another version of docvino, with other pins"
    elif not _python_of(folder).exists():
        problem = f"the Python {found.python} that it was made from is gone"
    return Installed(**{**asdict(found), "problem": problem})


def _python_of(folder: Path) -> Path:
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _python(folder: Path, arguments: Sequence[str], limit_s: float) -> tuple[int | None, str]:
    """Exit code and output of the environment's Python. -I: no PYTHON* variable, no user site, no current folder."""
    with tempfile.TemporaryDirectory(prefix="docvino-toolchain-", ignore_cleanup_errors=True) as scratch:
        log = Path(scratch, "log")
        command = [str(_python_of(folder)), "-I", "-X", "utf8", *arguments]
        try:
            code = run_child(command, log, limit_s, _environment(Path(scratch)))
        except OSError as error:
            raise ConvertError(
                f"cannot run {command[0]}: {error.strerror or error}",
                fix=f"docvino toolchain install {folder.name} --force",
            ) from error
        return code, log.read_text(encoding="utf-8", errors="replace")


def _environment(scratch: Path) -> dict[str, str]:
    """The caller's variables without what would lead Python or pip astray."""
    # PIP_TARGET and its like would put packages elsewhere, PYTHON* would bring in others.
    astray = ("PYTHON", "VIRTUAL_ENV", "CONDA_", "__PYVENV", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_PYTHON")
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith(astray)}
    return kept | {
        "PIP_USER": "0",
        "PIP_REQUIRE_VIRTUALENV": "0",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
        "PIP_NO_COLOR": "1",
        # What a child leaves behind goes away with our folder, even when it is killed.
        "TMPDIR": str(scratch),
        "TEMP": str(scratch),
        "TMP": str(scratch),
    }


def _interpreter(toolchain: Toolchain, python: Path | None) -> Path:
    """An interpreter that the pinned wheels exist for."""
    wanted = ", ".join(f"{major}.{minor}" for major, minor in sorted(toolchain.pythons))
    if python is not None:
        version = _version_of(python)
        if version not in toolchain.pythons:
            found = "no Python that runs" if version is None else f"Python {version[0]}.{version[1]}"
            raise ConfigError(f"--python {python} is {found}", fix=f"toolchain {toolchain.name} needs Python {wanted}")
        return python
    # A frozen program is its own executable: it would run itself, not Python.
    if sys.version_info[:2] in toolchain.pythons and sys.executable and not getattr(sys, "frozen", False):
        return Path(sys.executable)
    for major, minor in toolchain.pythons:
        found_path = shutil.which(f"python{major}.{minor}")
        if found_path is not None and _version_of(Path(found_path)) == (major, minor):
            return Path(found_path)
    raise MissingExtraError(
        f"toolchain {toolchain.name} needs Python {wanted} (Paddle2ONNX has no wheels for others), "
        f"and this is {sys.version_info[0]}.{sys.version_info[1]}",
        fix=f"install one of them and name it: docvino toolchain install {toolchain.name} --python PATH",
    )


def _version_of(python: Path) -> tuple[int, int] | None:
    """Major and minor version; None when it does not run."""
    with tempfile.TemporaryDirectory(prefix="docvino-toolchain-", ignore_cleanup_errors=True) as scratch:
        log = Path(scratch, "log")
        command = [str(python), "-I", "-c", "import sys; print('version', *sys.version_info[:2])"]
        try:
            run_child(command, log, 30.0, _environment(Path(scratch)))
            said = log.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
    match = re.search(r"^version (\d+) (\d+)", said, re.MULTILINE)
    return (int(match.group(1)), int(match.group(2))) if match else None


def _make_environment(interpreter: Path, folder: Path, log: Path, report: _Report) -> list[str]:
    """Makes the virtual environment and returns the command of a pip that installs into it."""
    environment = _environment(log.parent)
    code: int | None = None
    for options in ([], ["--without-pip"]):  # Debian's Python has no ensurepip of its own: the found pip helps out
        command = [str(interpreter), "-I", "-m", "venv", "--clear", *options, str(folder)]
        try:
            code = run_child(command, log, _VENV_LIMIT_S, environment)
        except OSError as error:
            raise ConfigError(
                f"cannot run {interpreter}: {error.strerror or error}", fix="name another Python"
            ) from error
        if code == 0:
            report(f"environment of {interpreter}")
            if not options:
                return [str(_python_of(folder)), "-I", "-m", "pip"]
            pip, origin = find_pip()
            report(f"pip: {origin}")
            return [*pip, "--python", str(_python_of(folder))]
    said = log.read_text(encoding="utf-8", errors="replace")
    raise MissingExtraError(
        f"venv of {interpreter} {ended(code, _VENV_LIMIT_S)}{telling_lines(said)}",
        fix="install Python's venv module (Debian: apt install python3-venv), or name another Python with --python",
    )


def _pip_install(toolchain: Toolchain, pip: list[str], scratch: Path, report: _Report) -> None:
    log = scratch / "log"
    # Every package is pinned, so nothing is resolved; wheels only, so nothing is built or run.
    options = ["--no-deps", "--only-binary=:all:", "--no-compile", "--progress-bar=off"]
    report(f"installing {', '.join(toolchain.requirements[:2])} and {len(toolchain.requirements) - 2} more with pip")
    try:
        code = run_child([*pip, *options, *toolchain.requirements], log, INSTALL_LIMIT_S, _environment(scratch))
    except OSError as error:
        raise FetchError(
            f"pip could not be run: {error.strerror or error}",
            fix=f"check that this works: {' '.join(pip[:-1])} --version",
        ) from error
    if code == 0:
        return
    said = _CREDENTIALS.sub("****@", log.read_text(encoding="utf-8", errors="replace"))
    lines = "\n".join(line for line in said.splitlines() if not line.startswith(("WARNING", "DEPRECATION", "[notice]")))
    cause = f"toolchain {toolchain.name}: pip {ended(code, INSTALL_LIMIT_S)}{telling_lines(lines)}"
    if "no such option: --python" in said:
        raise MissingExtraError(cause, fix="this pip is too old: pip install -U 'pip>=22.3'")
    if "No space left" in said or "Errno 28" in said:
        raise FetchError(cause, fix="free some space, or choose another folder with --data-dir")
    raise FetchError(cause, fix="check network, proxy, index and constraints (`pip config list`)")


_CREDENTIALS = re.compile(r"(?<=://)[^/\s'\"]*@")


def _probe(toolchain: Toolchain, folder: Path, log: Path) -> dict[str, str]:
    """Versions of all packages, and of Python, after a first import of what conversions need."""
    code, said = _python(folder, [str(SCRIPTS / "probe.py"), *toolchain.modules], _PROBE_LIMIT_S)
    log.write_text(said, encoding="utf-8")
    if code != 0:
        raise FetchError(
            f"toolchain {toolchain.name} was installed and does not work: it {ended(code, _PROBE_LIMIT_S)}"
            f"{telling_lines(said)}",
            fix="another Python may do: docvino toolchain install --python PATH",
        )
    found: dict[str, str] = json.loads(said.strip().splitlines()[-1])
    return found
