"""Draws test documents whose text is known: pages, odd image encodings, broken and hostile files, PDFs.

Everything is made anew in memory, from fonts that come inside Python packages, so that tests run on any machine. All
text is our own.
"""

from __future__ import annotations

import io
import re
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np
import pikepdf
from PIL import Image, ImageChops, ImageDraw, ImageFilter, ImageFont
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas

PASSWORD = "open sesame"
OWNER_PASSWORD = "owner only"
INK = (20, 20, 20)
POINTS_PER_INCH = 72


@dataclass(frozen=True)
class Truth:
    """What a page says: (label, lines) of each block, in reading order."""

    blocks: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(line for _, lines in self.blocks for line in lines)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


# ---- pages

CHINESE_TITLE = "图书馆旧档案的整理办法"
CHINESE_LINES = (
    "旧档案的整理分为登记、修补和扫描三个阶段。登记时",
    "写明题名、年代、页数以及纸张的状况，修补时先除去",
    "灰尘，再用薄纸粘好裂口。扫描以每英寸三百点为准，",
    "每一页都要检查四个角是否完整，颜色是否均匀。",
    "本次共整理文件八十六件，其中手写五十九件，铅印",
    "二十七件，编号为B-2031至B-2116，费用￥3,468.50元。",
    "咨询电话：021-87654321，邮箱：archive@example.org。",
)
CHINESE_NUMBER = "— 3 —"

ENGLISH_TITLE = "How an old archive becomes searchable"
ENGLISH_LEFT = (
    "Every box that enters the reading",
    "room gets a number and a date. The",
    "clerk writes both on a paper slip",
    "and puts the slip on top. Pages that",
    "are torn go to the workshop before",
    "anybody scans them, because a gen-",
    "tle repair takes ten minutes and a",
    "second scan takes an hour.",
)
ENGLISH_RIGHT = (
    "The scanner works at 300 dots per",
    "inch. Its lamp needs five minutes",
    "to warm up; colours drift before.",
    "Each batch ends with a grey card,",
    "so that later readers can correct",
    "the tint of yellow paper. In 2019",
    "the archive counted 48,215 pages,",
    "which is about 60 per working day.",
)
ENGLISH_NUMBER = "17"

MIXED_TITLE = "2. 安装说明 Installation"
MIXED_LINES = (
    "先下载安装包 (setup package)，再运行 install.sh 脚本。",
    "The default port is 8080; 如需修改请编辑 config.toml 文件。",
    "版本 v2.4 于 2023 年 11 月 5 日发布，大小约为 36 MB。",
    "支持 Windows、Linux 两种系统 (two systems are supported)。",
    "每月费用 USD 9.90，年付优惠 20%，合计 ￥684.00",
)


def chinese_page() -> tuple[Image.Image, Truth]:
    """1000 x 800 px: a title, a paragraph of seven lines, a page number."""
    page = Image.new("RGB", (1000, 800), "white")
    _lines(page, [CHINESE_TITLE], sans(40), (270, 50))
    _lines(page, CHINESE_LINES, serif(32), (90, 150))
    _lines(page, [CHINESE_NUMBER], sans(24), (460, 720))
    blocks = (("doc_title", (CHINESE_TITLE,)), ("text", CHINESE_LINES), ("number", (CHINESE_NUMBER,)))
    return page, Truth(blocks)


def english_two_columns() -> tuple[Image.Image, Truth]:
    """1100 x 900 px: a title across two columns, a page number. One word is hyphenated at a line end ("gen-tle")."""
    page = Image.new("RGB", (1100, 900), "white")
    _lines(page, [ENGLISH_TITLE], latin(38), (210, 50))
    _lines(page, ENGLISH_LEFT, latin(26), (60, 170))
    _lines(page, ENGLISH_RIGHT, latin(26), (590, 170))
    _lines(page, [ENGLISH_NUMBER], latin(22), (535, 840))
    return page, Truth(
        (
            ("doc_title", (ENGLISH_TITLE,)),
            ("text", ENGLISH_LEFT),
            ("text", ENGLISH_RIGHT),
            ("number", (ENGLISH_NUMBER,)),
        )
    )


