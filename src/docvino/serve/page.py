"""The page at `/`: a few files of our own that talk to the service as any other client does."""

from __future__ import annotations

import hashlib
from importlib.resources import files

from fastapi import FastAPI, Request, Response

# Nothing of another host, no inline script or style; pictures of pages come as blobs, as an <img> can send no key.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_START = "index.html"


def add_page(app: FastAPI) -> None:
    """Gives the app the routes `/` and `/page/NAME`, which need no key: they hold nothing of anybody.

    The files are read now, so no name in a request becomes a path.
    """
    static = files("docvino.serve") / "static"
    for file in static.iterdir():
        ending = file.name.rpartition(".")[2]
        if ending in _TYPES:
            path = "/" if file.name == _START else f"/page/{file.name}"
            _add(app, path, file.read_bytes(), _TYPES[ending])


def _add(app: FastAPI, path: str, content: bytes, media_type: str) -> None:
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {
        "ETag": etag,
        "Cache-Control": "no-cache",  # kept, but asked about: after an update no old script meets a new page
        "Content-Security-Policy": POLICY,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
    }

    async def send(request: Request) -> Response:
        known = {tag.strip().removeprefix("W/") for tag in request.headers.get("If-None-Match", "").split(",")}
        if etag in known:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=media_type, headers=headers)

    app.add_api_route(path, send, methods=["GET", "HEAD"], include_in_schema=False)
