"""The form of a model's facts. A spec holds what is true of the weights, never of a machine or of a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

Role = Literal["text-detection", "text-recognition", "layout", "orientation", "line-orientation"]
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
class OrientationFacts:
    """Page direction: the shorter side is resized to `resize_px`, the central square of `crop_px` is classified."""

    resize_px: int
    crop_px: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    angles: tuple[Literal[0, 90, 180, 270], ...]


@dataclass(frozen=True)
class LineOrientationFacts:
    """Direction of one text line: height fixed, width up to `width_px` and padded, pixels -1..1, BGR."""

    height_px: int
    width_px: int
    angles: tuple[Literal[0, 180], ...]


Facts = DetectionFacts | RecognitionFacts | LayoutFacts | OrientationFacts | LineOrientationFacts
F = TypeVar("F", DetectionFacts, RecognitionFacts, LayoutFacts, OrientationFacts, LineOrientationFacts, covariant=True)


@dataclass(frozen=True)
class ModelSpec(Generic[F]):
    """Everything docvino knows of one model.

    source       the graph's file
    companions   further files of the model, e.g. weights or a dictionary that lie beside the graph
    tolerances   largest absolute difference to the recorded reference outputs, by number format
    """

    name: str
    title: str
    role: Role
    licence: str
    homepage: str
    source: WheelMember
    inputs: tuple[TensorContract, ...]
    outputs: tuple[TensorContract, ...]
    facts: F
    tolerances: Mapping[str, float] = field(default_factory=dict)
    companions: tuple[WheelMember, ...] = ()

    @property
    def files(self) -> tuple[WheelMember, ...]:
        return (self.source, *self.companions)


@dataclass(frozen=True)
class Preset:
    """The models that together read a page, by what they do in the corridor."""

    name: str
    title: str
    orientation: ModelSpec[OrientationFacts]
    layout: ModelSpec[LayoutFacts]
    detection: ModelSpec[DetectionFacts]
    recognition: ModelSpec[RecognitionFacts]

    @property
    def models(self) -> tuple[ModelSpec[Any], ...]:
        return (self.orientation, self.layout, self.detection, self.recognition)
