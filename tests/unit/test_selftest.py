"""Facts of the first load on a device: what answers right is remembered, what answers wrongly is refused or moved.

On cards that this machine does not have: their numbers are a CPU's, made wrong where a test says so.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from docvino.bundle import bundle_folder
from docvino.convert.ir import convert
from docvino.convert.vlm import convert_vlm
from docvino.document import Document, ModelProvenance
from docvino.errors import DeviceError, InferenceError, VerifyError
from docvino.fetch import source_path
from docvino.parser import Parser
from docvino.settings import ParseOptions, RuntimeConfig
from docvino.specs import doclayout
from docvino.verify import verify_model, verify_vlm
from fake_core import FakeCore, FakeDevice, Spoil, a770, b580, not_numbers, npu, shuffled, uhd
from layout_models import layout_graph, layout_spec
from vlm_models import TINY

Machine = Callable[..., FakeCore]
ROWS = (("text", 0.9, (0.1, 0.1, 0.9, 0.4), 0),)
SHORT = ParseOptions(max_new_tokens=4)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Converted on the real CPU: the tiny reader, and a layout model that finds one region."""
    folder = tmp_path_factory.mktemp("data")
    spec = layout_spec(layout_graph(ROWS), source_path(doclayout.V3, folder).parent)
    convert(spec, source_path(spec, folder), RuntimeConfig(data_dir=folder))
    convert_vlm(TINY, bundle_folder(folder, "tiny", "fp32"), "fp32")
    return folder


@pytest.fixture
def runtime(data: Path, tmp_path: Path) -> RuntimeConfig:
    return RuntimeConfig(
        preset="tiny", device="GPU", data_dir=data, cache_dir=tmp_path / "cache", model_cache=True, kv_cache_mib=64
    )


@pytest.fixture
def scan(tmp_path: Path) -> Path:
    pixels = np.full((400, 320, 3), 255, np.uint8)
    pixels[::7] = 60
    Image.fromarray(pixels).save(tmp_path / "scan.png")
    return tmp_path / "scan.png"


def read(runtime: RuntimeConfig, scan: Path) -> Document:
    with Parser.open(runtime) as parser:
        return parser.parse(scan, SHORT)


def models(document: Document) -> dict[str, ModelProvenance]:
    return {(model.part or "layout").split(":")[0]: model for model in document.provenance.models}


def compiled(core: FakeCore, name: str = "GPU") -> list[str]:
    """What a device compiled since this was asked last."""
    made = [title for title, _ in core._devices[name].compiled]
    core._devices[name].compiled.clear()
    return made


def wrong(part: str, spoil: Spoil, execution: str = "f16") -> Callable[[str, Mapping[str, Any]], Spoil | None]:
    """Makes the numbers of one graph wrong when it computes in this arithmetic; "any" for all."""
    return lambda title, asked: (
        spoil if title == part and execution in (asked["INFERENCE_PRECISION_HINT"], "any") else None
    )


# ---- passes


def test_a_page_is_read_on_a_card_and_the_document_says_on_which(
    machine: Machine, runtime: RuntimeConfig, scan: Path
) -> None:
    machine(uhd("GPU.0"), b580("GPU.1"))
    document = read(runtime, scan)
    assert document.pages[0].status == "partial"  # a random model finds no end
    found = models(document)
    assert found.keys() == {"layout", "vision", "embed", "decoder"}
    for model in found.values():
        assert (model.devices, model.execution_precision) == (("GPU.1",), "f16")
        assert (model.device_name, model.driver) == ("Intel(R) Arc(TM) B580 Graphics (dGPU)", "26.22.38646.4")
        assert model.fallback is None
    assert found["decoder"].part == "decoder: paged, keys and values f16"


