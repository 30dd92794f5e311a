"""Facts of `docvino devices` and `docvino cache`, and of what commands say of the device they take."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from docvino import cli
from docvino.bundle import bundle_folder
from docvino.convert.vlm import convert_vlm
from docvino.device import cache
from docvino.errors import DeviceError
from fake_core import FakeCore, a770, b580, npu, uhd
from vlm_models import TINY

Machine = Callable[..., FakeCore]
Run = Callable[..., tuple[int, str, str]]


pytestmark = pytest.mark.usefixtures("wide")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    convert_vlm(TINY, bundle_folder(folder, "tiny", "fp32"), "fp32")
    return folder


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def ran(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            cli.main([str(word) for word in words])
        out, err = capsys.readouterr()
        return int(caught.value.code or 0), out, err

    return ran


@pytest.fixture
def scan(tmp_path: Path) -> Path:
    pixels = np.full((200, 160, 3), 255, np.uint8)
    pixels[::7] = 60
    Image.fromarray(pixels).save(tmp_path / "scan.png")
    return tmp_path / "scan.png"


def test_devices_are_shown_with_what_they_are_used_with_and_which_one_is_taken(machine: Machine, run: Run) -> None:
    machine(uhd("GPU.0"), b580("GPU.1"), npu())
    code, out, _ = run("devices")
    assert code == 0
    for text in (
        "CPU",
        "GPU.0",
        "Intel(R) UHD Graphics 770 (iGPU)",
        "11.4",
        "26.22.38646.4",
        "arc-b: f16",
        "Intel(R) AI Boost",
    ):
        assert text in out
    assert out.splitlines()[-1] == "AUTO is GPU.1: a GPU with memory of its own"
    _, out, _ = run("devices", "--json")
    found = json.loads(out)
    assert (found["auto"], [device["name"] for device in found["devices"]]) == (
        "GPU.1",
        ["CPU", "GPU.0", "GPU.1", "NPU"],
    )
    assert found["devices"][2]["profile"]["name"] == "arc-b"


def test_this_machine_has_devices_to_show(run: Run) -> None:
    code, out, _ = run("devices")
    assert (code, out.splitlines()[-1].split(":")[0][:8]) == (0, "AUTO is ")


@pytest.mark.parametrize(
    ("device", "says"),
    [
        (
            (),
            "device GPU.1 (Intel(R) Arc(TM) B580 Graphics (dGPU), 11.4 GiB, driver 26.22.38646.4): a GPU with",
        ),
        (("--device", "GPU"), "device GPU.1 (Intel(R) Arc(TM) B580 Graphics (dGPU), 11.4 GiB, driver 26.22.38646.4)"),
        (("--device", "GPU.0"), None),
        (("--device", "CPU"), None),
    ],
)
def test_where_there_is_a_choice_the_chosen_device_is_said_once(
    machine: Machine, run: Run, data: Path, tmp_path: Path, scan: Path, device: tuple[str, ...], says: str | None
) -> None:
    machine(uhd("GPU.0"), b580("GPU.1"))
    words = ("--preset", "tiny", "--layout", "none", "--max-new-tokens", 4, "--kv-cache-mib", 64, *device)
    code, _, err = run("parse", scan, *words, "--data-dir", data, "--cache-dir", tmp_path / "cache")
    assert code == 0
    assert err.count("device GPU.") == (says is not None)
    assert says is None or says in err


def test_an_absent_device_is_one_error_and_with_leave_another_is_taken(
    run: Run, data: Path, tmp_path: Path, scan: Path
) -> None:
    words = ("--preset", "tiny", "--layout", "none", "--max-new-tokens", 4, "--kv-cache-mib", 64, "--device", "GPU.3")
    words = (*words, "--data-dir", data, "--cache-dir", tmp_path / "cache")
    code, _, err = run("parse", scan, *words)
    assert (code, err.splitlines()[0]) == (
        DeviceError.exit_code,
        "error: OpenVINO sees no device 'GPU.3' on this machine",
    )
    code, out, _ = run("parse", scan, *words, "--allow-fallback", "--json")
    models = json.loads(out)["provenance"]["models"]
    assert (code, {tuple(model["devices"]) for model in models}) == (0, {("CPU",)})
    assert all("no device 'GPU.3'" in model["fallback"] for model in models)


def test_a_cache_is_warmed_listed_and_pruned(machine: Machine, run: Run, data: Path, tmp_path: Path) -> None:
    card = a770()
    machine(card)
    own = ("--cache-dir", tmp_path / "cache")
    assert run("cache", "path", *own)[1].strip() == str(tmp_path / "cache")
    assert "0.0 MB" in run("cache", "list", *own)[1]
    warm = ("cache", "warm", "--preset", "nano", "--data-dir", data, *own)
    code, _, err = run(*warm)
    assert (code, "docvino convert nano" in err) == (4, True)
    warm = ("cache", "warm", "--preset", "tiny", "--vision-device", "GPU", "--data-dir", data, *own)
    config = tmp_path / "docvino.toml"
    config.write_text('layout = "none"\nkv_cache_mib = 64\n', encoding="utf-8")
    code, out, err = run(*warm, "--config", config, "--json")
    assert code == 0, err
    assert [(model["part"][:7], model["from_cache"]) for model in json.loads(out)] == [
        ("vision", False),
        ("embed", False),
        ("decoder", False),
    ]
    assert "sizes run" in err
    assert not err.splitlines()[-1].startswith("0 sizes")
    code, out, _ = run(*warm, "--config", config, "--json")
    # The CPU behind this card reads no paged decoder back (openvino 2026.4).
    assert [model["from_cache"] for model in json.loads(out)] == [True, True, False]
    entries = json.loads(run("cache", "list", "--json", *own)[1])
    assert {(kept["model"], kept["device"], kept["stale"]) for kept in entries} == {
        (f"tiny-fp32/{part}", "GPU", None) for part in ("vision", "embed", "decoder")
    }
    assert all(kept["self_tests"] for kept in entries)
    card.says["GPU_DRIVER_VERSION"] = "another"
    assert "stale: the driver is another" in run("cache", "list", *own)[1]
    code, _, err = run("cache", "prune", *own)
    assert (code, err.split(",")[0]) == (0, "removed 3 entries")
    run(*warm, "--config", config)
    assert run("cache", "prune", *own)[2].startswith("removed 0 entries")
    assert run("cache", "prune", "--all", *own)[2].startswith("removed 3 entries")
    assert list((tmp_path / "cache" / cache.COMPILED).iterdir()) == []
