"""Facts of a bring-up: on the CPU every step passes; what is made wrong fails the step that asks for it alone."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from docvino import cli
from docvino.bringup import Report, as_markdown, asking, bring_up, write_report
from docvino.bundle import bundle_folder, open_vlm_bundle
from docvino.convert.vlm import convert_vlm
from docvino.decoder import paged
from docvino.decoder.contract import Rotary
from docvino.errors import BundleError, ConfigError, VerifyError
from docvino.settings import RuntimeConfig
from docvino.specs.pp_ocr import RECOGNITION
from fake_core import FakeCore, a770, not_numbers
from models import MODELS
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


@pytest.fixture(scope="module")
def on_cpu(data: Path) -> tuple[Report, list[str]]:
    """The whole of it, and what it said on the way."""
    said: list[str] = []
    runtime = RuntimeConfig(device="CPU", data_dir=data, cache_dir=data / "cache")
    found = bring_up("tiny", runtime, steps=CALLS, say=said.append)
    assert not runtime.cache_dir.exists()
    return found, said


def failures(found: Report) -> dict[str, str]:
    return {step.name: step.problem or "" for step in found.failed}


def asked(step: str, runtime: RuntimeConfig, scratch: Path) -> Report:
    """One step of a bring-up."""
    bundles = {"fp32": open_vlm_bundle(bundle_folder(runtime.data_dir, "tiny", "fp32"))}
    one = asking._Asking("tiny", runtime, bundles, scratch, CALLS, lambda _: None)  # type: ignore[arg-type]
    getattr(one, step)()
    return one.report


def test_on_the_cpu_every_step_passes(on_cpu: tuple[Report, list[str]]) -> None:
    found, said = on_cpu
    assert failures(found) == {}
    assert [step.name for step in found.steps] == [line for line in said if not line.startswith(" ")]
    assert said == [
        "device",
        "blocks of keys and values",
        *(f"decoder, fp32 weights, {kept} keys and values" for kept in ("f16", "u8")),
        "vision, fp32 weights",
        "new sizes, fp32 weights",
        "reading",
        "text lines",
        "  skip: pp-ocr is not converted: docvino fetch pp-ocr && docvino convert pp-ocr",
        "second start",
        "memory",
    ]
    assert (found.active, found.precisions) == ("paged, keys and values u8, on CPU in f32", ("fp32",))
    steps = {step.name: step.found for step in found.steps}
    decoder = steps["decoder, fp32 weights, f16 keys and values"]
    assert decoder["stored as"] == "f16"
    cases = ("prompt", "64 tokens after it", "two sequences of other lengths", "a prompt in two pieces")
    assert all(0 <= decoder[case] < 0.02 for case in (*cases, "positions from 3000", "a copied beginning"))
    assert decoder["likeliest tokens"].endswith(" as on the CPU")
    assert steps["second start"]["second"].endswith("3 of 3 from the cache")
    assert steps["device"]["properties"]["FULL_DEVICE_NAME"]


def test_the_report_is_written_for_programs_and_for_people_and_holds_no_paths(
    on_cpu: tuple[Report, list[str]], tmp_path: Path, data: Path
) -> None:
    found, _ = on_cpu
    files = write_report(found, tmp_path / "new" / "report")
    assert [file.name for file in files] == ["report.json", "report.md"]
    read = json.loads(files[0].read_text(encoding="utf-8"))
    assert [step["name"] for step in read["steps"]] == [step.name for step in found.steps]
    text = files[1].read_text(encoding="utf-8")
    assert text.startswith("# Bring-up of tiny on ")
    assert (text.count("| ok |"), text.count("| skipped |")) == (len(found.steps) - 1, 1)
    for secret in (str(tmp_path), str(data), str(Path.home()), tempfile.gettempdir()):
        assert secret not in text + files[0].read_text(encoding="utf-8")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match="cannot write"):
        write_report(found, tmp_path / "file" / "report")


def test_a_fault_fails_its_steps_and_the_others_are_still_asked(machine: Machine, runtime: RuntimeConfig) -> None:
    card = a770(spoil=lambda title, _: not_numbers if title == "vision" else None)
    del card.says["GPU_DRIVER_VERSION"]
    machine(card)
    found = bring_up("tiny", runtime.model_copy(update={"device": "GPU"}), steps=CALLS)
    problems = failures(found)
    assert problems.keys() == {
        "device",
        # A made-up card has the blocks of the CPU behind it, which reads no paged decoder back.
        "blocks of keys and values",
        "second start of the paged decoder",
        "vision, fp32 weights",
        "new sizes, fp32 weights",
        "reading",
        "second start",
    }
    assert len(found.steps) == 11
    assert "its driver has no version" in problems["device"]
    assert problems["blocks of keys and values"] == "32 tokens each"
    assert "not finite" in problems["vision, fp32 weights"]
    assert "not finite" in problems["reading"]
    assert found.active == "paged, keys and values f16, on GPU in f16"
    assert "**FAIL** | vision, fp32 weights" in as_markdown(found)


def test_a_card_that_cannot_page_shows_what_is_used_instead(
    machine: Machine, runtime: RuntimeConfig, tmp_path: Path
) -> None:
    machine(a770(refuses=lambda title, _: "no such kernel" if title == "decoder paged" else None))
    found = asked("reading", runtime.model_copy(update={"device": "GPU"}), tmp_path)
    assert found.active == "stateful, keys and values f16, on GPU in f16"
    assert "no such kernel" in failures(found)["reading"]
    found = asked("decoders", runtime.model_copy(update={"device": "GPU"}), tmp_path)
    assert all("no such kernel" in problem for problem in failures(found).values())
    assert len(found.failed) == 2


def test_memory_that_grows_on_the_card_is_seen(machine: Machine, runtime: RuntimeConfig, tmp_path: Path) -> None:
    core, mib = machine(a770()), iter(range(100, 10_000, 40))

    def growing(name: str, key: str) -> Any:
        statistics = key == "GPU_MEMORY_STATISTICS"
        return {"usm_device": next(mib) * 2**20} if statistics else FakeCore.get_property(core, name, key)

    core.get_property = growing  # type: ignore[method-assign]
    found = asked("memory", runtime.model_copy(update={"device": "GPU"}), tmp_path)
    assert found.steps[0].found["device, MiB"] == "100, 140, 180, 220, 260"
    assert "memory of the device grew by 160.0%" in failures(found)["memory"]


def rounded_angles(rotary: Rotary) -> Rotary:
    """As a card computes them that holds positions in half precision: right at the beginning of a page."""

    def made(positions: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return rotary((positions.astype(np.float16) // 8 * 8).astype(np.int64) if positions.max() > 2048 else positions)

    return made


def test_angles_lost_at_high_positions_are_seen_and_only_there(
    runtime: RuntimeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = paged.needed_rotary
    monkeypatch.setattr(
        paged, "needed_rotary", lambda inputs, rotary, name: rounded_angles(right(inputs, rotary, name))
    )
    found = asked("decoders", runtime, tmp_path)
    assert [problem.split(":")[0] for problem in failures(found).values()] == ["positions from 3000"] * 2


def test_blocks_that_are_not_copied_are_seen(
    runtime: RuntimeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paged._HostBlocks, "copy", lambda *_: None)
    found = asked("decoders", runtime, tmp_path)
    assert [problem.split(":")[0] for problem in failures(found).values()] == ["a copied beginning"] * 2


@pytest.mark.slow
@pytest.mark.skipif(not (LINES := bundle_folder(MODELS, RECOGNITION.name, "fp32")).exists(), reason="not converted")
def test_lines_of_many_widths_are_read_as_on_the_cpu_and_other_texts_are_seen(
    machine: Machine, runtime: RuntimeConfig, tmp_path: Path
) -> None:
    place = bundle_folder(tmp_path / "lines", RECOGNITION.name, "fp32")
    place.parent.mkdir(parents=True)
    shutil.copytree(LINES, place)
    card = a770()
    machine(card)
    data = bundle_folder(runtime.data_dir, "tiny", "fp32")
    on_card = runtime.model_copy(update={"device": "GPU", "data_dir": tmp_path / "lines"})
    shutil.copytree(data, bundle_folder(on_card.data_dir, "tiny", "fp32"))
    found = asked("lines", on_card, tmp_path)
    assert failures(found) == {}
    assert set(found.steps[0].found.values()) == {"30 of 30 texts"}
    runs = 0

    def garbled(_name: str, values: NDArray[Any]) -> NDArray[Any]:
        nonlocal runs
        runs += 1
        return values if runs == 1 else np.roll(values, 1, axis=2)

    card.spoil = lambda title, _: None if title in ("vision", "embed") else garbled
    found = asked("lines", on_card, tmp_path)
    # Inferences are in flight together: which of them ends first is chance.
    assert failures(found)["text lines"].startswith("1 at a time, line ")
    assert found.steps[0].found["1 at a time"] in ("0 of 30 texts", "1 of 30 texts")


def test_a_model_that_is_none_is_refused(runtime: RuntimeConfig) -> None:
    with pytest.raises(BundleError, match="none called pp-ocr") as caught:
        bring_up("pp-ocr", runtime)
    assert caught.value.fix == "docvino verify nano --bring-up"
    with pytest.raises(BundleError, match=r"none called paddleocr-vl-1\.6") as caught:
        bring_up("paddleocr-vl-1.6", runtime)
    assert "docvino fetch paddleocr-vl-1.6" in caught.value.fix


@pytest.mark.parametrize("fails", [False, True])
def test_the_command_writes_the_report_and_its_exit_code_tells(
    on_cpu: tuple[Report, list[str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    fails: bool,
) -> None:
    found = replace(on_cpu[0], steps=[replace(step, status="fail" if fails else "ok") for step in on_cpu[0].steps])
    monkeypatch.setattr("docvino.bringup.bring_up", lambda *_, **__: found)
    with pytest.raises(SystemExit) as caught:
        cli.main(["verify", "tiny", "--bring-up", "--device", "CPU", "-o", str(tmp_path / "report")])
    out, err = capsys.readouterr()
    assert caught.value.code == (VerifyError.exit_code if fails else 0)
    assert out.startswith("# Bring-up of tiny on ")
    assert "report.json" in err
    assert ("10 of 10 steps failed on CPU: device, blocks" in err) == fails
    assert json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["model"] == "tiny"


def test_a_report_is_for_a_bring_up_only(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["verify", "tiny", "--data-dir", str(data), "-o", "report"])
    assert caught.value.code == ConfigError.exit_code
    assert "--out: only for the report of --bring-up" in capsys.readouterr().err
