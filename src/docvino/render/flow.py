"""What each block of a page is for a reader: a heading, a paragraph, a picture.

What people read is made of these. One table of labels serves every layout model: the ten of CDLA (pp-ocr) and those of
PP-DocLayoutV2 and V3.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from docvino.document import BULLETS, Block, Cell, Document, Page, Polygon, polygon_box
from docvino.specs import doclayout
from docvino.text import math

# title      of the document or of a section, with a level from 1
# item       of a list, without its printed bullet
# lines      text whose line breaks mean something (a table of contents, an algorithm)
# formula    LaTeX without delimiters
# table      its cells are in the block
# rows       a table whose structure is not known: lines of cells with tabs between them
# picture    a part of the page to be shown as it is
Kind = Literal["title", "paragraph", "item", "caption", "lines", "formula", "table", "rows", "picture"]

# No part of the running text; they stay in the JSON.
# Source: PaddleX 3.7.2, markdown_ignore_labels of PaddleOCR-VL-1.6.
# Differs: upstream's Markdown loses numbers of formulas, too.
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
    r"""A part of a block. `text` may hold formulas as `\(x\)` and `\[x\]`; `level` is that of a title, else 0."""

    kind: Kind
    block: Block
    text: str = ""
    level: int = 0


def page_pieces(page: Page) -> Iterator[Piece]:
    """The pieces of a page in reading order, without running heads and feet and without what is empty.

    A picture that stands in a cell of a table is none by itself.
    """
    in_cells = {name for block in page.blocks for cell in block.cells for name in cell.figures}
    for block in page.blocks:
        if block.label not in FURNITURE:
            for piece in _pieces(block, first=page.page_index == 0 and block.order == 0):
                if piece.kind != "picture" or block.id not in in_cells:
                    yield piece


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
    text = "".join(block.content for page in document.pages for block in page.blocks)
    letters = len(_LETTER.findall(text))
    counts = {name: len(script.findall(text)) for name, script in _SCRIPTS.items()}
    # Japanese has more Chinese characters than kana, but Chinese has no kana.
    if letters and counts["ja"] >= 0.05 * letters:
        return "ja"
    found = max(("ko", "zh"), key=lambda name: counts[name])
    return found if counts[found] > 0.2 * letters else "und"


def east_asian(document: Document) -> str | None:
    """The script of its Chinese characters, kana or hangul, "zh", "ja" or "ko", however few there are; else None.

    It decides which typeface, and which form of a character, they are shown in.
    """
    text = "".join(block.content for page in document.pages for block in page.blocks)
    counts = {name: len(script.findall(text)) for name, script in _SCRIPTS.items()}
    if counts["ja"] >= 0.05 * max(1, counts["zh"] + counts["ja"]):
        return "ja"
    found = max(("ko", "zh"), key=lambda name: counts[name])
    return found if counts[found] else None


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
    Differs: upstream counts the dots of the whole title, those of its words too.
    """
    if block.label == "doc_title" or (block.label == "title" and first):
        return 1
    numbering = _NUMBERING.match(block.content)
    dots = len(re.findall("[.．]", numbering[1])) if numbering else 0
    return min(2 + dots, _DEEPEST)


def _pieces(block: Block, *, first: bool) -> Iterator[Piece]:
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
        yield Piece("title", block, " ".join(content.split("\n\n")), title_level(block, first=first))
    elif block.label in CAPTIONS:
        yield Piece("caption", block, " ".join(content.split()))
    elif block.label == "table":
        yield Piece("rows", block, content)
    elif block.label in _LINES:
        yield Piece("lines", block, content.strip("\n"))
    else:
        yield from _paragraphs(block, content)


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
