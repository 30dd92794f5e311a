"""Facts of every output of ten drawn pages, read by programs that are not ours; skipped where a program is absent.

The layout model is a graph of PP-DocLayoutV3's inputs and outputs that finds the regions as drawn. The reader says what
is written there, so that every mistake in a file is one of its making; nano reads the same pages in a test marked slow.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import openpyxl
import pytest
from PIL import Image
from python_calamine import CalamineWorkbook

from docvino.batch import Batch
from docvino.bundle import bundle_folder
from docvino.convert.ir import convert
from docvino.convert.vlm import convert_vlm
from docvino.fetch import source_path
from docvino.outputs import FORMATS
from docvino.parser import Parser
from docvino.settings import ParseOptions, RuntimeConfig
from docvino.specs import doclayout, nano
from onnx_layout import layout_onnx
from pdf_words import NEAR_PT, Word, poppler_words
from ten_pages import (
    FIRST_PART,
    LIST,
    MARK_STEP,
    SECOND_PART,
    SPANNING,
    SPECIAL,
    WIDE,
    Drawn,
    Knowing,
    layout_rows,
    ten_pages,
)

HEADINGS = [
    (1, "How a Machine Read Forty Boxes"),
    (2, "Abstract"),
    (2, "1 Introduction"),
    (2, "2 Method"),
    (3, "2.1 Order of work"),
    (3, "2.2 Light"),
    (2, "三、旧档案的整理办法"),
    (2, "3 Formulas"),
    (2, "4 Results"),
    (2, "附录 Appendix"),
    (2, "References"),
    (2, "5 What was never on paper"),
]
TABLES = [FIRST_PART, SECOND_PART, SPANNING, WIDE]
PICTURES = ["p2-b3", "p3-b5", "p7-b2", "p7-b3", "p7-b7", "p8-b4", "p10-b5"]
FORMULAS = ["a^{2}+b^{2}=c^{2}", r"\frac{1}{2}mv^{2}", "x<3"]
MARKDOWN = "commonmark+tex_math_dollars+raw_html"


@dataclass(frozen=True)
class Written:
    """The folder of the document, and the pages as they were drawn."""

    folder: Path
    pages: tuple[Drawn, ...]

    def __getitem__(self, ending: str) -> Path:
        return self.folder / f"ten.{ending}"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> RuntimeConfig:
    """nano with PP-DocLayoutV3 beside it, as a user's own model has it."""
    runtime = RuntimeConfig(
        preset="own", precision="fp16", data_dir=tmp_path_factory.mktemp("data"), model_cache=False, kv_cache_mib=128
    )
    graph = source_path(doclayout.V3, runtime.data_dir)
    graph.parent.mkdir(parents=True)
    graph.write_bytes(layout_onnx(layout_rows(ten_pages()[1]), MARK_STEP))
    convert(doclayout.V3, graph, runtime)
    convert_vlm(nano.FOLDER, bundle_folder(runtime.data_dir, "own", "fp16"), "fp16")
    return runtime


@pytest.fixture(scope="module")
def written(models: RuntimeConfig, tmp_path_factory: pytest.TempPathFactory) -> Written:
    """All outputs, read without a mistake."""
    with Parser.open(models) as parser:
        assert parser._stages.layout is not None
        knowing = Knowing(parser._stages.layout, ten_pages()[1])
        parser._stages = replace(parser._stages, layout=knowing, reader=knowing)
        return write(parser, tmp_path_factory.mktemp("written"))


def write(parser: Parser, folder: Path) -> Written:
    pdf, pages = ten_pages()
    source = folder / "ten.pdf"
    source.write_bytes(pdf)
    (outcome,) = Batch(parser, folder / "out", ParseOptions(), formats=FORMATS).run([str(source)])
    assert (outcome.status, outcome.pages, outcome.failed_formats) == ("ok", 10, ())
    return Written(folder / "out" / "ten", pages)


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")


def run(*command: object) -> str:
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, encoding="utf-8", timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# pandoc


