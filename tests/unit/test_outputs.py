"""Facts of the files of a document: what they are called, that links resolve, and that a failure costs one format."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import docx
import numpy as np
import openpyxl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import draw
from docvino import outputs
from docvino.api import Reading
from docvino.document import Block, ContentFormat, Document
from docvino.errors import ConfigError, DocvinoError, InputError, MissingExtraError
from docvino.inputs import open_document
from docvino.outputs import FORMATS, TEXTS, Finished, Format, parse_formats, text_of, write_outputs
from docvino.render.docx import to_docx
from docvino.render.overlay import overlay_png
from docvino.render.pdf import pictures_pdf
from docvino.render.res import LABELS, to_res
from docvino.render.xlsx import to_xlsx
from docvino.settings import ParseOptions
from sample_documents import block, document, line, page, png, table

PICTURE = png(600, 800, "white")


def write(
    folder: Path, made: Document, formats: Sequence[Format] = FORMATS, source: bytes = PICTURE
) -> dict[Format, DocvinoError]:
    folder.mkdir(exist_ok=True)
    with open_document(source, "scan", ParseOptions(dpi=72)) as opened:
        return write_outputs(Finished(made, folder, opened), formats)


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def blocks() -> tuple[Block, ...]:
    text = block("text", "body", lines=(line("body", 60, 80, 200, 100),))
    return text, table(["1", "2"]), block("image")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a document called a[1], whose name is a pattern to those who do not mind."""
    return tmp_path / "a[1]"


def test_every_format_has_its_files(folder: Path) -> None:
    assert write(folder, document(page(*blocks()))) == {}
    assert names(folder) == [
        *(f"a[1].{ending}" for ending in ("docx", "html", "json", "md", "pdf", "txt", "xlsx")),
        "a[1]_res.json",
        "pages/p1.png",
        "tables/p1-b2.csv",
    ]


@pytest.mark.parametrize("wanted", FORMATS)
def test_only_the_format_asked_for_is_written(folder: Path, wanted: Format) -> None:
    assert write(folder, document(page(*blocks())), [wanted]) == {}
    assert len(names(folder)) == 1


def test_figures_are_linked_from_markdown_and_inside_html_and_word(folder: Path) -> None:
    (folder / "images").mkdir(parents=True)
    (folder / "images/p1-b3.png").write_bytes(png())
    write(folder, document(page(*blocks())))
    targets = re.findall(r"!\[.*?\]\((.*?)\)", (folder / "a[1].md").read_text(encoding="utf-8"))
    assert targets == ["images/p1-b3.png"]
    assert (folder / targets[0]).is_file()
    assert "data:image/png;base64," in (folder / "a[1].html").read_text(encoding="utf-8")
    assert len(docx.Document(str(folder / "a[1].docx")).inline_shapes) == 1


def test_pages_of_several_have_their_numbers_in_the_names(folder: Path) -> None:
    made = document(page(*blocks(), index=1), page(*blocks(), index=3), media_type="application/pdf")
    assert write(folder, made, ["res", "png", "csv"], draw.image_pdf(*[Image.new("L", (60, 80))] * 4)) == {}
    assert names(folder) == [
        "a[1]_1_res.json", "a[1]_3_res.json", "pages/p2.png", "pages/p4.png", "tables/p2-b2.csv", "tables/p4-b2.csv",
    ]  # fmt: skip


def test_concatenated_pages_are_one_file(folder: Path) -> None:
    pages = (page(*blocks()), page(*blocks(), index=1))
    made = document(*pages, media_type="application/pdf", restructure_pages=True, concatenate_pages=True)
    write(folder, document(*pages, media_type="application/pdf"), ["res"])
    assert names(folder) == ["a[1]_0_res.json", "a[1]_1_res.json"]
    write(folder, made, ["res"])
    assert names(folder) == ["a[1]_res.json"]
    assert json.loads((folder / "a[1]_res.json").read_text(encoding="utf-8"))["page_count"] == 2


