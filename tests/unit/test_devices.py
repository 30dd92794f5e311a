"""Facts of devices: which are there, which one is taken, how each is used, and how much memory it has for a model."""

from __future__ import annotations

import dataclasses
import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

from docvino.device import (
    PROFILES,
    Model,
    check_device,
    choose_device,
    compile_model,
    compile_part,
    find_device,
    list_devices,
    memory,
    profiles,
    said,
    target_of,
)
from docvino.device.memory import MIB, Need, Promise, host_memory_bytes, need_of, promise
from docvino.errors import DeviceError
from docvino.settings import RuntimeConfig
from docvino.specs.orientation import ORIENTATION
from docvino.specs.pp_ocr import RECOGNITION
from fake_core import FakeCore, a770, b580, geforce, gpu, npu, uhd

Machine = Callable[..., FakeCore]
ONE = dataclasses.replace(ORIENTATION, name="toy")
SEVERAL = dataclasses.replace(RECOGNITION, name="toy")


@pytest.fixture
def runtime(tmp_path: Path) -> RuntimeConfig:
    return RuntimeConfig(model_cache=False, data_dir=tmp_path / "data", cache_dir=tmp_path / "cache")


@pytest.fixture
def plus_one(tmp_path: Path) -> Path:
    return save(tmp_path, [-1, 3])


def save(folder: Path, shape: list[int]) -> Path:
    """x float32 -> y = x + 1."""
    x = ops.parameter(shape, np.float32, name="x")
    x.output(0).set_names({"x"})
    y = ops.add(x, ops.constant(np.float32(1)))
    y.output(0).set_names({"y"})
    path = folder / "toy.xml"
    ov.save_model(ov.Model([y], [x], "toy"), path, compress_to_fp16=False)
    return path


def asked(core: FakeCore, name: str) -> dict[str, Any]:
    """The properties with which the last model was compiled on a device."""
    return core._devices[name].compiled[-1][1]


# ---- which are there


def test_a_cpu_is_always_there_with_its_name_its_memory_and_what_it_can_do() -> None:
    (cpu,) = (device for device in list_devices() if device.name == "CPU")
    assert cpu.full_name
    assert (cpu.kind, cpu.family, cpu.driver) == ("cpu", "CPU", None)
    assert "FP32" in cpu.capabilities
    assert cpu.profile.name.startswith("cpu-")
    assert cpu.memory_bytes == host_memory_bytes()
    if sys.platform.startswith("linux"):
        total = int(Path("/proc/meminfo").read_text(encoding="ascii").split()[1]) * 1024
        assert 256 * MIB < (cpu.memory_bytes or 0) <= 1.01 * total


def test_a_card_is_described_by_what_openvino_says_of_it(machine: Machine) -> None:
    machine(a770())
    card = find_device("GPU")
    assert said(card) == "GPU (Intel(R) Arc(TM) A770 Graphics (dGPU), 15.1 GiB, driver 26.22.38646.4)"
    assert (card.kind, card.profile.name) == ("discrete", "arc-a")
    assert "GPU_HW_MATMUL" in card.capabilities
    assert card.identity["driver"] == "26.22.38646.4"
    assert card.identity["uuid"].startswith("8680a056")


def test_gpus_of_other_makers_are_not_listed_and_do_no_harm(machine: Machine) -> None:
    machine(a770("GPU.0"), geforce("GPU.1"))
    assert [device.name for device in list_devices()] == ["CPU", "GPU.0"]
    with pytest.raises(DeviceError, match=r"no device 'GPU\.1'"):
        find_device("GPU.1")