def pandoc(path: Path, kind: str) -> list[Any]:
    """The blocks of a document as pandoc's JSON has them."""
    return cast(list[Any], json.loads(run("pandoc", "-f", kind, "-t", "json", path))["blocks"])


def every(node: Any, kind: str) -> Iterator[Any]:
    """The contents of all elements of a kind, in order."""
    if isinstance(node, dict):
        if node.get("t") == kind:
            yield node["c"]
        node = list(node.values())
    if isinstance(node, list):
        for part in node:
            yield from every(part, kind)


def words(node: Any) -> str:
    """The text of a node, formulas and pictures left out."""
    if isinstance(node, dict):
        kind = node.get("t")
        if kind in ("Space", "SoftBreak", "LineBreak"):
            return " "
        return str(node["c"]) if kind == "Str" else "" if kind in ("Math", "Image") else words(node.get("c"))
    return "".join(map(words, node)) if isinstance(node, list) else ""


def headings(blocks: list[Any]) -> list[tuple[int, str]]:
    return [(level, words(text)) for level, _, text in every(blocks, "Header")]


def formulas(blocks: list[Any]) -> list[str]:
    return ["".join(latex.split()) for _, latex in every(blocks, "Math")]


def rows(blocks: list[Any]) -> list[list[list[str]]]:
    """Rows of texts of each table, cells without text left out: what fills a span up differs by the format read."""
    tables = []
    for _, _, _, (_, head), bodies, _ in every(blocks, "Table"):
        lines = [*head, *(row for body in bodies for row in (*body[2], *body[3]))]
        texts = [[words(cell[4]) for cell in cells] for _, cells in lines]
        tables.append([[text for text in line if text] for line in texts])
    return tables


def truth_rows() -> list[list[list[str]]]:
    return [[[text for text, _, _ in row if text] for row in table.rows] for table in TABLES]


@needs("pandoc")
@pytest.mark.parametrize(("ending", "kind"), [("md", MARKDOWN), ("docx", "docx"), ("html", "html")])
def test_pandoc_finds_headings_lists_and_formulas(written: Written, ending: str, kind: str) -> None:
    blocks = pandoc(written[ending], kind)
    assert headings(blocks) == HEADINGS
    assert [[words(item) for item in items] for items in every(blocks, "BulletList")] == [list(LIST)]
    tags = (r"\tag*{(1)}", r"\tag*{(2)}", "") if ending == "md" else ("", "", "")  # elsewhere numbers stand beside them
    assert formulas(blocks) == [formula + tag for formula, tag in zip(FORMULAS, tags, strict=True)]
    paragraphs = [words(text) for text in every(blocks, "Para")]
    assert SPECIAL in paragraphs
    assert "Here  and y & z cost $5 each." in paragraphs
    assert not [text for text in paragraphs if "Annual Review" in text or "copy 7" in text]


@needs("pandoc")
@pytest.mark.parametrize(("ending", "kind"), [("docx", "docx"), ("html", "html")])
def test_pandoc_finds_tables_and_pictures(written: Written, ending: str, kind: str, tmp_path: Path) -> None:
    blocks = pandoc(written[ending], kind)
    assert rows(blocks) == truth_rows()
    assert len(list(every(blocks, "Image"))) == len(PICTURES)
    run("pandoc", "-f", kind, "-t", "native", f"--extract-media={tmp_path}", written[ending], "-o", tmp_path / "x")
    shown = sorted(size_of(path) for path in tmp_path.rglob("*.png"))
    assert shown == sorted(size_of(written.folder / "images" / f"{name}.png") for name in PICTURES)


@needs("pandoc")
def test_every_picture_that_pandoc_finds_in_the_markdown_is_a_file(written: Written) -> None:
    blocks = pandoc(written["md"], MARKDOWN)
    links = [target for _, _, (target, _) in every(blocks, "Image")]
    links += re.findall(r'src="([^"]+)"', " ".join(text for _, text in every(blocks, "RawBlock")))
    assert sorted(links) == sorted(f"images/{name}.png" for name in PICTURES)
    for link in links:
        assert size_of(written.folder / link) > (20, 20)


