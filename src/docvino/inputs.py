"""Bytes to pages: the only file that decodes images with Pillow and that uses pypdfium2.

    open_document(bytes) -> InputDocument -.page(index)-> PageImage

A format is recognised by its content, never by its file name. Limits are checked before anything is decoded. Pages are
read one at a time and nothing of a page is kept, so a document needs the memory of its largest page: at the limit of
100 million pixels 0.3 to 0.6 GiB for a PDF page and 0.4 to 0.95 GiB for an image.
What Pillow and PDFium raise becomes an InputError here.
"""

from __future__ import annotations

import glob
import hashlib
import io
import math
import os
import re
import struct
import sys
import threading
import warnings
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import cv2
import numpy as np
import pypdfium2
from numpy.typing import NDArray
from PIL import Image, ImageFile
from pypdfium2 import raw as pdfium_c

from docvino.document import Box, PageImage, Point, Source
from docvino.errors import InputError
from docvino.settings import ParseOptions

SUFFIXES = frozenset(
    {".pdf", ".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".webp", ".bmp", ".dib", ".gif", ".tif", ".tiff"}
)
READABLE = "PNG, JPEG, WebP, BMP, GIF, TIFF or PDF"

_PDF = "PDF"
_MEDIA_TYPES = {
    "PNG": "image/png",
    "JPEG": "image/jpeg",
    "WEBP": "image/webp",
    "BMP": "image/bmp",
    "GIF": "image/gif",
    "TIFF": "image/tiff",
    _PDF: "application/pdf",
}
_IMAGE_MAGIC = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "PNG"),
    (re.compile(rb"\xff\xd8\xff"), "JPEG"),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), "WEBP"),
    (re.compile(rb"GIF8[79]a"), "GIF"),
    (re.compile(rb"II[\x2a\x2b]\0|MM\0[\x2a\x2b]"), "TIFF"),
)
_UNSUPPORTED_MAGIC = (
    (re.compile(rb"....ftyp(?:hei|hev|mif1|msf1)", re.DOTALL), "HEIC", "JPEG or PNG"),
    (re.compile(rb"....ftypavi", re.DOTALL), "AVIF", "JPEG or PNG"),
    (re.compile(rb"\0\0\0\x0cjP  |\xff\x4f\xff\x51"), "JPEG 2000", "JPEG or PNG"),
    (re.compile(rb"\0\0\0\x0cJXL |\xff\x0a"), "JPEG XL", "JPEG or PNG"),
    (re.compile(rb"8BPS"), "Photoshop", "PNG or PDF"),
    (re.compile(rb"AT&TFORM"), "DjVu", "PDF"),
    (re.compile(rb"%!PS|\xc5\xd0\xd3\xc6"), "PostScript", "PDF"),
    (re.compile(rb"PK\x03\x04"), "DOCX or other ZIP", "PDF"),
    (re.compile(rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"), "old Office (DOC, XLS, PPT)", "PDF"),
    (re.compile(rb"\{\\rtf"), "RTF", "PDF"),
)
_PDF_HEADER_WINDOW = 1024  # PDFium looks for the header in so many bytes; what comes before it is junk

_STRIP_PIXELS = 1_000_000  # images are converted in strips of whole rows: their copies stay at a few MiB
_BAND_PIXELS = 40_000_000  # larger pages (above A0 at 144 dpi) are rendered in bands: a transparent layer costs a band
_MOST_TIFF_PAGES = 10_000  # counting them takes Pillow the square of the time: 2 MB of empty pages would hang us
_FULL_SCALES = (1.0, 255.0, 65535.0)  # what white usually is in 32-bit and floating-point images

# What Pillow's decoders raise on damaged files: mostly OSError and SyntaxError, at times whatever the damage hits.
_PILLOW_ERRORS = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    AssertionError,
    EOFError,
    RuntimeError,
    MemoryError,
    struct.error,
    zlib.error,
    cv2.error,
)

# Pillow's size check is a global of its module, and the filters for its warnings are global too: one decoder at a time.
_PILLOW_LOCK = threading.Lock()
_PDFIUM_LOCK = threading.Lock()  # PDFium is not thread safe, not even across documents


class InputDocument(ABC):
    """An open document whose pages can be read in any order; close it, or use it as a context manager.

    source         name, sha256 of the bytes, media type
    page_count     pages of the whole document
    page_indices   the pages asked for, from 0, ascending, without repeats
    """

    _data: bytes

    def __init__(self, source: Source, page_count: int, options: ParseOptions) -> None:
        self.source = source
        self.page_count = page_count
        self._options = options
        self._closed = False
        self.page_indices = tuple(range(page_count))
        if options.pages is not None:
            self.page_indices = parse_page_ranges(options.pages, page_count)
        if len(self.page_indices) > options.max_pages:
            raise InputError(
                f"{source.name}: {len(self.page_indices)} pages to read, more than the limit of {options.max_pages}",
                fix=f"choose some with --pages, or set --max-pages {len(self.page_indices)}",
            )

    def page(self, index: int) -> PageImage:
        """The page as RGB pixels; `index` counts from 0 and need not be one of `page_indices`.

        Raises: InputError when this page cannot be read (the others stay readable).
        """
        self._check_open()
        if not 0 <= index < self.page_count:
            raise InputError(
                f"{self.source.name} has no page {index + 1}", fix=f"it has {_counted(self.page_count, 'page')}, from 1"
            )
        return self._read(index)

    @property
    def data(self) -> bytes:
        """The bytes it was opened from."""
        return self._data

    def text_points(self, index: int) -> tuple[Point, ...]:  # noqa: ARG002 - pictures have no text of their own
        """Middles of the characters that a PDF page has as text, in points as in `source_box`; none for a picture.

        Raises: InputError when this page cannot be read.
        """
        self._check_open()
        return ()

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("the document is closed")

    @abstractmethod
    def _read(self, index: int) -> PageImage: ...

    def close(self) -> None:
        """Frees the document; pages already read stay valid. Closing twice is fine."""
        self._closed = True

    def __enter__(self) -> InputDocument:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_document(data: bytes, name: str, options: ParseOptions) -> InputDocument:
    """The document in `data`, which `name` stands for in messages.

    Raises: InputError for an empty, unknown, unsupported, locked or damaged document, for pages that it does not have,
    for more pages than `max_pages`, and for a single image with more pixels than `max_pixels`.
    """
    kind = _recognise(data, name)
    source = Source(name=name, sha256=hashlib.sha256(data).hexdigest(), media_type=_MEDIA_TYPES[kind])
    if kind == _PDF:
        return _PdfDocument(data, source, options)
    return _ImageDocument(data, source, options, kind)


def read_source(argument: str) -> tuple[bytes, str]:
    """The bytes and the name (without folders) of the file `argument`; "-" is standard input, named "stdin".

    Raises: InputError when there is nothing to read.
    """
    if argument == "-":
        data, name = sys.stdin.buffer.read(), "stdin"
    else:
        path = Path(argument)
        try:
            # A name that is no Unicode text (Linux allows any bytes) could not be written as JSON.
            data, name = path.read_bytes(), path.name.encode("utf-8", "replace").decode()
        except FileNotFoundError as error:
            raise InputError(f"no such file: {argument}", fix="check the path") from error
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path
            # Windows reports a folder as "permission denied", so ask.
            if isinstance(error, OSError) and path.is_dir():
                raise InputError(f"{argument} is a folder", fix="give the files in it") from error
            cause = getattr(error, "strerror", None) or "not a valid path"
            raise InputError(f"cannot read {argument}: {cause.lower()}", fix="check the path and its rights") from error
    if not data:
        raise InputError(f"{name} is empty", fix=f"give a {READABLE} file")
    return data, name


def find_inputs(arguments: Sequence[str]) -> list[str]:
    """The files that the arguments mean, each once, in the order of the arguments.

    A folder stands for all files in and below it that have a known suffix and are not hidden, sorted. A pattern such as
    `scans/*.png` is expanded here, because Windows shells do not. Files and "-" stay as they are.

    Raises: InputError for an argument that stands for no file.
    """
    found: dict[str, str] = {}  # one spelling for each file
    for argument in arguments:
        for name in _expand(argument):
            key = name if name == "-" else os.path.normcase(Path(name).absolute())
            found.setdefault(key, name)
    return list(found.values())


def parse_page_ranges(text: str, page_count: int) -> tuple[int, ...]:
    """Page indices (from 0, ascending, without repeats) for page numbers such as "1-3,7" or "5-" (to the end).

    Raises: InputError for anything else, and for pages that the document does not have.
    """
    fix = f"page numbers start at 1 and this document has {_counted(page_count, 'page')}; write for example 1-3,7 or 5-"
    chosen: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,9})\s*(?:(-)\s*([0-9]{1,9})?\s*)?", part)
        if match is None:
            raise InputError(f"cannot read the page range {text!r}", fix=fix)
        first = int(match[1])
        last = first if match[2] is None else page_count if match[3] is None else int(match[3])
        if first < 1 or max(first, last) > page_count:
            raise InputError(f"there is no page {first if first < 1 else max(first, last)}", fix=fix)
        if last < first:
            raise InputError(f"the page range {part.strip()!r} runs backwards", fix=fix)
        chosen.update(range(first - 1, last))
    return tuple(sorted(chosen))