def test_a_pass_is_remembered_and_the_next_start_compiles_no_second_decoder(
    machine: Machine, runtime: RuntimeConfig, scan: Path
) -> None:
    core = machine(a770())
    first = read(runtime, scan)
    assert compiled(core)[1:] == ["vision", "embed", "decoder paged", "decoder"]
    assert not any(model.from_cache for model in first.provenance.models)
    second = read(runtime, scan)
    assert compiled(core)[1:] == ["vision", "embed", "decoder paged"]
    assert second.pages == first.pages
    assert second.provenance.decides() == first.provenance.decides()
    assert {part for part, model in models(second).items() if model.from_cache} >= {"layout", "vision", "embed"}


@pytest.mark.parametrize("change", ["driver", "arithmetic", "files", "cache"])
def test_what_changes_the_answers_is_tested_again(
    machine: Machine, runtime: RuntimeConfig, scan: Path, tmp_path: Path, change: str
) -> None:
    card = a770()
    core = machine(card)
    read(runtime, scan)
    compiled(core)
    if change == "driver":
        card.says["GPU_DRIVER_VERSION"] = "26.31.39000.1"
    elif change == "arithmetic":
        runtime = runtime.model_copy(update={"execution": "f32"})
    elif change == "files":
        for path in bundle_folder(runtime.data_dir, "tiny", "fp32").glob("decoder.*"):
            path.touch()
    else:
        runtime = runtime.model_copy(update={"cache_dir": tmp_path / "other"})
    read(runtime, scan)
    assert "decoder" in compiled(core)


def test_a_pass_of_verify_counts_for_the_first_load(machine: Machine, runtime: RuntimeConfig) -> None:
    broken_later = a770()
    machine(broken_later)
    spec = layout_spec(layout_graph(ROWS), source_path(doclayout.V3, runtime.data_dir).parent)
    assert verify_model(spec, runtime).problem is None
    broken_later.spoil = wrong(layout_graph(ROWS).get_friendly_name(), shuffled, "any")
    with Parser.open(runtime):
        pass  # the layout model is believed


def test_without_a_cache_every_start_tests(machine: Machine, runtime: RuntimeConfig, scan: Path) -> None:
    core = machine(a770())
    without = runtime.model_copy(update={"model_cache": False})
    for _ in range(2):
        read(without, scan)
        assert compiled(core).count("decoder") == 1
    assert not runtime.cache_dir.exists()


def test_the_test_may_be_switched_off(machine: Machine, runtime: RuntimeConfig, scan: Path) -> None:
    core = machine(a770(spoil=wrong("vision", shuffled)))
    document = read(runtime.model_copy(update={"self_test": False}), scan)
    assert compiled(core)[1:] == ["vision", "embed", "decoder paged"]
    assert document.pages[0].status == "partial"


# ---- wrong answers


@pytest.mark.parametrize("part", ["vision", "embed"])
@pytest.mark.parametrize(
    ("spoil", "error", "says"),
    [
        (shuffled, VerifyError, r"answers wrongly on GPU in f16: differs by 1\.\d+, allowed is 0\.02"),
        (not_numbers, InferenceError, "gave numbers that are not finite in output '.*' on GPU"),
    ],
    ids=["wrong", "not finite"],
)
def test_wrong_answers_are_refused(
    machine: Machine, runtime: RuntimeConfig, part: str, spoil: Spoil, error: type[Exception], says: str
) -> None:
    machine(a770(spoil=wrong(part, spoil)))
    with pytest.raises(error, match=f"{part} {says}") as caught:
        Parser.open(runtime)
    assert "--execution f32" in getattr(caught.value, "fix", "")


def test_a_decoder_whose_both_forms_are_wrong_alike_is_refused(machine: Machine, runtime: RuntimeConfig) -> None:
    def spoil(title: str, _asked: Mapping[str, Any]) -> Spoil | None:
        return (lambda _, values: -values) if title.startswith("decoder") else None

    machine(a770(spoil=spoil))
    with pytest.raises(VerifyError, match="decoder answers wrongly on GPU in f16"):
        Parser.open(runtime)


