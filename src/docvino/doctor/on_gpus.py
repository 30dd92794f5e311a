"""Checks of Intel GPUs and NPUs, from the PCI bus up to OpenVINO, so that the first failure is the cause.

Source of the order: what each part needs. The kernel makes a node for a card it has a driver for; the user may open the
node or not; OpenVINO's GPU plugin loads libOpenCL.so.1, which finds Intel's driver by a file, which opens the node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from docvino.doctor.check import Chain, Check, Context, Status
from docvino.machine.adapters import Adapter, marketing_number
from docvino.machine.border import NoAnswerError, Node
from docvino.machine.drivers import Drivers
from docvino.machine.known_bad import Card, Situation, holds, known_problems
from docvino.machine.system import System
from docvino.machine.table import GpuFacts, compiler_of, table
from docvino.machine.versions import compare, parse_version

SECTION = "Intel GPUs"
NPU_SECTION = "Intel NPUs"
_PASS_GPU = 'docker run --device /dev/dri --group-add "$(stat -c %g /dev/dri/renderD128)" ...'
_PASS_NPU = 'docker run --device /dev/accel --group-add "$(stat -c %g /dev/accel/accel0)" ...'
DEBS = "the packages of github.com/intel/compute-runtime/releases"
# By ConfigManagerErrorCode of Win32_PnPEntity (learn.microsoft.com).
_WINDOWS_PROBLEMS = {
    22: ("switched off", "Device Manager: enable the device"),
    28: ("no driver", "install the current graphics driver of intel.com"),
    43: (
        "stopped by Windows because it reported problems",
        "install the current driver; in a virtual machine, give it all of the card's memory window",
    ),
}


def check_gpus(context: Context) -> Iterator[Check]:
    facts = context.facts
    gpus, system = facts.adapters.gpus, facts.system
    chain = Chain(context.severity("GPU", "warn"))
    through_wsl = system.wsl and (chain.severity == "fail" or facts.machine.node("/dev/dxg") is not None)
    if not gpus and not through_wsl:
        yield from _no_gpu(context, chain)
        return
    windows = facts.machine.system == "Windows"
    chains = [Chain(chain.severity) for _ in gpus]
    tags = _tags(gpus)
    for gpu, own, tag in zip(gpus, chains, tags, strict=True):
        yield _pci(gpu, tag)
        for check in _windows_card(gpu, tag) if windows else _linux_card(gpu, tag, system):
            yield own.judge(check)
    if through_wsl and not gpus:
        yield chain.judge(_wsl(context))
    elif all(own.cause for own in chains):
        chain.cause = chains[0].cause
    for check in _opencl(context, gpus):
        yield chain.judge(check)
    for own in chains:
        own.cause = own.cause or chain.cause
    for gpu, own, tag in zip(gpus, chains, tags, strict=True):
        if gpu.discrete:
            yield own.judge(_resizable_bar(gpu, tag))
    # A card with a failure of its own is missing below for that reason.
    chain.cause = chain.cause or next((own.cause for own in chains if own.cause), None)
    for check in _known(context, gpus):
        yield chain.judge(check)
    for check in _seen(context, len(gpus) or 1):
        yield chain.judge(check, consequence=True)
    if chain.cause:
        facts.causes["GPU"] = chain.cause


def _tags(gpus: Sequence[Adapter]) -> list[str]:
    """What tells the lines of several cards apart: their PCI address, or their number where it is not known."""
    if len(gpus) < 2:
        return [""] * len(gpus)
    return [f" {gpu.address.removeprefix('0000:') or number}" for number, gpu in enumerate(gpus, 1)]


def _no_gpu(context: Context, chain: Chain) -> Iterator[Check]:
    others = context.facts.adapters.others
    here = "no Intel GPU" if context.facts.adapters.visible else "no PCI bus is to be seen here"
    found = here + (f"; of other makers: {', '.join(others)}, which docvino does not use" if others else "")
    if chain.severity != "fail":
        yield Check(SECTION, "PCI device", "ok", found)
        return
    fix = "use --device CPU, or a machine with an Intel GPU; a virtual machine needs the card passed through to it"
    if context.facts.system.container and not context.facts.adapters.visible:
        fix = f"{_PASS_GPU}; and /sys must be the host's"
    yield chain.judge(Check(SECTION, "PCI device", "fail", found, "an Intel GPU", fix))
    context.facts.causes["GPU"] = "PCI device"


def _pci(gpu: Adapter, tag: str) -> Check:
    facts = gpu.facts
    parts = [f"{gpu.name} (8086:{gpu.pci_id})", "discrete" if gpu.discrete else "integrated"]
    if isinstance(facts, GpuFacts):
        parts.append(facts.family.title)
    if gpu.memory_bytes:
        parts.append(f"{gpu.memory_bytes / 2**30:.0f} GiB")
    elif isinstance(facts, GpuFacts) and facts.memory_gib:
        parts.append(f"sold with {' or '.join(map(str, facts.memory_gib))} GiB")
    found = ", ".join(parts)
    if facts is None:
        return Check(SECTION, f"PCI device{tag}", "ok", f"{found}; newer than docvino's table")
    return Check(SECTION, f"PCI device{tag}", "ok", found)


# ---- Linux, one card


def _linux_card(gpu: Adapter, tag: str, system: System) -> Iterator[Check]:
    yield _kernel_driver(gpu, tag, system)
    yield _node(gpu, tag, system)
    if gpu.nodes and gpu.nodes[0][1] is not None:
        yield _rights(SECTION, f"rights{tag}", *gpu.nodes[0], system)


def _kernel_driver(gpu: Adapter, tag: str, system: System) -> Check:
    name = f"kernel driver{tag}"
    family = gpu.facts.family if isinstance(gpu.facts, GpuFacts) else None
    wanted = family.kernel_driver if family else "i915 or xe"
    least = family.kernel if family else None
    if least:
        wanted += f", kernel {least} or later"
    kernel = parse_version(system.upstream_kernel)
    bound = parse_version(least) if least else None
    old = bool(kernel and bound and compare(kernel, bound) < 0)
    found = f"{gpu.kernel_driver or 'none is bound to it'}, kernel {system.upstream_kernel or 'unknown'}"
    found += f", firmware GuC {gpu.guc}" if gpu.guc else ""
    if gpu.kernel_driver == "vfio-pci":
        fix = "the card is set aside for a virtual machine: take its id out of vfio-pci's options and reboot"
        return Check(SECTION, name, "fail", found, wanted, fix)
    if gpu.kernel_driver is None:
        newer = f"install kernel {least} or later" if old else f"sudo modprobe {wanted.split(',')[0].split(' ')[0]}"
        return Check(SECTION, name, "fail", found, wanted, f"{newer}; `sudo dmesg` says what the driver did not like")
    if family and gpu.kernel_driver not in (family.kernel_driver,):
        # compute-runtime issue 868: an A770M on xe aborts in Level Zero.
        fix = f"remove force_probe switches from the kernel's command line, so that {family.kernel_driver} takes it"
        return Check(SECTION, name, "warn", found, wanted, fix)
    if old:
        return Check(SECTION, name, "warn", found, wanted, f"install kernel {least} or later")
    return Check(SECTION, name, "ok", found, wanted)


def _node(gpu: Adapter, tag: str, system: System) -> Check:
    name = f"device node{tag}"
    wanted = "/dev/dri/renderD128 or the like"
    there = [path for path, node in gpu.nodes if node is not None]
    if there:
        return Check(SECTION, name, "ok", ", ".join(there), wanted)
    missing = ", ".join(path for path, _ in gpu.nodes)
    if system.container:
        found = f"{missing} is not in this container" if missing else "no node in this container"
        fix = _PASS_GPU
        return Check(SECTION, name, "fail", found, wanted, fix)
    found = f"{missing} is missing" if missing else "the kernel driver made none"
    return Check(
        SECTION, name, "fail", found, wanted, "sudo udevadm trigger; or reboot: the kernel driver did not start"
    )


def _rights(section: str, name: str, path: str, node: Node | None, system: System) -> Check:
    group = node.group if node else ""
    wanted = f"read and write on {path}"
    if node is None or node.usable:
        return Check(section, name, "ok", f"{path} may be used (group {group})", wanted)
    found = f"{path} belongs to group {group}, and this user may not open it"
    if system.container:
        fix = f'docker run --device {path} --group-add "$(stat -c %g {path})" ...'
    elif node.member == "listed":
        found += "; the user is in that group, but this session began before"
        fix = "log out and in again"
    else:
        fix = f"sudo usermod -a -G {group} $LOGNAME, then log out and in again"
    return Check(section, name, "fail", found, wanted, fix)


# ---- Windows, one card


def _windows_card(gpu: Adapter, tag: str) -> Iterator[Check]:
    if gpu.problem:
        what, fix = _WINDOWS_PROBLEMS.get(gpu.problem, ("not working", "install the current driver"))
        yield Check(SECTION, f"Windows status{tag}", "fail", f"{what} (code {gpu.problem})", "working (code 0)", fix)
    name = f"driver{tag}"
    if gpu.driver is None:
        fix = "install the current graphics driver of intel.com"
        yield Check(SECTION, name, "fail", "none", "Intel's driver", fix)
        return
    dated = f" of {gpu.dated}" if gpu.dated else ""
    found = f"{gpu.driver}{dated}"
    family = gpu.facts.family if isinstance(gpu.facts, GpuFacts) else None
    floor = family.windows if family else None
    if family is None or floor is None:
        yield Check(SECTION, name, "ok", found)
        return
    here, least = marketing_number(gpu.driver), marketing_number(floor)
    # Numbers of one branch rise with time; 6257 of another was made after 6314. A later date passes, too.
    later = bool(gpu.dated and family.windows_date and gpu.dated >= family.windows_date)
    wanted = f"{floor} or later"
    if here is not None and least is not None and here < least and not later:
        yield Check(SECTION, name, "warn", found, wanted, "install the current graphics driver of intel.com")
    else:
        yield Check(SECTION, name, "ok", found, wanted)


# ---- WSL


def _wsl(context: Context) -> Check:
    machine, system = context.facts.machine, context.facts.system
    wanted = "/dev/dxg and /usr/lib/wsl/lib/libdxcore.so"
    if machine.node("/dev/dxg") is None:
        fix = "on Windows: wsl --update, and Intel's current driver"
        if system.container:
            fix = "docker run --device /dev/dxg -v /usr/lib/wsl:/usr/lib/wsl ..."
        return Check(SECTION, "WSL", "fail", "no /dev/dxg", wanted, fix)
    if "libdxcore.so" not in machine.names("/usr/lib/wsl/lib"):
        fix = "docker run -v /usr/lib/wsl:/usr/lib/wsl ..." if system.container else "on Windows: wsl --update"
        return Check(SECTION, "WSL", "fail", "no /usr/lib/wsl/lib/libdxcore.so", wanted, fix)
    return Check(SECTION, "WSL", "ok", "/dev/dxg and libdxcore.so are there", wanted)


# ---- user-mode drivers


def _install(system: System) -> str:
    """How to install the runtime here."""
    known = table().install.get(system.distribution)
    if known is None:
        return f"install {DEBS}"
    return f"{known.command}; {known.note}" if known.note else known.command


def _drivers(context: Context) -> Drivers | None:
    """What the drivers answered; None when they did not."""
    try:
        return context.facts.drivers
    except (NoAnswerError, OSError):
        return None


def _opencl(context: Context, gpus: Sequence[Adapter]) -> Iterator[Check]:
    facts = context.facts
    system = facts.system
    windows = facts.machine.system == "Windows"
    loader = "OpenCL.dll" if windows else "libOpenCL.so.1"
    install = "install the current graphics driver of intel.com" if windows else _install(system)
    try:
        drivers = facts.drivers
    except NoAnswerError as error:
        # Whatever asks this driver will fare alike, OpenVINO, too.
        fix = f"update the driver: {install}"
        yield Check(SECTION, "OpenCL loader", "fail", str(error), f"{loader} answers", fix)
        if not windows:
            yield _icd(context, install)
            yield from _runtime(context, gpus, install)
        return
    if not drivers.loads(loader):
        message = drivers.libraries.get(loader, "not looked for")
        yield Check(SECTION, "OpenCL loader", "fail", message, f"{loader} can be loaded", install)
    else:
        yield Check(SECTION, "OpenCL loader", "ok", f"{loader} loads")
    if not windows:
        yield _icd(context, install)
    level_zero = "ze_loader.dll" if windows else "libze_loader.so.1"
    parts = ["loader there" if drivers.loads(level_zero) else "no loader"]
    if not windows:
        parts.append("driver there" if drivers.loads("libze_intel_gpu") else "no driver")
    note = "" if all(part.endswith("there") for part in parts) else "; OpenVINO does not need it for GPUs"
    yield Check(SECTION, "Level Zero", "ok", ", ".join(parts) + note)
    if not windows:
        yield from _runtime(context, gpus, install)


def _icd(context: Context, install: str) -> Check:
    icds = [icd for icd in context.facts.icds if icd.intel]
    wanted = "a file of /etc/OpenCL/vendors that names libigdrcl.so"
    if not icds:
        others = [icd.name for icd in context.facts.icds]
        found = f"only {', '.join(others)}" if others else "no file"
        return Check(SECTION, "OpenCL driver", "fail", found, wanted, install)
    broken = [icd for icd in icds if icd.exists is False]
    if len(broken) == len(icds):
        found = f"{broken[0].name} names {broken[0].library}, which is missing"
        return Check(SECTION, "OpenCL driver", "fail", found, wanted, install)
    return Check(SECTION, "OpenCL driver", "ok", ", ".join(f"{icd.name} -> {icd.library}" for icd in icds), wanted)


def runtime_version(context: Context) -> str | None:
    """The compute runtime's version: what an OpenCL device of Intel says, else that of its package."""
    drivers = _drivers(context)
    intel = drivers.intel if drivers else ()
    package = context.facts.packages.runtime
    loaded = next((device.driver for device in intel), None)
    # OpenCL says 26.18.38308 where the package says 26.18.38308.1: the longer one tells more when both agree.
    numbers = [parse_version(text) for text in (loaded, package) if text]
    if len(numbers) == 2 and numbers[0] and numbers[1] and compare(numbers[0], numbers[1]) == 0:
        return package
    return loaded or package


