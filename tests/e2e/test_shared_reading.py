"""What the pp-ocr preset makes of the shared test set; see test_shared_documents.py for where that lies."""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path

import pytest
from test_shared_documents import FOLDER, PASSWORDS, UNREADABLE

from docvino.document import Document
from docvino.errors import InputError
from docvino.parser import Parser
from docvino.render.markdown import to_markdown
from docvino.settings import ParseOptions
from score import cer, page_text, whole_text

SYNTHETIC = FOLDER / "synthetic"
THIRD_PARTY = FOLDER / "third_party"
BAD = sorted(path for kind in ("broken_*", "hostile_*", "encrypted_*") for path in SYNTHETIC.glob(kind))

pytestmark = pytest.mark.skipif(not BAD, reason="the shared test documents are not here")


def text_pages() -> dict[str, str]:
    """Files whose every page shows a known text."""
    truth = json.loads((SYNTHETIC / "ground_truth.json").read_text(encoding="utf-8"))
    known = {}
    for name, entry in truth.items():
        source = truth.get(entry.get("same_text_as", ""), entry)
        text = "".join(line["text"] for block in source.get("blocks", []) for line in block["lines"])
        text = text or "".join(entry.get("columns_right_to_left", []))
        if text and not name.startswith(("broken", "hostile")):
            known[name] = text
    return known


def test_text_pages_have_at_most_three_errors_in_a_thousand_characters(parser: Parser) -> None:
    rates = {}
    for name, truth in text_pages().items():
        document = parser.parse(SYNTHETIC / name)
        for page in document.pages:
            rates[f"{name} {page.page_index}"] = cer(truth, page_text(page))
    assert len(rates) >= 20
    assert statistics.mean(rates.values()) <= 0.003, rates


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.name)
def test_a_bad_document_gives_its_result_or_one_error_within_ten_seconds(parser: Parser, path: Path) -> None:
    started = time.process_time()  # what else the machine does must not matter
    failed = False
    try:
        document = parser.parse(path, ParseOptions(password=PASSWORDS.get(path.name)))
        failed = all(page.status == "failed" for page in document.pages)
    except InputError:
        failed = True
    assert time.process_time() - started < 10
    assert failed == (path.name in UNREADABLE)


def read(parser: Parser, path: str, **options: object) -> Document:
    return parser.parse(THIRD_PARTY / path, ParseOptions.model_validate(options))


@pytest.mark.parametrize("name", ["ocr_test.pdf", "ocr_test_rotated_90.pdf"])
def test_a_scanned_paragraph_is_read_without_an_error(parser: Parser, name: str) -> None:
    truth = (THIRD_PARTY / "docling" / "ocr_test.easyocr.full_page.md").read_text(encoding="utf-8")
    assert cer(truth, whole_text(read(parser, f"docling/{name}"))) <= 0.01


def test_a_scan_with_lists_headings_and_two_columns_is_read_in_order(parser: Parser) -> None:
    markdown = to_markdown(read(parser, "ocrmypdf/linn.png"))
    parts = [
        "# The LinnSequencer 32 Track MIDI Sequence Recorder",
        "- Optional remote control.",
        "## Recording a Sequence",
        "including pitch bend, modulation, velocity, aftertouch",
        "## Editing",
        "overdub notes at specific points within a sequence,",
        "simply use LOCATE, FAST FORWARD, or REWIND",
        "## Creating a Song",
        "## Composition Without Compromise",
        "## Additional Features",
        "- Simple, easy to learn operation",
    ]
    places = [markdown.find(part) for part in parts]
    assert -1 not in places, [part for part, place in zip(parts, places, strict=True) if place < 0]
    assert places == sorted(places)


def test_a_page_of_latex_keeps_its_paragraphs(parser: Parser) -> None:
    document = read(parser, "py-pdf-sample-files/pdflatex-4-pages.pdf", pages="1")
    assert sum(len(block.lines) for block in document.pages[0].blocks) >= 44