def test_a_layout_model_that_answers_wrongly_is_refused(machine: Machine, runtime: RuntimeConfig) -> None:
    name = layout_graph(ROWS).get_friendly_name()
    machine(a770(spoil=wrong(name, shuffled)))
    with pytest.raises(VerifyError, match="pp-doclayout-v3 answers wrongly on GPU in f16"):
        Parser.open(runtime)


def test_where_it_is_allowed_a_failing_part_is_held_in_f32_and_the_others_are_not(
    machine: Machine, runtime: RuntimeConfig, scan: Path, caplog: pytest.LogCaptureFixture
) -> None:
    machine(a770(spoil=wrong("vision", not_numbers)))
    document = read(runtime.model_copy(update={"allow_fallback": True}), scan)
    found = models(document)
    assert {part: model.execution_precision for part, model in found.items()} == {
        "layout": "f16",
        "vision": "f32",
        "embed": "f16",
        "decoder": "f16",
    }
    assert "not finite" in (found["vision"].fallback or "")
    assert [part for part, model in found.items() if model.fallback] == ["vision"]
    warnings = [record.message for record in caplog.records]
    assert len(warnings) == 1
    assert warnings[0].startswith("vision runs on GPU in f32: vision gave numbers that are not finite")


def test_where_f32_is_wrong_too_it_is_moved_to_the_cpu(machine: Machine, runtime: RuntimeConfig, scan: Path) -> None:
    machine(a770(spoil=wrong("vision", shuffled, "any")))
    found = models(read(runtime.model_copy(update={"allow_fallback": True}), scan))
    assert {part: model.devices for part, model in found.items()} == {
        "layout": ("GPU",),
        "vision": ("CPU",),
        "embed": ("GPU",),
        "decoder": ("GPU",),
    }
    assert (found["vision"].fallback or "").count("answers wrongly on GPU") == 2


def test_the_memory_of_what_failed_is_free_for_what_comes_next(
    machine: Machine, runtime: RuntimeConfig, scan: Path
) -> None:
    from docvino.device import find_device
    from docvino.device.memory import Promise

    gc.collect()  # models of other tests hold their promises until then
    machine(a770(spoil=wrong("vision", shuffled, "any")))
    with Parser.open(runtime.model_copy(update={"allow_fallback": True})) as parser:
        held = Promise.on(find_device("GPU"))
        parser.parse(scan, SHORT)
    with Parser.open(runtime.model_copy(update={"vision_device": "CPU", "kv_cache_mib": 64})):
        assert Promise.on(find_device("GPU")) == held
    assert Promise.on(find_device("GPU")) < held


def no_f16_for(part: str) -> Callable[[str, Mapping[str, Any]], str | None]:
    def refuses(title: str, asked: Mapping[str, Any]) -> str | None:
        return "CL_OUT_OF_RESOURCES" if title == part and asked["INFERENCE_PRECISION_HINT"] == "f16" else None

    return refuses


def test_a_part_that_a_device_refuses_stops_the_run_unless_it_may_go_elsewhere(
    machine: Machine, runtime: RuntimeConfig, scan: Path
) -> None:
    machine(a770(refuses=no_f16_for("vision")))
    with pytest.raises(DeviceError, match=r"GPU does not take vision at f16.*: CL_OUT_OF_RESOURCES"):
        Parser.open(runtime)
    found = models(read(runtime.model_copy(update={"allow_fallback": True}), scan))
    assert (found["vision"].execution_precision, found["decoder"].execution_precision) == ("f32", "f16")


def test_a_decoder_that_cannot_be_paged_reads_one_by_one_where_that_is_allowed(
    machine: Machine, runtime: RuntimeConfig, scan: Path
) -> None:
    machine(a770(refuses=lambda title, _: "no such kernel" if title == "decoder paged" else None))
    with pytest.raises(DeviceError, match=r"paged form of decoder cannot be used on GPU: .*no such kernel") as caught:
        Parser.open(runtime)
    assert "--allow-fallback" in caught.value.fix
    found = models(read(runtime.model_copy(update={"allow_fallback": True}), scan))
    assert found["decoder"].part == "decoder: stateful, keys and values f16"
    assert "no such kernel" in (found["decoder"].fallback or "")


