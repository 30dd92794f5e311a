"""Models from hubs and models in one file, by the real command line in processes of its own."""

from __future__ import annotations

import functools
import http.server
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from models import Command

FILES = {
    "config.json": b"{}",
    "preprocessor_config.json": b"{ }",
    "tokenizer.json": b"[]",
    "tokenizer_config.json": b"[ ]",
    "chat_template.jinja": b"{{ text }}",
    "generation_config.json": b"{  }",
    "model.safetensors": bytes(2_000_000),
}


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_args: object) -> None:
        pass


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    """A plain server as Hugging Face, with PaddleOCR-VL 1.6 of made-up content at revision `toy`."""
    folder = tmp_path / "hub" / "PaddlePaddle" / "PaddleOCR-VL-1.6" / "resolve" / "toy"
    folder.mkdir(parents=True)
    for name, data in FILES.items():
        (folder / name).write_bytes(data)
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(tmp_path / "hub"))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def hub(docvino: Command, endpoint: str, tmp_path: Path) -> Command:
    """`docvino` with that server, an empty data folder and no cache."""
    names = [name for name in os.environ if name.lower().endswith("_proxy") or name.startswith("HF_")]
    environment = {
        **dict.fromkeys(names, ""),
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(tmp_path / "hf"),
        "DOCVINO_DATA_DIR": str(tmp_path / "data"),
    }
    return functools.partial(docvino, **environment)


def test_fetch_brings_a_folder_from_a_hub_and_says_so_line_by_line(hub: Command, tmp_path: Path) -> None:
    words = ("fetch", "paddleocr-vl-1.6", "--from", "huggingface", "--revision", "toy")
    done = hub(*words)
    folder = tmp_path / "data" / "sources" / "paddleocr-vl-1.6@toy"
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.name in FILES} == FILES
    assert "paddleocr-vl-1.6/model.safetensors: 2.0 MB from huggingface, size only" in done.stderr
    assert "7 files, 2.0 MB, complete in" in done.stderr
    assert "\x1b" not in done.stderr
    # Its layout model is pinned by sha256, so this server cannot have it; what was fetched stays.
    assert done.returncode == 4
    assert "error: pp-doclayout-v3 lacks inference.onnx" in done.stderr
    offline = hub(*words, "--offline")
    assert "paddleocr-vl-1.6 lacks" not in offline.stderr
    assert "complete in" in offline.stderr
    assert "fetch pp-doclayout-v3 --local FOLDER" in offline.stderr


def test_fetch_names_what_a_hub_does_not_have(hub: Command) -> None:
    done = hub("fetch", "paddleocr-vl-1.6", "--from", "huggingface")
    assert done.returncode == 4
    *_, cause, fix = done.stderr.splitlines()
    assert cause.startswith("error: paddleocr-vl-1.6 lacks generation_config.json")
    assert "HTTP 404" in cause
    assert "https://huggingface.co/PaddlePaddle/PaddleOCR-VL-1.6 (revision c5630aba" in fix


def test_fetch_offline_names_what_is_lacking(hub: Command) -> None:
    for done in (hub("fetch", "paddleocr-vl-1.6", "--offline"), hub("fetch", "paddleocr-vl-1.6", HF_HUB_OFFLINE="1")):
        assert done.returncode == 4
        assert "the network must not be used" in done.stderr
        assert "--local" in done.stderr


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (("models", "export", "paddleocr-vl-v1", "-o", "x.tar"), "paddleocr-vl-v1 is not converted at this precision"),
        (("fetch", "pp-ocr", "--from", "huggingface"), "--from and --revision are for models of hubs"),
        (("fetch", "pp-ocr", "--revision", "main"), "--from and --revision are for models of hubs"),
        (("fetch", "paddleocr-vl-1.6", "--from", "hugging"), "neither a known hub nor an http(s) url"),
        (("fetch", "paddleocr-vl-1.6", "--revision", "../x"), "is no revision"),
    ],
)
def test_what_does_not_fit_is_refused_as_usage(hub: Command, words: tuple[str, ...], cause: str) -> None:
    done = hub(*words)
    assert done.returncode == 2
    assert cause in done.stderr
    assert len(done.stderr.splitlines()) == 2


def test_a_preset_that_was_not_converted_is_not_verified(hub: Command) -> None:
    done = hub("verify", "paddleocr-vl-1.5")
    assert done.returncode == 4
    assert "paddleocr-vl-1.5 is not converted at fp32" in done.stderr
    assert "docvino fetch paddleocr-vl-1.5 && docvino convert paddleocr-vl-1.5 --precision fp32" in done.stderr


def test_what_was_not_fetched_cannot_be_converted(hub: Command) -> None:
    done = hub("convert", "paddleocr-vl-1.6")
    assert done.returncode == 4
    assert done.stderr.splitlines() == [
        "error: paddleocr-vl-1.6 is not fetched",
        "  fix: docvino fetch paddleocr-vl-1.6",
    ]


def test_the_list_knows_the_folders(hub: Command) -> None:
    rows = {row["model"]: row for row in json.loads(hub("models", "list", "--json").stdout)}
    assert rows["paddleocr-vl-1.6"]["fetched"] is False
    assert "paddleocr-vl-1.6" in hub("models", "list", COLUMNS="200").stdout


@pytest.mark.parametrize("precision", [pytest.param("fp32", marks=pytest.mark.slow), "int8"])
def test_models_travel_in_one_file_and_give_the_recorded_answers_there(
    docvino: Command, tmp_path: Path, precision: str
) -> None:
    archive, there = tmp_path / "models.tar", tmp_path / "there"
    made = docvino("models", "export", "pp-ocr", "-o", archive, "--precision", precision, "--json")
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["size_bytes"] == archive.stat().st_size
    again = tmp_path / "again.tar"
    assert docvino("models", "export", "pp-ocr", "-o", again, "--precision", precision).returncode == 0
    assert again.read_bytes() == archive.read_bytes()
    moved = {"DOCVINO_DATA_DIR": str(there), "DOCVINO_OFFLINE": "1"}
    done = docvino("models", "import", archive, **moved)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(", checked") == len(json.loads(made.stdout)["bundles"])
    verified = docvino("verify", "pp-ocr", "--precision", precision, "--json", **moved)
    assert verified.returncode == 0, verified.stderr
    assert [row["problem"] for row in json.loads(verified.stdout)] == [None] * len(json.loads(made.stdout)["bundles"])
    repeated = docvino("models", "import", archive, **moved)
    assert repeated.returncode == 0
    assert "is there already" in repeated.stderr
    graph = there / "bundles" / f"picodet-cdla-{precision}" / "model.bin"
    graph.write_bytes(graph.read_bytes()[:-1])
    assert docvino("models", "import", archive, **moved).returncode == 4
    assert docvino("models", "import", archive, "--force", **moved).returncode == 0
    assert docvino("verify", "picodet-cdla", "--precision", precision, **moved).returncode == 0


def test_a_damaged_file_of_models_is_one_error(docvino: Command, tmp_path: Path) -> None:
    archive = tmp_path / "models.tar"
    assert docvino("models", "export", "pp-lcnet-orientation", "-o", archive).returncode == 0
    data = bytearray(archive.read_bytes())
    data[len(data) // 2] ^= 1
    archive.write_bytes(data)
    done = docvino("models", "import", archive, DOCVINO_DATA_DIR=str(tmp_path / "there"))
    assert done.returncode == 4
    assert "sha256" in done.stderr
    assert not list((tmp_path / "there").rglob("*.xml"))
