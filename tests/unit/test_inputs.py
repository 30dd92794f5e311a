"""Bytes become pages: formats, modes, turns, limits, PDFs, and what is said when they do not."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageCms, ImageFile

import draw
from docvino import inputs
from docvino.document import PageImage
from docvino.errors import InputError
from docvino.inputs import find_inputs, open_document, parse_page_ranges, read_source
from docvino.settings import ParseOptions

DPI_72 = ParseOptions(dpi=72)  # one pixel is one point


def first_page(data: bytes, options: ParseOptions | None = None) -> PageImage:
    with open_document(data, "document", options or ParseOptions()) as document:
        return document.page(0)


def read_all(data: bytes, name: str, options: ParseOptions) -> None:
    with open_document(data, name, options) as document:
        for index in document.page_indices:
            document.page(index)


def refusal(data: bytes, options: ParseOptions | None = None, name: str = "document") -> InputError:
    """The one error that a file gives, wherever in reading it."""
    with pytest.raises(InputError) as caught:
        read_all(data, name, options or ParseOptions())
    error = caught.value
    assert "\n" not in str(error)
    assert error.fix
    assert "\n" not in error.fix
    assert "0x" not in str(error)
    return error


def page() -> Image.Image:
    """A small page with text; much of it is white."""
    return draw.low_resolution(draw.chinese_page()[0])


def rgb(image: Image.Image) -> NDArray[np.uint8]:
    return np.asarray(image.convert("RGB"))


def ink_box(pixels: NDArray[np.uint8]) -> tuple[int, int, int, int]:
    """The box around everything dark: left, top, right, bottom."""
    dark = pixels.min(axis=2) < 128
    rows, columns = np.flatnonzero(dark.any(axis=1)), np.flatnonzero(dark.any(axis=0))
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def distance(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> float:
    """The mean difference of two images, 0..255."""
    assert one.shape == other.shape
    return float(np.abs(one.astype(int) - other).mean())


# ---- what a page is


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF"])
def test_every_image_format_is_read_by_its_content_whatever_its_name(kind: str) -> None:
    data = draw.encoded(page(), kind)
    with open_document(data, "misnamed.pdf", ParseOptions()) as document:
        assert document.source.name == "misnamed.pdf"
        assert document.source.sha256 == hashlib.sha256(data).hexdigest()
        assert document.source.media_type == f"image/{kind.lower()}"
        assert document.page_count == 1
        assert document.page_indices == (0,)
        seen = document.page(0)
    assert distance(seen.pixels, rgb(page())) < 4
    assert seen.warnings == ()


@pytest.mark.parametrize("data", [draw.png(page()), draw.image_pdf(page())], ids=["image", "pdf"])
def test_pixels_are_read_only_contiguous_rgb_bytes_that_outlive_the_document(data: bytes) -> None:
    pixels = first_page(data).pixels
    assert pixels.dtype == np.uint8
    assert pixels.ndim == 3
    assert pixels.shape[2] == 3
    assert pixels.flags.c_contiguous
    assert not pixels.flags.writeable
    assert pixels.mean() > 200


@pytest.mark.parametrize("kind", ["PNG", "BMP", "WEBP", "PDF"])
def test_red_is_the_first_channel(kind: str) -> None:
    red = Image.new("RGB", (40, 30), (255, 0, 0))
    data = draw.image_pdf(red) if kind == "PDF" else draw.encoded(red, kind)
    assert np.abs(first_page(data).pixels[10, 10].astype(int) - (255, 0, 0)).max() <= 3


def test_a_closed_document_gives_no_pages() -> None:
    for data in (draw.png(page()), draw.many_pages_pdf(1)):
        document = open_document(data, "a", ParseOptions())
        document.close()
        document.close()
        with pytest.raises(ValueError, match="closed"):
            document.page(0)


def test_a_page_that_is_not_there_is_an_input_error() -> None:
    with open_document(draw.png(page()), "a.png", ParseOptions()) as document:
        for index in (1, -1):
            with pytest.raises(InputError, match="has no page"):
                document.page(index)


@pytest.mark.parametrize(
    ("told", "kept"), [((300, 300), 300.0), ((30, 30), None), ((5000, 5000), None), ((204, 98), None), (None, None)]
)
def test_dpi_is_kept_when_it_is_plausible(told: tuple[int, int] | None, kept: float | None) -> None:
    data = draw.png(page(), dpi=told) if told else draw.png(page())
    assert first_page(data).dpi == kept


def test_72_dpi_of_a_jpeg_stands_for_unknown() -> None:
    assert first_page(draw.exif_turned(page(), 6, "JPEG")).dpi is None
    assert first_page(draw.jpeg(page(), dpi=(72, 72))).dpi is None
    assert first_page(draw.jpeg(page(), dpi=(200, 200))).dpi == 200


# ---- modes


def test_a_1_bit_page() -> None:
    bilevel = page().convert("1")
    for data in (draw.png(bilevel), draw.g4_tiff(page()), draw.encoded(bilevel, "BMP")):
        assert np.array_equal(first_page(data).pixels, rgb(bilevel))


def test_grey_palette_and_colour_pages_are_exact() -> None:
    for image in (page(), page().convert("L"), page().convert("P"), page().quantize(7)):
        assert np.array_equal(first_page(draw.png(image)).pixels, rgb(image))


def test_16_bit_grey_uses_its_full_scale_and_is_not_clipped() -> None:
    deep = draw.gray16(page())
    for data in (draw.png(deep), draw.encoded(deep, "TIFF")):
        assert np.array_equal(first_page(data).pixels, rgb(page().convert("L")))


def test_16_bit_grey_whose_zero_is_white_is_inverted() -> None:
    deep = draw.gray16(draw.inverted(page()))
    data = bytearray(draw.encoded(deep, "TIFF"))
    at = data.index(b"\x06\x01\x03\x00\x01\x00\x00\x00\x01")  # PhotometricInterpretation 1: zero is black
    data[at + 8] = 0
    assert np.array_equal(first_page(bytes(data)).pixels, rgb(page().convert("L")))


def test_32_bit_and_floating_point_grey_use_the_scale_that_holds_their_values() -> None:
    grey = np.asarray(page().convert("L"))
    expected = rgb(page().convert("L"))
    for scale in (1, 257, 8_000_000):
        values = grey.astype(np.int32) * np.int32(scale)
        assert distance(first_page(draw.encoded(Image.fromarray(values), "TIFF")).pixels, expected) < 1
    for scale in (1 / 255, 1, 257):
        values = grey.astype(np.float32) * scale
        assert distance(first_page(draw.encoded(Image.fromarray(values), "TIFF")).pixels, expected) < 1


def test_floating_point_pages_may_hold_values_that_are_no_numbers() -> None:
    values = np.asarray(page().convert("L"), np.float32) / 255
    values[0, :3] = np.nan, np.inf, -np.inf
    values.view(np.uint32)[0, 3] = 0x7F800001  # a signalling one
    pixels = first_page(draw.encoded(Image.fromarray(values), "TIFF")).pixels
    assert pixels[0, :4, 0].tolist() == [0, 255, 0, 0]
    assert distance(pixels[1:], rgb(page().convert("L"))[1:]) < 1


def test_cmyk_ycbcr_and_lab_pages_look_the_same() -> None:
    colours = page()
    colours.paste((200, 30, 40), (0, 0, 60, 60))
    colours.paste((30, 60, 200), (60, 0, 120, 60))
    lab = ImageCms.profileToProfile(
        colours, ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB"), outputMode="LAB"
    )
    for data in (
        draw.cmyk_jpeg(colours),
        draw.encoded(colours.convert("CMYK"), "TIFF"),
        draw.encoded(colours.convert("YCbCr"), "TIFF", compression="tiff_adobe_deflate"),
        draw.encoded(lab, "TIFF"),
    ):
        assert distance(first_page(data).pixels, rgb(colours)) < 4


@pytest.mark.parametrize(
    "mode", ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB", "HSV", "I", "F", "I;16"]
)
def test_every_mode_of_pillow_becomes_rgb(mode: str) -> None:
    white = Image.new(mode, (30, 20), _white(mode))
    if mode == "P":
        white.putpalette([255, 255, 255] * 256)
    if mode == "PA":
        white = Image.new("P", (30, 20))
        white.putpalette([255, 255, 255] * 256)
        white = white.convert("PA")
    to_rgb = inputs._converter(white, {}, [])
    strip = np.broadcast_to(to_rgb(white), (20, 30, 3))
    assert strip.dtype == np.uint8
    assert strip.min() >= 254


def _white(mode: str) -> float | tuple[int, ...]:
    return {
        "LA": (255, 255),
        "P": 1,
        "PA": (1, 255),
        "RGB": (255, 255, 255),
        "RGBA": (255, 255, 255, 255),
        "RGBX": (255, 255, 255, 0),
        "CMYK": (0, 0, 0, 0),
        "YCbCr": (255, 128, 128),
        "LAB": (255, 128, 128),
        "HSV": (0, 0, 255),
        "I": 65535,
        "F": 1.0,
        "I;16": 65535,
    }.get(mode, 255)


# ---- transparency (P-071)


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
def test_black_ink_on_transparent_is_read_on_white(kind: str) -> None:
    options = {"lossless": True} if kind == "WEBP" else {}
    seen = first_page(draw.encoded(draw.on_transparent(page(), 0), kind, **options))
    assert distance(seen.pixels, rgb(page().convert("L"))) < 1
    assert seen.warnings == ()


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
def test_white_ink_on_transparent_is_read_on_black_and_said(kind: str) -> None:
    options = {"lossless": True} if kind == "WEBP" else {}
    seen = first_page(draw.encoded(draw.on_transparent(page(), 255), kind, **options))
    assert distance(seen.pixels, rgb(draw.inverted(page().convert("L")))) < 1
    assert len(seen.warnings) == 1
    assert "black" in seen.warnings[0]


def test_grey_with_alpha_is_read_either_way() -> None:
    for ink, expected in ((0, page().convert("L")), (255, draw.inverted(page().convert("L")))):
        seen = first_page(draw.png(draw.on_transparent(page(), ink).convert("LA")))
        assert distance(seen.pixels, rgb(expected)) < 1


def test_transparent_colours_of_a_palette_become_white() -> None:
    assert distance(first_page(draw.palette_alpha_png(page())).pixels, rgb(page())) < 6
    one_colour = draw.png(page(), transparency=(255, 255, 255))
    assert np.array_equal(first_page(one_colour).pixels, rgb(page()))


def test_an_alpha_channel_without_transparency_changes_nothing() -> None:
    for image in (page(), draw.inverted(page()), draw.blank()[0]):
        seen = first_page(draw.png(image.convert("RGBA")))
        assert np.array_equal(seen.pixels, rgb(image))
        assert seen.warnings == ()


def test_a_wholly_transparent_page_is_white() -> None:
    assert first_page(draw.png(Image.new("RGBA", (50, 40), (0, 0, 0, 0)))).pixels.min() == 255


# ---- turns (P-067)


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_all_eight_exif_orientations_give_the_same_page(orientation: int, kind: str) -> None:
    options = {"WEBP": {"lossless": True}}.get(kind, {})
    stored = Image.open(io.BytesIO(draw.exif_turned(page(), orientation)))
    data = draw.encoded(stored, kind, exif=stored.getexif(), **options)
    seen = first_page(data)
    assert np.array_equal(seen.pixels, rgb(page()))
    assert seen.pixels.flags.c_contiguous
    assert seen.rotation == 0
    wide = (0.0, 0.0, 500.0, 400.0)
    assert seen.source_box == (wide if orientation <= 4 else (0.0, 0.0, 400.0, 500.0))


def test_a_photo_turned_by_exif_is_upright() -> None:
    assert distance(first_page(draw.exif_turned(page(), 6, "JPEG")).pixels, rgb(page())) < 4


@pytest.mark.parametrize("orientation", [0, 9, 4711])
def test_nonsense_orientations_are_ignored(orientation: int) -> None:
    exif = Image.Exif()
    exif[274] = orientation
    assert np.array_equal(first_page(draw.png(page(), exif=exif)).pixels, rgb(page()))


def test_damaged_exif_does_not_cost_the_page() -> None:
    data = draw.jpeg(page(), exif=b"Exif\0\0II*\0\xff\xff\xff\xff")
    assert first_page(data).pixels.shape == (400, 500, 3)


# ---- pages of images (P-072)


def test_all_pages_of_a_tiff_are_pages() -> None:
    upside_down = draw.turned(page(), 180)
    pages = [page(), upside_down, page(), upside_down, draw.turned(page(), 90)]
    with open_document(draw.g4_tiff(*pages), "fax.tif", ParseOptions()) as document:
        assert document.page_count == 5
        for index in (4, 0, 3, 1, 2):
            seen = document.page(index)
            assert seen.index == index
            assert np.array_equal(seen.pixels, rgb(pages[index].convert("1")))


def test_a_damaged_page_of_a_tiff_leaves_its_neighbours() -> None:
    data = draw.encoded(page(), "TIFF", compression="tiff_adobe_deflate", save_all=True, append_images=[page()] * 2)
    streams = [at for at in range(len(data)) if data.startswith(b"\x78\x9c", at) or data.startswith(b"\x78\xda", at)]
    middle = [at for at in streams if len(data) / 3 < at < len(data) * 0.6]
    broken = bytearray(data)
    for at in middle:
        broken[at : at + 40] = b"\xff" * 40
    with open_document(bytes(broken), "three.tif", ParseOptions()) as document:
        assert np.array_equal(document.page(0).pixels, rgb(page()))
        with pytest.raises(InputError, match=r"page 2 of three\.tif"):
            document.page(1)
        assert np.array_equal(document.page(2).pixels, rgb(page()))


def test_a_tiff_with_endless_pages_is_refused_soon() -> None:
    """Pillow alone counts 100,000 of them for minutes."""
    data = draw.many_pages_tiff(100_000)
    started = time.monotonic()
    error = refusal(data)
    assert "more than 10000 pages" in str(error)
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_of_an_animation_the_first_frame_is_read_and_said(kind: str) -> None:
    bilevel = page().convert("L")
    data = draw.animation(kind, bilevel, draw.turned(bilevel, 180), draw.inverted(bilevel))
    with open_document(data, "moving", ParseOptions()) as document:
        assert document.page_count == 1
        seen = document.page(0)
    assert distance(seen.pixels, rgb(bilevel)) < 1
    assert len(seen.warnings) == 1
    assert "first frame" in seen.warnings[0]


# ---- limits (P-074)


def test_an_image_above_the_limit_is_refused_before_decoding_and_the_limit_is_named() -> None:
    error = refusal(draw.hostile_png(20_000, 20_000))
    assert "400000000 pixels" in str(error)
    assert "100000000" in str(error)
    assert "--max-pixels 400000000" in error.fix


def test_the_limit_is_exact() -> None:
    data = draw.png(Image.new("L", (100, 50)))
    assert first_page(data, ParseOptions(max_pixels=5000)).pixels.shape == (50, 100, 3)
    assert "--max-pixels 5000" in refusal(data, ParseOptions(max_pixels=4999)).fix


def test_a_large_plain_scan_is_read_without_a_word() -> None:
    """Pillow alone would warn from 89 million pixels on."""
    pixels = first_page(draw.hostile_png(9500, 9600)).pixels
    assert pixels.shape == (9600, 9500, 3)
    assert pixels[::97, ::89].min() == 255


def test_the_limit_may_be_raised_above_that_of_pillow() -> None:
    limit = Image.MAX_IMAGE_PIXELS
    with open_document(draw.hostile_png(20_000, 10_000), "a", ParseOptions(max_pixels=200_000_000)) as document:
        assert document.page_count == 1
    assert limit == Image.MAX_IMAGE_PIXELS


def test_one_page_of_a_tiff_above_the_limit_leaves_its_neighbours() -> None:
    data = draw.encoded(Image.new("1", (50, 40)), "TIFF", save_all=True, append_images=[Image.new("1", (500, 400))])
    with open_document(data, "two.tif", ParseOptions(max_pixels=10_000)) as document:
        assert document.page(0).pixels.shape == (40, 50, 3)
        with pytest.raises(InputError, match=r"page 2 of two\.tif has 500 x 400 = 200000 pixels"):
            document.page(1)


def test_tiles_above_the_limit_are_refused() -> None:
    data = bytearray(draw.encoded(Image.new("L", (64, 64)), "TIFF"))
    assert data[:4] == b"II*\0"
    tags = {int.from_bytes(data[at : at + 2], "little"): at for at in _tag_offsets(bytes(data))}
    # Rewrite RowsPerStrip and StripOffsets as the width and height of a tile: 65535 x 65535.
    for tag, new in ((278, 322), (273, 323)):
        at = tags[tag]
        data[at : at + 12] = new.to_bytes(2, "little") + b"\x04\0\x01\0\0\0" + (65535).to_bytes(4, "little")
    refusal(bytes(data))


def _tag_offsets(data: bytes) -> list[int]:
    directory = int.from_bytes(data[4:8], "little")
    count = int.from_bytes(data[directory : directory + 2], "little")
    return [directory + 2 + 12 * number for number in range(count)]


def test_too_many_selected_pages_are_refused_and_the_limit_is_named() -> None:
    data = draw.many_pages_pdf(11)
    error = refusal(data, ParseOptions(max_pages=10))
    assert "11 pages" in str(error)
    assert "--max-pages 11" in error.fix
    with open_document(data, "a", ParseOptions(max_pages=10, pages="2-11")) as document:
        assert len(document.page_indices) == 10


def test_no_page_of_a_long_document_is_lost() -> None:
    with open_document(draw.many_pages_pdf(1001), "a", ParseOptions()) as document:
        assert document.page_count == 1001
        assert document.page_indices == tuple(range(1001))
        assert document.page(1000).pixels.min() < 128


def test_a_pdf_page_above_the_limit_is_rendered_at_the_largest_resolution_that_fits() -> None:
    seen = first_page(draw.hostile_pdf(), ParseOptions(max_pixels=1_000_000))
    assert seen.pixels.shape == (1000, 1000, 3)
    assert seen.dpi == pytest.approx(5)
    assert len(seen.warnings) == 1
    assert "5.0 instead of 144 dpi" in seen.warnings[0]
    assert seen.pixels.min() < 100


@pytest.mark.parametrize("size", [(3000, 1), (1, 3000), (0.01, 14400), (700, 500)])
def test_no_shape_of_a_page_escapes_the_limit(size: tuple[float, float]) -> None:
    data = draw.blank_pdf(*size)
    for limit in (1, 100, 997):
        seen = first_page(data, ParseOptions(max_pixels=limit))
        assert 1 <= seen.width_px * seen.height_px <= limit


def test_bands_of_a_large_page_join_without_a_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    data = draw.english_pdf()[0]
    whole = first_page(data).pixels
    monkeypatch.setattr(inputs, "_BAND_PIXELS", 100_000)
    assert np.abs(first_page(data).pixels.astype(int) - whole).max() <= 4


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak of memory from Linux")
@pytest.mark.parametrize(
    ("made_by", "ceiling_mib"),
    [
        ("hostile_png()", 50),
        ("hostile_pdf()", 600),
        ("hostile_png(10000, 10000)", 1024),
        ("exif_turned(Image.new('RGB', (6000, 6000), 'white'), 6, 'JPEG')", 1024 * 36 // 100),
    ],
)
def test_memory_stays_below_a_ceiling(made_by: str, ceiling_mib: int, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(eval(f"draw.{made_by}", {"draw": draw, "Image": Image}))
    program = """
        import sys
        from pathlib import Path
        from docvino.errors import InputError
        from docvino.inputs import open_document
        from docvino.settings import ParseOptions

        def mib(key):
            lines = Path("/proc/self/status").read_text().splitlines()
            return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1024

        data = Path(sys.argv[1]).read_bytes()
        idle = mib("VmRSS")
        try:
            with open_document(data, "a", ParseOptions()) as document:
                document.page(0)
        except InputError:
            pass
        print(mib("VmHWM") - idle)
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), file], capture_output=True, text=True, check=True
    )
    assert float(run.stdout) < ceiling_mib
    assert run.stderr == ""


