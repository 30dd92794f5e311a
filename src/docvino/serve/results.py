"""A document that was read -> the answer in one format."""

from __future__ import annotations

import base64
import io
import json
import os
import sys
import threading
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docvino.document import Document
from docvino.errors import DocvinoError
from docvino.outputs import TEXTS, Format, html_of, parse_formats, text_of
from docvino.process import ended, run_child
from docvino.serve.problems import RefusalError, refusal
from docvino.serve.write_child import OPTIONS, PASSWORD
from docvino.settings import ParseOptions

# What the formats are called over HTTP -> in files.
NAMES: Mapping[str, Format] = {
    "markdown": "md",
    "json": "json",
    "html": "html",
    "text": "txt",
    "docx": "docx",
    "xlsx": "xlsx",
    "csv": "csv",
    "pdf": "pdf",
    "res": "res",
    "png": "png",
}
_TYPES: Mapping[Format, str] = {
    "md": "text/markdown; charset=utf-8",
    "json": "application/json",
    "html": "text/html; charset=utf-8",
    "txt": "text/plain; charset=utf-8",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "pdf": "application/pdf",
}
_PARTS: Mapping[Format, str] = {"csv": "tables/*.csv", "res": "*_res.json", "png": "pages/*.png"}
_ZIP = "application/zip"
_WAIT_S = 300.0  # for others that write


@dataclass(frozen=True)
class Output:
    """One format: its bytes, what they are, and the ending of a file of them."""

    data: bytes
    media_type: str
    ending: str

    @property
    def is_text(self) -> bool:
        return self.media_type.partition(";")[0] in ("text/markdown", "text/html", "text/plain", "application/json")


def formats_of(text: str) -> tuple[str, ...]:
    """The names of a list such as "markdown,html"; "md" and "txt" are understood, too.

    Raises: RefusalError for an unknown one, and for one whose packages are not installed.
    """
    short = {value: name for name, value in NAMES.items()}
    asked = [name.strip().lower() for name in text.split(",") if name.strip()]
    names = tuple(dict.fromkeys(short.get(name, name) for name in asked))  # type: ignore[call-overload]
    if unknown := [name for name in names if name not in NAMES]:
        raise RefusalError(
            400, "unknown_format", f"unknown format {unknown[0][:40]}", fix=f"formats are {', '.join(NAMES)}"
        )
    if names:
        try:
            parse_formats(",".join(NAMES[name] for name in names))
        except DocvinoError as error:
            raise refusal(error) from error
    return names


class Writer:
    """Writes formats of documents in folders as `jobs` describes them; those that open it, in a child process."""

    def __init__(self, memory_mib: int, limit_s: float) -> None:
        self._memory_mib, self._limit_s = memory_mib, limit_s
        self._one_at_a_time = threading.Lock()

    def write(self, folder: Path, document: Document, name: str, options: ParseOptions) -> Output:
        """
        name   one of NAMES

        Raises: RefusalError.
        """
        kind = NAMES[name]
        if kind == "html":
            return Output(html_of(document, folder).encode("utf-8", "replace"), _TYPES[kind], "html")
        if kind in TEXTS:
            return Output(text_of(document, kind).encode("utf-8", "replace"), _TYPES[kind], kind)
        if not self._one_at_a_time.acquire(timeout=_WAIT_S):
            raise RefusalError(503, "busy", "other formats are being written", fix="try again", retry_after_s=30)
        try:
            return self._written(folder, kind, options)
        finally:
            self._one_at_a_time.release()

    def _written(self, folder: Path, kind: Format, options: ParseOptions) -> Output:
        ready = folder / f"{kind}.ready"
        if not ready.exists():
            self._run(folder, kind, options)
            ready.touch()
        if kind in _PARTS:
            stream = io.BytesIO()
            with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
                for path in sorted(folder.glob(_PARTS[kind])):
                    archive.write(path, path.name.removeprefix(f"{folder.name}_"))
            return Output(stream.getvalue(), _ZIP, f"{kind}.zip")
        return Output((folder / f"{folder.name}.{kind}").read_bytes(), _TYPES[kind], kind)

    def _run(self, folder: Path, kind: Format, options: ParseOptions) -> None:
        own = {"dpi": options.dpi, "max_pixels": options.max_pixels}
        environment = {name: text for name, text in os.environ.items() if name not in ("DOCVINO_API_KEY", PASSWORD)}
        environment |= {OPTIONS: json.dumps(own), **({PASSWORD: options.password} if options.password else {})}
        problem = folder / "problem.json"
        problem.unlink(missing_ok=True)
        limit_s = self._limit_s + 30.0  # a child needs some seconds to begin
        code = run_child(
            [sys.executable, "-m", "docvino.serve.write_child", str(folder), kind, str(self._memory_mib)],
            folder / "write.log",
            limit_s,
            environment,
        )
        if problem.exists():
            said = json.loads(problem.read_text(encoding="utf-8"))
            raise RefusalError(said["status"], "not_written", said["message"], fix=said["fix"])
        if code != 0:
            raise RefusalError(
                500, "not_written", f"writing {kind} {ended(code, limit_s)}", fix="ask for another format"
            )


def inline(output: Output) -> Any:
    """The output as a value in JSON: a text as it is, JSON as an object, anything else in base64."""
    if output.media_type == "application/json":
        return json.loads(output.data)
    if output.is_text:
        return output.data.decode("utf-8")
    return {"media_type": output.media_type, "base64": base64.b64encode(output.data).decode("ascii")}
