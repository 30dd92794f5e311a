"""What the service and its decoding child say to each other: a length, a JSON object, then as many bytes as it names.

JSON and plain bytes, never pickle: a document may have taken the child over.
"""

from __future__ import annotations

import json
import struct
from typing import Any, BinaryIO

_LENGTH = struct.Struct(">I")
_MOST_HEADER = 1 << 24  # places of characters of a dense page are in it


class BrokenFrameError(Exception):
    """The other side is gone, or speaks nonsense."""


def send(stream: BinaryIO, header: dict[str, Any], payload: bytes | memoryview = b"") -> None:
    """Raises: OSError when the other side is gone."""
    text = json.dumps({**header, "bytes": len(payload)}).encode()
    stream.write(_LENGTH.pack(len(text)) + text)
    stream.write(payload)
    stream.flush()


def receive(stream: BinaryIO, most_bytes: int) -> tuple[dict[str, Any], bytearray]:
    """The next header and its bytes, of which there may be `most_bytes`.

    Raises: BrokenFrameError.
    """
    (length,) = _LENGTH.unpack(_exactly(stream, _LENGTH.size))
    if length > _MOST_HEADER:
        raise BrokenFrameError(f"a header of {length} bytes")
    try:
        header = json.loads(_exactly(stream, length))
    except ValueError as error:
        raise BrokenFrameError("a header that is no JSON") from error
    size = header.get("bytes") if isinstance(header, dict) else None
    if not isinstance(size, int) or not 0 <= size <= most_bytes:
        raise BrokenFrameError(f"{size} bytes, where {most_bytes} are the most")
    return header, _exactly(stream, size)


def _exactly(stream: BinaryIO, count: int) -> bytearray:
    buffer = bytearray(count)
    view, filled = memoryview(buffer), 0
    while filled < count:
        got = stream.readinto(view[filled:])  # type: ignore[attr-defined]
        if not got:
            raise BrokenFrameError("the stream ended")
        filled += got
    return buffer
