"""Answers of a reader that reads one element at a time -> blocks."""

from __future__ import annotations

from collections.abc import Sequence

from docvino.document import Answer, Block, Crop, Line, Region, Task, box_polygon, moved, polygon_box
from docvino.text.answers import Interpreted, interpret
from docvino.text.blocks import assemble

# What an element is called where no layout model named it.
LABELS: dict[Task, str] = {"ocr": "text", "spotting": "text"}


def element_blocks(
    page_index: int, regions: Sequence[Region], crops: Sequence[Crop], answers: Sequence[Answer]
) -> tuple[Block, ...]:
    """A block for each crop that shows something, in the order of the crops; all polygons are in page pixels.

    A crop without regions is an element by itself, called by its task. One without an answer makes no block.
    """
    blocks: list[Block] = []
    for crop, answer in zip(crops, answers, strict=True):
        if answer.problem is not None:
            continue
        height_px, width_px = crop.pixels.shape[:2]
        said = interpret(crop.task, answer.text, width_px, height_px, confidence=answer.confidence)
        if not said.content.strip():
            continue
        shown = [regions[place] for place in crop.regions]
        whole = moved(box_polygon(0.0, 0.0, float(width_px), float(height_px)), crop.offset_px)
        blocks.append(
            Block(
                id=f"p{page_index + 1}-b{len(blocks) + 1}",
                label=shown[0].label if shown else LABELS.get(crop.task, crop.task),
                polygons=tuple(region.polygon for region in shown) or (whole,),
                order=len(blocks),
                content=said.content,
                format=said.format,
                confidence=answer.confidence,
                layout_score=shown[0].score if shown else None,
                lines=tuple(
                    line.model_copy(update={"polygon": moved(line.polygon, crop.offset_px)}) for line in said.lines
                ),
                cells=said.cells,
                finish="repetition" if said.was_cut else answer.finish,
                warnings=(*said.warnings, *_ending(answer)),
            )
        )
    return tuple(blocks)


def blocks_of_lines(
    page_index: int, regions: Sequence[Region], crops: Sequence[Crop], answers: Sequence[Answer]
) -> tuple[Block, ...]:
    """Blocks of a page whose text was read line by line and whose tables and formulas were read whole.

    Each crop shows one region. Lines come together in paragraphs, columns and the regions of a layout model as those of
    a line reader do; an element keeps its place among them.
    """
    lines: list[Line] = []
    elements: list[tuple[Region, Answer, Interpreted]] = []
    of_lines = {place for crop in crops if crop.task == "ocr" for place in crop.regions}
    for crop, answer in zip(crops, answers, strict=True):
        if answer.problem is not None:
            continue
        (place,) = crop.regions
        height_px, width_px = crop.pixels.shape[:2]
        said = interpret(crop.task, answer.text, width_px, height_px, confidence=answer.confidence)
        if crop.task != "ocr":
            elements.append((regions[place], answer, said))
            continue
        if text := " ".join(said.content.split()):
            lines.append(Line(text=text, polygon=regions[place].polygon, confidence=answer.confidence))
    areas = [region for place, region in enumerate(regions) if place not in of_lines]
    blocks = list(assemble(page_index, areas, lines))
    for region, answer, said in elements:
        box = box_polygon(*polygon_box(region.polygon))
        place = next(place for place, block in enumerate(blocks) if box in block.polygons)
        blocks[place] = blocks[place].model_copy(
            update={
                "content": said.content,
                "format": said.format,
                "cells": said.cells,
                "confidence": answer.confidence,
                "finish": "repetition" if said.was_cut else answer.finish,
                "warnings": (*said.warnings, *_ending(answer)),
            }
        )
    return tuple(blocks)


def _ending(answer: Answer) -> tuple[str, ...]:
    """What a reader of the block must know of how its text ended."""
    return {
        "length": ("the text goes on behind the token limit (--max-new-tokens)",),
        "time": ("the time limit ended the text (--time-limit-s)",),
        "repetition": ("the model went in circles: its text ends after the first round",),
        "nonfinite": ("the text ends where the model gave numbers that are not finite",),
        "cancelled": ("the text was cancelled",),
    }.get(answer.finish, ())
