"""Document -> Markdown."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping

from docvino.document import BULLETS, Block, Document, Page
from docvino.specs import doclayout
from docvino.text import math

# Running heads and feet are no part of the text; they stay in the JSON.
FURNITURE = frozenset({"header", "footer"}) | doclayout.RUNNING
PICTURES = frozenset({"figure"}) | doclayout.PICTURES
_TITLES = frozenset({"title", "doc_title", "paragraph_title"})

_PLACE = "\ue000"  # of the private use area: stands for a formula while the text around it is escaped

_INLINE = re.compile(r"([\\`*_\[\]<>|~$]|&(?=#?\w+;))")
_INDENT = re.compile(r"^[ \t]+", re.MULTILINE)
_LINE_START = re.compile(r"^(#{1,6}(?=\s|$)|[-+](?=\s|$)|=+[ \t]*$|-{2,}[ \t]*$)", re.MULTILINE)
_NUMBERED = re.compile(r"^(\d{1,9})([.)])(?=\s|$)", re.MULTILINE)
_FIGURE = re.compile(r'<img data-block="([^"]*)">')  # a picture in a cell of a table
_CLOSING = re.compile(r"(?<=\s)(?=#+\s*$)")  # a heading's last word made of # would be taken for its end


def to_markdown(document: Document, images: Mapping[str, str] | None = None) -> str:
    """CommonMark text; pages follow each other without a mark.

    images   block id -> link target for figures; a figure without one is left out, so that every link resolves
    """
    pieces = [piece for page in document.pages for piece in page_pieces(page, images or {})]
    return "\n\n".join(pieces) + "\n" if pieces else ""


def page_pieces(page: Page, images: Mapping[str, str]) -> Iterator[str]:
    """Markdown of each block of the page that has any."""
    in_tables = {name for block in page.blocks if block.format == "html" for name in _FIGURE.findall(block.content)}
    for block in page.blocks:
        shown_already = block.id in in_tables and block.id in images
        piece = _piece(block, images, is_shown_already=shown_already, first=page.page_index == 0 and block.order == 0)
        if piece:
            yield piece


def _piece(block: Block, images: Mapping[str, str], *, is_shown_already: bool, first: bool) -> str:
    if block.label in FURNITURE:
        return ""
    if block.label in PICTURES and block.format != "html":
        picture = f"![{block.label}]({images[block.id]})" if block.id in images and not is_shown_already else ""
        # Words in the figures of pp-ocr are chance finds; those of these labels were asked for.
        words = block.content if block.label in doclayout.PICTURES else ""
        text = "\n\n".join(_paragraph(paragraph) for paragraph in words.split("\n\n"))
        return "\n\n".join(piece for piece in (picture, text) if piece)
    if not block.content.strip():
        return ""
    if block.format == "latex":
        return "\n\n".join(f"$$\n{_one_line(formula)}\n$$" for formula in block.content.split("\n\n"))
    if block.format == "html":
        # As it is: Markdown has HTML tables, and its own know no spans.
        return _FIGURE.sub(lambda found: _image_tag(images.get(found.group(1))), block.content)
    if block.label in _TITLES:
        text = _CLOSING.sub(r"\\", " ".join(_shown(part) for part in block.content.split("\n\n")))
        return f"{'#' if first or block.label == 'doc_title' else '##'} {text}"
    if block.label == "table":
        # Two spaces at a line's end keep the rows apart.
        return "  \n".join(_shown(row.replace("\t", "   ")) for row in block.content.split("\n"))
    return "\n\n".join(_paragraph(paragraph) for paragraph in block.content.split("\n\n"))


def _image_tag(target: str | None) -> str:
    return "" if target is None else f'<img src="{html.escape(target)}" alt="image">'


def _paragraph(text: str) -> str:
    """A paragraph that begins with a printed bullet is an item of a list."""
    if text.startswith(BULLETS) and text[1:].strip():
        return f"- {_shown(text[1:].strip())}"
    return _shown(text)


def _shown(text: str) -> str:
    """The text escaped, its formulas between dollar signs.

    Source: PaddleX 3.7.2, the formula rule of the pipeline PaddleOCR-VL.
    Differs: no blanks inside the dollar signs, with which pandoc and GitHub see no formula.
    """
    pieces = list(math.split(text))
    if _PLACE in text or all(kind == "text" for kind, _ in pieces):
        return escape(text)
    written = {"inline": "${}$", "display": "$${}$$"}
    formulas = iter([written[kind].replace("{}", _one_line(piece)) for kind, piece in pieces if kind != "text"])
    # Escaped as a whole, because some characters need it only at the start of a line.
    whole = escape("".join(piece if kind == "text" else _PLACE for kind, piece in pieces))
    return "".join(next(formulas) if letter == _PLACE else letter for letter in whole)


def _one_line(formula: str) -> str:
    """Line feeds mean nothing in a formula, but a line that begins with a minus would begin a list."""
    return " ".join(formula.split())


def escape(text: str) -> str:
    """Text that Markdown shows as it is: its special characters get a backslash.

    Blanks at the start of a line are dropped: Markdown shows none there, but four of them would make the line code.
    """
    text = _INLINE.sub(r"\\\1", _INDENT.sub("", text))
    text = _LINE_START.sub(r"\\\1", text)
    return _NUMBERED.sub(r"\1\\\2", text)
