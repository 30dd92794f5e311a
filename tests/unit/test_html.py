"""Facts of the HTML: it stands alone, shows what was read and runs nothing. Read by Python's own parser."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docvino.document import Block, Cell
from docvino.render.formulas import to_mathml
from docvino.render.html import to_html
from sample_documents import SPANNING, block, document, page, png, table

VOID = {"meta", "br", "img"}


class Reader(HTMLParser):
    """The elements with their attributes and the text in them; complains of tags that are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip() and "style" not in self.open:
            self.texts.append((self.open[-1], data))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def text(self, tag: str) -> list[str]:
        return [data for name, data in self.texts if name == tag]


def read(*blocks: Block) -> Reader:
    return Reader(to_html(document(page(*blocks))))


def test_a_number_stands_beside_its_formula() -> None:
    found = read(block("display_formula", "x", "latex"), block("formula_number", "<1>"))
    assert [attributes.get("class") for attributes in found.all("span")] == ["tag"]
    assert found.text("span") == ["<1>"]
    assert len(found.all("math")) == 1
    assert found.all("p") == []


def test_each_kind_of_block_has_its_element_in_reading_order() -> None:
    found = read(
        block("doc_title", "Title"),
        block("paragraph_title", "2.1 Section"),
        block("text", "one\n\n• two\n\n• three"),
        block("figure_title", "Figure 1"),
        block("header", "not shown"),
    )
    assert [entry for entry in found.texts if entry[0] != "title"] == [
        ("a", "1"),
        ("h1", "Title"),
        ("h3", "2.1 Section"),
        ("p", "one"),
        ("li", "two"),
        ("li", "three"),
        ("p", "Figure 1"),
    ]
    assert len(found.all("ul")) == 1


def test_every_page_has_an_anchor_and_every_block_its_id_once() -> None:
    made = document(page(block("text", "a\n\nb")), page(block("text", "c"), index=1))
    found = Reader(to_html(made))
    ids = [attributes["id"] for _, attributes in found.elements if "id" in attributes]
    assert ids == ["page-1", "p1-b1", "page-2", "p2-b1"]
    assert [link["href"] for link in found.all("a")] == ["#page-1", "#page-2"]


def test_a_page_that_failed_says_so() -> None:
    found = Reader(to_html(document(page(status="failed", error="page 1: it is <damaged>"))))
    assert found.text("p") == ["page 1: it is <damaged>"]


def test_a_table_keeps_its_spans() -> None:
    found = read(table(spans=SPANNING))
    assert found.all("td") == [{"colspan": "2"}, {"rowspan": "2"}, {}, {}]
    assert found.text("td") == ["Wide", "Tall", "a", "b"]
    assert len(found.all("tr")) == 2


def test_a_formula_in_a_cell_is_a_formula() -> None:
    assert read(table([r"\(x_1\)"])).text("mi") == ["x"]


def test_a_picture_is_inside_the_file_as_wide_as_on_the_page() -> None:
    found = Reader(to_html(document(page(block("image"), block("image"))), {"p1-b2": png()}))
    (image,) = found.all("img")
    assert base64.b64decode((image["src"] or "").removeprefix("data:image/png;base64,")) == png()
    assert image["style"] == "width: 50%"


def test_a_picture_in_a_table_stands_in_its_cell_and_nowhere_else() -> None:
    cells = (Cell(row=0, column=0, text="a"), Cell(row=0, column=1, text="b", figures=("p1-b2",)))
    found = Reader(to_html(document(page(table(spans=cells), block("image"))), {"p1-b2": png()}))
    assert [tag for tag, _ in found.elements if tag in ("td", "img", "figure")] == ["td", "td", "img"]


