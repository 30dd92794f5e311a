"""The story: bytes -> pages -> regions -> crops -> answers -> blocks -> document."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

from docvino import __version__
from docvino.bundle import (
    Bundle,
    VlmBundle,
    bundle_folder,
    converted_at,
    open_bundle,
    open_vlm_bundle,
    use_other,
    vlm_folder,
)
from docvino.codec import doclayout
from docvino.device import Compiled, Model, openvino_version
from docvino.document import (
    Answer,
    Block,
    Crop,
    Document,
    Found,
    ModelProvenance,
    Page,
    PageImage,
    Provenance,
    Region,
    Rotation,
    Source,
    Stats,
    Task,
    moved,
)
from docvino.errors import BundleError, ConfigError, DocvinoError, InferenceError, InputError
from docvino.inputs import InputDocument, open_document, read_source
from docvino.runtime.crops import cut_lines, cut_regions, whole
from docvino.runtime.doclayout import DocLayout
from docvino.runtime.ink import InkLayout, cut_elements
from docvino.runtime.layout import PicoDetLayout
from docvino.runtime.lines import LineReader
from docvino.runtime.orientation import Orientation, turn
from docvino.runtime.shared import SharedReader
from docvino.runtime.stages import ByTask, Clock, LayoutStage, Reader, Watch, unwatched
from docvino.runtime.tables import TableReader
from docvino.runtime.vlm import VlmReader
from docvino.selftest import Loaded, load_model
from docvino.settings import ParseOptions, RuntimeConfig
from docvino.specs import get_preset, layout_of, picodet
from docvino.specs.model import ModelSpec, Preset, VlmPreset
from docvino.text.blocks import assemble
from docvino.text.elements import blocks_of_lines, element_blocks
from docvino.text.restructure import restructure

_CONVINCING = 0.9  # mean confidence at which no other way up is tried; text upside down reads far below it


@dataclass(frozen=True, eq=False)
class ParsedPage:
    """A page and the image it was read from; `image` is None when there is none, `problem` is what a page failed of."""

    page: Page
    image: PageImage | None
    stats: Stats
    problem: DocvinoError | None = None


@dataclass(frozen=True, eq=False)
class _Reading:
    """A page image with what was read on it; `found` are its regions before some were chosen, where that is done."""

    image: PageImage
    regions: Sequence[Region]
    crops: Sequence[Crop]
    answers: Sequence[Answer]
    found: Sequence[Region] = ()

    @property
    def parts(self) -> tuple[int, Sequence[Region], Sequence[Crop], Sequence[Answer]]:
        return self.image.index, self.regions, self.crops, self.answers

    @property
    def certain_letters(self) -> float:
        """Letters read, each counted by its confidence."""
        return sum(len(answer.text) * answer.confidence for answer in self.answers)

    @property
    def confidence(self) -> float:
        return self.certain_letters / max(1, sum(len(answer.text) for answer in self.answers))


@dataclass(frozen=True, eq=False)
class Stages:
    """What a preset reads pages with.

    orientation   None: pages are read as they lie
    layout        None: a page is one element
    choose        which of the regions are read; None: all of them
    tasks         what such an element may be
    cut           page, regions, options -> crops
    assemble      -> blocks in reading order
    warm          runs the sizes that a device compiles for; how many there are
    """

    orientation: Orientation | None
    layout: LayoutStage | None
    reader: Reader
    tasks: tuple[Task, ...]
    cut: Callable[[PageImage, Sequence[Region], ParseOptions], list[Crop]]
    assemble: Callable[[_Reading], tuple[Block, ...]]
    models: tuple[ModelProvenance, ...]
    warm: Callable[[], int]
    elements: tuple[Task, ...] = ()
    is_shared: bool = False
    close: Callable[[], None] = lambda: None
    choose: Callable[[Sequence[Region]], list[Region]] | None = None


class Parser:
    """Holds compiled models and reads documents with them; threads may share it and take turns page by page.

    with Parser.open(RuntimeConfig()) as parser:
        document = parser.parse("scan.pdf")

    Leaving the `with` block frees the models.
    """

    def __init__(self, runtime: RuntimeConfig, stages: Stages) -> None:
        self.runtime = runtime
        self._stages = stages
        self._lock = threading.RLock()
        # A reader that is shared reads crops of several pages at once; else a page has all models to itself.
        self._page_lock: AbstractContextManager[object] = nullcontext() if stages.is_shared else self._lock

    @classmethod
    def open(cls, runtime: RuntimeConfig, *, shared: bool = False) -> Parser:
        """Loads and compiles the models of `runtime.preset`.

        shared   crops of several threads are read side by side where the preset can do that, instead of in turns

        Raises: ConfigError, BundleError (a model is not converted), DeviceError, InferenceError and VerifyError (one
        fails or answers wrongly where it is loaded for the first time), MissingExtraError.
        """
        folder = vlm_folder(runtime)
        if folder is not None:
            return cls(runtime, _open_vlm(folder, runtime, shared=shared))
        preset = get_preset(runtime.preset)
        assert not isinstance(preset, VlmPreset)  # those have a folder
        return cls(runtime, _open_lines(preset, runtime))

    def __enter__(self) -> Parser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stages.close()
        del self._stages

    def parse(
        self, source: str | Path | bytes, options: ParseOptions | None = None, *, name: str = "bytes"
    ) -> Document:
        """Reads a whole document: a path, "-" for standard input, or the bytes themselves (then `name` is its name).

        A page that fails is in the document with status "failed" and its error; the others are not touched.

        Raises: InputError when the document as a whole cannot be opened.
        """
        options = options or ParseOptions()
        with open_source(source, options, name) as document:
            # Without the images: a long document must not be held as pixels.
            parsed = [replace(item, image=None) for item in self.pages(document, options)]
            return self.collect(document.source, parsed, options)

    def pages(
        self,
        document: InputDocument,
        options: ParseOptions,
        finished: Mapping[int, ParsedPage] = MappingProxyType({}),
        watch: Watch = unwatched,
    ) -> Iterator[ParsedPage]:
        """The selected pages of an opened document, in order; those in `finished`, by index, are not read again.

        watch   gets how far the page is that is being read, where a reader takes long enough to tell; what it raises
                ends the page: InputError as one that failed, anything else ends the reading

        Raises: as `check`.
        """
        self.check(options)
        for index in document.page_indices:
            if index in finished:
                yield finished[index]
                continue
            with self._page_lock:
                parsed = self._read_page(document, index, options, watch)
            yield parsed

    @property
    def elements(self) -> tuple[Task, ...]:
        """What `read_element` can be asked for; none where the preset reads lines."""
        return self._stages.elements

    def read_element(self, image: PageImage, task: Task, options: ParseOptions, watch: Watch = unwatched) -> Answer:
        """What the model says of a picture that is one element, as it says it: a table comes with its OTSL tags.

        Raises: ConfigError for a task that is none of `elements`; InputError, InferenceError.
        """
        if task not in self.elements:
            raise ConfigError(
                f"{self.runtime.preset} does not read a picture as {task}",
                fix=f"it reads {', '.join(self.elements) or 'pages only'}",
            )
        with self._page_lock:
            (answer,) = self._stages.reader.read([Crop(image.pixels, task, ())], options, Clock(watch))
        if answer.problem is not None:
            raise answer.problem
        return answer

    def check(self, options: ParseOptions) -> None:
        """Raises: ConfigError for what the preset does not read, and for options that need another one."""
        if options.concatenate_pages and not options.restructure_pages:
            raise ConfigError("pages are concatenated when they are restructured", fix="add --restructure-pages")
        if options.task not in self._stages.tasks:
            raise ConfigError(
                f"{self.runtime.preset} does not read a page as {options.task}",
                fix=f"--task may be {', '.join(self._stages.tasks)}; other presets read more",
            )
        asked: dict[Task, bool] = {"chart": options.use_chart_recognition, "seal": options.use_seal_recognition}
        for task, is_asked in asked.items():
            if is_asked and task not in self._stages.tasks:
                raise ConfigError(
                    f"{self.runtime.preset} does not read {task}s",
                    fix=f"leave out --use-{task}-recognition, or use another preset",
                )

    def collect(self, source: Source, parsed: Sequence[ParsedPage], options: ParseOptions) -> Document:
        """Pages -> document, restructured where that is asked for."""
        document = Document(
            source=source,
            pages=tuple(item.page for item in parsed),
            provenance=self.provenance(options),
            stats=sum((item.stats for item in parsed), Stats()),
        )
        # Where it is not asked for, too: pages of an earlier run may have been.
        return restructure(
            document,
            merge_tables=options.restructure_pages and options.merge_tables,
            relevel_titles=options.restructure_pages and options.relevel_titles,
        )

    def provenance(self, options: ParseOptions) -> Provenance:
        """What reads the document: models as compiled, versions, options (never the password)."""
        return Provenance(
            package=f"docvino {__version__}",
            preset=self.runtime.preset,
            openvino=openvino_version(),
            models=self._stages.models,
            options=options.model_dump(exclude={"password"}),
        )

    def warm(self) -> int:
        """Runs every size of input that devices are given ahead of time; returns how many, 0 where any size is as good.

        Raises: InferenceError.
        """
        with self._lock:
            return self._stages.warm()

    def _read_page(self, document: InputDocument, index: int, options: ParseOptions, watch: Watch) -> ParsedPage:
        clock = Clock(watch)
        source: PageImage | None = None
        try:
            with clock.measure("render"):
                source = document.page(index)
            reading = self._read_upright(source, options, clock)
            with clock.measure("assemble"):
                page = _page(reading, self._stages.assemble)
            return ParsedPage(page, reading.image, _stats(clock, reading))
        except (InputError, InferenceError) as error:
            return ParsedPage(_failed(index, source, error), source, _stats(clock), error)

    def _read_upright(self, source: PageImage, options: ParseOptions, clock: Clock) -> _Reading:
        """The page read the right way up; where the orientation model is not sure, the way up that reads best."""
        candidates: list[Rotation] = [0]
        if options.auto_rotate and self._stages.orientation is not None:
            with self._lock, clock.measure("orientation"):
                candidates = self._stages.orientation.candidates(source)
        readings: list[_Reading] = []
        for degrees in candidates:
            readings.append(self._read(turn(source, degrees), options, clock))
            if readings[-1].confidence >= _CONVINCING:
                break
        return max(readings, key=lambda reading: reading.certain_letters)

    def _read(self, image: PageImage, options: ParseOptions, clock: Clock) -> _Reading:
        regions: list[Region] = []
        found: list[Region] = []
        if self._stages.layout is not None:
            with self._lock, clock.measure("layout"):
                regions = self._stages.layout.detect(image, options)
                if self._stages.choose is not None:
                    found, regions = regions, self._stages.choose(regions)
        crops = self._stages.cut(image, regions, options)
        return _Reading(image, regions, crops, self._stages.reader.read(crops, options, clock), found)


def open_source(source: str | Path | bytes, options: ParseOptions, name: str = "bytes") -> InputDocument:
    """Opens a path, "-" or bytes.

    Raises: InputError.
    """
    if not isinstance(source, bytes):
        source, name = read_source(str(source))
    return open_document(source, name, options)


def _open_lines(preset: Preset, runtime: RuntimeConfig) -> Stages:
    bundles: list[tuple[Bundle, Loaded[Model]]] = []

    def load(spec: ModelSpec[Any], at: RuntimeConfig = runtime) -> Model:
        bundles.append(_load(spec, preset.name, at))
        return bundles[-1][1].what

    if runtime.layout == "whitespace":
        raise ConfigError(f"{preset.name} finds lines by a model of its own", fix="--layout may be auto, picodet, none")
    orientation = Orientation(load(preset.orientation), preset.orientation)
    layout = (
        None
        if runtime.layout == "none"
        else PicoDetLayout(load(preset.layout, runtime.on_stage("layout")), preset.layout)
    )
    detector = load(preset.detection)
    recogniser = load(preset.recognition)
    characters = bundles[-1][0].characters()
    lines = LineReader(detector, preset.detection, recogniser, preset.recognition, characters)
    readers: dict[Task, Reader] = {"ocr": lines}
    if layout is not None:  # it is what finds tables
        readers["table"] = TableReader(load(preset.table), preset.table)
    return Stages(
        orientation,
        layout,
        ByTask(readers),
        tasks=("ocr",),
        cut=lambda page, regions, _: cut_lines(page, regions),
        assemble=_blocks_of_lines,
        models=tuple(_provenance(*pair) for pair in bundles),
        warm=lines.warm,
    )


def _load(spec: ModelSpec[Any], name: str, runtime: RuntimeConfig) -> tuple[Bundle, Loaded[Model]]:
    """
    name   what fetches and converts the model: its preset or itself
    """
    try:
        bundle = open_bundle(bundle_folder(runtime.data_dir, spec.name, runtime.precision))
    except BundleError as error:
        fix = f"docvino fetch {name} && docvino convert {name} --precision {runtime.precision}"
        others = converted_at(runtime.data_dir / "bundles", spec.name)
        if others and name != spec.name:  # a layout model has the precision of what it works for
            fix = use_other(name, runtime.precision, others[-1])
        raise BundleError(str(error), fix=fix) from error
    return bundle, load_model(bundle, spec, runtime)


def _open_vlm(folder: Path, runtime: RuntimeConfig, *, shared: bool) -> Stages:
    bundle = open_vlm_bundle(folder)
    name = bundle.manifest.spec
    kind = layout_of(name) if runtime.layout == "auto" else runtime.layout
    spec: ModelSpec[Any] | None = kind if isinstance(kind, ModelSpec) else None
    if kind == "picodet":
        spec = picodet.LAYOUT
    finder = _load_layout(spec, runtime) if spec is not None else None
    alone, loaded = VlmReader.open(bundle, runtime)
    reader = SharedReader(alone) if shared else alone
    close = reader.close if isinstance(reader, SharedReader) else lambda: None
    parts = tuple(_came_to_be(bundle, part.compiled, part.fallback, part.part) for part in loaded)
    if finder is not None:
        parts = (_provenance(*finder), *parts)
    if kind == "none":
        return Stages(
            orientation=None,
            layout=None,
            reader=reader,
            tasks=bundle.facts.tasks,
            cut=lambda page, _, options: whole(page, options.task),
            assemble=lambda reading: element_blocks(*reading.parts),
            models=parts,
            warm=reader.warm,
            elements=bundle.facts.tasks,
            is_shared=shared,
            close=close,
        )
    if finder is not None and isinstance(kind, ModelSpec):
        return Stages(
            orientation=None,
            layout=DocLayout(finder[1].what, kind),
            reader=reader,
            tasks=bundle.facts.tasks,
            cut=cut_regions,
            assemble=lambda reading: element_blocks(*reading.parts),
            models=parts,
            warm=reader.warm,
            elements=bundle.facts.tasks,
            is_shared=shared,
            close=close,
            choose=doclayout.choose,
        )
    return Stages(
        orientation=None,
        layout=InkLayout(PicoDetLayout(finder[1].what, picodet.LAYOUT) if finder is not None else None),
        reader=reader,
        tasks=("ocr",),
        cut=lambda page, regions, _: cut_elements(page, regions),
        assemble=lambda reading: blocks_of_lines(*reading.parts),
        models=parts,
        warm=reader.warm,
        elements=bundle.facts.tasks,
        is_shared=shared,
        close=close,
    )


def _load_layout(spec: ModelSpec[Any], runtime: RuntimeConfig) -> tuple[Bundle, Loaded[Model]]:
    """The layout model beside a vision-language model, at a precision that it has."""
    beside = runtime.on_stage("layout").model_copy(update={"precision": spec.stored_as(runtime.precision)})
    try:
        return _load(spec, spec.name, beside)
    except BundleError as error:
        raise BundleError(
            f"whole pages need a layout model: {error}",
            fix=f"{error.fix}; or add --layout none for a page that is one element (and --task), else whitespace",
        ) from error


def _blocks_of_lines(reading: _Reading) -> tuple[Block, ...]:
    lines = [
        line.model_copy(update={"polygon": moved(line.polygon, crop.offset_px)})
        for crop, answer in zip(reading.crops, reading.answers, strict=True)
        for line in answer.lines
    ]
    structures = {
        crop.regions[0]: replace(
            answer.structure, polygons=tuple(moved(polygon, crop.offset_px) for polygon in answer.structure.polygons)
        )
        for crop, answer in zip(reading.crops, reading.answers, strict=True)
        if answer.structure is not None
    }
    return assemble(reading.image.index, reading.regions, lines, structures)


def _page(reading: _Reading, assemble_blocks: Callable[[_Reading], tuple[Block, ...]]) -> Page:
    """Raises: the problem of its crops when none of them has an answer."""
    image = reading.image
    problems = [answer.problem for answer in reading.answers if answer.problem is not None]
    if problems and len(problems) == len(reading.answers):
        raise problems[0]
    blocks = assemble_blocks(reading)
    dropped = sum(answer.dropped_lines for answer in reading.answers)
    warnings = image.warnings
    if dropped:
        warnings += (f"{dropped} lines read with too little confidence were left out (--min-confidence)",)
    if problems:
        warnings += (f"{len(problems)} of {len(reading.answers)} elements were not read: {problems[0]}",)
    # A table's structure that is too long leaves its text whole.
    ended = ("stop", "repetition", "blank")
    cut_off = [a.finish for a in reading.answers if a.structure is None and a.finish not in ended]
    if cut_off:
        warnings += (f"{len(cut_off)} elements were not read to their end ({', '.join(sorted(set(cut_off)))})",)
    # A page whose every line was too uncertain is not a blank one.
    whole_page = not (problems or cut_off or (dropped and not blocks))
    has_something = any(block.finish != "blank" for block in blocks)
    return Page(
        page_index=image.index,
        width_px=image.width_px,
        height_px=image.height_px,
        dpi=image.dpi,
        rotation_degrees=image.rotation,
        source_box=image.source_box,
        status="partial" if not whole_page else "ok" if has_something else "empty",
        blocks=blocks,
        regions=tuple(
            Found(label=region.label, score=region.score, box=region.bounds, polygon=region.polygon)
            for region in reading.found
        ),
        warnings=warnings,
    )


def _failed(index: int, image: PageImage | None, error: InputError | InferenceError) -> Page:
    return Page(
        page_index=index,
        width_px=image.width_px if image else 0,
        height_px=image.height_px if image else 0,
        dpi=image.dpi if image else None,
        status="failed",
        error=str(error),
    )


def _provenance(bundle: Bundle, loaded: Loaded[Model]) -> ModelProvenance:
    return _came_to_be(bundle, loaded.what.compiled, loaded.fallback)


def _came_to_be(
    bundle: Bundle | VlmBundle, compiled: Compiled, fallback: str | None, part: str | None = None
) -> ModelProvenance:
    device = compiled.target.device
    return ModelProvenance(
        spec=bundle.manifest.spec,
        weight_precision=bundle.manifest.precision,
        execution_precision=compiled.execution_precision,
        devices=compiled.devices,
        manifest_sha256=bundle.manifest_sha256,
        part=part,
        device_name=device.full_name,
        driver=device.driver,
        from_cache=compiled.from_cache,
        fallback=fallback,
    )


def _stats(clock: Clock, reading: _Reading | None = None) -> Stats:
    return Stats(
        **{f"{stage}_ms": round(ms, 3) for stage, ms in clock.ms.items()},
        crops=len(reading.crops) if reading else 0,
        lines=sum(len(answer.lines) for answer in reading.answers) if reading else 0,
        prompt_tokens=sum(answer.prompt_tokens for answer in reading.answers) if reading else 0,
        tokens=sum(answer.tokens for answer in reading.answers) if reading else 0,
    )