def _expand(argument: str) -> list[str]:
    if argument == "-":
        return [argument]
    if not argument:  # Path("") would be the current folder
        raise InputError("an empty file name", fix="give a path, a pattern, or - for standard input")
    path = Path(argument)
    try:
        if path.is_dir():
            files = _files_below(path)
            if not files:
                raise InputError(f"no documents in the folder {argument}", fix=f"give a folder with {READABLE} files")
            return files
        if path.exists():
            return [argument]
        # As a shell does it: hidden files are left out. Path.glob would take them and refuses absolute patterns.
        matches = sorted(glob.glob(argument, recursive=True)) if glob.has_magic(argument) else []  # noqa: PTH207
    except (OSError, ValueError) as error:
        raise InputError(f"cannot look for {argument}", fix="check the path and its rights") from error
    files = [name for match in matches for name in (_files_below(Path(match)) if Path(match).is_dir() else [match])]
    if not files:
        raise InputError(f"no such file or folder: {argument}", fix="check the path or the pattern")
    return files


def _files_below(folder: Path) -> list[str]:
    files: list[Path] = []
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        files += [
            Path(parent, name)
            for name in names
            if not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES and Path(parent, name).is_file()
        ]
    return [str(path) for path in sorted(files)]


def _recognise(data: bytes, name: str) -> str:
    """The format by content: a key of _MEDIA_TYPES. Raises: InputError."""
    if not data:
        raise InputError(f"{name} is empty", fix=f"give a {READABLE} file")
    head = data[:_PDF_HEADER_WINDOW]
    for magic, kind in _IMAGE_MAGIC:
        if magic.match(head):
            return kind
    # Before PDF, because a ZIP can hold a whole PDF near its start.
    for magic, kind, better in _UNSUPPORTED_MAGIC:
        if magic.match(head):
            raise InputError(f"{name} is a {kind} file, which docvino does not read", fix=f"convert it to {better}")
    if b"%PDF-" in head:
        return _PDF
    if head.startswith(b"BM"):  # last, since two letters are little evidence
        return "BMP"
    if b"<svg" in head:
        raise InputError(f"{name} is an SVG file, which docvino does not read", fix="convert it to PNG or PDF")
    raise InputError(f"{name} is not a document that docvino knows", fix=f"give a {READABLE} file")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


