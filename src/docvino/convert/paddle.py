"""Model files of anyone's into IR: Paddle programs (.pdmodel), PIR programs (inference.json) and ONNX files.

    .pdmodel       frontend: OpenVINO's own Paddle frontend        onnx: toolchain pdmodel, then OpenVINO
    PIR .json      onnx: toolchain pir, then OpenVINO
    .onnx          OpenVINO

Toolchains can end a process, hang, or save a file that is none: each attempt runs in a child process, and counts when
the file passes the full ONNX check, OpenVINO loads it, and its numbers are those of another engine on a real picture.
"""

from __future__ import annotations

import math
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from docvino import __version__, toolchain
from docvino.bundle import GRAPH, building, file_sha256, write_json
from docvino.codec.pixels import normalise, resize, to_bgr
from docvino.codec.sample import sample_line, sample_page
from docvino.convert import beside
from docvino.convert.inspect import inspect_model, is_pir, tensor
from docvino.convert.ir import compress_weights
from docvino.device import first_line, openvino_version
from docvino.errors import ConfigError, ConvertError, DocvinoError
from docvino.inputs import open_document, read_source
from docvino.settings import ParseOptions, RuntimeConfig

RECORD = "conversion.json"
OPSETS = (15, 17, 13)
ROADS = ("frontend", "onnx")
EXPORT_LIMIT_S = 600.0

# Largest absolute difference of two engines on one graph at fp32, for values up to 1; larger values give it in
# proportion. Source: measured 2026-11-30: 1.4e-4 on a page for PP-OCRv4 detection, 4e-6 for the others.
GRAPH_LIMIT = 2e-3
# Mean difference that stored weights may make. The largest one says little: on the edge of a letter a pixel of a
# detector flips between 0 and 1 (PP-OCRv4: fp16 0.08, int8 0.9, with a mean of 2e-3).
STORED_LIMITS = {"fp32": 1e-4, "fp16": 0.01, "int8": 0.05}

_BLIND = 0.01  # outputs below it all say that the model saw nothing on the picture
_LINE_PX = 48  # the height of lines in all PP-OCR models since version 3
_LINE_HEIGHT_PX = 64  # an input of fixed height up to this takes a text line
_PAGE_SIDE_PX = 960
_STRIDE_PX = 32
_ORDER = ("pdmodel", "pir", "onnx")

Kind = Literal["pdmodel", "pir", "onnx"]
Report = Callable[[str], None]
Tensors = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Submodel:
    """One model file to convert; `name` is that of its folder in the output."""

    name: str
    kind: Kind
    graph: Path

    @property
    def weights(self) -> Path:
        return self.graph.with_suffix(".pdiparams")

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.graph,) if self.kind == "onnx" else (self.graph, self.weights)


@dataclass(frozen=True)
class Wish:
    """What one call of convert wants.

    road          for a .pdmodel: frontend or onnx; None is frontend, or onnx when an opset is given
    opset         the only one to try; None tries 15, 17, 13
    input_shapes  fixed shapes by input; -1 leaves a dimension free
    image         a picture or PDF page for the comparison; None draws one
    """

    road: str | None = None
    opset: int | None = None
    input_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    image: Path | None = None


@dataclass(frozen=True)
class Outcome:
    """What became of one submodel. `problem` is None when its folder is there.

    reference        whose numbers the graph's were compared with; None when nobody else could compute it
    max_abs_diff     largest difference to them, in fp32
    largest_output   largest absolute value of the outputs: differences near 0 say nothing where it is near 0, too
    stored_max_diff  largest difference that the stored precision makes to fp32, and `stored_mean_diff` the mean one
    """

    name: str
    source: str
    kind: str
    problem: str | None = None
    fix: str = ""
    exit_code: int = 0
    folder: str | None = None
    road: str | None = None
    opset: int | None = None
    reference: str | None = None
    max_abs_diff: float | None = None
    largest_output: float | None = None
    stored_max_diff: float | None = None
    stored_mean_diff: float | None = None
    image: str | None = None
    size_bytes: int | None = None
    seconds: float | None = None
    warnings: tuple[str, ...] = ()


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """`x=1,3,960,960` -> name and shape; ? or -1 leaves a dimension free.

    Raises: ConfigError.
    """
    name, separator, sizes = text.partition("=")
    try:
        shape = tuple(-1 if size.strip() == "?" else int(size) for size in sizes.strip("[]").split(","))
    except ValueError:
        shape = ()
    if not separator or not name or not shape or any(size < 1 and size != -1 for size in shape):
        raise ConfigError(f"--input-shape {text!r} is not understood", fix="give NAME=1,3,960,960; ? is a free size")
    return name, shape


