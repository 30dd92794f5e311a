"""Facts of toolchains, with a pip and scripts that behave as they are told."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from docvino import toolchain
from docvino.errors import BundleError, ConfigError, ConvertError, FetchError, MissingExtraError
from docvino.settings import RuntimeConfig
from docvino.specs.toolchains import TOOLCHAINS
from docvino.toolchain import install, list_toolchains, remove, run, telling_lines, toolchain_folder, versions
from toolchains import pretend


@pytest.fixture
def runtime(tmp_path: Path) -> RuntimeConfig:
    return RuntimeConfig(data_dir=tmp_path / "data", cache_dir=tmp_path / "cache")


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Commands that would have been run: venv makes a folder, pip succeeds, the probe answers."""
    seen: list[list[str]] = []

    def answer(command: Sequence[str], log: Path, limit_s: float, environment: dict[str, str]) -> int:
        del limit_s
        seen.append(list(command))
        assert not [name for name in environment if name.startswith("PYTHON")]
        log.write_text("", encoding="utf-8")
        if "venv" in command:
            python = toolchain._python_of(Path(command[-1]))
            python.parent.mkdir(parents=True)
            python.write_bytes(b"python")
        if any(part.endswith("probe.py") for part in command):
            log.write_text(
                'warning\n{"numpy": "2.2.6", "paddle2onnx": "1.3.1", "python": "3.11.7"}\n', encoding="utf-8"
            )
        return 0

    monkeypatch.setattr(toolchain, "run_child", answer)
    monkeypatch.setattr(toolchain, "_interpreter", lambda *_: Path(sys.executable))
    return seen


def failing(monkeypatch: pytest.MonkeyPatch, word: str, said: str, code: int | None = 1) -> None:
    """Makes the command with `word` in it fail with this log."""
    before = toolchain.run_child

    def answer(command: Sequence[str], log: Path, limit_s: float, environment: dict[str, str]) -> int | None:
        if any(part == word or Path(part).name == word for part in command):
            log.write_text(said, encoding="utf-8")
            return code
        return before(command, log, limit_s, environment)

    monkeypatch.setattr(toolchain, "run_child", answer)


# ---- installing


def test_an_installation_pins_every_package_and_writes_what_it_became(
    runtime: RuntimeConfig, child: list[list[str]]
) -> None:
    said: list[str] = []
    made = install("pdmodel", runtime, report=said.append)
    assert made.problem is None
    assert made.versions == {"numpy": "2.2.6", "paddle2onnx": "1.3.1"}
    assert made.python == "3.11.7"
    assert (made.size_bytes or 0) > 0
    venv, pip, probe = child
    assert venv[:4] == [sys.executable, "-I", "-m", "venv"]
    assert {"--no-deps", "--only-binary=:all:"} <= set(pip)
    assert set(TOOLCHAINS["pdmodel"].requirements) <= set(pip)
    assert probe[1] == "-I"
    folder = toolchain_folder("pdmodel", runtime.data_dir)
    assert sorted(path.name for path in folder.parent.iterdir()) == ["pdmodel"]
    assert "about 40 MB" in said[0]


def test_every_requirement_is_pinned_and_paddlepaddle_stays_below_3_3() -> None:
    for entry in TOOLCHAINS.values():
        assert all("==" in requirement for requirement in entry.requirements)
    assert "paddlepaddle==3.2.2" in TOOLCHAINS["pir"].requirements


def test_what_is_installed_is_not_installed_again_without_force(runtime: RuntimeConfig, child: list[list[str]]) -> None:
    install("pdmodel", runtime)
    install("pdmodel", runtime)
    assert len(child) == 3
    install("pdmodel", runtime, force=True)
    assert len(child) == 6


