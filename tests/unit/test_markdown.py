"""Facts of the Markdown: it shows the text as it was read, whatever characters that has.

What a reader would see is taken from markdown-it, a CommonMark renderer.
"""

from __future__ import annotations

import html
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

import sample_documents as made
from docvino.document import Block, Document, Page, Provenance, Source, Stats, box_polygon
from docvino.render.markdown import escape, to_markdown

RENDERER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def block(label: str, content: str, place: int = 0, *, page: int = 0) -> Block:
    return Block(
        id=f"p{page + 1}-b{place + 1}", label=label, polygons=(box_polygon(0, 0, 9, 9),), order=place, content=content
    )


def document(*pages: list[tuple[str, str]]) -> Document:
    return Document(
        source=Source(name="x.png", sha256="0", media_type="image/png"),
        pages=tuple(
            Page(
                page_index=index,
                width_px=9,
                height_px=9,
                status="ok",
                blocks=tuple(block(label, content, place, page=index) for place, (label, content) in enumerate(blocks)),
            )
            for index, blocks in enumerate(pages)
        ),
        provenance=Provenance(package="docvino", preset="pp-ocr", openvino="2026", models=(), options={}),
        stats=Stats(),
    )


def shown(markdown: str) -> str:
    return str(RENDERER.render(markdown)).strip()


def test_items_that_follow_each_other_are_one_list_without_gaps() -> None:
    made = to_markdown(document([("text", "before\n\n• one"), ("text", "• two"), ("text", "after"), ("text", "• new")]))
    assert made == "before\n\n- one\n- two\n\nafter\n\n- new\n"
    assert shown(made).count("<ul>") == 2
    assert "<li>two</li>" in shown(made)


@pytest.mark.parametrize("character", "\\`*_[]<>|~$")
def test_each_special_character_gets_a_backslash(character: str) -> None:
    assert escape(f"a{character}b") == f"a\\{character}b"


@pytest.mark.parametrize("text", ["#", "# x", "###### x", "- x", "+ x", "-", "+", "===", "---", "--", "= "])
def test_a_line_that_starts_like_a_heading_a_list_or_a_rule_gets_a_backslash(text: str) -> None:
    assert escape(text) == f"\\{text}"


@pytest.mark.parametrize(
    ("text", "escaped"),
    [("1. x", "1\\. x"), ("12) x", "12\\) x"), ("2026.", "2026\\."), ("1.5 kg", "1.5 kg"), ("1234567890. x",) * 2],
)
def test_a_line_that_starts_like_a_numbered_list_gets_a_backslash(text: str, escaped: str) -> None:
    assert escape(text) == escaped


@pytest.mark.parametrize(
    "text", ["plain text, 100 %!", "版面分析：第二步。", "#1", "-5", "+49", "a # b", "a - b", "AT&T", "a & b;"]
)
def test_plain_text_is_left_as_it_is(text: str) -> None:
    assert escape(text) == text


@pytest.mark.parametrize("text", ["&lt;", "AT&amp;T", "&#169;", "&#x41;", "&copy; 2026"])
def test_what_looks_like_an_entity_is_shown_as_it_was_read(text: str) -> None:
    assert shown(escape(text)) == f"<p>{html.escape(text)}</p>"


def lines_of(alphabet: str) -> st.SearchStrategy[str]:
    return st.text(alphabet=alphabet, min_size=1, max_size=20).map(str.strip).filter(bool)


@given(st.lists(lines_of('ab 1.)#-+=*_`~<>[]()!|\\$&;:/@"中。'), min_size=1, max_size=3))
def test_every_text_is_shown_as_it_was_read(lines: list[str]) -> None:
    text = "\n".join(lines)
    assert shown(escape(text)) == f"<p>{html.escape(text)}</p>"


@given(lines_of("ab #=-+1.&;*"))
def test_every_title_is_shown_as_it_was_read(text: str) -> None:
    assert shown(to_markdown(document([("title", text)]))) == f"<h1>{html.escape(text)}</h1>"


@given(
    st.lists(
        st.lists(st.text(alphabet="ab#=-+1.|*", min_size=1, max_size=6), min_size=1, max_size=3), min_size=1, max_size=4
    )
)
def test_every_table_is_shown_row_by_row(rows: list[list[str]]) -> None:
    content = "\n".join("\t".join(row) for row in rows)
    found = shown(to_markdown(document([("table", content)])))
    assert found == "<p>" + "<br />\n".join(html.escape("   ".join(row)) for row in rows) + "</p>"


def test_blanks_at_the_start_of_a_line_do_not_make_it_code() -> None:
    assert shown(escape("     a\n\t- b")) == "<p>a\n- b</p>"


def test_paragraphs_are_apart_and_each_is_escaped() -> None:
    assert to_markdown(document([("text", "one\n\n- two\n\n# three")])) == "one\n\n\\- two\n\n\\# three\n"