# ---- images


class _ImageDocument(InputDocument):
    """An image file. Only a TIFF has more than one page; of an animation the first frame is the page.

    The file is opened anew for each page: that drops all decoded pixels, and one damaged page cannot spoil the next.
    """

    def __init__(self, data: bytes, source: Source, options: ParseOptions, kind: str) -> None:
        self._data = data
        self._kind = kind
        try:
            with _pillow(None), self._image() as image:
                page_count = _tiff_pages(image, source.name) if kind == "TIFF" else 1
                size = image.size
        except _PILLOW_ERRORS as error:
            raise self._damaged(source.name, error) from error
        if page_count == 1:
            _check_size(size, source.name, options)
        super().__init__(source, page_count, options)

    def close(self) -> None:
        super().close()
        self._data = b""

    def _read(self, index: int) -> PageImage:
        name = self.source.name if self.page_count == 1 else f"page {index + 1} of {self.source.name}"
        try:
            with _pillow(self._options.max_pixels), self._image() as image:
                if index:
                    image.seek(index)
                _check_size(image.size, name, self._options)
                return _image_page(image, index, self._data)
        except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
            raise InputError(
                f"{name}: a part of the image has more than {self._options.max_pixels} pixels, the limit",
                fix="raise --max-pixels, or save the image again with another program",
            ) from error
        except _PILLOW_ERRORS as error:
            raise self._damaged(name, error) from error

    def _image(self) -> Image.Image:
        # Opening reads the header only. Pillow would warn of sizes here, before ours can be told.
        limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        try:
            return Image.open(io.BytesIO(self._data), formats=[self._kind])
        finally:
            Image.MAX_IMAGE_PIXELS = limit

    def _damaged(self, name: str, error: Exception) -> InputError:
        if isinstance(error, MemoryError):
            return InputError(f"{name}: there is not enough memory to decode the image", fix="lower --max-pixels")
        kind = "WebP" if self._kind == "WEBP" else self._kind
        cause = "cut off" if "truncated" in str(error) else "damaged, or of a kind that Pillow cannot decode"
        return InputError(f"{name}: the {kind} image is {cause}", fix="get the file again, or save it as PNG")


