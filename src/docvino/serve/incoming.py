"""Documents in JSON: a URL, a data URI or base64 -> the bytes and a name."""

from __future__ import annotations

import base64
import binascii
import re
from pathlib import Path

from docvino.serve.addresses import Fetcher
from docvino.serve.problems import RefusalError
from docvino.serve.service import Service, clean_name

_DATA_URI = re.compile(r"data:[\w.+-]*/?[\w.+-]*(?:;[\w.+=-]+)*;base64,", re.IGNORECASE)
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")


class Incoming:
    """Takes documents as clients put them into JSON."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._fetcher = Fetcher(service.config.allow_url_host, service.config.max_upload_mib << 20)

    def store(self, text: str, name: str | None = None) -> tuple[Path, str]:
        """A folder of `Service.temporary` with the source in it, and a name for it.

        Raises: RefusalError.
        """
        data, own = self._bytes(text)
        folder = self._service.temporary()
        (folder / "source").write_bytes(data)
        return folder, clean_name(name or own)

    def _bytes(self, text: str) -> tuple[bytes, str]:
        found = _DATA_URI.match(text)
        if found is not None:
            return decoded(text[found.end() :]), "document"
        if _URL.match(text):
            return self._fetcher.fetch(text)
        return decoded(text), "document"


def decoded(text: str) -> bytes:
    """Raises: RefusalError for what is no base64."""
    try:
        data = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise RefusalError(422, "bad_base64", "the document is no base64", fix="encode it as base64") from error
    if not data:
        raise RefusalError(422, "bad_base64", "the document is empty", fix="send one that is not")
    return data