def test_a_gpu_that_is_not_there_is_the_cpu_only_where_that_is_allowed(
    machine: Machine, runtime: RuntimeConfig, scan: Path
) -> None:
    machine()
    with pytest.raises(DeviceError, match="no device 'GPU'"):
        Parser.open(runtime)
    found = models(read(runtime.model_copy(update={"allow_fallback": True}), scan))
    assert {model.devices for model in found.values()} == {("CPU",)}
    assert all("no device 'GPU'" in (model.fallback or "") for model in found.values())


# ---- every run


def turns_bad(part: str, after: int) -> Callable[[str, Mapping[str, Any]], Spoil | None]:
    """Right at first, not finite from the run after that on: what a self-test cannot see."""
    runs = 0

    def spoil(name: str, values: NDArray[Any]) -> NDArray[Any]:
        nonlocal runs
        runs += 1
        return values if runs <= after else not_numbers(name, values)

    return lambda title, _: spoil if title == part else None


@pytest.mark.parametrize("part", ["vision", "decoder paged"])
def test_numbers_that_are_not_finite_fail_the_page_and_are_never_text(
    machine: Machine, runtime: RuntimeConfig, scan: Path, part: str
) -> None:
    card = a770()
    machine(card)
    read(runtime, scan)  # the self-test has passed
    card.spoil = turns_bad(part, after=0)
    (page,) = read(runtime, scan).pages
    assert page.status == "failed"
    assert "not finite" in (page.error or "")
    assert page.blocks == ()


# ---- devices of stages


@pytest.fixture
def mixed(machine: Machine) -> FakeCore:
    return machine(uhd("GPU.0"), b580("GPU.1"), npu())


@pytest.mark.usefixtures("mixed")
def test_each_stage_runs_on_its_own_device(runtime: RuntimeConfig, scan: Path) -> None:
    own = {"device": "CPU", "layout_device": "NPU", "vision_device": "GPU.1", "decoder_device": "GPU.0"}
    found = models(read(runtime.model_copy(update=own), scan))
    assert {part: (model.devices, model.execution_precision) for part, model in found.items()} == {
        "layout": (("NPU",), "f16"),
        "vision": (("GPU.1",), "f16"),
        "embed": (("GPU.0",), "f16"),
        "decoder": (("GPU.0",), "f16"),
    }


def test_verify_tests_each_part_on_the_device_of_its_stage(mixed: FakeCore, runtime: RuntimeConfig) -> None:
    own = {"device": "CPU", "vision_device": "GPU.1", "decoder_device": "GPU.0"}
    checked = verify_vlm(bundle_folder(runtime.data_dir, "tiny", "fp32"), runtime.model_copy(update=own))
    assert (checked.device, checked.problem) == ("GPU.1, GPU.0", None)
    assert checked.allowed == 0.02
    assert compiled(mixed, "GPU.1") == ["vision"]


@pytest.mark.usefixtures("mixed")
def test_a_reader_on_an_npu_is_refused_with_what_may_run_there(runtime: RuntimeConfig) -> None:
    with pytest.raises(DeviceError, match=r"NPU runs graphs of fixed size only, and input .* of vision is") as caught:
        Parser.open(runtime.model_copy(update={"device": "NPU"}))
    assert "--layout-device NPU" in caught.value.fix


def test_a_decoder_keeps_its_keys_and_values_as_asked(machine: Machine, runtime: RuntimeConfig) -> None:
    card: FakeDevice = a770()
    machine(card)
    for asked, told in ((None, "f16"), ("u8", "i8"), ("f32", "f32")):
        card.compiled.clear()
        with Parser.open(runtime.model_copy(update={"kv_precision": asked})):
            pass
        paged = next(properties for title, properties in card.compiled if title == "decoder paged")
        assert paged["KV_CACHE_PRECISION"] == told
