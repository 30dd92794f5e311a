"""Child processes that end in time: run, log to a file, killed as a whole group."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_POLL_S = 0.1


def run_child(
    command: Sequence[str],
    log: Path,
    limit_s: float,
    environment: Mapping[str, str],
    meanwhile: Callable[[], None] = lambda: None,
) -> int | None:
    """The exit code, or None when the time was up; what the child said on both streams is in the file `log`.

    meanwhile   is called now and then while the child runs

    The child and its children are gone when this returns or raises. An exit code below 0 is the signal that ended it.

    Raises: OSError when the command cannot be started or the log cannot be written.
    """
    # A group of its own can be killed as one. Output goes to a file: a pipe could fill, or be held by a grandchild.
    with log.open("wb") as stream:
        if sys.platform == "win32":
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env=environment,
                creationflags=subprocess.CREATE_NEW_PROCESS_GROUP,
            )
        else:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        try:
            deadline = time.monotonic() + limit_s
            while time.monotonic() < deadline:
                # In small steps, because Windows does not let Ctrl-C interrupt a wait.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return process.wait(_POLL_S)
                meanwhile()
            return None
        finally:
            _kill_group(process)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Ends what is left of the group, also when its leader has ended and left children behind."""
    if sys.platform == "win32":
        if process.poll() is None:
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
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def ended(code: int | None, limit_s: float) -> str:
    """In words how a child ended that did not succeed: `was ended by SIGABRT`, `ended with exit code 255`."""
    if code is None:
        return f"did not finish within {limit_s:g} s and was stopped"
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
    if code > 0xFF:
        return f"ended with exit code {code:#x}"  # Windows: 0xc0000409 is its abort
    return f"ended with exit code {code}"