# ---- page ranges


@pytest.mark.parametrize(
    ("text", "indices"),
    [
        ("1", (0,)),
        ("1-3,7", (0, 1, 2, 6)),
        ("5-", (4, 5, 6, 7)),
        ("8", (7,)),
        ("3,1,2-3, 1", (0, 1, 2)),
        (" 2 - 4 ", (1, 2, 3)),
        ("1-8", tuple(range(8))),
    ],
)
def test_page_ranges_count_from_1_and_come_sorted_without_repeats(text: str, indices: tuple[int, ...]) -> None:
    assert parse_page_ranges(text, 8) == indices


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "0",
        "0-3",
        "-3",
        "9",
        "7-9",
        "3-2",
        "1,,2",
        "1-2-3",
        "a",
        "1.5",
        "９",
        "1;2",
        "9-",
        "1" * 5000,
        "1-999999999",
    ],
)
def test_other_page_ranges_are_refused_with_the_rule(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_page_ranges(text, 8)
    assert "start at 1" in caught.value.fix
    assert "8 pages" in caught.value.fix


def test_only_the_pages_asked_for_are_listed_and_the_others_can_still_be_read() -> None:
    with open_document(draw.many_pages_pdf(9), "a", ParseOptions(pages="7,2-3")) as document:
        assert document.page_count == 9
        assert document.page_indices == (1, 2, 6)
        assert document.page(8).index == 8
    assert "1 page;" in refusal(draw.png(page()), ParseOptions(pages="2")).fix


# ---- PDF


def test_pages_of_a_pdf_have_the_resolution_asked_for() -> None:
    for dpi in (72, 144, 200):
        seen = first_page(draw.english_pdf()[0], ParseOptions(dpi=dpi))
        assert seen.dpi == dpi
        assert abs(seen.width_px - 595 * dpi / 72) <= 1
        assert abs(seen.height_px - 842 * dpi / 72) <= 1
        assert seen.source_box == (0.0, 0.0, 595.0, 842.0)
        assert seen.warnings == ()


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_rotate_and_crop_box_are_honoured(rotation: int) -> None:
    marked = draw.rotated_pdf(rotation)
    for scale in (1, 3):
        seen = first_page(marked.data, ParseOptions(dpi=72 * scale))
        assert (seen.width_px, seen.height_px) == tuple(side * scale for side in marked.size)
        assert seen.source_box == marked.crop_box
        assert seen.rotation == 0
        expected = [side * scale for side in marked.word_box]
        # Glyphs have a little white at their sides, and smooth edges.
        assert ink_box(seen.pixels) == pytest.approx(expected, abs=2.5 * scale)


def test_form_fields_and_annotations_are_drawn() -> None:
    pixels = first_page(draw.form_pdf(), DPI_72).pixels
    assert pixels[40, 160].tolist() == [0, 0, 255]
    field = pixels[26:50, 20:120]
    assert (field.max(axis=2) < 100).sum() > 20


def test_a_scanned_pdf_shows_its_images() -> None:
    with open_document(draw.image_pdf(page(), draw.turned(page(), 180)), "scan.pdf", ParseOptions(dpi=150)) as document:
        assert document.source.media_type == "application/pdf"
        assert distance(document.page(0).pixels, rgb(page())) < 6
        assert distance(document.page(1).pixels, rgb(draw.turned(page(), 180))) < 6


@pytest.mark.parametrize("rc4", [False, True], ids=["AES-256", "RC4-128"])
def test_a_locked_pdf_needs_the_right_password_and_never_tells_it(rc4: bool, caplog: pytest.LogCaptureFixture) -> None:
    data = draw.encrypted(draw.english_pdf()[0], rc4=rc4)
    missing = refusal(data)
    wrong = refusal(data, ParseOptions(password="guess-4711"))
    assert "needs a password" in str(missing)
    assert "password is wrong" in str(wrong)
    for error in (missing, wrong):
        assert "--password" in error.fix
        assert "guess-4711" not in f"{error!r} {error.fix} {error.__cause__!r} {caplog.text}"
    opened = first_page(data, ParseOptions(password=draw.PASSWORD))
    assert np.array_equal(opened.pixels, first_page(draw.english_pdf()[0]).pixels)
    assert first_page(data, ParseOptions(password=draw.OWNER_PASSWORD)).dpi == 144


def test_a_pdf_with_an_owner_password_alone_opens_with_any_password_or_none() -> None:
    data = draw.encrypted(draw.english_pdf()[0], user="")
    for password in (None, "", "that of another file"):
        assert first_page(data, ParseOptions(password=password)).dpi == 144


def test_a_null_page_is_named_and_the_others_are_read() -> None:
    with open_document(draw.null_page_pdf(), "gaps.pdf", DPI_72) as document:
        assert document.page_count == 4
        with pytest.raises(InputError, match=r"page 2 of gaps\.pdf"):
            document.page(1)
        for index in (0, 2, 3):
            assert document.page(index).pixels.min() < 128


def test_junk_before_the_header_and_a_wrong_start_of_the_table_are_repaired() -> None:
    data = draw.english_pdf()[0]
    lost = data[: data.rindex(b"startxref")] + b"startxref\n7\n%%EOF\n"
    for file in (draw.junk_before(data), lost):
        with open_document(file, "a.pdf", ParseOptions()) as document:
            assert document.page_count == 3
            assert np.array_equal(document.page(0).pixels, first_page(data).pixels)


def test_a_pdf_without_pages_is_refused() -> None:
    refusal(draw.encrypted(draw.english_pdf()[0]))  # whose reason PDFium remembers
    assert "without pages" in str(refusal(draw.empty_tree_pdf()))


def test_many_threads_may_read_at_once() -> None:
    data = draw.english_pdf()[0]
    expected = first_page(data).pixels
    image = draw.png(page())
    failures = []

    def read(number: int) -> None:
        if number % 2 and not np.array_equal(first_page(image).pixels, rgb(page())):
            failures.append(number)
        if not np.array_equal(first_page(data).pixels, expected):
            failures.append(number)

    limit = Image.MAX_IMAGE_PIXELS
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(read, range(24)))
    assert failures == []
    assert limit == Image.MAX_IMAGE_PIXELS


