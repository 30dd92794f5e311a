"""Character error rate, as this project states it everywhere."""

from __future__ import annotations

import re
import unicodedata

from rapidfuzz.distance import Levenshtein

from docvino.document import Document, Page

_DASHES = re.compile("[\u2010-\u2015\u2212\u2e3a\u2e3b]+")


def plain(text: str) -> str:
    """NFKC, dashes folded to one hyphen, blanks dropped."""
    return re.sub(r"\s+", "", _DASHES.sub("-", unicodedata.normalize("NFKC", text)))


def cer(truth: str, found: str) -> float:
    """Edits per character of the truth, 0 is perfect."""
    wanted = plain(truth)
    return Levenshtein.distance(wanted, plain(found)) / max(1, len(wanted))


def whole_text(document: Document) -> str:
    """All text of a document in reading order, running heads and feet included."""
    return "\n".join(page_text(page) for page in document.pages)


def page_text(page: Page) -> str:
    """The page's text without the tags of tables."""
    return "\n".join(
        "\n".join(cell.text for cell in block.cells) if block.format == "html" else block.content
        for block in page.blocks
    )
