"""Layout detection with a PicoDet head: generalised focal loss, four distances as distributions (arXiv 2006.04388)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from docvino.codec.pixels import normalise, resize
from docvino.document import Box
from docvino.specs.model import LayoutFacts


@dataclass(frozen=True)
class LayoutBox:
    """A labelled box in page pixels, score in [0, 1]."""

    label: str
    score: float
    box: Box


def prepare(pixels: NDArray[np.uint8], facts: LayoutFacts) -> NDArray[np.float32]:
    """uint8 (H, W, 3) RGB -> float32 (1, 3, 800, 608) RGB, stretched to the network's fixed size."""
    return normalise(resize(pixels, facts.width_px, facts.height_px), facts.mean, facts.std)


def decode(
    scores: Sequence[NDArray[np.float32]],
    sides: Sequence[NDArray[np.float32]],
    width_px: int,
    height_px: int,
    facts: LayoutFacts,
) -> list[LayoutBox]:
    """Head outputs, by stride: scores float32 (1, N, labels), sides float32 (1, N, 4 * bins) -> boxes, best first.

    Source: PicoHead post-processing in PaddleDetection (expected distance under the softmax of the bins, times the
    stride, from the centre of the cell), then non-maximum suppression within each label.
    """
    boxes = np.concatenate(
        [_boxes(side[0], stride, facts) for side, stride in zip(sides, facts.strides_px, strict=True)]
    )
    all_scores = np.concatenate([score[0] for score in scores])
    boxes *= np.array([width_px / facts.width_px, height_px / facts.height_px] * 2, np.float32)
    boxes = boxes.clip(0, np.array([width_px, height_px] * 2, np.float32))
    found = []
    for index, label in enumerate(facts.labels):
        column = all_scores[:, index]
        candidates = np.flatnonzero(column > facts.score_threshold)
        candidates = candidates[np.argsort(-column[candidates], kind="stable")][: facts.candidates]
        if not candidates.size:
            continue
        corners = boxes[candidates]
        as_xywh = np.concatenate([corners[:, :2], corners[:, 2:] - corners[:, :2]], axis=1)
        kept = cv2.dnn.NMSBoxes(
            as_xywh.tolist(), column[candidates].tolist(), facts.score_threshold, facts.iou_threshold
        )
        for row in np.asarray(kept, int).ravel():
            left, top, right, bottom = (float(value) for value in corners[row])
            found.append(LayoutBox(label, float(column[candidates[row]]), (left, top, right, bottom)))
    return sorted(found, key=lambda item: -item.score)


def _boxes(side: NDArray[np.float32], stride: int, facts: LayoutFacts) -> NDArray[np.float32]:
    """Box-side distributions float32 (N, 4 * bins) -> float32 (N, 4) left, top, right, bottom in network pixels."""
    columns, rows = -(-facts.width_px // stride), -(-facts.height_px // stride)
    bins = side.shape[1] // 4
    logits = side.reshape(-1, 4, bins)
    weights = np.exp(logits - logits.max(axis=2, keepdims=True))
    distances = (weights @ np.arange(bins, dtype=np.float32)) / weights.sum(axis=2) * stride
    y, x = np.mgrid[0:rows, 0:columns].astype(np.float32)
    centres = np.stack([(x.ravel() + 0.5) * stride, (y.ravel() + 0.5) * stride], axis=1)
    return np.concatenate([centres - distances[:, :2], centres + distances[:, 2:]], axis=1)