def mixed_page() -> tuple[Image.Image, Truth]:
    """1100 x 620 px: Chinese and English in the same lines."""
    page = Image.new("RGB", (1100, 620), "white")
    _lines(page, [MIXED_TITLE], sans(34), (70, 50))
    _lines(page, MIXED_LINES, sans(30), (70, 140))
    return page, Truth((("paragraph_title", (MIXED_TITLE,)), ("text", MIXED_LINES)))


def turned(page: Image.Image, degrees: int) -> Image.Image:
    """The page turned counter-clockwise by 90, 180 or 270 degrees."""
    return page.rotate(degrees, expand=True)


def skewed(page: Image.Image, degrees: float = 4, *, noise: float = 9, shading: float = 0.18) -> Image.Image:
    """The page as a poor scan shows it: turned a little, blurred, darker at one side, noisy."""
    paper = (245, 243, 236)
    scan = page.rotate(degrees, expand=True, fillcolor=paper, resample=Image.Resampling.BICUBIC)
    values = np.asarray(scan.filter(ImageFilter.GaussianBlur(0.8)), np.float64)
    light = 1 - shading + shading * np.linspace(0, 1, values.shape[1])
    grain = np.random.default_rng(7).normal(0, noise, values.shape[:2])
    return Image.fromarray((values * light[:, None] + grain[..., None]).clip(0, 255).astype(np.uint8))


