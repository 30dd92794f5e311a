"""Pages -> a document: tables that go on over a page break, and levels of headings.

Nothing is moved or lost: blocks stay on their pages with their boxes, and say what they go on from and how deep they
are. `joined_pages` gives the pages as one reads them.

Source: PaddleX 3.7.2, `restructure_pages` of the pipeline PaddleOCR-VL (merge_table.py, title_level.py), as rules; the
code is docvino's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, takewhile

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

    Differs: upstream moves the rows into the first table, where their boxes and confidences are lost; it merges pages
    that were not neighbours in the source; and it looks for a repeated head on the page before only, where there may be
    none.
    """
    blank = {"level": None, "continues": None, "repeated_rows": 0}
    changes: dict[str, dict[str, object]] = {}
    beginnings: dict[str, Block] = {}
    if merge_tables:
        for before, after in pairwise(document.pages):
            last, following = _last_table(before), _first_table(after)
            if last is None or following is None or after.page_index != before.page_index + 1:
                continue
            beginning = beginnings.get(last.id, last)
            repeated = continuation(last, following, beginning)
            if repeated is not None:
                beginnings[following.id] = beginning
                changes[following.id] = {**blank, "continues": last.id, "repeated_rows": repeated}
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


def continuation(last: Block, following: Block, beginning: Block) -> int | None:
    """How many rows of the table at the top of a page repeat the head; None when it does not go on from the last one.

    beginning   the first part of the last table, which has the head

    Differs: a table whose rows are all at the top of the first part is a copy of it, no continuation (upstream drops
    it); a head that cells reach out of is no head.
    """
    rows, rows_before = _rows(following.cells), _rows(last.cells)
    equal = _equal_rows(_rows(beginning.cells), rows)
    if not _equally_wide(last, following) or equal == len(rows):  # a copy is no continuation
        return None
    repeated = min(equal, _MOST_HEAD_ROWS)
    while any(cell.row < repeated < cell.row + cell.row_span for cell in following.cells):
        repeated -= 1
    end, start = rows_before[-1], rows[repeated] if repeated < len(rows) else None
    same_columns = _columns(last.cells) == _columns(following.cells)
    same_row = start is not None and (_columns_of_row(end) == _columns_of_row(start) or len(end) == len(start))
    return repeated if same_columns or same_row else None


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


def _equal_rows(first: Sequence[Sequence[Cell]], second: Sequence[Sequence[Cell]]) -> int:
    """How many rows at the top of the second table are those of the first one."""
    pairs = zip(first, second, strict=False)
    return sum(
        1 for _ in takewhile(lambda pair: _key(pair[0]) == _key(pair[1]) and not _has_only_pictures(pair[1]), pairs)
    )


def _key(row: Sequence[Cell]) -> list[tuple[int, str]]:
    return [(cell.column_span, "".join(cell.text.translate(_WIDE_LETTERS).split())) for cell in row]


def _has_only_pictures(row: Sequence[Cell]) -> bool:
    return any(cell.figures for cell in row) and not any(cell.text.strip() for cell in row)
