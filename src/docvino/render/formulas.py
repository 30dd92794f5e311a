r"""LaTeX -> MathML and the math of Word, offline: without a script, a font or a network.

The only file that uses latex2mathml. What it cannot read is None, and the caller shows the LaTeX.
"""

from __future__ import annotations

import html
import re
from xml.etree import ElementTree

from latex2mathml.converter import convert_to_element

from docvino.render.flow import without_controls

_MATHML = "http://www.w3.org/1998/Math/MathML"
_WORD_MATH = "http://schemas.openxmlformats.org/officeDocument/2006/math"

# Environments that latex2mathml takes for plain letters, as ones that look alike.
_ENVIRONMENTS = {
    "aligned": "align*",
    "alignedat": "align*",
    "eqnarray": "align*",
    "eqnarray*": "align*",
    "align": "align*",  # its numbers would begin at 1 in every formula
    "gathered": "matrix",
    "gather": "matrix",
    "gather*": "matrix",
    "multline": "matrix",
    "multline*": "matrix",
}
_ENVIRONMENT = re.compile(r"\\(begin|end)\s*\{\s*([a-z]+\*?)\s*\}(?:\{\d+\})?")
_WRAPPER = re.compile(r"\\(?:begin|end)\s*\{\s*(?:equation|displaymath|math)\*?\s*\}")

# A link or an action in a formula would be active in a browser.
_PASSIVE = frozenset(
    {
        "accent", "columnalign", "columnlines", "columnspacing", "depth", "display", "displaystyle", "fence", "form",
        "height", "linebreak", "linethickness", "lspace", "mathcolor", "mathsize", "mathvariant", "maxsize", "minsize",
        "movablelimits", "notation", "rowlines", "rowspacing", "rspace", "scriptlevel", "separator", "stretchy",
        "symmetric", "voffset", "width",
    }
)  # fmt: skip
_UNDER = frozenset({"lim", "max", "min", "sup", "inf", "limsup", "liminf", "argmax", "argmin"})
_BIG = frozenset("∑∏∐∫∬∭∮⋂⋃⋀⋁⨁⨂")
_TOP = {"^": "\u0302", "ˆ": "\u0302", "˙": "\u0307", "¨": "\u0308", "~": "\u0303", "˜": "\u0303", "→": "\u20d7"}
_BRACKETS = frozenset({"()", "[]", "{}", "||", "‖‖"})
_BARS = frozenset("―¯‾_\u0305\u0332")


def to_mathml(latex: str, *, display: bool = False) -> str | None:
    """`<math>` with the LaTeX as an annotation, or None for what cannot be read as a formula."""
    element = _parsed(latex, display=display)
    if element is None:
        return None
    math = ElementTree.Element("math", {"display": "block" if display else "inline"})
    semantics = ElementTree.SubElement(math, "semantics")
    row = ElementTree.SubElement(semantics, "mrow")
    row.extend(element)
    ElementTree.SubElement(semantics, "annotation", {"encoding": "application/x-tex"}).text = latex
    return ElementTree.tostring(math, encoding="unicode")


def to_omml(latex: str, *, display: bool = False) -> str | None:
    """`<m:oMath>` as Word writes it, or None for what cannot be read as a formula."""
    element = _parsed(latex, display=display)
    if element is None:
        return None
    ElementTree.register_namespace("m", _WORD_MATH)
    math = _m("oMath", *_omml_all(list(element)))
    return ElementTree.tostring(math, encoding="unicode")


