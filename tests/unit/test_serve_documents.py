"""POST /v1/parse and the jobs, with a reader that says how grey a page is."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from docvino.document import Document
from docvino.serve.service import READERS
from docvino.settings import ParseOptions
from serving import Served, grey_pdf, grey_png, served, until


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as one:
        yield one


def send(one: Served, data: bytes, path: str = "/v1/jobs", name: str = "a.pdf", **fields: Any) -> Any:
    return one.client.post(path, files={"file": (name, data)}, data=fields)


def finished(one: Served, job_id: str) -> dict[str, Any]:
    def end() -> Any:
        job = one.client.get(f"/v1/jobs/{job_id}").json()
        return job if job["status"] not in ("queued", "running") else None

    found: dict[str, Any] = until(end)
    return found


def test_a_document_is_read_while_the_client_waits(running: Served) -> None:
    answer = send(running, grey_pdf(10, 200), "/v1/parse", formats="markdown,txt,html")
    assert answer.status_code == 200
    document = Document.model_validate(answer.json()["document"])
    assert [page.blocks[0].content for page in document.pages] == ["grey 10", "grey 200"]
    assert answer.json()["outputs"].keys() == {"markdown", "text", "html"}
    assert answer.json()["outputs"]["markdown"] == "grey 10\n\ngrey 200\n"
    assert not list((running.service.store.temporary().parent).glob("*/source"))


def test_files_of_other_formats_come_in_base64_and_lists_as_objects(running: Served) -> None:
    outputs = send(running, grey_png(9), "/v1/parse", "b.png", formats="docx,json").json()["outputs"]
    assert outputs["docx"]["base64"].startswith("UEsD")  # a ZIP
    assert outputs["json"]["source"]["name"] == "b.png"


def test_options_of_the_form_change_those_of_the_service(tmp_path: Path) -> None:
    with served(tmp_path, options=ParseOptions(dpi=100, min_confidence=0.25)) as one:
        made = send(one, grey_pdf(1, 2, 3), "/v1/parse", pages="2", task="table").json()["document"]
    assert made["provenance"]["options"]["dpi"] == 100
    assert made["provenance"]["options"]["min_confidence"] == 0.25
    assert made["provenance"]["options"]["task"] == "table"
    assert [page["page_index"] for page in made["pages"]] == [1]


def test_a_request_that_waits_may_not_have_too_many_pages(tmp_path: Path) -> None:
    with served(tmp_path, sync_pages=2) as one:
        refused = send(one, grey_pdf(1, 2, 3), "/v1/parse")
        assert (refused.status_code, refused.json()["error"]["code"]) == (422, "too_many_pages")
        assert "/v1/jobs" in refused.json()["error"]["fix"]
        assert send(one, grey_pdf(1, 2, 3), "/v1/parse", pages="1-2").status_code == 200


def test_a_request_is_given_up_when_it_takes_too_long(tmp_path: Path) -> None:
    with served(tmp_path, gate=False, sync_wait_s=0.2) as one:
        answer = send(one, grey_png(1), "/v1/parse")
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "too_slow")
        until(lambda: one.service.worker.running == 0)  # its reader, too


def test_a_job_tells_its_progress_and_gives_its_result(running: Served) -> None:
    made = send(running, grey_pdf(10, 20, 30), name="../../etc/pass wd.pdf")
    assert made.status_code == 202
    job = made.json()
    assert job["name"] == "pass wd.pdf"
    assert made.headers["Location"] == f"/v1/jobs/{job['id']}"
    events = running.client.get(f"/v1/jobs/{job['id']}/events").text.strip().split("\n\n")
    said = [json.loads(event.split("data: ")[1]) for event in events]
    assert said[:3] == [{"index": i, "status": "ok", "done": i + 1, "total": 3} for i in range(3)]
    assert events[-1].startswith("event: end")
    assert said[-1] == {"status": "done"}
    at = f"/v1/jobs/{job['id']}"
    assert Document.model_validate(running.client.get(f"{at}/result").json()).pages[2].blocks[0].content == "grey 30"
    markdown = running.client.get(f"{at}/result?format=markdown")
    assert markdown.text == "grey 10\n\ngrey 20\n\ngrey 30\n"
    assert markdown.headers["Content-Disposition"] == 'attachment; filename="pass_wd.md"'
    assert running.client.get(f"{at}/pages/1").json()["blocks"][0]["content"] == "grey 20"
    assert running.client.get(f"{at}/pages/3").status_code == 404
    picture = running.client.get(f"{at}/pages/1/image")
    assert picture.headers["content-type"] == "image/jpeg"
    assert picture.content.startswith(b"\xff\xd8")
    assert running.client.get("/v1/jobs").json()["jobs"][0]["id"] == job["id"]


def test_formats_of_several_files_come_as_a_zip(running: Served) -> None:
    job = send(running, grey_pdf(10, 20)).json()
    finished(running, job["id"])
    answer = running.client.get(f"/v1/jobs/{job['id']}/result?format=res")
    names = zipfile.ZipFile(BytesIO(answer.content)).namelist()
    assert names == ["0_res.json", "1_res.json"]
    pdf = running.client.get(f"/v1/jobs/{job['id']}/result?format=pdf")
    assert pdf.content.startswith(b"%PDF-")


def test_a_result_is_there_when_the_job_is_done(tmp_path: Path) -> None:
    with served(tmp_path, gate=False) as one:
        job = send(one, grey_png(1)).json()
        early = one.client.get(f"/v1/jobs/{job['id']}/result")
        assert (early.status_code, early.json()["error"]["code"]) == (409, "not_done")


def test_what_is_no_document_is_told_at_once(running: Served) -> None:
    refused = send(running, b"nothing of the kind")
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "bad_document")
    assert running.client.get("/v1/jobs").json() == {"jobs": []}


def test_a_full_queue_says_when_to_come_again(tmp_path: Path) -> None:
    with served(tmp_path, gate=False, max_queue=1) as one:
        for number in range(READERS):  # as many as are read at a time
            assert send(one, grey_png(1)).status_code == 202
            until(lambda number=number: one.service.worker.running == number + 1)
        assert send(one, grey_png(1)).status_code == 202
        refused = send(one, grey_png(1))
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "queue_full")
        assert int(refused.headers["Retry-After"]) >= 1
        assert 'docvino_rejected_total{reason="queue_full"} 1' in one.client.get("/metrics").text
        one.reader.gate.set()
        until(lambda: one.service.worker.waiting == 0)
        assert send(one, grey_png(1)).status_code == 202


def test_a_job_is_cancelled_in_the_middle_of_a_page_and_in_the_queue(tmp_path: Path) -> None:
    with served(tmp_path, gate=False) as one:
        jobs = [send(one, grey_png(1)).json()["id"] for _ in range(READERS + 1)]
        assert one.reader.begun.acquire(timeout=20)
        until(lambda: one.service.worker.running == READERS)
        assert one.client.post(f"/v1/jobs/{jobs[-1]}/cancel").json()["status"] == "cancelled"
        one.client.post(f"/v1/jobs/{jobs[0]}/cancel")
        assert finished(one, jobs[0])["status"] == "cancelled"
        assert "cancelled" in one.client.get(f"/v1/jobs/{jobs[0]}/events").text
        one.reader.gate.set()
        assert finished(one, jobs[1])["status"] == "done"
        assert one.client.get(f"/v1/jobs/{jobs[-1]}").json()["status"] == "cancelled"


def test_a_deleted_job_leaves_no_file_even_while_it_is_read(tmp_path: Path) -> None:
    with served(tmp_path, gate=False) as one:
        job = send(one, grey_pdf(1, 2)).json()["id"]
        assert one.reader.begun.acquire(timeout=20)
        folder = one.service.store.folder(job)
        assert folder.exists()
        assert one.client.delete(f"/v1/jobs/{job}").status_code == 204
        assert one.client.get(f"/v1/jobs/{job}").status_code == 404
        until(lambda: one.service.worker.running == 0)
        assert not folder.exists()


def test_a_job_goes_on_after_the_service_was_ended_without_reading_finished_pages_again(tmp_path: Path) -> None:
    greys = range(1, 31)  # so many that some are left, however long a thread takes to shut the gate
    with served(tmp_path, gate=False) as one:
        job = send(one, grey_pdf(*greys)).json()["id"]
        assert one.reader.begun.acquire(timeout=20)
        one.reader.gate.set()
        assert one.reader.begun.acquire(timeout=20)
        one.reader.gate.clear()
        until(lambda: one.client.get(f"/v1/jobs/{job}").json()["pages_done"] >= 1)
        one.service.begin_end()
        done = one.client.get(f"/v1/jobs/{job}").json()["pages_done"]
    with served(tmp_path) as two:
        ended = finished(two, job)
        assert (ended["status"], ended["pages_done"]) == ("done", 30)
        assert ended["pages_kept"] >= done >= 1
        assert two.reader.pages == 30 - ended["pages_kept"]
        text = two.client.get(f"/v1/jobs/{job}/result?format=text").text
        assert re.findall(r"grey \d+", text) == [f"grey {grey}" for grey in greys]


def test_a_password_is_on_no_disk_so_a_locked_job_does_not_go_on(tmp_path: Path) -> None:
    with served(tmp_path, gate=False) as one:
        job = send(one, grey_png(1), password="a secret of mine").json()["id"]
        assert one.reader.begun.acquire(timeout=20)
        one.service.begin_end()
        until(lambda: one.service.worker.running == 0)
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert written
    assert not any(b"a secret of mine" in text for text in written)
    with served(tmp_path) as two:
        error = two.client.get(f"/v1/jobs/{job}").json()["error"]
        assert "password" in error["message"]


def test_old_jobs_make_room_and_unfinished_ones_do_not(tmp_path: Path) -> None:
    with served(tmp_path, max_jobs=2) as one:
        ids = []
        for _ in range(4):
            ids.append(send(one, grey_png(1)).json()["id"])
            finished(one, ids[-1])
        assert [job["id"] for job in one.client.get("/v1/jobs").json()["jobs"]] == ids[:1:-1]
        one.reader.gate.clear()
        for _ in range(2):
            assert send(one, grey_png(1)).status_code == 202
        assert send(one, grey_png(1)).json()["error"]["code"] == "too_many_jobs"


def test_a_page_that_takes_too_long_fails_alone(tmp_path: Path) -> None:
    with served(tmp_path, gate=False, page_limit_s=0.2) as one:
        job = send(one, grey_pdf(1, 2)).json()["id"]
        ended = finished(one, job)
        assert ended["status"] == "failed"
        assert ended["pages_failed"] == 2
        assert "0.2 s" in ended["error"]["message"]


def test_a_document_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    with served(tmp_path, gate=False, document_limit_s=0.2) as one:
        ended = finished(one, send(one, grey_png(1)).json()["id"])
        assert (ended["status"], ended["error"]["code"]) == ("failed", "too_slow")
