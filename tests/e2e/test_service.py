"""A real service in a process of its own: what it reads, what it survives, and what it refuses."""

from __future__ import annotations

import io
import json
import re
import signal
import socket
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pikepdf
import pytest

from docvino.api import Reading
from docvino.document import Document
from docvino.parser import Parser
from docvino.settings import RuntimeConfig
from models import MODELS
from service_process import KEY, Running, pdf, png, serving

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals as Linux has them")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("service")
    limits = ("--render-limit-s", 4, "--max-upload-mib", 2, "--max-pixels", 4_000_000, "--layout", "none")
    with serving(folder, *limits, DOCVINO_API_KEY=KEY) as one:
        one.client.headers["Authorization"] = f"Bearer {KEY}"
        yield one


def wait(client: httpx.Client, job_id: str, limit_s: float = 240) -> dict[str, Any]:
    until = time.monotonic() + limit_s
    while (job := client.get(f"/v1/jobs/{job_id}").json())["status"] in ("queued", "running"):
        assert time.monotonic() < until, job
        time.sleep(0.1)
    found: dict[str, Any] = job
    return found


def texts(document: Document) -> list[str]:
    return [" ".join(block.content for block in page.blocks) for page in document.pages]


def test_it_reads_what_the_library_reads(running: Running) -> None:
    data = pdf(3)
    answer = running.client.post("/v1/parse", files={"file": ("a.pdf", data)}, data={"formats": "markdown"})
    assert answer.status_code == 200, answer.text
    there = Document.model_validate(answer.json()["document"])
    with Parser.open(
        RuntimeConfig(preset="nano", layout="none", data_dir=MODELS, cache_dir=MODELS / "cache")
    ) as parser:
        here = parser.parse(data, name="a.pdf")
    assert there.pages == here.pages
    assert answer.json()["outputs"]["markdown"] == Reading(here).markdown
    assert texts(there)[2] == "Page number 003"


def test_a_job_goes_on_after_kill_9_and_reads_no_finished_page_again(tmp_path: Path) -> None:
    with serving(tmp_path, "--layout", "none") as one:
        job = one.client.post("/v1/jobs", files={"file": ("long.pdf", pdf(40))}).json()["id"]
        until = time.monotonic() + 200
        while (done := one.client.get(f"/v1/jobs/{job}").json()["pages_done"]) < 10:
            assert time.monotonic() < until
            time.sleep(0.02)
        one.kill()
    with serving(tmp_path, "--layout", "none") as two:
        ended = wait(two.client, job)
        assert (ended["status"], ended["pages_done"], ended["pages_failed"]) == ("done", 40, 0)
        read = re.search(r'docvino_pages_total{status="ok"} (\d+)', two.client.get("/metrics").text)
        assert read is not None
        print(f"kill -9 after {done} pages: {ended['pages_kept']} kept, {read[1]} read after the restart")  # noqa: T201
        assert done <= ended["pages_kept"] <= done + 2
        assert int(read[1]) == 40 - ended["pages_kept"]
        document = Document.model_validate(two.client.get(f"/v1/jobs/{job}/result").json())
        found = texts(document)
        assert sum(text == f"Page number {place + 1:03d}" for place, text in enumerate(found)) >= 36
        again = two.client.post("/v1/jobs", files={"file": ("long.pdf", pdf(40))}).json()["id"]
        wait(two.client, again)
        whole = Document.model_validate(two.client.get(f"/v1/jobs/{again}/result").json())
        assert whole.pages == document.pages
        two.process.send_signal(signal.SIGTERM)
        assert two.process.wait(60) in (0, -signal.SIGTERM)


def hostile_pdf() -> bytes:
    """Three pages; the second draws forms in forms, ten of each, eight deep: it would take hours."""
    with pikepdf.open(io.BytesIO(pdf(3))) as document:
        inner: Any = document.make_stream(b"0 0 400 80 re f " * 50)
        for _ in range(8):
            inner.Type, inner.Subtype = pikepdf.Name.XObject, pikepdf.Name.Form
            inner.BBox = pikepdf.Array([0, 0, 400, 80])
            outer: Any = document.make_stream(b"/F Do " * 10)
            outer.Resources = pikepdf.Dictionary(XObject=pikepdf.Dictionary(F=inner))
            inner = outer
        page = document.pages[1]
        page.obj.Contents = document.make_stream(b"/F Do " * 10)
        page.obj.Resources = inner.Resources
        stream = io.BytesIO()
        document.save(stream)
        return stream.getvalue()


