"""Facts of the levels of headings: numbers, the order in which they appear, and sizes decide."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docvino.document import box_polygon
from docvino.text import headings
from docvino.text.headings import levels, size_px
from sample_documents import block, line


def levels_of(*titles: str, size: int = 30) -> list[int]:
    return levels([(title, size) for title in titles])


def test_a_paper_has_its_chapters_and_sections() -> None:
    titles = [
        ("Abstract", 30), ("1 Introduction", 30), ("1.1 Why", 24), ("2. Method", 30), ("2.1 Data", 24),
        ("2.1.1 Sources", 20), ("Related Work:", 24), ("A. Proofs", 30), ("References", 20),
    ]  # fmt: skip
    assert levels(titles) == [1, 1, 2, 1, 2, 3, 1, 2, 1]


def test_a_chinese_document_has_its_chapters_and_sections() -> None:
    titles = [("第一章 总则", 40), ("（一）目的", 30), ("1. 适用范围", 24), ("第二十一章 附则", 40), ("参考文献", 24)]
    # All Chinese numerals are of one kind; the Arabic ones came second, and their size is the third.
    assert levels(titles) == [1, 1, 2, 1, 1]


@pytest.mark.parametrize(
    ("title", "kind", "depth"),
    [
        ("(1) x", "bracket", 4),
        ("2.1) x", "bracket", 4),
        ("（3）方法", "bracket", 4),
        ("IV. Results", "roman", 1),
        ("x) tenth", "roman", 1),
        ("一、概述", "chinese", 1),
        ("（十二）方法", "chinese", 1),
        ("第三节 方法", "chinese", 1),
        ("第二十一章", "chinese", 1),
        ("第 3 章 绪论", "chinese", 1),
        ("B. Proofs", "letter", 2),
        ("c) third", "letter", 2),
        ("3 Method", "dotted", 1),
        ("3.2.1 Method", "dotted", 3),
        ("1.Introduction", "dotted", 1),
        ("1Introduction", "dotted", 1),
        ("3、范围", "dotted", 1),
        ("3范围", "dotted", 1),
        ("12", "dotted", 1),
    ],
)
def test_a_number_has_a_kind_and_a_depth(title: str, kind: str, depth: int) -> None:
    found = headings._number(title)
    assert found is not None
    assert found[:2] == (kind, depth)


@pytest.mark.parametrize(
    "title",
    ["2026 in figures", "2026年度报告", "3D printing", "3.5mm plugs", "十分重要", "二十一世纪", "Vision", "About", ""],
)
def test_years_quantities_and_words_are_no_numbers(title: str) -> None:
    assert headings._number(title) is None


def test_a_letter_with_a_blank_is_a_number_when_another_one_is_there() -> None:
    small = [("Overview", 40), ("A survey of methods", 20)]
    assert levels(small) == [1, 2]  # by its size
    assert levels([("Overview", 40), ("A Proofs", 30), ("B Details", 30)]) == [1, 2, 2]
    assert levels([("Overview", 40), ("I think so", 20)]) == [1, 2]
    assert levels([("Overview", 40), ("I Methods", 40), ("II Results", 40)]) == [1, 1, 1]


def test_two_of_three_decide_and_else_the_order() -> None:
    # Letters come first, so that 1.1 is of rank 2 + 1; its depth and its size say 2.
    assert levels([("A. First", 40), ("1 One", 30), ("1.1 Two", 30)])[2] == 2
    # Depth 4 of a bracket, rank 1, size 2: nothing agrees.
    assert levels([("(1) Note", 20), ("Big", 40)])[0] == 1


def test_known_sections_are_of_level_1_whatever_their_size() -> None:
    titles = [("Overview", 60), ("References", 20), ("related work :", 20), ("结论：", 20), ("Findings", 20)]
    assert levels(titles) == [1, 1, 1, 1, 2]


def test_numbers_that_begin_deep_go_no_higher_than_level_1() -> None:
    # Upstream gives 0 to the last one, which Markdown then writes as the document's title.
    assert levels([("2.1 First", 20), ("2.2 Second", 20), ("3 Third", 40), ("Fourth", 60), ("Fifth", 90)])[2] == 1


def test_heights_that_differ_as_letters_do_are_one_size() -> None:
    titles = [("Overview", 30), ("Happy", 33), ("Names", 29), ("Small", 20), ("Sum", 21)]
    assert levels(titles) == [1, 1, 1, 2, 2]


def test_there_are_four_sizes_at_most() -> None:
    sizes = [90, 75, 60, 48, 36, 28, 20]
    found = levels([("Heading", size) for size in sizes])
    assert sorted(set(found)) == [1, 2, 3, 4]
    assert found == sorted(found)


def test_no_titles_have_no_levels() -> None:
    assert levels([]) == []
    assert levels_of("Alone") == [1]


@given(st.lists(st.integers(1, 60), min_size=1, max_size=9))
def test_sizes_are_grouped_as_well_as_can_be(sizes: list[int]) -> None:
    def cost(centres: list[float]) -> float:
        return sum(min((size - centre) ** 2 for centre in centres) for size in sizes)

    distinct = sorted(set(sizes))
    count = min(4, len(distinct))
    best = min(
        sum(
            sum((size - sum(group) / len(group)) ** 2 for size in group)
            for group in ([s for s in sizes if low <= s < high] for low, high in pairwise([0, *borders, 99]))
            if group
        )
        for borders in combinations(distinct[1:], count - 1)
    )
    centres = headings._centres(Counter(sizes))
    assert len(centres) == count
    assert cost(centres) == pytest.approx(best, abs=1e-6)


def test_the_size_is_that_of_a_line() -> None:
    two_lines = block("paragraph_title", "One\nTwo", polygons=(box_polygon(0, 0, 300, 81),))
    assert size_px(two_lines) == 40
    upright = block("paragraph_title", "标题", polygons=(box_polygon(0, 0, 32, 300),))
    assert size_px(upright) == 32
    read = block("title", "One Two", lines=(line("One", 0, 0, 90, 20), line("Two", 0, 30, 90, 52)))
    assert size_px(read) == 21
    assert size_px(block("paragraph_title", "x", polygons=(box_polygon(0, 0, 0, 0),))) == 1
