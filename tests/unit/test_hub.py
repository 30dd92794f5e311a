"""Facts of fetching from hubs: a server on this machine that misbehaves in every way it can, and one that does not."""

from __future__ import annotations

import base64
import dataclasses
import email.utils
import errno
import hashlib
import http.server
import json
import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

import pytest

import docvino
from docvino import download, hub
from docvino.download import Limits
from docvino.errors import ConfigError, FetchError
from docvino.hub import Progress, fetch_folder, folder_path, is_fetched, missing_files
from docvino.settings import RuntimeConfig, resolve
from docvino.specs import FOLDERS, LAYOUTS, VLM_PRESETS, get_preset, select_models
from docvino.specs.model import HubFile, HubFolder, HubMember, ModelSpec, Repository, VlmPreset

SRC = Path(docvino.__file__).parent.parent
COMMIT = "a" * 40
CONFIG = b'{"model_type": "toy"}'
WEIGHTS = bytes(range(256)) * 1200  # 300 kB
OTHER = b"?" + WEIGHTS[1:]
TOKEN = "hf_s3cr3t"
FAST = Limits(
    connect_s=2, stall_s=0.4, attempts=3, progress_bytes=1000, backoff_s=0.02, longest_wait_s=0.3, redirects=4
)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def git_sha1(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def toy(*files: HubFile) -> HubFolder:
    """One file, its hash pinned, unless others are given."""
    repository = Repository("Org/Toy", "master")
    return HubFolder(
        name="toy",
        title="Toy",
        licence="Apache-2.0",
        homepage="https://hub.invalid/Org/Toy",
        repositories={
            "huggingface": Repository("Org/Toy", COMMIT),
            "modelscope": repository,
            "aistudio": repository,
        },
        files=files or (HubFile("weights.bin", len(WEIGHTS), sha256(WEIGHTS)),),
    )


UNPINNED = toy(HubFile("weights.bin"))

# A server


class Server(http.server.ThreadingHTTPServer):
    """Holds files by path; `script` says how the next requests for a path are answered, the last entry for good."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.script: dict[str, list[Callable[[_Handler, bytes], None]]] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.guard = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def headers_of(self, name: str) -> list[str | None]:
        return [headers.get(name) for _, headers in self.asked]

    def handle_error(self, *_arguments: object) -> None:
        pass  # clients that hang up are what these tests are about


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        parts = urlsplit(self.path)  # a proxy is asked for whole URLs
        path = unquote(parts.path) + (f"?{parts.query}" if parts.query else "")
        with self.server.guard:
            self.server.asked.append((path, {k.lower(): v for k, v in self.headers.items()}))
            script = self.server.script.get(path, [ok])
            behaviour = script.pop(0) if len(script) > 1 else script[0]
        if path in self.server.files or behaviour is not ok:
            behaviour(self, self.server.files.get(path, b""))
        else:
            self.send_error(404)

    def start(self, code: int, headers: dict[str, object]) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, str(value))
        self.end_headers()

    def log_message(self, *_args: object) -> None:
        pass


Behaviour = Callable[[_Handler, bytes], None]


def answer(
    *,
    etag: str | None = '"v1"',
    ranges: bool = True,
    cut_at: int | None = None,
    declared: int | None = None,
    chunks: int = 1,
    pause_s: float = 0.0,
    code: int | None = None,
    content: bytes | None = None,
    **extra: object,
) -> Behaviour:
    """Sends the file, or what of it the client lacks, with the given faults. `cut_at` counts from the file's start."""

    def behave(handler: _Handler, data: bytes) -> None:
        data = data if content is None else content
        wanted = handler.headers.get("Range")
        if_range = handler.headers.get("If-Range")
        start = 0
        headers: dict[str, object] = {"Content-Type": "application/octet-stream"}
        if etag is not None:
            headers["ETag"] = etag
        if wanted and ranges and if_range in (None, etag):
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        body = data[start:]
        headers["Content-Length"] = len(body) if declared is None else declared
        headers.update({name.replace("_", "-"): value for name, value in extra.items()})
        headers = {name: value for name, value in headers.items() if value is not None}
        handler.start(code or (206 if start else 200), headers)
        if cut_at is not None:
            body = body[: max(0, cut_at - start)]
        step = max(1, len(body) // chunks)
        for at in range(0, len(body), step):
            handler.wfile.write(body[at : at + step])
            handler.wfile.flush()
            time.sleep(pause_s)

    return behave


ok = answer()


def error(code: int, **headers: object) -> Behaviour:
    def behave(handler: _Handler, _data: bytes) -> None:
        page = b"<html>no</html>"
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        handler.start(code, {"Content-Type": "text/html", "Content-Length": len(page), **named})
        handler.wfile.write(page)

    return behave


def redirect(to: str, code: int = 302, **headers: object) -> Behaviour:
    return error(code, Location=to, **headers)


def stall(handler: _Handler, data: bytes) -> None:
    handler.start(200, {"Content-Length": len(data), "ETag": '"v1"'})
    handler.wfile.write(data[:1000])
    handler.wfile.flush()
    time.sleep(1.5)


def silent(_handler: _Handler, _data: bytes) -> None:
    time.sleep(1.5)


def hang_up(handler: _Handler, _data: bytes) -> None:
    handler.connection.shutdown(socket.SHUT_RDWR)


def no_http(handler: _Handler, _data: bytes) -> None:
    handler.wfile.write(b"SSH-2.0-OpenSSH_9.6\r\n")


def chunked(*, whole: bool, **headers: object) -> Behaviour:
    """The file without its size; when not whole, without the end mark either."""

    def behave(handler: _Handler, data: bytes) -> None:
        handler.protocol_version = "HTTP/1.1"
        handler.start(200, {"Transfer-Encoding": "chunked", **{k.replace("_", "-"): v for k, v in headers.items()}})
        for piece in (data[:70_000], data[70_000:]) if whole else (data[:70_000],):
            handler.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        if whole:
            handler.wfile.write(b"0\r\n\r\n")
        handler.close_connection = True

    return behave


@pytest.fixture
def serve() -> Iterator[Callable[[], Server]]:
    servers: list[Server] = []

    def start() -> Server:
        server = Server()
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def _no_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy of this machine is used, and no hub is ever reached by mistake."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    for name in ("HUGGINGFACE", "MODELSCOPE", "AISTUDIO"):
        monkeypatch.setattr(hub, name, "http://127.0.0.1:9")


class Place:
    """A data folder and one plain server with the toy model on it."""

    PATH = "/toy/weights.bin"

    def __init__(self, tmp_path: Path, server: Server) -> None:
        self.server = server
        self.runtime = RuntimeConfig(data_dir=tmp_path / "data", mirrors=(server.url,))
        self.environ: dict[str, str] = {"HF_HOME": str(tmp_path / "hf")}
        self.said: list[str] = []
        self.seen: list[Progress] = []
        server.files[self.PATH] = WEIGHTS

    @property
    def folder(self) -> Path:
        return folder_path(toy(), self.runtime.data_dir)

    @property
    def part(self) -> Path:
        return self.folder / ".weights.bin.part"

    def script(self, *behaviours: Behaviour) -> None:
        self.server.script[self.PATH] = list(behaviours)

    def fetch(self, folder: HubFolder | None = None, **options: Any) -> Path:
        runtime = options.pop("runtime", self.runtime)
        limits = options.pop("limits", FAST)
        return fetch_folder(
            folder or toy(),
            runtime,
            environ=self.environ,
            limits=limits,
            report=self.said.append,
            progress=self.seen.append,
            **options,
        )

    def succeeds(self, folder: HubFolder | None = None, **options: Any) -> None:
        path = self.fetch(folder, **options)
        assert (path / "weights.bin").read_bytes() == WEIGHTS
        assert sorted(p.name for p in path.iterdir()) == ["fetched.json", "weights.bin"]

    def fails(self, folder: HubFolder | None = None, **options: Any) -> FetchError:
        """An error with cause and fix, and no file under the model's name that is not the model's."""
        with pytest.raises(FetchError) as caught:
            self.fetch(folder, **options)
        assert caught.value.exit_code == 4
        assert str(caught.value)
        assert caught.value.fix
        assert TOKEN not in str(caught.value) + caught.value.fix + "".join(self.said)
        assert not (self.folder / "weights.bin").exists()
        return caught.value


@pytest.fixture
def place(tmp_path: Path, serve: Callable[[], Server]) -> Place:
    return Place(tmp_path, serve())


# Faults that pass: the file is there in the end


PASSING: dict[str, list[Behaviour]] = {
    "nothing wrong": [ok],
    "cut in the middle": [answer(cut_at=100_000), ok],
    "cut three times": [answer(cut_at=100_000), answer(cut_at=200_000), answer(cut_at=250_000), ok],
    "cut more often than there are attempts, each time later": [
        *(answer(cut_at=at) for at in range(50_000, 300_000, 50_000)),
        ok,
    ],
    "cut, then Range is ignored": [answer(cut_at=100_000), answer(ranges=False)],
    "cut, then another ETag": [answer(cut_at=100_000, content=OTHER), answer(etag='"v2"')],
    "cut, then another ETag, but If-Range is ignored": [
        answer(cut_at=100_000, content=OTHER),
        answer(etag='"v2"', code=206, Content_Range=f"bytes 100000-{len(WEIGHTS) - 1}/{len(WEIGHTS)}"),
        answer(etag='"v2"'),
    ],
    "cut, then a part that is not the one asked for": [
        answer(cut_at=100_000),
        answer(code=206, Content_Range=f"bytes 5-{len(WEIGHTS) - 1}/{len(WEIGHTS)}"),
        ok,
    ],
    "cut, then a part without saying which": [answer(cut_at=100_000), answer(code=206), ok],
    "cut, then 416": [answer(cut_at=100_000), error(416), ok],
    "cut in wrong content without an ETag": [answer(cut_at=100_000, content=OTHER, etag=None), answer(etag=None)],
    "stall, then ok": [stall, ok],
    "no answer, then ok": [silent, ok],
    "hangs up, then ok": [hang_up, ok],
    "speaks no HTTP, then ok": [no_http, ok],
    "500, then ok": [error(500), ok],
    "503 twice, then ok": [error(503), error(503), ok],
    "429 with Retry-After in seconds": [error(429, Retry_After="0"), ok],
    "429 with Retry-After as a date": [error(429, Retry_After=email.utils.formatdate(usegmt=True)), ok],
    "429 with Retry-After of a day, waited for up to the limit": [error(429, Retry_After="86400"), ok],
    "slow but alive": [answer(chunks=12, pause_s=0.1)],
    "size not told, chunked": [chunked(whole=True)],
    "size not told, cut": [chunked(whole=False), ok],
    "size not told, ends with the connection": [answer(Content_Length=None)],
    "called text/html by the server, but size and hash are right": [answer(Content_Type="text/html")],
}


@pytest.mark.parametrize("fault", PASSING)
def test_a_fault_that_passes_costs_no_file(place: Place, fault: str) -> None:
    place.script(*PASSING[fault])
    place.succeeds()
    assert place.seen[-1] == Progress("weights.bin", len(WEIGHTS), len(WEIGHTS))


# Faults that stay: one error, its cause and its fix


LASTING: dict[str, tuple[Behaviour, str, str]] = {
    "cut always at one place": (answer(cut_at=100_000), "cut off after 100000 of 307200 bytes (tried 3", "HTTPS_PROXY"),
    "cut always, Range ignored": (answer(cut_at=100_000, ranges=False), "cut off after 100000 of", "HTTPS_PROXY"),
    "nothing ever": (answer(cut_at=0), "cut off after 0 of 307200 bytes", "--from"),
    "stalls always": (stall, "not a byte for 0.4 s (tried 3 times)", "--from"),
    "never answers": (silent, "not a byte for 0.4 s", "--from"),
    "hangs up always": (hang_up, "the connection ended early (tried 3 times)", "network"),
    "speaks no HTTP": (no_http, "SSH-2.0", "network"),
    "500 always": (error(500), "HTTP 500 Internal Server Error (tried 3 times)", "--from"),
    "429 always": (error(429, Retry_After="0"), "HTTP 429 Too Many Requests (tried 3 times)", "--from"),
    "400": (error(400), "HTTP 400 Bad Request", "--from"),
    "401": (error(401), "HTTP 401 Unauthorized: access to", ".netrc"),
    "403": (error(403), "HTTP 403 Forbidden: access to", ".netrc"),
    "404": (error(404), "toy lacks weights.bin: 127.0.0.1: HTTP 404 Not Found", "revision"),
    "407": (error(407), "the proxy wants a password", "HTTPS_PROXY"),
    "wrong bytes": (answer(content=OTHER), f"{sha256(OTHER)}, not {sha256(WEIGHTS)}", "--from"),
    "too few bytes": (answer(content=WEIGHTS[:-7]), "it has 307193 bytes there, not 307200", "--from"),
    "too many bytes": (answer(content=WEIGHTS + b"x"), "it has 307201 bytes there, not 307200", "--from"),
    "size header too small": (answer(declared=1000), "it has 1000 bytes there, not 307200", "--from"),
    "size header too large": (answer(declared=10**12), "it has 1000000000000 bytes there", "--from"),
    "hub names another hash": (
        answer(X_Linked_Etag=f'"{sha256(OTHER)}"'),
        f"{sha256(OTHER)}, not {sha256(WEIGHTS)}",
        "--from",
    ),
    "web page instead of the file": (
        answer(content=b"<html>log in</html>", Content_Type="text/html; charset=utf-8"),
        "a web page instead of the file",
        "browser",
    ),
    "sent compressed": (answer(Content_Encoding="gzip"), "sent compressed (gzip)", "--from"),
    "redirects without a target": (error(302), "a redirect that says not where to", "browser"),
    "redirects to a local file": (redirect("file:///etc/passwd"), "a redirect to file:", "browser"),
    "redirects for ever": (redirect("/toy/weights.bin"), "more than 4 redirects", "browser"),
}


@pytest.mark.parametrize("fault", LASTING)
def test_a_fault_that_stays_is_one_error_with_cause_and_fix(place: Place, fault: str) -> None:
    behaviour, cause, fix = LASTING[fault]
    place.script(behaviour)
    error = place.fails()
    assert cause in str(error)
    assert fix in error.fix


UNKNOWN: dict[str, tuple[Behaviour, str]] = {
    "web page, called so": (answer(content=b"<p>log in", Content_Type="text/html"), "a web page instead of the file"),
    "web page, called data": (answer(content=b"\n<!DOCTYPE html><p>log in"), "a web page instead of the file"),
    "git-lfs pointer": (answer(content=b"version https://git-lfs.github.com/spec/v1\noid"), "a git-lfs pointer"),
    "neither size nor hash": (answer(Content_Length=None), "neither size nor hash is told"),
    "size header too small": (answer(declared=1000, X_Linked_Etag=sha256(WEIGHTS)), f"not {sha256(WEIGHTS)}"),
    "another hash than the hub's": (answer(content=OTHER, X_Linked_Etag=sha256(WEIGHTS)), f"not {sha256(WEIGHTS)}"),
    "another git name than the hub's": (
        answer(content=OTHER, X_Linked_Etag=git_sha1(WEIGHTS)),
        f"{git_sha1(OTHER)}, not {git_sha1(WEIGHTS)}",
    ),
    "chunked, cut": (chunked(whole=False), "the connection ended early (tried 3 times)"),
}


@pytest.mark.parametrize("fault", UNKNOWN)
def test_a_file_that_nobody_pinned_is_not_taken_on_trust(place: Place, fault: str) -> None:
    behaviour, cause = UNKNOWN[fault]
    place.script(behaviour)
    assert cause in str(place.fails(UNPINNED))


@pytest.mark.parametrize(
    ("behaviour", "checked"),
    [
        (answer(X_Linked_Etag=f'"{sha256(WEIGHTS)}"'), "sha256 of the hub"),
        (answer(X_Linked_Etag=f'W/"{git_sha1(WEIGHTS)}"'), "git sha1 of the hub"),
        (chunked(whole=True, X_Linked_Size=str(len(WEIGHTS))), "size only"),
        (chunked(whole=True), "size only"),
        (ok, "size only"),
    ],
)
def test_what_the_hub_says_of_an_unpinned_file_is_checked_and_recorded(
    place: Place, behaviour: Behaviour, checked: str
) -> None:
    place.script(behaviour)
    place.succeeds(UNPINNED)
    record = json.loads((place.folder / "fetched.json").read_text())
    assert record["files"]["weights.bin"] == {
        "sha256": sha256(WEIGHTS),
        "size_bytes": len(WEIGHTS),
        "origin": "127.0.0.1",
        "checked": checked,
    }


# Going on


def test_a_resumed_download_asks_for_the_rest_only_and_only_of_the_same_file(place: Place) -> None:
    place.script(answer(cut_at=100_000), ok)
    place.succeeds()
    assert place.server.headers_of("range") == [None, "bytes=100000-"]
    assert place.server.headers_of("if-range") == [None, '"v1"']


def test_a_later_run_goes_on_where_the_first_one_was_stopped(place: Place) -> None:
    place.script(answer(cut_at=200_000))
    place.fails()
    assert place.part.stat().st_size == 200_000
    place.server.asked.clear()
    place.script(ok)
    place.succeeds()
    assert place.server.headers_of("range") == ["bytes=200000-"]


def test_what_one_mirror_began_another_one_finishes_when_the_hash_is_pinned(
    place: Place, serve: Callable[[], Server]
) -> None:
    second = serve()
    second.files[Place.PATH] = WEIGHTS
    place.script(answer(cut_at=200_000))
    both = place.runtime.model_copy(update={"mirrors": (place.server.url, second.url)})
    place.succeeds(runtime=both)
    assert second.headers_of("range") == ["bytes=200000-"]
    assert second.headers_of("if-range") == [None]


def test_what_one_mirror_began_is_begun_anew_elsewhere_when_the_hash_is_not_pinned(
    place: Place, serve: Callable[[], Server]
) -> None:
    second = serve()
    second.files[Place.PATH] = WEIGHTS
    place.script(answer(cut_at=200_000, content=OTHER))
    both = place.runtime.model_copy(update={"mirrors": (place.server.url, second.url)})
    place.succeeds(UNPINNED, runtime=both)
    assert second.headers_of("range") == [None]


def test_a_file_that_only_lacks_its_name_costs_no_connection(place: Place) -> None:
    place.folder.mkdir(parents=True)
    place.part.write_bytes(WEIGHTS)
    place.succeeds()
    assert place.server.asked == []


@pytest.mark.parametrize("content", [OTHER, WEIGHTS + b"x"])
def test_a_part_file_of_other_content_is_thrown_away(place: Place, content: bytes) -> None:
    place.folder.mkdir(parents=True)
    place.part.write_bytes(content)
    place.succeeds()
    assert place.server.headers_of("range") == [None]


def test_nothing_is_fetched_twice(place: Place) -> None:
    place.succeeds()
    place.succeeds()
    assert len(place.server.asked) == 1


def test_an_unpinned_file_is_not_fetched_twice_either_and_a_changed_one_is(place: Place) -> None:
    place.succeeds(UNPINNED)
    place.succeeds(UNPINNED)
    assert len(place.server.asked) == 1
    (place.folder / "weights.bin").write_bytes(OTHER)
    place.succeeds(UNPINNED)
    assert len(place.server.asked) == 2
    assert any("not the file it should be" in line for line in place.said)


@pytest.mark.parametrize("record", [b"", b"[]", b"\xff", b'{"record_version": 9}', b'{"record_version":1,"files":[]}'])
def test_a_damaged_record_is_no_obstacle(place: Place, record: bytes) -> None:
    place.succeeds(UNPINNED)
    (place.folder / "fetched.json").write_bytes(record)
    place.succeeds(UNPINNED)
    assert len(place.server.asked) == 2


PROGRAM = """
import sys
from pathlib import Path
from docvino.download import Limits
from docvino.hub import fetch_folder
from docvino.settings import RuntimeConfig
from docvino.specs.model import HubFile, HubFolder
folder = HubFolder("toy", "Toy", "Apache-2.0", "https://hub.invalid", {}, (HubFile("weights.bin", SIZE, "SHA"),))
runtime = RuntimeConfig(data_dir=Path(sys.argv[1]), mirrors=(sys.argv[2],))
fetch_folder(folder, runtime, environ={"HF_HOME": sys.argv[1]}, limits=Limits(backoff_s=0.05), report=print)
"""


def start_process(place: Place) -> subprocess.Popen[str]:
    program = textwrap.dedent(PROGRAM).replace("SIZE", str(len(WEIGHTS))).replace("SHA", sha256(WEIGHTS))
    return subprocess.Popen(
        [sys.executable, "-c", program, str(place.runtime.data_dir), place.server.url],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SRC), "PYTHONUNBUFFERED": "1"},
    )