def test_tables_and_pages_of_an_earlier_run_are_gone(folder: Path) -> None:
    write(folder, document(page(*blocks()), page(*blocks(), index=1)), ["csv", "res"])
    assert len(names(folder)) == 4
    write(folder, document(page(*blocks())), ["csv", "res"])
    assert names(folder) == ["a[1]_res.json", "tables/p1-b2.csv"]


def test_csv_begins_with_the_mark_by_which_excel_knows_utf_8(folder: Path) -> None:
    write(folder, document(page(table(["版", "2"]))), ["csv"])
    assert (folder / "tables/p1-b1.csv").read_bytes() == b"\xef\xbb\xbf\xe7\x89\x88,2\r\n"


def test_a_turned_page_is_shown_upright(folder: Path) -> None:
    stored = Image.new("RGB", (800, 600), "white")
    stored.paste((255, 0, 0), (0, 0, 400, 600))  # the left half is red; turned clockwise it is above
    upright = page(block("text", "x"), rotation_degrees=90)
    write(folder, document(upright), ["png"], draw.png(stored))
    with Image.open(folder / "pages/p1.png") as picture:
        assert picture.size == (600, 800)
        assert (picture.getpixel((500, 300)), picture.getpixel((500, 700))) == ((255, 0, 0), (255, 255, 255))


@pytest.mark.parametrize("kind", TEXTS)
def test_texts_for_standard_output_are_those_of_the_files(folder: Path, kind: Format) -> None:
    made = document(page(*blocks()))
    write(folder, made, [kind])
    assert text_of(made, kind) == (folder / f"a[1].{kind}").read_text(encoding="utf-8")


ANY_LABEL = st.sampled_from([*LABELS, "title", "figure", "figure_caption", "equation", "unheard of"])
ANY_TEXT = st.text(max_size=30) | st.sampled_from(
    [r"\(a\)", r"\[x^a^b\]", "• ", "\n\n", "\t", "=1", "<b>", "\x00\ud800", "𠮷"]
)


@settings(max_examples=40, deadline=None)
@given(label=ANY_LABEL, text=ANY_TEXT, form=st.sampled_from(["text", "html", "latex"]))
def test_any_text_under_any_label_can_be_written_in_every_format(label: str, text: str, form: ContentFormat) -> None:
    made = document(
        page(block(label, text, form), table([text, text]), block(label, "x", lines=(line(text, 1, 1, 9, 5),)))
    )
    for kind in TEXTS[::2]:
        text_of(made, kind)
    to_docx(made)
    to_xlsx(made)
    list(to_res(made, None))
    pictures_pdf(made, lambda _: np.zeros((80, 60, 3), np.uint8))
    overlay_png(made.pages[0], np.zeros((80, 60, 3), np.uint8))


def test_a_reading_of_the_library_has_the_same_texts() -> None:
    made = document(page(*blocks()))
    reading = Reading(made)
    assert [reading.markdown, reading.json, reading.html, reading.text] == [text_of(made, kind) for kind in TEXTS]


# ---- failures


