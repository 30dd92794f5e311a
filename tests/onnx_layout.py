"""Writes an ONNX file with the inputs and outputs of PP-DocLayoutV3 that finds given regions, other ones by page.

Which page it sees is told by the grey of its top left corner, as `ten_pages` draws it. Masks are those of rectangles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layout_models import CLASSES, Row
from protobuf import message

# Numbers of ONNX: TensorProto.DataType and AttributeProto.AttributeType.
FLOAT, INT32, INT64 = 1, 6, 7
_TYPES = {"float32": FLOAT, "int32": INT32, "int64": INT64}
_AN_INT = 2
_OPSET = 13
_CORNER = (2, 7)  # pixels of 800 that show the page's grey

Dimensions = Sequence[int | str]


def layout_onnx(pages: Sequence[Sequence[Row]], grey_step: int) -> bytes:
    """The file.

    pages       the rows of each page: label, score, box in shares of the page, order
    grey_step   a page's number times this is missing to white (255) in its corner
    """
    most = max(len(rows) for rows in pages)
    table = np.zeros((len(pages), most, 7), np.float32)
    for place, rows in enumerate(pages):
        for row, (label, score, box, order) in enumerate(rows):
            table[place, row] = (CLASSES[label], score, *box, order)
    first, last = _CORNER
    constants = {
        "table": table,
        "lengths": np.array([[len(rows)] for rows in pages], np.int64),
        "begin": np.array([first, first], np.int64),
        "end": np.array([last, last], np.int64),
        "axes": np.array([2, 3], np.int64),
        "one": np.array(1, np.float32),
        "greys": np.array(255 / grey_step, np.float32),
        "none": np.array([0], np.int64),
        "last_page": np.array(len(pages) - 1, np.int64),
        "height_width": np.array([1, 0, 1, 0], np.int64),
        "parts": np.array([1, 1, 4, 1], np.int64),
        "mask": np.ones((1, 1, 1), np.int32),
        "mask_sides": np.array([200, 200], np.int64),
    }
    nodes = [
        _node("Slice", "image begin end axes", "corner"),
        _node("ReduceMean", "corner", "light", keepdims=0),
        _node("Sub", "one light", "dark"),
        _node("Mul", "dark greys", "counted"),
        _node("Round", "counted", "rounded"),
        _node("Cast", "rounded", "number", to=INT64),
        _node("Min", "number last_page", "page"),
        _node("Gather", "table page", "all_rows", axis=0),
        _node("Gather", "lengths page", "length", axis=0),
        _node("Slice", "all_rows none length none", "rows"),
        _node("Split", "rows parts", "classes scores shares orders", axis=1),
        _node("Gather", "im_shape height_width", "sides", axis=1),
        _node("Gather", "scale_factor height_width", "factors", axis=1),
        _node("Mul", "shares sides", "in_network"),
        _node("Div", "in_network factors", "boxes"),
        _node("Concat", "classes scores boxes orders", "fetch_name_0", axis=1),
        _node("Cast", "length", "fetch_name_1", to=INT32),
        _node("Concat", "length mask_sides", "mask_shape", axis=0),
        _node("Expand", "mask mask_shape", "fetch_name_2"),
    ]
    graph = message(
        *((1, node) for node in nodes),
        (2, "layout"),
        *((5, _tensor(name, values)) for name, values in constants.items()),
        (11, _port("im_shape", FLOAT, ("N", 2))),
        (11, _port("image", FLOAT, ("N", 3, 800, 800))),
        (11, _port("scale_factor", FLOAT, ("N", 2))),
        (12, _port("fetch_name_0", FLOAT, ("regions", 7))),
        (12, _port("fetch_name_1", INT32, (1,))),
        (12, _port("fetch_name_2", INT32, ("regions", 200, 200))),
    )
    return message((1, 8), (2, "docvino tests"), (7, graph), (8, message((1, ""), (2, _OPSET))))


def _node(kind: str, inputs: str, outputs: str, **attributes: int) -> bytes:
    made = (message((1, name), (3, value), (20, _AN_INT)) for name, value in attributes.items())
    names = [*((1, name) for name in inputs.split()), *((2, name) for name in outputs.split())]
    return message(*names, (4, kind), *((5, attribute) for attribute in made))


def _tensor(name: str, values: NDArray[Any]) -> bytes:
    dims = [(1, size) for size in values.shape]
    return message(*dims, (2, _TYPES[values.dtype.name]), (8, name), (9, values.tobytes()))


def _port(name: str, kind: int, shape: Dimensions) -> bytes:
    dims = [(1, message((2, size) if isinstance(size, str) else (1, size))) for size in shape]
    return message((1, name), (2, message((1, message((1, kind), (2, message(*dims)))))))