@pytest.mark.parametrize(
    ("word", "said", "kind", "message", "fix"),
    [
        ("install", "ERROR: No matching distribution found for onnx==1.17.0", FetchError, "No matching dis", "network"),
        ("install", "OSError: [Errno 28] No space left on device", FetchError, "No space left", "free some space"),
        ("install", "ERROR: https://me:secret@index/ is not there", FetchError, r"\*\*\*\*@index", "network"),
        (
            "probe.py",
            "ImportError: DLL load failed",
            FetchError,
            "does not work: it ended .*DLL load",
            "another Python",
        ),
        ("venv", "Error: no venv here", MissingExtraError, "venv of .* ended with exit code 1", "python3-venv"),
    ],
)
def test_an_installation_that_fails_says_why_and_leaves_nothing(
    word: str,
    said: str,
    kind: type[Exception],
    message: str,
    fix: str,
    runtime: RuntimeConfig,
    child: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failing(monkeypatch, word, said)
    with pytest.raises(kind, match=message) as caught:
        install("pdmodel", runtime)
    assert fix in caught.value.fix  # type: ignore[attr-defined]
    assert "secret" not in str(caught.value)
    assert list((runtime.data_dir / "toolchains").iterdir()) == []
    assert child is not None


def test_an_installation_that_takes_too_long_is_stopped(
    runtime: RuntimeConfig, child: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, "install", "", None)
    with pytest.raises(FetchError, match="pip did not finish within 1800 s and was stopped"):
        install("pdmodel", runtime)
    assert child


def test_without_ensurepip_the_found_pip_installs_into_the_new_environment(
    runtime: RuntimeConfig, child: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = toolchain.run_child

    def no_ensurepip(command: Sequence[str], log: Path, limit_s: float, environment: dict[str, str]) -> int | None:
        if "venv" in command and "--without-pip" not in command:
            log.write_text("Error: No module named ensurepip", encoding="utf-8")
            return 1
        return before(command, log, limit_s, environment)

    monkeypatch.setattr(toolchain, "run_child", no_ensurepip)
    monkeypatch.setattr(toolchain, "find_pip", lambda: (["some-pip"], "PATH"))
    install("pdmodel", runtime)
    assert child[1][:2] == ["some-pip", "--python"]


def test_offline_nothing_is_installed(runtime: RuntimeConfig) -> None:
    with pytest.raises(FetchError, match="must not be used") as caught:
        install("pir", runtime.model_copy(update={"offline": True}))
    assert "docvino toolchain install pir" in caught.value.fix


def test_a_toolchain_that_does_not_exist_is_refused_with_the_nearest(runtime: RuntimeConfig) -> None:
    with pytest.raises(ConfigError) as caught:
        install("pdmodl", runtime)
    assert "'pdmodel'" in caught.value.fix


def test_a_data_folder_that_cannot_be_written_is_an_error_of_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").write_bytes(b"a file")
    monkeypatch.setattr(toolchain, "_interpreter", lambda *_: Path(sys.executable))
    with pytest.raises(BundleError, match="cannot write"):
        install("pdmodel", RuntimeConfig(data_dir=tmp_path / "data"))


# ---- which Python


def test_a_python_without_wheels_is_refused_by_name(
    runtime: RuntimeConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(toolchain, "_version_of", lambda _: (3, 13))
    with pytest.raises(ConfigError, match=r"is Python 3\.13") as caught:
        install("pir", runtime, python=tmp_path / "python3.13")
    assert "3.10, 3.11, 3.12" in caught.value.fix
    monkeypatch.setattr(toolchain, "_version_of", lambda _: None)
    with pytest.raises(ConfigError, match="is no Python that runs"):
        install("pir", runtime, python=tmp_path / "nothing")


def test_under_a_newer_python_one_on_path_is_taken_or_asked_for(
    runtime: RuntimeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain.sys, "version_info", (3, 13, 1))
    monkeypatch.setattr(toolchain.shutil, "which", lambda name: "/some/python3.12" if name == "python3.12" else None)
    monkeypatch.setattr(toolchain, "_version_of", lambda _: (3, 12))
    assert toolchain._interpreter(TOOLCHAINS["pir"], None) == Path("/some/python3.12")
    monkeypatch.setattr(toolchain, "_version_of", lambda _: None)  # a pyenv shim of a version that is not there
    with pytest.raises(MissingExtraError, match=r"needs Python 3\.10, 3\.11, 3\.12 .* this is 3\.13") as caught:
        install("pir", runtime)
    assert "--python PATH" in caught.value.fix


def test_the_version_of_a_python_is_what_it_says_itself(tmp_path: Path) -> None:
    assert toolchain._version_of(Path(sys.executable)) == sys.version_info[:2]
    assert toolchain._version_of(tmp_path / "nowhere") is None


# ---- listing and removing


def test_a_list_names_every_toolchain_with_its_state(runtime: RuntimeConfig) -> None:
    pretend("pdmodel", runtime)
    found = {entry.name: entry for entry in list_toolchains(runtime)}
    assert found.keys() == {"pdmodel", "pir"}
    assert found["pdmodel"].problem is None
    assert found["pdmodel"].size_bytes == 127_000_000
    assert found["pir"].problem == "not installed"
    assert versions("pdmodel", runtime) == {"paddle2onnx": "1.2.3", "paddlepaddle": "4.5.6", "onnx": "7.8.9"}


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda folder: (folder / "toolchain.json").unlink(), "not installed"),
        (lambda folder: (folder / "toolchain.json").write_text("{", encoding="utf-8"), "toolchain.json is damaged"),
        (lambda folder: (folder / "toolchain.json").write_text("[]", encoding="utf-8"), "toolchain.json is damaged"),
        (lambda folder: toolchain._python_of(folder).unlink(), "the Python 3.11.7 that it was made from is gone"),
    ],
)
def test_half_an_environment_is_never_listed_as_installed(damage: object, problem: str, runtime: RuntimeConfig) -> None:
    damage(pretend("pir", runtime))  # type: ignore[operator]
    assert {entry.name: entry.problem for entry in list_toolchains(runtime)}["pir"] == problem
    with pytest.raises(MissingExtraError) as caught:
        run("pir", "probe.py", (), runtime)
    assert caught.value.fix == "docvino toolchain install pir"


