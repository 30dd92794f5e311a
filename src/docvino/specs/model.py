"""The form of a model's facts. A spec holds what is true of the weights, never of a machine or of a call."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from docvino.document import Task

Role = Literal[
    "text-detection",
    "text-recognition",
    "layout",
    "document-layout",
    "orientation",
    "line-orientation",
    "table-structure",
]
Asking = Literal["use_chart_recognition", "use_seal_recognition", "use_ocr_for_image_block"]
ImageNetMean = (0.485, 0.456, 0.406)
ImageNetStd = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class WheelMember:
    """One file inside one pinned wheel of the Python package index. `sha256` is of the member, not of the wheel."""

    package: str
    version: str
    member: str
    sha256: str
    size_bytes: int

    @property
    def file_name(self) -> str:
        return self.member.rsplit("/", 1)[-1]


def is_safe_path(path: str) -> bool:
    """Whether `path` names a file inside its folder on every system: relative, forward slashes, nothing reserved."""
    return all(_SAFE_PART.fullmatch(part) and not _RESERVED.fullmatch(part) for part in path.split("/"))


# Letters that mean something to a shell, a drive or a URL are no part of a model's file name, nor is a leading dot
# (parent folders, docvino's own temporary files) or a trailing one (Windows drops it).
_SAFE_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,126}(?<!\.)")
_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?")


@dataclass(frozen=True)
class HubFile:
    """One file of a model on a hub; None is what nobody has told us yet, then the hub's own word is taken.

    path       inside the repository and inside the fetched folder, with forward slashes
    required   whether the folder is of no use without it
    """

    path: str
    size_bytes: int | None = None
    sha256: str | None = None
    required: bool = True

    def __post_init__(self) -> None:
        if not is_safe_path(self.path):
            raise ValueError(f"{self.path!r} may lead out of its folder")


@dataclass(frozen=True)
class Repository:
    """A model's place on one hub. `revision` is a commit where one is known; a branch is held by the files' sha256."""

    name: str
    revision: str


@dataclass(frozen=True)
class HubFolder:
    """A model that is a folder of data files on hubs. `repositories` by hub: huggingface, modelscope, aistudio."""

    name: str
    title: str
    licence: str
    homepage: str
    repositories: Mapping[str, Repository]
    files: tuple[HubFile, ...]


@dataclass(frozen=True)
class HubMember:
    """The graph of a model that is a folder on hubs, by its path in that folder."""

    folder: HubFolder
    member: str

    @property
    def file_name(self) -> str:
        return self.member


@dataclass(frozen=True)
class TensorContract:
    """A graph input or output; -1 is a dimension that may change from call to call."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class DetectionFacts:
    """Text detection by differentiable binarisation (DB).

    mean, std       of channels in BGR order as the network sees them, pixels scaled to 0..1
    limit_side_px   the shorter side is enlarged to at least this
    max_enlargement ... but no page is enlarged by more than this
    max_side_px     the longer side is reduced to at most this
    max_area_px     a larger page is reduced to this area
    stride_px       both sides are rounded to a multiple of this
    threshold       a pixel of the probability map above it is text, [0, 1]
    box_threshold   a box whose mean probability is below it is dropped, [0, 1]
    unclip_ratio    how far a box grows: area * ratio / perimeter, in map pixels
    max_boxes       most boxes of one page
    """

    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    limit_side_px: int
    max_enlargement: float
    max_side_px: int
    max_area_px: int
    stride_px: int
    threshold: float
    box_threshold: float
    unclip_ratio: float
    max_boxes: int


@dataclass(frozen=True)
class RecognitionFacts:
    """Text recognition with CTC: line images of one height, blank at class 0, a space at the last class.

    Pixels are scaled to -1..1, BGR. The dictionary, one character per line, is the ONNX metadata entry
    `dictionary_key`, or the companion file `dictionary_file`.
    """

    height_px: int
    min_width_px: int
    max_width_px: int
    dictionary_key: str | None = None
    dictionary_file: str | None = None


@dataclass(frozen=True)
class LayoutFacts:
    """Layout detection by a PicoDet head (GFL): class scores and box-side distributions on several strides.

    Pixels are scaled to 0..1 and normalised by mean and std in the order the network sees them.
    `score_threshold`, `iou_threshold` and `candidates` drive the non-maximum suppression per class.
    """

    width_px: int
    height_px: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    strides_px: tuple[int, ...]
    labels: tuple[str, ...]
    score_threshold: float
    iou_threshold: float
    candidates: int


