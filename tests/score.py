"""Character error rate and TEDS, as this project states them everywhere."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from apted import APTED, Config
from rapidfuzz.distance import Levenshtein

from docvino.document import Document, Page
from html_tables import Node, tree_of

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


def teds(truth: str, found: str, *, parts: bool = False) -> float:
    """Likeness of two tables in HTML by the edit distance of their trees, 0 to 1: 1 is the same table.

    parts   heads and bodies of tables count as nodes; else rows are children of the table, as benchmarks have it

    Source: Zhong, ShafieiBavani and Jimeno Yepes 2020, "Image-based table recognition": inserting or deleting a node
    costs 1, changing one costs 1 when tags or spans differ, and of two cells the edit distance of their texts as a
    share of the longer one; the sum is taken as a share of the larger tree. Inline markup is no text here.
    """
    trees = [tree_of(text, parts=parts) for text in (truth, found)]
    largest = max(tree.size for tree in trees)
    return 1.0 - float(APTED(*trees, _Costs()).compute_edit_distance()) / largest


class _Costs(Config):  # type: ignore[misc]
    def children(self, node: Node) -> Any:
        return node.children

    def rename(self, node1: Node, node2: Node) -> float:
        if (node1.tag, node1.spans) != (node2.tag, node2.spans):
            return 1.0
        return Levenshtein.normalized_distance(node1.text, node2.text)