def find_submodels(path: Path) -> list[Submodel]:
    """The models in a file, or in a folder and its subfolders; of one model in several formats the first of
    .pdmodel, PIR, ONNX.

    Raises: ConvertError when there is none.
    """
    candidates = [path] if path.is_file() else sorted(entry for entry in path.rglob("*") if _is_visible(entry, path))
    found: dict[Path, list[Submodel]] = {}
    for graph in candidates:
        kind = _kind(graph)
        if kind is not None:
            found.setdefault(graph.with_suffix(""), []).append(Submodel("", kind, graph))
    chosen = [min(forms, key=lambda form: _ORDER.index(form.kind)) for forms in found.values()]
    if not chosen:
        raise ConvertError(
            f"there is no model in {path}: no .pdmodel, no PIR .json, no .onnx", fix="name a model file or its folder"
        )
    folders = [model.graph.parent for model in chosen]
    named = []
    for model in chosen:
        parts = list(model.graph.parent.relative_to(path).parts) if path.is_dir() else []
        if not parts and folders.count(model.graph.parent) == 1:
            parts = [path.resolve().name if path.is_dir() else model.graph.stem]
        elif folders.count(model.graph.parent) > 1:
            parts.append(model.graph.stem)
        named.append(Submodel("-".join(parts), model.kind, model.graph))
    return named


def convert_path(
    path: Path, out: Path, wish: Wish, runtime: RuntimeConfig, report: Report = lambda _: None
) -> list[Outcome]:
    """Converts every submodel of `path` into OUT/<name>/ at `runtime.precision`; one that fails does not stop the rest.

    Raises: ConfigError for a wish that cannot be fulfilled, InputError for a picture that cannot be read,
    ConvertError when there is no model.
    """
    submodels = find_submodels(path)
    if wish.road is not None and wish.road not in ROADS:
        raise ConfigError(f"unknown road {wish.road!r}", fix=f"known: {', '.join(ROADS)}")
    if wish.road == "frontend" and wish.opset is not None:
        raise ConfigError("an opset is a matter of ONNX, and the road is frontend", fix="use --road onnx")
    picture = None if wish.image is None else _read_picture(wish.image)
    outcomes = []
    for submodel in submodels:
        try:
            outcome = _convert(submodel, out / submodel.name, wish, picture, runtime, report)
        except DocvinoError as error:
            outcome = Outcome(
                submodel.name, str(submodel.graph), submodel.kind, str(error), error.fix, type(error).exit_code
            )
        outcomes.append(outcome)
    return outcomes


def export_onnx(
    graph: Path, weights: Path, target: Path, opset: int, toolchain_name: str, runtime: RuntimeConfig
) -> None:
    """Makes `target` with Paddle2ONNX and checks it in full.

    Raises: ConvertError when the converter fails, or its file does not pass the check; MissingExtraError.
    """
    script = f"export_{toolchain_name}.py"
    toolchain.run(toolchain_name, script, (graph, weights, target, str(opset)), runtime, limit_s=EXPORT_LIMIT_S)
    try:
        toolchain.run(toolchain_name, "check_onnx.py", (target,), runtime, limit_s=EXPORT_LIMIT_S)
    except ConvertError as error:
        cause = str(error).partition(": ")[2]
        raise ConvertError(
            f"toolchain {toolchain_name} said that it saved {graph.name} as ONNX, and the file is not valid: {cause}",
            fix="see `docvino convert --help` for other roads and opsets",
        ) from error


# ---- one submodel


@dataclass(frozen=True)
class _Graph:
    """A graph that was read, with what it was compared to."""

    model: ov.Model
    road: str
    opset: int | None = None
    reference: str | None = None
    max_abs_diff: float | None = None
    tools: Mapping[str, str] = field(default_factory=dict)


