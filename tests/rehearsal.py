"""A hub on this machine with folders of the published shape under the published names: a user's road is rehearsed.

    python tests/rehearsal.py make HUB [--model FOLDER]       a hub's folders: nano's weights, or those of FOLDER
    python tests/rehearsal.py HUB fetch paddleocr-vl-1.6      any command of docvino, with that hub as Hugging Face

Names, revisions and forms of URLs are those of the specs. Their sizes and sha256 cannot be: in the rehearsal's process
each pinned file is pinned to the one that this hub has. docvino itself has no switch for that.
"""

from __future__ import annotations

import argparse
import contextlib
import http.server
import os
import re
import shutil
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from urllib.parse import unquote

from docvino import specs
from docvino.download import git_sha1_of, sha256_of
from docvino.specs import nano
from docvino.specs.model import HubFolder, HubMember
from onnx_layout import layout_onnx
from paddle_layout import layout_program
from ten_pages import MARK_STEP, layout_rows, ten_pages

_LARGE_BYTES = 1_000_000  # such files come from another path, as Hugging Face keeps them
_TEMPLATE = "{{%- for message in messages -%}}{{{{ message.content }}}}{{%- endfor -%}}Assistant:{}"
_SMALL = (
    "LICENSE", "added_tokens.json", "processor_config.json", "special_tokens_map.json", "tokenizer.model",
    "tokenizer_config.json",
)  # fmt: skip
UNWANTED = ("README.md", "modeling_paddleocr_vl.py")
_ENDS = {"paddleocr-vl-v1": " ", "paddleocr-vl-1.5": "\n", "paddleocr-vl-1.6": "\n"}


# Folders


def make_hub(hub: Path, model: Path = nano.FOLDER) -> None:
    """Every repository of the specs under `hub`/OWNER/NAME, with the weights of `model` and layouts for `ten_pages`.

    Large files are links to those of `model`. What repositories have and docvino does not want is there, too.
    """
    for name, end in _ENDS.items():
        folder = _repository(hub, specs.FOLDERS[name])
        for file in ("config.json", "preprocessor_config.json", "generation_config.json", "tokenizer.json"):
            shutil.copyfile(model / file, folder / file)
        (folder / "model.safetensors").symlink_to((model / "model.safetensors").resolve())
        (folder / "chat_template.jinja").write_text(_TEMPLATE.format(end), encoding="utf-8")
        for file in _SMALL:
            (folder / file).write_text("{}", encoding="utf-8")
        for file in UNWANTED:
            (folder / file).write_text("raise SystemExit('this is never fetched')\n", encoding="utf-8")
    rows = layout_rows(ten_pages()[1])
    v3 = _repository(hub, specs.FOLDERS["pp-doclayout-v3"])
    (v3 / "inference.onnx").write_bytes(layout_onnx(rows, MARK_STEP))
    (v3 / "inference.yml").write_text("mode: paddle\n", encoding="utf-8")
    v2 = _repository(hub, specs.FOLDERS["pp-doclayout-v2"]) / "PP-DocLayoutV2"
    v2.mkdir()
    for file, data in zip(("inference.pdmodel", "inference.pdiparams"), layout_program(rows, MARK_STEP), strict=True):
        (v2 / file).write_bytes(data)
    (v2 / "inference.yml").write_text("mode: paddle\n", encoding="utf-8")


def _repository(hub: Path, folder: HubFolder) -> Path:
    path = hub / folder.repositories["huggingface"].name
    path.mkdir(parents=True, exist_ok=True)
    return path


