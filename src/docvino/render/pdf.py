"""Document -> a PDF in which one can search: the pages as they were, with the text that was read, unseen, in its place.

The only file that uses pikepdf (extra `pdf`).
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pikepdf
from numpy.typing import NDArray
from pikepdf import Array, Dictionary, Name, Stream, String
from PIL import Image

from docvino.document import Box, Document, Page, Point
from docvino.errors import InputError
from docvino.render import glyphless, ink
from docvino.render.flow import language, without_controls
from docvino.render.placed import Placed

Picture = Callable[[Page], NDArray[np.uint8] | None]

_FONT = Name("/DocvinoUnseen")
_UNKNOWN_DPI = 144.0  # of pictures that do not tell theirs: as PDF pages are rendered
_LARGEST_PT = 14_400.0  # Source: PDF 1.7, implementation limits, the side of a page
_BLANK_PT = (595.0, 842.0)  # A4, for a picture that could not be read: page numbers stay what they are
_JPEG_QUALITY = 92
_THERE_ALREADY = 0.5  # of the letters of a line: the page has this text itself


def searchable_pdf(
    document: Document,
    data: bytes,
    page_count: int,
    password: str | None,
    picture: Picture,
    own_text: Callable[[int], Sequence[Point]],
) -> bytes:
    """A PDF source with unseen text; what its pages show is not touched, but pages that lay sideways stand upright.

    picture    page -> uint8 (H, W, 3) RGB as it was read, upright; its ink tells where words begin and end
    own_text   page index -> middles of the characters that the page has itself, in points; they are not doubled

    The whole document keeps its outline, and its locks: the same passwords open it. Of a choice of pages a new
    document is made.

    Raises: InputError when pikepdf cannot read what PDFium could.
    """
    try:
        with _opened(data, password) as source:
            if len(source.pages) != page_count:
                raise _unreadable(document, f"it has {len(source.pages)} or {page_count} pages")
            with source if len(document.pages) == page_count else pikepdf.Pdf.new() as pdf:
                if pdf is not source:
                    for page in document.pages:
                        pdf.pages.append(source.pages[page.page_index])
                text = _UnseenText(pdf)
                for page, target in zip(document.pages, pdf.pages, strict=True):
                    if page.source_box is None:
                        continue  # a page that failed
                    turned = (_rotation(target.obj) + page.rotation_degrees) % 360
                    if page.rotation_degrees:
                        target.obj.Rotate = turned
                    own = own_text(page.page_index)
                    text.lay_on(target, page, picture(page), box=page.source_box, turned=turned, own_text=own)
                text.finish()
                return _saved(pdf, encryption=pdf is source and source.is_encrypted)
    except pikepdf.PdfError as error:
        raise _unreadable(document, str(error)) from error


def pictures_pdf(document: Document, picture: Picture) -> bytes:
    """A PDF of pictures with unseen text.

    picture   page -> uint8 (H, W, 3) RGB as it was read, upright; None for one that cannot be had

    Pictures from JPEG and WebP are stored as JPEG, all others without loss.
    """
    with pikepdf.Pdf.new() as pdf:
        pdf.docinfo["/Title"] = String(without_controls(document.source.name))
        pdf.docinfo["/Creator"] = String("docvino")
        if (name := language(document)) != "und":
            pdf.Root.Lang = String(name)
        text = _UnseenText(pdf)
        with_loss = document.source.media_type in ("image/jpeg", "image/webp")
        for page in document.pages:
            pixels = picture(page)
            if pixels is None:
                pdf.add_blank_page(page_size=_BLANK_PT)
                continue
            target = _picture_page(pdf, page, pixels, with_loss=with_loss)
            left, bottom, right, top = (float(side) for side in target.mediabox)
            text.lay_on(target, page, pixels, box=(left, bottom, right, top), turned=0)
        text.finish()
        return _saved(pdf, encryption=False)


def _opened(data: bytes, password: str | None) -> pikepdf.Pdf:
    try:
        return pikepdf.open(io.BytesIO(data), password=password or "")
    except pikepdf.PasswordError:
        return pikepdf.open(io.BytesIO(data))  # a password for others of the batch


def _unreadable(document: Document, cause: str) -> InputError:
    return InputError(
        f"{document.source.name}: no searchable PDF, as the source is damaged: {cause}",
        fix="save it anew with a PDF viewer, or leave pdf out of --format",
    )


def _saved(pdf: pikepdf.Pdf, *, encryption: bool) -> bytes:
    stream = io.BytesIO()
    if encryption:
        pdf.save(stream, encryption=True)
    else:
        pdf.save(stream, deterministic_id=True)
    return stream.getvalue()


# ---- text


class _UnseenText:
    """One typeface for the whole document; `finish` writes down which characters it has."""

    def __init__(self, pdf: pikepdf.Pdf) -> None:
        self._pdf = pdf
        self._codes = glyphless.Codes()
        self._font = pdf.make_indirect(Dictionary())

    def lay_on(
        self,
        target: pikepdf.Page,
        page: Page,
        pixels: NDArray[np.uint8] | None,
        *,
        box: Box,
        turned: int,
        own_text: Sequence[Point] = (),
    ) -> None:
        """Adds the text of a page that shows `box` (left, bottom, right, top in points), turned clockwise."""
        to_points = _to_points(page, box, turned)
        own = np.array(own_text, np.float64).reshape(-1, 2)
        shown = [
            line for placed, spans in ink.located(page, pixels) if (line := self._line(placed, spans, to_points, own))
        ]
        if not shown:
            return
        target.add_resource(self._font, Name.Font, _FONT)
        # Before all else, where the page's own content has not changed the coordinates yet.
        content = "\n".join(["q BT 3 Tr", *shown, "ET Q\n"]).encode("ascii")
        target.contents_add(content, prepend=True)

    def _line(
        self,
        placed: Placed,
        spans: Sequence[ink.Span] | None,
        to_points: Callable[[Point], Point],
        own: NDArray[np.float64],
    ) -> str:
        corners = (placed.start_top, placed.end_top, placed.end_bottom, placed.start_bottom)
        start, end, low_end, low_start = map(to_points, corners)
        if _is_there(placed.text, (start, end, low_end, low_start), own):
            return ""
        along = tuple((end[axis] - start[axis] + low_end[axis] - low_start[axis]) / 2 for axis in (0, 1))
        length = max(math.hypot(*along), 0.01)
        height = max((math.dist(start, low_start) + math.dist(end, low_end)) / 2, 0.01)
        cos, sin = along[0] / length, along[1] / length
        up = -glyphless.DESCENT / 1000  # the baseline, above the lower edge
        begin = spans[0][0] if spans else 0.0
        x, y = (low_start[axis] + up * (start[axis] - low_start[axis]) + begin * along[axis] for axis in (0, 1))
        unit = length / height
        words = [self._word(word, wide * unit, on * unit) for word, wide, on in _words(placed.text, spans)]
        return f"{_FONT} {height:.3f} Tf {cos:.5f} {sin:.5f} {-sin:.5f} {cos:.5f} {x:.3f} {y:.3f} Tm {' '.join(words)}"

    def _word(self, word: str, width: float, advance: float) -> str:
        """A word as wide as it is seen, and a blank up to the next one; both in multiples of the size."""
        natural = glyphless.natural_width(word)
        stretch = max(width, 0.001) / natural
        if advance == width:
            return f"{100 * stretch:.2f} Tz <{self._codes.hexadecimal(word)}> Tj"
        back = 1000 * (natural + glyphless.natural_width(" ") - advance / stretch)
        return f"{100 * stretch:.2f} Tz [<{self._codes.hexadecimal(word + ' ')}> {back:.0f}] TJ"

    def finish(self) -> None:
        pdf = self._pdf
        name = Name("/DocvinoUnseen")
        descriptor = Dictionary(
            Type=Name.FontDescriptor,
            FontName=name,
            Flags=4,
            FontBBox=Array([0, glyphless.DESCENT, 1000, glyphless.ASCENT]),
            ItalicAngle=0,
            Ascent=glyphless.ASCENT,
            Descent=glyphless.DESCENT,
            CapHeight=glyphless.ASCENT,
            StemV=80,
            FontFile2=Stream(pdf, glyphless.font_file()),
        )
        descendant = Dictionary(
            Type=Name.Font,
            Subtype=Name.CIDFontType2,
            BaseFont=name,
            CIDSystemInfo=Dictionary(Registry=String("Adobe"), Ordering=String("Identity"), Supplement=0),
            FontDescriptor=pdf.make_indirect(descriptor),
            DW=1000,
            W=Array([1, Array(self._codes.widths())]),
            CIDToGIDMap=Stream(pdf, self._codes.glyphs()),
        )
        font = {
            "/Type": Name.Font,
            "/Subtype": Name.Type0,
            "/BaseFont": name,
            "/Encoding": Name("/Identity-H"),
            "/DescendantFonts": Array([pdf.make_indirect(descendant)]),
            "/ToUnicode": Stream(pdf, self._codes.to_unicode()),
        }
        for key, value in font.items():
            self._font[key] = value


def _words(text: str, spans: Sequence[ink.Span] | None) -> Iterator[tuple[str, float, float]]:
    """(word, its width, the way to the next) in shares of the line's length; without spans the line is one word."""
    if spans is None:
        yield text, 1.0, 1.0
        return
    starts = [*(start for start, _ in spans[1:]), spans[-1][1]]
    for word, (start, end), following in zip(text.split(), spans, starts, strict=True):
        yield word, end - start, following - start


