"""What goes wrong, as an answer over HTTP: {"error": {"code", "message", "fix", "request_id"}}."""

from __future__ import annotations

import re
from typing import Any

from docvino.errors import (
    ArtifactError,
    ConfigError,
    DeviceError,
    DocvinoError,
    InferenceError,
    InputError,
    MissingExtraError,
)

_CODES: tuple[tuple[type[DocvinoError], str], ...] = (
    (InputError, "bad_document"),
    (ConfigError, "bad_request"),
    (MissingExtraError, "not_installed"),
    (ArtifactError, "model_unavailable"),
    (DeviceError, "device_unavailable"),
    (InferenceError, "reading_failed"),
)
PADDLEX = frozenset({"/layout-parsing", "/restructure-pages"})
_OPENAI = ("/v1/chat/", "/v1/models")
_FLAG = re.compile(r"--([a-z]+(?:-[a-z]+)*)")


class RefusalError(Exception):
    """A request that is not answered as asked, with what to do about it.

    retry_after_s   when it may be tried again
    """

    def __init__(self, status: int, code: str, message: str, *, fix: str, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.fix, self.retry_after_s = status, code, fix, retry_after_s

    @property
    def headers(self) -> dict[str, str]:
        headers = {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}
        return {**headers, "WWW-Authenticate": "Bearer"} if self.status == 401 else headers


def refusal(error: DocvinoError) -> RefusalError:
    """The same for one who speaks HTTP: flags of the command line are fields of a form."""
    code = next((code for kind, code in _CODES if isinstance(error, kind)), "internal_error")
    said, fix = (_FLAG.sub(lambda found: found[1].replace("-", "_"), text) for text in (str(error), error.fix))
    return RefusalError(error.http_status, code, said, fix=fix)


def body(problem: RefusalError, request_id: str, path: str) -> dict[str, Any]:
    """What clients of other services look for is there, too, on the paths of those."""
    said: dict[str, Any] = {
        "code": problem.code,
        "message": str(problem),
        "fix": problem.fix,
        "request_id": request_id,
    }
    if path.startswith(_OPENAI):
        said |= {"type": "invalid_request_error" if problem.status < 500 else "server_error", "param": None}
    if path in PADDLEX:
        return {"logId": request_id, "errorCode": problem.status, "errorMsg": str(problem), "error": said}
    return {"error": said}


def not_found(what: str, fix: str) -> RefusalError:
    return RefusalError(404, "not_found", what, fix=fix)