def _runtime(context: Context, gpus: Sequence[Adapter], install: str) -> Iterator[Check]:
    packages = context.facts.packages
    found = runtime_version(context)
    floors = {gpu.facts.runtime: gpu for gpu in gpus if isinstance(gpu.facts, GpuFacts) and gpu.facts.runtime}
    legacy = [gpu for gpu in gpus if isinstance(gpu.facts, GpuFacts) and gpu.facts.family.legacy_runtime]
    if found is None and packages.legacy_runtime is None:
        status: Status = "skip" if packages.manager == "" or not gpus else "fail"
        text = "its version cannot be told" if status == "skip" else "no package of it is installed"
        yield Check(SECTION, "compute runtime", status, text, fix="" if status == "skip" else install)
        return
    parts = [found or "", f"IGC {packages.compiler}" if packages.compiler else ""]
    parts += [f"legacy {packages.legacy_runtime}" if packages.legacy_runtime else ""]
    text = ", ".join(part for part in parts if part)
    version = parse_version(found) if found else None
    for floor, gpu in floors.items():
        least = parse_version(floor or "")
        if version and least and compare(version, least) < 0:
            yield Check(SECTION, "compute runtime", "fail", text, f"{floor} or later, for {gpu.name}", install)
            return
    if legacy and packages.legacy_runtime is None and packages.manager:
        wanted = f"intel-opencl-icd-legacy1, for {legacy[0].name}"
        yield Check(SECTION, "compute runtime", "warn", text, wanted, f"install it from {DEBS}")
        return
    wanted = ", ".join(f"{floor} or later, for {gpu.name}" for floor, gpu in floors.items())
    yield Check(SECTION, "compute runtime", "ok", text, wanted)
    needed = compiler_of(found) if found else None
    have = parse_version(packages.compiler) if packages.compiler else None
    least = parse_version(needed) if needed else None
    if have and least and (have[0] != least[0] or compare(have, least) < 0):
        fix = f"install runtime and compiler from one place: {install}"
        yield Check(SECTION, "compiler (IGC)", "warn", f"{packages.compiler}", f"{needed} or later", fix)