def test_a_hostile_pdf_that_kills_the_decoder_costs_one_page(running: Running) -> None:
    job = running.client.post("/v1/jobs", files={"file": ("hostile.pdf", hostile_pdf())}).json()["id"]
    ended = wait(running.client, job)
    assert (ended["status"], ended["pages_done"], ended["pages_failed"]) == ("done", 3, 1)
    document = Document.model_validate(running.client.get(f"/v1/jobs/{job}/result").json())
    assert [page.status for page in document.pages] == ["ok", "failed", "ok"]
    assert "did not finish within 4 s" in (document.pages[1].error or "")
    assert "docvino_renderer_deaths_total" in running.client.get("/metrics").text


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def bomb_png(side: int) -> bytes:
    """Few bytes that say they are side x side pixels."""
    rows = zlib.compress(b"\0" * ((side + 1) * 64), 9)
    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def test_bombs_and_what_is_no_document_are_refused(running: Running) -> None:
    zipped = b"PK\x03\x04" + b"\0" * 100
    for data in (bomb_png(60_000), zipped, b"", b"%PDF-1.7 nothing", b"\xff\xd8\xff" * 9):
        begun = time.monotonic()
        answer = running.client.post("/v1/parse", files={"file": ("a.png", data)})
        failed = answer.status_code == 200 and answer.json()["document"]["pages"][0]["status"] == "failed"
        assert failed or answer.status_code in (400, 422), answer.text
        assert time.monotonic() - begun < 30


def test_too_large_a_body_is_refused_before_it_is_sent(running: Running) -> None:
    answer = running.client.post("/v1/parse", files={"file": ("a.pdf", b"x" * (3 << 20))})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")
    host, port = re.fullmatch(r"http://([\d.]+):(\d+)/?", running.url).groups()  # type: ignore[union-attr]
    with socket.create_connection((host, int(port)), 20) as line:
        line.sendall(
            f"POST /v1/parse HTTP/1.1\r\nHost: x\r\nX-API-Key: {KEY}\r\nContent-Length: 99999999999\r\n\r\n".encode()
        )
        assert b" 413 " in line.recv(200)


def test_it_needs_the_key(running: Running) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"X-API-Key": KEY[:-1]}):
        with httpx.Client(base_url=running.url, headers=headers) as stranger:
            assert stranger.get("/v1/jobs").status_code == 401
            assert stranger.post("/v1/parse", files={"file": ("a.png", png(1))}).status_code == 401
            assert stranger.get("/livez").status_code == 200


def test_no_path_leads_out_of_a_job(running: Running) -> None:
    for path in (
        "/v1/jobs/..%2f..%2f..%2fetc%2fpasswd",
        "/v1/jobs/../../../etc/passwd",
        "/v1/jobs/%2e%2e/result",
        "/page/..%2f..%2fapp.py",
        "/../../etc/passwd",
    ):
        answer = running.client.get(path)
        assert answer.status_code in (404, 405), (path, answer.status_code)
        assert "root:" not in answer.text
    named = running.client.post("/v1/jobs", files={"file": ("../../../evil.png", png(1))}).json()
    assert named["name"] == "evil.png"
    assert wait(running.client, named["id"])["status"] == "done"


def test_urls_are_refused(running: Running) -> None:
    for url in ("http://127.0.0.1/", "http://169.254.169.254/latest/meta-data", "file:///etc/passwd", "https://a.b/c"):
        for path, body in (
            ("/layout-parsing", {"file": url}),
            ("/v1/ocr", {"document": {"type": "document_url", "document_url": url}}),
        ):
            answer = running.client.post(path, json=body)
            assert answer.status_code in (400, 403), answer.text


def test_the_log_is_json_without_texts_names_and_keys(running: Running) -> None:
    running.client.post("/v1/parse", files={"file": ("secretname.png", png(7))}, data={"password": "secretword"})
    time.sleep(0.3)
    lines = [line for line in running.said if not line.startswith("docvino serves")]
    assert all(json.loads(line)["level"] for line in lines)
    whole = "".join(running.said)
    assert '"route": "/v1/parse"' in whole
    assert not re.search(f"secretname|secretword|Page number|{KEY}", whole)


def test_it_does_not_listen_for_others_without_a_key(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "docvino", "serve", "--host", "0.0.0.0", "--data-dir", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "there is no key" in done.stderr
