"""What a model file holds: names, dtypes, shapes, opset, precision."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import openvino as ov

from docvino.bundle import Tensor
from docvino.device import first_line
from docvino.errors import ConvertError

# Fields of onnx.ModelProto. Source: onnx/onnx.proto (field numbers are fixed for ever).
_PRODUCER_NAME, _PRODUCER_VERSION, _GRAPH, _OPSET_IMPORT, _METADATA = 2, 3, 7, 8, 14


@dataclass(frozen=True)
class ModelFile:
    """Facts of one model file.

    opsets      version by domain ("" is the standard ONNX or OpenVINO set)
    weights     bytes of constants by dtype
    metadata    names of the entries the file carries for its users
    """

    format: str
    producer: str
    opsets: dict[str, int]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    operations: int
    weights: dict[str, int]
    metadata: tuple[str, ...]


def inspect_model(path: Path) -> ModelFile:
    """Reads an .onnx or .xml file.

    Raises: ConvertError when there is no such file, or it is not a model OpenVINO can read.
    """
    if not path.is_file():
        raise ConvertError(f"no file {path}", fix="give an .onnx or .xml file")
    kind = path.suffix.lower()
    if kind not in (".onnx", ".xml"):
        raise ConvertError(f"{path.name} is neither .onnx nor .xml", fix="give an .onnx or .xml file")
    try:
        model = ov.Core().read_model(path)
    except RuntimeError as error:
        raise ConvertError(
            f"OpenVINO cannot read {path.name}: {first_line(error)}", fix="check that the file is complete"
        ) from error
    weights: Counter[str] = Counter()
    for op in model.get_ops():
        if op.get_type_name() == "Constant":
            weights[op.get_element_type().get_type_name()] += op.get_byte_size()
    producer, opsets, metadata = _onnx_header(path) if kind == ".onnx" else _ir_header(path)
    return ModelFile(
        format="ONNX" if kind == ".onnx" else "OpenVINO IR",
        producer=producer,
        opsets=opsets,
        inputs=tuple(tensor(port) for port in model.inputs),
        outputs=tuple(tensor(port) for port in model.outputs),
        operations=len(model.get_ops()),
        weights=dict(weights.most_common()),
        metadata=metadata,
    )


def tensor(port: ov.Output) -> Tensor:
    """Name, dtype and shape of a graph's input or output."""
    return Tensor(
        name=port.get_any_name(),
        dtype=port.get_element_type().get_type_name(),
        shape=str(port.get_partial_shape()),
    )


def _ir_header(path: Path) -> tuple[str, dict[str, int], tuple[str, ...]]:
    text = path.read_text(encoding="utf-8")
    opsets = {"": max((int(version) for version in re.findall(r'version="opset(\d+)"', text)), default=0)}
    producer = re.search(r'name="OpenVINO Runtime" value="([^"]*)"', text)
    framework = re.search(r"<framework>(.*?)</framework>", text, re.DOTALL)
    names = re.findall(r"<(\w+) value=", framework.group(1)) if framework else []
    return f"OpenVINO {producer.group(1)}" if producer else "unknown", opsets, tuple(names)


def _onnx_header(path: Path) -> tuple[str, dict[str, int], tuple[str, ...]]:
    """The small fields of a ModelProto, without the onnx package: the graph itself is stepped over."""
    producer, opsets, names = ["", ""], {}, []
    for field, value in _fields(path.read_bytes()):
        if field in (_PRODUCER_NAME, _PRODUCER_VERSION) and isinstance(value, bytes):
            producer[field - _PRODUCER_NAME] = value.decode(errors="replace")
        elif field == _OPSET_IMPORT and isinstance(value, bytes):
            entry = dict(_fields(value))
            domain = entry.get(1, b"")
            opsets[domain.decode() if isinstance(domain, bytes) else ""] = int(entry.get(2, 0))
        elif field == _METADATA and isinstance(value, bytes):
            key = dict(_fields(value)).get(1, b"")
            names.append(key.decode(errors="replace") if isinstance(key, bytes) else "")
    return " ".join(part for part in producer if part) or "unknown", opsets, tuple(names)


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Fields of a protobuf message. Source: protobuf.dev, Encoding (tag = field << 3 | wire type)."""
    position = 0

    def varint() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return value
            shift += 7

    while position < len(data):
        tag = varint()
        field, wire = tag >> 3, tag & 7
        if wire == 0:
            yield field, varint()
        elif wire == 2:
            length = varint()
            if field != _GRAPH:
                yield field, data[position : position + length]
            position += length
        else:
            position += {1: 8, 5: 4}[wire]
