"""Golden cases: real inputs with the outputs an independent engine (ONNX Runtime) gave for them.

One `.npz` per model is recorded by `tools/record_golden.py` and lies in the package under `goldens/`; a bundle
holds a copy. A model of hubs has none there: its conversion records what the unchanged graph gives on the CPU.

    image_N        uint8 (H, W, 3) RGB: a page, or one text line per image
    output_NAME    float32 values of one output, all of them or those at `index_NAME` (int64, into the flat tensor)
    items          JSON: what the outputs mean, see Item
    engine         which engine and version gave the outputs
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from docvino.codec import detection, doclayout, layout, orientation, recognition, table
from docvino.document import Box, Structure, polygon_box
from docvino.errors import BundleError, VerifyError
from docvino.specs.model import (
    DetectionFacts,
    DocLayoutFacts,
    LayoutFacts,
    LineOrientationFacts,
    ModelSpec,
    RecognitionFacts,
    TableFacts,
)

Tensors = Mapping[str, NDArray[np.float32]]

# How far a decoded item may be from the recorded one, by the coarsest number format in use. The score limits at fp32
# are those of P-103 in the field's failure log (same labels, IoU 0.95, score 0.01); coarser formats are given
# more room for scores, never for labels or text.
SCORE_LIMITS = {"fp32": 0.01, "fp16": 0.02, "bf16": 0.1, "int8": 0.1}
IOU_LIMIT = 0.9
REPEATS = 4


@dataclass(frozen=True)
class Item:
    """One decoded thing: a text line's text, a layout label, an angle, "line" for a detected text line, the tokens of a
    table."""

    text: str
    score: float
    box: Box | None = None


@dataclass(frozen=True)
class Golden:
    images: tuple[NDArray[np.uint8], ...]
    outputs: Tensors
    indices: Mapping[str, NDArray[np.int64]]
    items: tuple[Item, ...]
    engine: str


@dataclass(frozen=True)
class Comparison:
    """Largest absolute difference to the reference outputs, and whether what they mean is the same.

    `problem` says in words what is wrong; None when the outputs pass.
    """

    max_abs_diff: float
    max_score_diff: float
    tolerance: float
    problem: str | None


def packaged_golden(spec: str) -> bytes:
    """The golden file that the package ships for this model.

    Raises: VerifyError when there is none.
    """
    resource = files("docvino") / "goldens" / f"{spec}.npz"
    with as_file(resource) as path:
        if not path.is_file():
            raise VerifyError(f"docvino ships no golden case for {spec}", fix="reinstall docvino")
        return path.read_bytes()


def load_golden(path: Path) -> Golden:
    """Raises: BundleError when the file is missing or damaged."""
    try:
        # NumPy leaves a file open that it opened itself and that turns out to be no archive.
        with path.open("rb") as stream, np.load(stream) as arrays:
            names = [name.removeprefix("output_") for name in arrays.files if name.startswith("output_")]
            numbers = sorted(int(name.removeprefix("image_")) for name in arrays.files if name.startswith("image_"))
            return Golden(
                images=tuple(arrays[f"image_{number}"] for number in numbers),
                outputs={name: arrays[f"output_{name}"] for name in names},
                indices={name: arrays[f"index_{name}"] for name in names if f"index_{name}" in arrays.files},
                items=tuple(_item(entry) for entry in json.loads(str(arrays["items"]))),
                engine=str(arrays["engine"]),
            )
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise BundleError(f"cannot read golden case {path.name}", fix="docvino convert the model again") from error


def save_golden(path: Path, golden: Golden) -> None:
    arrays: dict[str, NDArray[np.generic]] = {
        "items": np.array(json.dumps([asdict(item) for item in golden.items], ensure_ascii=False)),
        "engine": np.array(golden.engine),
    }
    arrays |= {f"image_{number}": image for number, image in enumerate(golden.images)}
    arrays |= {f"output_{name}": values for name, values in golden.outputs.items()}
    arrays |= {f"index_{name}": values for name, values in golden.indices.items()}
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]


def prepare(spec: ModelSpec[Any], images: Sequence[NDArray[np.uint8]]) -> dict[str, NDArray[np.float32]]:
    """The network input for a case's images. Detection runs at the image's own size (a multiple of the stride)."""
    facts, first = spec.facts, images[0]
    name = spec.inputs[0].name
    if isinstance(facts, DetectionFacts):
        return {name: detection.prepare(first, (first.shape[1], first.shape[0]), facts)}
    if isinstance(facts, RecognitionFacts):
        return {name: recognition.prepare(images, facts)}
    if isinstance(facts, LayoutFacts):
        return {name: layout.prepare(first, facts)}
    if isinstance(facts, DocLayoutFacts):
        return doclayout.prepare(first, facts)
    if isinstance(facts, TableFacts):
        return {name: table.prepare(first, facts)}
    if isinstance(facts, LineOrientationFacts):
        return {name: orientation.prepare_lines(images, facts)}
    return {name: orientation.prepare(first, facts)}


def interpret(
    spec: ModelSpec[Any], outputs: Tensors, image: NDArray[np.uint8], characters: str | None
) -> tuple[Item, ...]:
    """What the outputs mean, by the same functions that read documents."""
    facts = spec.facts
    height, width = image.shape[:2]
    tensors = [outputs[contract.name] for contract in spec.outputs]
    if isinstance(facts, DetectionFacts):
        lines = detection.decode(tensors[0][0, 0], width, height, facts)
        return tuple(
            Item("line", line.score, polygon_box([(float(x), float(y)) for x, y in line.corners]))  # type: ignore[arg-type]
            for line in lines
        )
    if isinstance(facts, RecognitionFacts):
        texts = recognition.decode(tensors[0], recognition.alphabet(characters or ""))
        return tuple(Item(text, confidence) for text, confidence in texts)
    if isinstance(facts, LayoutFacts):
        half = len(tensors) // 2
        regions = layout.decode(tensors[:half], tensors[half:], width, height, facts)
        return tuple(Item(region.label, region.score, region.box) for region in regions)
    if isinstance(facts, DocLayoutFacts):
        found = doclayout.decode(tensors, width, height, facts, shape="rect")
        return tuple(Item(region.label, region.score, region.bounds) for region in found)
    if isinstance(facts, TableFacts):
        return _table_items(table.decode(tensors[0][0], tensors[1][0], width, height, facts))
    if isinstance(facts, LineOrientationFacts):
        return tuple(Item(str(angle), score) for angle, score in orientation.decode_lines(tensors[0], facts))
    angle, score = orientation.decode(tensors[0], facts)[0]
    return (Item(str(angle), score),)


def measured(spec: ModelSpec[Any], outputs: Tensors) -> Tensors:
    """What of the outputs is recorded and compared number by number.

    All of them; but of document layout only the scores, best first: rows of nearly equal scores change places.
    """
    if not isinstance(spec.facts, DocLayoutFacts):
        return outputs
    return {"scores": np.sort(outputs[spec.outputs[0].name][:, 1])[::-1]}


def _table_items(structure: Structure) -> tuple[Item, ...]:
    """The whole structure as one item, and each cell by its number."""
    cells = enumerate(structure.polygons)
    return (
        Item("".join(structure.tokens), structure.score),
        *(Item(f"cell {number}", structure.score, polygon_box(polygon)) for number, polygon in cells),
    )


class Runner(Protocol):
    """What a case is run on; `docvino.device.Model` is one."""

    def run_all(self, batches: Iterable[Mapping[str, NDArray[np.float32]]]) -> Iterator[Mapping[str, Any]]: ...


def run(spec: ModelSpec[Any], golden: Golden, model: Runner, repeats: int = REPEATS) -> list[Tensors]:
    """The case's outputs, several times over as in reading: every slot of an asynchronous model must give them."""
    inputs = prepare(spec, golden.images)
    return list(model.run_all(inputs for _ in range(repeats)))


