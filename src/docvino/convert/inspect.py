"""What a model file holds: names, dtypes, shapes, opset, precision, and what may go wrong with it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import openvino as ov

from docvino.bundle import Tensor
from docvino.convert import beside
from docvino.device import first_line
from docvino.errors import ConvertError

# Fields of onnx.ModelProto. Source: onnx/onnx.proto (field numbers are fixed for ever).
_PRODUCER_NAME, _PRODUCER_VERSION, _GRAPH, _OPSET_IMPORT, _METADATA = 2, 3, 7, 8, 14

_FORMATS = {".onnx": "ONNX", ".xml": "OpenVINO IR", ".pdmodel": "Paddle program", ".json": "Paddle PIR"}
_READABLE = ".onnx, .xml, .pdmodel or PIR .json"
# Source: paddle/fluid/pir/serialize_deserialize in PaddlePaddle (names of types in the JSON file).
_PIR_TYPES = {
    "f32": ("f32", 4),
    "f64": ("f64", 8),
    "f16": ("f16", 2),
    "bf16": ("bf16", 2),
    "i8": ("i8", 1),
    "ui8": ("u8", 1),
    "i16": ("i16", 2),
    "i32": ("i32", 4),
    "i64": ("i64", 8),
    "bool": ("boolean", 1),
}


@dataclass(frozen=True)
class ModelFile:
    """Facts of one model file.

    opsets      version by domain ("" is the standard ONNX or OpenVINO set)
    weights     bytes of constants by dtype
    metadata    names of the entries the file carries for its users
    warnings    what may go wrong: dynamic shapes, classes that do not fit the dictionary, files that are missing
    """

    format: str
    producer: str
    opsets: dict[str, int]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    operations: int
    weights: dict[str, int]
    metadata: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def inspect_model(path: Path) -> ModelFile:
    """Reads an .onnx, .xml, .pdmodel or PIR .json file, and looks at what lies beside it.

    Raises: ConvertError when there is no such file, or it is not a model that can be read.
    """
    if not path.is_file():
        raise ConvertError(f"no file {path}", fix=f"give an {_READABLE} file")
    kind = path.suffix.lower()
    if kind not in _FORMATS:
        raise ConvertError(f"{path.name} is not one of {_READABLE}", fix=f"give an {_READABLE} file")
    facts, dictionary = (_read_pir(path), None) if kind == ".json" else _read_graph(path, kind)
    around = beside.look(path.parent, dictionary)
    warnings = beside.warnings(path.parent, around, facts.inputs, facts.outputs, paddle=kind in (".pdmodel", ".json"))
    weights = path.with_suffix(".pdiparams")
    if kind == ".json" and not weights.is_file():
        warnings.append(f"there is no {weights.name} beside it: without weights it cannot be converted")
    return replace(facts, warnings=tuple(warnings))


def _read_graph(path: Path, kind: str) -> tuple[ModelFile, str | None]:
    """What OpenVINO reads, and the dictionary that the graph carries."""
    fix = "check that the file is complete"
    if kind == ".pdmodel" and not path.with_suffix(".pdiparams").is_file():
        fix = f"put its weights {path.stem}.pdiparams beside it"
    try:
        model = ov.Core().read_model(path)
    except RuntimeError as error:
        raise ConvertError(f"OpenVINO cannot read {path.name}: {first_line(error)}", fix=fix) from error
    weights: Counter[str] = Counter()
    for op in model.get_ops():
        if op.get_type_name() == "Constant":
            weights[op.get_element_type().get_type_name()] += op.get_byte_size()
    producer, opsets, metadata = _HEADERS[kind](path)
    entry = ["framework", "character"]
    dictionary = str(model.get_rt_info(entry).value) if model.has_rt_info(entry) else None
    facts = ModelFile(
        format=_FORMATS[kind],
        producer=producer,
        opsets=opsets,
        inputs=tuple(tensor(port) for port in model.inputs),
        outputs=tuple(tensor(port) for port in model.outputs),
        operations=len(model.get_ops()),
        weights=dict(weights.most_common()),
        metadata=metadata,
    )
    return facts, dictionary


def is_pir(path: Path) -> bool:
    """Whether a .json file is a program that PaddlePaddle 3 saved."""
    try:
        with path.open("rb") as stream:
            start = stream.read(200)
    except OSError:
        return False
    return b'"base_code"' in start and re.search(rb'"magic"\s*:\s*"pir"', start) is not None


def _read_pir(path: Path) -> ModelFile:
    """Names and shapes from the JSON itself: OpenVINO does not read it.

    Source: paddle/fluid/pir/serialize_deserialize in PaddlePaddle: operations of the first block; "p" is a parameter,
    "data" an input, "fetch" an output.
    """
    fix = "give the inference.json that PaddlePaddle 3 saved"
    try:
        program = json.loads(path.read_text(encoding="utf-8"))
        if program["base_code"]["magic"] != "pir":
            raise ConvertError(f"{path.name} is no PIR program", fix=fix)
        operations = program["program"]["regions"][0]["blocks"][0]["ops"]
        inputs: list[Tensor] = []
        outputs: list[Tensor] = []
        weights: Counter[str] = Counter()
        for operation in operations:
            kind = operation["#"].rpartition(".")[2]
            if kind == "p":
                dtype, shape, size = _pir_type(operation["O"])
                count = size
                for dimension in shape:
                    count *= dimension
                weights[dtype] += count
            elif kind in ("data", "feed", "fetch"):
                dtype, shape, _ = _pir_type(operation["O"][0])
                dimensions = ",".join("?" if dimension < 0 else str(dimension) for dimension in shape)
                port = Tensor(name=_pir_name(operation), dtype=dtype, shape=f"[{dimensions}]")
                (outputs if kind == "fetch" else inputs).append(port)
        version = program["base_code"].get("version", "?")
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
        raise ConvertError(f"{path.name} is no PIR program that can be read", fix=fix) from error
    return ModelFile(
        format=_FORMATS[".json"],
        producer=f"PaddlePaddle, PIR version {version}",
        opsets={},
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        operations=sum(operation["#"] != "p" for operation in operations),
        weights=dict(weights.most_common()),
        metadata=(),
    )


def _pir_type(output: Any) -> tuple[str, list[int], int]:
    """dtype, shape and bytes of one element: {"TT": {"D": [{"#": "0.t_f32"}, [-1, 3], "NCHW", [], 0]}}."""
    described = output["TT"]["D"]
    dtype, size = _PIR_TYPES.get(described[0]["#"].rpartition("t_")[2], ("unknown", 0))
    return dtype, [int(dimension) for dimension in described[1]], size


def _pir_name(operation: Any) -> str:
    return str(next(entry["AT"]["D"] for entry in operation["A"] if entry["N"] == "name"))


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


def _paddle_header(path: Path) -> tuple[str, dict[str, int], tuple[str, ...]]:
    """Source: paddle/fluid/framework/framework.proto (ProgramDesc.version = 4, Version.version = 1)."""
    fields = dict(_fields(path.read_bytes(), skipped=1))
    version = fields.get(4, b"")
    number = int(dict(_fields(version)).get(1, 0)) if isinstance(version, bytes) else 0
    major, rest = divmod(number, 1_000_000)
    return f"PaddlePaddle {major}.{rest // 1000}.{rest % 1000}" if number else "PaddlePaddle", {}, ()


_Header = tuple[str, dict[str, int], tuple[str, ...]]
_HEADERS: Mapping[str, Callable[[Path], _Header]] = {
    ".onnx": _onnx_header,
    ".xml": _ir_header,
    ".pdmodel": _paddle_header,
}


def _fields(data: bytes, skipped: int = _GRAPH) -> Iterator[tuple[int, int | bytes]]:
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
            if field != skipped:
                yield field, data[position : position + length]
            position += length
        else:
            position += {1: 8, 5: 4}[wire]
