"""The shape of OpenAI's chat: one picture and a task prompt of PaddleOCR-VL in, the model's own answer out.

So a program that lets a server read regions, as PaddleOCR does, can have docvino as that server.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal
from uuid import uuid4

from fastapi import APIRouter, Body, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from docvino.document import Answer, Task
from docvino.serve.documents import outcome
from docvino.serve.forms import changed
from docvino.serve.incoming import Incoming
from docvino.serve.problems import RefusalError
from docvino.serve.service import Service
from docvino.specs.vlm import TASK_PROMPTS

_FAMILY = "paddleocr-vl"
_MOST_CHOICES = 1


class ImageUrl(BaseModel):
    url: str = Field(description="a data URI, or a URL of a host that the service may fetch from")


class Part(BaseModel):
    """A piece of a message: a text or a picture."""

    type: Literal["text", "image_url"]
    text: str | None = None
    image_url: ImageUrl | str | None = None


class Message(BaseModel):
    role: Literal["system", "user", "assistant", "developer"]
    content: str | list[Part]


class StreamOptions(BaseModel):
    include_usage: bool = False


_EXAMPLE = {
    "model": "paddleocr-vl-1.6",
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
                {"type": "text", "text": "OCR:"},
            ],
        }
    ],
}


class Chat(BaseModel):
    """One picture and one task; what else clients of such servers send changes nothing here."""

    model_config = ConfigDict(extra="ignore")

    model: str
    messages: list[Message] = Field(min_length=1, max_length=64)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0, le=10)
    top_p: float | None = Field(None, gt=0, le=1)
    seed: int | None = Field(None, ge=0, lt=1 << 63)
    n: int | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None


def routes(service: Service, incoming: Incoming) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["OpenAI"])
    own = service.parser.runtime.preset

    @router.get("/models", summary="The model that reads")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [_model(own)]}

    @router.get("/models/{name:path}", summary="One model")
    async def model(name: str) -> dict[str, Any]:
        _check_model(name, own)
        return _model(own)

    @router.post(
        "/chat/completions",
        summary="A picture and a task prompt: OCR:, Table Recognition:, Formula Recognition:, ...",
        response_class=Response,
        responses={200: {"content": {"application/json": {}, "text/event-stream": {}}}},
    )
    async def chat(asked: Annotated[Chat, Body(examples=[_EXAMPLE])], request: Request) -> Response:
        _check_model(asked.model, own)
        if asked.n not in (None, _MOST_CHOICES):
            raise RefusalError(400, "bad_request", "there is one answer to a picture", fix="leave out n")
        picture, task = _question(asked.messages)
        wishes = {
            "max_new_tokens": asked.max_completion_tokens or asked.max_tokens,
            "temperature": asked.temperature,
            "top_p": asked.top_p,
            "seed": asked.seed,
            "task": task,
        }
        options = changed(service.options, {name: value for name, value in wishes.items() if value is not None})
        folder, _ = await run_in_threadpool(incoming.store, picture)
        try:
            stop, future = service.read_element(folder, task, options)
            answer = await outcome(service, request, stop, future)
        finally:
            await run_in_threadpool(service.forget, folder)
        head = {"id": f"chatcmpl-{uuid4().hex}", "created": int(time.time()), "model": asked.model}
        if not asked.stream:
            return JSONResponse(_whole(head, answer))
        with_usage = asked.stream_options is not None and asked.stream_options.include_usage
        return StreamingResponse(
            _pieces(head, answer, with_usage=with_usage),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store"},
        )

    return router


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "docvino"}


def _check_model(asked: str, own: str) -> None:
    """With or without an organisation before it, and any name of the family where one of it reads.

    Raises: RefusalError (404).
    """
    name = asked.rpartition("/")[2].lower()
    if name != own.lower() and not (name.startswith(_FAMILY) and own.startswith((_FAMILY, "nano"))):
        raise RefusalError(404, "model_not_found", f"there is no model {asked[:80]!r}", fix=f"use {own}")


def _question(messages: list[Message]) -> tuple[str, Task]:
    """The one picture and the task that the prompt names. Raises: RefusalError."""
    parts: list[Part] = []
    for message in messages:
        if message.role == "user":
            own = message.content
            parts += [Part(type="text", text=own)] if isinstance(own, str) else own
    pictures = [_url(part) for part in parts if part.type == "image_url"]
    if len(pictures) != 1 or not pictures[0]:
        raise RefusalError(400, "bad_request", f"{len(pictures)} pictures, where one is read", fix="send one image_url")
    prompt = " ".join(part.text or "" for part in parts if part.type == "text").strip()
    known = {text.rstrip(":").lower(): task for task, text in TASK_PROMPTS.items()}
    task = known.get(prompt.rstrip(": ").lower()) if prompt else "ocr"
    if task is None:
        raise RefusalError(
            400,
            "unknown_prompt",
            "the model knows tasks, not questions",
            fix=f"the text may be {', '.join(TASK_PROMPTS.values())}",
        )
    return pictures[0], task


def _url(part: Part) -> str:
    return part.image_url.url if isinstance(part.image_url, ImageUrl) else part.image_url or ""


def _finish(answer: Answer) -> str:
    return "length" if answer.finish in ("length", "time") else "stop"


def _usage(answer: Answer) -> dict[str, int]:
    return {
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.tokens,
        "total_tokens": answer.prompt_tokens + answer.tokens,
    }


def _whole(head: dict[str, Any], answer: Answer) -> dict[str, Any]:
    message = {"role": "assistant", "content": answer.text, "refusal": None}
    choice = {"index": 0, "message": message, "finish_reason": _finish(answer), "logprobs": None}
    return {**head, "object": "chat.completion", "choices": [choice], "usage": _usage(answer)}


async def _pieces(head: dict[str, Any], answer: Answer, *, with_usage: bool) -> AsyncIterator[str]:
    """The text comes in one piece: it is known when it is whole, as loops are cut from its end."""
    base = {**head, "object": "chat.completion.chunk"}
    for delta, finish in (
        ({"role": "assistant", "content": ""}, None),
        ({"content": answer.text}, None),
        ({}, _finish(answer)),
    ):
        yield _line({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}]})
    if with_usage:
        yield _line({**base, "choices": [], "usage": _usage(answer)})
    yield "data: [DONE]\n\n"


def _line(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"
