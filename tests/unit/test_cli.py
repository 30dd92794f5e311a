"""Facts of the command line that need no models: arguments, exit codes, and what a mistake is answered with."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from PIL import Image

import docvino
from docvino import cli
from docvino.settings import RuntimeConfig
from protobuf import message
from toolchains import pretend

pytestmark = pytest.mark.usefixtures("wide")


class Said(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def scan(tmp_path: Path) -> str:
    path = tmp_path / "scan.png"
    Image.new("RGB", (60, 40), "white").save(path)
    return str(path)


@pytest.fixture
def data(tmp_path: Path) -> list[str]:
    """An empty data folder."""
    return ["--data-dir", str(tmp_path / "data")]


class Runner:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: str) -> Said:
        with pytest.raises(SystemExit) as caught:
            cli.main(words)
        out, err = self._capsys.readouterr()
        code = caught.value.code
        return Said(code if isinstance(code, int) else int(code or 0), out, err)


@pytest.fixture
def docvino_(capsys: pytest.CaptureFixture[str]) -> Runner:
    return Runner(capsys)


def error_of(said: Said) -> tuple[str, str]:
    """The line with the cause and the line with the fix; there is nothing else on stderr."""
    cause, fix = said.err.splitlines()
    assert cause.startswith("error: ")
    assert fix.startswith("  fix: ")
    return cause.removeprefix("error: "), fix.removeprefix("  fix: ")


def test_the_version_goes_to_stdout(docvino_: Runner) -> None:
    assert docvino_("--version") == (0, f"docvino {docvino.__version__}\n", "")


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_names_every_command(docvino_: Runner, flag: str) -> None:
    said = docvino_(flag)
    assert said.code == 0
    for command in ("doctor", "fetch", "convert", "verify", "parse", "demo", "inspect", "models"):
        assert re.search(rf"^\s*{command}\s", said.out, re.MULTILINE), command


def test_no_command_at_all_shows_the_help_and_is_a_usage_error(docvino_: Runner) -> None:
    said = docvino_()
    assert said.code == 2
    assert "Usage" in said.out + said.err


@pytest.mark.parametrize("words", [["parse", "x.png", "--colour"], ["--colour"], ["colour"], ["parse"]])
def test_an_unknown_option_or_command_and_a_missing_file_are_usage_errors(docvino_: Runner, words: list[str]) -> None:
    said = docvino_(*words)
    assert said.code == 2
    assert said.out == ""
    assert "colour" in said.err or "Missing argument" in said.err


@pytest.mark.parametrize("command", ["fetch", "convert", "verify"])
def test_an_unknown_model_is_answered_with_the_nearest_one(docvino_: Runner, command: str, data: list[str]) -> None:
    said = docvino_(command, "pp-ocrr", *data)
    assert said.code == 2
    assert error_of(said) == ("unknown model or preset 'pp-ocrr'", "did you mean 'pp-ocr'?")


def test_an_unknown_preset_is_answered_with_the_nearest_one(docvino_: Runner, scan: str, data: list[str]) -> None:
    said = docvino_("parse", scan, "--preset", "pp-orc", *data)
    assert said.code == 2
    assert error_of(said) == ("unknown preset 'pp-orc'", "did you mean 'pp-ocr'?")


def test_a_file_that_is_not_there_is_an_input_error(docvino_: Runner, tmp_path: Path) -> None:
    missing = str(tmp_path / "nowhere.png")
    said = docvino_("parse", missing)
    assert said.code == 6
    assert error_of(said)[0] == f"no such file or folder: {missing}"


def test_models_that_are_not_there_are_answered_with_the_commands_that_make_them(
    docvino_: Runner, scan: str, data: list[str]
) -> None:
    said = docvino_("parse", scan, "--precision", "int8", *data)
    assert said.code == 4
    cause, fix = error_of(said)
    assert cause == "model pp-lcnet-orientation is not converted at int8"
    assert fix == "docvino fetch pp-ocr && docvino convert pp-ocr --precision int8"
    assert said.out == ""


def test_a_model_that_is_not_fetched_cannot_be_converted(docvino_: Runner, data: list[str]) -> None:
    said = docvino_("convert", *data)
    assert said.code == 4
    assert "docvino fetch" in error_of(said)[1]


@pytest.mark.parametrize(
    "command", [["verify"], ["models", "path", "picodet-cdla"], ["models", "remove", "picodet-cdla"]]
)
def test_what_needs_a_converted_model_says_that_there_is_none(
    docvino_: Runner, command: list[str], data: list[str]
) -> None:
    said = docvino_(*command, *data)
    assert said.code == 4
    assert error_of(said)


def test_a_mistyped_variable_is_a_usage_error(docvino_: Runner, monkeypatch: pytest.MonkeyPatch, scan: str) -> None:
    monkeypatch.setenv("DOCVINO_DEVISE", "GPU")
    said = docvino_("parse", scan)
    assert said.code == 2
    assert error_of(said) == ("unknown environment variable DOCVINO_DEVISE", "did you mean 'DOCVINO_DEVICE'?")


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (["--precision", "int3"], "bad value 'int3' for precision (flag --precision)"),
        (["--dpi", "9"], "bad value 9.0 for dpi (flag --dpi)"),
        (["--async-slots", "0"], "bad value 0 for async_slots (flag --async-slots)"),
        (["--min-confidence", "2"], "bad value 2.0 for min_confidence (flag --min-confidence)"),
        (["--config", "nowhere.toml"], "cannot read settings file nowhere.toml"),
    ],
)
def test_a_bad_setting_is_a_usage_error_that_names_it(
    docvino_: Runner, scan: str, words: list[str], cause: str
) -> None:
    said = docvino_("parse", scan, *words)
    assert said.code == 2
    assert error_of(said)[0].startswith(cause)


def test_a_settings_file_is_taken_from_its_option_or_its_variable(
    docvino_: Runner, scan: str, data: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "settings.toml"
    path.write_text('precision = "fp16"\n', encoding="utf-8")
    assert "at fp16" in error_of(docvino_("parse", scan, "--config", str(path), *data))[0]
    monkeypatch.setenv("DOCVINO_CONFIG", str(path))
    assert "at fp16" in error_of(docvino_("parse", scan, *data))[0]
    assert "at int8" in error_of(docvino_("parse", scan, "--precision", "int8", *data))[0]


def test_the_password_is_never_shown(docvino_: Runner, scan: str, data: list[str]) -> None:
    for words in (["--password", "hunter2"], ["--password", "hunter2", "--dpi", "1"]):
        said = docvino_("parse", scan, *words, *data)
        assert "hunter2" not in said.out + said.err


def test_several_documents_need_a_folder(docvino_: Runner, scan: str, tmp_path: Path) -> None:
    other = tmp_path / "other.png"
    other.write_bytes(Path(scan).read_bytes())
    said = docvino_("parse", scan, str(other))
    assert said.code == 2
    assert error_of(said) == ("2 documents and one standard output", "name a folder with -o")


def test_going_on_needs_a_folder(docvino_: Runner, scan: str) -> None:
    said = docvino_("parse", scan, "--resume")
    assert said.code == 2
    assert "-o" in error_of(said)[1]


def test_an_unknown_format_is_a_usage_error_that_names_the_nearest_one(
    docvino_: Runner, scan: str, tmp_path: Path
) -> None:
    said = docvino_("parse", scan, "-o", str(tmp_path / "out"), "--format", "md, dox")
    assert said.code == 2
    assert error_of(said) == ("unknown format dox", "did you mean 'docx'?")
    assert not (tmp_path / "out").exists()


def test_a_format_without_its_extra_is_told_before_anything_is_read(
    docvino_: Runner, scan: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("docvino.outputs.find_spec", lambda _: None)
    said = docvino_("parse", scan, "-o", str(tmp_path / "out"), "--format", "md,docx")
    assert said.code == 3
    assert error_of(said) == ("the format docx needs the package python-docx", 'pip install "docvino[office]"')
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("formats", "cause"),
    [("docx", "docx does not go to standard output"), ("md,txt", "2 formats and one standard output")],
)
def test_what_is_no_text_and_what_is_more_than_one_needs_a_folder(
    docvino_: Runner, scan: str, formats: str, cause: str
) -> None:
    said = docvino_("parse", scan, "--format", formats)
    assert said.code == 2
    assert error_of(said) == (cause, "name a folder with -o")


def test_inspecting_what_is_no_model_is_a_model_error(docvino_: Runner, scan: str) -> None:
    said = docvino_("inspect", scan)
    assert said.code == 4
    assert error_of(said)[0] == "scan.png is not one of .onnx, .xml, .pdmodel or PIR .json"


def test_the_list_of_models_says_what_is_fetched_and_converted(docvino_: Runner, data: list[str]) -> None:
    said = docvino_("models", "list", "--json", *data)
    assert (said.code, said.err) == (0, "")
    rows = json.loads(said.out)
    assert {row["model"] for row in rows} >= {"picodet-cdla", "pp-lcnet-orientation"}
    assert all(row["fetched"] is (row["model"] == "nano") and row["converted"] == [] for row in rows)
    assert all(row["licence"] == "Apache-2.0" for row in rows)
    presets = {row["model"]: row["presets"] for row in rows}
    assert presets["picodet-cdla"] == ["pp-ocr", "pp-ocrv4"]
    assert presets["pp-ocrv6-small-rec"] == ["pp-ocr"]
    assert presets["paddleocr-vl-1.6"] == ["paddleocr-vl-1.6"]
    assert "picodet-cdla" in docvino_("models", "list", *data).out


def test_the_doctor_shows_each_setting_with_its_origin(
    docvino_: Runner, data: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCVINO_PASSWORD", "hunter2")
    monkeypatch.setenv("DOCVINO_DPI", "200")
    said = docvino_("doctor", "--json", *data)
    report = json.loads(said.out)
    assert report["settings"]["dpi"] == {"value": 200.0, "origin": "environment DOCVINO_DPI"}
    assert report["settings"]["data_dir"] == {"value": data[1], "origin": "flag --data-dir"}
    assert report["settings"]["password"]["value"] == "(hidden)"
    plain = docvino_("doctor", *data).out
    assert "dpi = 200.0  (environment DOCVINO_DPI)" in plain
    assert "hunter2" not in said.out + plain


def test_the_doctor_fails_with_the_code_of_the_first_failure(docvino_: Runner, data: list[str]) -> None:
    said = docvino_("doctor", "--json", "--device", "XPU", "--preset", "pp-orc", *data)
    failed = [check for check in json.loads(said.out)["checks"] if check["status"] == "fail"]
    assert [check["name"] for check in failed] == ["device asked for", "preset"]
    assert said.code == failed[0]["exit_code"] == 7


def run_module(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "docvino", *words], capture_output=True, text=True, check=False, env={**os.environ}
    )


def test_a_traceback_is_shown_with_debug_only(tmp_path: Path) -> None:
    missing = str(tmp_path / "nowhere.png")
    plain = run_module("parse", missing)
    assert (plain.returncode, plain.stdout) == (6, "")
    assert "Traceback" not in plain.stderr
    assert "Traceback" in run_module("--debug", "parse", missing).stderr


def test_debug_does_not_change_the_exit_code(tmp_path: Path) -> None:
    assert run_module("--debug", "parse", str(tmp_path / "nowhere.png")).returncode == 6


# ---- model files of one's own, toolchains


def test_a_model_file_of_ones_own_needs_a_place_to_go(docvino_: Runner, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"no model")
    said = docvino_("convert", str(tmp_path / "model.onnx"))
    assert said.code == 2
    assert "name a folder with -o" in said.err


def test_options_for_files_are_refused_for_a_model_of_ours(docvino_: Runner, tmp_path: Path) -> None:
    for words in (["--road", "onnx"], ["--opset", "15"], ["--input-shape", "x=1"], ["-o", str(tmp_path)]):
        said = docvino_("convert", "pp-ocr", *words)
        assert said.code == 2
        assert "there is no file or folder pp-ocr" in said.err


def test_a_folder_that_is_called_like_a_model_of_ours_is_meant_only_with_o(
    docvino_: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: list[str]
) -> None:
    (tmp_path / "pp-ocr").mkdir()
    monkeypatch.chdir(tmp_path)
    assert "is not fetched" in docvino_("convert", "pp-ocr", *data).err
    assert "there is no model in pp-ocr" in docvino_("convert", "pp-ocr", "-o", "out", *data).err


def test_a_model_file_that_cannot_be_converted_is_one_error_with_its_exit_code(
    docvino_: Runner, tmp_path: Path, data: list[str]
) -> None:
    (tmp_path / "model.onnx").write_bytes(b"no model")
    said = docvino_("convert", str(tmp_path / "model.onnx"), "-o", str(tmp_path / "out"), "--json", *data)
    assert said.code == 4
    (outcome,) = json.loads(said.out)
    assert (outcome["name"], outcome["exit_code"]) == ("model", 4)
    assert "error: model: OpenVINO cannot read model.onnx" in said.err


def test_some_of_several_models_done_is_exit_code_8(docvino_: Runner, tmp_path: Path, data: list[str]) -> None:
    relu = tmp_path / "models" / "relu.onnx"
    relu.parent.mkdir()
    port = [message((1, name), (2, message((1, message((1, 1), (2, message((1, message((1, 3)))))))))) for name in "xy"]
    graph = message((1, message((1, "x"), (2, "y"), (4, "Relu"))), (2, "g"), (11, port[0]), (12, port[1]))
    relu.write_bytes(message((1, 8), (7, graph), (8, message((1, ""), (2, 15)))))
    (relu.parent / "bad.onnx").write_bytes(b"no model")
    said = docvino_("convert", str(relu.parent), "-o", str(tmp_path / "out"), *data)
    assert said.code == 8
    assert "relu: onnx by onnx" in said.err
    assert "error: bad: " in said.err


def test_toolchains_are_listed_and_what_is_not_there_cannot_be_removed(docvino_: Runner, data: list[str]) -> None:
    listed = docvino_("toolchain", "list", "--json", *data)
    assert listed.code == 0
    assert {entry["name"]: entry["problem"] for entry in json.loads(listed.out)} == {
        "pdmodel": "not installed",
        "pir": "not installed",
    }
    assert "not installed" in docvino_("toolchain", "list", *data).out
    removed = docvino_("toolchain", "remove", "pir", *data)
    assert (removed.code, "toolchain pir is not installed" in removed.err) == (2, True)


def test_an_installed_toolchain_is_kept_listed_and_removed(docvino_: Runner, data: list[str], tmp_path: Path) -> None:
    pretend("pdmodel", RuntimeConfig(data_dir=tmp_path / "data"))
    assert "pdmodel: 127 MB, installed in 12 s" in docvino_("toolchain", "install", "pdmodel", *data).err
    assert "paddle2onnx 1.2.3" in docvino_("toolchain", "list", *data).out
    assert docvino_("toolchain", "remove", "pdmodel", *data).code == 0


def test_a_toolchain_is_not_installed_offline(docvino_: Runner, data: list[str]) -> None:
    said = docvino_("toolchain", "install", "pir", "--offline", *data)
    assert (said.code, "must not be used" in said.err) == (4, True)


def test_inspect_warns_of_dynamic_shapes_on_the_error_stream(docvino_: Runner, tmp_path: Path) -> None:
    dimensions = message((1, message((2, "n"))), (1, message((1, 3))))
    port = [message((1, name), (2, message((1, message((1, 1), (2, dimensions)))))) for name in "xy"]
    graph = message((1, message((1, "x"), (2, "y"), (4, "Relu"))), (2, "g"), (11, port[0]), (12, port[1]))
    (tmp_path / "relu.onnx").write_bytes(message((1, 8), (7, graph), (8, message((1, ""), (2, 15)))))
    said = docvino_("inspect", str(tmp_path / "relu.onnx"))
    assert said.code == 0
    assert "warning: input x has the dynamic shape [?,3]" in said.err
    assert "warning" not in said.out