def _parsed(latex: str, *, display: bool) -> ElementTree.Element | None:
    latex = without_controls(latex)
    latex = _WRAPPER.sub("", latex)
    latex = _ENVIRONMENT.sub(lambda m: rf"\{m[1]}{{{_ENVIRONMENTS.get(m[2], m[2])}}}", latex)
    try:
        math = convert_to_element(latex, display="block" if display else "inline")
    except Exception:  # noqa: BLE001 - its errors have no common class, and recursion has an error of its own
        return None
    for element in math.iter():
        element.tag = element.tag.rpartition("}")[2]
        # It writes characters as references and leaves them so for whoever writes the text out.
        element.text = without_controls(html.unescape(element.text)) if element.text else element.text
        if display and element.tag == "msub" and element[0].text in _UNDER:
            element.tag = "munder"
        for name in set(element.attrib) - _PASSIVE:
            del element.attrib[name]
    return math


# ---- Word's math


def _m(name: str, *children: ElementTree.Element, **attributes: str) -> ElementTree.Element:
    made = ElementTree.Element(f"{{{_WORD_MATH}}}{name}", {f"{{{_WORD_MATH}}}{k}": v for k, v in attributes.items()})
    made.extend(children)
    return made


def _run(text: str, *, plain: bool = False) -> ElementTree.Element:
    words = _m("t")
    words.text = text
    words.set("{http://www.w3.org/XML/1998/namespace}space", "preserve")
    return _m("r", _m("rPr", _m("nor")), words) if plain else _m("r", words)


def _part(name: str, *elements: ElementTree.Element) -> ElementTree.Element:
    """An argument such as m:e or m:num, with what the elements show."""
    return _m(name, *_omml_all(list(elements)))


def _omml_all(elements: list[ElementTree.Element]) -> list[ElementTree.Element]:
    made: list[ElementTree.Element] = []
    place = 0
    while place < len(elements):
        element = elements[place]
        place += 1
        if _is_big(element):
            # Word's sums and integrals hold what they are of; one term is enough for their size and place.
            term = elements[place : place + 1]
            place += 1
            made.append(_nary(element, term))
        elif element.tag == "munder" and element[0].text in _UNDER:
            # A limit, too, is written with what it is of: else LibreOffice takes it into a fraction behind it.
            name = _m("fName", *_omml(element))
            made.append(_m("func", name, _part("e", *elements[place : place + 1])))
            place += 1
        elif _is_fenced_table(elements[place - 1 : place + 2]):
            made.append(_fenced(element.text or "", [elements[place]], elements[place + 1].text or ""))
            place += 2
        else:
            made += _omml(element)
    return made


def _omml(element: ElementTree.Element) -> list[ElementTree.Element]:
    kind, children = element.tag, list(element)
    if kind in ("mi", "mn", "mo"):
        upright = kind == "mi" and (element.get("mathvariant") == "normal" or len(element.text or "") > 1)
        # An empty letter stands before an equals sign that begins a cell; LibreOffice wants something there.
        return [_run(element.text or "", plain=upright or not element.text)]
    if kind == "mtext":
        return [_run(element.text, plain=True)] if element.text else []
    if kind == "mspace":
        return [_run(" ", plain=True)]
    if kind == "mfrac" and len(children) == 2:
        no_bar = [_m("fPr", _m("type", val="noBar"))] if element.get("linethickness") == "0" else []
        return [_m("f", *no_bar, _part("num", children[0]), _part("den", children[1]))]
    if kind == "msqrt":
        return [_m("rad", _m("radPr", _m("degHide", val="1")), _m("deg"), _part("e", *children))]
    if kind == "mroot" and len(children) == 2:
        return [_m("rad", _part("deg", children[1]), _part("e", children[0]))]
    if kind in _SCRIPTS and len(children) == len(_SCRIPTS[kind][1]) + 1:
        name, parts = _SCRIPTS[kind]
        scripts = [_part(part, child) for part, child in zip(parts, children[1:], strict=True)]
        return [_m(name, _part("e", children[0]), *scripts)]
    if kind in ("mover", "munder") and len(children) == 2:
        return [_over_or_under(kind, *children)]
    if kind == "munderover" and len(children) == 3:
        lower = _m("limLow", _part("e", children[0]), _part("lim", children[1]))
        return [_m("limUpp", _m("e", lower), _part("lim", children[2]))]
    if kind == "mtable":
        return [_table(children)]
    if kind == "menclose" and element.get("notation") == "box":
        return [_m("borderBox", _part("e", *children))]
    if kind == "mrow" and len(children) > 1 and (fences := _fences(children)):
        left, right = fences
        return [_fenced(left, children[1:-1] if right else children[1:], right)]
    return _omml_all(children)