def _convert(
    submodel: Submodel,
    folder: Path,
    wish: Wish,
    picture: NDArray[np.uint8] | None,
    runtime: RuntimeConfig,
    report: Report,
) -> Outcome:
    _check_target(folder)
    missing = [file.name for file in submodel.files if not file.is_file()]
    if missing:
        raise ConvertError(
            f"{submodel.graph.name} has no {', '.join(missing)} beside it",
            fix="a Paddle model is two files: put its weights beside the graph",
        )
    started = time.perf_counter()
    facts = beside.look(submodel.graph.parent)
    with tempfile.TemporaryDirectory(prefix="docvino-convert-", ignore_cleanup_errors=True) as scratch:
        work = _Work(submodel, wish, picture, facts, runtime, report, Path(scratch))
        graph = work.graph()
        wanted, image = work.numbers(graph.model), work.image
        warnings = _warnings(submodel.graph)
        seen = max((float(np.abs(values).max()) for values in wanted.values() if values.size), default=0.0)
        if seen < _BLIND:
            warnings += (f"its outputs on {image} are all near 0 ({seen:.1g}): compare on a real one with --image",)
        out = folder.parent
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot write {out}: {error.strerror}", fix="choose another folder with -o") from error
        with building(folder) as workspace:
            if runtime.precision == "int8":
                report(f"{submodel.name}: {compress_weights(graph.model)} weight tensors to int8")
            ov.save_model(graph.model, workspace / GRAPH, compress_to_fp16=runtime.precision == "fp16")
            stored = _read(workspace / GRAPH)
            largest, mean = _differences(wanted, _infer(stored, work.inputs(stored)))
            if not mean <= STORED_LIMITS[runtime.precision]:
                raise ConvertError(
                    f"{submodel.name} at {runtime.precision} computes other numbers than at fp32: "
                    f"mean difference {mean:.3g}, largest {largest:.3g}",
                    fix="use --precision fp32",
                )
            seconds = time.perf_counter() - started
            size = sum(path.stat().st_size for path in workspace.iterdir())
            outcome = Outcome(
                name=submodel.name,
                source=str(submodel.graph),
                kind=submodel.kind,
                folder=str(folder),
                road=graph.road,
                opset=graph.opset,
                reference=graph.reference,
                max_abs_diff=graph.max_abs_diff,
                largest_output=seen,
                stored_max_diff=largest,
                stored_mean_diff=mean,
                image=image,
                size_bytes=size,
                seconds=round(seconds, 2),
                warnings=warnings,
            )
            write_json(
                workspace / RECORD,
                {
                    **asdict(outcome),
                    "source": {file.name: file_sha256(file) for file in submodel.files},
                    "folder": folder.name,
                    "precision": runtime.precision,
                    "input_shapes": {name: list(shape) for name, shape in wish.input_shapes.items()},
                    "inputs": [tensor(port).model_dump() for port in stored.inputs],
                    "outputs": [tensor(port).model_dump() for port in stored.outputs],
                    "versions": {"docvino": __version__, "openvino": openvino_version(), **graph.tools},
                    "files": {path.name: file_sha256(path) for path in sorted(workspace.iterdir())},
                },
            )
            del stored  # Windows does not rename a folder with a file that is mapped
    return outcome