def test_a_device_that_does_not_answer_is_left_out_and_named(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    broken = a770("GPU.0")
    broken.says["FULL_DEVICE_NAME"] = RuntimeError("Check 'x' failed at y:\n[GPU] clGetDeviceInfo, error code: -5")
    machine(broken, b580("GPU.1"))
    assert [device.name for device in list_devices()] == ["CPU", "GPU.1"]
    assert "device GPU.0 does not answer: [GPU] clGetDeviceInfo, error code: -5" in caplog.text


def test_a_driver_that_says_little_is_no_hindrance(machine: Machine) -> None:
    silent = uhd("GPU")
    silent.says = {"FULL_DEVICE_NAME": "Intel(R) Graphics [0x9a49] (iGPU)"}
    machine(silent)
    found = find_device("GPU")
    assert (found.kind, found.memory_bytes, found.driver, found.capabilities) == ("integrated", None, None, ())
    assert found.profile is profiles.XE_PLAIN


# ---- which one is taken


@pytest.mark.parametrize(
    ("devices", "chosen", "why"),
    [
        ((), "CPU", "no GPU of Intel"),
        ((uhd("GPU"),), "GPU", "a GPU, none with memory of its own"),
        ((a770(),), "GPU", "a GPU with memory of its own"),
        ((uhd("GPU.0"), b580("GPU.1")), "GPU.1", "a GPU with memory of its own"),
        ((a770("GPU.0"), b580("GPU.1")), "GPU.0", "a GPU with memory of its own, the strongest of 2"),  # more memory
        ((npu(),), "CPU", "no GPU of Intel"),
        ((geforce("GPU"),), "CPU", "no GPU of Intel"),
    ],
    ids=["cpu", "integrated", "card", "integrated and card", "two cards", "npu", "another maker's"],
)
def test_auto_is_a_gpu_with_memory_of_its_own_then_any_gpu_then_the_cpu(
    machine: Machine, devices: tuple[Any, ...], chosen: str, why: str
) -> None:
    machine(*devices)
    device, said_why = choose_device(list_devices())
    assert (device.name, said_why) == (chosen, why)
    assert find_device("auto").name == find_device("AUTO").name == RuntimeConfig().device.replace("AUTO", chosen)


def test_gpu_is_the_strongest_one_and_numbers_are_taken_as_they_are(machine: Machine) -> None:
    machine(uhd("GPU.0"), b580("GPU.1"), npu())
    names = ("GPU", "gpu.0", "GPU.1", "cpu", "NPU")
    assert [check_device(name) for name in names] == ["GPU.1", "GPU.0", "GPU.1", "CPU", "NPU"]
    machine(a770("GPU"))
    assert [check_device(name) for name in ("GPU", "GPU.0")] == ["GPU", "GPU"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("GPU", "the group render, in a container --device /dev/dri"),
        ("NPU", "in a container --device /dev/accel"),
        ("XPU", "CPU"),
        ("CPU.9", "CPU"),
        ("", "CPU"),
        ("HETERO:GPU,CPU", "CPU"),
        ("AUTO:GPU", "CPU"),
    ],
)
def test_an_absent_device_is_refused_with_what_is_there_and_what_may_be_missing(name: str, hint: str) -> None:
    with pytest.raises(DeviceError) as caught:
        find_device(name)
    assert str(caught.value) == f"OpenVINO sees no device {name!r} on this machine"
    assert hint in caught.value.fix
    assert "`docvino doctor`" in caught.value.fix


def test_a_number_that_is_not_there_is_answered_with_one_that_is(machine: Machine) -> None:
    machine(uhd("GPU.0"), b580("GPU.1"))
    with pytest.raises(DeviceError) as caught:
        find_device("GPU.2")
    assert caught.value.fix.startswith("did you mean 'GPU.")


# ---- how each is used


