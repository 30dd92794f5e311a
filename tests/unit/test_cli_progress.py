"""Facts of what the command line shows while it reads: bars on a terminal, lines elsewhere."""

from __future__ import annotations

import io
import re
import time

import pytest
from rich.console import Console

from docvino import cli_common, cli_progress
from docvino.cli_progress import fetch_progress, loading, page_bar
from docvino.hub import Progress as FetchProgress


def console(monkeypatch: pytest.MonkeyPatch, *, terminal: bool) -> io.StringIO:
    """What is written to standard error from now on."""
    stream = io.StringIO()
    made = Console(file=stream, force_terminal=terminal, width=100, highlight=False)
    for module in (cli_progress, cli_common):
        monkeypatch.setattr(module, "stderr", made)
    return stream


def test_a_terminal_shows_pages_and_the_steps_of_the_present_one_and_is_clean_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = console(monkeypatch, terminal=True)
    with page_bar(3) as (page_done, within_page):
        within_page(5, 16)
        page_done(1, 3)
    assert "steps of this page" in stream.getvalue()
    assert "1/3" in stream.getvalue()
    assert stream.getvalue().rstrip().endswith("\x1b[2K")  # the bars' lines are wiped


def test_elsewhere_a_line_within_a_page_comes_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = console(monkeypatch, terminal=False)
    with page_bar(3) as (page_done, within_page):
        within_page(5, 16)
        assert stream.getvalue() == ""
        monkeypatch.setattr(cli_progress, "LINE_EVERY_S", 0.0)
        within_page(6, 16)
        page_done(1, 3)
    assert stream.getvalue() == "this page: 6 of 16 steps\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_what_is_being_loaded_is_said_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    stream = console(monkeypatch, terminal=terminal)
    with loading("paddleocr-vl-1.6"):
        pass
    assert ("loading paddleocr-vl-1.6" in stream.getvalue()) == terminal


def test_fetching_shows_the_file_and_no_time_that_small_files_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = console(monkeypatch, terminal=True)
    with fetch_progress("paddleocr-vl-1.6") as tell:
        tell(FetchProgress("config.json", 10, 2_000_000_000))
        time.sleep(0.2)
        tell(FetchProgress("PP-DocLayoutV2/inference.pdmodel", 20, 2_000_000_000))
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue()).splitlines()
    assert "inference.pdmodel" in lines[-1]
    assert "PP-DocLayoutV2" not in lines[-1]
    assert re.search(r"\d:\d\d", lines[-1]) is None  # two GB at 100 bytes a second
    assert all(len(line) <= 100 for line in lines)


def test_fetching_without_a_terminal_says_now_and_then_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = console(monkeypatch, terminal=False)
    monkeypatch.setattr(cli_progress, "LINE_EVERY_S", 0.0)
    with fetch_progress("toy") as tell:
        tell(FetchProgress("weights.bin", 2_500_000, 1_900_000_000))
    assert stream.getvalue() == "toy/weights.bin: 2.5 MB of 1.90 GB of all files\n"
