"""Facts of the searchable PDF, read by PDFium and, where it is installed, by Poppler's pdftotext."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from unicodedata import normalize

import numpy as np
import pikepdf
import pypdfium2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw

import draw
from docvino.document import Block, Box, Document, Line, Page, Polygon, Rotation, box_polygon
from docvino.errors import InputError
from docvino.inputs import open_document
from docvino.render.pdf import pictures_pdf, searchable_pdf
from docvino.render.placed import placed_texts
from docvino.settings import ParseOptions
from docvino.text.paragraphs import join_lines
from pdf_words import NEAR_PT, Word, assert_same_places, near, poppler_words, words_of
from sample_documents import SPANNING, block, document, line, page, table

DPI = 150
TEXTS = (
    "How an old archive becomes searchable within one week",
    "Will mill illicit lilies fill MAMMOTH WIGWAM WOMBAT www iii",
    "The default port is 8080; 如需修改请编辑 config.toml 文件，版本 v2.4",
    "旧档案的整理分为登记、修补和扫描三个阶段。登记时写明题名",
    'A: 1,284.60 B: 57 %   Straße café "quoted" text',
)


@dataclass(frozen=True)
class Scan:
    """A drawn page, the lines that a perfect reader reads on it, and where its words are."""

    pixels: np.ndarray[Any, Any]
    lines: tuple[Line, ...]
    words: tuple[Word, ...]

    @property
    def size(self) -> tuple[int, int]:
        return self.pixels.shape[1], self.pixels.shape[0]

    def page(self, rotation: Rotation = 0, box: Box | None = None) -> Page:
        width, height = self.size
        facts: dict[str, Any] = {"width_px": width, "height_px": height, "dpi": DPI, "rotation_degrees": rotation}
        return page(block("text", "x", lines=self.lines), source_box=box, **facts)


def scan(typeface: Any = draw.sans, texts: Sequence[str] = TEXTS, size: int = 30) -> Scan:
    image = Image.new("RGB", (1250, 700), (250, 248, 240))
    pen, font = ImageDraw.Draw(image), typeface(size)
    lines, words = [], []
    for number, text in enumerate(texts):
        at = (90, 60 + 110 * number)
        pen.text(at, text, font=font, fill=(30, 30, 40))
        left, top, right, bottom = pen.textbbox(at, text, font=font)
        # As a detector sees it: with some paper around.
        lines.append(line(text, left - 4, top - 3, right + 5, bottom + 4))
        for word in re.finditer(r"\S+", text):
            ends = (at[0] + font.getlength(text[:place]) for place in word.span())
            first, last = (end * 72 / DPI for end in ends)
            words.append(Word(word[0], (first, top * 72 / DPI, last, bottom * 72 / DPI)))
    return Scan(np.asarray(image), tuple(lines), tuple(words))


def picture_of(made: Scan) -> Any:
    return lambda _: made.pixels


def as_pictures(made: Scan, **facts: Any) -> bytes:
    return pictures_pdf(document(made.page(), **facts), picture_of(made))


def as_pdf(data: bytes, made: Document, pixels: Any = lambda _: None, password: str | None = None) -> bytes:
    with open_document(data, "scan.pdf", ParseOptions(password=password)) as opened:
        return searchable_pdf(made, data, opened.page_count, password, pixels, opened.text_points)


# ---- places


@pytest.mark.parametrize("typeface", [draw.sans, draw.serif])
def test_words_of_a_picture_lie_where_they_are_seen(typeface: Any) -> None:
    made = scan(typeface)
    assert_same_places(words_of(as_pictures(made)), made.words)


@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="pdftotext is not installed")
@pytest.mark.parametrize("typeface", [draw.sans, draw.serif])
def test_poppler_finds_the_words_in_the_same_places(typeface: Any, tmp_path: Path) -> None:
    made, file = scan(typeface), tmp_path / "made.pdf"
    file.write_bytes(as_pictures(made))
    assert_same_places(poppler_words(file)[0], made.words)


@pytest.mark.parametrize("own_turn", [0, 90, 180, 270])
@pytest.mark.parametrize("turn", [0, 90, 180, 270])
def test_words_of_a_pdf_lie_where_they_are_seen_however_its_page_is_turned(own_turn: int, turn: Rotation) -> None:
    made = scan(texts=TEXTS[:2])
    stored = Image.fromarray(made.pixels).rotate(own_turn + turn, expand=True)  # counter-clockwise
    width, height = (side * 72 / DPI for side in stored.size)
    with pikepdf.open(io.BytesIO(draw.image_pdf(stored, dpi=DPI))) as pdf:
        # A page whose visible part does not begin at 0, 0, and which is turned by the tree above it.
        pdf.pages[0].MediaBox = pikepdf.Array([-50, -20, width + 10, height + 10])
        pdf.pages[0].CropBox = pikepdf.Array([0, 0, width, height])
        del pdf.pages[0].obj["/Rotate"]
        pdf.Root.Pages.Rotate = own_turn
        out = io.BytesIO()
        pdf.save(out)
    with open_document(out.getvalue(), "scan.pdf", ParseOptions(dpi=DPI)) as opened:
        image = opened.page(0)
    assert np.rot90(image.pixels, -turn // 90).shape == made.pixels.shape
    result = as_pdf(out.getvalue(), document(made.page(turn, image.source_box)), picture_of(made))
    assert_same_places(words_of(result), made.words)


def test_words_of_a_skewed_line_lie_along_it() -> None:
    upright = scan(texts=TEXTS[:1])
    angle = 4
    turned = Image.fromarray(upright.pixels).rotate(-angle, fillcolor=(250, 248, 240), center=(0, 0))
    cos, sin = np.cos(np.radians(angle)), np.sin(np.radians(angle))

    def moved(polygon: Polygon) -> Polygon:
        return tuple((float(x * cos - y * sin), float(x * sin + y * cos)) for x, y in polygon)

    lines = tuple(one.model_copy(update={"polygon": moved(one.polygon)}) for one in upright.lines)
    found = words_of(as_pictures(Scan(np.asarray(turned), lines, ())))
    assert [word.text for word in found] == TEXTS[0].split()
    for word, truth in zip(found, upright.words, strict=True):
        left, top, right, bottom = truth.box
        ((x, y),) = moved((((left + right) / 2, (top + bottom) / 2),))
        assert (word.box[0] + word.box[2]) / 2 == pytest.approx(x, abs=NEAR_PT)
        assert (word.box[1] + word.box[3]) / 2 == pytest.approx(y, abs=NEAR_PT)


def test_a_column_of_chinese_runs_down() -> None:
    column = line("旧档案的整理", 500, 100, 530, 280)
    made = document(page(block("text", "x", lines=(column,)), dpi=72))
    data = pictures_pdf(made, lambda _: np.full((800, 600, 3), 255, np.uint8))
    (word,) = words_of(data)
    assert word.text == "旧档案的整理"
    assert near(word.box, (500, 100, 530, 280))


PARAGRAPHS = {
    "latin": (
        "Every box that enters the room gets",
        "a number and a date. The clerk writes",
        "both on a paper slip of 48,215 pages.",
    ),
    "chinese": (
        "旧档案的整理分为登记、修补和扫描三个",
        "阶段。登记时写明题名、年代、页数以及",
        "纸张的状况，修补时先除去灰尘。",
    ),
    "mixed": (
        "先下载安装包 (setup package)，再运行 install",
        "脚本。The default port is 8080; 如需修改请",
        "编辑 config.toml 文件。",
    ),
}


def printed(rows: Sequence[str], typeface: Any, leading: float = 1.5) -> tuple[np.ndarray[Any, Any], list[Word], Box]:
    """A paragraph on a page, its words, and the block as a layout model sees it."""
    image = Image.new("RGB", (1250, 400), (250, 248, 240))
    pen, font = ImageDraw.Draw(image), typeface(30)
    words, ends = [], []
    for number, row in enumerate(rows):
        at = (90, 60 + 30 * leading * number)
        pen.text(at, row, font=font, fill=(30, 30, 40))
        _, top, right, bottom = pen.textbbox(at, row, font=font)
        ends.append(right)
        for word in re.finditer(r"\S+", row):
            first = at[0] + font.getlength(row[: word.start()])
            last = first + ink_width(word[0], font)  # a Chinese full stop has paper behind it
            words.append(Word(word[0], cast(Box, tuple(side * 72 / DPI for side in (first, top, last, bottom)))))
    return np.asarray(image), words, (80, 50, max(ends) + 12, bottom + 9)


def ink_width(word: str, font: Any) -> int:
    alone = Image.new("L", (1250, 100))
    ImageDraw.Draw(alone).text((0, 20), word, font=font, fill=255)
    return cast(tuple[int, int, int, int], alone.getbbox())[2]


def found_in_block(pixels: np.ndarray[Any, Any], text: str, box: Box) -> list[Word]:
    read = page(block("text", text, polygons=(box_polygon(*box),)), width_px=1250, height_px=400, dpi=DPI)
    return words_of(pictures_pdf(document(read), lambda _: pixels))


@pytest.mark.parametrize("typeface", [draw.sans, draw.serif])
@pytest.mark.parametrize("kind", PARAGRAPHS)
def test_words_of_a_block_lie_where_they_are_seen_though_a_model_told_only_its_text(kind: str, typeface: Any) -> None:
    rows = PARAGRAPHS[kind]
    pixels, truth, box = printed(rows, typeface)
    text = join_lines(rows)
    found = found_in_block(pixels, text, box)
    assert [word.text for word in found] == [word.text for word in truth]
    for word, true in zip(found, truth, strict=True):
        assert (word.box[0], word.box[2]) == pytest.approx((true.box[0], true.box[2]), abs=NEAR_PT), word
        assert word.box[1] + word.box[3] == pytest.approx(true.box[1] + true.box[3], abs=2 * NEAR_PT), word


@pytest.mark.parametrize("angle", [-2, -0.6, 0.6, 2])
def test_words_of_a_skewed_block_lie_where_they_are_seen(angle: float) -> None:
    pixels, truth, box = printed(PARAGRAPHS["latin"], draw.sans)
    middle = ((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)
    turned = Image.fromarray(pixels).rotate(angle, Image.Resampling.BICUBIC, center=middle, fillcolor=(250, 248, 240))
    cos, sin = np.cos(np.radians(angle)), np.sin(np.radians(angle))

    def moved(x: float, y: float) -> tuple[float, float]:  # counter-clockwise as it is seen
        x, y = x - middle[0], y - middle[1]
        return float(x * cos + y * sin + middle[0]), float(-x * sin + y * cos + middle[1])

    corners = [moved(x, y) for x in box[::2] for y in box[1::2]]
    xs, ys = zip(*corners, strict=True)
    found = found_in_block(np.asarray(turned), join_lines(PARAGRAPHS["latin"]), (min(xs), min(ys), max(xs), max(ys)))
    assert [word.text for word in found] == [word.text for word in truth]
    for word, true in zip(found, truth, strict=True):
        seen = moved(*((true.box[side] + true.box[side + 2]) / 2 / 72 * DPI for side in (0, 1)))
        expected = tuple(value * 72 / DPI for value in seen)
        assert ((word.box[0] + word.box[2]) / 2, (word.box[1] + word.box[3]) / 2) == pytest.approx(
            expected, abs=NEAR_PT
        )


def test_a_word_that_goes_on_in_the_next_row_is_whole_and_lies_where_it_begins() -> None:
    pixels, truth, box = printed(("The clerk makes a gen-", "tle repair of pages"), draw.sans)
    found = found_in_block(pixels, "The clerk makes a gentle repair of pages", box)
    assert [word.text for word in found] == ["The", "clerk", "makes", "a", "gentle", "repair", "of", "pages"]
    assert near(found[4].box, truth[4].box)
    assert found[5].box[0] == pytest.approx(truth[6].box[0], abs=NEAR_PT)


@pytest.mark.parametrize(
    "text", ["Something else, and twice as long as what is printed there. " * 4, r"so \(x^2\) is the area", "short"]
)
def test_text_that_is_not_that_of_the_ink_stays_in_its_block(text: str) -> None:
    pixels, _, box = printed(PARAGRAPHS["latin"], draw.sans)
    found = found_in_block(pixels, text, box)
    assert [word.text for word in found] == text.split()
    left, top, right, bottom = (side * 72 / DPI for side in box)
    for word in found:
        assert left - 1 <= word.box[0] <= word.box[2] <= right + 1
        assert top - 1 <= word.box[1] <= word.box[3] <= bottom + 1


@pytest.mark.parametrize("colour", [0, 128, 255])
def test_a_block_without_ink_is_no_harm(colour: int) -> None:
    found = found_in_block(np.full((400, 1250, 3), colour, np.uint8), "some words", (80, 50, 500, 100))
    assert [word.text for word in found] == ["some", "words"]


@pytest.mark.parametrize("text", ["word " * 60, "旧档案的整理分为登记。" * 12, "One\n\nTwo words", "x", "W" * 300])
@pytest.mark.parametrize("box", [(60, 100, 540, 400), (60, 100, 160, 700), (60, 100, 540, 112)])
@pytest.mark.parametrize("label", ["text", "vertical_text"])
def test_text_without_lines_fills_the_box_of_its_block(text: str, box: Box, label: str) -> None:
    left, top, right, bottom = box
    polygon = ((left, top), (right, top), (right, bottom), (left, bottom))
    placed = list(placed_texts(block(label, text, polygons=(polygon,))))
    assert "".join("".join(one.text for one in placed).split()) == "".join(text.split())
    for one in placed:
        for x, y in (one.start_top, one.end_top, one.end_bottom, one.start_bottom):
            assert left - 0.01 <= x <= right + 0.01
            assert top - 0.01 <= y <= bottom + 0.01


def test_text_of_a_block_of_two_columns_is_shared_out_to_both() -> None:
    boxes = (((0, 0), (100, 0), (100, 300), (0, 300)), ((200, 0), (300, 0), (300, 100), (200, 100)))
    placed = list(placed_texts(block("text", "word " * 40, polygons=boxes)))
    in_second = sum(len(one.text.split()) for one in placed if one.start_top[0] >= 200)
    assert in_second == pytest.approx(10, abs=2)
    assert sum(len(one.text.split()) for one in placed) == 40


def test_cells_without_places_of_their_own_have_their_share_of_the_table() -> None:
    polygon = ((0, 0), (300, 0), (300, 100), (0, 100))
    placed = {one.text: one for one in placed_texts(table(spans=SPANNING, polygons=(polygon,)))}
    assert placed["b"].start_top[0] == 110
    assert 50 <= placed["b"].start_top[1] < placed["b"].start_bottom[1] <= 100
    assert placed["Tall"].start_top[0] == 210


def test_texts_of_neighbouring_cells_are_words_of_their_own() -> None:
    made = table(["东门", "318", "207"], ["结余", "1,284.60", "x" * 30], polygons=(box_polygon(50, 50, 550, 110),))
    assert found_text(made).split() == ["东门", "318", "207", "结余", "1,284.60", "x" * 30]


@pytest.mark.parametrize("box", [(-90, -50, -10, -20), (2000, 50, 2100, 80), (-40, 20, 30, 50), (590, 780, 700, 900)])
def test_lines_beside_and_across_the_edge_of_a_page_do_no_harm(box: Box) -> None:
    made = document(
        page(block("text", "x", lines=(line("two words", *box),)), block("text", "more", polygons=(box_polygon(*box),)))
    )
    pixels = np.random.default_rng(0).integers(0, 255, (800, 600, 3), np.uint8)
    assert pictures_pdf(made, lambda _: pixels).startswith(b"%PDF")


# ---- texts


def found_text(*blocks: Block) -> str:
    data = pictures_pdf(document(page(*blocks)), lambda _: np.full((800, 600, 3), 255, np.uint8))
    with pypdfium2.PdfDocument(data) as pdf:
        text = pdf[0].get_textpage()
        found = str(text.get_text_range())
        text.close()
    return found


@pytest.mark.parametrize(
    "text", ["Ærøskøbing", "旧档案", "ひらがな", "한국어", "Привет", "𠮷野家", "∑∫≤", "（全角）", "a\x00b"]
)
def test_every_script_can_be_searched(text: str) -> None:
    assert found_text(block("text", "x", lines=(line(text, 50, 50, 300, 80),))) == text.replace("\x00", "")


@given(st.text(alphabet=st.characters(categories=["Lu", "Ll", "Nd"], max_codepoint=0x2FFFF), min_size=1, max_size=20))
def test_letters_and_digits_come_back_as_they_were_read(text: str) -> None:
    found = found_text(block("text", "x", lines=(line(text, 50, 50, 300, 80),)))
    # PDFium takes ligatures apart when it is asked for text.
    assert normalize("NFKC", found.replace("\r\n", "")) == normalize("NFKC", text)


def test_running_heads_can_be_searched_too() -> None:
    assert found_text(block("header", "x", lines=(line("Chapter 3", 50, 5, 300, 30),))) == "Chapter 3"


# ---- what is seen stays as it is


def pixels_of(data: bytes, index: int = 0) -> np.ndarray[Any, Any]:
    with open_document(data, "made.pdf", ParseOptions(dpi=72)) as opened:
        return np.asarray(opened.page(index).pixels)


def test_what_a_pdf_shows_is_not_touched() -> None:
    data, _ = draw.english_pdf()
    made = document(*born_digital(data), name="a.pdf", media_type="application/pdf")
    result = as_pdf(data, made)
    for index in range(3):
        assert np.array_equal(pixels_of(result, index), pixels_of(data, index))


def born_digital(data: bytes, text: str = "added") -> Iterator[Page]:
    """Pages with one line where the source has nothing."""
    with open_document(data, "a.pdf", ParseOptions()) as opened:
        for index in opened.page_indices:
            image = opened.page(index)
            low = image.height_px - 60
            facts = {"width_px": image.width_px, "height_px": image.height_px, "source_box": image.source_box}
            yield page(
                block("text", "x", lines=(line(text, 100, low, 300, low + 30),)), index=index, dpi=144.0, **facts
            )


def test_text_that_a_page_has_itself_is_not_doubled() -> None:
    data, truths = draw.english_pdf()
    with open_document(data, "a.pdf", ParseOptions()) as opened:
        first = opened.page(0)
    heading = truths[0].lines[0]
    lines = (line(heading, 138, 108, 600, 150), line("handwritten", 138, 1500, 600, 1540))
    facts = {"width_px": first.width_px, "height_px": first.height_px, "source_box": first.source_box}
    read = page(block("text", "x", lines=lines), dpi=144.0, **facts)
    result = as_pdf(data, document(read, *list(born_digital(data))[1:]))
    words = [word.text for word in words_of(result)]
    assert words.count("letter") == 1
    assert words.count("handwritten") == 1


def test_a_chosen_page_makes_a_document_of_that_page() -> None:
    data = draw.many_pages_pdf(4)
    _, second, _, fourth = born_digital(data)
    result = as_pdf(data, document(second, fourth))
    with pypdfium2.PdfDocument(result) as pdf:
        assert len(pdf) == 2
    assert [[word.text for word in words_of(result, index)] for index in (0, 1)] == [["added", "2"], ["added", "4"]]


def test_a_page_that_failed_keeps_its_place() -> None:
    data = draw.many_pages_pdf(2)
    _, second = born_digital(data)
    failed = page(status="failed", error="x", width_px=0, height_px=0)
    result = as_pdf(data, document(failed, second))
    assert [word.text for word in words_of(result)] == ["1"]
    assert [word.text for word in words_of(result, 1)] == ["added", "2"]
    pictures = pictures_pdf(document(failed, second), lambda one: None if one.error else np.zeros((9, 9, 3), np.uint8))
    assert [word.text for word in words_of(pictures, 1)] == ["added"]


@pytest.mark.parametrize("password", [draw.PASSWORD, draw.OWNER_PASSWORD])
def test_a_locked_document_stays_locked(password: str) -> None:
    data = draw.encrypted(draw.many_pages_pdf(1))
    with open_document(data, "a.pdf", ParseOptions(password=password)) as opened:
        image = opened.page(0)
    facts = {"width_px": image.width_px, "height_px": image.height_px, "source_box": image.source_box}
    read = page(block("text", "x", lines=(line("added", 20, 20, 80, 40),)), dpi=144.0, **facts)
    result = as_pdf(data, document(read), password=password)
    with pytest.raises(pikepdf.PasswordError):
        pikepdf.open(io.BytesIO(result))
    with pikepdf.open(io.BytesIO(result), password=draw.PASSWORD) as pdf:
        assert len(pdf.pages) == 1


def test_a_document_that_anybody_may_read_but_not_change_stays_so() -> None:
    data = draw.encrypted(draw.many_pages_pdf(1), user="")
    result = as_pdf(data, document(*born_digital(data)))
    with pikepdf.open(io.BytesIO(result)) as pdf:
        assert pdf.is_encrypted
        assert not pdf.owner_password_matched
    assert [word.text for word in words_of(result)] == ["added", "1"]


def test_resources_that_a_page_has_from_the_tree_above_stay() -> None:
    data = draw.many_pages_pdf(2)
    with pikepdf.open(io.BytesIO(data)) as pdf:
        pdf.Root.Pages.Resources = pdf.pages[0].Resources
        for one in pdf.pages:
            del one.obj["/Resources"]
        out = io.BytesIO()
        pdf.save(out)
    result = as_pdf(out.getvalue(), document(*born_digital(out.getvalue())))
    assert [word.text for word in words_of(result, 1)] == ["added", "2"]


def test_a_pdf_that_only_pdfium_can_read_is_an_error_with_a_fix() -> None:
    data = draw.many_pages_pdf(1)
    (read,) = born_digital(data)
    with pytest.raises(InputError, match="no searchable PDF") as caught:
        searchable_pdf(document(read), b"%PDF-1.7\nbroken", 1, None, lambda _: None, lambda _: ())
    assert "--format" in caught.value.fix


@pytest.mark.parametrize(
    ("mode", "media_type", "stored"),
    [
        ("1", "image/png", ("/FlateDecode", 1)),
        ("L", "image/png", ("/FlateDecode", 8)),
        ("RGB", "image/tiff", ("/FlateDecode", 8)),
        ("RGB", "image/jpeg", ("/DCTDecode", 8)),
        ("L", "image/webp", ("/DCTDecode", 8)),
    ],
)
def test_a_picture_is_stored_as_its_source_was_and_shown_alike(
    mode: str, media_type: str, stored: tuple[str, int]
) -> None:
    pixels = np.asarray(Image.fromarray(scan().pixels).convert(mode).convert("RGB"))
    height, width = pixels.shape[:2]
    read = page(block("text", "x"), width_px=width, height_px=height, dpi=72.0)
    result = pictures_pdf(document(read, media_type=media_type), lambda _: pixels)
    with pikepdf.open(io.BytesIO(result)) as pdf:
        (image,) = pdf.pages[0].Resources.XObject.values()
        assert (str(image.Filter), int(image.BitsPerComponent)) == stored
    assert np.abs(pixels_of(result).astype(int) - pixels).max() <= (0 if stored[0] == "/FlateDecode" else 60)


def test_the_page_has_the_size_of_the_paper() -> None:
    with pypdfium2.PdfDocument(as_pictures(scan())) as pdf:
        assert pdf[0].get_size() == pytest.approx((1250 * 72 / DPI, 700 * 72 / DPI), abs=0.1)


def test_the_same_document_makes_the_same_bytes() -> None:
    made = scan(texts=TEXTS[:1])
    assert as_pictures(made) == as_pictures(made)


def test_qpdf_finds_nothing_to_complain_of() -> None:
    with pikepdf.open(io.BytesIO(as_pictures(scan()))) as pdf:
        assert pdf.check_pdf_syntax() == [] if hasattr(pdf, "check_pdf_syntax") else pdf.check() == []
