"""Limits that a child process gives itself."""

from __future__ import annotations

import sys
from pathlib import Path

_UNKNOWN = 1 << 30  # address space of Python with its libraries, where the system does not tell


def limit_memory(memory_mib: int) -> None:
    """This process gets so much more address space than it has now, and leaves no core file; nothing on Windows."""
    if sys.platform == "win32":
        return
    import resource

    try:
        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        now = _UNKNOWN
    resource.setrlimit(resource.RLIMIT_AS, (now + (memory_mib << 20),) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def forbid_files() -> None:
    """This process can write to no file from now on; nothing on Windows."""
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
