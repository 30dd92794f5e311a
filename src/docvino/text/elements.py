"""Answers of a reader that reads one element at a time -> blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from docvino.document import Answer, Block, Cell, Crop, Line, Region, Task, box_polygon, moved, polygon_box
from docvino.text.answers import Interpreted, interpret
from docvino.text.blocks import assemble

# What an element is called where no layout model named it.
LABELS: dict[Task, str] = {"ocr": "text", "spotting": "text"}

_NOTHING = Interpreted("", "none")


@dataclass(frozen=True, eq=False)
class _Element:
    """What becomes a block. `place` puts it in order: the place of its region, or of the table that it is a figure of,
    and then its number among those."""

    place: tuple[int, int]
    regions: tuple[int, ...]
    crop: Crop | None = None
    answer: Answer | None = None
    said: Interpreted = _NOTHING


def element_blocks(
    page_index: int, regions: Sequence[Region], crops: Sequence[Crop], answers: Sequence[Answer]
) -> tuple[Block, ...]:
    """A block for each crop and for each region in no crop, which is a picture or is not read, in reading order.

    A crop without regions is an element by itself, called by its task; without text it makes no block. All others do:
    without text they say why, by `finish` or in a warning. All polygons are in page pixels.

    Figures of a table are blocks right behind it; where the table's text has their mark, its cell names them.
    """
    homes = {figure: (c.regions[0], n) for c in crops for n, (_, figure) in enumerate(c.figures, start=1)}
    pairs = zip(crops, answers, strict=True)
    elements = [_read(number, crop, answer, homes) for number, (crop, answer) in enumerate(pairs)]
    seen = {place for crop in crops for place in crop.regions}
    seen |= {figure for crop in crops for mark, figure in crop.figures if not mark}
    elements += [_Element(homes.get(place, (place, 0)), (place,)) for place in range(len(regions)) if place not in seen]
    shown = sorted((element for element in elements if _shows(element)), key=lambda element: element.place)
    names = {e.regions[0]: f"p{page_index + 1}-b{n}" for n, e in enumerate(shown, start=1) if e.regions}
    return tuple(_block(page_index, order, element, regions, names) for order, element in enumerate(shown))


def _read(number: int, crop: Crop, answer: Answer, homes: Mapping[int, tuple[int, int]]) -> _Element:
    first = crop.regions[0] if crop.regions else number
    said = _NOTHING
    if answer.problem is None:
        height_px, width_px = crop.pixels.shape[:2]
        said = interpret(crop.task, answer.text, width_px, height_px, confidence=answer.confidence)
    return _Element(homes.get(first, (first, 0)), crop.regions, crop, answer, said)


def _shows(element: _Element) -> bool:
    return bool(element.regions) or bool(element.said.content.strip())


def _block(
    page_index: int, order: int, element: _Element, regions: Sequence[Region], names: Mapping[int, str]
) -> Block:
    crop, answer, said = element.crop, element.answer, element.said
    covered = [regions[place] for place in element.regions]
    polygons = tuple(region.polygon for region in covered)
    if crop is None or answer is None or not said.content.strip():
        return Block(
            id=f"p{page_index + 1}-b{order + 1}",
            label=covered[0].label,
            polygons=polygons,
            order=order,
            group=order if len(covered) > 1 else None,
            content="",
            format="none",
            layout_score=covered[0].score,
            finish="stop" if answer is None else answer.finish,
            warnings=() if answer is None else (*said.warnings, *_ending(answer)),
        )
    height_px, width_px = crop.pixels.shape[:2]
    whole = moved(box_polygon(0.0, 0.0, float(width_px), float(height_px)), crop.offset_px)
    figures = {mark: names[figure] for mark, figure in crop.figures if mark}
    return Block(
        id=f"p{page_index + 1}-b{order + 1}",
        label=covered[0].label if covered else LABELS.get(crop.task, crop.task),
        polygons=polygons or (whole,),
        order=order,
        group=order if len(covered) > 1 else None,
        content=_with_figures(said, figures),
        format=said.format,
        confidence=answer.confidence,
        layout_score=covered[0].score if covered else None,
        lines=tuple(line.model_copy(update={"polygon": moved(line.polygon, crop.offset_px)}) for line in said.lines),
        cells=tuple(_cell(cell, figures) for cell in said.cells),
        finish="repetition" if said.was_cut else answer.finish,
        warnings=(*said.warnings, *_ending(answer)),
    )


def _with_figures(said: Interpreted, figures: Mapping[str, str]) -> str:
    """The content with `<img data-block="p1-b4">` in place of each mark; in plain text marks just go."""
    content = said.content
    for mark, name in figures.items():
        content = content.replace(mark, f'<img data-block="{name}">' if said.format == "html" else "")
    return content.strip()


def _cell(cell: Cell, figures: Mapping[str, str]) -> Cell:
    here = [mark for mark in figures if mark in cell.text]
    if not here:
        return cell
    text = cell.text
    for mark in here:
        text = text.replace(mark, "")
    return cell.model_copy(update={"text": text.strip(), "figures": tuple(figures[mark] for mark in here)})


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
    """What a reader of the block must know of how its text ended, or why there is none."""
    if answer.problem is not None:
        return (f"it was not read: {answer.problem}",)
    return {
        "length": ("the text goes on behind the token limit (--max-new-tokens)",),
        "time": ("the time limit ended the text (--time-limit-s)",),
        "repetition": ("the model went in circles: its text ends after the first round",),
        "nonfinite": ("the text ends where the model gave numbers that are not finite",),
        "cancelled": ("the text was cancelled",),
        "blank": ("it has no ink, so that it was not shown to the model",),
    }.get(answer.finish, ())