def _resizable_bar(gpu: Adapter, tag: str) -> Check:
    name = f"Resizable BAR{tag}"
    if gpu.bar_bytes is None:
        return Check(SECTION, name, "skip", "cannot be read here; the setup of the firmware and GPU-Z show it")
    found = f"the processor sees {gpu.bar_bytes / 2**20:.0f} MiB of the card's memory"
    if gpu.resizable_bar is not False:
        return Check(SECTION, name, "ok", found, "all of it")
    fix = "turn on Resizable BAR and Above 4G Decoding in the firmware (CSM off)"
    # xe refuses such cards (isSmallBarConfigAllowed); with i915 they work slowly.
    status: Status = "fail" if gpu.kernel_driver == "xe" else "warn"
    return Check(SECTION, name, status, found, "all of it", fix)


def _situation(context: Context, gpus: Sequence[Adapter]) -> Situation:
    facts = context.facts
    drivers = _drivers(context)
    try:
        openvino = facts.openvino.version
    except (NoAnswerError, OSError):
        openvino = None
    packages = facts.packages
    current = packages.runtime and parse_version(packages.runtime)
    cards = [Card(gpu.family, gpu.pci_id, gpu.kernel_driver, gpu.resizable_bar, gpu.driver) for gpu in gpus]
    return Situation(
        facts.machine.system,
        tuple(cards),
        runtime=runtime_version(context),
        igc=packages.compiler,
        kernel=facts.system.upstream_kernel,
        openvino=openvino,
        windows_release=facts.system.release,
        opencl_empty=drivers is not None and drivers.problem is None and not drivers.intel,
        # 24.35 is the last release of the legacy branch; a current one beside it is newer.
        legacy_beside=packages.legacy_runtime is not None and bool(current and current > (24, 35)),
    )


