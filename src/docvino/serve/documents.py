"""POST /v1/parse and the jobs: docvino's own shape."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from concurrent.futures import Future
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Form, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from docvino.document import Document, Page
from docvino.serve.forms import DocumentForm, options_of
from docvino.serve.jobs import ACTIVE, Job
from docvino.serve.problems import RefusalError
from docvino.serve.results import Output, formats_of, inline
from docvino.serve.service import Service, Waiting, clean_name
from docvino.serve.worker import Stop

_T = TypeVar("_T")
_COPY_BYTES = 1 << 20
_EVENT_STEP_S = 0.1
_HEARTBEAT_S = 15.0
_LEFT_STEP_S = 1.0


class Parsed(BaseModel):
    """A document that was read, and its outputs by format."""

    document: Document
    outputs: dict[str, Any] = Field(
        description="texts as they are, json and res as objects, other formats as {media_type, base64}",
        examples=[{"markdown": "# Annual report\n\nThe year was quiet.\n"}],
    )


class Jobs(BaseModel):
    jobs: list[Job]


def routes(service: Service) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["documents"])

    @router.post("/parse", summary="Read a document and wait for the answer")
    async def parse(form: Annotated[DocumentForm, Form()], request: Request) -> Parsed:
        names = formats_of(form.formats)
        options = options_of(form, service.options)
        name = clean_name(form.file.filename)
        folder = await run_in_threadpool(_stored, service, form)
        try:
            waiting = service.read_now(folder, name, options)
            document = await awaited(service, request, waiting)
            outputs = {}
            for one in names:
                outputs[one] = inline(await run_in_threadpool(service.writer.write, folder, document, one, options))
            return Parsed(document=document, outputs=outputs)
        finally:
            await run_in_threadpool(service.forget, folder)

    @router.post("/jobs", status_code=202, summary="Read a document in the background")
    async def create(form: Annotated[DocumentForm, Form()], response: Response) -> Job:
        options = options_of(form, service.options)
        formats_of(form.formats)
        folder = await run_in_threadpool(_stored, service, form)
        try:
            job = await run_in_threadpool(service.create_job, folder, clean_name(form.file.filename), options)
        finally:
            await run_in_threadpool(service.forget, folder)
        response.headers["Location"] = f"/v1/jobs/{job.id}"
        return job

    @router.get("/jobs", summary="All jobs, the newest first")
    def jobs(limit: Annotated[int, Query(ge=1, le=1000)] = 1000) -> Jobs:
        return Jobs(jobs=service.store.newest(limit))

    @router.get("/jobs/{job_id}", summary="One job")
    def job(job_id: str) -> Job:
        return service.store.get(job_id)

    @router.get(
        "/jobs/{job_id}/events",
        summary="Progress as server-sent events: `page` for each page, `end` at last",
        response_class=StreamingResponse,
        responses={200: {"content": {"text/event-stream": {"example": _EVENTS}}}},
    )
    async def events(job_id: str) -> StreamingResponse:
        await run_in_threadpool(service.store.get, job_id)
        return StreamingResponse(
            _events(service, job_id), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    @router.get(
        "/jobs/{job_id}/result",
        summary="The document in one format",
        response_class=Response,
        responses={200: {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Document"}}}}},
    )
    def result(
        job_id: str,
        format: Annotated[
            str, Query(description="json, markdown, html, text, docx, xlsx, csv, pdf, res, png")
        ] = "json",
    ) -> Response:
        names = formats_of(format)
        if len(names) != 1:
            raise RefusalError(400, "unknown_format", f"{len(names)} formats, where one is asked", fix="name one")
        return _file(service.result(job_id, names[0]), service.store.get(job_id).name)

    @router.get("/jobs/{job_id}/pages/{position}", summary="One page that was read; pages count from 0")
    def page(job_id: str, position: int) -> Page:
        service.store.get(job_id)
        return service.store.page(job_id, position)

    @router.get(
        "/jobs/{job_id}/pages/{position}/image",
        summary="The picture of a page that was read, upright: boxes are in its pixels",
        response_class=Response,
        responses={200: {"content": {"image/jpeg": {}}}},
    )
    def picture(job_id: str, position: int) -> Response:
        service.store.get(job_id)
        headers = {"Cache-Control": "private, max-age=3600"}
        return Response(service.page_picture(job_id, position), media_type="image/jpeg", headers=headers)

    @router.post("/jobs/{job_id}/cancel", summary="Give a job up; pages that were read stay")
    def cancel(job_id: str) -> Job:
        return service.cancel(job_id)

    @router.delete("/jobs/{job_id}", status_code=204, summary="Remove a job with all its files")
    def delete(job_id: str) -> None:
        service.delete(job_id)

    return router


_EVENTS = (
    'event: page\ndata: {"index": 0, "status": "ok", "done": 1, "total": 2}\n\nevent: end\ndata: {"status": "done"}\n\n'
)


def _stored(service: Service, form: DocumentForm) -> Path:
    folder = service.temporary()
    with (folder / "source").open("wb") as stream:
        shutil.copyfileobj(form.file.file, stream, _COPY_BYTES)
    return folder


async def awaited(service: Service, request: Request, waiting: Waiting) -> Document:
    """The document when it is read.

    Raises: RefusalError when it takes too long or the service ends; and what the reading raises.
    """
    return await outcome(service, request, waiting.stop, waiting.future)


async def outcome(service: Service, request: Request, stop: Stop, future: Future[_T]) -> _T:
    """What a reading gives; it is given up when the client leaves, or when its time is up."""
    inner = asyncio.wrap_future(future)
    until = asyncio.get_running_loop().time() + service.config.sync_wait_s
    try:
        while not inner.done():
            await asyncio.wait({inner}, timeout=_LEFT_STEP_S)
            if inner.done():
                break
            if await request.is_disconnected():
                raise RefusalError(499, "client_left", "the client closed the connection", fix="stay")
            if asyncio.get_running_loop().time() > until:
                raise RefusalError(
                    504,
                    "too_slow",
                    f"it was not read within {service.config.sync_wait_s:g} s",
                    fix="send it to POST /v1/jobs, or fewer pages at a time",
                    retry_after_s=30,
                )
        return inner.result()
    finally:
        if not inner.done():
            stop.set("cancelled")
            inner.add_done_callback(lambda done: done.cancelled() or done.exception())


async def _events(service: Service, job_id: str) -> AsyncIterator[str]:
    number = done = 0
    quiet_s = 0.0
    while not service.closing.is_set():
        try:
            job = await run_in_threadpool(service.store.get, job_id)  # before its pages: none is missed at the end
        except RefusalError:
            yield _event("end", {"status": "cancelled"})
            return
        for item in await run_in_threadpool(service.store.pages_since, job_id, number):
            number, done, quiet_s = item.number, done + 1, 0.0
            facts = {"index": item.position, "status": item.status, "done": done, "total": job.pages_total}
            yield _event("page", facts)
        if job.status not in ACTIVE:
            yield _event("end", {"status": job.status})
            return
        await asyncio.sleep(_EVENT_STEP_S)
        quiet_s += _EVENT_STEP_S
        if quiet_s >= _HEARTBEAT_S:
            quiet_s = 0.0
            yield ": still reading\n\n"


def _event(name: str, data: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


def _file(output: Output, name: str) -> Response:
    stem = name.rpartition(".")[0] or name
    plain = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "-_.") else "_" for letter in stem)
    headers = {"Content-Disposition": f'attachment; filename="{plain}.{output.ending}"', "Cache-Control": "no-store"}
    return Response(output.data, media_type=output.media_type, headers=headers)
