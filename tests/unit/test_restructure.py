"""Facts of documents whose pages were restructured: tables over page breaks, headings, and what stays as it was."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from typing import Any

import pytest

from docvino.document import Block, Cell, Document, Page, box_polygon
from docvino.render.docx import to_docx
from docvino.render.flow import page_pieces, pages_to_read
from docvino.render.html import html_parts, to_html
from docvino.render.json import from_json, to_json
from docvino.render.markdown import to_markdown
from docvino.render.tables import rows_of, tables_of
from docvino.render.text import to_text
from docvino.text.restructure import joined_pages, restructure
from docvino.text.tables import to_html as table_html
from sample_documents import block, document, page, table

HEAD = ["Name", "Sum"]
FIRST = table(HEAD, ["a", "1"])
SECOND = table(HEAD, ["b", "2"], ["c", "3"])


def pages(*contents: Sequence[Block]) -> tuple[Page, ...]:
    return tuple(page(*blocks, index=index) for index, blocks in enumerate(contents))


def made(*contents: Sequence[Block], **options: Any) -> Document:
    return restructure(document(*pages(*contents), media_type="application/pdf"), **options)


def joins(*contents: Sequence[Block]) -> list[tuple[str, str | None, int]]:
    """(id, what it goes on from, repeated rows) of each table."""
    return [
        (one.id, one.continues, one.repeated_rows)
        for each in made(*contents).pages
        for one in each.blocks
        if one.label == "table"
    ]


def wide(one: Block, width: float) -> Block:
    return one.model_copy(update={"polygons": (box_polygon(60, 80, 60 + width, 120),)})


def rows(one: Block) -> list[list[str]]:
    return rows_of(one.cells)


# Which tables go on


def test_a_table_goes_on_over_a_page_break_and_its_head_is_there_once() -> None:
    found = made([block("text", "Before"), FIRST], [SECOND, block("text", "After")])
    assert [b.continues for b in found.pages[1].blocks] == ["p1-b2", None]
    assert found.pages[1].blocks[0].repeated_rows == 1
    (whole,) = [b for b in next(joined_pages(found.pages)).blocks if b.label == "table"]
    assert rows(whole) == [HEAD, ["a", "1"], ["b", "2"], ["c", "3"]]
    assert whole.content == table_html(whole.cells)


def test_a_table_without_a_head_goes_on_with_all_its_rows() -> None:
    assert joins([FIRST], [table(["b", "2"])]) == [("p1-b1", None, 0), ("p2-b1", "p1-b1", 0)]


def test_a_table_over_three_pages_is_one() -> None:
    found = made([FIRST], [table(["b", "2"])], [table(HEAD, ["c", "3"]), block("text", "End")])
    assert [b.continues for each in found.pages for b in each.blocks] == [None, "p1-b1", "p2-b1", None]
    first, second, third = joined_pages(found.pages)
    assert rows(first.blocks[0]) == [HEAD, ["a", "1"], ["b", "2"], ["c", "3"]]
    assert [second.blocks[0].content, third.blocks[0].content, third.blocks[1].content] == ["", "", "End"]


@pytest.mark.parametrize(
    "between", ["footer", "number", "footnote", "footer_image", "vision_footnote", "seal", "aside_text", "header"]
)
def test_what_stands_in_margins_below_a_table_does_not_end_it(between: str) -> None:
    assert joins([FIRST, block(between, "x")], [SECOND])[1][1] == "p1-b1"


@pytest.mark.parametrize("between", ["header", "header_image", "number", "seal", "aside_text"])
def test_what_stands_in_margins_above_a_table_does_not_part_it(between: str) -> None:
    assert joins([FIRST], [block(between, "x"), SECOND])[1][1] == "p1-b1"


@pytest.mark.parametrize("between", ["text", "figure_title", "image", "paragraph_title", "chart", "figure"])
def test_what_is_part_of_the_text_parts_tables(between: str) -> None:
    assert joins([FIRST, block(between, "words")], [SECOND])[1][1] is None
    assert joins([FIRST], [block(between, "words"), SECOND])[1][1] is None


def test_a_region_without_text_parts_nothing_but_a_picture_does() -> None:
    assert joins([FIRST, block("text", "", "none")], [SECOND])[1][1] == "p1-b1"
    assert joins([FIRST, block("image", "", "none")], [SECOND])[1][1] is None


@pytest.mark.parametrize(
    ("label", "note"),
    [
        ("figure_title", "Table 3 (continued)"),
        ("figure_title", "Table 3 – cont'd"),
        ("text", "Continued from previous page"),
        ("paragraph_title", "Tab. 3, cont."),
        ("figure_title", "续表 3"),
        ("figure_title", "表 3（续）"),
        ("table_title", "表3續"),
    ],
)
def test_a_caption_that_says_continued_does_not_part_a_table(label: str, note: str) -> None:
    # Upstream means to look for such words, in attributes that its blocks do not have.
    assert joins([FIRST], [block(label, note), SECOND])[1][1] == "p1-b1"


@pytest.mark.parametrize(
    "note", ["手续费说明", "请继续", "Discontinued items", "We continue " + "with a long text " * 9]
)
def test_other_words_with_the_same_letters_part_it(note: str) -> None:
    assert joins([FIRST], [block("text", note), SECOND])[1][1] is None


@pytest.mark.parametrize(("width", "joined"), [(300, True), (329, True), (330, False), (274, True), (272, False)])
def test_parts_are_equally_wide_within_a_tenth(width: float, joined: bool) -> None:
    assert (joins([wide(FIRST, 300)], [wide(SECOND, width)])[1][1] is not None) is joined


def test_columns_or_the_rows_at_the_break_agree() -> None:
    three = table(["x", "y", "z"])
    assert joins([FIRST], [three])[1][1] is None
    # The last row has three columns in two cells, so that it agrees with three cells, and with two.
    spanning = (Cell(row=0, column=0, text="h"), Cell(row=1, column=0, column_span=2, text="w"))
    last = table(spans=(*spanning, Cell(row=1, column=2, text="v")))
    assert joins([last], [table(["x", "y", "z"], ["1", "2", "3"])])[1][1] == "p1-b1"
    assert joins([last], [table(["x", "y"])])[1][1] == "p1-b1"
    assert joins([last], [table(["x", "y", "z", "t"])])[1][1] is None


def test_tables_of_pages_that_were_no_neighbours_are_two() -> None:
    apart = restructure(document(page(FIRST, index=0), page(SECOND, index=4)))
    assert apart.pages[1].blocks[0].continues is None


def test_a_table_without_a_known_structure_goes_on_nowhere() -> None:
    assert joins([FIRST], [block("table", "b\t2")])[1][1] is None
    assert joins([block("table", "a\t1")], [SECOND])[1][1] is None


def test_a_copy_of_a_table_is_no_continuation() -> None:
    # Upstream takes all its rows for a head and drops them.
    assert joins([FIRST], [FIRST])[1][1] is None
    assert joins([FIRST], [table(HEAD)])[1][1] is None


def test_heads_are_compared_without_blanks_and_wide_letters() -> None:
    assert joins([table(["Name 1", "Sum (m)"], ["a", "1"])], [table(["Ｎame1", "Sum（m）"], ["b", "2"])])[1][2] == 1


def test_a_head_has_five_rows_at_most_and_ends_where_no_cell_reaches_out_of_it() -> None:
    same = [[f"h{row}", "x"] for row in range(7)]
    assert joins([table(*same, ["a", "1"])], [table(*same, ["b", "2"])])[1][2] == 5
    tall = (Cell(row=0, column=0, row_span=2, text="h"), Cell(row=0, column=1, text="x"))
    first = table(spans=(*tall, Cell(row=1, column=1, text="1")))
    second = table(spans=(*tall, Cell(row=1, column=1, text="2")))
    assert joins([first], [second])[1][1:] == ("p1-b1", 0)


def test_rows_of_pictures_alone_are_no_head() -> None:
    pictures = (Cell(row=0, column=0, text="", figures=("p1-b2",)), Cell(row=0, column=1, text=""))
    other = (Cell(row=0, column=0, text="", figures=("p2-b2",)), Cell(row=0, column=1, text=""))
    found = joins(
        [table(spans=pictures), block("image", "", "none")],
        [table(spans=(*other, Cell(row=1, column=0, text="a"))), block("image", "", "none")],
    )
    assert found[1] == ("p2-b1", "p1-b1", 0)


# Headings


def test_headings_have_levels_over_all_pages_and_titles_of_documents_none() -> None:
    found = made(
        [block("doc_title", "Report"), block("paragraph_title", "1 One")],
        [block("paragraph_title", "1.1 Two"), block("text", "x"), block("paragraph_title", " ")],
    )
    assert [b.level for each in found.pages for b in each.blocks] == [None, 1, 2, None, None]
    assert [line for line in to_markdown(found).split("\n\n") if line.startswith("#")] == [
        "# Report", "## 1 One", "### 1.1 Two",
    ]  # fmt: skip


def test_the_first_title_of_a_line_reader_is_that_of_the_document() -> None:
    found = made([block("title", "Report"), block("title", "One")], [block("title", "Two")])
    assert [b.level for each in found.pages for b in each.blocks] == [None, 1, 1]


def test_a_level_goes_before_the_number_that_a_heading_has() -> None:
    deep = block("paragraph_title", "1.1.1 One", level=1)
    assert next(page_pieces(page(block("text", "x"), deep, index=1))).kind == "paragraph"
    assert [p.level for p in page_pieces(page(deep, index=1))] == [2]
    assert [p.level for p in page_pieces(page(deep.model_copy(update={"level": 9}), index=1))] == [6]


# What stays


def test_nothing_of_the_pages_changes_but_what_is_said_of_their_connection() -> None:
    before = document(*pages([block("paragraph_title", "One"), FIRST], [SECOND]))
    after = restructure(before)
    assert [b.content for p in after.pages for b in p.blocks] == [b.content for p in before.pages for b in p.blocks]
    assert [b.cells for p in after.pages for b in p.blocks] == [b.cells for p in before.pages for b in p.blocks]
    assert after != before
    assert restructure(after) == after
    assert restructure(after, merge_tables=False, relevel_titles=False) == before
    assert from_json(to_json(after)) == after


def test_each_part_can_be_left_out() -> None:
    contents = ([block("paragraph_title", "One"), FIRST], [SECOND])
    assert made(*contents, merge_tables=False).pages[1].blocks[0].continues is None
    assert made(*contents, merge_tables=False).pages[0].blocks[0].level == 1
    assert made(*contents, relevel_titles=False).pages[1].blocks[0].continues == "p1-b2"
    assert made(*contents, relevel_titles=False).pages[0].blocks[0].level is None


# How it is read


def whole_and_rest() -> Document:
    return made([block("text", "Before"), FIRST, block("vision_footnote", "Note")], [SECOND, block("text", "After")])


def test_markdown_text_tables_and_word_have_one_table() -> None:
    found = whole_and_rest()
    text = to_markdown(found)
    assert text.count("<table>") == 1
    assert text.count("Name") == 1
    assert text.index("<td>3</td>") < text.index("Note") < text.index("After")
    assert to_text(found) == "Before\n\nName\tSum\na\t1\nb\t2\nc\t3\n\nNote\n\fAfter\n"
    assert [(number, one.id, len(cells)) for number, one, cells in tables_of(found)] == [(1, "p1-b2", 8)]
    assert len(to_docx(found)) > 1000


def test_html_leads_from_the_later_page_to_the_table() -> None:
    text = to_html(whole_and_rest())
    assert text.count("<table") == 1
    assert '<section id="page-2">' in text
    assert 'id="p2-b1" href="#p1-b2"' in text
    assert 'id="p1-b2"' in text


def test_pictures_in_later_rows_stand_in_the_table_and_nowhere_else() -> None:
    cells = (Cell(row=0, column=0, text="b", figures=("p2-b2",)), Cell(row=0, column=1, text="2"))
    part = table(spans=cells).model_copy(
        update={"content": '<table>\n<tr><td>b <img data-block="p2-b2"></td><td>2</td></tr>\n</table>'}
    )
    found = made([FIRST], [part, block("image", "", "none", layout_score=0.9), block("text", "After")])
    first, second = joined_pages(found.pages)
    assert [b.id for b in first.blocks] == ["p1-b1", "p2-b2"]
    assert [b.id for b in second.blocks] == ["p2-b1", "p2-b3"]
    text = to_markdown(found, {"p2-b2": "images/p2-b2.png"})
    assert text.count("images/p2-b2.png") == 1
    assert '<td>b <img src="images/p2-b2.png" alt="image"></td>' in text


def test_boxes_of_cells_of_another_page_are_not_said_to_lie_on_this_one() -> None:
    cell = Cell(row=0, column=0, text="b", polygon=box_polygon(0, 0, 9, 9), confidence=0.5)
    found = made([table(["a"])], [table(spans=(cell,))])
    (whole,) = next(joined_pages(found.pages)).blocks
    assert [(c.text, c.polygon) for c in whole.cells] == [("a", None), ("b", None)]
    assert found.pages[1].blocks[0].cells == (cell,)


def test_pages_without_such_tables_come_as_they_are() -> None:
    found = made([FIRST], [block("text", "x")])
    assert all(mine is theirs for mine, theirs in zip(pages_to_read(found), found.pages, strict=True))


def test_a_long_document_is_joined_page_by_page() -> None:
    big = table(*[[f"cell {row}", "y" * 300] for row in range(40)])
    end = block("text", "End")
    found = made(*[[big, end] if number % 2 else [end, big] for number in range(100)])
    assert sum(1 for each in found.pages for b in each.blocks if b.continues) == 0  # copies of each other
    other = table(*[[f"other {row}", "z" * 300] for row in range(40)])
    found = made(*[[other, end] if number % 2 else [end, big] for number in range(100)])
    assert sum(1 for each in found.pages for b in each.blocks if b.continues) == 50
    tracemalloc.start()
    for _ in html_parts(found, {}):
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 600_000  # one joined table is 25 kB, all of them are 1.3 MB