# ---- files that cannot be read (P-076, P-077, P-080)


@pytest.mark.parametrize("name", draw.broken_files())
def test_a_broken_file_gives_one_error_that_names_it(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    error = refusal(draw.broken_files()[name], name=name)
    assert name in str(error)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("head", "kind", "better"),
    [
        (b"\0\0\0\x18ftypheic\0\0\0\0", "HEIC", "JPEG or PNG"),
        (b"\0\0\0\x18ftypmif1\0\0\0\0", "HEIC", "JPEG or PNG"),
        (b"\0\0\0\x18ftypavif\0\0\0\0", "AVIF", "JPEG or PNG"),
        (b"\0\0\0\x0cjP  \r\n\x87\n", "JPEG 2000", "JPEG or PNG"),
        (b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>', "SVG", "PNG or PDF"),
        (b"PK\x03\x04 word/document.xml with %PDF-1.7 inside", "DOCX", "PDF"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "DOC", "PDF"),
        (b"%!PS-Adobe-3.0\n", "PostScript", "PDF"),
    ],
)
def test_formats_that_are_known_but_not_read_are_named_with_a_way_out(head: bytes, kind: str, better: str) -> None:
    error = refusal(head + b" " * 100, name="a.png")
    assert kind in str(error)
    assert f"convert it to {better}" in error.fix


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PDF"])
def test_a_file_cut_anywhere_gives_an_error_or_the_whole_page(kind: str) -> None:
    data = draw.image_pdf(page()) if kind == "PDF" else draw.encoded(page(), kind)
    whole = first_page(data).pixels
    for share in (0.001, 0.02, 0.1, 0.4, 0.8, 0.99):
        try:
            seen = first_page(draw.truncated(data, share)).pixels
        except InputError:
            continue
        assert np.array_equal(seen, whole)


def test_half_a_page_is_an_error_even_when_another_library_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    for name in ("truncated.jpg", "truncated.png", "bad_crc.png"):
        refusal(draw.broken_files()[name])
    assert ImageFile.LOAD_TRUNCATED_IMAGES


def test_a_page_that_does_not_fit_into_memory_is_an_input_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(inputs, "_render", no_memory)
    monkeypatch.setattr(inputs, "_converter", no_memory)
    assert "not enough memory" in str(refusal(draw.many_pages_pdf(1)))
    assert "not enough memory" in str(refusal(draw.png(page())))


def test_messages_hold_no_folder_of_this_machine(tmp_path: Path) -> None:
    folder = tmp_path / "secret-folder"
    folder.mkdir()
    (folder / "a.pdf").write_bytes(draw.broken_files()["truncated.pdf"])
    data, name = read_source(str(folder / "a.pdf"))
    error = refusal(data, name=name)
    assert "secret-folder" not in f"{error} {error.fix}"


# ---- finding and reading files (P-069)

ODD_NAMES = [
    "扫描件 第一页.png",
    "Grüße & Küsse.png",
    "emoji 📄.png",
    "a b  c.png",
    "[1].png",
    "長" * 60 + ".png",
    "n" * 196 + ".png",
]


@pytest.mark.parametrize("name", ODD_NAMES, ids=range(len(ODD_NAMES)))
def test_files_with_odd_names_are_found_and_read(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "文件夹 📁"
    folder.mkdir()
    (folder / name).write_bytes(draw.png(page()))
    assert find_inputs([str(folder)]) == [str(folder / name)]
    assert find_inputs([str(folder / name)]) == [str(folder / name)]
    data, told = read_source(str(folder / name))
    assert told == name
    with open_document(data, told, ParseOptions()) as document:
        assert document.source.name == name
        assert document.page(0).pixels.shape == (400, 500, 3)


def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"%PDF-")))
    assert read_source("-") == (b"%PDF-", "stdin")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    with pytest.raises(InputError, match="stdin is empty"):
        read_source("-")


