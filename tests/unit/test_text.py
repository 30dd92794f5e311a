"""Facts of the plain text."""

from __future__ import annotations

from docvino.render.text import to_text
from sample_documents import SPANNING, block, document, page, table


def test_paragraphs_are_apart_and_nothing_is_escaped() -> None:
    blocks = (block("doc_title", "# Title"), block("text", "a * b\n\n• one\n\n• two"), block("image"))
    assert to_text(document(page(*blocks))) == "# Title\n\na * b\n\n• one\n• two\n"


def test_cells_have_tabs_between_them_and_covered_places_are_empty() -> None:
    assert to_text(document(page(table(spans=SPANNING)))) == "Wide\t\tTall\na\tb\n"


def test_formulas_stay_latex() -> None:
    blocks = (block("text", r"so \(x^2\) is"), block("formula", r"\frac{1}{2}", "latex"))
    assert to_text(document(page(*blocks))) == "so \\(x^2\\) is\n\n\\frac{1}{2}\n"


def test_a_number_stands_behind_its_formula() -> None:
    blocks = (block("display_formula", "x", "latex"), block("formula_number", "(1)"), block("text", "so"))
    assert to_text(document(page(*blocks))) == "x\t(1)\n\nso\n"


def test_a_form_feed_stands_between_pages_and_an_empty_page_keeps_its_place() -> None:
    pages = (page(block("text", "one")), page(index=1), page(block("text", "three"), index=2))
    assert to_text(document(*pages)) == "one\n\f\fthree\n"
