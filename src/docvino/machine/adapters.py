"""Graphics cards and NPUs as the operating system sees them, before any driver of Intel's is asked."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from docvino.machine.border import Machine, Node
from docvino.machine.table import INTEL, GpuFacts, NpuFacts, table
from docvino.machine.versions import parse_version

_PCI = "/sys/bus/pci/devices"
_DISPLAY, _ACCELERATOR = 0x03, 0x12  # PCI base classes
# Device setup classes (learn.microsoft.com, "System-Defined Device Setup Classes Available to Vendors")
_CLASSES = r"SYSTEM\CurrentControlSet\Control\Class"
_DISPLAY_CLASS = _CLASSES + r"\{4d36e968-e325-11ce-bfc1-08002be10318}"
_NPU_CLASS = _CLASSES + r"\{f01a9d53-3ff6-48d2-9f97-c8a7004be10c}"
_HARDWARE = re.compile(r"PCI\\VEN_([0-9A-F]{4})&DEV_([0-9A-F]{4})", re.I)
SMALL_BAR_BYTES = 256 << 20


@dataclass(frozen=True)
class Adapter:
    """One GPU or NPU of Intel.

    address          PCI address such as 0000:03:00.0; on Windows "" (its registry has none)
    pci_id           device id, four small hexadecimal digits
    facts            its row of the table; None for an id that is not there
    kernel_driver    what is bound to it on Linux; None when nothing is
    card             "card1", its folder under drm/
    nodes            path -> node (None when the path does not exist), of the nodes the kernel made for it
    bar_bytes        size of the memory window the processor sees (BAR 2); None when unknown
    memory_bytes     its own memory; None when unknown or shared
    driver, dated    version and date (2025-01-15) of the Windows driver
    guc              version of the card's firmware, which only root may read
    problem          Windows's ConfigManagerErrorCode: 0 works, 22 is switched off, 28 has no driver, 43 failed
    name_there       what Windows calls it
    """

    address: str
    pci_id: str
    facts: GpuFacts | NpuFacts | None
    npu: bool = False
    discrete: bool = False
    kernel_driver: str | None = None
    card: str | None = None
    nodes: tuple[tuple[str, Node | None], ...] = ()
    bar_bytes: int | None = None
    memory_bytes: int | None = None
    driver: str | None = None
    dated: str | None = None
    guc: str | None = None
    problem: int | None = None
    name_there: str = ""

    @property
    def name(self) -> str:
        if self.facts is not None:
            return f"Intel {self.facts.name}"
        kind = "NPU" if self.npu else "GPU"
        return self.name_there or f"Intel {kind} that docvino does not know"

    @property
    def family(self) -> str | None:
        return self.facts.family.key if isinstance(self.facts, GpuFacts) else None

    @property
    def resizable_bar(self) -> bool | None:
        """Whether the processor sees all of a discrete card's memory.

        Source: compute-runtime memory_info.cpp compares the visible with the whole size; a card keeps 5 % for itself.
        """
        if not self.discrete or self.bar_bytes is None:
            return None
        if self.bar_bytes <= SMALL_BAR_BYTES:
            return False
        facts = self.facts
        sizes = [self.memory_bytes] if self.memory_bytes else []
        if not sizes and isinstance(facts, GpuFacts):
            sizes = [size << 30 for size in facts.memory_gib]
        return self.bar_bytes >= 0.9 * min(sizes) if sizes else None


@dataclass(frozen=True)
class Adapters:
    """`others`: PCI ids of display adapters of other makers, as 10de:2684. `visible`: there is a bus to look at."""

    gpus: tuple[Adapter, ...] = ()
    npus: tuple[Adapter, ...] = ()
    others: tuple[str, ...] = ()
    visible: bool = True


def find_adapters(machine: Machine) -> Adapters:
    """Display adapters and NPUs on the PCI bus (Linux) or in the registry (Windows); discrete cards first."""
    found = _windows(machine) if machine.system == "Windows" else _linux(machine)
    gpus = sorted(found.gpus, key=lambda each: (not each.discrete, each.address))
    return replace(found, gpus=tuple(gpus))


def _linux(machine: Machine) -> Adapters:
    gpus, npus, others = [], [], []
    addresses = machine.names(_PCI)
    for address in addresses:
        base = f"{_PCI}/{address}"
        kind = int(machine.text(f"{base}/class") or "0", 16) >> 16
        if kind not in (_DISPLAY, _ACCELERATOR):
            continue
        vendor = (machine.text(f"{base}/vendor") or "").removeprefix("0x")
        device = (machine.text(f"{base}/device") or "").removeprefix("0x")
        if vendor != INTEL:
            if kind == _DISPLAY:
                others.append(f"{vendor}:{device}")
        elif kind == _DISPLAY:
            gpus.append(_linux_gpu(machine, address, device))
        elif device in table().npus:
            npus.append(_linux_npu(machine, address, device))
    return Adapters(tuple(gpus), tuple(npus), tuple(others), bool(addresses))


def _linux_gpu(machine: Machine, address: str, device: str) -> Adapter:
    base = f"{_PCI}/{address}"
    facts = table().gpus.get(device)
    names = machine.names(f"{base}/drm")
    card = next((name for name in names if re.fullmatch(r"card\d+", name)), None)
    renderers = [name for name in names if re.fullmatch(r"renderD\d+", name)]
    # Integrated GPUs sit on bus 0; for ids that are not in the table that must do.
    discrete = facts.family.discrete if facts else address.split(":")[1] != "00"
    memory = (
        _number(machine.text(f"{base}/tile0/physical_vram_size_bytes"))  # xe; read by igt-gpu-tools, too
        or _number(machine.text(f"{base}/lmem_total_bytes"))
        or (card and _number(machine.text(f"{base}/drm/{card}/lmem_total_bytes")))  # i915, some kernels
    )
    return Adapter(
        address,
        device,
        facts,
        discrete=discrete,
        kernel_driver=_driver(machine, base),
        card=card,
        nodes=tuple((f"/dev/dri/{name}", machine.node(f"/dev/dri/{name}")) for name in renderers),
        bar_bytes=_bar_bytes(machine.text(f"{base}/resource") or ""),
        memory_bytes=memory or None,
        guc=_guc(machine, address, card),
    )


def _guc(machine: Machine, address: str, card: str | None) -> str | None:
    """From debugfs, whose folders are named by address or by number; the text around the number differs by driver."""
    for name in (address, (card or "").removeprefix("card")):
        try:
            text = machine.text(f"/sys/kernel/debug/dri/{name}/gt0/uc/guc_info") or ""
        except OSError:  # for root alone
            return None
        if found := re.search(r"found\D*(\d+\.\d+\.\d+)", text):
            return found.group(1)
    return None


def _linux_npu(machine: Machine, address: str, device: str) -> Adapter:
    base = f"{_PCI}/{address}"
    names = machine.names(f"{base}/accel")
    return Adapter(
        address,
        device,
        table().npus[device],
        npu=True,
        kernel_driver=_driver(machine, base),
        nodes=tuple((f"/dev/accel/{name}", machine.node(f"/dev/accel/{name}")) for name in names),
    )


def _driver(machine: Machine, base: str) -> str | None:
    found = re.search(r"^DRIVER=(\S+)$", machine.text(f"{base}/uevent") or "", re.M)
    return found.group(1) if found else None


def _bar_bytes(resource: str) -> int | None:
    """The size of BAR 2, the third line of `resource`: first and last address of the window, zeros without one."""
    lines = resource.splitlines()
    if len(lines) < 3:
        return None
    first, last = (int(word, 16) for word in lines[2].split()[:2])
    return last - first + 1 if last > first else None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def _windows(machine: Machine) -> Adapters:
    gpus: list[Adapter] = []
    npus: list[Adapter] = []
    others: list[str] = []
    present = plugged(machine)
    for class_key, is_npu in ((_DISPLAY_CLASS, False), (_NPU_CLASS, True)):
        for name in machine.registry_keys(class_key):
            if not re.fullmatch(
                r"\d{4}", name
            ):  # the others are "Configuration" and "Properties", which may not be read
                continue
            try:
                values = machine.registry(f"{class_key}\\{name}") or {}
            except OSError:  # one key may be closed to users, the others are not
                continue
            matched = _HARDWARE.match(str(values.get("MatchingDeviceId", "")))
            if matched is None:
                continue
            vendor, device = (part.lower() for part in matched.groups())
            there = (
                None
                if present is None
                else next((p for p in present if (p.vendor, p.device) == (vendor, device)), None)
            )
            if present is not None and there is None:
                continue  # the registry remembers cards that were taken out
            if vendor != INTEL:
                if not is_npu:
                    others.append(f"{vendor}:{device}")
                continue
            adapter = _windows_adapter(device, values, is_npu=is_npu, problem=there.problem if there else None)
            (npus if is_npu else gpus).append(adapter)
    return Adapters(tuple(gpus), tuple(npus), tuple(others))


@dataclass(frozen=True)
class Plugged:
    """A device as Windows lists it. `problem` is ConfigManagerErrorCode; 0: it works."""

    vendor: str
    device: str
    problem: int


_LIST_DEVICES = (
    "powershell",
    "-NoProfile",
    "-NonInteractive",
    "-Command",
    "[Console]::OutputEncoding=[Text.Encoding]::UTF8; Get-CimInstance Win32_PnPEntity"
    " -Filter \"PNPClass='Display' OR PNPClass='ComputeAccelerator'\""
    " | Select-Object PNPDeviceID,ConfigManagerErrorCode | ConvertTo-Json -Compress",
)


def plugged(machine: Machine) -> tuple[Plugged, ...] | None:
    """Display adapters and NPUs that are plugged in, from WMI; None when it cannot be asked."""
    ran = machine.run(_LIST_DEVICES)
    if ran is None or ran.code != 0:
        return None
    try:
        rows = json.loads(ran.output)
    except ValueError:
        return None
    found = []
    for row in rows if isinstance(rows, list) else [rows]:
        matched = _HARDWARE.match(str(row.get("PNPDeviceID", "")))
        if matched is not None:
            vendor, device = (part.lower() for part in matched.groups())
            found.append(Plugged(vendor, device, int(row.get("ConfigManagerErrorCode") or 0)))
    return tuple(found)


def _windows_adapter(device: str, values: Mapping[str, str | int], *, is_npu: bool, problem: int | None) -> Adapter:
    facts = table().npus.get(device) if is_npu else table().gpus.get(device)
    discrete = isinstance(facts, GpuFacts) and facts.family.discrete
    memory = values.get("HardwareInformation.qwMemorySize")
    return Adapter(
        "",
        device,
        facts,
        npu=is_npu,
        discrete=discrete,
        # WMI's AdapterRAM has 32 bits and shows 2 or 4 GB for any card. An integrated GPU owns no memory.
        memory_bytes=memory if discrete and isinstance(memory, int) and memory > 0 else None,
        driver=str(values["DriverVersion"]) if "DriverVersion" in values else None,
        dated=_date(str(values.get("DriverDate", ""))),
        problem=problem,
        name_there=str(values.get("DriverDesc", "")),
    )


def _date(text: str) -> str | None:
    """`1-15-2025`, as the registry has it, as 2025-01-15."""
    found = re.fullmatch(r"(\d{1,2})-(\d{1,2})-(\d{4})", text)
    return f"{found.group(3)}-{int(found.group(1)):02}-{int(found.group(2)):02}" if found else None


def marketing_number(driver: str) -> int | None:
    """What people call a Windows driver: the last part of 32.0.101.6314."""
    found = parse_version(driver)
    return found[-1] if found is not None and len(found) == 4 else None
