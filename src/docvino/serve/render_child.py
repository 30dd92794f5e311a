"""The process that decodes documents for the service: `python -m docvino.serve.render_child MEMORY_MIB`.

It has no files and no network to offer, little memory, and ends when the service does.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from typing import Any, BinaryIO

from docvino.document import PageImage
from docvino.errors import InputError
from docvino.inputs import InputDocument, open_document
from docvino.serve.frames import BrokenFrameError, receive, send
from docvino.serve.limits import forbid_files, limit_memory
from docvino.settings import ParseOptions

_MOST_BYTES = 1 << 33  # the service has limits of its own for what it sends

Answer = tuple[dict[str, Any], bytes | memoryview]
_Asked = tuple[dict[str, Any], bytearray]


def main(memory_mib: int) -> None:
    """Answers until the service closes the pipe."""
    requests: queue.Queue[_Asked] = queue.Queue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, requests), daemon=True).start()
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints must not end up between the frames
    limit_memory(memory_mib)
    forbid_files()
    documents: dict[int, InputDocument] = {}
    while True:
        header, data = requests.get()
        try:
            answer, payload = _answer(documents, header, bytes(data))
        except InputError as error:
            answer, payload = {"error": str(error), "fix": error.fix}, b""
        except MemoryError:
            answer = {
                "error": "it needs more memory than decoding may have",
                "fix": "lower dpi, or send a smaller page",
            }
            payload = b""
        send(out, answer, payload)


def _listen(stream: BinaryIO, requests: queue.Queue[_Asked]) -> None:
    """In a thread of its own, so that the end of the service is seen in the middle of a page, too."""
    try:
        while True:
            requests.put(receive(stream, _MOST_BYTES))
    except BrokenFrameError:
        os._exit(0)


def _answer(documents: dict[int, InputDocument], header: dict[str, Any], data: bytes) -> Answer:
    what, key = header["do"], header["document"]
    if what == "open":
        options = ParseOptions(**header["options"])
        documents[key] = opened = open_document(data, header["name"], options)
        return {"source": opened.source.model_dump(), "page_count": opened.page_count}, b""
    if what == "page":
        return _page(documents[key].page(header["index"]))
    if what == "points":
        return {"points": documents[key].text_points(header["index"])}, b""
    documents.pop(key).close()
    return {}, b""


def _page(page: PageImage) -> Answer:
    facts = {
        "width": page.width_px,
        "height": page.height_px,
        "dpi": page.dpi,
        "source_box": page.source_box,
        "warnings": page.warnings,
    }
    return facts, page.pixels.tobytes()


if __name__ == "__main__":
    main(int(sys.argv[1]))
