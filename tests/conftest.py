"""What all tests share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from fake_core import FakeCore, FakeDevice

# Shared machines stall now and then: a deadline would fail tests for that.
settings.register_profile("docvino", deadline=None)
settings.load_profile("docvino")


@pytest.fixture(autouse=True)
def _own_settings(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests see no settings of the person who runs them, and write to none of their folders."""
    for variable in [name for name in os.environ if name.startswith("DOCVINO_") and name != "DOCVINO_TESTDATA"]:
        monkeypatch.delenv(variable)
    home = tmp_path_factory.getbasetemp() / "home"
    for variable in ("XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "LOCALAPPDATA", "APPDATA"):
        monkeypatch.setenv(variable, str(home / variable.lower()))


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are not wrapped and not coloured, wherever the tests run."""
    from docvino import cli_common

    for console in (cli_common.stdout, cli_common.stderr):
        monkeypatch.setattr(console, "width", 400)
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setenv("TERMINAL_WIDTH", "400")
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., FakeCore]]:
    """Makes this machine one with these devices beside its CPU."""
    import openvino as ov

    from docvino.device import cache, open_core
    from fake_core import FakeCore

    def built(*devices: FakeDevice) -> FakeCore:
        core = FakeCore(*devices)
        monkeypatch.setattr(ov, "Core", lambda: core)
        monkeypatch.setattr(ov, "RemoteTensor", ov.Tensor)
        open_core.cache_clear()
        cache._warn.cache_clear()
        return core

    yield built
    monkeypatch.undo()
    open_core.cache_clear()