def low_resolution(page: Image.Image, factor: int = 2) -> Image.Image:
    return page.resize((page.width // factor, page.height // factor), Image.Resampling.LANCZOS)


def inverted(page: Image.Image) -> Image.Image:
    """Light text on a dark ground."""
    return ImageChops.invert(page)


def blank() -> tuple[Image.Image, Truth]:
    return Image.new("RGB", (800, 600), "white"), Truth(())


def noise_page() -> tuple[Image.Image, Truth]:
    """Grey noise in which there is nothing to read."""
    values = np.random.default_rng(3).integers(0, 256, (600, 800), np.uint8)
    return Image.fromarray(values).convert("RGB"), Truth(())


# ---- tables

TableCell = tuple[str, int, int]  # text, rows and columns covered


@dataclass(frozen=True)
class TableTruth:
    """Rows of cells as HTML has them: a place covered from above or from the left is not named again."""

    rows: tuple[tuple[TableCell, ...], ...]

    @property
    def grid(self) -> list[tuple[int, int, int, int, str]]:
        """(row, column, row span, column span, text) of each cell."""
        taken: set[tuple[int, int]] = set()
        cells = []
        for row, entries in enumerate(self.rows):
            column = 0
            for text, high, wide in entries:
                while (row, column) in taken:
                    column += 1
                taken |= {(row + i, column + j) for i in range(high) for j in range(wide)}
                cells.append((row, column, high, wide, text))
                column += wide
        return cells


def plain_table(*rows: Sequence[str]) -> TableTruth:
    """A table without spans."""
    return TableTruth(tuple(tuple((text, 1, 1) for text in row) for row in rows))


BORDERED = plain_table(
    ("品名", "Quantity", "单价", "Total"),
    ("Pencil HB", "24", "1.20", "28.80"),
    ("笔记本", "8", "12.50", "100.00"),
    ("Ruler 30 cm", "3", "4.90", "14.70"),
    ("合计", "35", "", "143.50"),
)
SPANS = TableTruth(
    (
        (("门店", 2, 1), ("一季度", 1, 2), ("二季度", 1, 2)),
        (("收入", 1, 1), ("支出", 1, 1), ("收入", 1, 1), ("支出", 1, 1)),
        (("东门", 1, 1), ("318", 1, 1), ("207", 1, 1), ("356", 1, 1), ("221", 1, 1)),
        (("西门", 1, 1), ("274", 1, 1), ("190", 1, 1), ("289", 1, 1), ("203", 1, 1)),
        (("结余", 1, 1), ("195", 1, 2), ("221", 1, 2)),
    )
)
THREE_LINES = plain_table(
    ("Method", "Pages", "Errors", "Seconds"),
    ("by hand", "120", "0.9%", "5400"),
    ("scanner A", "118", "1.7%", "610"),
    ("scanner B", "120", "0.6%", "845"),
    ("both", "120", "0.2%", "1455"),
)
EMPTY_CELLS = plain_table(
    ("Room", "Monday", "Tuesday", "Friday"),
    ("101", "", "Chemistry", ""),
    ("102", "", "", "History"),
    ("203", "Physics", "", ""),
    ("", "", "Closed", ""),
)


def long_table(rows: int) -> TableTruth:
    """A header and so many rows; every cell's text is its own."""
    body = [
        (f"{i:03d}", f"Box {i * 7 % 97:02d}", f"{i * 3.25:.2f}", "paid" if i % 3 else "") for i in range(1, rows + 1)
    ]
    return plain_table(("No.", "Name", "Price", "State"), *body)


def table_page(
    truth: TableTruth,
    widths: Sequence[int],
    *,
    row_height: int = 60,
    border: bool = True,
    size: int = 26,
    caption: str = "",
    margin: int = 60,
) -> Image.Image:
    """The table on a white page, under its caption. Without `border` there are three rules, as in journals."""
    left = [margin]
    for width in widths:
        left.append(left[-1] + width)
    count = len(truth.rows)
    top = margin + (2 * size if caption else 0)
    page = Image.new("RGB", (left[-1] + margin, top + margin + count * row_height), "white")
    draw = ImageDraw.Draw(page)
    font = sans(size)
    if caption:
        draw.text((margin, margin - size), caption, font=font, fill=INK)
    for row, column, high, wide, text in truth.grid:
        box = (left[column], top + row * row_height, left[column + wide], top + (row + high) * row_height)
        if border:
            draw.rectangle(box, outline=INK, width=2)
        draw.text(((box[0] + box[2]) / 2, (box[1] + box[3]) / 2), text, font=font, fill=INK, anchor="mm")
    if not border:
        for y in (top, top + row_height, top + count * row_height):
            draw.line((margin, y, left[-1], y), fill=INK, width=3)
    return page


# ---- odd encodings of a page, as files


def png(page: Image.Image, **options: object) -> bytes:
    return encoded(page, "PNG", **options)


def jpeg(page: Image.Image, **options: object) -> bytes:
    return encoded(page, "JPEG", **{"quality": 90, **options})


def encoded(page: Image.Image, kind: str, **options: object) -> bytes:
    """The page as a file of the format that Pillow calls `kind`."""
    file = io.BytesIO()
    page.save(file, kind, **options)
    return file.getvalue()


def cmyk_jpeg(page: Image.Image) -> bytes:
    """Written by Pillow as Adobe programs do: inverted."""
    return jpeg(page.convert("CMYK"))


def gray16(page: Image.Image) -> Image.Image:
    """16 bits a pixel over the full scale: 0 is black, 65535 is white."""
    return Image.fromarray(np.asarray(page.convert("L")).astype(np.uint16) * 257)


def palette_alpha_png(page: Image.Image) -> bytes:
    """16 colours, of which white is transparent."""
    palette = page.convert("L").quantize(16)
    white = int(np.asarray(palette)[0, 0])
    return png(palette, transparency=white)


def on_transparent(page: Image.Image, ink: int) -> Image.Image:
    """RGBA: the page's ink in one grey (0 black, 255 white) on a fully transparent ground."""
    alpha = ImageChops.invert(page.convert("L"))
    result = Image.new("RGBA", page.size, (ink, ink, ink, 0))
    result.putalpha(alpha)
    return result


def g4_tiff(*pages: Image.Image) -> bytes:
    """A fax: 1 bit a pixel, CCITT group 4, any number of pages."""
    first, *rest = (page.convert("1") for page in pages)
    return encoded(first, "TIFF", compression="group4", save_all=True, append_images=rest)


def animation(kind: str, *frames: Image.Image) -> bytes:
    """An animated GIF, WEBP or PNG."""
    options = {"lossless": True} if kind == "WEBP" else {}
    return encoded(frames[0], kind, save_all=True, append_images=frames[1:], duration=100, **options)


def exif_turned(page: Image.Image, orientation: int, kind: str = "PNG") -> bytes:
    """A file whose stored pixels are turned or mirrored such that EXIF orientation 1..8 makes them upright."""
    methods = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    stored = page.transpose(methods[orientation]) if orientation in methods else page
    exif = Image.Exif()
    exif[274] = orientation
    return encoded(stored, kind, exif=exif)


# ---- broken and hostile files


def truncated(file: bytes, share: float = 0.5) -> bytes:
    return file[: int(len(file) * share)]


def bad_crc_png() -> bytes:
    """A PNG with one flipped byte in its pixels."""
    file = png(chinese_page()[0])
    at = file.index(b"IDAT") + 40
    return file[:at] + bytes([file[at] ^ 255]) + file[at + 1 :]


def no_xref_pdf() -> bytes:
    """A PDF without its table and trailer."""
    file = english_pdf()[0]
    return file[: file.rindex(b"xref\n0")] + b"%%EOF\n"


def junk_before(file: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\n\r\n" * 5 + file


def broken_files() -> dict[str, bytes]:
    """Files that must each give one InputError, by name."""
    return {
        "truncated.jpg": truncated(jpeg(chinese_page()[0]), 0.3),
        "truncated.png": truncated(png(chinese_page()[0])),
        "truncated.webp": truncated(encoded(chinese_page()[0], "WEBP")),
        "truncated.tif": truncated(g4_tiff(chinese_page()[0])),
        "empty.png": b"",
        "empty.pdf": b"",
        "text.png": b"this is no image\n",
        "text.pdf": b"this is no PDF\n",
        "bad_crc.png": bad_crc_png(),
        "truncated.pdf": truncated(english_pdf()[0]),
        "no_xref.pdf": no_xref_pdf(),
        "header_only.pdf": b"%PDF-1.7\n",
    }


def hostile_png(width: int = 20_000, height: int = 20_000) -> bytes:
    """A white 1-bit PNG: less than 100 kB, and more than a gigabyte as RGB."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    packer = zlib.compressobj(1)
    row = b"\0" + b"\xff" * ((width + 7) // 8)
    data = b"".join(packer.compress(row) for _ in range(height)) + packer.flush()
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def many_pages_tiff(count: int) -> bytes:
    """Black pages of one pixel, which share their strip."""
    size = 2 + 8 * 12 + 4
    tags = ((256, 1), (257, 1), (258, 1), (259, 1), (262, 1), (273, 8), (278, 1), (279, 1))
    body = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    file = [b"II*\0" + struct.pack("<I", 9) + b"\0"]
    for number in range(1, count + 1):
        following = 9 + number * size if number < count else 0
        file.append(struct.pack("<H", len(tags)) + body + struct.pack("<I", following))
    return b"".join(file)


def hostile_pdf(inches: int = 200) -> bytes:
    """One page of 200 x 200 inches, the largest that PDF allows."""
    side = inches * POINTS_PER_INCH
    file, canvas = _canvas(side, side)
    canvas.setFont("Helvetica", side / 36)
    canvas.drawString(side / 30, side / 2, "A very large page")
    return _saved(file, canvas)


# ---- PDFs


def english_pdf() -> tuple[bytes, tuple[Truth, Truth, Truth]]:
    """Born digital, A4: one column; two columns; a page with /Rotate 90 whose content is drawn sideways."""
    file, canvas = _canvas(595, 842)
    first = (
        "A letter from the archive",
        "Dear reader, thank you for your request of the third of May.",
        "The file you ask for has 212 pages and can be read on site.",
        "Copies cost 0.20 EUR each; large plans are 4.50 EUR.",
        "We are open from Tuesday to Friday, 9:00 to 17:30.",
    )
    canvas.setFont("Helvetica-Bold", 18)
    canvas.drawString(70, 770, first[0])
    _pdf_lines(canvas, first[1:], 70, 720)
    canvas.showPage()
    canvas.setFont("Times-Bold", 18)
    canvas.drawString(130, 770, ENGLISH_TITLE)
    _pdf_lines(canvas, ENGLISH_LEFT, 60, 720)
    _pdf_lines(canvas, ENGLISH_RIGHT, 320, 720)
    canvas.drawCentredString(297, 40, ENGLISH_NUMBER)
    canvas.showPage()
    sideways = ("This page is turned by its own mark.", "Readers see these two lines upright.")
    canvas.setPageRotation(90)
    canvas.translate(595, 0)  # sideways in the file, upright on the turned page
    canvas.rotate(90)
    _pdf_lines(canvas, sideways, 70, 500)
    return _saved(file, canvas), (
        Truth((("doc_title", first[:1]), ("text", first[1:]))),
        english_two_columns()[1],
        Truth((("text", sideways),)),
    )


def image_pdf(*pages: Image.Image, dpi: float = 150) -> bytes:
    """A scan: each page is one JPEG that fills it."""
    file, canvas = _canvas(100, 100)
    for page in pages:
        size = (page.width * POINTS_PER_INCH / dpi, page.height * POINTS_PER_INCH / dpi)
        canvas.setPageSize(size)
        canvas.drawImage(ImageReader(io.BytesIO(jpeg(page))), 0, 0, *size)
        canvas.showPage()
    return _saved(file, canvas)


def many_pages_pdf(count: int) -> bytes:
    """Small pages that show their number."""
    file, canvas = _canvas(100, 100)
    for number in range(1, count + 1):
        canvas.drawString(20, 50, str(number))
        canvas.showPage()
    return _saved(file, canvas)


def blank_pdf(width: float, height: float) -> bytes:
    """An empty page of so many points."""
    file, canvas = _canvas(width, height)
    canvas.showPage()
    return _saved(file, canvas)


def encrypted(file: bytes, *, user: str = PASSWORD, owner: str = OWNER_PASSWORD, rc4: bool = False) -> bytes:
    """The PDF locked with AES-256, or with RC4 of 128 bits; without a user password it opens but forbids copying."""
    rights = pikepdf.Permissions(extract=False, print_lowres=False, print_highres=False)
    lock = pikepdf.Encryption(user=user, owner=owner, allow=rights, R=3 if rc4 else 6, aes=not rc4, metadata=not rc4)
    out = io.BytesIO()
    with pikepdf.open(io.BytesIO(file)) as pdf:
        pdf.save(out, encryption=lock)
    return out.getvalue()


def null_page_pdf() -> bytes:
    """Four slots in the page tree, of which the second is null."""
    file = many_pages_pdf(4)
    kids = re.search(rb"/Kids \[ \d+ 0 R (\d+ 0 R) ", file)
    assert kids is not None
    null = b"null".ljust(len(kids[1]))  # as long as before, so that the table of objects stays right
    return file[: kids.start(1)] + null + file[kids.end(1) :]


def empty_tree_pdf() -> bytes:
    """A PDF without pages."""
    out = io.BytesIO()
    with pikepdf.new() as pdf:
        pdf.save(out)
    return out.getvalue()


@dataclass(frozen=True)
class MarkedPdf:
    """A PDF of one page with a word in it and, in points on the upright page as seen (y down), where the word is."""

    data: bytes
    size: tuple[float, float]
    crop_box: tuple[float, float, float, float]
    word: str
    word_box: tuple[float, float, float, float]


def rotated_pdf(rotation: int) -> MarkedPdf:
    """A page with /Rotate 0, 90, 180 or 270 and a CropBox of 300 x 200 points that starts at (100, 50).

    The word is 20 points from the left and 30 below the top of the page before the turn, and turns with the page.
    """
    file, canvas = _canvas(500, 400)
    word, size = "MARK", 24
    left, bottom, right, top = 100.0, 50.0, 400.0, 250.0
    canvas.setFont("Helvetica", size)
    ascent = 0.718 * size  # height of capitals in Helvetica, by its metrics file
    x, baseline = left + 20, top - 30 - ascent
    canvas.drawString(x, baseline, word)
    width = canvas.stringWidth(word, "Helvetica", size)
    canvas.drawString(10, 10, "outside the CropBox")
    out = io.BytesIO()
    with pikepdf.open(io.BytesIO(_saved(file, canvas))) as pdf:
        pdf.pages[0].CropBox = pikepdf.Array([100, 50, 400, 250])
        pdf.pages[0].Rotate = rotation
        pdf.save(out)
    seen = (20.0, 30.0, 20.0 + width, 30.0 + ascent)  # before the turn, y down, from the CropBox's corner
    for _ in range(rotation // 90):
        height = 200.0 if (right - left, top - bottom) == (300.0, 200.0) else 300.0
        seen = (height - seen[3], seen[0], height - seen[1], seen[2])
        right, top = left + (top - bottom), bottom + (right - left)
    return MarkedPdf(out.getvalue(), (right - left, top - bottom), (100.0, 50.0, 400.0, 250.0), word, seen)


def form_pdf() -> bytes:
    """200 x 100 points with a filled text field ("FILLED") and a square annotation without any page content."""
    file, canvas = _canvas(200, 100)
    canvas.acroForm.textfield(name="field", value="FILLED", x=20, y=50, width=100, height=24, borderWidth=0)
    canvas.showPage()
    out = io.BytesIO()
    with pikepdf.open(io.BytesIO(_saved(file, canvas))) as pdf:
        look = pdf.make_stream(b"0 0 1 rg 0 0 20 20 re f", Type=pikepdf.Name.XObject, Subtype=pikepdf.Name.Form)
        look.BBox = pikepdf.Array([0, 0, 20, 20])
        note = pikepdf.Dictionary(Type=pikepdf.Name.Annot, Subtype=pikepdf.Name.Square, F=4)
        note.Rect = pikepdf.Array([150, 50, 170, 70])
        note.AP = pikepdf.Dictionary(N=look)
        pdf.pages[0].Annots.append(pdf.make_indirect(note))
        pdf.save(out)
    return out.getvalue()


# ---- tools


def sans(size: int) -> ImageFont.FreeTypeFont:
    return _noto("NotoSansSC-Regular.otf", size)


def serif(size: int) -> ImageFont.FreeTypeFont:
    return _noto("NotoSerifSC-Regular.otf", size)


@cache
def latin(size: int) -> ImageFont.FreeTypeFont:
    """The font inside Pillow."""
    font = ImageFont.load_default(size)
    assert isinstance(font, ImageFont.FreeTypeFont)
    return font


@cache
def _noto(name: str, size: int) -> ImageFont.FreeTypeFont:
    file = resources.files("pylopdf_fonts_zh_cn") / name
    return ImageFont.truetype(io.BytesIO(file.read_bytes()), size)


def _lines(
    page: Image.Image, lines: Sequence[str], font: ImageFont.FreeTypeFont, at: tuple[int, int], leading: float = 1.7
) -> None:
    draw = ImageDraw.Draw(page)
    for number, line in enumerate(lines):
        draw.text((at[0], at[1] + number * font.size * leading), line, font=font, fill=INK)


def _canvas(width: float, height: float) -> tuple[io.BytesIO, Canvas]:
    file = io.BytesIO()
    return file, Canvas(file, pagesize=(width, height), invariant=1)


def _saved(file: io.BytesIO, canvas: Canvas) -> bytes:
    canvas.save()
    return file.getvalue()


def _pdf_lines(canvas: Canvas, lines: Sequence[str], x: float, y: float) -> None:
    canvas.setFont("Times-Roman", 14)
    for number, line in enumerate(lines):
        canvas.drawString(x, y - number * 24, line)