def compare_all(
    spec: ModelSpec[Any],
    golden: Golden,
    outputs: Sequence[Tensors],
    characters: str | None,
    formats: Sequence[str],
) -> Comparison:
    """The worst of the comparisons of all outputs; see `compare`."""
    comparisons = [compare(spec, golden, one, characters, formats) for one in outputs]
    failed = [comparison for comparison in comparisons if comparison.problem is not None]
    return max(failed or comparisons, key=lambda comparison: comparison.max_abs_diff)


def compare(
    spec: ModelSpec[Any], golden: Golden, outputs: Tensors, characters: str | None, formats: Sequence[str]
) -> Comparison:
    """Outputs of a device against the recorded ones.

    formats   the number formats in use (weights and arithmetic): the coarsest one sets the limits
    """
    tolerance = max(spec.tolerances[name] for name in formats)
    score_limit = max(SCORE_LIMITS[name] for name in formats)
    differences = []
    numbers = measured(spec, outputs)
    for name, wanted in golden.outputs.items():
        values = numbers[name].ravel()
        if name in golden.indices and golden.indices[name].max() < values.size:
            values = values[golden.indices[name]]
        if values.size != wanted.size:
            return Comparison(float("inf"), float("inf"), tolerance, f"output {name} has another size")
        differences.append(np.abs(values - wanted.ravel()).max())
    worst = float(np.max(differences))  # max() would pass over a NaN
    found = interpret(spec, outputs, golden.images[0], characters)
    wanted_items = golden.items
    if isinstance(spec.facts, DocLayoutFacts):
        limits = {label.name: label.threshold + score_limit for label in spec.facts.labels}
        wanted_items, found = _sure(wanted_items, found, limits), _sure(found, wanted_items, limits)
    score_diff, problem = _compare_items(wanted_items, found, score_limit)
    if problem is None and not worst <= tolerance:
        problem = f"outputs differ by {worst:.3g}, allowed is {tolerance:.3g}"
    return Comparison(worst, score_diff, tolerance, problem)


def _sure(items: Sequence[Item], others: Sequence[Item], limits: Mapping[str, float]) -> tuple[Item, ...]:
    """Items without those that others lack, and that are so near to the threshold that they may."""
    return tuple(
        item for item in items if item.score > limits[item.text] or any(_are_alike(item, other) for other in others)
    )


def _are_alike(item: Item, other: Item) -> bool:
    return other.text == item.text and (
        item.box is None or (other.box is not None and _iou(item.box, other.box) >= IOU_LIMIT)
    )


def _compare_items(wanted: Sequence[Item], found: Sequence[Item], score_limit: float) -> tuple[float, str | None]:
    if len(wanted) != len(found):
        return float("inf"), f"{len(found)} items where the reference has {len(wanted)}"
    rest = list(found)
    worst = 0.0
    for item in wanted:
        alike = [other for other in rest if _are_alike(item, other)]
        if not alike:
            return float("inf"), f"nothing like {item.text!r} ({item.score:.2f}) was found"
        nearest = min(alike, key=lambda other: abs(other.score - item.score))
        worst = max(worst, abs(nearest.score - item.score))
        rest.remove(nearest)
    if worst > score_limit:
        return worst, f"scores differ by {worst:.3f}, allowed is {score_limit}"
    return worst, None


def _iou(a: Box, b: Box) -> float:
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    shared = width * height
    return shared / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared)


def _item(entry: Mapping[str, object]) -> Item:
    box = entry["box"]
    return Item(str(entry["text"]), float(str(entry["score"])), None if box is None else tuple(box))  # type: ignore[arg-type]
