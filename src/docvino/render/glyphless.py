"""A typeface that shows nothing: text that can be found, marked and copied in a PDF, in every script, but not seen.

Source: the idea of Tesseract's searchable PDFs (a Type 0 font without outlines and with a ToUnicode map). Differs: a
code stands for a character of the document rather than for UTF-16, so characters beyond 65535 work; and glyphs have
sizes (those of a common typeface, of two points without anything between them), because PDFium takes a text whose
letters have no height for none when it runs down a page.
"""

from __future__ import annotations

import struct
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import islice

ASCENT, DESCENT = 800, -200  # thousandths of the size: a line of text from top to bottom

# Widths of Helvetica in thousandths of the size (Source: Adobe's font metrics); only their ratios matter.
_WIDTHS = {
    191: "'", 222: "ijl", 260: "|", 278: " !,./:;I[\\]ft", 333: "-()`r", 334: "{}", 355: '"', 389: "*", 469: "^",
    500: "Jcksvxyz", 556: "#$0123456789?L_abdeghnopqu", 584: "+<=>~", 611: "FTZ", 667: "&ABEKPSVXY", 722: "CDHNRUw",
    778: "GOQ", 833: "Mm", 889: "%", 944: "W", 1015: "@",
}  # fmt: skip
_WIDTH_OF = {letter: width for width, letters in _WIDTHS.items() for letter in letters}
_USUAL_WIDTH = 556
GLYPH_WIDTHS = (0, *sorted(_WIDTHS), 1000)  # one glyph for each
_MOST_CHARACTERS = 0xFFFF


def width_of(character: str) -> int:
    """Thousandths of the size that the character goes forward."""
    if unicodedata.east_asian_width(character) in "WF":
        return 1000
    if unicodedata.combining(character):
        return 0
    base = unicodedata.normalize("NFD", character)[0]
    return _WIDTH_OF.get(base, _USUAL_WIDTH)


class Codes:
    """Gives each character of a document a code of two bytes, from 1, in the order they come."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    def hexadecimal(self, text: str) -> str:
        """The text as a PDF shows it: a string in hexadecimal digits without brackets."""
        return "".join(f"{self._code(character):04x}" for character in text)

    def _code(self, character: str) -> int:
        # No document has more different characters than there are codes; if one had, its rarest would share one.
        return self._codes.setdefault(character, min(len(self._codes) + 1, _MOST_CHARACTERS))

    def widths(self) -> list[int]:
        """The width of each code, from 1."""
        return [width_of(character) for character in islice(self._codes, _MOST_CHARACTERS)]

    def glyphs(self) -> bytes:
        """CIDToGIDMap: which glyph each code shows, from 0."""
        glyph_of = {width: glyph for glyph, width in enumerate(GLYPH_WIDTHS)}
        return struct.pack(f">{1 + len(self.widths())}H", 0, *(glyph_of[width] for width in self.widths()))

    def to_unicode(self) -> bytes:
        """The CMap that says which character a code means."""
        parts = [_CMAP_HEAD]
        entries = iter(self._codes.items())
        while chunk := list(islice(entries, 100)):  # Source: Adobe's CMap specification, most entries of one list
            lines = [f"<{code:04x}> <{character.encode('utf-16-be').hex()}>" for character, code in chunk]
            parts.append(f"{len(chunk)} beginbfchar\n" + "\n".join(lines) + "\nendbfchar\n")
        return "".join([*parts, _CMAP_TAIL]).encode("ascii")


_CMAP_HEAD = """/CIDInit /ProcSet findresource begin
12 dict begin
begincmap
/CIDSystemInfo << /Registry (Adobe) /Ordering (UCS) /Supplement 0 >> def
/CMapName /Adobe-Identity-UCS def
/CMapType 2 def
1 begincodespacerange
<0000> <ffff>
endcodespacerange
"""
_CMAP_TAIL = """endcmap
CMapName currentdict /CMap defineresource pop
end
end
"""


def font_file() -> bytes:
    """A TrueType file with a glyph for each of `GLYPH_WIDTHS`.

    Source: Apple's TrueType Reference Manual, tables glyf, head, hhea, hmtx, loca, maxp.
    """
    glyphs = [_two_points(width) for width in GLYPH_WIDTHS]
    count, size = len(glyphs), len(glyphs[0])
    checked = struct.pack(">IIIIHH", 0x00010000, 0x00010000, 0, 0x5F0F3CF5, 0, 1000)  # version ... magic, units per em
    head = checked + struct.pack(">QQhhhhHHhhh", 0, 0, 0, DESCENT, max(GLYPH_WIDTHS), ASCENT, 0, 8, 2, 0, 0)
    hhea = struct.pack(">IhhhHhhhhhh", 0x00010000, ASCENT, DESCENT, 0, max(GLYPH_WIDTHS), 0, 0, 1000, 1, 0, 0)
    hhea += struct.pack(">hhhhhH", 0, 0, 0, 0, 0, count)
    tables = {
        b"glyf": b"".join(glyphs),
        b"head": head,
        b"hhea": hhea,
        b"hmtx": b"".join(struct.pack(">Hh", width, 0) for width in GLYPH_WIDTHS),
        b"loca": struct.pack(f">{count + 1}H", *(glyph * size // 2 for glyph in range(count + 1))),
        b"maxp": struct.pack(">IHHH", 0x00010000, count, 2, 2) + bytes(22),
    }
    return b"".join(_sfnt(tables))


def _two_points(width: int) -> bytes:
    """A glyph of two contours of a point each: it has a size and nothing to be drawn."""
    bounds = struct.pack(">hhhhh", 2, 0, DESCENT, width, ASCENT)
    points = struct.pack(">BBhhhh", 1, 1, 0, width, DESCENT, ASCENT - DESCENT)  # flags, then ways across and up
    return bounds + struct.pack(">HHH", 0, 1, 0) + points


def _sfnt(tables: dict[bytes, bytes]) -> Iterator[bytes]:
    """The file: its directory, then the tables at multiples of four bytes."""
    count = len(tables)
    power = 1 << (count.bit_length() - 1)
    yield struct.pack(">IHHHH", 0x00010000, count, 16 * power, power.bit_length() - 1, 16 * (count - power))
    offset = 12 + 16 * count
    for tag, body in tables.items():
        padded = body + bytes(-len(body) % 4)
        checksum = sum(struct.unpack(f">{len(padded) // 4}I", padded)) & 0xFFFFFFFF
        yield struct.pack(">4sIII", tag, checksum, offset, len(body))
        offset += len(padded)
    yield from (body + bytes(-len(body) % 4) for body in tables.values())


def natural_width(text: str) -> float:
    """The width of the text in multiples of its size; never 0."""
    return max(1, sum(map(width_of, text))) / 1000


def wrapped(words: Sequence[str], width: float) -> list[str]:
    """The words in lines of at most that width, in multiples of the size; a longer word has a line of its own."""
    lines = [""]
    used = 0.0
    for word in words:
        wide = sum(map(width_of, word.rstrip())) / 1000
        if lines[-1] and used + wide > width:
            lines.append("")
            used = 0.0
        lines[-1] += word
        used += sum(map(width_of, word)) / 1000
    return [line.strip() for line in lines if line.strip()]
