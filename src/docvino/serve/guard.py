"""What every request passes first: its id, the key, the host, the origin, limits of its body, and the log.

Plain ASGI, because bodies are counted while they come in, and answers may be streams.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from uuid import uuid4

from starlette.exceptions import HTTPException

from docvino.serve.problems import RefusalError, body
from docvino.serve.service import INTERNAL, Service, log_fault
from docvino.settings import ServeConfig

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

# Who asks whether the service lives has no key, and a page must be there before it can ask for one.
OPEN = frozenset({"/", "/livez", "/readyz", "/health", "/version", "/openapi.json"})
_PAGE = "/page/"
_READING = frozenset(
    {"/v1/parse", "/v1/jobs", "/v1/ocr", "/v1/chat/completions", "/layout-parsing", "/restructure-pages"}
)
_IDLE_LIMIT_S = 60.0  # between two pieces of a body
_MOST_OPEN = 256  # requests at a time
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_log = logging.getLogger("docvino.serve.access")


class JsonLines(logging.Formatter):
    """One JSON object a line; what a record has in `facts` is in it."""

    def format(self, record: logging.LogRecord) -> str:
        said = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        return json.dumps(said, ensure_ascii=True)


class Guard:
    """The outermost application."""

    def __init__(self, app: App, service: Service) -> None:
        self._app, self._service, self._config = app, service, service.config
        self._most_bytes = service.config.max_upload_mib << 20
        self._open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = time.monotonic()
        headers = _headers(scope)
        said = headers.get("x-request-id", "")
        request_id = said if _REQUEST_ID.fullmatch(said) else uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        status = 0
        self._open += 1

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [
                    *message.get("headers", ()),
                    (b"x-request-id", request_id.encode()),
                    (b"x-content-type-options", b"nosniff"),
                ]
            await send(message)

        try:
            self._check(scope, headers)
            await self._app(scope, _Body(receive, self._most_bytes), sent)
        except RefusalError as error:
            if error.status in (429, 503):
                self._service.metrics.count("docvino_rejected_total", reason=error.code)
            await _refuse(sent, error, request_id, scope["path"])
        except Exception as error:  # noqa: BLE001 - no traceback leaves the house
            log_fault(f"request {request_id}", error)
            if status == 0:
                fault = RefusalError(500, INTERNAL.code, INTERNAL.message, fix=INTERNAL.fix)
                await _refuse(sent, fault, request_id, scope["path"])
        finally:
            self._open -= 1
            self._note(scope, request_id, status, time.monotonic() - begun)

    def _check(self, scope: Scope, headers: dict[str, str]) -> None:
        """Raises: RefusalError."""
        if self._open > _MOST_OPEN:
            raise RefusalError(
                503, "too_many_requests", f"{_MOST_OPEN} requests are open", fix="try again", retry_after_s=5
            )
        check_host(self._config, headers)
        check_origin(headers)
        path = scope["path"]
        if path not in OPEN and not path.startswith(_PAGE):
            check_key(self._config, headers)
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > self._most_bytes:
            raise too_large(self._most_bytes)
        if scope["method"] == "POST" and path in _READING:
            self._service.worker.admit()

    def _note(self, scope: Scope, request_id: str, status: int, seconds: float) -> None:
        # The template, not what was asked for: nobody's names and no endless list of labels.
        path = getattr(scope.get("route"), "path", None) or ("(page)" if status == 200 else "(none)")
        method = scope["method"] if scope["method"] in _METHODS else "(other)"
        self._service.metrics.count("docvino_requests_total", route=path, method=method, status=str(status))
        self._service.metrics.observe("docvino_request_seconds", seconds)
        facts = {
            "request_id": request_id,
            "method": method,
            "route": path,
            "status": status,
            "ms": round(seconds * 1000, 1),
            "client": (scope.get("client") or ("",))[0],
        }
        _log.info("request", extra={"facts": facts})


_METHODS = frozenset({"GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "PATCH"})


class _Body:
    """The body of a request, counted as it comes in, and given up when nothing comes.

    What it raises is an HTTPException, as FastAPI takes anything else for a fault of the body's form.
    """

    def __init__(self, receive: Receive, most_bytes: int) -> None:
        self._receive, self._most_bytes = receive, most_bytes
        self._count = 0
        self._more = True

    async def __call__(self) -> Message:
        if not self._more:
            return await self._receive()  # the client's leaving; that may take as long as the answer does
        try:
            message = await asyncio.wait_for(self._receive(), _IDLE_LIMIT_S)
        except (TimeoutError, asyncio.TimeoutError) as error:
            raise HTTPException(408, "nothing came of the body for too long") from error
        if message["type"] == "http.request":
            self._count += len(message.get("body", b""))
            self._more = bool(message.get("more_body"))
            if self._count > self._most_bytes:
                raise HTTPException(413, str(too_large(self._most_bytes)))
        return message


def too_large(most_bytes: int) -> RefusalError:
    return RefusalError(
        413,
        "too_large",
        f"the request is larger than {most_bytes >> 20} MiB",
        fix="send a smaller document, or let the service be started with a larger max_upload_mib",
    )


def check_key(config: ServeConfig, headers: dict[str, str]) -> None:
    """Raises: RefusalError (401)."""
    if config.api_key is None:
        return
    given = headers.get("x-api-key", "")
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if not given and scheme.lower() == "bearer":
        given = token.strip()
    # Of digests, as the comparison would tell the length of the key.
    if not given or not hmac.compare_digest(_digest(given), _digest(config.api_key)):
        raise RefusalError(
            401, "unauthorized", "the key is missing or wrong", fix="send it as Authorization: Bearer KEY"
        )


def _digest(text: str) -> bytes:
    return hmac.digest(b"docvino", text.encode("utf-8", "surrogateescape"), "sha256")


def check_host(config: ServeConfig, headers: dict[str, str]) -> None:
    """Without a key, only names of this machine are answered: a web page may have its own name lead here.

    Raises: RefusalError (421).
    """
    if config.api_key is None and config.auth and not is_loopback(_host_only(headers.get("host", ""))):
        raise RefusalError(
            421,
            "wrong_host",
            "the service answers to localhost and 127.0.0.1 only",
            fix="use that name, or start the service with an API key",
        )


def check_origin(headers: dict[str, str]) -> None:
    """Pages of other sites are not answered, with or without CORS: a form needs none.

    Raises: RefusalError (403).
    """
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2].lower() != headers.get("host", "").lower():
        raise RefusalError(
            403, "cross_origin", "requests of other web sites are refused", fix="let your server ask, not the browser"
        )


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _host_only(value: str) -> str:
    return value[1:].partition("]")[0] if value.startswith("[") else value.partition(":")[0]


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


async def _refuse(send: Send, error: RefusalError, request_id: str, path: str) -> None:
    content = json.dumps(body(error, request_id, path)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    headers += [(name.lower().encode(), value.encode()) for name, value in error.headers.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