class _Work:
    """The roads of one submodel, and the numbers to judge them by."""

    def __init__(
        self,
        submodel: Submodel,
        wish: Wish,
        picture: NDArray[np.uint8] | None,
        facts: beside.Beside,
        runtime: RuntimeConfig,
        report: Report,
        scratch: Path,
    ) -> None:
        self.submodel, self.wish, self.facts = submodel, wish, facts
        self.runtime, self.scratch = runtime, scratch
        self.picture = picture
        self.image = "" if wish.image is None else wish.image.name
        self._report = report
        self._paddle_numbers: Tensors | None = None

    def report(self, line: str) -> None:
        self._report(f"{self.submodel.name}: {line}")

    def graph(self) -> _Graph:
        kind, road = self.submodel.kind, self.wish.road
        if kind == "onnx":
            if road == "frontend":
                raise ConvertError(f"{self.submodel.graph.name} is ONNX already", fix="leave --road out")
            if self.wish.opset is not None:
                self.report("the opset of an ONNX file stays as it is")
            return _Graph(self.shaped(_read(self.submodel.graph)), "onnx")
        if kind == "pir":
            if road == "frontend":
                raise ConvertError(
                    f"OpenVINO's Paddle frontend does not read PIR ({self.submodel.graph.name})",
                    fix="use --road onnx, which needs `docvino toolchain install pir`",
                )
            return self.through_onnx("pir")
        if road == "onnx" or (road is None and self.wish.opset is not None):
            return self.through_onnx("pdmodel")
        return self._through_frontend()

    def shaped(self, model: ov.Model) -> ov.Model:
        """The model with the wished shapes."""
        ports = {name: port for port in model.inputs for name in port.get_names()}
        shapes = {name: ov.PartialShape(list(shape)) for name, shape in self.wish.input_shapes.items()}
        for name, shape in shapes.items():
            if name not in ports:
                raise ConvertError(
                    f"{self.submodel.graph.name} has no input {name!r}",
                    fix=f"its inputs are: {', '.join(sorted(ports))}",
                )
            # OpenVINO would take any shape and fail later, or not at all.
            if not shape.compatible(ports[name].get_partial_shape()):
                raise ConvertError(
                    f"input {name} is {ports[name].get_partial_shape()}, which {shape} does not fit",
                    fix="give the sizes that are fixed as they are",
                )
        if shapes:
            try:
                model.reshape(shapes)
            except RuntimeError as error:
                raise ConvertError(
                    f"{self.submodel.graph.name} does not take these shapes: {first_line(error)}",
                    fix="`docvino inspect` shows which of its dimensions are free",
                ) from error
        return model

    def inputs(self, model: ov.Model) -> Tensors:
        """The picture as this model takes it; other inputs by their names, or reproducible numbers."""
        given: Tensors = {}
        for port in model.inputs:
            shape, name = port.get_partial_shape(), port.get_any_name()
            if _takes_picture(port):
                given[name] = self._picture_tensor(shape, _LINE_PX if _reads_lines(model) else 0)
        height, width = next((values.shape[2:] for values in given.values()), (1, 1))
        for port in model.inputs:
            name = port.get_any_name()
            if name in given:
                continue
            sizes = [dimension.get_length() if dimension.is_static else 1 for dimension in port.get_partial_shape()]
            dtype = port.get_element_type().to_dtype()
            if name == "im_shape" and sizes[-1] == 2:
                values: NDArray[Any] = np.broadcast_to(np.array([height, width], dtype), sizes)
            elif np.issubdtype(dtype, np.floating) and name != "scale_factor":
                values = np.random.default_rng(0).random(sizes).astype(dtype)
                self.report(f"input {name} takes no picture: random numbers stand in for it")
            else:
                values = np.ones(sizes, dtype)
            given[name] = np.ascontiguousarray(values)
        return given

    def numbers(self, model: ov.Model) -> Tensors:
        return _infer(model, self.inputs(model))

    def through_onnx(self, name: str, *, alone: bool = False) -> _Graph:
        """The first opset whose file is valid, loads, and gives the numbers of another engine, unless it is `alone`.

        Raises: ConvertError that says of each opset why it did not; MissingExtraError without the toolchain.
        """
        failures: dict[int, str] = {}
        for opset in (self.wish.opset,) if self.wish.opset is not None else OPSETS:
            target = self.scratch / f"{opset}.onnx"
            started = time.perf_counter()
            try:
                export_onnx(self.submodel.graph, self.submodel.weights, target, opset, name, self.runtime)
                model = self.shaped(_read(target))
                engine, wanted = (None, None) if alone else self._reference(model)
                largest = None if wanted is None else _differences(wanted, self.numbers(model))[0]
                if largest is not None and not largest <= GRAPH_LIMIT:
                    raise ConvertError(
                        f"its numbers differ from those of {engine} by {largest:.3g}", fix="try another opset or road"
                    )
            except ConvertError as error:
                self.report(f"opset {opset}: {error}")
                failures[opset] = str(error)
            else:
                against = "" if largest is None else f", differs from {engine} by {largest:.2g}"
                self.report(f"opset {opset}: valid, {time.perf_counter() - started:.1f} s{against}")
                return _Graph(model, "onnx", opset, engine, largest, toolchain.versions(name, self.runtime))
        raise ConvertError(
            f"{self.submodel.graph.name} does not become ONNX: {_together(failures)}",
            fix="try --road frontend"
            if name == "pdmodel"
            else "save the model again with PaddlePaddle 3.2.2 or 3.0.0, which this toolchain reads best",
        )

    def _through_frontend(self) -> _Graph:
        model = self.shaped(_read(self.submodel.graph))
        mine = self.numbers(model)
        tools: Mapping[str, str] = {}
        if toolchain.is_installed("pir", self.runtime):
            engine, wanted = self._paddle(model)
        elif toolchain.is_installed("pdmodel", self.runtime):
            try:
                other = self.through_onnx("pdmodel", alone=True)
            except ConvertError as error:
                self.report(f"nothing to compare with: {error}")
                return _Graph(model, "frontend")
            engine, wanted, tools = _named(other), self.numbers(other.model), other.tools
        else:
            self.report("nothing to compare with: `docvino toolchain install pdmodel` (or pir) brings something")
            return _Graph(model, "frontend")
        largest, _ = _differences(wanted, mine)
        if not largest <= GRAPH_LIMIT:
            raise ConvertError(
                f"OpenVINO's Paddle frontend and {engine} give different numbers for {self.submodel.graph.name}: "
                f"{largest:.3g}",
                fix="use --road onnx, which is compared as well",
            )
        self.report(f"frontend: differs from {engine} by {largest:.2g}")
        return _Graph(model, "frontend", None, engine, largest, tools)

    def _reference(self, model: ov.Model) -> tuple[str | None, Tensors | None]:
        """Whose numbers an ONNX file must give: Paddle's own where it is there, else those of OpenVINO's frontend."""
        if self.submodel.kind == "pir" or toolchain.is_installed("pir", self.runtime):
            return self._paddle(model)
        try:
            return "OpenVINO's Paddle frontend", self.numbers(self.shaped(_read(self.submodel.graph)))
        except ConvertError as error:
            self.report(f"nothing to compare with: {error}")
            return None, None

    def _paddle(self, model: ov.Model) -> tuple[str, Tensors]:
        """What PaddlePaddle itself computes, in its own process; once for all opsets.

        Raises: ConvertError when it fails.
        """
        if self._paddle_numbers is None:
            given, result = self.scratch / "in.npz", self.scratch / "out.npz"
            np.savez(given, **self.inputs(model))  # type: ignore[arg-type]
            arguments = (self.submodel.graph, self.submodel.weights, given, result)
            toolchain.run("pir", "run_paddle.py", arguments, self.runtime, limit_s=EXPORT_LIMIT_S)
            try:
                with result.open("rb") as stream, np.load(stream) as arrays:
                    self._paddle_numbers = {name: arrays[name] for name in arrays.files}
            except (OSError, ValueError, zipfile.BadZipFile) as error:
                raise ConvertError(
                    "Paddle ended well and left no outputs that can be read",
                    fix="docvino toolchain install pir --force",
                ) from error
        return f"PaddlePaddle {toolchain.versions('pir', self.runtime).get('paddlepaddle', '?')}", self._paddle_numbers

    def _picture_tensor(self, shape: ov.PartialShape, usual_height: int) -> NDArray[np.float32]:
        """The picture at the input's own size, normalised as the model's yml says, or with ImageNet's values."""
        height = _length(shape[2]) or (self.facts.size[0] if self.facts.size else usual_height)
        width = _length(shape[3]) or (self.facts.size[1] if self.facts.size else 0)
        is_line = 0 < height <= _LINE_HEIGHT_PX
        picture = self.picture if self.picture is not None else sample_line() if is_line else sample_page()
        if self.picture is None:
            self.image = "a drawn text line" if is_line else "a drawn page"
        rows, columns = picture.shape[:2]
        if is_line and not width:
            width = max(_STRIDE_PX, min(3200, math.ceil(height * columns / rows / 8) * 8))
        scale = min(1.0, _PAGE_SIDE_PX / max(rows, columns))
        height = height or max(_STRIDE_PX, round(rows * scale / _STRIDE_PX) * _STRIDE_PX)
        width = width or max(_STRIDE_PX, round(columns * scale / _STRIDE_PX) * _STRIDE_PX)
        pixels = resize(picture, width, height)
        values = normalise(to_bgr(pixels) if self.facts.bgr else pixels, self.facts.mean, self.facts.std)
        if _length(shape[1]) == 1:
            values = values.mean(axis=1, keepdims=True)
        batch = _length(shape[0]) or 1
        return np.ascontiguousarray(np.broadcast_to(values, (batch, *values.shape[1:])), np.float32)