def _is_there(text: str, corners: Sequence[Point], own: NDArray[np.float64]) -> bool:
    if not len(own):
        return False
    low, high = np.min(corners, axis=0), np.max(corners, axis=0)
    inside = np.count_nonzero(((own >= low) & (own <= high)).all(axis=1))
    return bool(inside >= _THERE_ALREADY * max(1, len("".join(text.split()))))


def _to_points(page: Page, box: Box, turned: int) -> Callable[[Point], Point]:
    """Pixels of the upright page image -> the page's own coordinates, before /Rotate."""
    left, bottom, right, top = box

    def to_points(point: Point) -> Point:
        across, down = point[0] / page.width_px, point[1] / page.height_px
        across, down = {
            0: (across, down),
            90: (down, 1 - across),
            180: (1 - across, 1 - down),
            270: (1 - down, across),
        }[turned]
        return left + across * (right - left), top - down * (top - bottom)

    return to_points


def _rotation(node: Any) -> int:
    """/Rotate of a page, which it may have from the tree above it, in 0, 90, 180, 270."""
    for _ in range(64):  # a damaged tree may go in circles
        if "/Rotate" in node:
            return int(node.Rotate) // 90 * 90 % 360
        if "/Parent" not in node:
            break
        node = node.Parent
    return 0


