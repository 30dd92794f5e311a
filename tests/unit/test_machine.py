"""Facts of the border to the machine, of version numbers, and of the tables of devices and known faults."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import machines
from docvino.doctor.check import OpenVinoDevice
from docvino.machine import border
from docvino.machine.adapters import Adapter, find_adapters
from docvino.machine.border import NoAnswerError, Recorded, Recording, ThisMachine, registry_value
from docvino.machine.drivers import read_icds, read_packages
from docvino.machine.known_bad import Card, Situation, holds, known_problems
from docvino.machine.system import read_system
from docvino.machine.table import compiler_of, read_toml, table
from docvino.machine.versions import compare, in_range, parse_version
from machines import GIB

posix = pytest.mark.skipif(sys.platform == "win32", reason="shell scripts and device nodes")
linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc and /sys")


# ---- this machine


def test_a_file_that_is_not_there_is_none_and_one_that_is_gives_its_text(tmp_path: Path) -> None:
    machine = ThisMachine()
    (tmp_path / "vendor").write_bytes(b"0x8086\n\0")
    assert machine.text(str(tmp_path / "vendor")) == "0x8086"
    assert machine.text(str(tmp_path / "nowhere")) is None
    assert machine.text(str(tmp_path / "vendor" / "below")) is None
    assert machine.names(str(tmp_path)) == ("vendor",)
    assert machine.names(str(tmp_path / "nowhere")) == ()


def test_a_file_without_end_is_read_to_a_limit() -> None:
    if not Path("/dev/zero").exists():
        pytest.skip("no /dev/zero")
    assert ThisMachine().text("/dev/zero") == ""


@posix
def test_a_node_tells_its_group_and_whether_this_user_may_use_it(tmp_path: Path) -> None:
    machine = ThisMachine()
    path = tmp_path / "node"
    path.write_bytes(b"")
    node = machine.node(str(path))
    assert node is not None
    assert (node.usable, node.member) == (True, "session")
    assert machine.node(str(tmp_path / "nowhere")) is None


@posix
def test_a_command_gives_its_output_and_one_that_is_not_there_none(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = ThisMachine()
    ran = machine.run(("sh", "-c", "echo out; echo err >&2; exit 3"))
    assert ran is not None
    assert (ran.code, sorted(ran.output.split())) == (3, ["err", "out"])
    assert machine.run(("no-such-command-anywhere",)) is None
    monkeypatch.setattr(border, "COMMAND_LIMIT_S", 0.2)
    started = time.monotonic()
    stopped = machine.run(("sh", "-c", "sleep 60"))
    assert stopped is not None
    assert (stopped.code, time.monotonic() - started < 20) == (None, True)


@linux
def test_this_linux_tells_its_system() -> None:
    system = read_system(ThisMachine())
    assert system.kernel == os.uname().release
    assert system.memory_bytes is not None
    assert system.memory_bytes > GIB // 4


def test_this_machine_tells_its_python_packages_and_disk(tmp_path: Path) -> None:
    machine = ThisMachine()
    assert machine.python().version.startswith(f"{sys.version_info.major}.{sys.version_info.minor}.")
    assert machine.package("openvino") == __import__("importlib.metadata").metadata.version("openvino")
    assert machine.package("no-such-package-anywhere") is None
    assert any(line.startswith("openvino") for line in machine.requirements())
    assert machine.disk(tmp_path / "a" / "b").writable
    assert machine.disk(tmp_path).free_bytes > 0


def fake_python(folder: Path, script: str) -> str:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o700)
    return str(path)


@posix
@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("kill -SEGV $$", r"was ended by SIGSEGV"),
        ("echo Abort was called; kill -ABRT $$", r"was ended by SIGABRT: Abort was called"),
        ("echo hello", r"ended with exit code 0"),
        ("echo ModuleNotFoundError: no such module; exit 1", r"exit code 1: ModuleNotFoundError: no such module"),
        ("sleep 60", r"did not finish within 0\.3 s and was stopped"),
    ],
)
def test_a_driver_that_crashes_or_hangs_takes_only_its_own_process_with_it(
    script: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", fake_python(tmp_path, script))
    monkeypatch.setattr(border, "LIMITS_S", {"drivers": 0.3 if "sleep" in script else 30})
    with pytest.raises(NoAnswerError, match=message):
        ThisMachine().ask("drivers")


@posix
def test_an_answer_is_told_from_what_drivers_print_and_stands_when_the_process_crashes_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "printf 'WARNING: Small BAR'\necho\necho 'docvino-answer {\"a\": 1}'\nkill -SEGV $$"
    monkeypatch.setattr(sys, "executable", fake_python(tmp_path, script))
    answer = ThisMachine().ask("drivers")
    assert (answer.facts, answer.said) == ({"a": 1}, ("WARNING: Small BAR",))


@posix
def test_files_are_watched_while_a_process_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frequency = tmp_path / "act_freq"
    frequency.write_text("300", encoding="utf-8")
    script = f"sleep 1; echo 2400 > {frequency}; sleep 1; echo 'docvino-answer {{}}'"
    monkeypatch.setattr(sys, "executable", fake_python(tmp_path, script))
    seen = ThisMachine().ask("load", watch=(str(frequency), str(tmp_path / "nowhere"))).seen
    assert seen is not None
    assert set(seen[str(frequency)]) - {""} == {"300", "2400"}
    assert seen[str(tmp_path / "nowhere")] == ()


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("text", "text"),
        (12 * GIB, 12 * GIB),
        ((12 * GIB).to_bytes(8, "little"), 12 * GIB),
        (b"\x00\x00\x00\x08", 0x08000000),
        (b"\x00" * 16, None),
        (None, None),
        (["a"], None),
    ],
)
def test_registry_values_are_texts_or_numbers_however_a_driver_wrote_them(data: object, value: object) -> None:
    assert registry_value(data) == value


def test_a_recording_of_a_recording_is_the_same() -> None:
    first = Recording(Recorded(machines.pair()))
    found = find_adapters(first)
    assert find_adapters(Recorded(json.loads(json.dumps(first.readings)))) == found
    assert [gpu.pci_id for gpu in found.gpus] == ["e20b", "a780"]


def test_an_error_of_a_file_is_recorded_and_raised_again() -> None:
    recording = Recording(Recorded({"files": {"/x": {"error": "Permission denied"}}}))
    with pytest.raises(OSError, match="Permission denied"):
        recording.text("/x")
    with pytest.raises(OSError, match="Permission denied"):
        Recorded(recording.readings).text("/x")


# ---- versions


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("26.05.37020.3-1ubuntu2", (26, 5, 37020, 3)),
        ("1:2.28.4-1~24.04", (2, 28, 4)),
        ("6.11.0-26-generic", (6, 11, 0)),
        ("5.15.167.4-microsoft-standard-WSL2", (5, 15, 167, 4)),
        ("v1.21.9", (1, 21, 9)),
        ("2026.4.1-22982-e213a147257", (2026, 4, 1)),
        ("unknown", None),
        ("", None),
    ],
)
def test_a_version_is_the_numbers_it_begins_with(text: str, version: tuple[int, ...] | None) -> None:
    assert parse_version(text) == version


@pytest.mark.parametrize(
    ("version", "bounds", "inside"),
    [
        ("25.18.33578.6", ">=25.18.33578.5,<25.27.34303.5", True),
        ("25.27.34303.5", ">=25.18.33578.5,<25.27.34303.5", False),
        # OpenCL says no more than three numbers: the series counts.
        ("25.18.33578", ">=25.18.33578.5,<25.27.34303.5", True),
        ("6.8.12", [">=6.6.26,<6.7", ">=6.8.5,<6.8.10"], False),
        ("6.8.9", [">=6.6.26,<6.7", ">=6.8.5,<6.8.10"], True),
        ("6.7.1", ">=6.6.26,<6.7", False),
        ("2026.4.1", "<2027,>=2026.2", True),
        ("1.3.0", ">=1.3.0.post6", True),
        ("5.0.0.93", ">=4.10", True),
        ("2.0", "!=2.0", False),
    ],
)
def test_ranges_of_versions(version: str, bounds: str | list[str], inside: bool) -> None:
    parsed = parse_version(version)
    assert parsed is not None
    assert in_range(parsed, bounds) is inside


def test_a_bound_that_is_none_is_an_error() -> None:
    with pytest.raises(ValueError, match="no bound of a version: 'about 6'"):
        in_range((6,), "about 6")


VERSIONS = st.lists(st.integers(0, 40_000), min_size=1, max_size=4).map(tuple)


@given(VERSIONS, VERSIONS)
def test_comparing_is_the_same_from_both_sides(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    assert compare(first, second) == -compare(second, first)
    assert compare(first, (*first, 1)) == 0


# ---- tables


def test_every_row_of_the_table_can_be_used() -> None:
    known = table()
    assert all(re.fullmatch(r"[0-9a-f]{4}", pci_id) for pci_id in (*known.gpus, *known.npus))
    rows = read_toml("intel.toml")["gpu"]
    assert len(known.gpus) == sum(len(row["ids"]) for row in rows), "an id stands in two rows"
    for gpu in known.gpus.values():
        family = gpu.family
        assert family.kernel_driver in ("i915", "xe")
        versions = [gpu.runtime, gpu.ip, family.kernel, family.windows]
        assert all(parse_version(version) is not None for version in versions if version)
        assert (family.windows is None) or re.fullmatch(r"\d{4}-\d\d-\d\d", family.windows_date or "")
        assert family.discrete or not gpu.memory_gib
    assert {known.gpus[each].name for each in ("56a0", "e20b", "e223")} == {"Arc A770", "Arc B580", "Arc Pro B70"}
    assert set(known.install) >= {"ubuntu", "debian", "fedora"}


def test_a_compiler_belongs_to_each_release_of_the_runtime() -> None:
    assert compiler_of("26.14.37833.4-1~24.04") == "2.32.7"
    assert compiler_of("24.35.30872.36") == "1.0.17537.20"
    assert compiler_of("22.43.24595.41") is None
    assert compiler_of("unknown") is None


def test_every_known_problem_has_a_source_a_fix_and_conditions_that_are_looked_at() -> None:
    problems = known_problems()
    assert len({problem.id for problem in problems}) == len(problems)
    families = set(table().families)
    for problem in problems:
        assert problem.grade in ("A", "B", "C")
        assert problem.symptom
        assert problem.fix
        assert re.search(r"issue|FAQ", problem.source)
        assert problem.conditions, problem.id
        assert set(problem.conditions.get("family", ())) <= families
        assert set(problem.conditions.get("device", ())) <= set(table().gpus)
        for key in ("runtime", "igc", "kernel", "openvino", "windows_driver"):
            if key in problem.conditions:
                in_range((1,), problem.conditions[key])


def here(**changed: object) -> Situation:
    card = Card("battlemage", "e20b", "xe", True)
    values: dict[str, object] = {
        "system": "Linux",
        "cards": (card,),
        "runtime": "26.14.37833.4",
        "igc": "2.32.7",
        "kernel": "6.17.1",
        "openvino": "2026.4.1",
        **changed,
    }
    return Situation(**values)  # type: ignore[arg-type]


def hits(situation: Situation) -> set[str]:
    return {problem.id for problem in known_problems() if problem.confirmed and holds(problem, situation)}


def test_known_problems_hold_where_all_their_conditions_do() -> None:
    assert hits(here()) == set()
    assert hits(here(igc="2.36.3")) == {"igc-2.36.3"}
    assert hits(here(runtime="26.18.38308.1")) == {"xe2-slow-decoding"}
    two = (Card("battlemage", "e20b", "xe", True), Card("battlemage", "e211", "xe", True))
    assert hits(here(runtime="26.14.37833.4", cards=two)) == {"two-battlemage-memory"}
    small = (Card("battlemage", "e20b", "xe", False),)
    assert hits(here(cards=small)) == set(), "OpenCL lists the card all the same"
    assert hits(here(cards=small, opencl_empty=True)) == {"small-bar-xe"}
    alchemist = (Card("alchemist", "56a0", "i915", True),)
    assert hits(here(cards=alchemist, kernel="6.8.8")) == {"kernel-6.8-alchemist"}
    assert hits(here(cards=alchemist, kernel="6.6.30", runtime="24.45.31740.15")) == {
        "kernel-6.8-alchemist",
        "shifted-vectors",
    }


def test_what_is_unknown_hits_no_entry() -> None:
    unknown = Situation("Linux", (Card(),))
    assert hits(unknown) == set()
    assert hits(here(runtime=None, igc=None, kernel=None, openvino=None)) == set()


def test_windows_drivers_and_releases_of_the_list() -> None:
    card = Card("battlemage", "e20b", windows_driver="32.0.101.8801")
    on_windows = here(system="Windows", cards=(card,), runtime=None, windows_release="26H1")
    assert hits(on_windows) == {"windows-8801-26h1"}
    assert hits(here(system="Windows", cards=(card,), runtime=None, windows_release="25H2")) == set()
    old = Card("alchemist", "56a0", windows_driver="31.0.101.4200")
    assert hits(here(system="Windows", cards=(old,), runtime=None)) == {"windows-4032-async"}


# ---- what is read of other machines


@pytest.mark.parametrize(
    ("bar_gib", "memory_gib", "expected"),
    [(16, 16, True), (0.25, 16, False), (8, 16, False), (16, None, True), (8, None, True), (None, 16, None)],
)
def test_resizable_bar_is_on_when_the_processor_sees_all_memory(
    bar_gib: float | None, memory_gib: int | None, expected: bool | None
) -> None:
    bar = None if bar_gib is None else int(bar_gib * GIB)
    memory = None if memory_gib is None else memory_gib * GIB
    card = Adapter("0000:03:00.0", "56a0", table().gpus["56a0"], discrete=True, bar_bytes=bar, memory_bytes=memory)
    assert card.resizable_bar is expected


@pytest.mark.parametrize(
    ("uuid", "address"),
    [
        ("8680a056080000000300000000000000", "0000:03:00.0"),  # an A770
        ("8680557d080000000002000000000000", "0000:00:02.0"),  # Meteor Lake
        ("86808a4c040000000002000000000000", "0000:00:02.0"),  # UHD 750
        ("de108a4c040000000002000000000000", None),
        ("no uuid", None),
        ("", None),
    ],
)
def test_the_address_of_a_gpu_is_in_its_uuid(uuid: str, address: str | None) -> None:
    assert OpenVinoDevice("GPU", {"DEVICE_UUID": uuid}).address == address


def test_packages_of_rpm_and_pacman_are_read_like_those_of_dpkg() -> None:
    names = " ".join(machines.PACKAGES)
    rpm = r"rpm -q --qf ii \t%{NAME}\t%{VERSION}-%{RELEASE}\n " + names
    output = "package intel-opencl-icd is not installed\nii \tintel-opencl\t25.48.36300.8-1.fc43\n"
    found = read_packages(Recorded({"commands": {rpm: {"code": 1, "output": output}}}))
    assert (found.manager, found.runtime) == ("rpm", "25.48.36300.8-1.fc43")
    output = "intel-compute-runtime 26.14.37833.4-1\nerror: package 'libigc2' was not found\n"
    found = read_packages(Recorded({"commands": {f"pacman -Q {names}": {"code": 1, "output": output}}}))
    assert (found.manager, found.runtime) == ("pacman", "26.14.37833.4-1")
    # Removed packages whose settings are still there ("rc") are none.
    output = "rc \tintel-opencl-icd\t26.14.37833.4\n"
    assert read_packages(Recorded({"commands": {machines.DPKG: {"code": 0, "output": output}}})).runtime is None
    assert read_packages(Recorded({})).manager == ""


def test_icd_files_may_lie_elsewhere_and_name_a_bare_library() -> None:
    files = {"/opt/icd/a.icd": "libigdrcl.so", "/opt/icd/b.icd": "/usr/lib/libnvidia.so.1", "/opt/icd/readme": "x"}
    icds = read_icds(Recorded({"files": files, "variables": {"OCL_ICD_VENDORS": "/opt/icd"}}))
    assert [(icd.name, icd.intel, icd.exists) for icd in icds] == [("a.icd", True, None), ("b.icd", False, False)]


@pytest.mark.parametrize(
    ("files", "variables", "container"),
    [
        ({"/.dockerenv": ""}, {}, "Docker"),
        ({"/run/.containerenv": 'engine="podman"'}, {}, "Podman"),
        ({}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "a container"),
        ({}, {}, ""),
    ],
)
def test_containers_are_told_by_the_files_they_leave(
    files: dict[str, str], variables: dict[str, str], container: str
) -> None:
    assert read_system(Recorded({"files": files, "variables": variables})).container == container


def test_windows_10_and_11_are_told_by_their_build() -> None:
    key = r"SOFTWARE\Microsoft\Windows NT\CurrentVersion"
    values = {"CurrentBuild": "19045", "DisplayVersion": "22H2", "ProductName": "Windows 10 Pro"}
    assert (
        read_system(Recorded({"system": "Windows", "registry": {key: values}})).title == "Windows 10 22H2 build 19045"
    )


def test_a_broken_os_release_is_read_as_far_as_it_goes() -> None:
    text = "PRETTY_NAME=\"Odd\nID='odd'\n# comment=1\nnonsense"
    system = read_system(Recorded({"files": {"/etc/os-release": text}}))
    assert (system.distribution, system.title) == ("odd", '"Odd')
