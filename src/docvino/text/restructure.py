"""Pages -> a document: tables that go on over a page break, and levels of headings.

Nothing is moved or lost: blocks stay on their pages with their boxes, and say what they go on from and how deep they
are. `joined_pages` gives the pages as one reads them.

Source: PaddleX 3.7.2, `restructure_pages` of the pipeline PaddleOCR-VL (merge_table.py, title_level.py), as rules; the
code is docvino's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from docvino.document import Block, Box, Cell, Document, Page, polygon_box
from docvino.specs import doclayout
from docvino.text import headings

# Source: can_merge_tables: what may stand between a table and the page's end, and between its beginning and the next.
# Differs: here that is all that stands in margins, and what is empty.
_BELOW = doclayout.RUNNING | {"vision_footnote", "seal"}
_ABOVE = doclayout.RUNNING | {"seal"}
_PICTURES = doclayout.PICTURES | {"figure"}
_WIDTHS = 0.1  # of the narrower one, by which the widths of two parts differ at most
_MOST_HEAD_ROWS = 5  # Source: detect_table_headers

# What a caption over the second part says. Source: is_skippable, whose rule never comes to be used upstream.
# Differs: it is looked for in short texts and as a word: upstream's list would find the one in "手续费" (fees).
_CONTINUATION = re.compile(
    r"\bcontinue[ds]?\b|\bcont(?:[’'‘]d\b|\.)|(?:^|[(（\s])[续續]|[续續]表|表\s*\S{0,6}\s*[续續]\s*$", re.IGNORECASE
)
_LONGEST_NOTE = 80

_WIDE_LETTERS = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
_ROW = re.compile("<tr>.*?</tr>", re.DOTALL)


def restructure(document: Document, *, merge_tables: bool = True, relevel_titles: bool = True) -> Document:
    """The same document, whose tables say what they go on from, and whose headings have a level; no text changes.

    A document that was restructured before is so anew.

    Differs: upstream moves the rows into the first table, where their boxes and confidences are lost, and merges pages
    that were not neighbours in the source.
    """
    blank = {"level": None, "continues": None, "repeated_rows": 0}
    changes: dict[str, dict[str, object]] = {}
    if merge_tables:
        for before, after in pairwise(document.pages):
            if after.page_index == before.page_index + 1 and (found := continuation(before, after)) is not None:
                first, second, repeated = found
                changes[second.id] = {**blank, "continues": first.id, "repeated_rows": repeated}
    if relevel_titles:
        titles = [block for page in document.pages for block in page.blocks if _is_heading(page, block)]
        levels = headings.levels([(title.content, headings.size_px(title)) for title in titles])
        changes |= {title.id: {**blank, "level": level} for title, level in zip(titles, levels, strict=True)}
    pages = (
        page.model_copy(
            update={"blocks": tuple(_changed(block, changes.get(block.id, blank)) for block in page.blocks)}
        )
        for page in document.pages
    )
    return document.model_copy(update={"pages": tuple(pages)})


def continuation(before: Page, after: Page) -> tuple[Block, Block, int] | None:
    """The last table of a page and the first one of the next, when that goes on, and how many rows repeat its head.

    Differs: a table whose rows are all at the top of the other one is a copy of it, no continuation (upstream drops
    it); a head that cells reach out of is no head.
    """
    first = _last_table(before)
    second = _first_table(after)
    if first is None or second is None or not _equally_wide(first, second):
        return None
    repeated = _repeated_rows(first.cells, second.cells)
    rows = _rows(second.cells)
    if repeated == len(rows):
        return None
    last, following = _rows(first.cells)[-1], rows[repeated]
    same_columns = _columns(first.cells) == _columns(second.cells)
    if same_columns or _columns_of_row(last) == _columns_of_row(following) or len(last) == len(following):
        return first, second, repeated
    return None


def joined_pages(pages: Sequence[Page]) -> Iterator[Page]:
    """The pages as one reads them: the first part of a table has the rows of all, the others are empty.

    Pictures in such rows come along, behind the table. Cells of later pages have no polygon, as theirs belongs to
    another page. Pages without such tables come as they are.
    """
    parts = {block.continues: (page, block) for page in pages for block in page.blocks if block.continues}
    for page in pages:
        changed = any(block.id in parts or block.continues is not None for block in page.blocks)
        yield page.model_copy(update={"blocks": tuple(_joined(page, parts))}) if changed else page


def _joined(page: Page, parts: Mapping[str, tuple[Page, Block]]) -> Iterator[Block]:
    gone = {name for block in page.blocks if block.continues is not None for name in _figures(block)}
    for block in page.blocks:
        if block.continues is not None:
            yield block.model_copy(update={"content": "", "format": "none", "cells": (), "lines": ()})
            continue
        if block.id in gone:
            continue
        whole, pictures = block, []
        last = block
        while (found := parts.get(last.id)) is not None:
            home, last = found
            whole = _appended(whole, last)
            pictures += [other for other in home.blocks if other.id in _figures(last)]
        yield whole
        yield from pictures


def _appended(table: Block, part: Block) -> Block:
    down = len(_rows(table.cells)) - part.repeated_rows
    cells = (
        cell.model_copy(update={"row": cell.row + down, "polygon": None})
        for cell in part.cells
        if cell.row >= part.repeated_rows
    )
    rows = [*_ROW.findall(table.content), *_ROW.findall(part.content)[part.repeated_rows :]]
    return table.model_copy(
        update={
            "content": "\n".join(["<table>", *rows, "</table>"]),
            "cells": (*table.cells, *cells),
            "warnings": (*table.warnings, *part.warnings),
        }
    )


def _changed(block: Block, change: Mapping[str, object]) -> Block:
    same = all(getattr(block, name) == value for name, value in change.items())
    return block if same else block.model_copy(update=dict(change))


def _is_heading(page: Page, block: Block) -> bool:
    """The title of the document is none: it stands above all."""
    is_first = page.page_index == 0 and block.order == 0
    is_title = block.label == "paragraph_title" or (block.label == "title" and not is_first)
    return is_title and bool(block.content.strip())


def _last_table(page: Page) -> Block | None:
    inside = {name for block in page.blocks for name in _figures(block)}
    for block in reversed(page.blocks):
        if block.label == "table":
            return block if block.cells else None
        if block.id not in inside and not _is_aside(block, _BELOW):
            break
    return None


def _first_table(page: Page) -> Block | None:
    for block in page.blocks:
        if block.label == "table":
            return block if block.cells else None
        if not _is_aside(block, _ABOVE) and not _says_continued(block):
            break
    return None


def _is_aside(block: Block, labels: frozenset[str]) -> bool:
    return block.label in labels or not (block.content.strip() or block.label in _PICTURES)


def _says_continued(block: Block) -> bool:
    text = block.content.strip()
    return len(text) <= _LONGEST_NOTE and _CONTINUATION.search(text) is not None


def _equally_wide(first: Block, second: Block) -> bool:
    widths = [box[2] - box[0] for box in (_hull(first), _hull(second))]
    return min(widths) > 0 and abs(widths[0] - widths[1]) / min(widths) < _WIDTHS


def _hull(block: Block) -> Box:
    return polygon_box(tuple(point for polygon in block.polygons for point in polygon))


def _figures(block: Block) -> set[str]:
    return {name for cell in block.cells for name in cell.figures}


def _rows(cells: Sequence[Cell]) -> list[list[Cell]]:
    """The cells that begin in each row, from left to right."""
    rows: list[list[Cell]] = [[] for _ in range(max((cell.row + cell.row_span for cell in cells), default=0))]
    for cell in sorted(cells, key=lambda cell: cell.column):
        rows[cell.row].append(cell)
    return rows


def _columns(cells: Sequence[Cell]) -> int:
    return max(cell.column + cell.column_span for cell in cells)


def _columns_of_row(row: Sequence[Cell]) -> int:
    return sum(cell.column_span for cell in row)


def _repeated_rows(first: Sequence[Cell], second: Sequence[Cell]) -> int:
    """How many rows at the top of the second table are those of the first one, up to 5."""
    count = 0
    for mine, theirs in zip(_rows(first)[:_MOST_HEAD_ROWS], _rows(second), strict=False):
        if _key(mine) != _key(theirs) or _has_only_pictures(theirs):
            break
        count += 1
    while any(cell.row < count < cell.row + cell.row_span for cell in second):
        count -= 1
    return count


def _key(row: Sequence[Cell]) -> list[tuple[int, str]]:
    return [(cell.column_span, "".join(cell.text.translate(_WIDE_LETTERS).split())) for cell in row]


def _has_only_pictures(row: Sequence[Cell]) -> bool:
    return any(cell.figures for cell in row) and not any(cell.text.strip() for cell in row)
