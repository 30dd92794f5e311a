"""What the doctor says of recorded machines (tests/machines.py), and that it ends whatever a machine does."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import machines
from docvino.doctor.check import Check, Facts, look
from docvino.doctor.examine import PARTS, examine, exit_code
from docvino.doctor.report import versions
from docvino.machine.border import NoAnswerError, Recorded, Recording
from docvino.settings import resolve
from machines import A770, GIB, ICD, PCI, Readings

GPUS, OPENVINO = "Intel GPUs", "OpenVINO"
CARD = "0000:03:00.0"
NODE = "/dev/dri/renderD128"


def examined(
    readings: Readings, tmp: Path, *, stage: Any = None, verbose: bool = False, **flags: object
) -> list[Check]:
    settings = resolve({"data_dir": tmp / "data", "cache_dir": tmp / "cache", **flags})
    return list(examine(settings, Recorded(readings), stage=stage, verbose=verbose))


def of_section(checks: list[Check], *sections: str) -> list[Check]:
    return [check for check in checks if check.section in sections]


def named(checks: list[Check], name: str) -> Check:
    (found,) = (check for check in checks if check.name == name)
    return found


# ---- machines in order


@pytest.mark.parametrize("name", ["a770", "b580"])
def test_a_machine_in_order_has_nothing_to_mend(name: str, tmp_path: Path) -> None:
    checks = examined(machines.MACHINES[name](), tmp_path, device="GPU")
    without_models = [check for check in checks if not check.name.startswith("model ")]
    assert [check for check in without_models if check.status != "ok"] == []
    assert exit_code(checks) == 0


def test_the_road_to_a_gpu_is_looked_at_from_the_bus_up(tmp_path: Path) -> None:
    checks = of_section(examined(machines.a770(), tmp_path), GPUS)
    assert [check.name for check in checks] == [
        "PCI device",
        "kernel driver",
        "device node",
        "rights",
        "OpenCL loader",
        "OpenCL driver",
        "Level Zero",
        "compute runtime",
        "Resizable BAR",
        "known problems",
        "OpenCL devices",
        "OpenVINO's GPUs",
    ]


def test_a_card_is_told_with_its_kind_its_memory_and_its_versions(tmp_path: Path) -> None:
    checks = examined(machines.b580(), tmp_path)
    assert named(checks, "PCI device").found == "Intel Arc B580 (8086:e20b), discrete, Xe2 (Battlemage), 12 GiB"
    assert named(checks, "kernel driver").found == "xe, kernel 6.17.1"
    assert named(checks, "compute runtime").found == "26.14.37833.4-1~24.04~ppa1, IGC 2.32.7-1~24.04~ppa1"
    assert "driver 26.14.37833" in named(checks, "OpenCL devices").found
    assert "matrix units (XMX); 11.3 GiB; largest allocation 4.0 GiB" in named(checks, "device GPU").found


# ---- one thing missing after the other


def without_kernel_driver() -> Readings:
    machine = machines.ubuntu("24.04", "6.11.0-26-generic", "6.11.11")
    machines.card(machine, CARD, A770, None, 1, 16 * GIB)
    return without_opencl_device(machines.a770() | {"files": machine["files"], "nodes": {}})


def set_aside() -> Readings:
    machine = without_kernel_driver()
    machine["files"][f"{PCI}/{CARD}/uevent"] = "DRIVER=vfio-pci\nPCI_CLASS=30000"
    return machine


def without_opencl_device(machine: Readings) -> Readings:
    machines.drivers(machine)
    machines.openvino(machine)
    return machine


def without_node() -> Readings:
    return without_opencl_device(machines.a770() | {"nodes": {}})


def without_rights(member: str = "no") -> Readings:
    node = {"group": "render", "usable": False, "member": member}
    return without_opencl_device(machines.a770() | {"nodes": {NODE: node}})


def without_loader() -> Readings:
    machine = machines.a770()
    machines.openvino(machine, trouble="Cannot load library: libOpenCL.so.1: cannot open shared object file")
    machines.no_loader(machine)
    return machine


def without_icd() -> Readings:
    machine = without_opencl_device(machines.a770())
    del machine["files"]["/etc/OpenCL/vendors/intel.icd"]
    return machine


def with_a_broken_icd() -> Readings:
    machine = without_opencl_device(machines.a770())
    del machine["files"][ICD]
    return machine


def with_an_old_runtime() -> Readings:
    machine = without_opencl_device(machines.b580())
    machines.runtime(machine, "23.43.27642.40", "1.0.17537.20")
    return machine


def without_rebar_on_xe() -> Readings:
    machine = without_opencl_device(machines.b580())
    at = f"{PCI}/0000:04:00.0/resource"
    machine["files"][at] = machine["files"][at].replace("0x00000043ffffffff", "0x000000400fffffff")
    return machine


def without_openvino_gpu() -> Readings:
    machine = machines.a770()
    machines.openvino(machine)
    return machine


BREAKS = [
    (without_kernel_driver, "kernel driver", "none is bound to it", "sudo modprobe i915"),
    (set_aside, "kernel driver", "vfio-pci", "vfio-pci's options"),
    (without_node, "device node", "/dev/dri/renderD128 is missing", "sudo udevadm trigger"),
    (without_rights, "rights", "belongs to group render", "sudo usermod -a -G render $LOGNAME, then log out and in"),
    (lambda: without_rights("listed"), "rights", "this session began before", "log out and in again"),
    (
        without_loader,
        "OpenCL loader",
        "libOpenCL.so.1: cannot open shared object file",
        "apt-get install -y intel-opencl",
    ),
    (without_icd, "OpenCL driver", "no file", "sudo apt-get install -y intel-opencl-icd"),
    (with_a_broken_icd, "OpenCL driver", f"intel.icd names {ICD}, which is missing", "install -y intel-opencl-icd"),
    (with_an_old_runtime, "compute runtime", "23.43.27642.40", "ppa:kobuk-team/intel-graphics"),
    (without_rebar_on_xe, "Resizable BAR", "sees 256 MiB of the card's memory", "Resizable BAR and Above 4G Decoding"),
    (without_openvino_gpu, "OpenVINO's GPUs", "none", "update the runtime"),
]


@pytest.mark.parametrize(("broken", "cause", "found", "fix"), BREAKS, ids=[f"{b[1]}-{n}" for n, b in enumerate(BREAKS)])
def test_the_first_failure_is_the_cause_and_the_only_one(
    broken: Any, cause: str, found: str, fix: str, tmp_path: Path
) -> None:
    checks = examined(broken(), tmp_path, device="GPU")
    (failed,) = (check for check in checks if check.status == "fail")
    assert (failed.name, failed.exit_code, exit_code(checks)) == (cause, 7, 7)
    assert found in failed.found
    assert fix in failed.fix
    after = of_section(checks[checks.index(failed) + 1 :], GPUS)
    assert all(f"first mend: {cause}" in check.found for check in after if check.status == "skip")
    assert named(checks, "device asked for").found.endswith(f"(first mend: {cause})")


@pytest.mark.parametrize("broken", [each[0] for each in BREAKS], ids=[f"{b[1]}-{n}" for n, b in enumerate(BREAKS)])
def test_a_broken_gpu_is_a_warning_to_those_who_read_on_the_cpu(broken: Any, tmp_path: Path) -> None:
    checks = examined(broken(), tmp_path, device="CPU")
    warned = [check.name for check in of_section(checks, GPUS) if check.status == "warn"]
    cause = next(each[1] for each in BREAKS if each[0] is broken)
    assert [name for name in warned if name != "known problem"] == [cause]
    assert exit_code(checks) == 0


def test_two_missing_things_are_both_shown_and_one_is_the_cause(tmp_path: Path) -> None:
    machine = without_rights()
    machines.no_loader(machine)
    checks = examined(machine, tmp_path, device="GPU")
    assert [check.name for check in checks if check.status == "fail"] == ["rights"]
    loader = named(checks, "OpenCL loader")
    assert (loader.status, "intel-opencl-icd" in loader.fix) == ("skip", True)


def test_without_a_gpu_there_is_one_line_and_a_failure_only_for_those_who_asked_for_one(tmp_path: Path) -> None:
    machine = machines.ubuntu("24.04", "6.11.0-26-generic", "6.11.11")
    machine["files"][f"{PCI}/0000:00:01.0/class"] = "0x060400"
    machines.openvino(machine)
    (line,) = of_section(examined(machine, tmp_path), GPUS)
    assert (line.status, line.found) == ("ok", "no Intel GPU")
    checks = examined(machine, tmp_path, device="GPU.1")
    assert [check.name for check in checks if check.status == "fail"] == ["PCI device"]


def test_a_driver_that_crashes_when_it_is_asked_is_a_line(tmp_path: Path) -> None:
    machine = machines.a770()
    message = "the process that asked was ended by SIGSEGV"
    machine["answers"]["drivers"] = {"crashed": message}
    checks = examined(machine, tmp_path, device="CPU")
    crashed = named(checks, "OpenCL loader")
    assert (crashed.status, crashed.found, "update the driver" in crashed.fix) == ("warn", message, True)
    # What was found out before stands, and the examination goes on.
    assert named(checks, "rights").status == "ok"
    assert named(checks, "compute runtime").status == "ok"
    assert named(checks, "inference on CPU").status == "ok"
    assert exit_code(checks) == 0


def test_openvino_that_a_driver_takes_down_is_a_failure_even_of_the_cpu(tmp_path: Path) -> None:
    machine = machines.a770()
    machine["answers"]["openvino"] = {"crashed": "the process that asked did not finish within 60 s and was stopped"}
    checks = examined(machine, tmp_path, device="CPU")
    assert named(checks, "OpenVINO").status == "fail"
    assert exit_code(checks) == 7


# ---- several GPUs, GPUs of others


def test_which_device_a_name_means_is_said_with_its_full_name(tmp_path: Path) -> None:
    def said(**flags: object) -> str:
        check = named(examined(machines.pair(), tmp_path, **flags), "device asked for")
        assert check.status == "ok"
        return check.found

    large, small = "Intel(R) Arc(TM) B580 Graphics (dGPU)", "Intel(R) UHD Graphics 770 (iGPU)"
    assert said() == f"AUTO is GPU.1: {large} (a GPU with memory of its own)"
    assert said(device="GPU") == f"GPU is GPU.1: {large}"
    assert said(device="gpu.0") == f"GPU.0: {small}"


def test_stages_with_a_device_of_their_own_are_looked_at_each(tmp_path: Path) -> None:
    checks = examined(machines.a770(), tmp_path, device="GPU", layout_device="cpu", decoder_device="NPU")
    assert named(checks, "device for layout").found.startswith("CPU: ")
    missing = named(checks, "device for decoder")
    assert (missing.status, missing.found.endswith("(first mend: PCI device)")) == ("skip", True)
    assert [check.name for check in checks if check.status == "fail"] == ["PCI device"]
    assert [check.section for check in checks if check.status == "fail"] == ["Intel NPUs"]
    assert {check.name for check in checks if check.name.startswith("inference")} == {
        "inference on CPU",
        "inference on GPU",
    }


def test_lines_of_several_cards_carry_their_address_and_the_discrete_one_comes_first(tmp_path: Path) -> None:
    checks = of_section(examined(machines.pair(), tmp_path), GPUS)
    assert [check.name for check in checks if check.name.startswith("rights")] == ["rights 04:00.0", "rights 00:02.0"]
    # An integrated GPU has no memory of its own that a window could be too small for.
    assert [check.name for check in checks if check.name.startswith("Resizable")] == ["Resizable BAR 04:00.0"]


def test_a_card_without_rights_does_not_hide_the_other(tmp_path: Path) -> None:
    machine = machines.pair()
    machine["nodes"]["/dev/dri/renderD129"]["usable"] = False
    machine["answers"]["drivers"]["facts"]["platforms"][0]["devices"].pop()
    machines.openvino(machine, GPU=machine["answers"]["openvino"]["facts"]["devices"]["GPU.0"])
    checks = examined(machine, tmp_path, device="GPU")
    assert named(checks, "rights 04:00.0").status == "warn"
    assert named(checks, "rights 00:02.0").status == "ok"
    assert named(checks, "OpenCL devices").found.endswith("(first mend: rights 04:00.0)")
    assert exit_code(checks) == 0  # a GPU was asked for, and there is one


def test_gpus_of_other_makers_are_said_and_never_used(tmp_path: Path) -> None:
    machine = machines.a770()
    machines.card(machine, "0000:05:00.0", "2684", "nouveau", 3, 16 * GIB)
    machine["files"][f"{PCI}/0000:05:00.0/vendor"] = "0x10de"
    other = machines.opencl_device("NVIDIA GeForce RTX 4050", "550.54", None, 6 * GIB, vendor="10de")
    machine["answers"]["drivers"]["facts"]["platforms"].append({"name": "CUDA", "version": "3.0", "devices": [other]})
    nvidia = {
        "FULL_DEVICE_NAME": "NVIDIA GeForce RTX 4050 (dGPU)",
        "DEVICE_TYPE": "DISCRETE",
        "DEVICE_ARCHITECTURE": "GPU: vendor=0x10de arch=v8.9.0",
    }
    arc = machine["answers"]["openvino"]["facts"]["devices"]["GPU"]
    machines.openvino(machine, GPU_0=arc, GPU_1=nvidia)
    machines.load(machine, "GPU.0", {machines.act_file(machine, CARD): ["2400"]})
    checks = examined(machine, tmp_path, device="GPU.0")
    assert {check.status for check in of_section(checks, GPUS)} == {"ok"}
    assert named(checks, "device GPU.1").status == "skip"
    assert [check.name for check in checks if check.name.startswith("inference")] == ["inference on GPU.0"]


def test_a_processor_that_calls_itself_an_opencl_device_of_intel_is_no_gpu(tmp_path: Path) -> None:
    machine = without_opencl_device(machines.a770())
    machines.drivers(machine, machines.opencl_device("pthread-AMD EPYC", "3.0-rc2", None, 23 * GIB, gpu=False))
    checks = examined(machine, tmp_path, device="GPU")
    assert named(checks, "OpenCL devices").status == "fail"
    assert named(checks, "OpenCL devices").found == "only pthread-AMD EPYC"


def test_a_gpu_that_is_newer_than_the_table_is_told_by_its_id(tmp_path: Path) -> None:
    machine = machines.a770()
    machine["files"][f"{PCI}/{CARD}/device"] = "0xffff"
    card = named(examined(machine, tmp_path), "PCI device")
    assert card.status == "ok"
    assert "8086:ffff), discrete; newer than docvino's table" in card.found


# ---- drivers and kernels that are known to fail


def test_a_runtime_on_the_list_is_named_with_its_version_and_the_small_bar_is_said(tmp_path: Path) -> None:
    checks = examined(machines.known_bad(), tmp_path, device="GPU")
    problem = named(checks, "known problem")
    assert (problem.status, exit_code(checks)) == ("fail", 7)
    assert "intel/compute-runtime issue 831" in problem.found
    assert "25.27.34303.5 or later" in problem.fix
    assert named(checks, "compute runtime").found.startswith("25.18.33578.6")
    assert named(checks, "Resizable BAR").status == "warn"
    assert "WARNING: Small BAR detected" in named(checks, "OpenCL devices").found


@pytest.mark.parametrize(
    ("upstream", "warned"), [("6.8.4", False), ("6.8.5", True), ("6.8.9", True), ("6.8.12", False), ("6.6.30", True)]
)
def test_kernels_on_the_list_are_told_by_the_release_they_were_made_from(
    upstream: str, warned: bool, tmp_path: Path
) -> None:
    machine = machines.old_kernel()
    machine["files"]["/proc/version_signature"] = f"Ubuntu 6.8.0-38.38-generic {upstream}"
    problems = [check for check in examined(machine, tmp_path) if check.name == "known problem"]
    assert bool(problems) is warned
    assert all("6.10 or later" in check.fix for check in problems)


def test_what_one_person_reported_is_shown_to_those_who_ask_for_it(tmp_path: Path) -> None:
    machine = machines.a770()
    machines.packages(
        machine, intel_opencl_icd="26.14.37833.4", libigc2="2.32.7", intel_opencl_icd_legacy1="24.35.30872.36"
    )
    assert named(examined(machine, tmp_path), "known problems").status == "ok"
    (problem,) = (c for c in examined(machine, tmp_path, verbose=True) if c.name == "known problem")
    assert "one report" in problem.found


def test_a_compiler_older_than_its_runtime_is_a_mixed_set(tmp_path: Path) -> None:
    machine = machines.a770()
    machines.runtime(machine, "26.14.37833.4", "2.28.4")
    mixed = named(examined(machine, tmp_path), "compiler (IGC)")
    assert (mixed.status, mixed.wanted) == ("warn", "2.32.7 or later")


def test_versions_of_two_machines_can_be_compared_line_by_line() -> None:
    before, after = machines.a770(), machines.a770()
    machines.runtime(after, "25.40.35563.4", "2.20.3")
    old, new = versions(Recorded(before)), versions(Recorded(after))
    assert {name for name in old if old[name] != new[name]} == {"intel-opencl-icd", "libigc2", "libze-intel-gpu1"}
    assert old["intel-opencl-icd"] == "26.14.37833.4-1~24.04~ppa1"
    assert (old["libze1"], old["openvino"]) == ("1.21.9-1~24.04~ppa1", "2026.4.1")


# ---- kernel drivers


def test_the_firmware_of_a_card_is_told_to_root(tmp_path: Path) -> None:
    machine = machines.a770()
    path = f"/sys/kernel/debug/dri/{CARD}/gt0/uc/guc_info"
    machine["files"][path] = "GuC firmware: i915/dg2_guc_70.bin\n\tstatus: RUNNING\n\tversion: found 70.20.0\n"
    assert named(examined(machine, tmp_path), "kernel driver").found == "i915, kernel 6.11.11, firmware GuC 70.20.0"
    machine["files"][path] = {"error": "Permission denied"}
    assert named(examined(machine, tmp_path), "kernel driver").found == "i915, kernel 6.11.11"


def test_alchemist_on_xe_and_old_kernels_for_battlemage_are_warned_of(tmp_path: Path) -> None:
    machine = machines.a770()
    machine["files"][f"{PCI}/{CARD}/uevent"] = "DRIVER=xe"
    assert "force_probe" in named(examined(machine, tmp_path), "kernel driver").fix
    machine = machines.b580()
    machine["files"]["/proc/version_signature"] = "Ubuntu 6.11.0-8.8-generic 6.11.0"
    old = named(examined(machine, tmp_path), "kernel driver")
    assert (old.status, old.wanted, old.fix) == ("warn", "xe, kernel 6.12 or later", "install kernel 6.12 or later")


# ---- containers, WSL


def test_a_container_without_nodes_is_told_the_flags_of_docker(tmp_path: Path) -> None:
    checks = examined(machines.container(), tmp_path, device="GPU")
    failed = named(checks, "device node")
    assert (failed.status, failed.found) == ("fail", "/dev/dri/renderD128 is not in this container")
    assert failed.fix == 'docker run --device /dev/dri --group-add "$(stat -c %g /dev/dri/renderD128)" ...'


def test_a_container_that_may_not_open_the_node_is_told_the_flag_for_the_group(tmp_path: Path) -> None:
    machine = machines.container()
    machine["nodes"][NODE] = {"group": "992", "usable": False, "member": "no"}
    failed = named(examined(machine, tmp_path, device="GPU"), "rights")
    assert '--group-add "$(stat -c %g /dev/dri/renderD128)"' in failed.fix


def test_a_container_of_almost_nothing_is_examined_to_the_end(tmp_path: Path) -> None:
    checks = examined(machines.empty(), tmp_path)
    assert [check for check in checks if "could not look" in check.found] == []
    assert named(checks, "operating system").found.startswith("Linux, without /etc/os-release")
    assert named(checks, "inference on CPU").status == "ok"
    failed = named(examined(machines.empty(), tmp_path, device="GPU"), "PCI device")
    assert "--device /dev/dri" in failed.fix


def test_wsl_needs_its_own_node_and_library_and_no_pci_device(tmp_path: Path) -> None:
    machine = machines.wsl()
    checks = examined(machine, tmp_path, device="GPU")
    assert {check.status for check in of_section(checks, GPUS, OPENVINO)} == {"ok"}
    assert "a cap of WSL" in named(checks, "device GPU").found
    without_opencl_device(machine)["nodes"].clear()
    failed = named(examined(machine, tmp_path, device="GPU"), "WSL")
    assert (failed.status, failed.fix) == ("fail", "on Windows: wsl --update, and Intel's current driver")
    machine["files"]["/.dockerenv"] = ""
    failed = named(examined(machine, tmp_path, device="GPU"), "WSL")
    assert failed.fix == "docker run --device /dev/dxg -v /usr/lib/wsl:/usr/lib/wsl ..."


# ---- Windows


def test_windows_shows_the_memory_of_the_card_and_the_number_of_its_driver(tmp_path: Path) -> None:
    checks = examined(machines.windows(), tmp_path)
    assert named(checks, "operating system").found == "Windows 11 24H2 build 26100, AMD64"
    assert named(checks, "PCI device 1").found.endswith("Xe2 (Battlemage), 12 GiB")
    assert named(checks, "driver 1").found == "32.0.101.8724 of 2026-05-12"
    # 128 MiB of the host's memory are reserved for the integrated one: that is not its memory.
    assert "GiB" not in named(checks, "PCI device 2").found
    assert not any("10de" in check.found for check in checks), "a card that was taken out"


def test_windows_without_wmi_believes_the_registry(tmp_path: Path) -> None:
    machine = machines.windows()
    machine["commands"].clear()
    assert named(examined(machine, tmp_path), "PCI device 1").found.startswith("Intel Arc B580")


@pytest.mark.parametrize(("code", "what"), [(43, "stopped by Windows"), (22, "switched off"), (10, "not working")])
def test_a_device_that_windows_stopped_is_the_first_failure(code: int, what: str, tmp_path: Path) -> None:
    machine = machines.windows()
    machines.plugged_in(machine, {"PCI\\VEN_8086&DEV_E20B&SUBSYS_2": code})
    machines.windows_drivers(machine)
    machines.openvino(machine)
    checks = examined(machine, tmp_path, device="GPU")
    (failed,) = (check for check in checks if check.status == "fail")
    assert failed.name == "Windows status"
    assert failed.found == f"{failed.found.split(' (')[0]} (code {code})"
    assert what in failed.found


@pytest.mark.parametrize(
    ("driver", "date", "status"),
    [
        ("31.0.101.5590", "6-5-2024", "warn"),
        ("32.0.101.6314", "11-26-2024", "ok"),
        ("32.0.101.8991", "8-10-2026", "ok"),
        # A smaller number of another branch, made later: igcit issue 1134.
        ("32.0.101.6257", "1-15-2025", "ok"),
    ],
)
def test_windows_drivers_are_judged_by_number_or_date(driver: str, date: str, status: str, tmp_path: Path) -> None:
    machine = machines.windows()
    key = rf"{machines.DISPLAY_CLASS}\0001"
    machine["registry"][key] |= {
        "MatchingDeviceId": r"PCI\VEN_8086&DEV_56A0",
        "DriverVersion": driver,
        "DriverDate": date,
    }
    machines.plugged_in(machine, {"PCI\\VEN_8086&DEV_56A0&SUBSYS_2": 0})
    assert named(examined(machine, tmp_path), "driver").status == status


def test_a_power_plan_that_saves_energy_is_warned_of(tmp_path: Path) -> None:
    machine = machines.windows()
    assert named(examined(machine, tmp_path), "power").status == "ok"
    schemes = machine["registry"][r"SYSTEM\CurrentControlSet\Control\Power\User\PowerSchemes"]
    schemes["ActiveOverlayAcPowerScheme"] = "961cc777-2547-4f9d-8174-7d86181b8a7a"
    assert named(examined(machine, tmp_path), "power").status == "warn"
    machine["on_battery"] = True
    assert "on battery" in named(examined(machine, tmp_path), "power").found


# ---- NPUs


def test_an_npu_in_order_is_shown_and_a_broken_one_disturbs_nobody_who_did_not_ask(tmp_path: Path) -> None:
    machine = machines.npu()
    assert {check.status for check in of_section(examined(machine, tmp_path, device="NPU"), "Intel NPUs")} == {"ok"}
    machine["nodes"].clear()
    machines.openvino(machine)
    assert named(of_section(examined(machine, tmp_path), "Intel NPUs"), "device node").status == "skip"
    machine["files"]["/.dockerenv"] = ""
    checks = examined(machine, tmp_path, device="NPU")
    failed = named(checks, "device node")
    assert (failed.status, exit_code(checks)) == ("fail", 7)
    assert failed.fix.startswith("docker run --device /dev/accel --group-add")


# ---- inference and frequency


def test_wrong_numbers_are_a_failure_of_the_device_that_was_asked_for(tmp_path: Path) -> None:
    machine = machines.a770()
    machines.load(machine, "GPU", difference=0.3)
    checks = examined(machine, tmp_path, device="GPU")
    wrong = named(checks, "inference on GPU")
    assert (wrong.status, exit_code(checks)) == ("fail", 5)
    assert wrong.found.startswith("wrong numbers: off by 3.0e-01 of the largest value")
    assert named(examined(machine, tmp_path, device="CPU"), "inference on GPU").status == "warn"
    machines.load(machine, "GPU", difference=None)
    assert "not finite" in named(examined(machine, tmp_path), "inference on GPU").found


def test_other_arithmetic_than_asked_for_a_refusal_and_a_crash_are_failures(tmp_path: Path) -> None:
    machine = machines.a770()
    machines.load(machine, "GPU", execution="f32")
    asked = named(examined(machine, tmp_path, device="GPU"), "inference on GPU")
    assert (asked.status, asked.fix, asked.exit_code) == ("fail", "--execution f32", 7)
    machines.load(machine, "GPU", problem="[GPU] CL_OUT_OF_RESOURCES exception.")
    assert "CL_OUT_OF_RESOURCES" in named(examined(machine, tmp_path, device="GPU"), "inference on GPU").found
    machine["answers"]["load GPU 5 f16"] = {
        "crashed": "the process that asked did not finish within 90 s and was stopped"
    }
    crashed = named(examined(machine, tmp_path, device="GPU"), "inference on GPU")
    assert (crashed.status, "did not finish within 90 s" in crashed.found) == ("fail", True)


@pytest.mark.parametrize("build", [machines.a770, machines.b580])
def test_a_card_that_sits_at_its_lowest_frequency_under_load_is_warned_of(build: Any, tmp_path: Path) -> None:
    machine = build()
    address = CARD if build is machines.a770 else "0000:04:00.0"
    machines.load(machine, "GPU", {machines.act_file(machine, address): ["0", "300", "300"]})
    slow = named(examined(machine, tmp_path), "frequency of GPU")
    assert slow.status == "warn"
    assert slow.found.startswith("300 of 2")
    assert "linux-firmware" in slow.fix


def test_what_holds_a_card_back_is_said(tmp_path: Path) -> None:
    machine = machines.a770()
    act = machines.act_file(machine, CARD)
    thermal = act.replace("rps_act_freq_mhz", "throttle_reason_thermal")
    machines.load(machine, "GPU", {act: ["2400", "900", "800"], thermal: ["0", "1"]})
    hot = named(examined(machine, tmp_path), "frequency of GPU")
    assert (hot.status, hot.found) == ("ok", "2400 of 2400 MHz under load, held back by: heat")
    machines.load(machine, "GPU", {act: ["900", "800"], thermal: ["0", "1"]})
    assert named(examined(machine, tmp_path), "frequency of GPU").fix == "look at better cooling"
    machine["files"][act.replace("rps_act", "rps_max")] = "600"
    machines.load(machine, "GPU", {act: ["600"]})
    capped = named(examined(machine, tmp_path), "frequency of GPU")
    assert capped.fix == f"echo 2400 | sudo tee {act.replace('rps_act', 'rps_max')}"


# ---- system, Python, packages


def test_a_processor_without_avx2_and_a_python_of_32_bits_are_failures(tmp_path: Path) -> None:
    machine = machines.a770()
    machine["files"]["/proc/cpuinfo"] = "model name\t: Old\nflags\t\t: fpu sse sse4_2 avx\n"
    machine["python"]["bits"] = 32
    failed = [check for check in examined(machine, tmp_path) if check.status == "fail"]
    assert [(check.name, check.exit_code) for check in failed] == [("processor", 7), ("Python", 2)]


def test_packages_are_judged_by_what_docvino_asks_for_and_was_tested_with(tmp_path: Path) -> None:
    machine = machines.a770()
    machine["packages"] |= {"openvino": "2026.3.1", "numpy": "1.20.3"}
    del machine["packages"]["pillow"], machine["packages"]["tokenizers"]
    checks = examined(machine, tmp_path)
    untested = named(checks, "package openvino")
    assert (untested.status, untested.wanted) == ("warn", ">=2026.4,<2026.5 (tested: 2026.4.1)")
    old, missing = named(checks, "package numpy"), named(checks, "package pillow")
    assert (old.status, old.fix, old.exit_code) == ("fail", "pip install 'numpy>=1.26'", 3)
    assert (missing.status, missing.found) == ("fail", "not installed")
    assert "pydantic 2.14.4" in named(checks, "packages").found


def test_openvino_that_cannot_be_imported_is_said_with_its_reason(tmp_path: Path) -> None:
    machine = machines.windows()
    facts = {"version": None, "problem": "DLL load failed while importing", "gpu_trouble": None}
    machine["answers"]["openvino"] = {"facts": facts | {"devices": {}, "chosen": {}}}
    checks = examined(machine, tmp_path)
    broken = named(checks, "OpenVINO")
    assert (broken.status, broken.exit_code) == ("fail", 3)
    assert "DLL load failed" in broken.found
    assert "Visual C++" in broken.fix
    assert [check.name for check in checks if check.name.startswith("inference")] == []


def test_a_full_disk_and_a_folder_that_may_not_be_written_are_said(tmp_path: Path) -> None:
    machine = machines.a770()
    machine["disk"] = {"free_bytes": 100 << 20, "writable": True}
    assert named(examined(machine, tmp_path), "data folder").status == "warn"
    machine["disk"]["writable"] = False
    checks = examined(machine, tmp_path)
    assert (named(checks, "data folder").status, named(checks, "model cache").status) == ("fail", "warn")


# ---- stages


def test_a_stage_looks_at_what_it_needs_and_fails_without_it(tmp_path: Path) -> None:
    everything = examined(machines.a770(), tmp_path)
    assert named(everything, "model picodet-cdla").status == "warn"
    reading = examined(machines.a770(), tmp_path, stage="parse")
    assert (named(reading, "model picodet-cdla").status, exit_code(reading)) == ("fail", 4)
    assert "pip for fetching" not in {check.name for check in reading}
    fetching = examined(machines.known_bad(), tmp_path, stage="fetch", device="GPU")
    assert {check.section for check in fetching} == {"this machine", "docvino"}
    assert exit_code(fetching) == 0


# ---- whatever a machine does


class Broken:
    """A machine of which every question raises."""

    system = "Linux"
    architecture = "x86_64"

    def __getattr__(self, name: str) -> Any:
        def fail(*_: object, **__: object) -> None:
            raise ValueError(f"{name} is broken")

        return fail


def test_a_machine_that_answers_nothing_gives_lines_and_no_error(tmp_path: Path) -> None:
    settings = resolve({"data_dir": tmp_path, "device": "GPU"})
    checks = list(examine(settings, Broken()))  # type: ignore[arg-type]
    wrong = [check for check in checks if "could not look" in check.found]
    assert {check.name for check in wrong} >= {"operating system", "Python", "packages", "GPUs", "NPUs", "OpenVINO"}
    assert {check.name for check in wrong if check.status != "warn"} == {"OpenVINO"}
    assert all("--report" in check.fix for check in wrong)
    assert "could not look: ValueError: text is broken" in {check.found for check in wrong}


def test_a_file_that_may_not_be_read_is_a_line_of_its_part_alone(tmp_path: Path) -> None:
    machine = machines.a770()
    machine["files"][f"{PCI}/{CARD}/class"] = {"error": "Input/output error"}
    checks = examined(machine, tmp_path)
    assert named(checks, "GPUs").found == "could not look: Input/output error"
    assert named(checks, "device asked for").status == "ok"


def test_a_look_that_takes_too_long_is_given_up_with_what_it_found() -> None:
    def slow() -> Iterator[Check]:
        yield Check("a", "first", "ok", "there")
        time.sleep(60)

    started = time.monotonic()
    checks = look("a", "slow", slow, limit_s=0.2)
    assert time.monotonic() - started < 10
    assert [check.name for check in checks] == ["first", "slow"]
    assert checks[1].found == "could not look: no answer within 0.2 s"


def test_what_hangs_once_is_not_asked_again() -> None:
    class Hanging(Recorded):
        asked = 0

        def names(self, folder: str) -> tuple[str, ...]:
            if folder == PCI:
                Hanging.asked += 1
                time.sleep(60)
            return super().names(folder)

    facts = Facts(Hanging(machines.a770()))
    started = time.monotonic()
    assert "no answer within" in look("a", "b", lambda: [facts.adapters and Check("", "", "ok", "")], 0.2)[0].found
    with pytest.raises(NoAnswerError, match="no answer in time"):
        _ = facts.adapters
    assert (Hanging.asked, time.monotonic() - started < 10) == (1, True)


def test_every_part_has_a_time_limit() -> None:
    assert all(0 < part.limit_s <= 360 for part in PARTS)


# ---- recordings


@pytest.mark.parametrize("name", sorted(machines.MACHINES))
def test_what_was_read_of_a_machine_is_enough_to_examine_it_again(name: str, tmp_path: Path) -> None:
    settings = resolve({"data_dir": tmp_path, "cache_dir": tmp_path, "device": "GPU"})
    recording = Recording(Recorded(machines.MACHINES[name]()))
    first = list(examine(settings, recording, verbose=True))
    again = Recorded(json.loads(json.dumps(recording.readings)))
    assert list(examine(settings, again, verbose=True)) == first
