"""What all tests share."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _own_settings(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests see no settings of the person who runs them, and write to none of their folders."""
    for variable in [name for name in os.environ if name.startswith("DOCVINO_") and name != "DOCVINO_TESTDATA"]:
        monkeypatch.delenv(variable)
    home = tmp_path_factory.getbasetemp() / "home"
    for variable in ("XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "LOCALAPPDATA", "APPDATA"):
        monkeypatch.setenv(variable, str(home / variable.lower()))