@pytest.mark.parametrize(
    ("device", "profile"),
    [
        (a770(), "arc-a"),
        (gpu("GPU", "A380", "v12.56.5", 5.9, discrete=True, xmx=True), "arc-a"),
        (b580("GPU"), "arc-b"),
        (gpu("GPU", "B70", "v20.2.0", 31, discrete=True, xmx=True), "arc-b"),
        (gpu("GPU", "another", "v31.0.0", 31, discrete=True, xmx=True), "gpu-discrete"),
        (gpu("GPU", "without a number", "Intel(R) Graphics", 31, discrete=True, xmx=True), "gpu-discrete"),
        (uhd("GPU"), "xe-integrated"),
        (gpu("GPU", "Meteor Lake", "v12.71.4", 28, discrete=False, xmx=False), "xe-integrated"),
        (gpu("GPU", "140V", "v20.4.4", 8, discrete=False, xmx=True), "xe-integrated-xmx"),
        (npu(), "npu"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.says["FULL_DEVICE_NAME"],
)
def test_a_profile_follows_from_what_the_device_says(machine: Machine, device: Any, profile: str) -> None:
    machine(device)
    assert find_device(device.name).profile.name == profile


@pytest.mark.parametrize(
    ("flags", "capabilities", "profile"),
    [
        ("avx2 avx512_vnni avx512_bf16 amx_tile amx_bf16 amx_int8", "BF16", "cpu-amx"),
        ("avx2 avx512f avx512_vnni avx512_bf16", "BF16", "cpu-avx512-bf16"),
        ("avx2 avx512f avx512_vnni", "BF16", "cpu-vnni"),
        ("avx2 avx_vnni", "", "cpu-vnni"),
        ("sse4_2 avx2", "", "cpu-avx2"),
        ("", "BF16", "cpu-avx512-bf16"),  # Windows says nothing of flags
        ("", "", "cpu-avx2"),
    ],
)
def test_a_cpus_profile_follows_from_its_flags(flags: str, capabilities: str, profile: str) -> None:
    assert profiles.cpu_profile(flags.split(), capabilities.split()).name == profile


def test_every_profile_is_reached_and_says_why() -> None:
    assert len({profile.name for profile in PROFILES}) == len(PROFILES) == 10
    assert all(profile.about for profile in PROFILES)


def test_what_settings_leave_open_the_profile_decides(machine: Machine, runtime: RuntimeConfig) -> None:
    machine(a770(), npu())
    choices = {}
    for device in ("CPU", "GPU", "NPU"):
        target = target_of(runtime.model_copy(update={"device": device}))
        choices[device] = target.execution, target.kv_precision, target.slots
    assert choices == {"CPU": ("f32", "u8", 2), "GPU": ("f16", "f16", 4), "NPU": ("f16", "f16", 1)}
    own = {"device": "GPU", "execution": "f32", "kv_precision": "u8", "async_slots": 6}
    target = target_of(runtime.model_copy(update=own))
    assert (target.execution, target.kv_precision, target.slots) == ("f32", "u8", 6)


def test_each_stage_may_have_a_device_of_its_own(runtime: RuntimeConfig) -> None:
    mixed = runtime.model_copy(update={"device": "GPU", "layout_device": "NPU", "decoder_device": "GPU.1"})
    assert [mixed.on_stage(stage).device for stage in ("layout", "vision", "decoder")] == ["NPU", "GPU", "GPU.1"]
    assert mixed.on_stage("vision") is mixed


# ---- compiling for them


def test_a_model_says_where_and_in_what_it_came_to_run(
    machine: Machine, runtime: RuntimeConfig, plus_one: Path
) -> None:
    core = machine(uhd("GPU.0"), b580("GPU.1"))
    model = compile_model(plus_one, ONE, runtime.model_copy(update={"device": "GPU"}))
    assert (model.devices, model.execution_precision) == (("GPU.1",), "f16")
    assert core._devices["GPU.0"].compiled == []
    assert model.run({"x": np.ones((1, 3), np.float32)})["y"].tolist() == [[2, 2, 2]]
    assert asked(core, "GPU.1") == {
        "INFERENCE_PRECISION_HINT": "f16",
        "PERFORMANCE_HINT": "LATENCY",
        "CACHE_DIR": "",
    }


def test_f32_on_a_gpu_asks_for_accuracy_and_reads_it_back(
    machine: Machine, runtime: RuntimeConfig, plus_one: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = machine(a770())
    exact = runtime.model_copy(update={"device": "GPU", "execution": "f32"})
    assert compile_model(plus_one, ONE, exact).execution_precision == "f32"
    assert asked(core, "GPU")["EXECUTION_MODE_HINT"] == "ACCURACY"
    right = type(core.compile_model(core.read_model(plus_one), "GPU", {})).get_property
    monkeypatch.setattr(
        "fake_core._Compiled.get_property",
        lambda self, key: "ExecutionMode.PERFORMANCE" if key == "EXECUTION_MODE_HINT" else right(self, key),
    )
    with pytest.raises(DeviceError, match="GPU runs toy in the mode PERFORMANCE, not ACCURACY"):
        compile_model(plus_one, ONE, exact)


def test_a_model_that_ran_elsewhere_than_asked_is_refused(
    machine: Machine, runtime: RuntimeConfig, plus_one: Path
) -> None:
    machine(a770(runs_on="CPU"))
    with pytest.raises(DeviceError, match="toy was compiled for GPU and runs on CPU") as caught:
        compile_model(plus_one, ONE, runtime.model_copy(update={"device": "GPU"}))
    assert "--device CPU" in caught.value.fix


def test_lines_are_in_flight_in_as_many_requests_as_the_profile_says(
    machine: Machine, runtime: RuntimeConfig, plus_one: Path
) -> None:
    core = machine(a770())
    model = compile_model(plus_one, SEVERAL, runtime.model_copy(update={"device": "GPU"}))
    assert model.slots == 4
    assert "NUM_STREAMS" not in asked(core, "GPU")
    batches = [{"x": np.full((1, 3), value, np.float32)} for value in range(11)]
    assert [float(outputs["y"][0, 0]) for outputs in model.run_all(batches)] == list(range(1, 12))


def test_an_npu_is_given_sizes_and_refuses_graphs_without(
    machine: Machine, runtime: RuntimeConfig, tmp_path: Path
) -> None:
    machine(npu())
    on_npu = runtime.model_copy(update={"device": "NPU"})
    model = compile_model(save(tmp_path, [-1, 3]), ONE, on_npu)
    assert (model.devices, model.compiled.raw.inputs[0].partial_shape) == (("NPU",), ov.PartialShape([1, 3]))
    with pytest.raises(
        DeviceError, match=r"NPU runs graphs of fixed size only, and input x of toy is \[\?,3,\?\]"
    ) as no:
        compile_part(save(tmp_path, [-1, 3, -1]), "toy", on_npu)
    assert no.value.fix == ("use --device CPU or GPU; --layout-device NPU is for layout models, whose size is fixed")


# ---- memory


def chain(width: int) -> ov.Model:
    """x (?, 100) -> three products with weights 100 x width, width x width, width x 10; two of them alive at a time."""
    x = ops.parameter([-1, 100], np.float32, name="x")
    x.output(0).set_names({"x"})
    node = x
    for rows, columns in ((100, width), (width, width), (width, 10)):
        node = ops.matmul(node, ops.constant(np.zeros((rows, columns), np.float32)), False, False)
    return ov.Model([node], [x], "chain")


def test_a_need_is_weights_and_twice_what_is_alive_at_once() -> None:
    need = need_of(chain(1000), "f32", {"x": (50, 100)}, slots=3)
    weights = 4 * (100 * 1000 + 1000 * 1000 + 1000 * 10)
    alive = 50 * 2000  # numbers; twice their bytes are counted
    assert need == Need(weights, 2 * 4 * alive, 3, 0, buffer=4 * 1000 * 1000)
    assert need.total == round(1.1 * (weights + 3 * 2 * 4 * alive))
    half = need_of(chain(1000), "f16", {"x": (50, 100)})
    assert (half.weights, half.activations) == (weights // 2, 2 * 2 * alive)


def test_without_sizes_a_need_is_the_weights() -> None:
    assert need_of(chain(10), "f32", {}).activations == 0


def card_of(mib: float) -> Any:
    return gpu("GPU", "small card", "v12.56.5", mib / 1024, discrete=True, xmx=True)


@pytest.mark.parametrize(
    ("need", "fix"),
    [
        (Need(weights=200 * MIB), "use a smaller --precision (int8; int4 for vision-language models)"),
        (Need(10 * MIB, activations=40 * MIB, slots=4), "lower --async-slots"),
        (Need(10 * MIB, activations=160 * MIB), "use another --device"),
        (Need(50 * MIB, 10 * MIB, 1, keys_and_values=100 * MIB), "lower --kv-cache-mib"),
    ],
    ids=["weights", "slots", "one slot", "keys and values"],
)
def test_too_much_for_a_device_is_an_error_that_names_the_setting(machine: Machine, need: Need, fix: str) -> None:
    machine(card_of(100))
    with pytest.raises(DeviceError, match=r"big needs about 1\d\d|big needs about 2\d\d") as caught:
        promise(find_device("GPU"), "big", need)
    assert "and GPU (small card) has 100 MiB" in str(caught.value)
    assert fix in caught.value.fix


def test_models_that_are_held_count_and_those_that_are_gone_do_not(machine: Machine) -> None:
    gc.collect()  # models of other tests hold their promises until then
    machine(card_of(100))
    card = find_device("GPU")
    first = promise(card, "first", Need(weights=60 * MIB))
    with pytest.raises(DeviceError, match="100 MiB, 66 MiB of them promised to other models"):
        promise(card, "second", Need(weights=60 * MIB))
    assert Promise.on(card) == first.bytes
    del first
    gc.collect()
    assert Promise.on(card) == 0
    assert promise(card, "second", Need(weights=60 * MIB)).bytes == round(66 * MIB)


def test_a_device_that_does_not_tell_its_memory_is_tried(machine: Machine) -> None:
    silent = card_of(1)
    del silent.says["GPU_DEVICE_TOTAL_MEM_SIZE"]
    machine(silent)
    assert promise(find_device("GPU"), "big", Need(weights=500 * MIB))


def test_the_guard_is_asked_before_anything_is_compiled(
    machine: Machine, runtime: RuntimeConfig, tmp_path: Path
) -> None:
    core = machine(card_of(1))
    path = tmp_path / "chain.xml"
    ov.save_model(chain(1000), path, compress_to_fp16=False)
    with pytest.raises(DeviceError, match=r"chain needs about \d+ MiB \(weights 2, 1 x 0 at work\)"):
        compile_part(path, "chain", runtime.model_copy(update={"device": "GPU"}))
    assert core._devices["GPU"].compiled == []


def test_on_the_cpu_the_guard_knows_the_memory_of_the_machine(
    runtime: RuntimeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "chain.xml"
    ov.save_model(chain(1000), path, compress_to_fp16=False)
    monkeypatch.setattr("docvino.device.devices.host_memory_bytes", lambda: 3 * MIB)
    with pytest.raises(DeviceError, match=r"chain needs about 5 MiB .* has 3 MiB"):
        compile_part(path, "chain", runtime.model_copy(update={"device": "CPU"}))


@pytest.mark.skipif(sys.platform == "win32", reason="reads control groups")
def test_the_limit_of_a_container_is_its_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = Path
    (tmp_path / "memory.max").write_text("max\n", encoding="ascii")
    monkeypatch.setattr(memory, "Path", lambda path: tmp_path if path == "/sys/fs/cgroup" else real(path))
    without = host_memory_bytes()
    (tmp_path / "memory.max").write_text(f"{256 * MIB}\n", encoding="ascii")
    assert host_memory_bytes() == 256 * MIB < (without or 0)


def test_a_buffer_above_the_cards_limit_is_announced_to_it(
    machine: Machine, runtime: RuntimeConfig, tmp_path: Path
) -> None:
    card = a770()
    card.says["GPU_DEVICE_MAX_ALLOC_MEM_SIZE"] = MIB
    core = machine(card)
    path = tmp_path / "chain.xml"
    ov.save_model(chain(1000), path, compress_to_fp16=False)
    on_gpu = runtime.model_copy(update={"device": "GPU"})
    kept: list[Model] = [compile_part(path, "chain", on_gpu)]
    assert asked(core, "GPU")["GPU_ENABLE_LARGE_ALLOCATIONS"] == "YES"
    card.says["GPU_DEVICE_MAX_ALLOC_MEM_SIZE"] = 2 * MIB
    kept.append(compile_part(path, "chain", on_gpu))
    assert "GPU_ENABLE_LARGE_ALLOCATIONS" not in asked(core, "GPU")
    card.settings = card.settings - {"GPU_ENABLE_LARGE_ALLOCATIONS"}
    card.says["GPU_DEVICE_MAX_ALLOC_MEM_SIZE"] = MIB
    kept.append(compile_part(path, "chain", on_gpu))
    assert "GPU_ENABLE_LARGE_ALLOCATIONS" not in asked(core, "GPU")