# ---- pictures


def _picture_page(pdf: pikepdf.Pdf, page: Page, pixels: NDArray[np.uint8], *, with_loss: bool) -> pikepdf.Page:
    height, width = pixels.shape[:2]
    scale = min(72 / (page.dpi or _UNKNOWN_DPI), _LARGEST_PT / max(width, height))
    target = pdf.add_blank_page(page_size=(max(3.0, width * scale), max(3.0, height * scale)))
    name = target.add_resource(_image(pdf, pixels, with_loss=with_loss), Name.XObject, Name("/Page"))
    _, _, wide, high = (float(side) for side in target.mediabox)
    target.contents_add(f"q {wide:.3f} 0 0 {high:.3f} 0 0 cm {name} Do Q\n".encode("ascii"))
    return target


def _image(pdf: pikepdf.Pdf, pixels: NDArray[np.uint8], *, with_loss: bool) -> Stream:
    image = Image.fromarray(np.ascontiguousarray(pixels))
    if all(np.array_equal(pixels[..., 0], pixels[..., channel]) for channel in (1, 2)):
        image = image.getchannel(0)
        counts = image.histogram()
        if counts[0] + counts[255] == image.width * image.height:
            image = image.convert("1")
    bits, channels = (1 if image.mode == "1" else 8), len(image.getbands())
    facts = Dictionary(
        Type=Name.XObject,
        Subtype=Name.Image,
        Width=image.width,
        Height=image.height,
        ColorSpace=Name.DeviceRGB if channels == 3 else Name.DeviceGray,
        BitsPerComponent=bits,
    )
    stream = io.BytesIO()
    if with_loss and bits == 8:
        image.save(stream, "JPEG", quality=_JPEG_QUALITY)
        facts.Filter = Name.DCTDecode
        return Stream(pdf, stream.getvalue(), facts)
    image.save(stream, "PNG")
    facts.Filter = Name.FlateDecode
    facts.DecodeParms = Dictionary(Predictor=15, Colors=channels, BitsPerComponent=bits, Columns=image.width)
    return Stream(pdf, b"".join(_png_chunks(stream.getvalue(), b"IDAT")), facts)


def _png_chunks(png: bytes, kind: bytes) -> Iterator[bytes]:
    """The bodies of the chunks of one kind: PDF and PNG compress pictures alike."""
    place = 8
    while place < len(png):
        length = int.from_bytes(png[place : place + 4], "big")
        if png[place + 4 : place + 8] == kind:
            yield png[place + 8 : place + 8 + length]
        place += 12 + length
