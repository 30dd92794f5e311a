"""Writes protobuf messages, which ONNX files and Paddle programs are, without a package for them."""

from __future__ import annotations

import struct


def message(*fields: tuple[int, int | float | str | bytes]) -> bytes:
    """A protobuf message; a float is one of 32 bits."""
    encoded = b""
    for number, value in fields:
        if isinstance(value, int):
            encoded += varint(number << 3) + varint(value & 0xFFFFFFFFFFFFFFFF)
        elif isinstance(value, float):
            encoded += varint(number << 3 | 5) + struct.pack("<f", value)
        else:
            data = value.encode() if isinstance(value, str) else value
            encoded += varint(number << 3 | 2) + varint(len(data)) + data
    return encoded


def varint(value: int) -> bytes:
    encoded = b""
    while value > 0x7F:
        encoded += bytes([value & 0x7F | 0x80])
        value >>= 7
    return encoded + bytes([value])
