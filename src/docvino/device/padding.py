"""Vision graphs that see few sizes: patches are added up to a multiple of a step, and masked.

For devices that compile something for each size they have not seen (`profiles.ShapeSteps.patches`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import openvino as ov
from numpy.typing import NDArray
from openvino import opset13 as ops

from docvino.device.model import Compiled, Model, Tensors

MASK = "patch_mask"
_PATCHES = "pixel_values"
_NEVER = np.float32(-65504)  # the lowest f16: an infinity would become none where everything is masked


def takes_patches(model: ov.Model) -> bool:
    return any(_PATCHES in port.get_names() for port in model.inputs)


def add_mask(model: ov.Model) -> int:
    """Gives every attention of a vision graph a mask, the new input float32 (1, 1, 1, N) that is added to its scores.

    Returns how many attentions there are.
    """
    mask = ops.parameter([1, 1, 1, -1], np.float32, name=MASK)
    mask.output(0).set_names({MASK})
    attentions = [node for node in model.get_ops() if node.get_type_name() == "ScaledDotProductAttention"]
    for node in attentions:
        query, key, value = (node.input_value(place) for place in range(3))
        masked = ops.scaled_dot_product_attention(query, key, value, mask, causal=False)
        masked.set_friendly_name(node.get_friendly_name())
        for reader in list(node.output(0).get_target_inputs()):
            reader.replace_source_output(masked.output(0))
    model.add_parameters([mask])
    model.validate_nodes_and_infer_types()
    return len(attentions)


class PaddedModel(Model):
    """A vision graph with a mask. What comes out of patches that were added is cut off again."""

    def __init__(self, compiled: Compiled, step: int) -> None:
        super().__init__(compiled, 1)
        self.step = step

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> Tensors:
        """
        inputs   each (1, N, ...); outputs come as (1, N / 4, ...), one row for four patches
        """
        count = inputs[_PATCHES].shape[1]
        total = padded(count, self.step)
        mask = np.zeros((1, 1, 1, total), np.float32)
        mask[..., count:] = _NEVER
        filled = {name: _fill(values, total) for name, values in inputs.items()}
        outputs = super().run({**filled, MASK: mask})
        return {name: values[:, : values.shape[1] * count // total] for name, values in outputs.items()}

    def warm(self, largest: int) -> int:
        """Runs every size up to `largest` patches once; returns how many there are."""
        sizes = range(self.step, padded(largest, self.step) + 1, self.step)
        shapes = {
            port.get_any_name(): (port.get_element_type(), list(port.get_partial_shape()))
            for port in self.compiled.raw.inputs
        }
        for size in sizes:
            inputs = {}
            for name, (kind, shape) in shapes.items():
                last = shape[-1].get_length() if shape[-1].is_static else size
                inputs[name] = np.zeros((1, 1, 1, size) if name == MASK else (1, size, last), kind.to_dtype())
            super().run(inputs)
        return len(sizes)


def padded(count: int, step: int) -> int:
    return -(-count // step) * step


def _fill(values: NDArray[Any], total: int) -> NDArray[Any]:
    missing = [(0, 0)] * values.ndim
    missing[1] = (0, total - values.shape[1])
    return np.pad(values, missing) if total > values.shape[1] else values