@contextmanager
def _pillow(max_pixels: int | None) -> Iterator[None]:
    """Pillow for one thread at a time, silent, strict, and with our limit in place of its own (None: no limit)."""
    with _PILLOW_LOCK, warnings.catch_warnings():
        # Odd metadata is none of the reader's business; parts larger than the limit (tiles, frames) are.
        warnings.filterwarnings("ignore", module=r"PIL\.")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, max_pixels
        # Another library of this process may have asked for half pages.
        lenient, ImageFile.LOAD_TRUNCATED_IMAGES = ImageFile.LOAD_TRUNCATED_IMAGES, False
        try:
            yield
        finally:
            Image.MAX_IMAGE_PIXELS = limit
            ImageFile.LOAD_TRUNCATED_IMAGES = lenient


def _tiff_pages(image: Image.Image, name: str) -> int:
    count = 1
    while count <= _MOST_TIFF_PAGES:
        try:
            image.seek(count)
        except EOFError:
            image.seek(0)
            return count
        count += 1
    raise InputError(f"{name} has more than {_MOST_TIFF_PAGES} pages", fix="split the TIFF")


def _check_size(size: tuple[int, int], name: str, options: ParseOptions) -> None:
    width, height = size
    if width * height > options.max_pixels:
        raise InputError(
            f"{name} has {width} x {height} = {width * height} pixels, more than the limit of {options.max_pixels}",
            fix=f"scale the image down, or set --max-pixels {width * height}",
        )


def _image_page(image: Image.Image, index: int, data: bytes) -> PageImage:
    notes = []
    animated = image.format in ("GIF", "PNG", "WEBP") and getattr(image, "is_animated", False)
    if animated:
        notes.append("the image is animated: only its first frame was read")
    tags: Any = getattr(image, "tag_v2", {})
    mark = tags.get(274)  # before loading, since Pillow itself turns a TIFF then and drops the mark
    decoded = _webp(image, data) if image.format == "WEBP" and not animated else image
    decoded.load()
    # After loading: to look for the mark Pillow loads a PNG, and a failure there would leave a black page.
    orientation = _valid_orientation(mark) if image.format == "TIFF" else _orientation(image)
    sideways = orientation >= 5
    if image.format == "TIFF":
        pixels = np.empty((image.height, image.width, 3), np.uint8)
        stored = pixels
    else:
        width, height = image.size[::-1] if sideways else image.size
        pixels = np.empty((height, width, 3), np.uint8)
        stored = _stored_view(pixels, orientation)
    to_rgb = _converter(decoded, tags, notes)
    for top, strip in _strips(decoded):
        stored[top : top + strip.height] = to_rgb(strip)
    pixels.flags.writeable = False
    height, width = pixels.shape[:2]
    box: Box = (0.0, 0.0, float(height), float(width)) if sideways else (0.0, 0.0, float(width), float(height))
    return PageImage(index=index, pixels=pixels, dpi=_image_dpi(image), source_box=box, warnings=tuple(notes))


