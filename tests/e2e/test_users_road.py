"""Facts of the documented road, fetch, convert, parse, walked against a hub of folders of the published shape."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from docvino import cli, hub
from docvino.errors import BundleError, FetchError
from docvino.specs import FOLDERS
from rehearsal import UNWANTED, Hub, make_hub, repinned, serving
from ten_pages import ten_pages

PAGE = 4  # with formulas: few words, each kind of crop but tables
HEADING, FORMULA = "## 3 Formulas\n", re.compile(r"^\$\$\na\^\{2\}\+.*=c\^\{2\} \\tag\*\{\(1\)\}\n\$\$$", re.MULTILINE)


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def error(self) -> tuple[str, str]:
        """The last two lines: cause and fix."""
        cause, fix = self.err.splitlines()[-2:]
        return cause, fix


@dataclass(frozen=True)
class Road:
    """docvino in a data folder of its own, with the hub's folders behind it."""

    hub: Hub
    data: Path
    pdf: Path
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *words: object) -> Said:
        with pytest.raises(SystemExit) as caught:
            cli.main([str(word) for word in words])
        out, err = self.capsys.readouterr()
        return Said(int(caught.value.code or 0), out, err)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hub")
    make_hub(path)
    return path


@pytest.fixture
def road(
    folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Road]:
    pdf = tmp_path / "report.pdf"
    pdf.write_bytes(ten_pages()[0])
    with serving(folders) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "no cache"))
        for other in ("MODELSCOPE", "AISTUDIO"):
            monkeypatch.setattr(hub, other, "http://127.0.0.1:9")
        monkeypatch.setenv("DOCVINO_DATA_DIR", str(tmp_path / "data"))
        monkeypatch.setenv("DOCVINO_CACHE_DIR", str(tmp_path / "cache"))
        monkeypatch.setenv("DOCVINO_KV_CACHE_MIB", "64")
        yield Road(server, tmp_path / "data", pdf, capsys)


@pytest.mark.parametrize(
    ("preset", "layout", "graph"),
    [
        ("paddleocr-vl-1.6", "pp-doclayout-v3", "inference.onnx"),
        pytest.param("paddleocr-vl-1.5", "pp-doclayout-v3", "inference.onnx", marks=pytest.mark.slow),
        ("paddleocr-vl-v1", "pp-doclayout-v2", "PP-DocLayoutV2/inference.pdmodel"),
    ],
)
def test_what_is_fetched_and_converted_reads_whole_pages(
    road: Road, folders: Path, preset: str, layout: str, graph: str
) -> None:
    with repinned(folders):
        fetched = road("fetch", preset)
        assert (fetched.code, fetched.err.splitlines()[-1]) == (0, f"next: docvino convert {preset} --precision int8")
        assert f"{preset}/config.json: 1.3 kB from huggingface" in fetched.err
        assert not [path for path in road.hub.asked if path.endswith(UNWANTED)]
        assert (road.data / "sources" / layout / graph).is_file()

        converted = road("convert", preset, "--precision", "int8")
        following = f"docvino parse FILE --preset {preset} --precision int8"
        assert (converted.code, converted.err.splitlines()[-1]) == (0, f"next: {following}")

        read = road(*following.replace("FILE", str(road.pdf)).split()[1:], "--pages", PAGE)
        assert (read.code, read.out.count("$$\n")) == (0, 4)
        if preset == "paddleocr-vl-v1":  # its prompts end otherwise than nano has learned: it reads badly
            assert read.out.startswith("## ")
        else:
            assert read.out.startswith(HEADING)
            assert FORMULA.search(read.out)

        rows = {row["model"]: row for row in json.loads(road("models", "list", "--json").out)}
        assert (rows[preset]["fetched"], rows[preset]["converted"]) == (True, ["int8"])
        assert (rows[layout]["fetched"], rows[layout]["converted"]) == (True, ["fp16"])
        assert road("verify", preset, "--precision", "int8").code == 0

        for words in (("parse", road.pdf, "--preset", preset), ("verify", preset)):
            said = road(*words)
            assert said.code == BundleError.exit_code
            assert said.error == (
                f"error: model {preset} is not converted at fp32, but at int8",
                f"  fix: add --precision int8, or docvino convert {preset} --precision fp32",
            )

        asked = len(road.hub.asked)
        assert road("fetch", preset).code == 0
        assert len(road.hub.asked) == asked  # all is there


def test_another_file_than_the_pinned_one_is_refused(road: Road) -> None:
    said = road("fetch", "paddleocr-vl-1.6", "--from", "huggingface")
    assert said.code == FetchError.exit_code
    pinned = {file.path: file.size_bytes for file in FOLDERS["paddleocr-vl-1.6"].files}
    assert f"huggingface: it has 2 bytes there, not {pinned['tokenizer_config.json']}" in said.err or (
        f"huggingface: it has 46 bytes there, not {pinned['generation_config.json']}" in said.err
    )
    assert not list((road.data / "sources").rglob("*.safetensors"))


def test_another_revision_is_converted_by_the_command_that_fetch_tells(
    road: Road, folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(road.hub.revisions, "PaddlePaddle/PaddleOCR-VL-1.6", "new")
    with repinned(folders):
        fetched = road("fetch", "paddleocr-vl-1.6", "--revision", "new")
        assert fetched.code == 0
        command = fetched.err.splitlines()[-1].removeprefix("next: docvino ").split()
        assert command[:1] == ["convert"]
        assert road(*command).code == 0
        name = command[command.index("--name") + 1]
        assert (road.data / "bundles" / f"{name}-int8").is_dir()


def test_the_hub_needs_not_have_what_is_not_required(road: Road, folders: Path, tmp_path: Path) -> None:
    smaller = tmp_path / "smaller"
    make_hub(smaller)
    (smaller / "PaddlePaddle" / "PaddleOCR-VL-1.6" / "LICENSE").unlink()
    road.hub.folder = smaller
    with repinned(folders):
        said = road("fetch", "paddleocr-vl-1.6")
    assert said.code == 0
    assert "paddleocr-vl-1.6/LICENSE: not there, and not required" in said.err
    assert "modelscope" not in said.err