def _known(context: Context, gpus: Sequence[Adapter]) -> Iterator[Check]:
    here = _situation(context, gpus)
    shown = [problem for problem in known_problems() if holds(problem, here) and (problem.confirmed or context.verbose)]
    for problem in shown:
        grade = {"A": "confirmed", "B": "confirmed by a reporter", "C": "one report"}[problem.grade]
        found = f"{problem.symptom} ({grade}: {problem.source})"
        if problem.not_ours:
            yield Check(SECTION, "known problem", "ok", f"{found}; {problem.not_ours}")
        else:
            status: Status = "fail" if problem.hides_gpus else "warn"
            yield Check(SECTION, "known problem", status, found, fix=problem.fix)
    if not shown:
        listed = sum(problem.confirmed for problem in known_problems())
        yield Check(SECTION, "known problems", "ok", f"none of the {listed} on docvino's list")


# ---- what the layers above see


def _seen(context: Context, count: int) -> Iterator[Check]:
    drivers, openvino = _drivers(context), context.facts.openvino
    install = _install(context.facts.system)
    wanted = "each Intel GPU" if count > 1 else "the Intel GPU"
    if drivers is not None:
        yield _opencl_devices(drivers, count, wanted, install)
    gpu_devices = [device for device in openvino.devices if device.is_gpu and device.intel]
    if len(gpu_devices) < count:
        found = ", ".join(f"{device.name} {device.full_name}" for device in gpu_devices) or "none"
        if openvino.gpu_trouble:
            found += f"; its GPU plugin says: {openvino.gpu_trouble[-160:]}"
        fix = "pip install --force-reinstall openvino" if openvino.gpu_trouble else f"update the runtime: {install}"
        yield Check(SECTION, "OpenVINO's GPUs", "fail", found, wanted, fix)
    else:
        found = ", ".join(f"{device.name} is {device.full_name}" for device in gpu_devices)
        yield Check(SECTION, "OpenVINO's GPUs", "ok", found, wanted)


