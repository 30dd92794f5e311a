"""What each block of a page is for a reader: a heading, a paragraph, a picture.

What people read is made of these. One table of labels serves every layout model: the ten of CDLA (pp-ocr) and those of
PP-DocLayoutV2 and V3.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from docvino.document import BULLETS, Block, Cell, Document, Page, Polygon, polygon_box
from docvino.specs import doclayout
from docvino.text import math
from docvino.text.paragraphs import join_lines
from docvino.text.restructure import joined_pages

# title      of the document or of a section, with a level from 1
# item       of a list, without its printed bullet
# lines      text whose line breaks mean something (a table of contents, an algorithm)
# formula    LaTeX without delimiters, perhaps with a number
# table      its cells are in the block
# rows       a table whose structure is not known: lines of cells with tabs between them
# picture    a part of the page to be shown as it is
Kind = Literal["title", "paragraph", "item", "caption", "lines", "formula", "table", "rows", "picture"]

# No part of the running text; they stay in the JSON.
# Source: PaddleX 3.7.2, markdown_ignore_labels of PaddleOCR-VL-1.6.
FURNITURE = frozenset({"header", "footer"}) | doclayout.RUNNING
PICTURES = (frozenset({"figure"}) | doclayout.PICTURES) - FURNITURE
TITLES = frozenset({"title", "doc_title", "paragraph_title", "abstract_title", "reference_title", "content_title"})
CAPTIONS = frozenset({"figure_caption", "table_caption", "figure_title", "table_title", "chart_title"})
FIGURE = re.compile(r'<img data-block="([^"]*)">')  # a picture in a cell, in the content of a table
_LINES = frozenset({"content", "algorithm"})
_ABSTRACT = re.compile(r"\s*(abstract|摘\s*要)\b[\s:.：—-]*", re.IGNORECASE)

_NUMBERING = re.compile(r"\s*(\d+(?:[.．]\d+)*)[.．、]?(?=\s|[\u3400-\u9fff]|$)")
_DEEPEST = 6
_TAG = re.compile(r"<[^>]*>")

# Characters that no text has and XML forbids; a model may write any of them.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")

_SCRIPTS = {
    "ja": re.compile("[\u3040-\u30ff]"),
    "ko": re.compile("[\u1100-\u11ff\uac00-\ud7a3]"),
    "zh": re.compile("[\u3400-\u4dbf\u4e00-\u9fff]"),
}
_LETTER = re.compile(r"[^\W\d_]")


@dataclass(frozen=True)
class Piece:
    r"""A part of a block. `text` may hold formulas as `\(x\)` and `\[x\]`; `level` is that of a title, else 0.

    number   of a formula, as it is printed beside it: "(3)"; it is sound as the text of a `\tag`
    """

    kind: Kind
    block: Block
    text: str = ""
    level: int = 0
    number: str = ""


def pages_to_read(document: Document) -> Iterator[Page]:
    """The pages as one reads them: tables over page breaks are whole where the document was restructured."""
    return joined_pages(document.pages)


def page_pieces(page: Page) -> Iterator[Piece]:
    """The pieces of a page in reading order, without running heads and feet and without what is empty.

    A picture that stands in a cell of a table is none by itself, nor is the number behind a formula.

    Source: PaddleX 3.7.2, merge_formula_and_number.
    Differs: upstream's Markdown has numbers of formulas where `show_formula_number` asks for them, else they are lost.
    """
    in_cells = {name for block in page.blocks for cell in block.cells for name in cell.figures}
    numbers = {before.id: after.id for before, after in pairwise(page.blocks) if _formula_number(before, after)}
    by_id = {block.id: block for block in page.blocks}
    for block in page.blocks:
        if block.label in FURNITURE or block.id in numbers.values():
            continue
        pieces = [p for p in _pieces(page, block) if p.kind != "picture" or block.id not in in_cells]
        if block.id in numbers:
            pieces[-1] = replace(pieces[-1], number=_number_text(by_id[numbers[block.id]]))
        yield from pieces


def is_picture(block: Block) -> bool:
    """True for a block whose pixels are wanted.

    A chart that was read is a table, and a page that is one element was asked for as text.
    """
    if block.label not in PICTURES:
        return False
    if block.label == "figure":
        return True
    return not block.content.strip() or (block.layout_score is not None and block.format != "html")


def table_cells(block: Block) -> tuple[Cell, ...]:
    """The cells of a table; one with all its text when the block is HTML of somebody else and has none."""
    return block.cells or (Cell(row=0, column=0, text=html.unescape(_TAG.sub(" ", block.content)).strip()),)


def language(document: Document) -> str:
    """The language as far as its script tells: "zh", "ja", "ko", else "und" (of Latin letters nobody can say)."""
    letters, counts = _count(document, _LETTER), _count_scripts(document)
    # Japanese has more Chinese characters than kana, but Chinese has no kana.
    if letters and counts["ja"] >= 0.05 * letters:
        return "ja"
    found = max(("ko", "zh"), key=lambda name: counts[name])
    return found if counts[found] > 0.2 * letters else "und"


def east_asian(document: Document) -> str | None:
    """The script of its Chinese characters, kana or hangul, "zh", "ja" or "ko", however few there are; else None.

    It decides which typeface, and which form of a character, they are shown in.
    """
    counts = _count_scripts(document)
    if counts["ja"] >= 0.05 * max(1, counts["zh"] + counts["ja"]):
        return "ja"
    found = max(("ko", "zh"), key=lambda name: counts[name])
    return found if counts[found] else None


def _count_scripts(document: Document) -> dict[str, int]:
    return {name: _count(document, script) for name, script in _SCRIPTS.items()}


def _count(document: Document, pattern: re.Pattern[str]) -> int:
    """How often it is found, block by block: a long document is never one text."""
    return sum(len(pattern.findall(block.content)) for page in document.pages for block in page.blocks)


def is_east_asian(text: str) -> bool:
    """Whether it has Chinese characters, kana or hangul."""
    return any(script.search(text) for script in _SCRIPTS.values())


def without_controls(text: str) -> str:
    """The text without characters that XML forbids."""
    return _UNPRINTABLE.sub("", text)


def width_share(polygon: Polygon, page: Page) -> float:
    """The part of the page's width that the polygon takes, above 0 and at most 1."""
    left, _, right, _ = polygon_box(polygon)
    return min(1.0, max(0.01, (right - left) / max(1, page.width_px)))