@pytest.mark.parametrize("broken", FORMATS)
def test_a_format_that_fails_costs_only_its_own_files(
    folder: Path, broken: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = document(page(*blocks()))
    write(folder, made)
    before = names(folder)

    def fail(_: Finished) -> None:
        raise RuntimeError("no ink")

    changed = outputs._Output(fail, outputs._OUTPUTS[broken].files)
    monkeypatch.setitem(outputs._OUTPUTS, broken, changed)
    (problem,) = write(folder, made).values()
    assert str(problem) == f"{broken} was not written: RuntimeError: no ink"
    assert problem.exit_code == 1
    # That of the earlier run is gone, too: it would look like success.
    gone = set(before) - set(names(folder))
    assert len(gone) == 1
    assert len(before) == len(names(folder)) + 1


def test_a_source_that_cannot_become_a_searchable_pdf_is_said(folder: Path) -> None:
    source = draw.many_pages_pdf(3).replace(b"/Count 3", b"/Count 2")
    made = document(page(*blocks(), source_box=(0, 0, 100, 100)), media_type="application/pdf")
    with open_document(draw.many_pages_pdf(1), "scan", ParseOptions()) as opened:
        opened._data = source
        folder.mkdir()
        problems = write_outputs(Finished(made, folder, opened), ["md", "pdf"])
    assert isinstance(problems["pdf"], InputError)
    assert names(folder) == ["a[1].md"]


def test_a_full_disk_is_a_config_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(outputs, "write_atomically", full)
    problems = write(folder, document(page(*blocks())), ["md", "txt"])
    assert {str(problem) for problem in problems.values()} == {
        f"cannot write {name} to {folder}: No space left on device" for name in ("md", "txt")
    }
    assert all(isinstance(problem, ConfigError) for problem in problems.values())


def test_of_a_document_without_a_page_only_json_stays(folder: Path) -> None:
    write(folder, document(page(*blocks())))
    write(folder, document(page(status="failed", error="x")))
    assert names(folder) == ["a[1].json"]


def test_a_page_that_cannot_be_read_again_is_left_out(folder: Path) -> None:
    made = document(page(*blocks()), page(block("text", "x"), index=5))
    assert write(folder, made, ["png", "pdf"]) == {}
    assert names(folder) == ["a[1].pdf", "pages/p1.png"]


# ---- names of formats


def test_formats_are_a_list_by_comma_in_any_order() -> None:
    assert parse_formats("pdf, md,md") == ("md", "pdf")


@pytest.mark.parametrize(("text", "fix"), [("dox", "did you mean 'docx'?"), ("md,", "known: md, json"), ("", "known")])
def test_an_unknown_format_is_an_error_that_names_the_known_ones(text: str, fix: str) -> None:
    with pytest.raises(ConfigError, match="unknown format") as caught:
        parse_formats(text)
    assert caught.value.fix.startswith(fix)


@pytest.mark.parametrize(
    ("wanted", "module", "extra"),
    [("docx", "docx", "office"), ("xlsx", "openpyxl", "office"), ("pdf", "pikepdf", "pdf")],
)
def test_a_missing_extra_is_told_with_the_command_that_installs_it(
    wanted: Format, module: str, extra: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "find_spec", lambda name: None if name == module else object())
    with pytest.raises(MissingExtraError) as caught:
        parse_formats(f"md,{wanted}")
    assert caught.value.fix == f'pip install "docvino[{extra}]"'
    assert isinstance(write(folder, document(page(*blocks())), ["md", wanted])[wanted], MissingExtraError)


def test_what_needs_no_extra_works_without_any() -> None:
    code = "import sys\nsys.modules.update(dict.fromkeys(['docx', 'openpyxl', 'pikepdf', 'lxml']))\n"
    code += "from docvino.outputs import parse_formats\nprint(parse_formats('md,json,html,csv,txt,res,png'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_files_can_be_opened_by_their_own_readers(folder: Path) -> None:
    write(folder, document(page(*blocks())))
    assert openpyxl.load_workbook(folder / "a[1].xlsx").sheetnames == ["Page 1 table 1"]
    assert [paragraph.text for paragraph in docx.Document(str(folder / "a[1].docx")).paragraphs][:1] == ["body"]
    assert json.loads((folder / "a[1]_res.json").read_text(encoding="utf-8"))["input_path"] == "scan.png"
    with open_document((folder / "a[1].pdf").read_bytes(), "a.pdf", ParseOptions()) as opened:
        assert opened.page_count == 1
        assert len(opened.text_points(0)) == len("body" + "1" + "2")
    assert Image.open(io.BytesIO((folder / "pages/p1.png").read_bytes())).size == (600, 800)