def _opencl_devices(drivers: Drivers, count: int, wanted: str, install: str) -> Check:
    # What drivers print of themselves is the best hint there is.
    hint = next((line for line in drivers.said if "BAR" in line or "rror" in line), "")
    listed = ", ".join(f"{device.name} (driver {device.driver})" for device in drivers.intel)
    others = [device.name for device in drivers.devices if device not in drivers.intel]
    if drivers.problem is not None:
        return Check(SECTION, "OpenCL devices", "fail", drivers.problem, wanted, install)
    if len(drivers.intel) < count:
        found = listed or (f"only {', '.join(others)}" if others else "none")
        found += f"; it says: {hint}" if hint else ""
        return Check(SECTION, "OpenCL devices", "fail", found, wanted, f"update the runtime: {install}")
    return Check(SECTION, "OpenCL devices", "ok", listed, wanted)


# ---- NPUs


def check_npus(context: Context) -> Iterator[Check]:
    facts = context.facts
    npus, system = facts.adapters.npus, facts.system
    chain = Chain(context.severity("NPU", "skip"))
    windows = facts.machine.system == "Windows"
    if not npus:
        if chain.severity == "fail":
            fix = "use --device CPU or GPU; Intel Core Ultra processors have one"
            if system.container and not facts.adapters.visible:
                fix = _PASS_NPU
            yield chain.judge(Check(NPU_SECTION, "PCI device", "fail", "no Intel NPU", "an Intel NPU", fix))
            facts.causes["NPU"] = "PCI device"
        return
    for npu in npus:
        yield Check(NPU_SECTION, "PCI device", "ok", f"{npu.name} (8086:{npu.pci_id})")
        checks = _windows_card(npu, "") if windows else _linux_npu(npu, system, facts.drivers)
        for check in checks:
            yield chain.judge(Check(NPU_SECTION, check.name, check.status, check.found, check.wanted, check.fix))
    listed = facts.openvino.chosen.get("NPU")
    if listed:
        yield Check(NPU_SECTION, "OpenVINO's NPU", "ok", facts.openvino.device(listed.name).full_name)
    else:
        check = Check(NPU_SECTION, "OpenVINO's NPU", "fail", "none", "the NPU", "update the NPU driver")
        yield chain.judge(check, consequence=True)
    if chain.cause:
        facts.causes["NPU"] = chain.cause


