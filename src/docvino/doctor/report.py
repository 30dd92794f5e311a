"""One file for a bug report: the checks, the versions, the settings, and what was read of the machine.

Nothing in it names a person, a computer or a folder of theirs. `docvino.machine.border.Recorded` takes its `readings`,
so that whoever gets the file can look at that machine as the doctor did.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import platform
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from docvino import __version__
from docvino.doctor.check import Check
from docvino.errors import ConfigError
from docvino.machine.border import Machine
from docvino.machine.drivers import read_packages
from docvino.settings import HUBS, Settings

# Where systems keep their own things: nothing below these names a person.
_SYSTEM = (
    *("bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "sys", "usr"),
    *("opt/intel", "run/.containerenv", ".dockerenv"),
)
_UNIX_PATH = re.compile(r"(?<![\w.~:/)])/(?:[^\s\"'`,;:()<>\[\]{}|]+)")
_WINDOWS_PATH = re.compile(r"\b[A-Za-z]:\\(?:[^\s\"'`,;:()<>\[\]{}|]+)")
_HOMES = re.compile(r"(?:/home/|/Users/|\b[A-Za-z]:\\Users\\)[^/\\\s\"']+")
# Names that say nothing about anybody, and occur in versions and paths.
_COMMON = {
    "root",
    "user",
    "admin",
    "intel",
    "ubuntu",
    "debian",
    "fedora",
    "docvino",
    "localhost",
    "vm",
    "python",
    "test",
}
_SHORTEST = 3

Hide = Callable[[str], str]


def hider(settings: Settings) -> Hide:
    """What takes names of people, computers and their folders out of a text."""
    known: list[tuple[str, str]] = []
    for name, origin in settings.origins.items():
        if isinstance(origin.value, Path) and origin.source != "default":
            known.append((str(origin.value), f"({name})"))
        if name == "mirrors" and isinstance(origin.value, tuple):
            hosts = [urlsplit(mirror).netloc for mirror in origin.value if mirror not in HUBS]
            known += [(host, "(mirror)") for host in hosts if host]
        if " " in origin.source:  # "file …": where the settings file is
            known.append((origin.source.partition(" ")[2], "(settings file)"))
    known.append((os.path.expanduser("~"), "~"))  # noqa: PTH111 - Path.home raises where there is none
    known = sorted(
        ((text, put) for text, put in known if len(text) >= _SHORTEST and not text.startswith("--")), reverse=True
    )
    words = [word for word in _own_names() if len(word) >= _SHORTEST and word.lower() not in _COMMON]
    names = (
        re.compile("|".join(rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])" for word in words)) if words else None
    )

    def hide(text: str) -> str:
        for private, put in known:
            text = text.replace(private, put)
        text = _HOMES.sub("~", text)
        text = _UNIX_PATH.sub(_unless_of_the_system, text)
        text = _WINDOWS_PATH.sub(_unless_of_windows, text)
        return names.sub("(name)", text) if names else text

    return hide


def _own_names() -> list[str]:
    found = [platform.node(), platform.node().split(".")[0]]
    for name in ("USER", "USERNAME", "LOGNAME", "COMPUTERNAME", "HOSTNAME", "USERDOMAIN"):
        found.append(os.environ.get(name, ""))
    with contextlib.suppress(KeyError, ImportError, OSError):  # which of them differs by release and system
        found.append(getpass.getuser())
    return sorted(set(found), key=len, reverse=True)


def _unless_of_the_system(found: re.Match[str]) -> str:
    path = found.group(0)
    parts = path.lstrip("/")
    of_system = any(parts == name or parts.startswith(name + "/") for name in _SYSTEM)
    # A virtual environment or a user's build may lie anywhere.
    return path if of_system and "site-packages" not in path and "/local/" not in path else "(path)"


def _unless_of_windows(found: re.Match[str]) -> str:
    return found.group(0) if found.group(0)[2:].lower().startswith((r"\windows", r"\program files")) else "(path)"


def hide_all(value: Any, hide: Hide) -> Any:
    """The same JSON with every text in it, keys too, gone over."""
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, Mapping):
        return {hide(str(key)): hide_all(item, hide) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [hide_all(item, hide) for item in value]
    return value


def versions(machine: Machine) -> dict[str, str]:
    """Versions of everything below docvino: Python packages and what the system's package manager has of Intel's.

    What is missing is left out, so that two machines can be compared line by line.
    """
    names = ("openvino", "numpy", "opencv-python-headless", "pillow", "pypdfium2", "pydantic", "tokenizers")
    found = {name: version for name in names if (version := machine.package(name)) is not None}
    return {**found, **read_packages(machine).versions}


def summary(checks: Sequence[Check], settings: Settings, packages: Mapping[str, str]) -> dict[str, Any]:
    """What `docvino doctor --json` prints. Settings are as the user gave them; a password is not in them."""
    return {
        "docvino": __version__,
        "checks": [asdict(check) for check in checks],
        "packages": dict(packages),
        "settings": {
            name: {"value": origin.value, "origin": origin.source} for name, origin in settings.origins.items()
        },
    }


def write_report(
    path: Path,
    checks: Iterable[Check],
    settings: Settings,
    packages: Mapping[str, str],
    readings: Mapping[str, Any],
) -> None:
    """Writes the file.

    Raises: ConfigError when it cannot be written.
    """
    whole = {**summary(list(checks), settings, packages), "readings": readings}
    plain = json.loads(json.dumps(whole, default=str))
    text = json.dumps(hide_all(plain, hider(settings)), ensure_ascii=False, indent=1)
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}", fix="name another file") from error