def size_of(path: Path) -> tuple[int, int]:
    with Image.open(path) as image:
        image.load()
        return image.size


# Spreadsheets


def numbers(table: Any) -> list[list[Any]]:
    """What a spreadsheet should hold: the full grid, numbers as numbers."""
    grid = [[""] * max(column + wide for _, column, _, wide, _ in table.grid) for _ in table.rows]
    for row, column, _, _, text in table.grid:
        grid[row][column] = text
    plain = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?|[1-9]\d{0,2},\d{3}\.\d+")
    return [[float(text.replace(",", "")) if plain.fullmatch(text) else text for text in row] for row in grid]


def test_two_readers_of_workbooks_find_the_tables(written: Written) -> None:
    names = ["Page 5 table 1", "Page 6 table 1", "Page 6 table 2", "Page 8 table 1"]
    by_calamine = CalamineWorkbook.from_path(str(written["xlsx"]))
    by_openpyxl = openpyxl.load_workbook(written["xlsx"])
    assert by_calamine.sheet_names == by_openpyxl.sheetnames == names
    for name, table in zip(names, TABLES, strict=True):
        assert by_calamine.get_sheet_by_name(name).to_python() == numbers(table)
        found = [[cell.value if cell.value is not None else "" for cell in row] for row in by_openpyxl[name].rows]
        assert found == numbers(table)
    assert sorted(map(str, by_openpyxl[names[2]].merged_cells.ranges)) == ["A1:A2", "B1:C1", "B5:C5", "D1:E1", "D5:E5"]


@pytest.mark.slow
@needs("soffice")
@needs("pdftotext")
def test_libreoffice_shows_numbers_in_the_workbook_as_they_were_printed(written: Written, tmp_path: Path) -> None:
    office(written["xlsx"], "pdf", tmp_path)
    shown = run("pdftotext", "-layout", tmp_path / "ten.pdf", "-")
    lines = [line.split() for line in shown.splitlines() if line.strip()]
    for table in TABLES:
        for row in table.rows:
            assert [word for text, _, _ in row for word in text.split()] in lines


def test_each_table_is_a_csv_file(written: Written) -> None:
    files = ["p5-b5.csv", "p6-b2.csv", "p6-b5.csv", "p8-b3.csv"]
    assert sorted(path.name for path in (written.folder / "tables").iterdir()) == files
    for name, table in zip(files, TABLES, strict=True):
        with (written.folder / "tables" / name).open(encoding="utf-8-sig", newline="") as stream:
            found = list(csv.reader(stream))
        flat = [text.removeprefix("'") for row in found for text in row if text]
        assert flat == [text for _, _, _, _, text in table.grid if text]


# Searchable PDF


@needs("qpdf")
def test_qpdf_finds_no_fault(written: Written) -> None:
    assert "No syntax or stream encoding errors found" in run("qpdf", "--check", written["pdf"])


@needs("pdftotext")
def test_every_word_lies_within_three_points_of_where_it_was_drawn(written: Written) -> None:
    found = poppler_words(written["pdf"])
    assert len(found) == len(written.pages)
    for there, page in zip(found, written.pages, strict=True):
        wanted = [word for word in page.words if not in_formula(word, page)]
        assert [word for word in wanted if not any(is_there(word, one) for one in there)] == []


def in_formula(word: Word, page: Drawn) -> bool:
    """LaTeX is no text that was drawn: it lies in the box of its formula as a whole."""
    boxes = [area.box for area in page.areas if area.label == "display_formula"]
    inside = any(box[0] <= word.box[0] <= box[2] and box[1] <= word.box[1] <= box[3] for box in boxes)
    return inside or (word.text in ("x", "3") and any(r"\(" in (area.answer or "") for area in page.areas))


def is_there(drawn: Word, found: Word) -> bool:
    """Across at both ends, down at the middle: tops and bottoms are those of the line."""
    middles = ((drawn.box[1] + drawn.box[3]) / 2, (found.box[1] + found.box[3]) / 2)
    pairs = ((drawn.box[0], found.box[0]), (drawn.box[2], found.box[2]), middles)
    return drawn.text == found.text and all(abs(a - b) <= NEAR_PT for a, b in pairs)