def test_what_cannot_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_source(str(tmp_path / "absent.pdf"))
    with pytest.raises(InputError, match="is a folder"):
        read_source(str(tmp_path))
    with pytest.raises(InputError, match="not a valid path"):
        read_source("a\0b")
    (tmp_path / "empty.pdf").touch()
    with pytest.raises(InputError, match=r"empty\.pdf is empty"):
        read_source(str(tmp_path / "empty.pdf"))

    def forbidden(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_bytes", forbidden)
    with pytest.raises(InputError, match="permission denied"):
        read_source(str(tmp_path / "empty.pdf"))


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("b.pdf", "a.PNG", "notes.txt", ".hidden.png", "sub/c.tiff", "sub/.cache/d.png", "sub/deep/e.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "none").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(found: list[str]) -> list[str]:
    return [name.replace(os.sep, "/") for name in found]


@pytest.mark.usefixtures("tree")
def test_a_folder_stands_for_its_documents_sorted_without_hidden_ones() -> None:
    assert names(find_inputs(["."])) == ["a.PNG", "b.pdf", "sub/c.tiff", "sub/deep/e.jpg"]
    assert names(find_inputs(["sub"])) == ["sub/c.tiff", "sub/deep/e.jpg"]


@pytest.mark.usefixtures("tree")
def test_patterns_are_expanded() -> None:
    assert names(find_inputs(["*.pdf"])) == ["b.pdf"]
    assert names(find_inputs(["sub/*"])) == ["sub/c.tiff", "sub/deep/e.jpg"]
    assert names(find_inputs(["**/*.jpg"])) == ["sub/deep/e.jpg"]


def test_absolute_patterns_are_expanded(tree: Path) -> None:
    assert find_inputs([str(tree / "*.pdf")]) == [str(tree / "b.pdf")]


def test_each_file_comes_once_in_the_order_of_the_arguments(tree: Path) -> None:
    assert names(find_inputs(["b.pdf", "-", "*.pdf", str(tree / "b.pdf"), "notes.txt", "-", "."])) == [
        "b.pdf",
        "-",
        "notes.txt",
        "a.PNG",
        "sub/c.tiff",
        "sub/deep/e.jpg",
    ]


@pytest.mark.usefixtures("tree")
@pytest.mark.parametrize("argument", ["absent.pdf", "*.webp", "none", "no/such/folder", "a\0b", ""])
def test_an_argument_that_stands_for_nothing_is_an_error(argument: str) -> None:
    with pytest.raises(InputError):
        find_inputs(["b.pdf", argument])
