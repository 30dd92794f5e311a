"""Facts of what is kept between runs: found again, never trusted when damaged, never worth a failed run."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

from docvino.device import Entry, Kept, Model, cache, compile_model, find_device, list_cache, list_devices, remove_kept
from docvino.errors import ConfigError
from docvino.settings import RuntimeConfig
from docvino.specs.orientation import ORIENTATION
from fake_core import FakeCore, a770, uhd

Machine = Callable[..., FakeCore]
ONE = dataclasses.replace(ORIENTATION, name="toy")
SIZE = 300  # of the toy's weights: 360 kB


@pytest.fixture(autouse=True)
def _every_warning_counts() -> None:
    cache._warn.cache_clear()


@pytest.fixture
def runtime(tmp_path: Path) -> RuntimeConfig:
    return RuntimeConfig(device="CPU", data_dir=tmp_path / "data", cache_dir=tmp_path / "cache")


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    return save(tmp_path / "toy-fp32")


def save(folder: Path, seed: int = 0) -> Path:
    """x float32 (?, 300) -> y = x times weights."""
    folder.mkdir(exist_ok=True)
    x = ops.parameter([-1, SIZE], np.float32, name="x")
    x.output(0).set_names({"x"})
    y = ops.matmul(x, ops.constant(weights(seed)), False, False)
    y.output(0).set_names({"y"})
    ov.save_model(ov.Model([y], [x], "toy"), folder / "model.xml", compress_to_fp16=False)
    return folder / "model.xml"


def weights(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-9, 9, (SIZE, SIZE)).astype(np.float32)


def right(model: Model, seed: int = 0) -> bool:
    x = np.arange(SIZE, dtype=np.float32)[None]
    return np.array_equal(model.run({"x": x})["y"], x @ weights(seed))


def entries(runtime: RuntimeConfig) -> list[Kept]:
    return list_cache(runtime.cache_dir, list_devices())


def blob(runtime: RuntimeConfig) -> Path:
    (found,) = (runtime.cache_dir / "compiled").glob("*/*.blob")
    return found


# ---- kept and found


def test_a_model_is_compiled_once_and_loaded_after_that(runtime: RuntimeConfig, graph: Path) -> None:
    first = compile_model(graph, ONE, runtime)
    second = compile_model(graph, ONE, runtime)
    assert (first.compiled.from_cache, second.compiled.from_cache) == (False, True)
    assert right(first)
    assert right(second)
    assert blob(runtime).parent.name.startswith("toy-fp32-model-CPU-")


def test_nothing_is_written_when_the_cache_is_off(runtime: RuntimeConfig, graph: Path) -> None:
    off = runtime.model_copy(update={"model_cache": False})
    assert not compile_model(graph, ONE, off).compiled.from_cache
    assert not runtime.cache_dir.exists()


def test_another_model_under_the_same_name_is_compiled_anew(runtime: RuntimeConfig, graph: Path) -> None:
    compile_model(graph, ONE, runtime)
    os.utime(save(graph.parent, seed=1), ns=(1, 1))
    model = compile_model(graph, ONE, runtime)
    assert not model.compiled.from_cache
    assert right(model, seed=1)
    assert [kept.stale for kept in entries(runtime)].count("the model is gone or another") == 1


def test_another_driver_misses_the_cache_and_the_old_entry_is_stale(
    machine: Machine, runtime: RuntimeConfig, graph: Path
) -> None:
    card = a770()
    machine(card)
    on_gpu = runtime.model_copy(update={"device": "GPU"})
    compile_model(graph, ONE, on_gpu)
    assert compile_model(graph, ONE, on_gpu).compiled.from_cache
    card.says["GPU_DRIVER_VERSION"] = "26.31.39000.1"
    model = compile_model(graph, ONE, on_gpu)
    assert not model.compiled.from_cache
    assert right(model)
    assert {(kept.driver, kept.stale) for kept in entries(runtime)} == {
        ("26.22.38646.4", "the driver is 26.31.39000.1"),
        ("26.31.39000.1", None),
    }


# ---- list and prune


def test_what_is_of_no_more_use_is_named_and_removed_and_the_rest_is_kept(
    machine: Machine, runtime: RuntimeConfig, graph: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(uhd("GPU"))
    for version in ("2026.2.0", "2026.3.1"):
        monkeypatch.setattr(cache, "openvino_version", lambda version=version: version)
        compile_model(graph, ONE, runtime)
    monkeypatch.undo()
    machine(uhd("GPU"))
    compile_model(graph, ONE, runtime.model_copy(update={"device": "GPU"}))
    machine()  # the GPU was taken out
    compile_model(graph, ONE, runtime)
    (runtime.cache_dir / "compiled" / "12345.blob").write_bytes(b"an older docvino put it here")
    found = entries(runtime)
    now = str(ov.get_version())
    assert {(kept.device, kept.openvino[:8], kept.stale) for kept in found} == {
        ("CPU", "2026.2.0", f"OpenVINO is {now}"),
        ("CPU", "2026.3.1", f"OpenVINO is {now}"),
        ("GPU", now[:8], "the device is not here"),
        ("CPU", now[:8], None),
        ("", "", "not made by this docvino"),
    }
    live = next(kept for kept in found if kept.stale is None)
    assert live.size_bytes == sum(file.stat().st_size for file in live.path.iterdir())
    assert (live.model, live.blobs, live.self_tests) == ("toy-fp32/model", 1, 0)
    assert time.time() - live.used_at < 60
    remove_kept(kept for kept in found if kept.stale is not None)
    assert entries(runtime) == [live]
    assert compile_model(graph, ONE, runtime).compiled.from_cache


def test_an_empty_cache_has_no_entries(runtime: RuntimeConfig) -> None:
    assert entries(runtime) == []


def test_a_removed_model_leaves_a_stale_entry(runtime: RuntimeConfig, graph: Path) -> None:
    compile_model(graph, ONE, runtime)
    shutil.rmtree(graph.parent)
    assert [kept.stale for kept in entries(runtime)] == ["the model is gone or another"]


def test_a_self_test_is_remembered_with_its_device_and_driver(
    machine: Machine, runtime: RuntimeConfig, graph: Path
) -> None:
    card = a770()
    machine(card)

    def entry() -> Entry:
        return Entry.of(runtime, graph, find_device("GPU"))

    entry().remember("answers", {"difference": 0.25})
    assert entry().passed("answers") == {"difference": 0.25}
    assert entry().passed("other properties") is None
    card.says["GPU_DRIVER_VERSION"] = "another"
    assert entry().passed("answers") is None


# ---- damaged


def damage(kind: str, path: Path) -> None:
    data = bytearray(path.read_bytes())
    if kind == "a byte of the weights":
        data[len(data) // 2] ^= 0x40
    elif kind == "a byte of the head":
        data[7] ^= 0xFF
    elif kind == "cut short":
        data = data[: len(data) // 3]
    elif kind == "empty":
        data = bytearray()
    elif kind == "another file":
        data = bytearray(os.urandom(len(data)))
    path.write_bytes(data)


@pytest.mark.parametrize(
    "kind", ["a byte of the weights", "a byte of the head", "cut short", "empty", "another file", "gone"]
)
def test_a_damaged_compiled_model_costs_one_warning_and_is_made_again(
    runtime: RuntimeConfig, graph: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    compile_model(graph, ONE, runtime)
    if kind == "gone":
        blob(runtime).unlink()
    else:
        damage(kind, blob(runtime))
    model = compile_model(graph, ONE, runtime)
    assert right(model)
    assert not model.compiled.from_cache
    assert [record.message for record in caplog.records] == [
        "a compiled model of toy-fp32/model was damaged or lost: it is compiled again"
    ]
    again = compile_model(graph, ONE, runtime)
    assert again.compiled.from_cache
    assert right(again)


def test_openvino_itself_takes_a_changed_byte_for_good(runtime: RuntimeConfig, graph: Path) -> None:
    """Why blobs are checked before it sees them; when this fails, the check may go."""
    compile_model(graph, ONE, runtime)
    damage("a byte of the weights", blob(runtime))
    core = ov.Core()
    asked = {
        "CACHE_DIR": str(blob(runtime).parent),
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
    }
    loaded = core.compile_model(core.read_model(graph), "CPU", asked)
    assert loaded.get_property("LOADED_FROM_CACHE")
    x = np.arange(SIZE, dtype=np.float32)[None]
    assert not np.array_equal(loaded([x])[0], x @ weights())


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"facts": {}, "files": {}, "passes": {}}'])
def test_a_damaged_record_makes_its_blobs_worthless(
    runtime: RuntimeConfig, graph: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    compile_model(graph, ONE, runtime)
    damage("a byte of the weights", blob(runtime))
    (blob(runtime).parent / "entry.json").write_text(text, encoding="utf-8")
    os.utime(blob(runtime), ns=(1, 1))
    assert [kept.stale for kept in entries(runtime)] == ["not made by this docvino"]
    model = compile_model(graph, ONE, runtime)
    assert right(model)
    assert not model.compiled.from_cache
    assert caplog.records == []
    assert compile_model(graph, ONE, runtime).compiled.from_cache


def test_what_another_process_is_writing_is_neither_used_nor_removed(
    runtime: RuntimeConfig, graph: Path, caplog: pytest.LogCaptureFixture
) -> None:
    compile_model(graph, ONE, runtime)
    written = blob(runtime)
    (written.parent / "entry.json").unlink()
    damage("cut short", written)
    size = written.stat().st_size
    model = compile_model(graph, ONE, runtime)
    assert right(model)
    assert not model.compiled.from_cache
    assert written.stat().st_size == size
    assert caplog.records == []


# ---- full, read-only, in the way


def test_a_file_in_the_way_is_one_warning(
    runtime: RuntimeConfig, graph: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runtime.cache_dir.write_bytes(b"")
    for _ in range(3):
        assert right(compile_model(graph, ONE, runtime))
    assert len(caplog.records) == 1
    assert "no model cache" in caplog.records[0].message


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """A file system of its own for the cache; needs the right to mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mounted(options: str) -> Path:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        try:
            done = subprocess.run(command, capture_output=True, check=False)
        except OSError:
            pytest.skip("there is no mount here")
        if done.returncode != 0:
            pytest.skip("only root may mount")
        return folder

    yield mounted
    subprocess.run(["umount", str(folder)], capture_output=True, check=False)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mounts a tmpfs")
