"""Facts of what the command line shows while it reads: bars on a terminal, lines elsewhere."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from docvino import cli_common, cli_progress
from docvino.cli_progress import loading, page_bar


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