def _webp(image: Image.Image, data: bytes) -> Image.Image:
    """The pixels of a still WebP. OpenCV gives the same ones as Pillow for half the memory: Pillow reads every WebP as
    an animation, with two canvases.
    """
    decoded = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    if decoded is None or decoded.shape[:2] != (image.height, image.width):
        raise OSError("cannot decode WebP")
    mode, order = ("RGBA", cv2.COLOR_BGRA2RGBA) if decoded.shape[2] == 4 else ("RGBX", cv2.COLOR_BGR2RGBA)
    return Image.frombuffer(mode, image.size, cv2.cvtColor(decoded, order).data, "raw", mode, 0, 1)


def _strips(image: Image.Image) -> Iterator[tuple[int, Image.Image]]:
    """The image in strips of whole rows, each with the number of its first row."""
    rows = max(1, _STRIP_PIXELS // image.width)
    for top in range(0, image.height, rows):
        yield top, image.crop((0, top, image.width, min(image.height, top + rows)))


def _orientation(image: Image.Image) -> int:
    """The EXIF orientation, 1..8; 1 (upright) when the metadata is absent or nonsense."""
    try:
        return _valid_orientation(image.getexif().get(274))
    except _PILLOW_ERRORS:
        return 1


def _valid_orientation(mark: object) -> int:
    return mark if isinstance(mark, int) and 1 <= mark <= 8 else 1


def _stored_view(upright: NDArray[np.uint8], orientation: int) -> NDArray[np.uint8]:
    """The upright page seen as the file stores it: writing rows of the file into this view turns them upright.

    Source: EXIF 2.32, tag 274: which sides of the page the stored first row and first column are.
    """
    view = upright.transpose(1, 0, 2) if orientation >= 5 else upright
    if orientation in (3, 4, 6, 7):
        view = view[::-1]
    if orientation in (2, 3, 7, 8):
        view = view[:, ::-1]
    return view


def _converter(image: Image.Image, tags: Any, notes: list[str]) -> Callable[[Image.Image], NDArray[np.uint8]]:
    """A function from a strip of this image to uint8 (H, W, 3) or (H, W, 1). Adds to `notes`."""
    if image.mode.startswith("I;16"):
        bits = tags.get(258, (16,))[0]
        # Pillow leaves 16-bit and floating-point TIFFs whose 0 is white as they are, and inverts the others.
        flip = np.uint8(255 if tags.get(262) == 0 else 0)
        return lambda strip: ((np.asarray(strip) >> (bits - 8)).astype(np.uint8) ^ flip)[..., None]
    if image.mode in ("I", "F"):
        low, high = _value_range(image)
        flip = np.uint8(255 if tags.get(262) == 0 else 0)
        return lambda strip: (_scaled(np.asarray(strip), low, high) ^ flip)[..., None]
    if image.mode == "LAB":
        # 8 bits each, a and b signed; OpenCV wants them shifted by 128. Pillow has no conversion without profiles.
        shift = np.array([0, 128, 128], np.uint8)
        return lambda strip: np.asarray(cv2.cvtColor(np.asarray(strip) ^ shift, cv2.COLOR_LAB2RGB), np.uint8)
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        ground = _ground(image)
        if ground != "white":
            notes.append("light ink on a transparent ground: the ground was made black")
        return lambda strip: np.asarray(_on_ground(strip, ground))
    if image.mode in ("1", "L"):
        return lambda strip: np.asarray(strip.convert("L"))[..., None]
    return lambda strip: np.asarray(strip.convert("RGB"))


def _value_range(image: Image.Image) -> tuple[float, float]:
    """The values that mean black and white in a 32-bit or floating-point image."""
    lows, highs = [0.0], [0.0]
    for _, strip in _strips(image):
        values = np.asarray(strip)
        finite = values[np.isfinite(values)]
        if finite.size:
            lows.append(float(finite.min()))
            highs.append(float(finite.max()))
    low, high = min(lows), max(highs)
    return low, next((scale for scale in _FULL_SCALES if high <= scale), high)


def _scaled(values: NDArray[Any], low: float, high: float) -> NDArray[np.uint8]:
    with np.errstate(invalid="ignore"):  # some values that are no numbers make a cast complain
        share = (values.astype(np.float64) - low) / (high - low)
    share = np.nan_to_num(share, nan=0.0, posinf=1.0, neginf=0.0)
    return np.asarray(np.rint(share.clip(0, 1) * 255), np.uint8)


def _rgba(strip: Image.Image) -> Image.Image:
    return strip.convert("LA").convert("RGBA") if strip.mode == "La" else strip.convert("RGBA")


def _on_ground(strip: Image.Image, ground: str) -> Image.Image:
    strip = _rgba(strip)
    page = Image.new("RGB", strip.size, ground)
    page.paste(strip, mask=strip)
    return page


def _ground(image: Image.Image) -> str:
    """What to put behind a transparent image: black when its ink would vanish on white, else white.

    Ink vanishes when there are transparent and opaque parts and the opaque ones are nearly all light. A few dark
    pixels, at most one in a thousand, do not count as ink.
    """
    light = dark = clear = 0
    for _, strip in _strips(image):
        alpha = np.asarray(_rgba(strip).getchannel("A"))
        grey = np.asarray(_on_ground(strip, "white").convert("L"))
        solid = alpha >= 128
        light += int(np.count_nonzero(solid & (grey >= 225)))
        dark += int(np.count_nonzero(grey < 225))
        clear += int(alpha.size - np.count_nonzero(solid))
    return "black" if light and clear and dark * 1000 <= light else "white"


def _image_dpi(image: Image.Image) -> float | None:
    """Pixels per inch, when the file tells a plausible one that is the same both ways.

    Source: EXIF 2.32, tag 282: 72 stands for an unknown resolution, and Pillow fills it in for JPEGs that tell none.
    """
    try:
        across, down = (float(value) for value in image.info["dpi"])
    except (KeyError, TypeError, ValueError, ArithmeticError):
        return None
    plausible = 36 <= across <= 2400 and abs(across - down) <= 0.01 * across
    unknown = across == 72 and image.format in ("JPEG", "MPO")
    return round(across, 2) if plausible and not unknown else None


# ---- PDF


class _PdfDocument(InputDocument):
    """A PDF file, rendered by PDFium."""

    def __init__(self, data: bytes, source: Source, options: ParseOptions) -> None:
        self._data = data  # PDFium reads from it as long as the document is open
        with _PDFIUM_LOCK:
            try:
                self._pdf = _open_pdf(data, options.password, source.name)
                # Forms without XFA only: PDFium is built without it, and pypdfium2 would log that.
                if self._pdf.get_formtype() == pdfium_c.FORMTYPE_ACRO_FORM:
                    self._pdf.init_forms()
                page_count = len(self._pdf)
            except (pypdfium2.PdfiumError, MemoryError) as error:
                raise _damaged_pdf(source.name) from error
        try:
            if page_count < 1:
                raise InputError(f"{source.name} is a PDF without pages", fix="give a PDF that has pages")
            super().__init__(source, page_count, options)
        except InputError:
            self.close()
            raise

    def close(self) -> None:
        with _PDFIUM_LOCK:
            self._closed = True
            self._pdf.close()

    def _read(self, index: int) -> PageImage:
        with self._page(index) as page:
            return _pdf_page(page, index, self._options)

    def text_points(self, index: int) -> tuple[Point, ...]:
        with self._page(index) as page:
            text = page.get_textpage()
            try:
                boxes = (text.get_charbox(number) for number in range(text.count_chars()))
                # Blanks that PDFium puts between words have no size.
                return tuple(((left + r) / 2, (b + t) / 2) for left, b, r, t in boxes if r > left and t > b)
            finally:
                text.close()

    @contextmanager
    def _page(self, index: int) -> Iterator[Any]:
        """PDFium's page, while nobody else uses PDFium."""
        name = f"page {index + 1} of {self.source.name}"
        with _PDFIUM_LOCK:
            self._check_open()  # another thread may have closed it while this one waited
            try:
                page = self._pdf[index]
            except pypdfium2.PdfiumError as error:
                raise InputError(
                    f"{name}: the PDF has nothing there that is a page", fix="leave the page out with --pages"
                ) from error
            try:
                yield page
            except (pypdfium2.PdfiumError, MemoryError) as error:
                cause = "there is not enough memory to render it" if isinstance(error, MemoryError) else "it is damaged"
                raise InputError(f"{name}: {cause}", fix="lower --dpi, or leave the page out with --pages") from error
            finally:
                page.close()


def _open_pdf(data: bytes, password: str | None, name: str) -> Any:
    # A password that fits one PDF of a batch must not lock those that need none: try without one too.
    for secret in dict.fromkeys((password or None, None)):
        # PdfDocument(data) would take a document without pages for a failure, with the reason of an earlier one.
        handle = pdfium_c.FPDF_LoadMemDocument64(data, len(data), secret and f"{secret}\0".encode())
        if handle:
            return pypdfium2.PdfDocument(handle)
        reason = pdfium_c.FPDF_GetLastError()
        if reason != pdfium_c.FPDF_ERR_PASSWORD:
            break
    if reason == pdfium_c.FPDF_ERR_PASSWORD and not password:
        raise InputError(f"{name} is locked and needs a password", fix="give it with --password")
    if reason == pdfium_c.FPDF_ERR_PASSWORD:
        raise InputError(f"{name} is locked and the password is wrong", fix="check what --password says")
    if reason == pdfium_c.FPDF_ERR_SECURITY:
        raise InputError(f"{name} is locked in a way that PDFium does not know", fix="save it without encryption")
    raise _damaged_pdf(name)


def _damaged_pdf(name: str) -> InputError:
    return InputError(
        f"{name}: the PDF is cut off or damaged", fix="get the file again, or let a PDF viewer save it anew"
    )


def _pdf_page(page: Any, index: int, options: ParseOptions) -> PageImage:
    """The page rendered at `options.dpi`, or at the largest resolution that `options.max_pixels` allows.

    `source_box` is the visible part of the page (CropBox within MediaBox) as PDF writes it: left, bottom, right, top in
    points, y up, before /Rotate.
    """
    width_pt, height_pt = page.get_size()
    dpi = options.dpi
    notes = []
    if not 0 < width_pt * height_pt < math.inf:
        raise pypdfium2.PdfiumError("page without a size")
    width, height = (max(1, math.ceil(side * dpi / 72)) for side in (width_pt, height_pt))
    if width * height > options.max_pixels:
        scale = math.sqrt(options.max_pixels / (width_pt * height_pt))
        # Rounded down to stay below the limit; a side of less than a pixel is rounded up, then the other one gives way.
        width, height = (min(max(1, int(side * scale)), options.max_pixels) for side in (width_pt, height_pt))
        width = min(width, options.max_pixels // height)
        height = min(height, options.max_pixels // width)
        dpi = 72 * (width / width_pt if width > height else height / height_pt)
        notes.append(
            f"page of {width_pt / 72:.1f} x {height_pt / 72:.1f} inches rendered at {dpi:.1f} instead of"
            f" {options.dpi:g} dpi to stay within {options.max_pixels} pixels"
        )
    pixels = _render(page, width, height)
    pixels.flags.writeable = False
    box: Box = page.get_bbox()
    return PageImage(index=index, pixels=pixels, dpi=dpi, source_box=box, warnings=tuple(notes))


def _render(page: Any, width: int, height: int) -> NDArray[np.uint8]:
    """The page on white, with annotations and form fields: uint8 (height, width, 3) RGB.

    PDFium draws into our array, so there is no second copy. It places images in a band up to a few pixels off, so bands
    are used only where the memory of whole-page layers would hurt.
    """
    pixels = np.full((height, width, 3), 255, np.uint8)
    flags = pdfium_c.FPDF_ANNOT | pdfium_c.FPDF_REVERSE_BYTE_ORDER  # reversed BGR is RGB
    rows = max(1, _BAND_PIXELS // width)
    for top in range(0, height, rows):
        band = pixels[top : top + rows]
        bitmap = pdfium_c.FPDFBitmap_CreateEx(
            width, band.shape[0], pdfium_c.FPDFBitmap_BGR, band.ctypes.data, width * 3
        )
        if not bitmap:
            raise MemoryError
        try:
            place = (bitmap, page, 0, -top, width, height, 0, flags)
            pdfium_c.FPDF_RenderPageBitmap(*place)
            if page.formenv:
                pdfium_c.FPDF_FFLDraw(page.formenv, *place)
        finally:
            pdfium_c.FPDFBitmap_Destroy(bitmap)
    return pixels
