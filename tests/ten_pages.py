"""A PDF of ten pages whose regions, texts and places of words are known, and a layout model that knows the regions.

Columns, headings, a list, a table over two pages, formulas, figures, running heads and feet, Chinese and English; A4,
A5 and US Letter; a page turned by /Rotate, a page of 1 bit, a page that was never on paper. Everything is drawn anew
from fonts inside Python packages; all text is our own. Lengths are points of the page as it is seen, from its top left.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import cast

from PIL import Image, ImageDraw, ImageFont
from reportlab.lib.utils import ImageReader
from reportlab.pdfbase.pdfmetrics import stringWidth
from reportlab.pdfgen.canvas import Canvas

import draw
from docvino.codec import doclayout
from docvino.document import Answer, Box, Cell, Crop, PageImage, Region
from docvino.runtime.stages import Clock, LayoutStage
from docvino.settings import ParseOptions
from docvino.text.otsl import to_otsl
from draw import TableTruth, plain_table
from layout_models import Row
from pdf_words import Word

A4 = (595.0, 842.0)
A5 = (420.0, 595.0)
LETTER = (612.0, 792.0)
DPI = 150
MARK_PT = 12.0  # the square in the corner whose grey tells the page; too light for a reader of ink
MARK_STEP = 2  # of 255, from page to page

Typeface = Callable[[int], ImageFont.FreeTypeFont]
HEAD = "Annual Review of Small Archives"
ABSTRACT = (
    "We read the paper of a small town, forty boxes in all, with one machine and no cloud. Most pages were clean "
    "print; some had stamps, tables and formulas."
)
SPECIAL = "Signs: 5 * 3 < 20 & more; see #4, item_1 | [note] ~about~ $9.90 `code` \\end"
LIST = ("first the boxes, by year", "then the plans & maps", "last what is *loose* or torn")
REFERENCES = (
    "[1] A. Reader. The grey card. 2019.",
    "[2] B. Writer. Paper and light. 2021.",
)
BIG_TABLE = plain_table(
    ("No.", "Box", "Pages", "Cost", "State"),
    *(
        (f"{row:02d}", f"Box {17 * row % 89 + 10}", f"{row * 131 % 900 + 99}", f"{row * 3.25:.2f}", "paid")
        for row in range(1, 27)
    ),
)
FIRST_PART, SECOND_PART = (
    TableTruth(BIG_TABLE.rows[:19]),
    TableTruth((BIG_TABLE.rows[0], *BIG_TABLE.rows[19:])),
)
SPANNING = TableTruth(
    (
        (("House", 2, 1), ("Spring", 1, 2), ("Autumn", 1, 2)),
        (("in", 1, 1), ("out", 1, 1), ("in", 1, 1), ("out", 1, 1)),
        (("East", 1, 1), ("318", 1, 1), ("207", 1, 1), ("1,356.50", 1, 1), ("221", 1, 1)),
        (("West", 1, 1), ("274", 1, 1), ("=190", 1, 1), ("289", 1, 1), ("-203", 1, 1)),
        (("all", 1, 1), ("195", 1, 2), ("221", 1, 2)),
    )
)
WIDE = plain_table(
    ("门店", "一月", "二月", "三月", "四月", "合计"),
    ("东门", "318", "207", "356", "221", "1102"),
    ("西门", "274", "190", "289", "203", "956"),
    ("图", "", "", "", "", "0.50"),
)


@dataclass(frozen=True)
class Area:
    """A region as a layout model would find it, and what a perfect reader says of it; None where it is a picture."""

    label: str
    box: Box
    answer: str | None = None


@dataclass
class Sheet:
    """A page in the making. `turned` is its /Rotate; `image` is the page as it is seen."""

    width: float
    height: float
    dpi: int = DPI
    turned: int = 0
    bits: int = 8
    areas: list[Area] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.image = Image.new("RGB", (self.px(self.width), self.px(self.height)), "white")
        self.pen = ImageDraw.Draw(self.image)

    def px(self, points: float) -> int:
        return round(points * self.dpi / 72)

    def pt(self, pixels: float) -> float:
        return pixels * 72 / self.dpi

    def font(self, typeface: Typeface, size: float) -> ImageFont.FreeTypeFont:
        return typeface(self.px(size))

    def line(
        self, text: str, x: float, y: float, size: float = 11, typeface: Typeface = draw.latin, anchor: str = "la"
    ) -> Box:
        """Writes one line and remembers its words; returns the box of its ink."""
        font = self.font(typeface, size)
        at = (self.px(x), self.px(y))
        self.pen.text(at, text, font=font, fill=draw.INK, anchor=anchor)
        left, top, right, bottom = self.pen.textbbox(at, text, font=font, anchor=anchor)
        start = at[0] - font.getlength(text) * {"l": 0.0, "m": 0.5, "r": 1.0}[anchor[0]]
        for word in re.finditer(r"\S+", text):
            x = start + font.getlength(text[: word.start()])
            mask, (offset, _) = font.getmask2(word[0])
            ink = mask.getbbox()  # Chinese marks have paper at their sides
            first, last = x + offset + ink[0], x + offset + ink[2]
            self.words.append(Word(word[0], (self.pt(first), self.pt(top), self.pt(last), self.pt(bottom))))
        return self.pt(left), self.pt(top), self.pt(right), self.pt(bottom)

    def text(
        self,
        label: str,
        text: str,
        x: float,
        y: float,
        width: float = 500,
        size: float = 11,
        typeface: Typeface = draw.latin,
        *,
        leading: float = 17,
        anchor: str = "la",
    ) -> float:
        """Writes a paragraph and remembers it as a region; returns where the next one may begin."""
        font = self.font(typeface, size)
        boxes = []
        for row in wrapped(text, font, self.px(width)):
            boxes.append(self.line(row, x, y, size, typeface, anchor))
            y += leading
        self.areas.append(Area(label, around(boxes), text))
        return y + 6

    def table(self, truth: TableTruth, x: float, y: float, widths: Sequence[float], row: float = 24) -> float:
        """A table with rules; returns where the next thing may begin."""
        lefts = [x + sum(widths[:column]) for column in range(len(widths) + 1)]
        for place, column, high, wide, text in truth.grid:
            box = (lefts[column], y + place * row, lefts[column + wide], y + (place + high) * row)
            self.pen.rectangle([self.px(side) for side in box], outline=draw.INK, width=2)
            if text:
                self.line(text, (box[0] + box[2]) / 2, (box[1] + box[3]) / 2, 10.5, draw.sans, "mm")
        bottom = y + len(truth.rows) * row
        self.areas.append(Area("table", (x - 1, y - 1, lefts[-1] + 1, bottom + 1), otsl(truth)))
        return bottom + 12

    def picture(self, label: str, box: Box, paint: Callable[[ImageDraw.ImageDraw, list[int]], None]) -> None:
        paint(self.pen, [self.px(side) for side in box])
        self.areas.append(Area(label, box))

    def formula(self, latex: str, parts: Sequence[tuple[str, float, float]], x: float, y: float) -> None:
        """Writes the parts side by side: (text, size, how far below the line)."""
        boxes = []
        for text, size, below in parts:
            box = self.line(text, x, y + below, size, draw.serif, "ls")
            x = self.pt(self.px(x) + self.font(draw.serif, size).getlength(text)) + 1.5
            boxes.append(box)
        self.areas.append(Area("display_formula", around(boxes), rf"\[ {latex} \]"))

    def heads(self, left: str, number: str, foot: str | None = None) -> None:
        """Running head, foot and page number, in reading order at the ends of the page."""
        margin = 50
        box = self.line(left, margin, 30, 9, draw.sans)
        self.areas.insert(0, Area("header", around([box]), left))
        self.pen.line([self.px(margin), self.px(46), self.px(self.width - margin), self.px(46)], fill=draw.INK, width=2)
        if foot is not None:
            self.text("footer", foot, margin, self.height - 40, size=9)
        self.text("number", number, self.width / 2, self.height - 40, size=9, typeface=draw.sans, anchor="ma")


@dataclass(frozen=True)
class Drawn:
    """A finished page. `has_own_text`: the PDF itself holds its words."""

    width: float
    height: float
    areas: tuple[Area, ...]
    words: tuple[Word, ...]
    has_own_text: bool = False


@cache
def ten_pages() -> tuple[bytes, tuple[Drawn, ...]]:
    """The PDF, and its pages."""
    sheets = [
        make() for make in (_first, _columns, _chinese, _formulas, _table, _table_goes_on, _figures, _wide, _small)
    ]
    file = io.BytesIO()
    canvas = Canvas(file, invariant=1)
    for index, sheet in enumerate(sheets):
        _mark(sheet, index)
        _put(canvas, sheet)
    last = _born_digital(canvas, len(sheets))
    canvas.setTitle("Ten pages")
    canvas.save()
    return file.getvalue(), (
        *(Drawn(sheet.width, sheet.height, tuple(sheet.areas), tuple(sheet.words)) for sheet in sheets),
        last,
    )


def wrapped(text: str, font: ImageFont.FreeTypeFont, width_px: float) -> Iterator[str]:
    """The text in lines: Latin at blanks, Chinese between characters, but no mark at the start of a line."""
    row = ""
    for piece in re.findall(
        r"[\u3000-\u9fff\uff00-\uffef][，。、；：！？）》”]*|[^\s\u3000-\u9fff\uff00-\uffef]+\s*|\s+", text
    ):
        if row and font.getlength((row + piece).rstrip()) > width_px:
            yield row.rstrip()
            row = piece.lstrip()
        else:
            row += piece
    if row.strip():
        yield row.rstrip()


def around(boxes: Sequence[Box], margin: float = 2.5) -> Box:
    lefts, tops, rights, bottoms = zip(*boxes, strict=True)
    return min(lefts) - margin, min(tops) - margin, max(rights) + margin, max(bottoms) + margin


def cells(truth: TableTruth) -> tuple[Cell, ...]:
    return tuple(
        Cell(row=row, column=column, row_span=high, column_span=wide, text=text)
        for row, column, high, wide, text in truth.grid
    )


def otsl(truth: TableTruth) -> str:
    return to_otsl(cells(truth))


# ---- pages


def _first() -> Sheet:
    page = Sheet(*A4)
    page.text("doc_title", "How a Machine Read Forty Boxes", 297, 70, 480, 22, anchor="ma", leading=30)
    page.text("text", "Anna Reader and Ben Writer, Town Archive", 297, 112, 480, 11, anchor="ma")
    page.text("abstract", f"Abstract: {ABSTRACT}", 80, 145, 435, 10.5, leading=17)
    page.text("paragraph_title", "1 Introduction", 50, 225, size=14)
    left = "Every box got a number and a date. The clerk wrote both on a slip of paper and put it on top."
    page.text("text", left, 50, 255, 235)
    page.text("text", "Pages that were torn went to the workshop first.", 50, 340, 235)
    page.text("paragraph_title", "2 Method", 315, 225, size=14)
    right = "The scanner works at 300 dots per inch. Its lamp needs five minutes to warm up."
    page.text("text", right, 315, 255, 230)
    page.text("paragraph_title", "2.1 Order of work", 315, 330, size=12)
    y = 355.0
    for item in LIST:
        y = page.text("text", f"• {item}", 315, y, 230, typeface=draw.sans)
    page.text("text", SPECIAL, 50, 480, 500, typeface=draw.sans)
    page.text("footnote", "* Work was paid by the town.", 50, 760, size=9)
    page.heads(HEAD, "1", "Printed on 12 May 2026")
    return page


def _columns() -> Sheet:
    page = Sheet(*A4)
    page.text(
        "text", "A picture of the room stands between two texts. What goes around it is read as one.", 50, 70, 235
    )
    page.picture("image", (310, 68, 545, 218), _photo)
    page.text("figure_title", "Figure 1. The reading room", 427, 226, 230, 9.5, anchor="ma")
    page.text("paragraph_title", "2.2 Light", 50, 260, size=12)
    text = (
        "Each batch ends with a grey card, so that later readers can correct the tint of yellow paper. "
        "In 2019 the archive counted 48,215 pages, which is about 60 per working day."
    )
    page.text("text", text, 50, 285, 235)
    page.text("text", "The right column begins here. It has a text of its own, and no heading above it.", 310, 260, 235)
    page.text("algorithm", "for box in boxes: read(box)", 310, 340, 235, typeface=draw.sans)
    page.heads(HEAD, "2", "Printed on 12 May 2026")
    return page


def _chinese() -> Sheet:
    page = Sheet(*A4)
    page.text("paragraph_title", "三、旧档案的整理办法", 50, 70, size=16, typeface=draw.sans, leading=26)
    first = (
        "旧档案的整理分为登记、修补和扫描三个阶段。登记时写明题名、年代、页数以及纸张的状况，"
        "修补时先除去灰尘，再用薄纸粘好。"
    )
    page.text("text", first, 50, 105, 495, 12, draw.serif, leading=21)
    mixed = "默认端口是 8080；如需修改请编辑 config.toml 文件，费用￥3,468.50 元。"
    page.text("text", mixed, 50, 180, 495, 12, draw.sans, leading=21)
    page.picture("chart", (120, 230, 475, 400), _bars)
    page.text("figure_title", "图二：每月的页数", 297, 410, 300, 10.5, draw.sans, anchor="ma")
    last = "每一页都要检查四个角是否完整，颜色是否均匀。本次共整理文件八十六件。"
    page.text("text", last, 50, 450, 495, 12, draw.serif, leading=21)
    page.heads("档案年鉴", "— 3 —")
    return page


def _formulas() -> Sheet:
    page = Sheet(*A4)
    page.text("paragraph_title", "3 Formulas", 50, 70, size=14)
    page.text("text", "The area of a slip is the product of its sides.", 50, 100, 495)
    square = ("2", 9, -6)
    parts = [("a", 14, 0), square, ("+ b", 14, 0), square, ("= c", 14, 0), square]
    page.formula("a^{2}+b^{2}=c^{2}", parts, 200, 160)
    page.text("formula_number", "(1)", 520, 148)
    page.text("text", "With half of it, as in the next line, we count what is lost.", 50, 190, 495)
    y = 250.0
    tops = [page.line("1", 206, y - 10, 12, draw.serif, "ms"), page.line("2", 206, y + 12, 12, draw.serif, "ms")]
    page.pen.line([page.px(199), page.px(y - 5), page.px(213), page.px(y - 5)], fill=draw.INK, width=3)
    tops += [page.line("m v", 218, y, 14, draw.serif, "ls"), page.line("2", 246, y - 6, 9, draw.serif, "ls")]
    page.areas.append(Area("display_formula", around(tops), r"\[ \frac{1}{2} m v^{2} \]"))
    page.text("formula_number", "(2)", 520, 240)
    page.text("text", "Here x < 3 and y & z cost $5 each.", 50, 290, 495)
    page.areas[-1] = Area("text", page.areas[-1].box, r"Here \(x < 3\) and y & z cost $5 each.")
    page.heads(HEAD, "4")
    return page


def _table() -> Sheet:
    page = Sheet(*A4)
    page.text("paragraph_title", "4 Results", 50, 70, size=14)
    page.text("text", "The table tells of every box. It goes on over the page.", 50, 100, 495)
    page.text("figure_title", "Table 1. Boxes and what they cost", 297, 135, 400, 10.5, anchor="ma")
    page.table(FIRST_PART, 70, 160, (60, 110, 90, 90, 105), 30)
    page.heads(HEAD, "5")
    return page


def _table_goes_on() -> Sheet:
    page = Sheet(*A4)
    y = page.table(SECOND_PART, 70, 70, (60, 110, 90, 90, 105), 30)
    page.text("text", "Two boxes were empty. Their slips are kept.", 50, y + 10, 495)
    page.text("figure_title", "Table 2. Houses by season", 297, y + 45, 400, 10.5, anchor="ma")
    page.table(SPANNING, 120, y + 70, (80, 70, 70, 80, 60), 30)
    page.heads(HEAD, "6")
    return page


def _figures() -> Sheet:
    page = Sheet(*A4)
    page.picture("image", (50, 70, 285, 240), _photo)
    page.picture("image", (310, 70, 545, 240), _plan)
    page.text("figure_title", "(a) before", 167, 248, 230, 9.5, anchor="ma")
    page.text("figure_title", "(b) after", 427, 248, 230, 9.5, anchor="ma")
    page.text("text", "Under the two pictures a stamp was found.", 50, 290, 300)
    page.picture("seal", (380, 285, 500, 405), _stamp)
    page.text("vision_footnote", "Photographs: town archive", 50, 420, 300, 9)
    page.text("aside_text", "copy 7", 20, 300, 60, 8)
    page.heads(HEAD, "7")
    return page


def _wide() -> Sheet:
    page = Sheet(A4[1], A4[0], turned=90)
    page.text("figure_title", "表三：各门店的月度收入", 421, 60, 500, 12, draw.sans, anchor="ma", leading=20)
    page.table(WIDE, 70, 95, (110, 110, 110, 110, 110, 150), 44)
    page.picture("image", (200, 232, 270, 266), _photo)
    page.text(
        "text", "This page is turned by its own mark. 读者看到的是正的。", 70, 300, 700, 12, draw.sans, leading=21
    )
    page.heads(HEAD, "8")
    return page


def _small() -> Sheet:
    page = Sheet(*A5, dpi=200, bits=1)
    page.text("paragraph_title", "附录 Appendix", 40, 60, size=14, typeface=draw.sans, leading=24)
    page.text("text", "先下载 setup 文件，再运行 install.sh。The port is 8080.", 40, 95, 340, 11, draw.sans, leading=19)
    page.text("content", "1 Introduction 1", 40, 150, 340)
    page.text("paragraph_title", "References", 40, 200, size=12)
    y = 225.0
    top = y
    for entry in REFERENCES:
        y = page.text("reference_content", entry, 40, y, 340, 10)
    page.areas.insert(-len(REFERENCES), Area("reference", (36, top - 4, 384, y + 2)))
    page.heads(HEAD, "9")
    return page


def _born_digital(canvas: Canvas, index: int) -> Drawn:
    width, height = LETTER
    canvas.setPageSize(LETTER)
    canvas.setFillGray(1 - MARK_STEP * index / 255)
    canvas.rect(0, height - MARK_PT, MARK_PT, MARK_PT, stroke=0, fill=1)
    canvas.setFillGray(0)
    words: list[Word] = []
    areas: list[Area] = []

    def text(label: str, rows: Sequence[str], x: float, y: float, font: str = "Times-Roman", size: float = 12) -> None:
        boxes = []
        canvas.setFont(font, size)
        for number, row in enumerate(rows):
            base = y + number * size * 1.45
            canvas.drawString(x, height - base, row)
            for word in re.finditer(r"\S+", row):
                first, last = (x + stringWidth(row[:place], font, size) for place in word.span())
                words.append(Word(word[0], (first, base - 0.7 * size, last, base + 0.2 * size)))
            boxes.append((x, base - 0.75 * size, x + stringWidth(row, font, size), base + 0.25 * size))
        areas.append(Area(label, around(boxes), " ".join(rows)))

    text("header", [HEAD], 54, 40, size=9)
    text("paragraph_title", ["5 What was never on paper"], 54, 84, "Times-Bold", 15)
    text("text", ["This page has words of its own, and", "they are found without us."], 54, 120)
    text("text", ["Its right column is short."], 330, 120)
    canvas.setFillColorRGB(0.2, 0.45, 0.7)
    canvas.circle(190, height - 260, 60, stroke=0, fill=1)
    areas.append(Area("image", (125, 195, 255, 325)))
    canvas.setFillGray(0)
    text("figure_title", ["Figure 3. A disc"], 148, 345, size=10)
    text("number", ["10"], 300, 760, size=9)
    canvas.showPage()
    return Drawn(width, height, tuple(areas), tuple(words), has_own_text=True)


def _mark(sheet: Sheet, index: int) -> None:
    side = sheet.px(MARK_PT)
    sheet.pen.rectangle((0, 0, side, side), fill=(255 - MARK_STEP * index,) * 3)


def _put(canvas: Canvas, sheet: Sheet) -> None:
    """The page as a scan; what is turned by /Rotate lies sideways in the file."""
    size = (sheet.width, sheet.height)
    image = sheet.image
    if sheet.bits == 1:
        # The mark is no black or white; it stands beside the scan.
        image = image.convert("L").point(lambda value: 255 if value > 140 else 0).convert("1")
    canvas.setPageSize(size)  # as it is seen: reportlab turns it with the page
    if sheet.turned == 90:
        canvas.setPageRotation(90)
        canvas.translate(size[1], 0)
        canvas.rotate(90)
    canvas.drawImage(ImageReader(image), 0, 0, *size)
    if sheet.bits == 1:
        level = sheet.image.getpixel((2, 2))
        canvas.setFillGray(cast(tuple[int, ...], level)[0] / 255)
        canvas.rect(0, sheet.height - MARK_PT, MARK_PT, MARK_PT, stroke=0, fill=1)
    canvas.showPage()
    canvas.setPageRotation(0)


# ---- pictures


def _photo(pen: ImageDraw.ImageDraw, box: list[int]) -> None:
    left, top, right, bottom = box
    for y in range(top, bottom):
        share = (y - top) / (bottom - top)
        pen.line((left, y, right, y), fill=(int(70 + 120 * share), int(110 + 60 * share), int(170 - 60 * share)))
    pen.ellipse(
        (left + 10, top + 8, left + 10 + (bottom - top) // 3, top + 8 + (bottom - top) // 3), fill=(250, 225, 140)
    )


def _plan(pen: ImageDraw.ImageDraw, box: list[int]) -> None:
    left, top, right, bottom = box
    pen.rectangle(box, fill=(235, 232, 220), outline=draw.INK, width=3)
    pen.line(((left + right) // 2, top, (left + right) // 2, bottom), fill=draw.INK, width=6)
    pen.line((left, (top + bottom) // 2, right, (top + bottom) // 2), fill=draw.INK, width=6)


def _stamp(pen: ImageDraw.ImageDraw, box: list[int]) -> None:
    left, top, right, bottom = box
    pen.ellipse(box, outline=(200, 30, 30), width=6)
    font = draw.sans((bottom - top) // 6)
    pen.text(((left + right) / 2, (top + bottom) / 2), "图书馆", font=font, fill=(200, 30, 30), anchor="mm")


def _bars(pen: ImageDraw.ImageDraw, box: list[int]) -> None:
    left, top, right, bottom = box
    pen.line((left + 20, top, left + 20, bottom - 20, right, bottom - 20), fill=draw.INK, width=3)
    step = (right - left - 40) // 6
    for number, share in enumerate((0.4, 0.7, 0.55, 0.9, 0.3, 0.65)):
        x = left + 40 + number * step
        pen.rectangle(
            (x, bottom - 20 - int(share * (bottom - top - 40)), x + step // 2, bottom - 21), fill=(60, 120, 180)
        )


# ---- what a layout model and a reader say


def layout_rows(pages: Sequence[Drawn]) -> list[list[Row]]:
    """The regions of each page as rows for a layout model."""
    return [
        [(area.label, 0.9, _share(area.box, page.width, page.height), order) for order, area in enumerate(page.areas)]
        for page in pages
    ]


def _share(box: Box, width: float, height: float) -> Box:
    left, top, right, bottom = box
    return max(0.0, left / width), max(0.0, top / height), min(1.0, right / width), min(1.0, bottom / height)


class Knowing:
    """A layout stage that remembers what the layout model found, and a reader that knows what is written there."""

    def __init__(self, layout: LayoutStage, pages: Sequence[Drawn]) -> None:
        self._layout, self._pages = layout, pages
        self._found: Sequence[Region] = ()
        self._areas: dict[tuple[str, Box], Area] = {}

    def detect(self, page: PageImage, options: ParseOptions) -> list[Region]:
        drawn = self._pages[page.index]
        scale = page.width_px / drawn.width
        self._areas = {(area.label, cast(Box, tuple(side * scale for side in area.box))): area for area in drawn.areas}
        found = self._layout.detect(page, options)
        self._found = doclayout.choose(found)  # crops are of these
        return found

    def read(self, crops: Sequence[Crop], _options: ParseOptions, _clock: Clock) -> list[Answer]:
        return [Answer(self._text(crop), 0.9) for crop in crops]

    def _text(self, crop: Crop) -> str:
        texts = []
        for place in crop.regions:
            region = self._found[place]
            candidates = [key for key in self._areas if key[0] == region.label]
            nearest = min(
                candidates, key=lambda key: max(abs(a - b) for a, b in zip(key[1], region.bounds, strict=True))
            )
            texts.append(self._areas[nearest].answer or "")
        text = " ".join(texts)
        for mark, _ in crop.figures:
            text = text.replace("<ecel>", f"<fcel>{mark}", 1)
        return text
