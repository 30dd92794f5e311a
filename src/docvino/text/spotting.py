"""Answers with places: text, then eight location tokens, again and again -> lines with polygons.

Source: PaddleX 3.7.2, `post_process_for_spotting` of the pipeline PaddleOCR-VL, as rules; the code is docvino's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from docvino.document import Line, Polygon

_MARK = re.compile(r"<\|(?:LOC_(?P<place>\d+)|LOC_(?:BEGIN|END|SEP)|TEXT_(?:START|END))\|>")
_SEPARATOR, _PLACE_BEGINS, _TEXT_BEGINS = "<|LOC_SEP|>", "<|LOC_BEGIN|>", "<|TEXT_START|>"
_NUMBERS = 8  # four corners
_WHOLE = 1000  # a location of 1000 is the right or the bottom edge

_Place = tuple[int, ...]


@dataclass(frozen=True)
class Spotted:
    """`texts` are all that was read, in order; `lines` are those of them that have a place."""

    texts: tuple[str, ...]
    lines: tuple[Line, ...]
    warnings: tuple[str, ...] = ()


def parse(text: str, width_px: int, height_px: int, *, confidence: float) -> Spotted:
    """Lines with polygons in pixels of the crop, as it was before it was enlarged for the model.

    A line is a text and four corners, x and y in thousandths, clockwise from the top-left one. `confidence` is that of
    the whole answer, which is all that is known of a line.

    Two forms are read: the bare one, in which released models answer, and the one where marks stand around texts
    and places (`<|TEXT_START|>`, `<|LOC_BEGIN|>` ...), in which places may also come before their texts.

    Differs: a text without a place, or whose place is not made of eight numbers, stays in `texts`, with a warning
    (upstream drops it). A text is joined with the place next to it, not with the place of the same number, so that
    one that is missing does not move all that follow.
    """
    text = text.strip().removesuffix("</s>")
    pieces = list(_pieces(text))
    places_first = 0 <= text.find(_PLACE_BEGINS) < text.find(_TEXT_BEGINS)
    units = _units(pieces[::-1])[::-1] if places_first else _units(pieces)
    lines = tuple(
        Line(text=words, polygon=_polygon(place, width_px, height_px), confidence=confidence)
        for words, place in units
        if words and _is_sound(place)
    )
    return Spotted(tuple(words for words, _ in units if words), lines, tuple(_faults(units)))


def _pieces(text: str) -> Iterator[str | _Place]:
    """Texts and runs of up to eight locations, as they follow each other."""
    place: list[int] = []
    end = 0
    for mark in [*_MARK.finditer(text), None]:
        between = text[end : mark.start() if mark else len(text)].strip()
        number = mark["place"] if mark else None
        if place and (between or (number is None and mark and mark[0] != _SEPARATOR) or len(place) == _NUMBERS):
            yield tuple(place)
            place = []
        if between:
            yield between
        if number is not None:
            place.append(int(number))
        end = mark.end() if mark else end
    if place:
        yield tuple(place)


def _units(pieces: Sequence[str | _Place]) -> list[tuple[str, _Place]]:
    """Each text with the place behind it; an empty text or place where there is none."""
    units: list[tuple[str, _Place]] = []
    open_text = False
    for piece in pieces:
        if isinstance(piece, str):
            units.append((piece, ()))
        elif open_text:
            units[-1] = (units[-1][0], piece)
        else:
            units.append(("", piece))
        open_text = isinstance(piece, str)
    return units


def _is_sound(place: _Place) -> bool:
    return len(place) == _NUMBERS and max(place) <= _WHOLE


def _polygon(place: _Place, width_px: int, height_px: int) -> Polygon:
    points = zip(place[::2], place[1::2], strict=True)
    return tuple((x / _WHOLE * width_px, y / _WHOLE * height_px) for x, y in points)


def _faults(units: Sequence[tuple[str, _Place]]) -> Iterator[str]:
    if alone := sum(1 for words, place in units if words and not place):
        yield f"texts without a place: {alone}"
    if wrong := sum(1 for words, place in units if words and place and not _is_sound(place)):
        yield f"texts whose place is not four corners: {wrong}"
    if wordless := sum(1 for words, _ in units if not words):
        yield f"places without a text: {wordless}"