def title_level(block: Block, *, first: bool) -> int:
    """1 for the title of the document, 2 for a section, deeper for numbers such as 2.1.

    Source: PaddleX 3.7.2, the numbering of titles in its Markdown.
    Differs: upstream counts the dots of the whole title, those of its words too, and puts a blank behind its number
    ("一般规定" becomes "一 般规定").
    """
    if block.level is not None:
        return min(1 + block.level, _DEEPEST)
    if block.label == "doc_title" or (block.label == "title" and first):
        return 1
    numbering = _NUMBERING.match(block.content)
    dots = len(re.findall("[.．]", numbering[1])) if numbering else 0
    return min(2 + dots, _DEEPEST)


def _formula_number(formula: Block, number: Block) -> bool:
    """Whether the second block is the number of the formula in the first one, fit to be its tag."""
    if formula.format != "latex" or number.label != "formula_number" or r"\tag" in formula.content:
        return False
    text = _number_text(number)
    return bool(without_controls(formula.content).strip() and text) and not math.faults(rf"\tag*{{{text}}}")


def _number_text(block: Block) -> str:
    """Source: PaddleX 3.7.2: the number of a formula has no dollar signs, though it may be read as a formula."""
    pieces = (piece for _, piece in math.split(without_controls(block.content)))
    return " ".join("".join(pieces).replace("$", "").split())


def _pieces(page: Page, block: Block) -> Iterator[Piece]:
    first = page.page_index == 0 and block.order == 0
    if is_picture(block):
        yield Piece("picture", block)
        if block.label == "figure":
            return  # what was read in it are the words of the picture
    content = without_controls(block.content)
    if not content.strip():
        return
    if block.format == "html":
        yield Piece("table", block)
    elif block.format == "latex":
        yield from (Piece("formula", block, formula) for formula in content.split("\n\n") if formula.strip())
    elif block.label in TITLES:
        yield Piece("title", block, _one_line(content), title_level(block, first=first))
    elif block.label in CAPTIONS:
        yield Piece("caption", block, _one_line(content))
    elif block.label == "table":
        yield Piece("rows", block, content)
    elif block.label in _LINES:
        yield Piece("lines", block, content.strip("\n"))
    else:
        yield from _paragraphs(block, content)


def _one_line(content: str) -> str:
    """Source: PaddleX 3.7.2: in titles and captions a hyphen at a line's end goes, and a line feed is a blank.

    Differs: between Chinese characters it is nothing, and a hyphen stays before a capital letter or a number.
    """
    return " ".join(join_lines(part.splitlines()) for part in content.split("\n\n")).strip()


def _paragraphs(block: Block, content: str) -> Iterator[Piece]:
    """A paragraph that begins with a printed bullet is an item of a list.

    Source: PaddleX 3.7.2, the Markdown writer of PaddleOCR-VL: each line feed of a text ends a paragraph.
    """
    if block.label == "abstract" and (heading := _ABSTRACT.match(content)):
        yield Piece("title", block, "".join(heading[1].split()), 2)
        content = content[heading.end() :]
    for paragraph in _split_paragraphs(content):
        text = paragraph.strip()
        if text.startswith(BULLETS) and text[1:].strip():
            yield Piece("item", block, text[1:].strip())
        elif text:
            yield Piece("paragraph", block, paragraph)


def _split_paragraphs(content: str) -> list[str]:
    """The text at its line feeds, but not at those in formulas."""
    written = {"inline": r"\({}\)", "display": r"\[{}\]"}
    pieces = (
        piece if kind == "text" else written[kind].replace("{}", " ".join(piece.split()))
        for kind, piece in math.split(content)
    )
    return "".join(pieces).split("\n")