def test_the_first_title_of_the_first_page_is_the_heading_of_the_document() -> None:
    pages = [("title", "Top"), ("text", "x"), ("title", "Section")], [("title", "Next page")]
    assert to_markdown(document(*pages)) == "# Top\n\nx\n\n## Section\n\n## Next page\n"


def test_a_title_of_several_lines_is_one_heading() -> None:
    assert to_markdown(document([("title", "one\n\ntwo")])) == "# one two\n"


def test_a_title_that_ends_in_number_signs_keeps_them() -> None:
    assert shown(to_markdown(document([("title", "Programming in C #")]))) == "<h1>Programming in C #</h1>"


def test_running_heads_and_feet_are_left_out() -> None:
    found = to_markdown(document([("header", "Journal"), ("text", "body"), ("footer", "page 3")]))
    assert found == "body\n"


def test_a_figure_is_a_link_only_when_its_picture_is_given() -> None:
    page = [("figure", "words in it"), ("figure", ""), ("text", "body")]
    found = to_markdown(document(page), {"p1-b2": "images/p1-b2.png"})
    assert found == "![figure](images/p1-b2.png)\n\nbody\n"
    assert to_markdown(document(page)) == "body\n"


def test_blocks_without_text_leave_no_gap() -> None:
    assert to_markdown(document([("text", "a"), ("table", ""), ("text", " \n"), ("text", "b")])) == "a\n\nb\n"


@pytest.mark.parametrize("pages", [[], [[]], [[], []], [[("footer", "1")]]], ids=str)
def test_a_document_without_text_is_an_empty_file(pages: list[list[tuple[str, str]]]) -> None:
    assert to_markdown(document(*pages)) == ""


_pages: Any = st.lists(
    st.lists(
        st.tuples(st.sampled_from(["text", "title", "table", "figure"]), st.text("a#\n\t1.", max_size=9)), max_size=3
    ),
    max_size=2,
)


@given(_pages)
def test_rendering_changes_nothing_and_gives_the_same_again(pages: list[list[tuple[str, str]]]) -> None:
    original = document(*pages)
    copy = original.model_copy(deep=True)
    first = to_markdown(original)
    assert original == copy
    assert to_markdown(original) == first


def test_an_html_table_is_given_as_it_is_and_shown_as_one() -> None:
    content = '<table>\n<tr><td colspan="2">a *b* &lt;c&gt;</td></tr>\n<tr><td>1</td><td></td></tr>\n</table>'
    one = block("table", content).model_copy(update={"format": "html"})
    made = document([("text", "before"), ("text", "after")])
    (page,) = made.pages
    blocks = (page.blocks[0], one.model_copy(update={"order": 1}), page.blocks[1])
    markdown = to_markdown(made.model_copy(update={"pages": (page.model_copy(update={"blocks": blocks}),)}))
    assert markdown == f"before\n\n{content}\n\nafter\n"
    assert shown(markdown) == f"<p>before</p>\n{content}\n<p>after</p>"


@pytest.mark.parametrize(
    ("content", "markdown"),
    [
        (r"so \(x_1*y_1\) costs $5_", r"so $x_1*y_1$ costs \$5\_"),
        (r"so \[a < b\]", "so $$a < b$$"),
        (r"\(a\) - b", "$a$ - b"),
        ("- \\(a\\)\n- b", "\\- $a$\n\n\\- b"),
        ("• \\(a\n- b\\)", "- $a - b$"),
        ("\\(a\\)\n\n\\(b\\) \\(c", "$a$\n\n$b$ \\\\(c"),
        ("\ue000 and \\(a_1\\)", "\ue000 and \\\\(a\\_1\\\\)"),
    ],
)
def test_formulas_in_a_text_stand_between_dollar_signs_and_are_not_escaped(content: str, markdown: str) -> None:
    assert to_markdown(document([("text", content)])) == markdown + "\n"


def test_formulas_in_a_title_stand_between_dollar_signs() -> None:
    assert to_markdown(document([("title", r"On \(L_2\) # 1")])) == "# On $L_2$ # 1\n"


def test_each_formula_of_a_formula_block_stands_between_dollar_signs_on_one_line() -> None:
    (page,) = document([("formula", "a_1\n- b\n\nc")]).pages
    blocks = (page.blocks[0].model_copy(update={"format": "latex"}),)
    made = document([]).model_copy(update={"pages": (page.model_copy(update={"blocks": blocks}),)})
    assert to_markdown(made) == "$$\na_1 - b\n$$\n\n$$\nc\n$$\n"


def formula_and(*following: Block, latex: str = "x") -> str:
    return to_markdown(made.document(made.page(made.block("display_formula", latex, "latex"), *following)))


@pytest.mark.parametrize(
    ("number", "tag"),
    [("(3)", "(3)"), (r"\( (3.2) \)", "(3.2)"), ("(3)\n", "(3)"), ("$(4)$", "(4)"), ("（５）", "（５）")],
)
def test_the_number_behind_a_formula_is_its_tag(number: str, tag: str) -> None:
    assert formula_and(made.block("formula_number", number)) == f"$$\nx \\tag*{{{tag}}}\n$$\n"


