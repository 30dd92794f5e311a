"""Facts of child processes: output, exit codes, time limits, whole groups."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from docvino.process import ended, run_child

ENVIRONMENT = {**os.environ, "PYTHONIOENCODING": "utf-8"}


def run(code: str, tmp_path: Path, limit_s: float = 60) -> tuple[int | None, str]:
    log = tmp_path / "log"
    result = run_child([sys.executable, "-c", code], log, limit_s, ENVIRONMENT)
    return result, log.read_text(encoding="utf-8")


def test_both_streams_go_to_the_log_and_the_exit_code_comes_back(tmp_path: Path) -> None:
    code = "import sys; print('one', flush=True); print('two', file=sys.stderr); sys.exit(7)"
    assert run(code, tmp_path) == (7, f"one{os.linesep}two{os.linesep}")


def test_a_child_that_hangs_is_killed_with_its_children_when_the_time_is_up(tmp_path: Path) -> None:
    mark = tmp_path / "alive"
    grandchild = f"import time, pathlib\nwhile True: pathlib.Path({str(mark)!r}).write_text('x'); time.sleep(0.05)"
    code = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {grandchild!r}]); time.sleep(60)"
    started = time.monotonic()
    assert run(code, tmp_path, 2.0)[0] is None
    assert time.monotonic() - started < 20
    assert mark.exists()
    time.sleep(0.3)
    mark.unlink()
    time.sleep(0.5)
    assert not mark.exists()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no groups to kill once the leader is gone")
def test_children_left_behind_by_a_child_that_ended_are_killed_as_well(tmp_path: Path) -> None:
    mark = tmp_path / "alive"
    grandchild = f"import time, pathlib\nwhile True: pathlib.Path({str(mark)!r}).write_text('x'); time.sleep(0.05)"
    code = f"""
import pathlib, subprocess, sys, time
subprocess.Popen([sys.executable, '-c', {grandchild!r}])
while not pathlib.Path({str(mark)!r}).exists(): time.sleep(0.05)
"""
    assert run(code, tmp_path)[0] == 0
    mark.unlink(missing_ok=True)
    time.sleep(0.5)
    assert not mark.exists()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no signals")
def test_a_child_that_aborts_is_said_to_be_ended_by_its_signal(tmp_path: Path) -> None:
    code, _ = run("import os; os.abort()", tmp_path)
    assert ended(code, 1) == "was ended by SIGABRT"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (255, "ended with exit code 255"),
        (None, "did not finish within 600 s and was stopped"),
        (0xC0000409, "ended with exit code 0xc0000409"),
    ],
)
def test_each_end_has_its_words(code: int | None, words: str) -> None:
    assert ended(code, 600) == words


def test_a_command_that_is_not_there_raises(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        run_child([str(tmp_path / "nowhere")], tmp_path / "log", 5, ENVIRONMENT)
