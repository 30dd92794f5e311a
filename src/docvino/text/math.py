r"""Formulas in what a model writes: their delimiters, and whether TeX would read them.

A formula in running text or in a cell stands as `\(x\)`, one on a line of its own as `\[x\]`: unlike dollar signs,
nobody takes these for prices.

Source: PaddleX 3.7.2, the formula rule of the pipeline PaddleOCR-VL, as a rule; the code is docvino's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["text", "inline", "display"]

# A backslash before the backslash makes it TeX's line break: in "\\[2pt]" no formula begins.
_FORMULA = re.compile(
    r"(?:(?<!\\)\$+)?"
    r"(?:(?<!\\)\\\((?P<inline>(?:(?!(?<!\\)\\\().)*?)(?<!\\)\\\)"
    r"|(?<!\\)\\\[(?P<display>(?:(?!(?<!\\)\\\[).)*?)(?<!\\)\\\])"
    r"\$*",
    re.DOTALL,
)
_DOUBLED = re.compile(r"(?<!\\)(?:\\\[(?:[\s$]*\\\[)+|\\\](?:[\s$]*\\\])+)")
_DOLLAR = re.compile(r"(?<!\\)\$")
_IN_DOLLARS = re.compile(r"(\$\$?)(?!\$)(.+?)(?<![\\$])\1", re.DOTALL)
_HALF = re.compile(r"\A(?:\\\[|\\\(|\$+)|(?<!\\)(?:\\\]|\\\)|\$+)\Z")
_BLANK_LINES = re.compile(r"\n\s*\n")


def split(text: str) -> Iterator[tuple[Kind, str]]:
    r"""Pieces of a text with formulas in `\(x\)` and `\[x\]`; formulas come without delimiters and dollar signs.

    Delimiters without their other half are text. Blank lines, which end a formula in TeX, become line feeds in it.
    """
    text = _DOUBLED.sub(lambda match: match[0][:2], text)
    end = 0
    for match in _FORMULA.finditer(text):
        if match.start() > end:
            yield "text", text[end : match.start()]
        kind: Kind = "display" if match["inline"] is None else "inline"
        if formula := _bare(_DOLLAR.sub("", match[kind])):
            yield kind, formula
        end = match.end()
    if end < len(text):
        yield "text", text[end:]


def delimited(text: str) -> str:
    r"""Running text with each of its formulas as `\(x\)` or `\[x\]`; without formulas it comes back as it is.

    Dollar signs at and in a formula are dropped, and so are doubled brackets.

    Differs: upstream writes ` $ x $` and ` $$ x $$ ` (Markdown does so here) and deletes all other dollar signs of the
    text, prices too. It takes TeX's line break with a height, `\\[2pt]`, and delimiters without their other half for
    those of a formula.
    """
    pieces = list(split(text))
    if all(kind == "text" for kind, _ in pieces):
        return text
    written = {"text": "{}", "inline": r"\({}\)", "display": r"\[{}\]"}
    return "".join(written[kind].replace("{}", piece) for kind, piece in pieces)


def formulas(answer: str) -> tuple[str, ...]:
    r"""The formulas of an answer that is nothing else, without delimiters; text between them is one of its own."""
    answer = answer.strip()
    pieces = list(split(answer))
    if all(kind == "text" for kind, _ in pieces):
        between = _IN_DOLLARS.sub("", answer)
        if between.strip() or not answer:
            pieces = [("text", _HALF.sub("", answer))]  # bare, or with one delimiter lost
        else:
            pieces = [("display", match[2]) for match in _IN_DOLLARS.finditer(answer)]
    return tuple(_bare(piece) for _, piece in pieces if piece.strip())


def faults(formula: str) -> tuple[str, ...]:
    """Why TeX could not read the formula, as far as its form tells; empty for one that is sound.

    Looks at braces, `\\left` and `\\right`, environments, missing arguments, double scripts, `&`, `%`, `#`, `$` and `_`
    where they may not stand, and commands that a letter was glued to (`\\inZ`). It knows no macros: a command that does
    not exist is not found.
    """
    tokens = [token for token in _TOKEN.findall(formula) if not token.isspace()]
    return tuple(dict.fromkeys(_Walk(tokens).faults()))


def _bare(formula: str) -> str:
    return _BLANK_LINES.sub("\n", formula.strip())


_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|.", re.DOTALL)
_TWO_ARGUMENTS = re.compile("[dtc]?frac|[dt]?binom|stackrel|overset|underset|textcolor")
_ONE_ARGUMENT = re.compile(
    "sqrt|hat|bar|vec|tilde|d?dot|check|acute|grave|breve|mathring|wide(hat|tilde)|(over|under)(line|brace)"
    "|over(right|left)arrow|x(right|left)arrow|math(bf|rm|it|cal|bb|frak|sf|tt|scr)|boldsymbol|bm|operatorname"
    "|text(bf|it|rm)?|mbox|boxed|tag|phantom|substack|pmod"
)
_OPTIONAL = frozenset({"sqrt", "xrightarrow", "xleftarrow"})  # take one more in brackets
_TEXT = frozenset({"text", "textbf", "textit", "textrm", "mbox", "tag"})
_SIZED = frozenset({r"\left", r"\right", r"\middle"})
_NO_DELIMITER = re.compile(r"[A-Za-z0-9{}^_&]")
# Commands without arguments. No command is named like one of these with a letter in upper case behind it.
_GLUED = re.compile(
    "(alpha|beta|gamma|delta|(?:var)?epsilon|zeta|eta|(?:var)?theta|iota|kappa|lambda|mu|nu|xi|pi|rho|sigma|tau"
    "|upsilon|(?:var)?phi|chi|psi|omega|Gamma|Delta|Theta|Lambda|Xi|Pi|Sigma|Phi|Psi|Omega|(?:not)?in|ni|subset(?:eq)?"
    "|supset(?:eq)?|cup|cap|setminus|forall|exists|neg|land|lor|times|cdots?|l?dots|div|pm|mp|leq?|geq?|neq?|approx"
    "|sim(?:eq)?|cong|equiv|propto|to|rightarrow|leftarrow|mapsto|infty|partial|nabla|sum|prod|o?int|lim|sin|cos|tan"
    "|log|ln|exp|min|max|sup|inf|det|dim|ker|ell|hbar|circ|bullet|oplus|otimes|perp|parallel|mid|q?quad)"
    "([A-Z][A-Za-z]*)"
)
_NO_ARGUMENT = frozenset({"}", "&", "^", "_", r"\\", r"\right", r"\middle", r"\end"})


@dataclass
class _Group:
    """What is open: the whole formula, a brace, `\\left`, or an environment."""

    opener: str
    name: str = ""
    is_text: bool = False  # no formula; dollar signs in it begin and end one
    has_dollars: bool = False
    scripts: set[str] = field(default_factory=set)  # those that the last atom has
    awaits_script: bool = False

    def atom(self) -> None:
        """Something to which scripts can be put, or the script itself."""
        if not self.awaits_script:
            self.scripts.clear()
        self.awaits_script = False


class _Walk:
    """One way through the tokens, with what is open on a stack."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._tokens = tokens
        self._closing = _closing_braces(tokens)

    def faults(self) -> Iterator[str]:
        open_groups = [_Group("formula")]
        place = 0
        while place < len(self._tokens):
            token = self._tokens[place]
            group = open_groups[-1]
            if token in ("^", "_"):
                yield from self._script(token, place, group)
            elif token == "{":
                group.atom()
                starred = place > 1 and self._tokens[place - 1] == "*"
                before = self._tokens[place - 1 - starred] if place else ""
                is_text = group.is_text or before[1:] in _TEXT
                open_groups.append(_Group("{", is_text=is_text, has_dollars=is_text))
            elif token == "}":
                yield from _closed(open_groups, "{", "}")
            elif token in _SIZED:
                place += 1
                if place >= len(self._tokens) or _NO_DELIMITER.fullmatch(self._tokens[place]):
                    yield f"{token} has no delimiter"
                    place -= 1
                if token == r"\left":
                    group.atom()
                    open_groups.append(_Group(r"\left"))
                elif token == r"\right":
                    yield from _closed(open_groups, r"\left", r"\right")
            elif token in (r"\begin", r"\end"):
                name, place = self._name(place)
                if token == r"\begin":
                    group.atom()
                    open_groups.append(_Group(r"\begin", name))
                else:
                    yield from _closed(open_groups, r"\begin", r"\end", name)
            else:
                if token == "&":
                    if not group.is_text and all(other.opener != r"\begin" for other in open_groups):
                        yield "a & stands outside an environment"
                    group.scripts.clear()
                elif token == "$" and group.has_dollars:
                    group.is_text = not group.is_text
                elif token in ("%", "#", "$"):
                    yield f"a {token} has no backslash"
                elif token != "'":
                    group.atom()
                if token[0] == "\\" and token[1:].isalpha():
                    yield from self._command(token[1:], place)
            place += 1
        yield from (_unclosed(group) for group in open_groups[1:])

    def _script(self, token: str, place: int, group: _Group) -> Iterator[str]:
        if group.is_text:
            yield f"a {token} in text has no backslash"
            return
        if token in group.scripts:
            yield f"two {token} follow one letter"
        if self._argument(place + 1) is None:
            yield f"a {token} has no argument"
        group.scripts.add(token)
        group.awaits_script = True

    def _command(self, name: str, place: int) -> Iterator[str]:
        if glued := _GLUED.fullmatch(name):
            yield rf"\{name} is no command: \{glued[1]} {glued[2]}?"
        wanted = 2 if _TWO_ARGUMENTS.fullmatch(name) else 1 if _ONE_ARGUMENT.fullmatch(name) else 0
        following = place + 1
        if self._at(following) == "*":
            following += 1
        if name in _OPTIONAL and self._at(following) == "[" and "]" in self._tokens[following:]:
            following = self._tokens.index("]", following) + 1
        for given in range(wanted):
            end = self._argument(following)
            if end is None:
                yield rf"\{name} has {given} of {wanted} arguments"
                return
            following = end

    def _at(self, place: int) -> str:
        return self._tokens[place] if place < len(self._tokens) else ""

    def _argument(self, place: int) -> int | None:
        """Where the argument that begins here ends; None when there is none."""
        token = self._at(place)
        if not token or token in _NO_ARGUMENT:
            return None
        return self._closing.get(place, place) + 1

    def _name(self, place: int) -> tuple[str, int]:
        """The name of an environment in braces, and the place of its last token."""
        if self._at(place + 1) != "{":
            return "", place
        end = self._closing.get(place + 1, place + 1)
        return "".join(self._tokens[place + 2 : end]), end


def _closed(open_groups: list[_Group], opener: str, closer: str, name: str = "") -> Iterator[str]:
    """Takes the group that `closer` closes off the stack, and those that were left open in it."""
    fits = [group.opener == opener and group.name == name for group in open_groups]
    if not any(fits):
        yield f"{closer}{{{name}}} closes nothing" if name else f"a {closer} closes nothing"
        return
    while True:
        group = open_groups.pop()
        if group.opener == opener and group.name == name:
            return
        yield _unclosed(group)


def _unclosed(group: _Group) -> str:
    return f"{group.opener}{{{group.name}}} is not closed" if group.name else f"a {group.opener} is not closed"


def _closing_braces(tokens: Sequence[str]) -> dict[int, int]:
    """The place of the closing brace for each opening one that has it."""
    found: dict[int, int] = {}
    waiting: list[int] = []
    for place, token in enumerate(tokens):
        if token == "{":
            waiting.append(place)
        elif token == "}" and waiting:
            found[waiting.pop()] = place
    return found
