"""Facts of a bring-up: on the CPU every step passes; what is made wrong fails the step that asks for it alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from docvino import cli
from docvino.bringup import Report, as_markdown, bring_up, write_report
from docvino.bundle import bundle_folder
from docvino.convert.vlm import convert_vlm
from docvino.decoder import paged
from docvino.decoder.contract import Rotary
from docvino.errors import BundleError, ConfigError, VerifyError
from docvino.settings import RuntimeConfig
from fake_core import FakeCore, a770, not_numbers
from vlm_models import TINY

Machine = Callable[..., FakeCore]
CALLS = 50


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    convert_vlm(TINY, bundle_folder(folder, "tiny", "fp32"), "fp32")
    return folder


@pytest.fixture
def runtime(data: Path, tmp_path: Path) -> RuntimeConfig:
    return RuntimeConfig(device="CPU", data_dir=data, cache_dir=tmp_path / "cache")


def failures(found: Report) -> dict[str, str]:
    return {step.name: step.problem or "" for step in found.failed}


def on_gpu(runtime: RuntimeConfig) -> Report:
    return bring_up("tiny", runtime.model_copy(update={"device": "GPU"}), steps=CALLS)


BLOCKS = {"blocks of keys and values": "32 tokens each"}  # a fake card's blocks are the CPU's


def test_on_the_cpu_every_step_passes(runtime: RuntimeConfig, data: Path) -> None:
    convert_vlm(TINY, bundle_folder(data, "tiny", "int8"), "int8")
    said: list[str] = []
    found = bring_up("tiny", runtime, steps=CALLS, say=said.append)
    assert failures(found) == {}
    names = [step.name for step in found.steps]
    assert names == said
    assert names == [
        "device",
        "blocks of keys and values",
        *(
            f"decoder, {weights} weights, {kept} keys and values"
            for weights in ("fp32", "int8")
            for kept in ("f16", "u8")
        ),
        *(f"{what}, {weights} weights" for weights in ("fp32", "int8") for what in ("vision", "new sizes")),
        "reading",
        "second start",
        "memory",
    ]
    assert (found.active, found.precisions) == ("paged, keys and values u8, on CPU in f32", ("fp32", "int8"))
    steps = {step.name: step.found for step in found.steps}
    decoder = steps["decoder, fp32 weights, f16 keys and values"]
    assert decoder["stored as"] == "f16"
    cases = ("prompt", "64 tokens after it", "two sequences of other lengths", "a prompt in two pieces")
    assert all(0 <= decoder[case] < 0.02 for case in (*cases, "positions from 3000", "a copied beginning"))
    assert decoder["likeliest tokens"].endswith(" as on the CPU")
    assert steps["second start"]["second"].endswith("3 of 3 from the cache")
    assert steps["device"]["properties"]["FULL_DEVICE_NAME"]
    assert not runtime.cache_dir.exists()


def test_the_report_is_written_for_programs_and_for_people_and_holds_no_paths(
    runtime: RuntimeConfig, tmp_path: Path, data: Path
) -> None:
    found = bring_up("tiny", runtime, steps=CALLS)
    files = write_report(found, tmp_path / "new" / "report")
    assert [file.name for file in files] == ["report.json", "report.md"]
    read = json.loads(files[0].read_text(encoding="utf-8"))
    assert [step["name"] for step in read["steps"]] == [step.name for step in found.steps]
    text = files[1].read_text(encoding="utf-8")
    assert text.startswith("# Bring-up of tiny on ")
    assert text.count("| ok |") == len(found.steps)
    for secret in (str(tmp_path), str(data), str(Path.home())):
        assert secret not in text + files[0].read_text(encoding="utf-8")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match="cannot write"):
        write_report(found, tmp_path / "file" / "report")


def test_numbers_that_are_not_finite_fail_their_step_and_no_other(machine: Machine, runtime: RuntimeConfig) -> None:
    machine(a770(spoil=lambda title, _: not_numbers if title == "vision" else None))
    found = on_gpu(runtime)
    assert failures(found).keys() == BLOCKS.keys() | {
        "vision, fp32 weights",
        "new sizes, fp32 weights",
        "reading",
        "second start",
    }
    assert "not finite" in failures(found)["vision, fp32 weights"]
    assert len(found.steps) == 9
    assert "**FAIL** | vision, fp32 weights" in as_markdown(found)


def test_a_card_that_cannot_page_shows_what_is_used_instead(machine: Machine, runtime: RuntimeConfig) -> None:
    machine(a770(refuses=lambda title, _: "no such kernel" if title == "decoder paged" else None))
    found = on_gpu(runtime)
    assert found.active == "stateful, keys and values f16, on GPU in f16"
    assert "no such kernel" in failures(found)["decoder, fp32 weights, f16 keys and values"]
    assert "no such kernel" in failures(found)["reading"]
    assert "vision, fp32 weights" not in failures(found)


def test_memory_that_grows_on_the_card_is_seen(machine: Machine, runtime: RuntimeConfig) -> None:
    card = a770()
    real = FakeCore.get_property
    mib = iter(range(100, 10_000, 40))

    def growing(core: FakeCore, name: str, key: str) -> Any:
        return {"usm_device": next(mib) * 2**20} if key == "GPU_MEMORY_STATISTICS" else real(core, name, key)

    core = machine(card)
    core.get_property = lambda name, key: growing(core, name, key)  # type: ignore[method-assign]
    found = on_gpu(runtime)
    (memory,) = (step.found["device, MiB"] for step in found.steps if step.name == "memory")
    readings = [int(value) for value in memory.split(", ")]
    grown = max(readings[1:]) / readings[0] - 1
    assert failures(found)["memory"].endswith(f"memory of the device grew by {grown:.1%}")


def rounded_angles(rotary: Rotary) -> Rotary:
    """As a card computes them that holds positions in half precision: right at the beginning of a page."""

    def made(positions: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return rotary((positions.astype(np.float16) // 8 * 8).astype(np.int64) if positions.max() > 2048 else positions)

    return made


def test_angles_lost_at_high_positions_are_seen_and_only_there(
    runtime: RuntimeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = paged.needed_rotary
    monkeypatch.setattr(
        paged, "needed_rotary", lambda inputs, rotary, name: rounded_angles(right(inputs, rotary, name))
    )
    found = bring_up("tiny", runtime, steps=CALLS)
    for problem in failures(found).values():
        assert problem.startswith("positions from 3000: ")
    assert len(failures(found)) == 2


def test_blocks_that_are_not_copied_are_seen(runtime: RuntimeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paged._HostBlocks, "copy", lambda *_: None)
    found = bring_up("tiny", runtime, steps=CALLS)
    assert all(problem.startswith("a copied beginning: ") for problem in failures(found).values())
    assert len(failures(found)) == 2


def test_a_driver_without_a_version_is_said(machine: Machine, runtime: RuntimeConfig) -> None:
    card = a770()
    del card.says["GPU_DRIVER_VERSION"]
    machine(card)
    assert "no version" in failures(on_gpu(runtime))["device"]


def test_a_model_that_is_none_is_refused(runtime: RuntimeConfig) -> None:
    with pytest.raises(BundleError, match="none called pp-ocr") as caught:
        bring_up("pp-ocr", runtime)
    assert caught.value.fix == "docvino verify nano --bring-up"
    with pytest.raises(BundleError, match=r"none called paddleocr-vl-1\.6") as caught:
        bring_up("paddleocr-vl-1.6", runtime)
    assert "docvino fetch paddleocr-vl-1.6" in caught.value.fix


def test_the_command_writes_the_report_and_its_exit_code_tells(
    machine: Machine, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("docvino.bringup.asking.STEPS", CALLS)
    machine(a770(spoil=lambda title, _: not_numbers if title == "vision" else None))
    words = ["verify", "tiny", "--bring-up", "--data-dir", str(data), "-o", str(tmp_path / "report")]
    for device, code in (("CPU", 0), ("GPU", VerifyError.exit_code)):
        with pytest.raises(SystemExit) as caught:
            cli.main([*words, "--device", device])
        out, err = capsys.readouterr()
        assert caught.value.code == code
        assert out.startswith("# Bring-up of tiny on ")
        assert "report.json" in err
    assert "steps failed on GPU: blocks of keys and values, vision, fp32 weights" in err
    assert json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["device"]["name"] == "GPU"
    with pytest.raises(SystemExit) as caught:
        cli.main(["verify", "tiny", "--data-dir", str(data), "-o", "report"])
    assert caught.value.code == ConfigError.exit_code
