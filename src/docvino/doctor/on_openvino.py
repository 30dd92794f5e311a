"""Checks of OpenVINO: its devices, the one that was asked for, and whether it computes rightly and at full speed."""

from __future__ import annotations

from collections.abc import Iterator

from docvino.doctor.check import Check, Context, OpenVinoDevice, Status
from docvino.errors import DeviceError, InferenceError, MissingExtraError, VerifyError, nearest
from docvino.machine.adapters import Adapter
from docvino.machine.border import NoAnswerError
from docvino.machine.frequency import REASONS, Frequencies, frequency_files, read_frequencies
from docvino.machine.power import read_power

SECTION = "OpenVINO"
CPU_LOAD_S, GPU_LOAD_S = 0.5, 5.0
# Relative to the largest value: what a float32 and the 16-bit formats keep of a sum of 576 products.
LIMITS = {"f32": 1e-3, "f16": 1e-2, "bf16": 5e-2}
SLOW = 0.5  # of the highest frequency; a power limit alone keeps a card above this


def check_openvino(context: Context) -> Iterator[Check]:
    openvino = context.facts.openvino
    if openvino.problem is not None or openvino.version is None:
        fix = "pip install --force-reinstall openvino"
        if context.facts.machine.system == "Windows":
            fix += "; and the Visual C++ redistributable (aka.ms/vs/17/release/vc_redist.x64.exe)"
        found = f"cannot be imported: {openvino.problem}"
        yield Check(SECTION, "OpenVINO", "fail", found, fix=fix, exit_code=MissingExtraError.exit_code)
        return
    yield Check(SECTION, "OpenVINO", "ok", openvino.version)
    for device in openvino.devices:
        yield _device(device, wsl=context.facts.system.wsl)


def _device(device: OpenVinoDevice, *, wsl: bool) -> Check:
    name = f"device {device.name}"
    if device.is_gpu and not device.intel:
        return Check(SECTION, name, "skip", f"{device.full_name}: not Intel's, docvino does not use it")
    properties = device.properties
    capabilities = [str(each) for each in properties.get("OPTIMIZATION_CAPABILITIES", ())]
    # OpenVINO calls a processor integrated, too.
    parts = [device.kind if device.is_gpu else "", ", ".join(capabilities)]
    if device.is_gpu:
        parts.append("matrix units (XMX)" if "GPU_HW_MATMUL" in capabilities else "no matrix units")
        if total := properties.get("GPU_DEVICE_TOTAL_MEM_SIZE"):
            parts.append(f"{int(total) / 2**30:.1f} GiB")
        if largest := properties.get("GPU_DEVICE_MAX_ALLOC_MEM_SIZE"):
            parts.append(f"largest allocation {int(largest) / 2**30:.1f} GiB")
            if wsl and int(largest) <= 2**30:
                parts[-1] += ", a cap of WSL: what needs more in one piece fails"
        if driver := properties.get("GPU_DRIVER_VERSION"):
            parts.append(f"driver {driver}")
        if device.address:
            parts.append(device.address)
    return Check(SECTION, name, "ok", f"{device.full_name} ({'; '.join(part for part in parts if part)})")


def check_device(context: Context) -> Iterator[Check]:
    """The device that was asked for, and those of single stages."""
    openvino = context.facts.openvino
    names = tuple(device.name for device in openvino.devices)
    for purpose, wanted in context.wanted.items():
        choice = openvino.chosen.get(wanted)
        if choice is not None:
            title = openvino.device(choice.name).full_name
            is_other = "" if choice.name == wanted else f" is {choice.name}"
            why = f" ({choice.why})" if choice.why else ""
            yield Check(SECTION, purpose, "ok", f"{wanted}{is_other}: {title}{why}")
            continue
        found = f"OpenVINO sees no device {wanted!r} on this machine"
        if cause := context.facts.causes.get(wanted.split(".")[0]):
            yield Check(SECTION, purpose, "skip", f"{found} (first mend: {cause})")
            continue
        one_of = f"one of {', '.join(names)}" if names else ""
        fix = nearest(wanted, names) if names else "pip install --force-reinstall openvino"
        yield Check(SECTION, purpose, "fail", found, one_of, fix, DeviceError.exit_code)


def check_inference(context: Context) -> Iterator[Check]:
    """Some seconds of work on the devices asked for and on every other GPU of Intel."""
    openvino = context.facts.openvino
    asked = {choice.name for name in context.wanted.values() if (choice := openvino.chosen.get(name))}
    for device in openvino.devices:
        if device.name in asked or (device.is_gpu and device.intel):
            yield from _busy(context, device, asked=device.name in asked)