@needs("pdftoppm")
def test_the_pages_look_as_before(written: Written, tmp_path: Path) -> None:
    for name, path in (("before", written.folder.parents[1] / "ten.pdf"), ("after", written["pdf"])):
        run("pdftoppm", "-r", "40", "-gray", path, tmp_path / name)
    pages = sorted(tmp_path.glob("before-*"))
    assert len(pages) == 10
    for page in pages:
        assert page.read_bytes() == page.with_name(page.name.replace("before", "after")).read_bytes()


# As people see them


@pytest.mark.slow
@needs("soffice")
@needs("pdftotext")
def test_libreoffice_shows_the_word_file(written: Written, tmp_path: Path) -> None:
    office(written["docx"], "pdf", tmp_path)
    shown = run("pdftotext", tmp_path / "ten.pdf", "-")
    assert_all_is_shown(shown)
    assert pictures_in(tmp_path / "ten.pdf") == len(PICTURES)
    assert "A4" in run("pdfinfo", tmp_path / "ten.pdf")


@pytest.mark.slow
@needs("chromium")
@needs("pdftotext")
def test_chromium_shows_the_html(written: Written, tmp_path: Path) -> None:
    made = tmp_path / "made.pdf"
    run(
        "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer",
        f"--user-data-dir={tmp_path / 'profile'}", f"--print-to-pdf={made}", written["html"].as_uri(),
    )  # fmt: skip
    assert_all_is_shown(run("pdftotext", made, "-"))
    assert pictures_in(made) == len(PICTURES)


def assert_all_is_shown(text: str) -> None:
    flat = " ".join(text.split())
    for _, heading in HEADINGS:
        assert heading in flat
    for item in (*LIST, "Signs: 5 * 3 < 20 & more; see #4, item_1 | [note] ~about~ $9.90 `code` \\end"):
        assert item in flat
    places = [flat.index(heading) for _, heading in HEADINGS[2:]]
    assert places == sorted(places)
    for table in TABLES:
        for _, _, _, _, entry in table.grid:
            assert entry in flat
    assert "旧档案的整理分为登记、修补和扫描三个阶段。" in "".join(flat.split())


def pictures_in(pdf: Path) -> int:
    """Pictures that are shown; masks of transparency do not count."""
    return sum(line.split()[2] == "image" for line in run("pdfimages", "-list", pdf).splitlines()[2:])


def office(path: Path, kind: str, out: Path) -> None:
    profile = f"-env:UserInstallation={(out / 'profile').as_uri()}"
    run("soffice", profile, "--headless", "--convert-to", kind, "--outdir", out, path)


# Read by nano


@pytest.mark.slow
@needs("pandoc")
def test_nano_reads_the_same_structure(models: RuntimeConfig, written: Written, tmp_path: Path) -> None:
    with Parser.open(models) as parser:
        read = write(parser, tmp_path)
    truth, found = (json.loads(one["json"].read_text(encoding="utf-8"))["pages"] for one in (written, read))
    labels: Callable[[Any], list[str]] = lambda page: [block["label"] for block in page["blocks"]]  # noqa: E731
    assert [labels(page) for page in found] == [labels(page) for page in truth]
    for ending, kind in (("md", MARKDOWN), ("docx", "docx"), ("html", "html")):
        blocks = pandoc(read[ending], kind)
        assert len(headings(blocks)) == len(HEADINGS)
        assert len(formulas(blocks)) >= 1  # nano may read one so that it is no LaTeX
    assert len(rows(pandoc(read["docx"], "docx"))) == len(TABLES)
    pairs = zip(poppler_words(read["pdf"]), read.pages, strict=True)
    there = [any(is_there(word, one) for one in found_) for found_, page in pairs for word in page.words]
    assert sum(there) >= 0.55 * len(there)  # of 672 words nano reads so many right