_SCRIPTS = {
    "msub": ("sSub", ("sub",)),
    "msup": ("sSup", ("sup",)),
    "msubsup": ("sSubSup", ("sub", "sup")),
}


def _fences(children: list[ElementTree.Element]) -> tuple[str, str] | None:
    """The delimiters of `\\left` and `\\right`; the right one is empty for a brace before cases."""
    first, last = children[0], children[-1]
    if first.tag != "mo" or first.get("form") != "prefix":
        return None
    closes = last.tag == "mo" and last.get("form") == "postfix"
    return (first.text or "").strip(), (last.text or "").strip() if closes else ""


def _fenced(left: str, inner: list[ElementTree.Element], right: str) -> ElementTree.Element:
    return _m("d", _m("dPr", _m("begChr", val=left), _m("endChr", val=right)), _part("e", *inner))


def _is_fenced_table(elements: list[ElementTree.Element]) -> bool:
    """True for a matrix between brackets, which latex2mathml does not join."""
    if [element.tag for element in elements] != ["mo", "mtable", "mo"]:
        return False
    return f"{elements[0].text}{elements[2].text}" in _BRACKETS


def _over_or_under(kind: str, base: ElementTree.Element, mark: ElementTree.Element) -> ElementTree.Element:
    sign = (mark.text or "").strip()
    above = kind == "mover"
    if mark.tag == "mo" and sign in _BARS:
        return _m("bar", _m("barPr", _m("pos", val="top" if above else "bot")), _part("e", base))
    if mark.tag == "mo" and sign in "⏞⏟" and sign:
        properties = _m("groupChrPr", _m("chr", val=sign), _m("pos", val="top" if above else "bot"))
        return _m("groupChr", properties, _part("e", base))
    if mark.tag == "mo" and above and sign in _TOP:
        return _m("acc", _m("accPr", _m("chr", val=_TOP[sign])), _part("e", base))
    return _m("limUpp" if above else "limLow", _part("e", base), _part("lim", mark))


def _is_big(element: ElementTree.Element) -> bool:
    children = list(element)
    base = children[0] if children else element
    return element.tag in ("msub", "msup", "msubsup", "munder", "mover", "munderover") and (base.text or "") in _BIG


def _nary(element: ElementTree.Element, term: list[ElementTree.Element]) -> ElementTree.Element:
    sign, *limits = list(element)
    upper_only = element.tag in ("msup", "mover")
    lower = None if upper_only else limits[0]
    upper = limits[-1] if upper_only or len(limits) == 2 else None
    below = element.tag.startswith(("munder", "mover")) and (sign.text or "") not in "∫∬∭∮"
    place = "undOvr" if below else "subSup"
    hidden = [_m(name, val="1") for name, part in (("subHide", lower), ("supHide", upper)) if part is None]
    return _m(
        "nary",
        _m("naryPr", _m("chr", val=sign.text or ""), _m("limLoc", val=place), *hidden),
        _part("sub", *([] if lower is None else [lower])),
        _part("sup", *([] if upper is None else [upper])),
        _part("e", *term),
    )


def _table(rows: list[ElementTree.Element]) -> ElementTree.Element:
    """A matrix. Empty cells hold an empty text, else Word draws a dotted box there and LibreOffice a question mark."""
    made = [_m("mr", *(_m("e", *(_omml_all(list(cell)) or [_run("", plain=True)])) for cell in row)) for row in rows]
    return _m("m", _m("mPr", _m("plcHide", val="1")), *made)