def test_an_environment_with_other_pins_has_to_be_made_again(runtime: RuntimeConfig) -> None:
    marker = pretend("pir", runtime) / "toolchain.json"
    written = json.loads(marker.read_text(encoding="utf-8"))
    marker.write_text(json.dumps({**written, "requirements": ["paddle2onnx==2.0.0"]}), encoding="utf-8")
    assert "other pins" in str({entry.name: entry.problem for entry in list_toolchains(runtime)}["pir"])


def test_removing_deletes_the_folder_and_can_be_done_once(runtime: RuntimeConfig) -> None:
    folder = pretend("pir", runtime)
    assert remove("pir", runtime) == folder
    assert not folder.exists()
    with pytest.raises(ConfigError, match="not installed"):
        remove("pir", runtime)


# ---- running


def script(tmp_path: Path, code: str) -> Path:
    path = tmp_path / "script.py"
    path.write_text(code, encoding="utf-8")
    return path


def test_a_script_gets_its_arguments_and_its_output_comes_back(runtime: RuntimeConfig, tmp_path: Path) -> None:
    pretend("pdmodel", runtime)
    code = "import sys; print('版', *sys.argv[1:])"
    assert run("pdmodel", script(tmp_path, code), ("a", tmp_path), runtime).split() == ["版", "a", str(tmp_path)]


def test_neither_the_callers_packages_nor_its_folder_are_seen(
    runtime: RuntimeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend("pdmodel", runtime)
    (tmp_path / "onnx.py").write_text("", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PIP_TARGET", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    code = "import importlib.util, os, site; print(importlib.util.find_spec('onnx'), site.ENABLE_USER_SITE, "
    code += "os.environ.get('PYTHONPATH'), os.environ.get('PIP_TARGET'))"
    assert run("pdmodel", script(tmp_path, code), (), runtime).strip() == "None False None None"


ABORT = "import os, sys\nprint('[ERROR] Due to opset version, the model exporting is aborted.', flush=True)\nos.abort()"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no signals")
def test_an_abort_is_one_line_with_the_end_of_the_log(runtime: RuntimeConfig, tmp_path: Path) -> None:
    pretend("pdmodel", runtime)
    with pytest.raises(ConvertError) as caught:
        run("pdmodel", script(tmp_path, ABORT), (), runtime)
    assert str(caught.value) == (
        "script in toolchain pdmodel was ended by SIGABRT: "
        "[ERROR] Due to opset version, the model exporting is aborted."
    )


def test_a_hang_is_stopped_in_time(runtime: RuntimeConfig, tmp_path: Path) -> None:
    pretend("pdmodel", runtime)
    with pytest.raises(ConvertError, match=r"did not finish within 1 s and was stopped: waiting$"):
        run(
            "pdmodel",
            script(tmp_path, "print('waiting', flush=True); input = __import__('time').sleep(60)"),
            (),
            runtime,
            limit_s=1,
        )


def test_exit_code_255_is_one_line_with_the_error_of_the_log(runtime: RuntimeConfig, tmp_path: Path) -> None:
    pretend("pdmodel", runtime)
    code = "import sys\nprint('I1130 16:54:41.132238 29400 a.cc:257] New Executor is Running.')\n"
    code += "print('(Unimplemented) the 0th elementwise MUST be ir::FloatAttribute (at /x/pir_parser.cc:814)')"
    code += "\nsys.exit(255)"
    with pytest.raises(ConvertError) as caught:
        run("pdmodel", script(tmp_path, code), (), runtime)
    assert str(caught.value).endswith(
        "ended with exit code 255: (Unimplemented) the 0th elementwise MUST be ir::FloatAttribute"
    )


def test_the_telling_lines_are_the_errors_without_colours_stacks_and_positions() -> None:
    log = '2026-11-30 17:21:11 \x1b[31m[ERROR]\x1b[0m one\n  File "x.py", line 3\nTraceback (most recent call last):\n'
    log += "ValueError: two\n-----\n"
    assert telling_lines(log) == ": [ERROR] one | ValueError: two"
    assert telling_lines("a\nb\nc\n") == ": b | c"
    assert telling_lines("") == ""
    assert len(telling_lines("error " * 1000)) <= 310


def test_a_python_that_cannot_be_started_is_a_conversion_error(runtime: RuntimeConfig, tmp_path: Path) -> None:
    folder = pretend("pdmodel", runtime)
    python = toolchain._python_of(folder)
    python.unlink()
    shutil.copyfile(script(tmp_path, "not a program"), python)
    with pytest.raises(ConvertError, match="cannot run") as caught:
        run("pdmodel", "probe.py", (), runtime)
    assert "--force" in caught.value.fix
