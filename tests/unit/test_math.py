"""Formulas are told from text, delimiters are put right, and faults of form are said."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docvino.text.math import delimited, faults, formulas, split


def upstream(text: str) -> str:
    """The rule of upstream, written down as it is described, for comparison."""
    if not (r"\(" in text and r"\)" in text) and not (r"\[" in text and r"\]" in text):
        return text
    for old, new in (
        ("$", ""),
        (r"\(", " $ "),
        (r"\)", " $"),
        (r"\[\[", r"\["),
        (r"\]\]", r"\]"),
        (r"\[", " $$ "),
        (r"\]", " $$ "),
    ):
        text = text.replace(old, new)
    return text


def unspaced(text: str) -> str:
    return re.sub(r"\s+", "", text)


# text: upstream's form, docvino's form
GOLDEN = {
    r"so \(x^2\) is": ("so  $ x^2 $ is", r"so \(x^2\) is"),
    r"then \[ a=b \]": ("then  $$  a=b  $$ ", r"then \[a=b\]"),
    r"\[\[a=b\]\]": (" $$ a=b $$ ", r"\[a=b\]"),
    r"$\(x\)$ and $$\[ y \]$$": (" $ x $ and  $$  y  $$ ", r"\(x\) and \[y\]"),
    r"\(a $ b\)": (" $ a  b $", r"\(a  b\)"),
    "$x$ stays": ("$x$ stays", "$x$ stays"),
    "no formula": ("no formula", "no formula"),
}


@pytest.mark.parametrize("text", GOLDEN)
def test_formulas_are_those_of_upstream_but_stand_between_brackets(text: str) -> None:
    theirs, ours = GOLDEN[text]
    assert upstream(text) == theirs
    assert delimited(text) == ours
    assert unspaced(upstream(ours)) == unspaced(theirs)


def test_a_price_beside_a_formula_is_kept_where_upstream_drops_its_dollar() -> None:
    text = r"it costs $5, so \(x=5\), or US$ 6"
    assert unspaced(upstream(text)) == "itcosts5,so$x=5$,orUS6"
    assert delimited(text) == text


@pytest.mark.parametrize(
    "text",
    [
        r"a \\[2pt] b \\[2pt] c \\(d\\)",
        r"only \( opened",
        r"closed \] and \[ opened",
        r"a price of $5 and one of \$6",
        "",
    ],
)
def test_what_is_no_formula_stays_as_it_is(text: str) -> None:
    assert delimited(text) == text


def test_a_delimiter_without_its_other_half_stays_beside_a_formula() -> None:
    assert delimited(r"\(a \(b\)") == r"\(a \(b\)"
    assert list(split(r"\(a \(b\)")) == [("text", r"\(a "), ("inline", "b")]


def test_a_line_break_with_a_height_stays_in_its_formula() -> None:
    text = r"\[\begin{matrix} a \\[2pt] b \end{matrix}\]"
    assert delimited(text) == text


def test_pieces_come_in_order_without_delimiters() -> None:
    assert list(split(r"If \( a \) then \[b\]\(\) end")) == [
        ("text", "If "),
        ("inline", "a"),
        ("text", " then "),
        ("display", "b"),
        ("text", " end"),
    ]


@given(st.lists(st.sampled_from([r"\(", r"\)", r"\[", r"\]", "$", "$$", "\\", "a", "b ", "\n", "5"]), max_size=20))
def test_no_letter_is_lost_however_wrong_the_delimiters(pieces: list[str]) -> None:
    text = "".join(pieces)
    for letter in "ab5":
        assert delimited(text).count(letter) == text.count(letter)


@given(st.lists(st.sampled_from([r"\(a\)", r"\[ b\]", r"$\( c \)$", " $5 ", "d\n", "\\", " "]), max_size=20))
def test_delimiting_a_second_time_changes_nothing(pieces: list[str]) -> None:
    once = delimited("".join(pieces))
    assert delimited(once) == once


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (r"x^2", ("x^2",)),
        (r"\[ x^2 \]", ("x^2",)),
        (r"\[\[x^2\]\]", ("x^2",)),
        ("$$\nx^2\n$$", ("x^2",)),
        ("$x^2$", ("x^2",)),
        ("$$a$$ $$b$$", ("a", "b")),
        (r"\[a\] (3) \(b\)", ("a", "(3)", "b")),
        (r"\[ x + ", ("x +",)),
        (r"x + y \]", ("x + y",)),
        ("a\n\n b", ("a\n b",)),
        (r"\text{if $n$ is odd}", (r"\text{if $n$ is odd}",)),
        (r"\text{price} = \$5", (r"\text{price} = \$5",)),
        ("", ()),
        ("$$", ()),
    ],
)
def test_a_formula_answer_gives_bare_formulas(answer: str, found: tuple[str, ...]) -> None:
    assert formulas(answer) == found


@pytest.mark.parametrize(
    "formula",
    [
        r"\frac{a}{b} + \frac12 + \sqrt[3]{x} + \sqrt x",
        r"\left( \frac{a}{b} \right]^{2} + \left\{ x \middle| y \right.",
        r"\begin{cases} 1 & \text{if } n = 1 \\[2pt] 0 & \text{else, 5\% of a\_b} \end{cases}",
        r"\begin{aligned} a &= \left\{ \begin{matrix} b & c \end{matrix} \right. \\ d &= e \end{aligned}",
        r"x_i^2 + x^{2}_{i} + f'(x)^2 + \sum_{i=1}^{n} {a_i}^2 + a^\prime_b + x^\mathbf{a}",
        r"\operatorname*{arg\,max}_{\theta} \hat\alpha \in \mathbb{Z}, \{a\} \tag*{(3)}",
        r"\int_0^\infty e^{-x}\,dx \leqq \varDelta \inf \infty \Big\{ \text{price $p_1$}",
        r"\xrightarrow[\text{b}]{a} \overset{!}{=}",
        "",
    ],
)
def test_a_sound_formula_has_no_faults(formula: str) -> None:
    assert faults(formula) == ()


@pytest.mark.parametrize(
    ("formula", "found"),
    [
        (r"\frac{a}{b", ("a { is not closed",)),
        ("a}", ("a } closes nothing",)),
        (r"\left( a", (r"a \left is not closed",)),
        (r"a \right)", (r"a \right closes nothing",)),
        (r"{ \left( a } \right)", (r"a \left is not closed", r"a \right closes nothing")),
        (r"\left a \right)", (r"\left has no delimiter",)),
        (r"\begin{matrix} a & b", (r"\begin{matrix} is not closed",)),
        (r"\begin{matrix} a \end{cases}", (r"\end{cases} closes nothing", r"\begin{matrix} is not closed")),
        (r"a \end{cases}", (r"\end{cases} closes nothing",)),
        (r"a & b", ("a & stands outside an environment",)),
        (r"x^", ("a ^ has no argument",)),
        (r"{x_} + y", ("a _ has no argument",)),
        (r"x^a^b", ("two ^ follow one letter",)),
        (r"x_{a}^{b}_{c}", ("two _ follow one letter",)),
        (r"\frac{a}", (r"\frac has 1 of 2 arguments",)),
        (r"{\hat} x", (r"\hat has 0 of 1 arguments",)),
        (r"a \inZ", (r"\inZ is no command: \in Z?",)),
        (r"\text{a_b}", ("a _ in text has no backslash",)),
        (r"5 % of # 3 $", ("a % has no backslash", "a # has no backslash", "a $ has no backslash")),
    ],
)
def test_a_fault_of_form_is_said(formula: str, found: tuple[str, ...]) -> None:
    assert faults(formula) == found


sound = st.recursive(
    st.sampled_from(["a", "2", r"\alpha", "=", r"\text{if \_}", r"\%"]),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(" ".join),
        st.tuples(inner, inner).map(lambda parts: rf"\frac{{{parts[0]}}}{{{parts[1]}}}"),
        inner.map(lambda part: rf"\left( {part} \right]"),
        inner.map(lambda part: rf"{{{part}}}_{{{part}}}^2"),
        st.tuples(inner, inner).map(lambda parts: rf"\begin{{cases}} {parts[0]} & {parts[1]} \\ b \end{{cases}}"),
    ),
    max_leaves=8,
)


@given(sound, st.sampled_from(["{", "}", r"\left(", r"\right)", r"\begin{cases}", r"\end{cases}"]), st.data())
def test_sound_formulas_pass_and_one_half_too_much_is_found(formula: str, half: str, data: st.DataObject) -> None:
    assert faults(formula) == ()
    places = [place for place, letter in enumerate(formula) if letter == " "]
    place = data.draw(st.sampled_from([0, len(formula), *places]))
    assert faults(f"{formula[:place]} {half} {formula[place:]}")


@given(st.lists(st.sampled_from([*"{}^_&a2$%", r"\left", r"\right", "(", r"\frac", r"\begin{a}", r"\end", "\\"])))
def test_any_formula_is_judged(pieces: list[str]) -> None:
    assert all(fault and "\n" not in fault for fault in faults(" ".join(pieces)))
    assert faults(" ".join(pieces)) or pieces.count("{") == pieces.count("}")


def test_long_answers_take_no_time() -> None:
    started = time.process_time()
    faults(r"\frac{" * 3000)
    faults(r"\sqrt[" * 2000 + "]")
    delimited(r"\( " * 5000 + r"\[ a" * 5000)
    formulas("$ " * 5000)
    assert time.process_time() - started < 2
