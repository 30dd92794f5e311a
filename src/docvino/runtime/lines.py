"""Reads text line by line: detection on the whole crop, recognition of its lines, alone or in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from docvino.codec import detection, recognition
from docvino.device import Model, Tensors
from docvino.document import Answer, Crop, Line
from docvino.runtime.stages import Clock
from docvino.settings import ParseOptions
from docvino.specs.model import DetectionFacts, ModelSpec, RecognitionFacts


class LineReader:
    """The `pp-ocr` reader. Lines read with less than `options.min_confidence` are left out and counted."""

    def __init__(
        self,
        detector: Model,
        detection_spec: ModelSpec[DetectionFacts],
        recogniser: Model,
        recognition_spec: ModelSpec[RecognitionFacts],
        characters: str,
    ) -> None:
        self._detector, self._detection = detector, detection_spec.facts
        self._recogniser, self._recognition = recogniser, recognition_spec.facts
        self._detection_names = detection_spec.inputs[0].name, detection_spec.outputs[0].name
        self._recognition_names = recognition_spec.inputs[0].name, recognition_spec.outputs[0].name
        self._batch, self._mixed = recogniser.profile.line_batch, recogniser.profile.mixed_widths
        self._steps = detector.profile.steps
        self._alphabet = recognition.alphabet(characters)

    def warm(self) -> int:
        """Runs each width of full batches of lines that the device compiles for; returns how many there are."""
        if self._steps.line_px == 1:
            return 0
        facts = self._recognition
        widths = range(self._steps.line_px, facts.max_width_px + 1, self._steps.line_px)
        shapes = [(self._batch, 3, facts.height_px, width) for width in widths if width >= facts.min_width_px]
        name = self._recognition_names[0]
        return len(list(self._recogniser.run_all({name: np.zeros(shape, np.float32)} for shape in shapes)))

    def read(self, crops: Sequence[Crop], options: ParseOptions, clock: Clock) -> list[Answer]:
        return [self._read(crop, options, clock) for crop in crops]

    def _read(self, crop: Crop, options: ParseOptions, clock: Clock) -> Answer:
        with clock.measure("detection"):
            boxes = self.detect(crop.pixels)
        with clock.measure("recognition"):
            answers = self.recognise([recognition.cut_line(crop.pixels, box.corners) for box in boxes])
        lines = tuple(
            Line(text=text, polygon=tuple((float(x), float(y)) for x, y in box.corners), confidence=confidence)
            for box, (text, confidence) in zip(boxes, answers, strict=True)
            if text.strip() and confidence >= options.min_confidence
        )
        letters = sum(len(line.text) for line in lines)
        return Answer(
            text="\n".join(line.text for line in lines),
            confidence=sum(line.confidence * len(line.text) for line in lines) / letters if letters else 0.0,
            lines=lines,
            dropped_lines=sum(bool(text.strip()) for text, _ in answers) - len(lines),
        )

    def detect(self, pixels: NDArray[np.uint8]) -> list[detection.TextBox]:
        """Text lines of uint8 (H, W, 3) RGB pixels, in no particular order."""
        height, width = pixels.shape[:2]
        name, output = self._detection_names
        size = detection.input_size(width, height, self._detection)
        prepared = detection.pad(detection.prepare(pixels, size, self._detection), self._steps.page_px)
        probability = self._detector.run({name: prepared})[output][0, 0, : size[1], : size[0]]
        return detection.decode(probability, width, height, self._detection)

    def recognise(self, lines: Sequence[NDArray[np.uint8]]) -> list[tuple[str, float]]:
        """Text and confidence of each straightened line image, in order."""
        widths = [recognition.padded_width(line, self._recognition, self._steps.line_px) for line in lines]
        batches = recognition.batches(widths, self._batch, mixed=self._mixed)
        name, output = self._recognition_names

        def inputs() -> Iterator[Tensors]:
            for batch in batches:
                cut = [lines[i] for i in batch]
                yield {name: recognition.prepare(cut, self._recognition, self._steps.line_px)}

        def take(outputs: Tensors) -> Tensors:
            # Of 18,710 probabilities a column one is wanted: a copy of all takes longer than finding it.
            classes, certainty = recognition.best(outputs[output])
            return {"classes": classes, output: certainty}

        answers: list[tuple[str, float]] = [("", 0.0)] * len(lines)
        for batch, taken in zip(batches, self._recogniser.run_all(inputs(), take), strict=True):
            read = recognition.spell(taken["classes"], taken[output], self._alphabet)
            for index, answer in zip(batch, read, strict=True):
                answers[index] = answer
        return answers
