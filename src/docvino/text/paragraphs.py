"""Lines of one block -> paragraphs."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from docvino.document import BULLETS, Box

_GAP = 1.6  # a paragraph begins after a line pitch this many times the usual one
_INDENT = 0.8  # ... or at a line set in by this many line heights
_SHORT = 2.0  # ... when the line before ends this many line heights before the right edge
_HYPHENS = ("-", "\u00ad", "‐")


def paragraphs(lines: Sequence[tuple[str, Box]]) -> list[str]:
    """Text of each paragraph. `lines` are in reading order with level boxes in one unit.

    A new paragraph begins after a larger gap than usual, at a bullet, or where a line is set in after one that ends
    early.
    """
    if not lines:
        return []
    heights = [box[3] - box[1] for _, box in lines]
    unit = median(heights)
    pitches = [after[1][1] - before[1][1] for before, after in pairwise(lines)]
    usual = median(pitches) if pitches else unit
    left = min(box[0] for _, box in lines)
    right = max(box[2] for _, box in lines)
    groups = [[lines[0]]]
    for before, after, pitch in zip(lines, lines[1:], pitches, strict=False):
        jumped = pitch > _GAP * max(usual, unit)
        indented = after[1][0] - left > _INDENT * unit and right - before[1][2] > _SHORT * unit
        if jumped or indented or after[0].lstrip().startswith(BULLETS):
            groups.append([])
        groups[-1].append(after)
    return [join_lines([text for text, _ in group]) for group in groups]


def join_lines(lines: Sequence[str]) -> str:
    """One text from the lines of a paragraph.

    No blank between two Chinese or Japanese characters, one blank between words, and a word divided by a hyphen at a
    line's end is made whole when the next line goes on with a small letter.
    """
    text = ""
    for line in (line.strip() for line in lines):
        if not line:
            continue
        if not text:
            text = line
        elif _divided(text, line):
            text = text[:-1] + line
        elif _unspaced(text[-1]) or _unspaced(line[0]):
            text += line
        else:
            text += " " + line
    return text


def _divided(text: str, line: str) -> bool:
    return len(text) > 1 and text.endswith(_HYPHENS) and text[-2].islower() and line[0].islower()


def _unspaced(character: str) -> bool:
    """True for characters of scripts that are set without blanks, and for their full-width punctuation."""
    if unicodedata.east_asian_width(character) not in "WF":
        return False
    return "HANGUL" not in unicodedata.name(character, "")
