"""Tables whose cells are known, through the whole pp-ocr preset."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import pytest
from PIL import Image
from test_shared_documents import FOLDER

import draw
from docvino.document import Block, Document
from docvino.parser import Parser
from docvino.render.json import from_json, to_json
from docvino.render.markdown import to_markdown
from docvino.settings import RuntimeConfig
from score import cer, plain

LONG = {"row_height": 40, "size": 22}
LONG_WIDTHS = (120, 180, 160, 140)
WIDTHS = (200, 160, 160, 180)

TABLES: dict[str, tuple[Image.Image, draw.TableTruth]] = {
    "bordered": (draw.table_page(draw.BORDERED, WIDTHS), draw.BORDERED),
    "half size": (draw.low_resolution(draw.table_page(draw.BORDERED, WIDTHS)), draw.BORDERED),
    "turned by 90": (draw.turned(draw.table_page(draw.BORDERED, WIDTHS), 90), draw.BORDERED),
    "under a caption": (draw.table_page(draw.BORDERED, WIDTHS, caption="表1 文具采购 Table 1"), draw.BORDERED),
    "spans": (draw.table_page(draw.SPANS, (150,) * 5), draw.SPANS),
    "three rules": (draw.table_page(draw.THREE_LINES, (190, 150, 150, 170), border=False), draw.THREE_LINES),
    "empty cells": (draw.table_page(draw.EMPTY_CELLS, (140, 180, 180, 180)), draw.EMPTY_CELLS),
    "21 rows": (draw.table_page(draw.long_table(20), LONG_WIDTHS, **LONG), draw.long_table(20)),
    "33 rows": (draw.table_page(draw.long_table(32), LONG_WIDTHS, **LONG), draw.long_table(32)),
    "33 rows without borders": (
        draw.table_page(draw.long_table(32), LONG_WIDTHS, border=False, **LONG),
        draw.long_table(32),
    ),
    "81 rows": (draw.table_page(draw.long_table(80), LONG_WIDTHS, **LONG), draw.long_table(80)),
}


def table_of(document: Document) -> Block:
    (block,) = (block for page in document.pages for block in page.blocks if block.label == "table")
    return block


def check(block: Block, truth: draw.TableTruth) -> None:
    """The same cells with the same spans and texts; empty ones empty."""
    assert block.warnings == ()
    assert block.format == "html"
    wanted = {spot[:4]: spot[4] for spot in truth.grid}
    found = {(cell.row, cell.column, cell.row_span, cell.column_span): cell for cell in block.cells}
    assert found.keys() == wanted.keys()
    for spot, text in wanted.items():
        assert cer(text, found[spot].text) <= 0.1, (spot, text)
        assert bool(found[spot].text) == bool(text)
        assert (found[spot].confidence is None) == (not text)
    every = sorted(wanted)
    assert cer("\n".join(wanted[spot] for spot in every), "\n".join(found[spot].text for spot in every)) <= 0.005


@pytest.mark.parametrize("name", TABLES)
def test_a_drawn_table_has_its_cells_spans_and_texts(parser: Parser, name: str) -> None:
    image, truth = TABLES[name]
    check(table_of(parser.parse(draw.png(image))), truth)


@pytest.mark.parametrize("precision", [pytest.param("fp16", marks=pytest.mark.slow), "int8"])
def test_smaller_weights_find_the_same_tables(runtime: RuntimeConfig, precision: str) -> None:
    with Parser.open(runtime.model_copy(update={"precision": precision})) as opened:
        for name in ("bordered", "spans", "three rules", "empty cells", "33 rows"):
            image, truth = TABLES[name]
            check(table_of(opened.parse(draw.png(image))), truth)


def test_cells_lie_where_they_are_drawn(parser: Parser) -> None:
    block = table_of(parser.parse(draw.png(TABLES["bordered"][0])))
    left = [60, 260, 420, 580, 760]
    for cell in block.cells:
        assert cell.polygon is not None
        (x0, y0), (x1, y1) = cell.polygon[0], cell.polygon[2]
        wanted = (left[cell.column], 60 + 60 * cell.row, left[cell.column + 1], 120 + 60 * cell.row)
        for found, edge in zip((x0, y0, x1, y1), wanted, strict=True):
            assert abs(found - edge) <= 20


def test_a_page_with_text_around_a_table_keeps_its_order_and_json(parser: Parser) -> None:
    page = Image.new("RGB", (1000, 1200), "white")
    text, _ = draw.chinese_page()
    page.paste(text.crop((0, 0, 1000, 400)), (0, 0))
    page.paste(draw.table_page(draw.BORDERED, WIDTHS), (90, 420))
    page.paste(text.crop((0, 380, 1000, 560)), (0, 900))
    document = parser.parse(draw.png(page))
    check(table_of(document), draw.BORDERED)
    assert [block.label for block in document.pages[0].blocks] == ["title", "text", "table", "text"]
    assert document.stats.crops == 2
    assert document.stats.tables_ms > 0
    assert from_json(to_json(document)) == document
    assert table_of(document).content in to_markdown(document)


def test_a_noisy_scan_of_a_table_loses_no_cell_text(parser: Parser) -> None:
    """Layout detection takes such a table for a figure unless a caption stands over it."""
    page = Image.new("RGB", (1000, 1300), "white")
    text, _ = draw.chinese_page()
    page.paste(text.crop((0, 0, 1000, 400)), (0, 0))
    page.paste(draw.table_page(draw.BORDERED, WIDTHS, caption="表1 文具采购 Table 1"), (90, 420))
    page.paste(text.crop((0, 380, 1000, 560)), (0, 1000))
    block = table_of(parser.parse(draw.jpeg(draw.skewed(page, 1))))
    wanted = [(*spot[:2], spot[4]) for spot in draw.BORDERED.grid]
    assert [(cell.row, cell.column, cell.text) for cell in block.cells] == wanted


class Rows(HTMLParser):
    """The cells of HTML, row by row."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[tuple[str, int, int]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "tr":
            self.rows.append([])
        if tag == "td":
            self.rows[-1].append(("", int(given.get("rowspan") or 1), int(given.get("colspan") or 1)))

    def handle_data(self, data: str) -> None:
        if self.rows and self.rows[-1]:
            text, high, wide = self.rows[-1][-1]
            self.rows[-1][-1] = ((text + data).strip(), high, wide)


SYNTHETIC = FOLDER / "synthetic"


@pytest.mark.skipif(not SYNTHETIC.is_dir(), reason="the shared test documents are not here")
@pytest.mark.parametrize("name", ["table_bordered.png", "table_spans.png", "table_three_lines.png", "born_digital.pdf"])
def test_a_shared_table_has_its_cells_spans_and_texts(parser: Parser, name: str) -> None:
    entry = json.loads((SYNTHETIC / "ground_truth.json").read_text(encoding="utf-8"))[name]
    html = entry.get("html") or entry["table_page_1"]
    truth = draw.TableTruth(tuple(tuple(row) for row in Rows(html).rows))
    block = table_of(parser.parse(SYNTHETIC / name))
    check(block, truth)
    without_blanks = [[(plain(text), *spans) for text, *spans in row] for row in Rows(html).rows]
    assert [[(plain(text), *spans) for text, *spans in row] for row in Rows(block.content).rows] == without_blanks