def _named(graph: _Graph) -> str:
    return f"ONNX opset {graph.opset} (paddle2onnx {graph.tools.get('paddle2onnx', '?')})"


def _warnings(graph: Path) -> tuple[str, ...]:
    """What `docvino inspect` warns of; a program that the frontend cannot read may still have become ONNX."""
    try:
        return inspect_model(graph).warnings
    except ConvertError as error:
        return (str(error),)


def _takes_picture(port: ov.Output) -> bool:
    shape = port.get_partial_shape()
    if shape.rank.is_dynamic or shape.rank.get_length() != 4 or not port.get_element_type().is_real():
        return False
    return _length(shape[1]) in (1, 3)


def _reads_lines(model: ov.Model) -> bool:
    """Whether an ONNX graph is text recognition: it carries a dictionary and gives (batch, steps, classes)."""
    ranks = [port.get_partial_shape().rank for port in model.outputs]
    return model.has_rt_info(["framework", "character"]) and all(r.is_static and r.get_length() == 3 for r in ranks)


def _length(dimension: ov.Dimension) -> int:
    return int(dimension.get_length()) if dimension.is_static else 0


def _read(path: Path) -> ov.Model:
    try:
        return ov.Core().read_model(path)
    except RuntimeError as error:
        raise ConvertError(
            f"OpenVINO cannot read {path.name}: {first_line(error)}", fix="try another --opset or --road"
        ) from error


