"""Writes a Paddle program with the inputs and outputs of PP-DocLayoutV2 that finds given regions, other ones by page.

As `onnx_layout` does it: which page it sees is told by the grey of its top left corner. All pages have as many rows;
those that fill up have the score 0.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import numpy as np

from layout_models import CLASSES, Row
from protobuf import message

# Source: Paddle 3.0, framework.proto: numbers of VarType.Type and of AttrType.
_INT32, _INT64, _FP32, _TENSOR, _FEED, _FETCH = 2, 3, 5, 7, 9, 10
_AN_INT, _A_FLOAT, _INTS, _A_BOOL = 0, 1, 3, 6
_CORNER = (2, 7)  # pixels of 800 that show the page's grey
_COLUMNS = 8  # class, score, four sides, two that tell the order

Value = int | float | bool | list[int]


def layout_program(pages: Sequence[Sequence[Row]], grey_step: int) -> tuple[bytes, bytes]:
    """The bytes of inference.pdmodel and of inference.pdiparams; arguments as those of `layout_onnx`."""
    most = max(len(rows) for rows in pages)
    table = np.zeros((len(pages), most * _COLUMNS), np.float32)
    for place, rows in enumerate(pages):
        full = np.zeros((most, _COLUMNS), np.float32)
        for row, (label, score, box, order) in enumerate(rows):
            full[row] = (CLASSES[label], score, *box, order, 0)
        table[place] = full.ravel()
    first, last = _CORNER
    steps = (
        _op("feed", {"X": "feed"}, {"Out": "im_shape"}, col=0),
        _op("feed", {"X": "feed"}, {"Out": "image"}, col=1),
        _op("feed", {"X": "feed"}, {"Out": "scale_factor"}, col=2),
        _slice("image", "corner", axes=[2, 3], starts=[first, first], ends=[last, last]),
        _op("reduce_mean", {"X": "corner"}, {"Out": "light"}, dim=[0, 1, 2, 3], keep_dim=False, reduce_all=True),
        # (1 - light) * 255 / step
        _op(
            "scale",
            {"X": "light"},
            {"Out": "counted"},
            scale=-255 / grey_step,
            bias=255 / grey_step,
            bias_after_scale=True,
        ),
        _op("round", {"X": "counted"}, {"Out": "rounded"}),
        _op("clip", {"X": "rounded"}, {"Out": "clipped"}, min=0.0, max=float(len(pages) - 1)),
        _op("cast", {"X": "clipped"}, {"Out": "number"}, in_dtype=_FP32, out_dtype=_INT64),
        _op("reshape2", {"X": "number"}, {"Out": "page"}, shape=[1]),
        _op("gather", {"X": "table", "Index": "page"}, {"Out": "flat"}, axis=0),
        _op("reshape2", {"X": "flat"}, {"Out": "rows"}, shape=[most, _COLUMNS]),
        _slice("rows", "before", axes=[1], starts=[0], ends=[2]),
        _slice("rows", "behind", axes=[1], starts=[6], ends=[_COLUMNS]),
        *(
            step
            for side in range(4)
            for step in (
                _slice("rows", f"share{side}", axes=[1], starts=[2 + side], ends=[3 + side]),
                # im_shape and scale_factor are height, width; sides 0 and 2 go by the width.
                *(
                    _slice(name, f"{name}{side}", axes=[1], starts=[at], ends=[at + 1])
                    for name in ("im_shape", "scale_factor")
                    for at in [1 - side % 2]
                ),
                _op("elementwise_mul", {"X": f"share{side}", "Y": f"im_shape{side}"}, {"Out": f"wide{side}"}, axis=-1),
                _op(
                    "elementwise_div", {"X": f"wide{side}", "Y": f"scale_factor{side}"}, {"Out": f"box{side}"}, axis=-1
                ),
            )
        ),
        _op("concat", {"X": ["before", *(f"box{side}" for side in range(4)), "behind"]}, {"Out": "boxes"}, axis=1),
        _op("shape", {"Input": "rows"}, {"Out": "sizes"}),
        _slice("sizes", "counts", axes=[0], starts=[0], ends=[1]),
        _op("fetch", {"X": "boxes"}, {"Out": "fetch"}, col=0),
        _op("fetch", {"X": "counts"}, {"Out": "fetch"}, col=1),
    )
    between = ("corner", "light", "counted", "rounded", "clipped", "flat", "rows", "before", "behind")
    by_side = (f"{name}{side}" for name in ("share", "im_shape", "scale_factor", "wide", "box") for side in range(4))
    variables = (
        message((1, "feed"), (2, message((1, _FEED))), (3, 1)),
        message((1, "fetch"), (2, message((1, _FETCH))), (3, 1)),
        _variable("im_shape", (-1, 2)),
        _variable("image", (-1, 3, 800, 800)),
        _variable("scale_factor", (-1, 2)),
        _variable("table", table.shape, persistable=True),
        _variable("boxes", (-1, _COLUMNS)),
        *(_variable(name, (-1,)) for name in (*between, *by_side)),
        *(_variable(name, (-1,), _INT64) for name in ("number", "page")),
        *(_variable(name, (-1,), _INT32) for name in ("sizes", "counts")),
    )
    block = message((1, 0), (2, -1), *((3, one) for one in variables), *((4, step) for step in steps))
    return message((1, block), (4, message((1, 0)))), _saved(table)


def _slice(source: str, target: str, axes: list[int], starts: list[int], ends: list[int]) -> bytes:
    return _op("slice", {"Input": source}, {"Out": target}, axes=axes, starts=starts, ends=ends, decrease_axis=[])


def _op(kind: str, inputs: Mapping[str, str | list[str]], outputs: Mapping[str, str], **attributes: Value) -> bytes:
    def ports(by_name: Mapping[str, str | list[str]], number: int) -> list[tuple[int, bytes]]:
        pairs = ((name, [value] if isinstance(value, str) else value) for name, value in by_name.items())
        return [(number, message((1, name), *((2, value) for value in values))) for name, values in pairs]

    made = [(4, _attribute(name, value)) for name, value in attributes.items()]
    return message(*ports(inputs, 1), *ports(dict(outputs), 2), (3, kind), *made)


def _attribute(name: str, value: Value) -> bytes:
    if isinstance(value, bool):
        return message((1, name), (2, _A_BOOL), (10, int(value)))
    if isinstance(value, int):
        return message((1, name), (2, _AN_INT), (3, value))
    if isinstance(value, float):
        return message((1, name), (2, _A_FLOAT), (4, value))
    return message((1, name), (2, _INTS), *((6, one) for one in value))


def _variable(name: str, shape: Sequence[int], kind: int = _FP32, *, persistable: bool = False) -> bytes:
    tensor = message((1, kind), *((2, size) for size in shape))
    return message((1, name), (2, message((1, _TENSOR), (3, message((1, tensor))))), (3, int(persistable)))


def _saved(values: np.ndarray) -> bytes:
    """One tensor as Paddle saves it: versions and levels of 0, then its description and its numbers."""
    described = message((1, _FP32), *((2, size) for size in values.shape))
    return struct.pack("<IQIi", 0, 0, 0, len(described)) + described + values.tobytes()
