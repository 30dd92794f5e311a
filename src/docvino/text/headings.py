"""How deep headings are: by their numbers, by the order in which kinds of numbers appear, and by their size.

Source: PaddleX 3.7.2, title_level.py, as rules; the code is docvino's own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Literal

from docvino.document import Block, polygon_box

# How a heading is numbered. The order is that in which they are tried.
Kind = Literal["bracket", "roman", "chinese", "letter", "dotted"]

_MOST_SIZES = 4
# Sizes below this ratio are one: boxes around letters with and without descenders differ as much.
_ALIKE = 1.15

_BRACKET = re.compile(r"[(（]?\d+(?:\.\d+)*[)）]")
_ROMAN = re.compile(r"([IVX]+)(?:[.．)]|(?P<bare>\s|$))", re.IGNORECASE)
_CHINESE = re.compile(
    r"第\s?\d{1,3}\s?[章节篇卷部条题讲课回]"
    r"|(?:第|[（(])?[一二三四五六七八九十百零〇]{1,5}(?:[章节篇卷部条题讲课回）)]|(?![A-Za-z\u4e00-\u9fa5]))"
)
_LETTER = re.compile(r"([A-Z])(?:[.．)]|(?P<bare>\s))", re.IGNORECASE)
_DOTTED = re.compile(r"(\d{1,3}(?:\.\d{1,3})*)(?:[.．、](?!\d)|(?=\s|$|[\u3400-\u9fff]|[A-Z][a-z]))")

# Sections that have no number as a rule. Source: SPECIAL_KEYWORDS.
_KNOWN = frozenset(
    {
        "ABSTRACT", "SUMMARY", "RESUME", "CONTENTS", "REFERENCE", "REFERENCES", "APPENDIX", "APPENDICES",
        "ACKNOWLEDGMENTS", "INTRODUCTION", "BACKGROUND", "BACKGROUNDANDRELATEDWORK", "RELATEDWORK", "THEORETICALMODELS",
        "DATA", "METHOD", "METHODS", "METHODOLOGY", "TOPICANALYSIS", "RESULT", "RESULTS", "DISCUSSION", "CONCLUSION",
        "CONCLUSIONS", "LIMITATIONS", "绪论", "引言", "参考文献", "附录", "研究背景", "相关工作", "研究方法",
        "实验结果", "讨论", "结论", "致谢", "目录",
    }
)  # fmt: skip


def levels(titles: Sequence[tuple[str, int]]) -> list[int]:
    """A level from 1 for each (text, height of its lines in pixels), in the order of the document.

    A numbered one has the level that two of three agree on, else the second of them: what such a number means (1.2 is
    2), which kind of number came first in the document, the size. One without a number is of level 1 when its name is
    that of a section everybody knows, else its size tells.

    Differs: no level is below 1 (upstream has level 0 and less when numbers begin with 2.1). Heights that are nearly
    the same are one size, and sizes are the best of all groupings (upstream starts k-means once by chance). A year or
    a quantity is no number of a heading ("2026 in figures", "3D printing"), nor is a single letter or Roman numeral
    with a blank behind it, of which the document has no second one ("A survey"); numerals of "第二十一章" and "第 3 章"
    are.
    """
    numbers = _numbers([text for text, _ in titles])
    by_size = _by_size([height for _, height in titles])
    ranks: dict[Kind, int] = {}
    first_dotted = next((found[1] for found in numbers if found is not None and found[0] == "dotted"), 0)
    made = []
    for (text, height), number in zip(titles, numbers, strict=True):
        if number is None:
            made.append(1 if _name(text) in _KNOWN else by_size[height])
            continue
        kind, depth = number
        rank = ranks.setdefault(kind, len(ranks) + 1)
        if kind == "dotted":
            rank += depth - first_dotted
        (level, votes), *_ = Counter((depth, rank, by_size[height])).most_common(1)
        made.append(max(1, level if votes > 1 else rank))
    return made


def size_px(title: Block) -> int:
    """The height of its lines in pixels: of those that were read one by one, else its box by the line feeds in it."""
    if title.lines:
        boxes = (polygon_box(line.polygon) for line in title.lines)
        return max(1, int(median(min(right - left, bottom - top) for left, top, right, bottom in boxes)))
    left, top, right, bottom = polygon_box(title.polygons[0])
    count = title.content.strip().count("\n") + 1
    return max(1, int(min(right - left, bottom - top) / count))


def _name(text: str) -> str:
    return text.strip().upper().rstrip("：: ").replace(" ", "")


def _numbers(texts: Sequence[str]) -> list[tuple[Kind, int] | None]:
    """The kind of each number and its depth; None for a heading without."""
    found = [_number(text.strip()) for text in texts]
    bare: dict[Kind, set[str]] = {}
    for number in found:
        if number is not None and number[2]:
            bare.setdefault(number[0], set()).add(number[2])
    return [None if n is None or (n[2] and len(bare[n[0]]) < 2) else (n[0], n[1]) for n in found]


def _number(text: str) -> tuple[Kind, int, str] | None:
    """Kind and depth of the number at the beginning, and the number itself where only a blank tells it from a word."""
    if _BRACKET.match(text):
        return "bracket", 4, ""
    if match := _ROMAN.match(text):
        return "roman", 1, _bare(match)
    if _CHINESE.match(text):
        return "chinese", 1, ""
    if match := _LETTER.match(text):
        return "letter", 2, _bare(match)
    if match := _DOTTED.match(text):
        return "dotted", match[1].count(".") + 1, ""
    return None


def _bare(match: re.Match[str]) -> str:
    return match[1].upper() if match["bare"] is not None else ""


def _by_size(sizes: Sequence[int]) -> dict[int, int]:
    """The level of each size, the largest first: up to four groups, the best there are by their squared distances."""
    centres = _centres(Counter(sizes))
    level, largest = 0, float("inf")
    levels = []
    for centre in sorted(centres, reverse=True):
        if largest >= _ALIKE * centre:
            level, largest = level + 1, centre
        levels.append(level)
    ordered = list(zip(sorted(centres, reverse=True), levels, strict=True))
    return {size: min(ordered, key=lambda pair: abs(size - pair[0]))[1] for size in set(sizes)}


def _centres(counts: Counter[int]) -> list[float]:
    """Means of the groups into which k-means at its best puts the sizes; in one dimension groups are stretches."""
    sizes = sorted(counts)
    total, first, second = [0.0], [0.0], [0.0]  # running sums of counts, sizes and squares
    for size in sizes:
        total.append(total[-1] + counts[size])
        first.append(first[-1] + counts[size] * size)
        second.append(second[-1] + counts[size] * size * size)

    def spread(begin: int, end: int) -> float:
        return second[end] - second[begin] - (first[end] - first[begin]) ** 2 / (total[end] - total[begin])

    # best[end]: cost of the sizes before `end` in as many groups as rounds were made, and where these groups begin.
    best: list[tuple[float, list[int]]] = [(0.0, []), *((float("inf"), list[int]()) for _ in sizes)]
    for _ in range(min(_MOST_SIZES, len(sizes))):
        best = [(float("inf"), [])] + [
            min((best[begin][0] + spread(begin, end), [*best[begin][1], begin]) for begin in range(end))
            for end in range(1, len(sizes) + 1)
        ]
    borders = [*best[-1][1], len(sizes)]
    return [(first[end] - first[begin]) / (total[end] - total[begin]) for begin, end in pairwise(borders)]
