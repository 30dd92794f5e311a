"""The file for a bug report: everything that is needed, and nobody's name."""

from __future__ import annotations

import getpass
import json
import platform
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import machines
from docvino.doctor import report
from docvino.doctor.examine import examine
from docvino.doctor.report import hide_all, hider, versions, write_report
from docvino.errors import ConfigError
from docvino.machine.border import Recorded, Recording
from docvino.settings import Settings, resolve

PERSON, COMPUTER = "zoe.schmidt", "zoes-laptop"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The settings of somebody who uses folders and mirrors of her own."""
    monkeypatch.setenv("HOME", f"/home/{PERSON}")
    monkeypatch.setenv("USERPROFILE", f"/home/{PERSON}")
    for name in ("USER", "LOGNAME", "USERNAME"):
        monkeypatch.setenv(name, PERSON)
    monkeypatch.setattr(platform, "node", lambda: COMPUTER)
    monkeypatch.setattr(getpass, "getuser", lambda: PERSON)
    config = tmp_path / "Acme Corp" / "docvino.toml"
    config.parent.mkdir()
    config.write_text("max_rows = 4\n", encoding="utf-8")
    return resolve(
        {"data_dir": Path("/srv/Acme Corp/models"), "mirrors": "https://models.acme.example/x", "device": "GPU"},
        config_file=config,
    )


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("/home/zoe.schmidt/.cache/docvino", "~/.cache/docvino"),
        ("/home/other/x", "~/x"),
        (r"C:\Users\Zoe\AppData\Local\docvino", r"~\AppData\Local\docvino"),
        ("/srv/Acme Corp/models, 3 GiB free", "(data_dir), 3 GiB free"),
        ("https://models.acme.example/x", "https://(mirror)/x"),
        ("log in as zoe.schmidt at zoes-laptop", "log in as (name) at (name)"),
        ("/mnt/zoe/secret/file.txt is missing", "(path) is missing"),
        (r"D:\Zoe\file.txt is missing", "(path) is missing"),
        ('Cannot load library "/opt/venvs/acme/lib/python3/site-packages/x.so"', 'Cannot load library "(path)"'),
        # Things of the system stay: they are what a report is for.
        ("/sys/bus/pci/devices/0000:03:00.0/vendor", "/sys/bus/pci/devices/0000:03:00.0/vendor"),
        ("/usr/lib/x86_64-linux-gnu/intel-opencl/libigdrcl.so", "/usr/lib/x86_64-linux-gnu/intel-opencl/libigdrcl.so"),
        ("/dev/dri/renderD128 belongs to group render", "/dev/dri/renderD128 belongs to group render"),
        (r"C:\Windows\System32\OpenCL.dll", r"C:\Windows\System32\OpenCL.dll"),
        ("i915 and xe; 26.14/2.32 of 16 GiB", "i915 and xe; 26.14/2.32 of 16 GiB"),
    ],
)
def test_people_computers_and_their_folders_are_taken_out(settings: Settings, text: str, hidden: str) -> None:
    assert hider(settings)(text) == hidden


def test_names_that_everybody_has_stay(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("intel", "user"):
        monkeypatch.setattr(getpass, "getuser", lambda name=name: name)
        monkeypatch.setenv("USER", name)
        assert hider(settings)(f"{name}-opencl-icd") == f"{name}-opencl-icd"


def test_keys_are_gone_over_like_values(settings: Settings) -> None:
    hidden = hide_all({"/home/zoe.schmidt/x": ["zoes-laptop", 1, None, True]}, hider(settings))
    assert hidden == {"~/x": ["(name)", 1, None, True]}


def test_hiding_twice_changes_nothing_more(settings: Settings) -> None:
    hide = hider(settings)

    @given(st.text(max_size=100))
    def twice(text: str) -> None:
        assert hide(hide(text)) == hide(text)

    twice()


@pytest.mark.parametrize("name", sorted(machines.MACHINES))
def test_a_report_holds_what_is_needed_and_names_nobody(name: str, settings: Settings, tmp_path: Path) -> None:
    readings = machines.MACHINES[name]()
    readings["variables"] = {"OCL_ICD_VENDORS": "/etc/OpenCL/vendors", "container": f"/home/{PERSON}/box"}
    machine = Recording(Recorded(readings))
    checks = list(examine(settings, machine))
    path = tmp_path / "report.json"
    write_report(path, checks, settings, versions(machine), machine.readings)
    text = path.read_text(encoding="utf-8")
    for private in (PERSON, COMPUTER, "Acme", "acme", str(tmp_path), "/home/", "zoe"):
        assert private not in text, private
    written = json.loads(text)
    assert [check["name"] for check in written["checks"]] == [check.name for check in checks]
    assert written["packages"]["openvino"] == "2026.4.1"
    assert written["settings"]["max_rows"] == {"value": 4, "origin": "file (settings file)"}
    # Whoever gets the file sees the same machine.
    again = list(examine(resolve({"device": "GPU"}), Recorded(written["readings"])))
    before = [(c.name, c.status) for c in checks if c.section not in ("docvino",)]
    assert [(c.name, c.status) for c in again if c.section not in ("docvino",)] == before


def test_a_report_that_cannot_be_written_is_an_error_with_its_fix(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot write") as caught:
        write_report(tmp_path / "nowhere" / "report.json", [], settings, {}, {})
    assert caught.value.fix == "name another file"


def test_without_a_home_or_a_name_a_report_is_written_all_the_same(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 1000")

    monkeypatch.setattr(report.getpass, "getuser", nobody)
    monkeypatch.delenv("HOME")
    write_report(tmp_path / "report.json", [], settings, {}, {"system": "Linux"})
    assert json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["readings"] == {"system": "Linux"}