def test_of_several_formulas_the_last_one_has_the_tag() -> None:
    found = formula_and(made.block("formula_number", "(1)"), latex="a\n\nb")
    assert found == "$$\na\n$$\n\n$$\nb \\tag*{(1)}\n$$\n"


@pytest.mark.parametrize(
    ("latex", "number", "found"),
    [
        ("x", "3_a", "3\\_a"),  # no sound text of a tag
        ("x", "{", "{"),
        (r"x \tag{2}", "(3)", "(3)"),  # it has one
    ],
)
def test_a_number_that_cannot_be_a_tag_stays_a_paragraph(latex: str, number: str, found: str) -> None:
    assert formula_and(made.block("formula_number", number), latex=latex) == f"$$\n{latex}\n$$\n\n{found}\n"


def test_a_number_that_follows_no_formula_stays_a_paragraph() -> None:
    blocks = (made.block("formula_number", "(1)"), made.block("display_formula", "x", "latex"))
    assert to_markdown(made.document(made.page(*blocks))) == "(1)\n\n$$\nx\n$$\n"
    assert formula_and(made.block("text", "so"), made.block("formula_number", "(1)")) == "$$\nx\n$$\n\nso\n\n(1)\n"
    assert formula_and(made.block("formula_number", "")) == "$$\nx\n$$\n"


# ---- the labels of PP-DocLayoutV3


@pytest.mark.parametrize(
    ("label", "content", "markdown"),
    [
        ("doc_title", "A title", "# A title\n"),
        ("paragraph_title", "Methods", "## Methods\n"),
        ("paragraph_title", "3 Methods", "## 3 Methods\n"),
        ("paragraph_title", "3.1. Data of the U.S.", "### 3.1. Data of the U.S.\n"),
        ("paragraph_title", "2.1.4 Loss", "#### 2.1.4 Loss\n"),
        ("paragraph_title", "3.5mm plugs", "## 3.5mm plugs\n"),
        ("paragraph_title", "1.2.3.4.5.6.7 Deep", "###### 1.2.3.4.5.6.7 Deep\n"),
        ("paragraph_title", "A title of\ntwo lines", "## A title of two lines\n"),
        ("paragraph_title", "一个分成两行\n的标题", "## 一个分成两行的标题\n"),
        ("doc_title", "An inter-\nnational one", "# An international one\n"),
        ("figure_title", "Figure 1: an inter-\nnational one", "Figure 1: an international one\n"),
        ("abstract", "Abstract: We read.", "## Abstract\n\nWe read.\n"),
        ("abstract", "摘 要 本文", "## 摘要\n\n本文\n"),
        ("abstract", "Abstraction is all.", "Abstraction is all.\n"),
        ("content", "One  1\nTwo  2", "One  1  \nTwo  2\n"),
        ("text", "one\ntwo", "one\n\ntwo\n"),
        ("figure_title", "Figure 1: a\nb", "Figure 1: a b\n"),
        *[(label, "7", "") for label in ("header", "footer", "number", "footnote", "aside_text")],
    ],
)
def test_a_label_says_how_its_text_is_written(label: str, content: str, markdown: str) -> None:
    assert to_markdown(document([("text", ""), (label, content)])) == markdown


def test_a_chart_that_was_read_is_a_table_and_a_seal_is_a_picture_with_its_text() -> None:
    chart = made.table(["year", "sum"], layout_score=0.9).model_copy(update={"label": "chart"})
    seal = made.block("seal", "Notary", layout_score=0.9)
    whole_page = made.block("seal", "Notary")
    document = made.document(made.page(chart, seal, whole_page))
    images = {f"p1-b{place}": f"images/p1-b{place}.png" for place in (1, 2, 3)}
    assert to_markdown(document, images) == f"{chart.content}\n\n![seal](images/p1-b2.png)\n\nNotary\n\nNotary\n"


# ---- pretty


def test_pretty_markdown_centres_pictures_captions_and_tables() -> None:
    table = made.table(spans=made.SPANNING)
    document = made.document(made.page(made.block("image"), made.block("figure_title", "1 < 2"), table))
    picture, caption, shown_table = to_markdown(document, {"p1-b1": "images/p1-b1.png"}, pretty=True).split("\n\n")
    tag = '<img src="images/p1-b1.png" alt="image" width="50%" />'
    assert picture == f'<div style="text-align: center;">{tag}</div>'
    assert caption == '<div style="text-align: center;">1 &lt; 2</div>'
    assert shown_table.startswith("<table border=1 style='margin: auto; word-wrap: break-word;'>")
    assert shown_table.count("<td style='text-align: center; word-wrap: break-word;'") == 4
    assert " colspan=" in shown_table


def test_pretty_markdown_leaves_text_as_it_is_and_keeps_formulas_out_of_html() -> None:
    document = made.document(made.page(made.block("text", "a"), made.block("figure_title", r"Size \(n\)")))
    assert to_markdown(document, pretty=True) == "a\n\nSize $n$\n"
