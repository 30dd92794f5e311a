"""The words of docvino: what travels through the corridor, and what comes out at its end.

    PageImage -> Region -> Crop -> Answer      carry pixels, live for one page (frozen dataclasses)
    Line, Cell, Block, Page, Document          carry none, are kept, compared, written (frozen pydantic models)

One coordinate frame everywhere: pixels of the upright page image, origin top-left, x to the right, y down.
Polygons run clockwise from their top-left corner; the first point is not repeated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict

from docvino.errors import DocvinoError

if TYPE_CHECKING:  # the command line's help must not wait for numpy
    import numpy as np
    from numpy.typing import NDArray

SCHEMA_VERSION = "1.1"
BULLETS = ("•", "●", "▪", "■", "◦", "‣", "·")  # printed marks that begin an item of a list

Point = tuple[float, float]
Polygon = tuple[Point, ...]
Box = tuple[float, float, float, float]  # left, top, right, bottom
Rotation = Literal[0, 90, 180, 270]
Task = Literal["ocr", "table", "formula", "chart", "seal", "spotting"]
# Why a text ended: by itself, at the token limit, in a loop, with numbers that are none, at the time limit, by request;
# or why there is none: the crop has no ink, and was not shown to the model.
Finish = Literal["stop", "length", "repetition", "nonfinite", "time", "cancelled", "blank"]
PageStatus = Literal["ok", "empty", "partial", "failed"]
ContentFormat = Literal["text", "html", "latex", "none"]


@dataclass(frozen=True, eq=False)
class PageImage:
    """One page as pixels.

    pixels       uint8 (H, W, 3) RGB, read-only; may be a turned view
    index        0 for the first page of the source
    dpi          pixels per inch when the source has a physical size, else None
    rotation     degrees clockwise by which docvino has turned the source page to make this image
    source_box   the part of the source page that the image shows, before turning: PDF points or image pixels
    warnings     what the reader of the source had to do differently, e.g. a lower resolution
    """

    index: int
    pixels: NDArray[np.uint8]
    dpi: float | None = None
    rotation: Rotation = 0
    source_box: Box | None = None
    warnings: tuple[str, ...] = ()

    @property
    def width_px(self) -> int:
        return int(self.pixels.shape[1])

    @property
    def height_px(self) -> int:
        return int(self.pixels.shape[0])


@dataclass(frozen=True)
class Region:
    """A part of a page with one role, as the layout stage sees it. `score` is in [0, 1].

    box   the upright box that was found, where the polygon is another outline of the same thing
    """

    label: str
    score: float
    polygon: Polygon
    order: int | None = None
    box: Box | None = None

    @property
    def bounds(self) -> Box:
        return self.box or polygon_box(self.polygon)


@dataclass(frozen=True, eq=False)
class Crop:
    """What a reader reads in one go: uint8 (H, W, 3) RGB pixels, and the regions they show.

    `regions` are places in the page's list of regions.

    `offset_px` is where the crop's top-left corner lies on the page.

    figures      regions inside this table and the marks that were painted over them, "" where none was
    is_picture   it is shown as a picture, too, whatever is read in it
    """

    pixels: NDArray[np.uint8]
    task: Task
    regions: tuple[int, ...]
    offset_px: Point = (0.0, 0.0)
    figures: tuple[tuple[str, int], ...] = ()
    is_picture: bool = False


@dataclass(frozen=True)
class Structure:
    """How a table is built, without its text.

    tokens      HTML in pieces: "<tr>", "</tr>", "<td></td>" for a plain cell; a cell with spans is "<td",
                ' colspan="2"', ">", "</td>"
    polygons    one per cell, in the order of the tokens
    score       mean probability of the tokens, [0, 1]
    finish      "length" when the table has more tokens than the model can say
    """

    tokens: tuple[str, ...]
    polygons: tuple[Polygon, ...]
    score: float
    finish: Finish = "stop"


@dataclass(frozen=True)
class Answer:
    """What a reader says of one crop. `confidence` is in [0, 1]; polygons are in the crop's pixels.

    prompt_tokens, tokens   of a text generator: those of the question, and those it computed (with the end token)
    problem                 why there is no answer; the other crops of the page have theirs
    """

    text: str
    confidence: float
    lines: tuple[Line, ...] = ()
    finish: Finish = "stop"
    dropped_lines: int = 0
    structure: Structure | None = None
    prompt_tokens: int = 0
    tokens: int = 0
    problem: DocvinoError | None = None


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Line(Frozen):
    """One line of text. `confidence` in [0, 1] is the mean probability of its characters."""

    text: str
    polygon: Polygon
    confidence: float


class Found(Frozen):
    """A region as the layout model found it: its upright box, its outline, and a score in [0, 1]."""

    label: str
    score: float
    box: Box
    polygon: Polygon


class Cell(Frozen):
    """One cell of a table; rows and columns count from 0.

    An empty cell has no confidence. `polygon` is None for a cell whose place on the page is not known. `figures` are
    the ids of picture blocks that stand in the cell.
    """

    row: int
    column: int
    row_span: int = 1
    column_span: int = 1
    text: str
    confidence: float | None = None
    polygon: Polygon | None = None
    figures: tuple[str, ...] = ()


class Block(Frozen):
    r"""One piece of a page in reading order: a title, a paragraph group, a table, a figure.

    id             unique in the document, e.g. "p1-b3" (page 1, block 3)
    label          role by the layout model's own name; "text" for text that the layout model did not see
    polygons       every region the block covers
    order          place in the page's reading order, from 0
    group          set where several regions were read as one text: the block's own order
    content        text in `format`; paragraphs are separated by an empty line; of a table `<table>`, or one line a row
                   with tabs between the cells when its structure is not known. Formulas in text and in cells stand as
                   `\(x\)` and `\[x\]`; a block in LaTeX is formulas without delimiters, an empty line between two.
                   In a `<table>`, `<img data-block="ID">` stands for a picture that is a block of its own
    confidence     mean of its lines weighted by their length, None when nothing was read
    layout_score   score of the layout model, None when it did not see the block
    finish         why its text ended; "blank" where there is no ink
    level          of a heading, from 1 for a chapter, when pages were restructured; None: its own numbering tells it
    continues      id of the table that this one goes on from, of a page before, when pages were restructured
    repeated_rows  of such a table: rows at its top that repeat the head of that one
    """

    id: str
    label: str
    polygons: tuple[Polygon, ...]
    order: int
    group: int | None = None
    content: str
    format: ContentFormat = "text"
    confidence: float | None = None
    layout_score: float | None = None
    lines: tuple[Line, ...] = ()
    cells: tuple[Cell, ...] = ()
    finish: Finish = "stop"
    level: int | None = None
    continues: str | None = None
    repeated_rows: int = 0
    warnings: tuple[str, ...] = ()


class Page(Frozen):
    """One page. `page_index` counts from 0; `rotation_degrees` is the clockwise turn that made the page upright.

    `source_box` is the part of the source page that was read (PDF points or image pixels, before turning).

    `regions` are what PP-DocLayout found, in its order, before it was decided which of overlapping ones are read; other
    layouts leave none.
    """

    page_index: int
    width_px: int
    height_px: int
    dpi: float | None = None
    rotation_degrees: Rotation = 0
    source_box: Box | None = None
    status: PageStatus
    error: str | None = None
    blocks: tuple[Block, ...] = ()
    regions: tuple[Found, ...] = ()
    warnings: tuple[str, ...] = ()


class Source(Frozen):
    """Where the document came from. `sha256` is of the bytes read."""

    name: str
    sha256: str
    media_type: str


class ModelProvenance(Frozen):
    """One model as it really ran: read back from the compiled model, not from the wish.

    devices        as compiled, e.g. GPU.1
    device_name    what the device calls itself; None in documents of older versions
    driver         version of its user-mode driver; None: it has none, or does not say
    from_cache     whether the compiled model was loaded; it decides nothing but the time
    fallback       what else was asked for, and why it is not; None: it runs as asked
    part           of a vision-language model, and how it runs, e.g. "decoder: paged, keys and values u8"
    """

    spec: str
    weight_precision: str
    execution_precision: str
    devices: tuple[str, ...]
    manifest_sha256: str
    part: str | None = None
    device_name: str | None = None
    driver: str | None = None
    from_cache: bool = False
    fallback: str | None = None


class Provenance(Frozen):
    """What read the document: package, preset, OpenVINO, the models as compiled, and the options of the call."""

    package: str
    preset: str
    openvino: str
    models: tuple[ModelProvenance, ...]
    options: dict[str, str | int | float | bool | None]

    def decides(self) -> Provenance:
        """Without what differs between runs that read the same: whether compiled models came from the cache."""
        models = tuple(model.model_copy(update={"from_cache": False}) for model in self.models)
        return self.model_copy(update={"models": models})


class Stats(Frozen):
    """Milliseconds by stage, and counts. Times are of the wall clock and vary from run to run."""

    render_ms: float = 0.0
    orientation_ms: float = 0.0
    layout_ms: float = 0.0
    detection_ms: float = 0.0
    recognition_ms: float = 0.0
    tables_ms: float = 0.0
    vision_ms: float = 0.0
    decoding_ms: float = 0.0
    assemble_ms: float = 0.0
    crops: int = 0
    lines: int = 0
    prompt_tokens: int = 0
    tokens: int = 0

    @property
    def total_ms(self) -> float:
        return float(sum(getattr(self, name) for name in type(self).model_fields if name.endswith("_ms")))

    def __add__(self, other: Stats) -> Stats:
        return Stats(**{name: getattr(self, name) + getattr(other, name) for name in Stats.model_fields})


class Document(Frozen):
    """A whole parsed document. Small (no pixels), comparable with ==, and equal to itself after a trip through JSON."""

    schema_version: str = SCHEMA_VERSION
    source: Source
    pages: tuple[Page, ...]
    provenance: Provenance
    stats: Stats


def box_polygon(left: float, top: float, right: float, bottom: float) -> Polygon:
    """The rectangle as a polygon: clockwise from its top-left corner."""
    return ((left, top), (right, top), (right, bottom), (left, bottom))


def moved(polygon: Polygon, by: Point) -> Polygon:
    """The polygon moved to the right and down by (x, y)."""
    return tuple((x + by[0], y + by[1]) for x, y in polygon)


def polygon_box(polygon: Polygon) -> Box:
    """The smallest upright box around the polygon: left, top, right, bottom."""
    xs = [x for x, _ in polygon]
    ys = [y for _, y in polygon]
    return min(xs), min(ys), max(xs), max(ys)
