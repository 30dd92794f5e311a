"""Document -> Markdown."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from itertools import groupby

from docvino.document import Document, Page
from docvino.render.flow import FIGURE, Piece, page_pieces, pages_to_read, width_share
from docvino.text import math

_BACKSLASH = r"\\"
_PLACE = "\ue000"  # of the private use area: stands for a formula while the text around it is escaped

_INLINE = re.compile(r"([\\`*_\[\]<>|~$]|&(?=#?\w+;))")
_INDENT = re.compile(r"^[ \t]+", re.MULTILINE)
_LINE_START = re.compile(r"^(#{1,6}(?=\s|$)|[-+](?=\s|$)|=+[ \t]*$|-{2,}[ \t]*$)", re.MULTILINE)
_NUMBERED = re.compile(r"^(\d{1,9})([.)])(?=\s|$)", re.MULTILINE)
_CLOSING = re.compile(r"(?<=\s)(?=#+\s*$)")  # a heading's last word made of # would be taken for its end


def to_markdown(document: Document, images: Mapping[str, str] | None = None, *, pretty: bool = False) -> str:
    """CommonMark text; pages follow each other without a mark.

    images   block id -> link target for figures; a figure without one is left out, so that every link resolves
    pretty   figures and captions centred and tables with borders, in HTML as PaddleOCR writes it
    """
    pieces = [piece for page in pages_to_read(document) for piece in page_markdown(page, images or {}, pretty=pretty)]
    return "\n\n".join(pieces) + "\n" if pieces else ""


def page_markdown(page: Page, images: Mapping[str, str], *, pretty: bool = False) -> Iterator[str]:
    """Markdown of each piece of the page that has any; items that follow each other are one list."""
    for are_items, pieces in groupby(page_pieces(page), key=lambda piece: piece.kind == "item"):
        if are_items:
            yield "\n".join(_plain(piece, images) for piece in pieces)
            continue
        for piece in pieces:
            if written := (_pretty(piece, page, images) if pretty else None) or _plain(piece, images):
                yield written


def _plain(piece: Piece, images: Mapping[str, str]) -> str:
    if piece.kind == "picture":
        return f"![{piece.block.label}]({images[piece.block.id]})" if piece.block.id in images else ""
    if piece.kind == "formula":
        tag = rf" \tag*{{{piece.number}}}" if piece.number else ""
        return f"$$\n{_one_line(piece.text)}{tag}\n$$"
    if piece.kind == "table":
        # As it is: Markdown has HTML tables, and its own know no spans.
        return FIGURE.sub(lambda found: _image_tag(images.get(found[1])), piece.block.content)
    if piece.kind == "title":
        return f"{'#' * piece.level} {_CLOSING.sub(_BACKSLASH, _shown(piece.text))}"
    if piece.kind in ("rows", "lines"):
        # Two spaces at a line's end keep the rows apart.
        return "  \n".join(_shown(row.replace("\t", "   ")) for row in piece.text.split("\n") if row.strip())
    return f"- {_shown(piece.text)}" if piece.kind == "item" else _shown(piece.text)


def _pretty(piece: Piece, page: Page, images: Mapping[str, str]) -> str | None:
    """What looks other than in plain Markdown; None for all else.

    Source: PaddleX 3.7.2, the Markdown writer of PaddleOCR-VL, as a rule.
    Differs: text in HTML is escaped, a figure has its label as alternative text, and cells with spans are centred, too.
    """
    centred = '<div style="text-align: center;">{}</div>'
    if piece.kind == "caption":
        # HTML shows no formula; between blank lines Markdown would read the text, dollar signs and all.
        return None if "$" in _shown(piece.text) else centred.format(html.escape(piece.text, quote=False))
    if piece.kind == "picture" and piece.block.id in images:
        width = int(100 * width_share(piece.block.polygons[0], page))
        target, label = html.escape(images[piece.block.id]), html.escape(piece.block.label)
        return centred.format(f'<img src="{target}" alt="{label}" width="{width}%" />')
    if piece.kind == "table":
        table = _plain(piece, images).replace(
            "<table>", "<table border=1 style='margin: auto; word-wrap: break-word;'>", 1
        )
        return table.replace("<td", "<td style='text-align: center; word-wrap: break-word;'")
    return None


def _image_tag(target: str | None) -> str:
    return "" if target is None else f'<img src="{html.escape(target)}" alt="image">'


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