@dataclass(frozen=True)
class DocLabel:
    """What one label of a PP-DocLayout model means for the reading of its regions.

    task         what a region is read as; None: it is a picture
    asking       the option that has a picture read all the same, and as what
    threshold    regions with this score or less are dropped, [0, 1]
    absorbs      regions that lie in one of this label disappear ("large"; the others are "union")
    running      belongs to the page and not to the text: Markdown leaves it out
    """

    name: str
    task: Task | None
    threshold: float
    asking: tuple[Asking, Task] | None = None
    absorbs: bool = False
    running: bool = False


@dataclass(frozen=True)
class DocLayoutFacts:
    """Layout detection that ends in the graph (RT-DETR): rows of regions, with a reading order and, in V3, masks.

    side_px      the page is stretched to a square of this side; pixels are scaled to 0..1, RGB
    labels       by class
    masks        whether the graph gives a mask per region, from which polygons are made
    """

    side_px: int
    labels: tuple[DocLabel, ...]
    masks: bool


@dataclass(frozen=True)
class OrientationFacts:
    """Page direction: the shorter side is resized to `resize_px`, the central square of `crop_px` is classified."""

    resize_px: int
    crop_px: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    angles: tuple[Literal[0, 90, 180, 270], ...]


@dataclass(frozen=True)
class TableFacts:
    """Table structure as a sequence of HTML tokens with one quadrilateral per cell.

    side_px     the longer side of the picture is brought to this, the rest of the square is filled with zeros
    mean, std   of channels in BGR order as the network sees them, pixels scaled to 0..1
    tokens      by class; the first begins a sequence, the last ends it
    max_steps   most tokens of one table, the end included: the graph stops there
    """

    side_px: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    tokens: tuple[str, ...]
    max_steps: int


@dataclass(frozen=True)
class LineOrientationFacts:
    """Direction of one text line: height fixed, width up to `width_px` and padded, pixels -1..1, BGR."""

    height_px: int
    width_px: int
    angles: tuple[Literal[0, 180], ...]


Facts = (
    DetectionFacts
    | RecognitionFacts
    | LayoutFacts
    | DocLayoutFacts
    | OrientationFacts
    | LineOrientationFacts
    | TableFacts
)
F = TypeVar(
    "F",
    DetectionFacts,
    RecognitionFacts,
    LayoutFacts,
    DocLayoutFacts,
    OrientationFacts,
    LineOrientationFacts,
    TableFacts,
    covariant=True,
)


@dataclass(frozen=True)
class ModelSpec(Generic[F]):
    """Everything docvino knows of one model.

    source       the graph's file
    companions   further files of the model, e.g. weights or a dictionary that lie beside the graph
    tolerances   largest absolute difference to the recorded reference outputs, by number format
    precisions   how its weights may be stored

    float_convolutions   so many convolutions, from the input on, keep their float weights at int8
    """

    name: str
    title: str
    role: Role
    licence: str
    homepage: str
    source: WheelMember | HubMember
    inputs: tuple[TensorContract, ...]
    outputs: tuple[TensorContract, ...]
    facts: F
    tolerances: Mapping[str, float] = field(default_factory=dict)
    companions: tuple[WheelMember, ...] = ()
    float_convolutions: int = 0
    precisions: tuple[str, ...] = ("fp32", "fp16", "int8")

    @property
    def files(self) -> tuple[WheelMember, ...]:
        """What comes out of wheels; a model of hubs comes as its whole folder."""
        return (self.source, *self.companions) if isinstance(self.source, WheelMember) else ()

    def stored_as(self, wanted: str) -> str:
        """The precision it has where a vision-language model that it works for has `wanted`."""
        return wanted if wanted in self.precisions else self.precisions[-1]


@dataclass(frozen=True)
class VlmPreset:
    """A vision-language model that reads a page; its bundle has the preset's name.

    source   where its files come from; a path: they came with docvino
    layout   what `--layout auto` is: a model of its own, or lines by white space
    """

    name: str
    title: str
    licence: str
    source: HubFolder | Path
    layout: ModelSpec[DocLayoutFacts] | Literal["whitespace"]


@dataclass(frozen=True)
class Preset:
    """The models that together read a page line by line, by what they do in the corridor."""

    name: str
    title: str
    orientation: ModelSpec[OrientationFacts]
    layout: ModelSpec[LayoutFacts]
    detection: ModelSpec[DetectionFacts]
    recognition: ModelSpec[RecognitionFacts]
    table: ModelSpec[TableFacts]

    @property
    def models(self) -> tuple[ModelSpec[Any], ...]:
        return (self.orientation, self.layout, self.detection, self.recognition, self.table)