@contextlib.contextmanager
def repinned(hub: Path) -> Iterator[None]:
    """Every pinned file of the specs is pinned to the one that `hub` has."""
    before = {name: getattr(specs, name) for name in ("FOLDERS", "LAYOUTS", "VLM_PRESETS")}
    folders = {name: _repinned(folder, hub) for name, folder in specs.FOLDERS.items()}
    layouts = {}
    for name, spec in specs.LAYOUTS.items():
        assert isinstance(spec.source, HubMember)
        layouts[name] = replace(spec, source=replace(spec.source, folder=folders[name]))
    presets = dict(specs.VLM_PRESETS)
    for name, preset in presets.items():
        if name in folders:
            layout = preset.layout if isinstance(preset.layout, str) else layouts[preset.layout.name]
            presets[name] = replace(preset, source=folders[name], layout=layout)
    try:
        specs.FOLDERS = MappingProxyType(folders)
        specs.LAYOUTS = MappingProxyType(layouts)
        specs.VLM_PRESETS = MappingProxyType(presets)
        yield
    finally:
        for name, value in before.items():
            setattr(specs, name, value)


def _repinned(folder: HubFolder, hub: Path) -> HubFolder:
    files = []
    for file in folder.files:
        path = hub / folder.repositories["huggingface"].name / file.path
        pinned = file.sha256 is not None and path.is_file()
        files.append(replace(file, size_bytes=path.stat().st_size, sha256=_sha256(path)) if pinned else file)
    return replace(folder, files=tuple(files))


def _sha256(path: Path) -> str:
    """Kept between calls beside large files' links, as they take seconds."""
    kept = path.with_name(f".{path.name}.sha256")
    if kept.is_file():
        return kept.read_text(encoding="ascii")
    digest = sha256_of(path)
    if path.stat().st_size > _LARGE_BYTES:
        kept.write_text(digest, encoding="ascii")
    return digest


# The server


class Hub(http.server.ThreadingHTTPServer):
    """Speaks as Hugging Face does: small files at once with a git hash, large ones by way of another path."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder
        self.asked: list[str] = []
        self.sent_bytes = 0
        self.guard = threading.Lock()
        self.revisions = {
            one.repositories["huggingface"].name: one.repositories["huggingface"].revision
            for one in specs.FOLDERS.values()
        }

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        path = unquote(self.path)
        with self.server.guard:
            self.server.asked.append(path)
        match = re.fullmatch(r"/(cdn/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        file = None if match is None else (self.server.folder / match[2] / match[4])
        if match is None or file is None or ".." in path or not file.is_file():
            self.send_error(404)
        elif match[3] != self.server.revisions.get(match[2]):
            self.send_error(404, "no such revision")
        elif match[1] is None and file.stat().st_size >= _LARGE_BYTES:
            self.send_response(302)
            self.send_header("X-Linked-Etag", f'"{_sha256(file)}"')
            self.send_header("X-Linked-Size", str(file.stat().st_size))
            self.send_header("Location", f"/cdn{self.path}")
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self._send(file, etag=_sha256(file) if match[1] else git_sha1_of(file))

    def _send(self, file: Path, etag: str) -> None:
        size = file.stat().st_size
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(asked[1]) if asked else 0
        self.send_response(206 if start else 200)
        self.send_header("ETag", f'"{etag}"')
        self.send_header("Content-Length", str(size - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
        self.end_headers()
        with file.open("rb") as stream:
            stream.seek(start)
            while chunk := stream.read(1 << 20):
                self.wfile.write(chunk)
                with self.server.guard:
                    self.server.sent_bytes += len(chunk)

    def log_message(self, *_arguments: object) -> None:
        pass


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Hub]:
    with Hub(folder) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def main(words: Sequence[str]) -> None:
    if words[:1] == ["make"]:
        parser = argparse.ArgumentParser()
        parser.add_argument("hub", type=Path)
        parser.add_argument("--model", type=Path, default=nano.FOLDER)
        given = parser.parse_args(words[1:])
        make_hub(given.hub, given.model)
        return
    from docvino import cli

    hub = Path(words[0])
    with repinned(hub), serving(hub) as server:
        os.environ["HF_ENDPOINT"] = server.url
        os.environ["HF_HUB_CACHE"] = str(hub / "no cache")
        try:
            cli.main(words[1:])
        finally:
            if server.asked:
                sys.stderr.write(f"rehearsal: {len(server.asked)} requests, {server.sent_bytes} bytes\n")


if __name__ == "__main__":
    main(sys.argv[1:])
