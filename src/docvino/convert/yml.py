"""The part of YAML that `inference.yml` files are written in, so that no package is needed for it.

Block mappings and sequences, plain and quoted scalars on one line, flow sequences and mappings on one line, comments,
anchors (aliases stay as they are written). Every scalar is text.
"""

from __future__ import annotations

import json
import re

Value = str | None | list["Value"] | dict[str, "Value"]

_QUOTED = r'"(?:[^"\\]|\\.)*"|\'(?:[^\']|\'\')*\''
_KEY = re.compile(rf"^({_QUOTED}|[^\s#\"'\[{{&*!|>%@-][^:]*?|-[^\s:][^:]*?)\s*:(?: +(.*))?$")
_ANCHOR = re.compile(r"^&\w+ *")
_SPACE = " "  # an ideographic space is a character of a dictionary, not white space


def parse(text: str) -> Value:
    """Raises: ValueError with the line that is not understood."""
    lines = []
    for line in text.removeprefix("\ufeff").split("\n"):
        content = line.rstrip("\r").rstrip(_SPACE)
        bare = content.lstrip(_SPACE)
        if bare and not bare.startswith("#") and bare not in ("---", "..."):
            lines.append((len(content) - len(bare), bare))
    if not lines:
        return None
    reader = _Reader(lines)
    value = reader.block(lines[0][0])
    if reader.position != len(lines):
        raise ValueError(f"not understood: {lines[reader.position][1][:80]}")
    return value


class _Reader:
    def __init__(self, lines: list[tuple[int, str]]) -> None:
        self.lines = lines
        self.position = 0

    def block(self, indent: int) -> Value:
        return self._sequence(indent) if _is_item(self.lines[self.position][1]) else self._mapping(indent)

    def _sequence(self, indent: int) -> list[Value]:
        values: list[Value] = []
        while self._at(indent) and _is_item(self.lines[self.position][1]):
            content = self.lines[self.position][1]
            rest = content[1:].lstrip(_SPACE)
            inner = indent + len(content) - len(rest)
            rest = _ANCHOR.sub("", rest)
            if not rest:
                self.position += 1
                values.append(self._nested(indent + 1))
            elif _is_item(rest) or _KEY.match(rest):
                self.lines[self.position] = (inner, rest)
                values.append(self.block(inner))
            else:
                self.position += 1
                values.append(_scalar(rest))
        return values

    def _mapping(self, indent: int) -> dict[str, Value]:
        values: dict[str, Value] = {}
        while self._at(indent):
            content = self.lines[self.position][1]
            match = _KEY.match(content)
            if match is None:
                raise ValueError(f"not understood: {content[:80]}")
            self.position += 1
            key = str(_scalar(match.group(1)))
            rest = _ANCHOR.sub("", match.group(2) or "")
            if rest and not rest.startswith("#"):
                values[key] = _scalar(rest)
            else:
                # A sequence may stand as deep as the key it belongs to.
                same = self._at(indent) and _is_item(self.lines[self.position][1])
                values[key] = self._sequence(indent) if same else self._nested(indent + 1)
        return values

    def _at(self, indent: int) -> bool:
        return self.position < len(self.lines) and self.lines[self.position][0] == indent

    def _nested(self, least: int) -> Value:
        if self.position < len(self.lines) and self.lines[self.position][0] >= least:
            return self.block(self.lines[self.position][0])
        return None


def _is_item(content: str) -> bool:
    return content == "-" or content.startswith("- ")


def _scalar(text: str) -> Value:
    text = text.strip(_SPACE)
    quoted = re.match(rf"({_QUOTED})(?: +#.*)?$", text)
    if quoted:
        inner = quoted.group(1)
        if inner.startswith("'"):
            return inner[1:-1].replace("''", "'")
        # YAML's escapes are those of JSON and a few more.
        inner = re.sub(r"\\x([0-9A-Fa-f]{2})", r"\\u00\1", inner).replace("\\0", "\\u0000").replace("\\e", "\\u001b")
        inner = inner.replace("\\_", "\\u00a0").replace("\\N", "\\u0085").replace("\\L", "\\u2028")
        inner = re.sub(r"\\U([0-9A-Fa-f]{8})", lambda found: chr(int(found.group(1), 16)), inner)
        value: str = json.loads(inner.replace("\\P", "\\u2029").replace("\\a", "\\u0007").replace("\\v", "\\u000b"))
        return value
    if text.startswith(('"', "'", "|", ">")):
        raise ValueError(f"not understood: {text[:80]}")
    text = re.sub(r" +#.*$", "", text)
    if text.startswith("[") and text.endswith("]"):
        return [_scalar(part) for part in _parts(text[1:-1])]
    if text.startswith("{") and text.endswith("}"):
        pairs = [part.partition(":") for part in _parts(text[1:-1])]
        return {str(_scalar(key)): _scalar(value) for key, _, value in pairs}
    return None if text in ("", "null", "~") else text


def _parts(text: str) -> list[str]:
    """The parts between commas that stand in no brackets and no quotes."""
    parts, depth, start, quote = [], 0, 0, ""
    for index, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
        else:
            depth += (character in "[{") - (character in "]}")
    parts.append(text[start:])
    return [part for part in parts if part.strip(_SPACE)]
