"""Layout models for tests: graphs with the inputs and outputs of PP-DocLayout that give recorded rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import openvino as ov
from numpy.typing import NDArray
from openvino import opset13 as ops

from docvino.document import Box
from docvino.specs import doclayout
from docvino.specs.model import DocLayoutFacts, HubFile, HubFolder, HubMember, ModelSpec, Repository

CLASSES = {label.name: number for number, label in enumerate(doclayout.FACTS_V3.labels)}
Row = tuple[str, float, Box, int]  # label, score, box as shares of the page, order


def layout_graph(rows: Sequence[Row], masks: NDArray[np.int32] | None = None) -> ov.Model:
    """V3's contract for a batch of any size, of which the first page counts. Scores fall to 0 on black pages.

    Boxes are shares of the network's 800 x 800 px, divided by scale_factor as the published graph does it.
    """
    ports = {}
    for name, shape in (("im_shape", [-1, 2]), ("image", [-1, 3, 800, 800]), ("scale_factor", [-1, 2])):
        ports[name] = ops.parameter(shape, np.float32, name=name)
        ports[name].output(0).set_names({name})
    table = np.array([[CLASSES[label], score, *box, order] for label, score, box, order in rows], np.float32)
    height_width = ops.gather(ports["scale_factor"], ops.constant([0]), ops.constant(0))
    factors = ops.gather(height_width, ops.constant([1, 0, 1, 0]), ops.constant(1))
    square = ops.gather(ops.gather(ports["im_shape"], ops.constant([0]), ops.constant(0)), [1, 0, 1, 0], 1)
    boxes = ops.divide(ops.multiply(ops.constant(table[:, 2:6]), square), factors)
    light = ops.minimum(
        ops.multiply(ops.reduce_mean(ports["image"], ops.constant([0, 1, 2, 3])), np.float32(2)), np.float32(1)
    )
    scores = ops.multiply(ops.constant(table[:, 1:2]), light)
    outputs = [
        ops.concat([ops.constant(table[:, :1]), scores, boxes, ops.constant(table[:, 6:])], 1),
        ops.constant(np.array([len(rows)], np.int32)),
        ops.constant(np.ones((len(rows), 200, 200), np.int32) if masks is None else masks),
    ]
    results = []
    for number, output in enumerate(outputs):
        result = ops.result(output)
        result.output(0).get_tensor().set_names({f"fetch_name_{number}"})
        results.append(result)
    return ov.Model(results, list(ports.values()), "layout")


def layout_spec(graph: ov.Model, folder: Path) -> ModelSpec[DocLayoutFacts]:
    """Writes the graph to `folder` as a hub would give it, and returns PP-DocLayoutV3's spec with it as its file."""
    folder.mkdir(parents=True, exist_ok=True)
    ov.save_model(graph, folder / "inference.xml", compress_to_fp16=False)
    files = tuple(HubFile(path.name, path.stat().st_size) for path in sorted(folder.iterdir()))
    repositories = MappingProxyType({"huggingface": Repository("someone/layout", "0" * 40)})
    hub_folder = HubFolder(doclayout.V3.name, "layout", "none", "https://example.org", repositories, files)
    return replace(doclayout.V3, source=HubMember(hub_folder, "inference.xml"))