def _linux_npu(npu: Adapter, system: System, drivers: Drivers) -> Iterator[Check]:
    packages = "the packages of github.com/intel/linux-npu-driver/releases"
    bound = npu.kernel_driver or "none is bound to it"
    status: Status = "ok" if npu.kernel_driver == "intel_vpu" else "fail"
    fix = "" if status == "ok" else "sudo modprobe intel_vpu (kernel 6.6 or later)"
    yield Check(NPU_SECTION, "kernel driver", status, bound, "intel_vpu", fix)
    there = [(path, node) for path, node in npu.nodes if node is not None]
    if not there:
        fix = "reboot: the kernel driver did not start, or its firmware is missing"
        if system.container:
            fix = _PASS_NPU
        yield Check(NPU_SECTION, "device node", "fail", "no /dev/accel/accel0", "/dev/accel/accel0", fix)
    else:
        yield Check(NPU_SECTION, "device node", "ok", there[0][0])
        yield _rights(NPU_SECTION, "rights", *there[0], system)
    if drivers.loads("libze_loader") and (drivers.loads("libze_intel_npu") or drivers.loads("libze_intel_vpu")):
        yield Check(NPU_SECTION, "Level Zero", "ok", "loader and NPU driver load")
    else:
        missing = "libze_loader.so.1" if not drivers.loads("libze_loader") else "libze_intel_npu.so.1"
        yield Check(
            NPU_SECTION, "Level Zero", "fail", f"{missing} cannot be loaded", "both", f"install libze1 and {packages}"
        )
