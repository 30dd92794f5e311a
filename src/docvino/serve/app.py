"""The application: routes, the shape of errors, and what is true of all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from docvino import __version__
from docvino.errors import DocvinoError
from docvino.serve import documents, mistral, openai, paddlex
from docvino.serve.guard import App, Guard
from docvino.serve.incoming import Incoming
from docvino.serve.problems import RefusalError, body, refusal
from docvino.serve.service import INTERNAL, Service, log_fault
from docvino.serve.worker import StoppedError

_TITLE = "docvino"
_ABOUT = "Reads scans and PDFs into Markdown and JSON with boxes and confidences, on Intel hardware."


class Version(BaseModel):
    version: str
    openvino: str
    preset: str
    device: str


class State(BaseModel):
    status: str


class Problem(BaseModel):
    """What went wrong, what to do about it, and the id by which the log of the service knows the request."""

    code: str
    message: str
    fix: str
    request_id: str


class Problems(BaseModel):
    error: Problem


_EXAMPLE = {
    "error": {
        "code": "queue_full",
        "message": "32 documents wait already",
        "fix": "try again after the seconds of Retry-After",
        "request_id": "5b7c0d7be4f04a4f8d3f4cf3f0b0a3a1",
    }
}


def build_app(service: Service, pages: Callable[[FastAPI], None] = lambda _app: None) -> App:
    """
    pages   adds what people look at
    """
    said = {"model": Problems, "content": {"application/json": {"example": _EXAMPLE}}}
    api = FastAPI(
        title=_TITLE,
        version=__version__,
        description=_ABOUT,
        docs_url=None,  # their scripts come from another host
        redoc_url=None,
        responses={"default": {**said, "description": "An error, with what to do about it"}},
    )
    incoming = Incoming(service)
    api.include_router(documents.routes(service))
    for shape in (openai, mistral, paddlex):
        api.include_router(shape.routes(service, incoming))
    _add_state(api, service)
    _add_errors(api)
    pages(api)
    return Guard(api, service)


def _add_state(api: FastAPI, service: Service) -> None:
    provenance = service.parser.provenance(service.options)
    devices = sorted({device for model in provenance.models for device in model.devices})
    version = Version(
        version=__version__, openvino=provenance.openvino, preset=provenance.preset, device=", ".join(devices)
    )
    service.metrics.count("docvino_info", by=1.0, **version.model_dump())

    @api.get("/livez", tags=["state"], summary="Whether the process answers")
    @api.get("/health", tags=["state"], summary="As /livez")
    async def livez() -> State:
        return State(status="ok")

    @api.get("/readyz", tags=["state"], summary="Whether documents are read; 503 while it ends")
    async def readyz() -> State:
        if not service.worker.alive:
            raise RefusalError(503, "shutting_down", "the service is ending", fix="try again", retry_after_s=10)
        return State(status="ready")

    @api.get("/version", tags=["state"], summary="What runs")
    async def what_runs() -> Version:
        return version

    @api.get(
        "/metrics",
        tags=["state"],
        summary="Figures for Prometheus",
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}}},
    )
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _add_errors(api: FastAPI) -> None:
    def said(request: Request, problem: RefusalError) -> JSONResponse:
        made = body(problem, request.state.request_id, request.url.path)
        return JSONResponse(made, status_code=problem.status, headers=problem.headers)

    @api.exception_handler(RefusalError)
    async def refused(request: Request, error: RefusalError) -> JSONResponse:
        return said(request, error)

    @api.exception_handler(DocvinoError)
    async def failed(request: Request, error: DocvinoError) -> JSONResponse:
        problem = refusal(error)
        if problem.code == "internal_error":
            log_fault(f"request {request.state.request_id}", error)
        return said(request, problem)

    @api.exception_handler(StoppedError)
    async def stopped(request: Request, error: StoppedError) -> JSONResponse:
        why = {"shutdown": "the service is ending", "time": "it took too long", "cancelled": "it was given up"}
        status = 504 if error.reason == "time" else 503
        return said(request, RefusalError(status, "stopped", why[error.reason], fix="send it again", retry_after_s=10))

    @api.exception_handler(Exception)
    async def fault(request: Request, error: Exception) -> JSONResponse:  # noqa: ARG001 - the guard logs it
        return said(request, RefusalError(500, INTERNAL.code, INTERNAL.message, fix=INTERNAL.fix))

    @api.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> JSONResponse:
        first: Any = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body") or "the body"
        message = f"{where[:200]}: {str(first['msg'])[:300].lower()}"
        return said(request, RefusalError(422, "bad_request", message, fix="see /openapi.json for what is asked"))

    @api.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> JSONResponse:
        codes = {404: "not_found", 405: "method_not_allowed", 408: "too_slow", 413: "too_large"}
        problem = RefusalError(
            error.status_code, codes.get(error.status_code, "bad_request"), str(error.detail)[:300].lower(), fix=_FIX
        )
        answer = said(request, problem)
        for name, value in (error.headers or {}).items():
            answer.headers[name] = value
        return answer


_FIX = "see /openapi.json for what there is"