def test_processes_that_fetch_the_same_file_at_once_all_end_well_and_fetch_it_once(place: Place) -> None:
    place.script(answer(chunks=10, pause_s=0.1))
    processes = [start_process(place) for _ in range(3)]
    said = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], said
    assert (place.folder / "weights.bin").read_bytes() == WEIGHTS
    assert len(place.server.asked) == 1
    assert sum("another process" in text for text in said) >= 1


def test_a_killed_process_leaves_what_it_has_and_no_lock(place: Place) -> None:
    place.script(answer(chunks=100, pause_s=0.05), ok)
    process = start_process(place)
    deadline = time.monotonic() + 30
    while not (place.part.exists() and place.part.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.communicate()
    assert not (place.folder / "weights.bin").exists()
    place.succeeds()
    assert (place.server.headers_of("range")[-1] or "").startswith("bytes=")


# Where requests may lead, and what they carry


def hugging_face(place: Place) -> RuntimeConfig:
    """The server as Hugging Face, with a token for it."""
    place.environ.update(HF_ENDPOINT=place.server.url, HF_TOKEN=TOKEN)
    place.server.files[f"/Org/Toy/resolve/{COMMIT}/weights.bin"] = WEIGHTS
    return place.runtime.model_copy(update={"mirrors": ("huggingface",)})


HF_PATH = f"/Org/Toy/resolve/{COMMIT}/weights.bin"


def test_the_token_goes_to_its_endpoint_and_stays_there_on_a_redirect_to_another_host(
    place: Place, serve: Callable[[], Server]
) -> None:
    runtime, storage = hugging_face(place), serve()
    storage.files["/blob"] = WEIGHTS
    place.server.script[HF_PATH] = [redirect(f"{storage.url}/blob?signature=%2B%20x")]
    storage.files["/blob?signature=%2B%20x"] = WEIGHTS
    place.succeeds(runtime=runtime)
    assert place.server.headers_of("authorization") == [f"Bearer {TOKEN}"]
    assert storage.asked[0][0] == "/blob?signature=%2B%20x"
    assert storage.headers_of("authorization") == [None]
    assert TOKEN not in "".join(place.said)


def test_the_token_goes_along_on_a_redirect_of_the_same_host(place: Place) -> None:
    runtime = hugging_face(place)
    place.server.files["/cache"] = WEIGHTS
    place.server.script[HF_PATH] = [redirect("/cache", 307)]
    place.succeeds(runtime=runtime)
    assert place.server.headers_of("authorization") == [f"Bearer {TOKEN}"] * 2


def test_a_token_never_comes_back_after_another_host(place: Place, serve: Callable[[], Server]) -> None:
    runtime, other = hugging_face(place), serve()
    place.server.script[HF_PATH] = [redirect(f"{other.url}/hop")]
    other.script["/hop"] = [redirect(f"{place.server.url}/back")]
    place.server.files["/back"] = WEIGHTS
    place.succeeds(runtime=runtime)
    assert place.server.headers_of("authorization") == [f"Bearer {TOKEN}", None]


@pytest.mark.parametrize(
    ("endpoint", "sent"),
    [
        ("https://huggingface.co", f"Bearer {TOKEN}"),
        ("http://127.0.0.1:80", f"Bearer {TOKEN}"),
        ("http://mirror.invalid", None),
    ],
)
def test_the_token_is_not_sent_where_others_can_read_it(endpoint: str, sent: str | None) -> None:
    assert hub._bearer(endpoint, {"HF_TOKEN": TOKEN}) == sent


def test_a_redirect_from_https_to_http_is_not_followed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    class WithoutTls(download._HttpConnection):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            del options["context"]
            super().__init__(*arguments, **options)

    monkeypatch.setattr(download, "_HttpsConnection", WithoutTls)
    place.script(redirect(f"{place.server.url}/elsewhere"))
    place.server.files["/elsewhere"] = WEIGHTS
    secure = place.runtime.model_copy(update={"mirrors": (place.server.url.replace("http", "https"),)})
    error = place.fails(runtime=secure)
    assert "a redirect from https to http (127.0.0.1), which is not followed" in str(error)
    assert len(place.server.asked) == 1


def test_https_asked_of_a_server_without_it_is_one_error(place: Place) -> None:
    secure = place.runtime.model_copy(update={"mirrors": (place.server.url.replace("http", "https"),)})
    error = place.fails(runtime=secure)
    assert "SSL" in str(error) or "ended early" in str(error)
    assert "proxy" in error.fix


def test_access_that_is_refused_is_told_with_the_way_to_get_it(place: Place) -> None:
    runtime = hugging_face(place)
    place.server.script[HF_PATH] = [error(403)]
    refused = place.fails(runtime=runtime)
    assert f"huggingface: HTTP 403 Forbidden: access to Org/Toy at revision {COMMIT} is refused" in str(refused)
    assert refused.fix.startswith(f"accept the conditions on {place.server.url}/Org/Toy and set HF_TOKEN")


def test_a_file_that_is_not_there_is_told_with_revision_and_where_to_get_it(place: Place) -> None:
    runtime = hugging_face(place)
    del place.server.files[HF_PATH]
    missing = place.fails(runtime=runtime)
    assert "toy lacks weights.bin" in str(missing)
    assert f"Org/Toy at revision {COMMIT} has no such file" in str(missing)
    assert f"from https://hub.invalid/Org/Toy (revision {COMMIT})" in missing.fix


def test_hash_and_size_named_before_the_redirect_count(place: Place) -> None:
    runtime = hugging_face(place)
    place.server.files["/blob"] = OTHER
    place.server.script[HF_PATH] = [redirect("/blob", X_Linked_Etag=f'"{sha256(WEIGHTS)}"')]
    assert f"{sha256(OTHER)}, not {sha256(WEIGHTS)}" in str(place.fails(UNPINNED, runtime=runtime))


def test_the_etag_of_a_small_file_on_hugging_face_is_its_git_name(place: Place) -> None:
    runtime = hugging_face(place)
    place.server.script[HF_PATH] = [answer(etag=f'"{git_sha1(WEIGHTS)}"')]
    place.succeeds(UNPINNED, runtime=runtime)
    assert "git sha1 of the hub" in (place.folder / "fetched.json").read_text()


def test_a_proxy_of_the_environment_is_used(
    place: Place, serve: Callable[[], Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = serve()
    proxy.files["/toy/weights.bin"] = WEIGHTS
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    monkeypatch.setenv("http_proxy", proxy.url)
    far = place.runtime.model_copy(update={"mirrors": ("http://far.invalid",)})
    place.succeeds(runtime=far)
    assert [headers["host"] for _, headers in proxy.asked] == ["far.invalid"]


def test_a_proxy_that_refuses_is_named(
    place: Place, serve: Callable[[], Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", serve().url)  # it knows no CONNECT
    far = place.runtime.model_copy(update={"mirrors": ("https://far.invalid",)})
    refused = place.fails(runtime=far)
    assert "the proxy does not let us through" in str(refused)
    assert "NO_PROXY" in refused.fix


def test_user_and_password_of_a_plain_server_come_from_netrc(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "netrc"
    file.write_text(f"machine 127.0.0.1 login bob password {TOKEN}\n")
    file.chmod(0o600)
    place.environ["NETRC"] = str(file)
    place.succeeds()
    assert place.server.headers_of("authorization") == ["Basic " + base64.b64encode(f"bob:{TOKEN}".encode()).decode()]


# Disk


def fail_with(monkeypatch: pytest.MonkeyPatch, number: int, after_bytes: int = 0) -> None:
    written = 0
    real = download.write

    def write(file: BinaryIO, chunk: bytes) -> None:
        nonlocal written
        if written >= after_bytes:
            raise OSError(number, os.strerror(number))
        real(file, chunk)
        written += len(chunk)

    monkeypatch.setattr(download, "write", write)


@pytest.mark.parametrize(
    ("number", "fix"), [(errno.ENOSPC, "free some space"), (errno.EACCES, "allow this user"), (errno.EIO, "see what")]
)
def test_a_disk_that_does_not_take_it_is_one_error_and_no_second_try(
    place: Place, monkeypatch: pytest.MonkeyPatch, number: int, fix: str
) -> None:
    fail_with(monkeypatch, number)
    error = place.fails()
    assert "cannot write" in str(error)
    assert fix in error.fix
    assert "--data-dir" in error.fix
    assert len(place.server.asked) == 1


def test_a_full_disk_keeps_what_it_took_for_the_next_run(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.script(answer(chunks=10, pause_s=0.02))
    fail_with(monkeypatch, errno.ENOSPC, after_bytes=60_000)
    place.fails()
    kept = place.part.stat().st_size
    assert kept >= 60_000
    monkeypatch.undo()
    place.script(ok)
    place.succeeds()
    assert place.server.headers_of("range")[-1] == f"bytes={kept}-"


def test_room_is_looked_for_before_the_first_byte(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download.shutil, "disk_usage", lambda _folder: type("Usage", (), {"free": 1000})())
    error = place.fails()
    assert "no room for toy/weights.bin" in str(error)
    assert "0.3 MB are needed, 0.0 MB are free" in str(error)
    assert not place.part.exists()


def test_a_data_folder_that_cannot_be_made_is_told(place: Place) -> None:
    place.runtime.data_dir.write_bytes(b"")
    with pytest.raises(FetchError, match="cannot write") as caught:
        place.fetch()
    assert "--data-dir" in caught.value.fix


@pytest.mark.skipif(os.name == "nt" or getattr(os, "geteuid", lambda: 1)() == 0, reason="needs a user whom modes bind")
def test_a_read_only_folder_is_told(place: Place) -> None:
    place.folder.mkdir(parents=True)
    place.folder.chmod(0o500)
    try:
        assert "allow this user" in place.fails().fix
    finally:
        place.folder.chmod(0o700)


# Mirrors


def test_the_mirrors_are_asked_in_their_order_each_by_its_own_url(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MODELSCOPE", "AISTUDIO"):
        monkeypatch.setattr(hub, name, f"{place.server.url}/{name.lower()}")
    place.environ["HF_ENDPOINT"] = f"{place.server.url}/hf/"
    last = "/aistudio/api/v1/repos/Org/Toy/media/deep/weights.bin"
    place.server.files[last] = WEIGHTS
    folder = toy(HubFile("deep/weights.bin", len(WEIGHTS), sha256(WEIGHTS)))
    runtime = place.runtime.model_copy(update={"mirrors": RuntimeConfig().mirrors})
    path = place.fetch(folder, runtime=runtime)
    assert (path / "deep" / "weights.bin").read_bytes() == WEIGHTS
    assert [asked for asked, _ in place.server.asked] == [
        f"/hf/Org/Toy/resolve/{COMMIT}/deep/weights.bin",
        "/modelscope/models/Org/Toy/resolve/master/deep/weights.bin",
        last,
    ]


@pytest.mark.parametrize(
    "fault", ["500 always", "wrong bytes", "404", "403", "web page instead of the file", "stalls always"]
)
def test_a_mirror_that_fails_is_followed_by_the_next(place: Place, serve: Callable[[], Server], fault: str) -> None:
    place.script(LASTING[fault][0])
    second = serve()
    second.files[Place.PATH] = WEIGHTS
    both = place.runtime.model_copy(update={"mirrors": (place.server.url, second.url)})
    place.succeeds(runtime=both)


def test_a_host_that_is_not_there_is_left_soon(place: Place) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        gone = f"http://127.0.0.1:{free.getsockname()[1]}"
    place.succeeds(runtime=place.runtime.model_copy(update={"mirrors": (gone, place.server.url)}))
    assert sum("again in" in line for line in place.said) == 1


def test_when_all_mirrors_fail_each_is_named_with_its_cause(place: Place, serve: Callable[[], Server]) -> None:
    second = serve()
    second.files[Place.PATH] = OTHER
    place.script(error(500))
    both = place.runtime.model_copy(update={"mirrors": (place.server.url, second.url)})
    error_ = place.fails(runtime=both)
    assert "HTTP 500" in str(error_)
    assert f"wrong content: its hash is {sha256(OTHER)}" in str(error_)


def test_a_host_that_does_not_answer_to_its_name_is_told(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_arguments: object, **_options: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    error_ = place.fails(runtime=place.runtime.model_copy(update={"mirrors": ("https://far.invalid",)}))
    assert "far.invalid: no connection (Name or service not known) (tried 2 times)" in str(error_)


def test_a_model_that_the_mirrors_do_not_have_is_a_matter_of_settings(place: Place) -> None:
    folder = dataclasses.replace(toy(), repositories={"huggingface": Repository("Org/Toy", COMMIT)})
    with pytest.raises(ConfigError, match="toy is not on aistudio") as caught:
        place.fetch(folder, runtime=place.runtime.model_copy(update={"mirrors": ("aistudio",)}))
    assert "--from" in caught.value.fix


@pytest.mark.parametrize("endpoint", ["hf-mirror.com", f"https://bob:{TOKEN}@hub.invalid", "ftp://hub.invalid"])
def test_an_endpoint_that_is_no_url_is_a_matter_of_settings(place: Place, endpoint: str) -> None:
    place.environ["HF_ENDPOINT"] = endpoint
    with pytest.raises(ConfigError, match="HF_ENDPOINT") as caught:
        place.fetch(runtime=place.runtime.model_copy(update={"mirrors": ("huggingface",)}))
    assert TOKEN not in str(caught.value) + caught.value.fix


# Another revision


def test_another_revision_has_a_folder_and_hashes_of_its_own(place: Place) -> None:
    runtime = hugging_face(place)
    place.server.files["/Org/Toy/resolve/refs/pr/7/weights.bin"] = OTHER
    path = place.fetch(runtime=runtime, revision="refs/pr/7")
    assert path == runtime.data_dir / "sources" / "toy@refs%2Fpr%2F7"
    assert (path / "weights.bin").read_bytes() == OTHER
    assert not place.folder.exists()


@pytest.mark.parametrize("revision", ["", "..", "a/../../b", "-x", "a b", "x" * 300])
def test_a_revision_that_is_none_is_refused(place: Place, revision: str) -> None:
    with pytest.raises(ConfigError, match="is no revision"):
        place.fetch(revision=revision)


# Offline, caches, local folders


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        pytest.fail("a connection was tried")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    for name in ("getaddrinfo", "create_connection", "gethostbyname"):
        monkeypatch.setattr(socket, name, refuse)


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("way", ["setting", "HF_HUB_OFFLINE"])
def test_offline_tries_no_connection(place: Place, way: str) -> None:
    if way != "setting":
        place.environ[way] = "1"
    error_ = place.fails(runtime=place.runtime.model_copy(update={"offline": way == "setting"}))
    assert "the network must not be used: weights.bin" in str(error_)
    assert "--local" in error_.fix
    assert "https://hub.invalid/Org/Toy" in error_.fix


def test_offline_a_fetched_folder_is_enough(place: Place, request: pytest.FixtureRequest) -> None:
    place.succeeds()
    request.getfixturevalue("no_network")
    place.succeeds(runtime=place.runtime.model_copy(update={"offline": True}))


def cached(place: Place, data: bytes, blob: str, *, links: bool = True, reference: str | None = None) -> Path:
    """Puts the file into a Hugging Face cache as its own tools do."""
    home = Path(place.environ["HF_HOME"]) / "hub" / "models--Org--Toy"
    snapshot = home / "snapshots" / COMMIT
    for folder in (snapshot, home / "blobs", home / "refs"):
        folder.mkdir(parents=True)
    if links:
        (home / "blobs" / blob).write_bytes(data)
        try:
            (snapshot / "weights.bin").symlink_to(Path("../../blobs") / blob)
        except OSError:  # Windows, but for administrators and developers
            pytest.skip("this user may not make links")
    else:
        (snapshot / "weights.bin").write_bytes(data)
    if reference:
        (home / "refs" / reference).write_text(COMMIT)
    return home


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize(
    ("folder", "blob", "links"),
    [
        (toy(), sha256(WEIGHTS), True),
        (toy(), "", False),
        (UNPINNED, sha256(WEIGHTS), True),
        (UNPINNED, git_sha1(WEIGHTS), True),
    ],
)
def test_a_file_of_the_hugging_face_cache_is_used(place: Place, folder: HubFolder, blob: str, links: bool) -> None:
    cached(place, WEIGHTS, blob, links=links)
    place.succeeds(folder, runtime=place.runtime.model_copy(update={"offline": True}))
    assert "huggingface cache" in (place.folder / "fetched.json").read_text()


@pytest.mark.parametrize(
    ("folder", "data", "blob", "links"),
    [
        (toy(), OTHER, sha256(WEIGHTS), True),
        (UNPINNED, OTHER, sha256(WEIGHTS), True),
        (UNPINNED, OTHER, git_sha1(WEIGHTS), True),
        (UNPINNED, WEIGHTS, "", False),
    ],
)
def test_a_cached_file_that_is_wrong_or_cannot_be_checked_is_downloaded(
    place: Place, folder: HubFolder, data: bytes, blob: str, links: bool
) -> None:
    cached(place, data, blob, links=links)
    place.succeeds(folder)
    assert len(place.server.asked) == 1


@pytest.mark.usefixtures("no_network")
def test_a_branch_is_looked_up_in_the_cache(place: Place) -> None:
    cached(place, OTHER, sha256(OTHER), reference="main")
    path = place.fetch(revision="main", runtime=place.runtime.model_copy(update={"offline": True}))
    assert (path / "weights.bin").read_bytes() == OTHER


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"HF_HUB_CACHE": "/a", "HF_HOME": "/b"}, Path("/a")),
        ({"HUGGINGFACE_HUB_CACHE": "/a"}, Path("/a")),
        ({"HF_HOME": "/b", "XDG_CACHE_HOME": "/c"}, Path("/b/hub")),
        ({"XDG_CACHE_HOME": "/c"}, Path("/c/huggingface/hub")),
        ({}, Path("~/.cache/huggingface/hub").expanduser()),
    ],
)
def test_the_cache_is_where_hugging_face_puts_it(environ: dict[str, str], expected: Path) -> None:
    assert hub.cache_folder(environ) == expected


@pytest.mark.usefixtures("no_network")
def test_a_local_folder_is_taken_checked(place: Place, tmp_path: Path) -> None:
    local = tmp_path / "stick"
    local.mkdir()
    (local / "weights.bin").write_bytes(OTHER)
    assert "lacks weights.bin, or has other content" in str(place.fails(local=local))
    assert sha256(OTHER) in "".join(place.said)
    (local / "weights.bin").write_bytes(WEIGHTS)
    place.succeeds(local=local)
    assert (local / "weights.bin").read_bytes() == WEIGHTS


# Completeness


THREE = toy(
    HubFile("weights.bin", len(WEIGHTS), sha256(WEIGHTS)),
    HubFile("tokenizer.json", len(CONFIG), sha256(CONFIG)),
    HubFile("README.md", required=False),
)


def test_a_missing_tokenizer_is_named_with_where_to_get_it_and_the_rest_is_fetched(place: Place) -> None:
    with pytest.raises(FetchError, match=r"toy lacks tokenizer\.json: 127\.0\.0\.1: HTTP 404") as caught:
        place.fetch(THREE)
    assert "https://hub.invalid/Org/Toy" in caught.value.fix
    assert (place.folder / "weights.bin").is_file()
    assert not is_fetched(THREE, place.runtime.data_dir)
    assert [file.path for file in missing_files(THREE, place.folder)] == ["tokenizer.json"]
    (place.folder / "tokenizer.json").write_bytes(CONFIG)
    place.fetch(THREE)
    assert is_fetched(THREE, place.runtime.data_dir)


def test_one_mirror_may_complete_another(place: Place, serve: Callable[[], Server]) -> None:
    second = serve()
    second.files["/toy/tokenizer.json"] = CONFIG
    both = place.runtime.model_copy(update={"mirrors": (place.server.url, second.url)})
    path = place.fetch(THREE, runtime=both)
    assert (path / "tokenizer.json").read_bytes() == CONFIG
    assert "/toy/README.md" not in [path for path, _ in second.asked]
    assert any("README.md: not there, and not required" in line for line in place.said)


def test_small_files_come_before_the_weights(place: Place) -> None:
    place.server.files["/toy/tokenizer.json"] = CONFIG
    place.fetch(THREE)
    assert [path for path, _ in place.server.asked] == [
        "/toy/tokenizer.json",
        "/toy/weights.bin",
        "/toy/README.md",
    ]
    assert place.seen[-1].total_bytes == len(WEIGHTS) + len(CONFIG)


# Names and specs


@pytest.mark.parametrize(
    "path",
    [
        "",
        "..",
        "../x",
        "a/../../x",
        "/etc/passwd",
        "a//b",
        "a\\b",
        "C:x",
        "a/.git",
        ".x",
        "a.",
        "con",
        "b/NUL.txt",
        "x\0",
    ],
)
def test_a_path_that_leads_out_of_the_folder_is_no_file_of_a_model(path: str) -> None:
    with pytest.raises(ValueError, match="may lead out of its folder"):
        HubFile(path)


def test_a_name_that_a_server_sends_is_never_a_path(place: Place) -> None:
    place.script(answer(Content_Disposition='attachment; filename="../../evil.py"'))
    place.succeeds()
    assert not list(place.runtime.data_dir.parent.rglob("evil.py"))


@pytest.mark.parametrize("folder", FOLDERS.values(), ids=lambda folder: folder.name)
def test_the_specs_are_data_files(folder: HubFolder) -> None:
    paths = [file.path for file in folder.files]
    assert len(set(paths)) == len(paths)
    assert not [path for path in paths if path.endswith((".py", ".pkl", ".bin", ".pt"))]
    assert set(folder.repositories) >= {"huggingface", "modelscope"}
    assert len(folder.repositories["huggingface"].revision) == 40
    for file in folder.files:
        assert file.sha256 is None or len(file.sha256) == 64


HUB_PRESETS = [preset for preset in VLM_PRESETS.values() if isinstance(preset.source, HubFolder)]


@pytest.mark.parametrize("preset", HUB_PRESETS, ids=lambda preset: preset.name)
def test_a_reader_comes_with_tokenizer_and_preprocessing_and_has_a_layout_model(preset: VlmPreset) -> None:
    assert isinstance(preset.source, HubFolder)
    required = {file.path for file in preset.source.files if file.required}
    assert required >= {"model.safetensors", "config.json", "tokenizer.json", "preprocessor_config.json"}
    assert set(preset.source.repositories) == {"huggingface", "modelscope", "aistudio"}
    assert preset.layout in LAYOUTS.values()


@pytest.mark.parametrize("spec", LAYOUTS.values(), ids=lambda spec: spec.name)
def test_the_graph_of_a_layout_model_is_a_file_of_its_folder(spec: ModelSpec[Any]) -> None:
    assert isinstance(spec.source, HubMember)
    assert FOLDERS[spec.name] is spec.source.folder
    assert spec.source.member in {file.path for file in spec.source.folder.files if file.required}


def test_a_folder_is_a_preset_and_no_model_of_one_graph() -> None:
    assert get_preset("paddleocr-vl-1.6").name == "paddleocr-vl-1.6"
    with pytest.raises(ConfigError, match="not converted") as caught:
        select_models("paddleocr-vl-1.6")
    assert caught.value.fix == "docvino fetch paddleocr-vl-1.6 && docvino convert paddleocr-vl-1.6"


# Settings


def test_mirrors_are_a_list_in_every_form() -> None:
    assert resolve().runtime.mirrors == ("huggingface", "modelscope", "aistudio")
    split = resolve(environ={"DOCVINO_MIRRORS": "modelscope, https://models.example.org/x"}).runtime
    assert split.mirrors == ("modelscope", "https://models.example.org/x")


@pytest.mark.parametrize("value", ["", "hugging", "ftp://x", "https://", f"https://bob:{TOKEN}@host/", "x@y"])
def test_a_mirror_that_is_none_is_refused_and_its_password_not_shown(value: str) -> None:
    with pytest.raises(ConfigError, match="mirrors") as caught:
        resolve({"mirrors": value})
    assert TOKEN not in str(caught.value) + caught.value.fix