@given(st.text(alphabet=st.characters(exclude_categories=["Cc", "Cs", "Co", "Cn"]), min_size=1).filter(str.strip))
def test_every_text_is_shown_as_it_was_read(text: str) -> None:
    if not re.search(r"\\[()\[\]]|^\s*[•●▪■◦‣·]|\n", text) and text.splitlines() == [text]:
        assert read(block("title", text)).text("h1") == [text.strip()]


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        r"\(\text{<script>alert(1)</script>}\)",
        r"\(\href{javascript:alert(1)}{x}\)",
        r"\(<script>alert(1)</script> \foo{\)",
        '"><img src=x onerror=alert(1)>',
    ],
)
def test_nothing_of_a_document_runs(text: str) -> None:
    hostile = (block(label, text) for label in ("text", "doc_title", "figure_title", "content", "table"))
    found = read(*hostile, table([text]), block("formula", text, "latex"), block("x", f"<table>{text}", "html"))
    assert found.all("script") == []
    assert found.all("img") == []
    active = {name for _, attributes in found.elements for name in attributes if name in ("href", "src", "onerror")}
    assert active == {"href"}  # of the page's own anchor
    assert [link["href"] for link in found.all("a")] == ["#page-1"]


def test_a_few_chinese_characters_have_their_language_where_they_stand() -> None:
    latin = "This page is mostly of Latin letters, but for one line further down."
    found = read(block("text", latin), block("text", "旧档案"), table(["a", "旧"]), block("text", "b"))
    assert found.all("html") == [{"lang": "und"}]
    assert [attributes.get("lang") for attributes in found.all("p")] == [None, "zh", None]
    assert [attributes.get("lang") for attributes in found.all("table")] == ["zh"]


def test_the_file_forbids_itself_to_load_anything() -> None:
    (policy,) = [meta for meta in read().all("meta") if "http-equiv" in meta]
    assert (policy["content"] or "").startswith("default-src 'none'")


@pytest.mark.parametrize(
    ("text", "language"),
    [("第三章 Intel 显卡", "zh"), ("ページを読む", "ja"), ("문서를 읽는다", "ko"), ("Nous lisons", "und"), ("", "und")],
)
def test_the_language_is_told_as_far_as_the_script_tells_it(text: str, language: str) -> None:
    assert read(block("text", text)).all("html") == [{"lang": language}]


def test_characters_that_xml_forbids_are_left_out() -> None:
    assert read(block("text", "a\x00b\x1bc\ud800")).text("p") == ["abc"]


# ---- formulas


@pytest.mark.parametrize(
    ("latex", "holds"),
    [
        (r"\frac{a}{b}", "mfrac"),
        (r"\sqrt[3]{x}", "mroot"),
        (r"\begin{aligned}a&=b\\c&=d\end{aligned}", "mtable"),
        (r"\begin{gathered}a\\b\end{gathered}", "mtable"),
        (r"\begin{cases}1 & x>0\\2\end{cases}", "mtable"),
        (r"\begin{equation}a_1\end{equation}", "mi"),
    ],
)
def test_a_formula_is_mathml_and_keeps_its_latex(latex: str, holds: str) -> None:
    root = ElementTree.fromstring(to_mathml(latex) or "")
    assert root.find(f".//{holds}") is not None
    assert root.findtext("semantics/annotation") == latex
    shown = "".join(root.find("semantics/mrow").itertext())
    assert not set(shown) & set("&\\")


def test_characters_of_a_formula_are_characters() -> None:
    assert ElementTree.fromstring(to_mathml(r"a<\alpha") or "").findtext("semantics/mrow/mrow/mo") == "<"


@pytest.mark.parametrize("latex", ["x^a^b", r"\left( a", "{", "{" * 3000 + "}" * 3000])
def test_a_formula_that_cannot_be_read_is_shown_as_it_was_written(latex: str) -> None:
    assert to_mathml(latex) is None
    assert read(block("formula", latex, "latex")).text("code") == [latex]


def test_a_formula_block_is_displayed_and_one_in_a_text_is_not() -> None:
    found = read(block("formula", "a\n\nb", "latex"), block("text", r"so \(c\) is"))
    assert [math["display"] for math in found.all("math")] == ["block", "block", "inline"]