def _infer(model: ov.Model, inputs: Tensors) -> Tensors:
    """All outputs on the CPU in f32: it is the file that is judged, not the device."""
    try:
        compiled = ov.Core().compile_model(
            model, "CPU", {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
        )
        request = compiled.create_infer_request()
        request.infer(inputs, share_inputs=False)
    except RuntimeError as error:
        raise ConvertError(
            f"OpenVINO cannot run the converted model: {first_line(error)}",
            fix="give the size that it takes with --input-shape, or try another --opset or --road",
        ) from error
    return {port.get_any_name(): request.get_tensor(port).data.copy() for port in compiled.outputs}


def _differences(wanted: Tensors, found: Tensors) -> tuple[float, float]:
    """Largest and mean absolute difference over all outputs, each in proportion to its values where these pass 1.

    Outputs go by name, or by order where others gave them other names. Infinite where shapes differ or numbers are
    not finite.
    """
    if wanted.keys() == found.keys():
        pairs: Iterator[tuple[NDArray[Any], NDArray[Any]]] = ((wanted[name], found[name]) for name in wanted)
    elif len(wanted) == len(found):
        pairs = zip(wanted.values(), found.values(), strict=True)
    else:
        return math.inf, math.inf
    largest, means = 0.0, []
    for one, other in pairs:
        if one.shape != other.shape:
            return math.inf, math.inf
        if not one.size:
            continue
        one, other = one.astype(np.float64), other.astype(np.float64)
        if not (np.isfinite(one).all() and np.isfinite(other).all()):
            return math.inf, math.inf
        size = max(1.0, float(np.abs(one).max()))
        difference = np.abs(one - other) / size
        largest = max(largest, float(difference.max()))
        means.append(float(difference.mean()))
    return largest, max(means, default=0.0)


def _together(failures: Mapping[int, str]) -> str:
    """The reasons, each once, with the opsets it stopped."""
    by_cause: dict[str, list[int]] = {}
    for opset, cause in failures.items():
        by_cause.setdefault(cause, []).append(opset)
    return "; ".join(f"opset {', '.join(map(str, opsets))}: {cause}" for cause, opsets in by_cause.items())


def _check_target(folder: Path) -> None:
    """A folder is replaced only when it is one that was made here."""
    if folder.exists() and not (folder / RECORD).is_file() and not (folder.is_dir() and not any(folder.iterdir())):
        raise ConfigError(
            f"{folder} is there and was not made by `docvino convert`", fix="choose another folder with -o"
        )


def _read_picture(path: Path) -> NDArray[np.uint8]:
    """The first page of any file that docvino reads: uint8 (H, W, 3) RGB."""
    data, name = read_source(str(path))
    with open_document(data, name, ParseOptions(pages="1", dpi=144.0)) as document:
        return document.page(0).pixels


def _kind(path: Path) -> Kind | None:
    suffix = path.suffix.lower()
    if suffix == ".pdmodel":
        return "pdmodel"
    if suffix == ".onnx":
        return "onnx"
    return "pir" if suffix == ".json" and is_pir(path) else None


def _is_visible(path: Path, root: Path) -> bool:
    return path.is_file() and not any(part.startswith(".") for part in path.relative_to(root).parts)


def summary(outcomes: Sequence[Outcome]) -> list[str]:
    """One line for each submodel that was converted."""
    lines = []
    for one in outcomes:
        if one.problem is not None:
            continue
        compared = (
            f"{one.max_abs_diff:.2g} from {one.reference}"
            if one.max_abs_diff is not None
            else "nothing to compare with"
        )
        road = one.road if one.opset is None else f"{one.road} opset {one.opset}"
        lines.append(
            f"{one.name}: {one.kind} by {road}, {(one.size_bytes or 0) / 1e6:.1f} MB, {one.seconds:.1f} s, {compared}; "
            f"stored weights {one.stored_max_diff:.2g} (mean {one.stored_mean_diff:.2g}) on {one.image} -> {one.folder}"
        )
    return lines