def test_a_full_disk_is_one_warning(
    tiny_disk: Callable[[str], Path], runtime: RuntimeConfig, graph: Path, caplog: pytest.LogCaptureFixture
) -> None:
    full = runtime.model_copy(update={"cache_dir": tiny_disk("size=64k")})
    for _ in range(3):
        model = compile_model(graph, ONE, full)
        assert right(model)
        assert not model.compiled.from_cache
    assert len(caplog.records) == 1
    assert "nothing could be written to" in caplog.records[0].message
    assert "is the disk full?" in caplog.records[0].message


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mounts a tmpfs")
def test_a_disk_that_cannot_be_written_is_one_warning_and_what_it_holds_is_of_no_use(
    tiny_disk: Callable[[str], Path], runtime: RuntimeConfig, graph: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tiny_disk("size=8m")
    read_only = runtime.model_copy(update={"cache_dir": folder})
    compile_model(graph, ONE, read_only)
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    for _ in range(3):
        assert right(compile_model(graph, ONE, read_only))
    assert [record.message for record in caplog.records] == [f"no model cache: {folder / 'compiled'} cannot be written"]
    with pytest.raises(ConfigError, match="cannot remove"):
        remove_kept(entries(read_only))


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="limits of processes are of Unix")
def test_a_write_that_fails_half_way_is_one_warning(runtime: RuntimeConfig, graph: Path) -> None:
    """In a process that may write no file larger than 100 kB, which needs no right to mount."""
    code = """
import logging, resource, signal, sys
from pathlib import Path
import test_device_cache as here
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
logging.basicConfig(stream=sys.stdout)
runtime = here.RuntimeConfig(device="CPU", cache_dir=Path(sys.argv[2]))
for _ in range(3):
    model = here.compile_model(Path(sys.argv[1]), here.ONE, runtime)
    assert here.right(model)
    assert not model.compiled.from_cache
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(graph), str(runtime.cache_dir)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1])])},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("WARNING") == 1, done.stdout
    assert "no model cache" in done.stdout


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_the_right_to_write_is_one_warning(
    runtime: RuntimeConfig, graph: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = runtime.cache_dir / "compiled"
    folder.mkdir(parents=True, mode=0o500)
    with caplog.at_level(logging.WARNING, "docvino"):
        for _ in range(2):
            assert right(compile_model(graph, ONE, runtime))
    assert [record.message for record in caplog.records] == [f"no model cache: {folder} cannot be written"]


def test_a_device_that_fails_only_with_its_cache_is_used_without(
    machine: Machine, runtime: RuntimeConfig, graph: Path
) -> None:
    """Source: openvinotoolkit/openvino#20190, a GPU and a full disk: clCreateProgramWithBinary."""
    core = machine(a770(refuses=lambda _, asked: "clCreateProgramWithBinary" if asked["CACHE_DIR"] else None))
    model = compile_model(graph, ONE, runtime.model_copy(update={"device": "GPU"}))
    assert right(model)
    assert not model.compiled.from_cache
    assert [bool(asked["CACHE_DIR"]) for _, asked in core._devices["GPU"].compiled] == [True, False]


def test_the_record_says_what_the_entry_is_of(runtime: RuntimeConfig, graph: Path) -> None:
    compile_model(graph, ONE, runtime)
    record = json.loads((blob(runtime).parent / "entry.json").read_text(encoding="utf-8"))
    cpu = find_device("CPU")
    assert record["facts"]["device"] == cpu.full_name
    assert record["facts"]["openvino"] == ov.get_version()
    assert record["files"][blob(runtime).name][0] == blob(runtime).stat().st_size