def _busy(context: Context, device: OpenVinoDevice, *, asked: bool) -> Iterator[Check]:
    facts, name = context.facts, device.name
    own = facts.openvino.chosen.get(name)
    execution = context.settings.runtime.execution or (own.execution if own else "f32")
    adapter = _adapter_of(context, device)
    files = frequency_files(facts.machine, adapter) if adapter else None
    seconds = GPU_LOAD_S if device.is_gpu else CPU_LOAD_S
    title = f"inference on {name}"
    severity: Status = "fail" if asked else "warn"
    try:
        answer = facts.machine.ask("load", name, f"{seconds:g}", execution, watch=files.watched if files else ())
    except NoAnswerError as error:
        fix = "update the driver; until then use --device CPU" if device.is_gpu else "docvino doctor --report FILE"
        yield Check(SECTION, title, severity, str(error), fix=fix, exit_code=InferenceError.exit_code if asked else 0)
        return
    found = answer.facts
    if found["problem"] is not None:
        fix = "try --execution f32 and --device CPU"
        yield Check(
            SECTION, title, severity, found["problem"], fix=fix, exit_code=DeviceError.exit_code if asked else 0
        )
        return
    said = (
        f"{found['gflops']:.0f} GFLOP/s over {found['seconds']:.1f} s in {found['execution']}; compiled in "
        f"{found['compile_s']:.2f} s, first answer after {found['first_s'] * 1000:.0f} ms"
    )
    limit = LIMITS[execution]
    difference = found["difference"]
    if difference is None or difference > limit:
        how_far = "not finite" if difference is None else f"off by {difference:.1e} of the largest value"
        fix = "do not use this device before its driver is updated; `docvino verify` shows which models are hit"
        code = VerifyError.exit_code if asked else 0
        yield Check(SECTION, title, severity, f"wrong numbers: {how_far}; {said}", f"within {limit:.0e}", fix, code)
    elif found["execution"] != execution:
        fix = f"--execution {found['execution']}"
        yield Check(SECTION, title, severity, said, execution, fix, DeviceError.exit_code if asked else 0)
    else:
        yield Check(SECTION, title, "ok", f"{said}; numbers right within {difference:.0e}")
    if files is not None:
        yield _frequency(name, read_frequencies(facts.machine, files, answer.seen or {}), files.allowed)


def _adapter_of(context: Context, device: OpenVinoDevice) -> Adapter | None:
    gpus = context.facts.adapters.gpus
    return next((gpu for gpu in gpus if device.is_gpu and gpu.address and gpu.address == device.address), None)


def _frequency(device: str, found: Frequencies | None, allowed_file: str) -> Check:
    name = f"frequency of {device}"
    if found is None:
        return Check(SECTION, name, "skip", "could not be read while it was busy")
    reasons = ", ".join(dict.fromkeys(REASONS[reason] for reason in found.reasons))
    of = f" of {found.highest}" if found.highest else ""
    text = f"{found.reached}{of} MHz under load" + (f", held back by: {reasons}" if reasons else "")
    if not found.highest:
        return Check(SECTION, name, "ok", text)
    wanted = f"at least {SLOW * found.highest:.0f} MHz"
    if found.reached >= SLOW * found.highest:
        return Check(SECTION, name, "ok", text, wanted)
    if found.allowed is not None and found.allowed < SLOW * found.highest:
        fix = f"echo {found.highest} | sudo tee {allowed_file}"
        return Check(SECTION, name, "warn", f"{text}, settings allow {found.allowed} MHz", wanted, fix)
    fixes = {
        "heat": "better cooling",
        "power limit": "its power supply and cables, and the power plan",
    }
    fix = next((f"look at {cure}" for word, cure in fixes.items() if word in reasons), "")
    return Check(SECTION, name, "warn", text, wanted, fix or "update kernel and firmware (linux-firmware), then reboot")


def check_power(context: Context) -> Iterator[Check]:
    """Windows alone: its power plan keeps GPUs slow."""
    if context.facts.machine.system != "Windows":
        return
    power = read_power(context.facts.machine)
    supply = {True: "on battery", False: "on mains", None: ""}[power.on_battery]
    parts = [power.plan and f"plan {power.plan}", power.mode and f"mode {power.mode}", supply]
    found = ", ".join(part for part in parts if part) or "unknown"
    if power.saving:
        fix = "Settings, System, Power: mode best performance; and plug it in"
        yield Check(SECTION, "power", "warn", found, "no saving of energy", fix)
    else:
        yield Check(SECTION, "power", "ok", found)
