"""The story: bytes -> pages -> regions -> crops -> answers -> blocks -> document."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

from docvino import __version__
from docvino.bundle import Bundle, bundle_folder, open_bundle
from docvino.device import Model, compile_model, openvino_version
from docvino.document import (
    Answer,
    Block,
    Crop,
    Document,
    ModelProvenance,
    Page,
    PageImage,
    PageStatus,
    Provenance,
    Region,
    Source,
    Stats,
)
from docvino.errors import InferenceError, InputError
from docvino.inputs import InputDocument, open_document, read_source
from docvino.runtime.crops import cut
from docvino.runtime.layout import PicoDetLayout
from docvino.runtime.lines import LineReader
from docvino.runtime.orientation import Orientation
from docvino.runtime.stages import Clock, LayoutStage, Reader
from docvino.settings import ParseOptions, RuntimeConfig
from docvino.specs import get_preset
from docvino.specs.model import ModelSpec
from docvino.text.blocks import assemble


@dataclass(frozen=True, eq=False)
class ParsedPage:
    """A page and the image it was read from; `image` is None when the page could not be opened."""

    page: Page
    image: PageImage | None
    stats: Stats


class Parser:
    """Holds compiled models and reads documents with them. Use from one thread at a time; a lock sees to it.

    with Parser.open(RuntimeConfig()) as parser:
        document = parser.parse("scan.pdf")
    """

    def __init__(
        self,
        runtime: RuntimeConfig,
        orientation: Orientation,
        layout: LayoutStage,
        reader: Reader,
        models: tuple[ModelProvenance, ...],
    ) -> None:
        self.runtime = runtime
        self._orientation = orientation
        self._layout = layout
        self._reader = reader
        self._models = models
        self._lock = threading.Lock()

    @classmethod
    def open(cls, runtime: RuntimeConfig) -> Parser:
        """Loads and compiles the models of `runtime.preset`.

        Raises: ConfigError, BundleError (a model is not converted), DeviceError.
        """
        preset = get_preset(runtime.preset)
        bundles: list[tuple[Bundle, Model]] = []

        def load(spec: ModelSpec[Any]) -> Model:
            bundle = open_bundle(bundle_folder(runtime.data_dir, spec.name, runtime.precision))
            model = compile_model(bundle.graph, spec, runtime)
            bundles.append((bundle, model))
            return model

        orientation = Orientation(load(preset.orientation), preset.orientation)
        layout = PicoDetLayout(load(preset.layout), preset.layout)
        detector = load(preset.detection)
        recogniser = load(preset.recognition)
        reader = LineReader(
            detector,
            preset.detection,
            recogniser,
            preset.recognition,
            bundles[-1][0].characters(),
        )
        return cls(runtime, orientation, layout, reader, tuple(_provenance(*pair) for pair in bundles))

    def __enter__(self) -> Parser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del self._orientation, self._layout, self._reader

    def parse(
        self, source: str | Path | bytes, options: ParseOptions | None = None, *, name: str = "bytes"
    ) -> Document:
        """Reads a whole document: a path, "-" for standard input, or the bytes themselves (then `name` is its name).

        A page that fails is in the document with status "failed" and its error; the others are not touched.

        Raises: InputError when the document as a whole cannot be opened.
        """
        options = options or ParseOptions()
        with open_source(source, options, name) as document:
            parsed = list(self.pages(document, options))
            return self.collect(document.source, parsed, options)

    def pages(
        self,
        document: InputDocument,
        options: ParseOptions,
        finished: Mapping[int, ParsedPage] = MappingProxyType({}),
    ) -> Iterator[ParsedPage]:
        """The selected pages of an opened document, in order; those in `finished`, by index, are not read again."""
        for index in document.page_indices:
            if index in finished:
                yield finished[index]
                continue
            with self._lock:
                parsed = self._read_page(document, index, options)
            yield parsed

    def collect(self, source: Source, parsed: Sequence[ParsedPage], options: ParseOptions) -> Document:
        """Pages -> document."""
        return Document(
            source=source,
            pages=tuple(item.page for item in parsed),
            provenance=self.provenance(options),
            stats=sum((item.stats for item in parsed), Stats()),
        )

    def provenance(self, options: ParseOptions) -> Provenance:
        """What reads the document: models as compiled, versions, options (never the password)."""
        return Provenance(
            package=f"docvino {__version__}",
            preset=self.runtime.preset,
            openvino=openvino_version(),
            models=self._models,
            options=options.model_dump(exclude={"password"}),
        )

    def _read_page(self, document: InputDocument, index: int, options: ParseOptions) -> ParsedPage:
        clock = Clock()
        image: PageImage | None = None
        try:
            with clock.measure("render"):
                image = document.page(index)
            if options.auto_rotate:
                with clock.measure("orientation"):
                    image = self._orientation.upright(image)
            with clock.measure("layout"):
                regions = self._layout.detect(image)
            crops = cut(image, regions)
            clock.counts["crops"] += len(crops)
            answers = self._reader.read(crops, options, clock)
            with clock.measure("assemble"):
                page = _page(image, regions, crops, answers)
        except (InputError, InferenceError) as error:
            page = _failed(index, image, error)
        return ParsedPage(page, image, _stats(clock))


def open_source(source: str | Path | bytes, options: ParseOptions, name: str = "bytes") -> InputDocument:
    """Opens a path, "-" or bytes.

    Raises: InputError.
    """
    if not isinstance(source, bytes):
        source, name = read_source(str(source))
    return open_document(source, name, options)


def _page(image: PageImage, regions: Sequence[Region], crops: Sequence[Crop], answers: Sequence[Answer]) -> Page:
    lines = [
        line.model_copy(
            update={"polygon": tuple((x + crop.offset_px[0], y + crop.offset_px[1]) for x, y in line.polygon)}
        )
        for crop, answer in zip(crops, answers, strict=True)
        for line in answer.lines
    ]
    blocks = assemble(image.index, regions, lines)
    dropped = sum(answer.dropped_lines for answer in answers)
    warnings = image.warnings
    if dropped:
        warnings += (f"{dropped} lines read with too little confidence were left out (--min-confidence)",)
    return Page(
        page_index=image.index,
        width_px=image.width_px,
        height_px=image.height_px,
        dpi=image.dpi,
        rotation_degrees=image.rotation,
        source_box=image.source_box,
        status=_status(blocks),
        blocks=blocks,
        warnings=warnings,
    )


def _status(blocks: Sequence[Block]) -> PageStatus:
    return "ok" if blocks else "empty"


def _failed(index: int, image: PageImage | None, error: InputError | InferenceError) -> Page:
    return Page(
        page_index=index,
        width_px=image.width_px if image else 0,
        height_px=image.height_px if image else 0,
        dpi=image.dpi if image else None,
        status="failed",
        error=f"{error} ({error.fix})",
    )


def _provenance(bundle: Bundle, model: Model) -> ModelProvenance:
    return ModelProvenance(
        spec=bundle.manifest.spec,
        weight_precision=bundle.manifest.precision,
        execution_precision=model.execution_precision,
        devices=model.devices,
        manifest_sha256=bundle.manifest_sha256,
    )


def _stats(clock: Clock) -> Stats:
    return Stats(
        **{f"{stage}_ms": round(ms, 3) for stage, ms in clock.ms.items()},
        **{name: int(count) for name, count in clock.counts.items()},
    )
