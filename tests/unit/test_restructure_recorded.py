"""Facts of restructured pages: on random documents headings and tables come out as PaddleX 3.7.2 has them.

Recorded by tools/record_restructuring.py from PaddleX's own functions, faults included: docvino's rules get those back
for the comparison.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from docvino.document import Block, Document, Page, box_polygon
from docvino.text import headings, restructure
from docvino.text.tables import to_html
from html_tables import Tree
from sample_documents import block, document, page

RECORDED: dict[str, list[Any]] = json.loads(
    (Path(__file__).resolve().parents[1] / "data" / "restructuring.json").read_text(encoding="utf-8")
)


def as_block(recorded: dict[str, Any]) -> Block:
    facts = {"polygons": (box_polygon(*recorded["box"]),)}
    if recorded["label"] != "table":
        return block(recorded["label"], recorded["content"], **facts)
    cells = Tree(recorded["content"]).cells
    return block("table", to_html(cells), "html", cells=cells, **facts)


def as_document(pages: list[list[dict[str, Any]]]) -> Document:
    return document(*(page(*map(as_block, blocks), index=index) for index, blocks in enumerate(pages)))


def joined(made: Document) -> list[Page]:
    return list(restructure.joined_pages(restructure.restructure(made).pages))


@pytest.mark.parametrize("case", range(len(RECORDED["titles"])))
def test_levels_are_those_of_upstream(case: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headings, "_ALIKE", 1.0)  # heights of one pixel more are another size there
    titles = RECORDED["titles"][case]
    blocks = [block("paragraph_title", title["content"], polygons=(box_polygon(*title["box"]),)) for title in titles]
    found = headings.levels([(title.content, headings.size_px(title)) for title in blocks])
    assert found == [max(1, title["level"]) for title in titles]


def test_the_recorded_headings_show_what_was_mended() -> None:
    assert sum(title["level"] < 1 for titles in RECORDED["titles"] for title in titles) >= 5
    assert len({title["level"] for titles in RECORDED["titles"] for title in titles}) >= 5


@pytest.fixture
def as_upstream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives the rules upstream's lists of what may stand around a table."""
    below = {"footer", "vision_footnote", "number", "footnote", "footer_image", "seal"}
    monkeypatch.setattr(restructure, "_BELOW", frozenset(below))
    monkeypatch.setattr(restructure, "_ABOVE", frozenset({"header", "header_image", "number", "seal"}))


@pytest.mark.usefixtures("as_upstream")
@pytest.mark.parametrize("case", range(len(RECORDED["tables"])))
def test_tables_over_page_breaks_are_those_of_upstream(case: int) -> None:
    recorded = RECORDED["tables"][case]
    found = joined(as_document(recorded["pages"]))
    for mine, theirs in zip(found, recorded["wanted"], strict=True):
        for one, wanted in zip(mine.blocks, theirs, strict=True):
            if one.label == "table":
                assert Tree(one.content).rows == Tree(wanted["content"]).rows


@pytest.mark.usefixtures("as_upstream")
def test_the_recorded_tables_do_go_on() -> None:
    merged = [
        one.continues
        for recorded in RECORDED["tables"]
        for each in restructure.restructure(as_document(recorded["pages"])).pages
        for one in each.blocks
    ]
    assert sum(name is not None for name in merged) >= 40
