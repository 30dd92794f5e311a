"""Facts of a run over many documents, with a parser that reads nothing and is told what to answer."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from docvino import outputs
from docvino.batch import Batch, Journal, Outcome, Progress, exit_code, safe_name
from docvino.document import Block, Document, Page, PageImage, Polygon, Provenance, Source, Stats, box_polygon
from docvino.errors import ConfigError, DocvinoError, InferenceError, InputError
from docvino.inputs import InputDocument
from docvino.outputs import Format
from docvino.parser import ParsedPage, Parser
from docvino.render.json import from_json
from docvino.runtime.stages import Watch
from docvino.settings import ParseOptions


class FakeParser:
    """Answers each page with its number, or as told; `read` holds the pages that were asked for.

    failing    pages that fail, from 0
    stop_at    the page at which the program is killed
    figures    put a figure on every page
    """

    def __init__(self, *, version: str = "1", failing: Sequence[int] = (), stop_at: int | None = None) -> None:
        self.version = version
        self.failing = failing
        self.stop_at = stop_at
        self.failure: type[DocvinoError] = InputError
        self.error: DocvinoError | None = None
        self.figures = False
        self.titles = False
        self.outline: Polygon = box_polygon(20, 10, 50, 20)
        self.empty = False
        self.read: list[int] = []

    def pages(
        self, document: InputDocument, _options: ParseOptions, finished: Mapping[int, ParsedPage], watch: Watch
    ) -> Iterator[ParsedPage]:
        if self.error is not None:
            raise self.error
        for index in document.page_indices:
            if index in finished:
                yield finished[index]
                continue
            if index == self.stop_at:
                raise KeyboardInterrupt
            watch(1, 2)
            self.read.append(index)
            yield self._page(index)

    def _page(self, index: int) -> ParsedPage:
        stats = Stats(layout_ms=10, lines=1)
        if index in self.failing:
            problem = self.failure(f"no {index}", fix="mend it")
            page = Page(page_index=index, width_px=0, height_px=0, status="failed", error=str(problem))
            return ParsedPage(page, None, stats, problem)
        pixels = np.zeros((40, 60, 3), np.uint8)
        pixels[10:20, 20:50] = (255, 0, 0)
        blocks = [_block(index, 0, "text", f"page {index + 1}")]
        if self.figures:
            blocks.append(_block(index, 1, "figure", "").model_copy(update={"polygons": (self.outline,)}))
        if self.titles:
            blocks.append(_block(index, len(blocks), "paragraph_title", f"{index + 1} Chapter"))
        page = Page(
            page_index=index,
            width_px=60,
            height_px=40,
            status="empty" if self.empty else "ok",
            blocks=() if self.empty else tuple(blocks),
        )
        return ParsedPage(page, PageImage(index, pixels), stats)

    def collect(self, source: Source, parsed: Sequence[ParsedPage], options: ParseOptions) -> Document:
        return Parser.collect(cast(Parser, self), source, parsed, options)

    def provenance(self, options: ParseOptions) -> Provenance:
        options_ = options.model_dump(exclude={"password"})
        return Provenance(package=f"fake {self.version}", preset="fake", openvino="0", models=(), options=options_)


def _block(page: int, place: int, label: str, content: str) -> Block:
    polygon = box_polygon(20, 10, 50, 20)
    return Block(id=f"p{page + 1}-b{place + 1}", label=label, polygons=(polygon,), order=place, content=content)


def png() -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (60, 40), "white").save(stream, "PNG")
    return stream.getvalue()


def tiff(pages: int) -> bytes:
    stream = io.BytesIO()
    first, *others = [Image.new("L", (60, 40), 255 - page) for page in range(pages)]
    first.save(stream, "TIFF", save_all=True, append_images=others)
    return stream.getvalue()


def run(
    out: Path,
    inputs: Sequence[Path | str],
    parser: FakeParser | None = None,
    *,
    formats: Sequence[Format] = ("md", "json"),
    resume: bool = False,
    options: ParseOptions | None = None,
    seen: list[Progress] | None = None,
) -> list[Outcome]:
    report = (lambda _: None) if seen is None else seen.append
    batch = Batch(
        cast(Parser, parser or FakeParser()),
        out,
        options or ParseOptions(),
        formats=formats,
        resume=resume,
        on_page=report,
    )
    return list(batch.run([str(argument) for argument in inputs]))


def stopped(out: Path, scan: Path, at: int, **options: Any) -> None:
    """A run that is killed at a page."""
    with pytest.raises(KeyboardInterrupt):
        run(out, [scan], FakeParser(stop_at=at, **options))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def scan(tmp_path: Path) -> Path:
    """A document of five pages."""
    path = tmp_path / "scan.tif"
    path.write_bytes(tiff(5))
    return path


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


# ---- documents


def test_a_document_becomes_a_folder_with_markdown_and_json(out: Path, scan: Path) -> None:
    (outcome,) = run(out, [scan])
    assert names(out) == ["scan/scan.json", "scan/scan.md", "summary.json"]
    assert (out / "scan/scan.md").read_text(encoding="utf-8") == "".join(f"page {n}\n\n" for n in range(1, 6))[:-1]
    document = from_json((out / "scan/scan.json").read_text(encoding="utf-8"))
    assert [page.page_index for page in document.pages] == [0, 1, 2, 3, 4]
    assert outcome == Outcome(str(scan), "ok", pages=5, seconds=0.05, folder=str(out / "scan"))


@pytest.mark.parametrize("kind", ["md", "json"])
def test_only_the_formats_asked_for_are_written(out: Path, scan: Path, kind: Format) -> None:
    run(out, [scan], formats=[kind])
    assert names(out) == [f"scan/scan.{kind}", "summary.json"]


def test_figures_are_cut_from_the_page_and_linked(out: Path, scan: Path) -> None:
    parser = FakeParser()
    parser.figures = True
    run(out, [scan], parser, options=ParseOptions(pages="2"))
    with Image.open(out / "scan/images/p2-b2.png") as picture:
        assert picture.size == (30, 10)
        assert picture.convert("RGB").getcolors() == [(300, (255, 0, 0))]
    assert "![figure](images/p2-b2.png)" in (out / "scan/scan.md").read_text(encoding="utf-8")


def test_a_document_that_cannot_be_read_does_not_stop_the_others(out: Path, tmp_path: Path, scan: Path) -> None:
    bad, good = tmp_path / "bad.png", tmp_path / "good.png"
    bad.write_bytes(b"no picture")
    good.write_bytes(png())
    outcomes = run(out, [bad, tmp_path / "nowhere.png", scan, good])
    assert [outcome.status for outcome in outcomes] == ["failed", "failed", "ok", "ok"]
    assert [outcome.exit_code for outcome in outcomes] == [6, 6, 0, 0]
    assert exit_code(outcomes) == 8
    assert names(out) == ["good/good.json", "good/good.md", "scan/scan.json", "scan/scan.md", "summary.json"]


def test_the_summary_lists_every_input_in_order_with_cause_and_fix(out: Path, tmp_path: Path, scan: Path) -> None:
    bad = tmp_path / "坏.png"
    bad.write_bytes(b"no picture")
    run(out, [bad, scan])
    text = (out / "summary.json").read_text(encoding="utf-8")
    first, second = json.loads(text)
    assert (first["input"], first["status"], first["exit_code"]) == (str(bad), "failed", 6)
    assert "坏.png is not a document" in first["error"]
    assert first["fix"].startswith("give a PNG")
    assert (second["input"], second["status"], second["error"], second["fix"]) == (str(scan), "ok", None, None)


def test_a_parser_that_fails_costs_one_document(out: Path, scan: Path) -> None:
    parser = FakeParser()
    parser.error = InferenceError("the device is gone", fix="plug it in")
    (outcome,) = run(out, [scan], parser)
    assert (outcome.status, outcome.exit_code) == ("failed", 7)
    assert (outcome.error, outcome.fix) == ("the device is gone", "plug it in")


def test_failed_pages_make_a_document_partial_and_are_named_from_one(out: Path, scan: Path) -> None:
    (outcome,) = run(out, [scan], FakeParser(failing=[1, 3]))
    assert (outcome.status, outcome.exit_code, outcome.pages, outcome.failed_pages) == ("partial", 8, 5, 2)
    assert (outcome.error, outcome.fix) == ("2 pages failed (2, 4), the first: no 1", "mend it")
    assert (out / "scan/scan.md").read_text(encoding="utf-8") == "page 1\n\npage 3\n\npage 5\n"


def test_one_failed_page_is_answered_with_its_own_cause(out: Path, scan: Path) -> None:
    (outcome,) = run(out, [scan], FakeParser(failing=[2]))
    assert (outcome.status, outcome.error, outcome.fix) == ("partial", "no 2", "mend it")


@pytest.mark.parametrize("kind", [InputError, InferenceError])
def test_a_document_whose_pages_all_failed_has_no_markdown_and_the_code_of_the_cause(
    out: Path, scan: Path, kind: type[DocvinoError]
) -> None:
    parser = FakeParser(failing=range(5))
    parser.failure = kind
    (outcome,) = run(out, [scan], parser)
    assert (outcome.status, outcome.exit_code, outcome.failed_pages) == ("failed", kind.exit_code, 5)
    assert names(out) == ["scan/scan.json", "scan/scan.pages.jsonl", "summary.json"]


def test_a_failure_takes_away_the_markdown_of_an_earlier_run(out: Path, scan: Path) -> None:
    run(out, [scan], FakeParser())
    assert "scan/scan.md" in names(out)
    run(out, [scan], FakeParser(failing=range(5)))
    assert "scan/scan.md" not in names(out)


def test_a_document_without_text_is_empty_and_no_failure(out: Path, scan: Path) -> None:
    parser = FakeParser()
    parser.empty = True
    (outcome,) = run(out, [scan], parser)
    assert (outcome.status, outcome.exit_code) == ("empty", 0)
    assert (out / "scan/scan.md").read_text(encoding="utf-8") == ""


def test_every_page_is_reported_with_its_place(out: Path, scan: Path) -> None:
    seen: list[Progress] = []
    run(out, [scan], seen=seen, options=ParseOptions(pages="2,4-5"))
    assert [(item.input, item.done, item.total, item.page.page_index) for item in seen] == [
        (str(scan), 1, 3, 1),
        (str(scan), 2, 3, 3),
        (str(scan), 3, 3, 4),
    ]


def test_a_place_that_cannot_be_written_is_a_config_error(tmp_path: Path, scan: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match="cannot write to"):
        run(tmp_path / "file", [scan])


def test_a_folder_that_cannot_be_made_costs_its_document_only(out: Path, tmp_path: Path, scan: Path) -> None:
    (tmp_path / "other.png").write_bytes(png())
    out.mkdir()
    (out / "scan").write_bytes(b"a file where the folder would be")
    first, second = run(out, [scan, tmp_path / "other.png"])
    assert (first.status, first.exit_code, second.status) == ("failed", 2, "ok")
    assert str(out / "scan") in (first.error or "")


def test_a_document_named_like_the_summary_does_not_take_its_place(out: Path, tmp_path: Path) -> None:
    (tmp_path / "summary.json.png").write_bytes(png())
    (outcome,) = run(out, [tmp_path / "summary.json.png"])
    assert outcome.status == "ok"
    assert json.loads((out / "summary.json").read_text(encoding="utf-8"))[0]["status"] == "ok"


@pytest.mark.skipif(sys.platform != "linux", reason="only there a file name can be any bytes")
def test_a_file_name_that_is_no_text_can_stand_in_the_summary(out: Path, tmp_path: Path) -> None:
    missing = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.png")
    (outcome,) = run(out, [missing])
    assert outcome.status == "failed"
    assert json.loads((out / "summary.json").read_text(encoding="utf-8"))[0]["input"].endswith("/?.png")


# ---- formats


def test_a_format_that_fails_makes_a_document_partial_and_is_named(
    out: Path, scan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_format(monkeypatch, "txt")
    (outcome,) = run(out, [scan], formats=["md", "txt"])
    assert (outcome.status, outcome.exit_code, outcome.failed_formats) == ("partial", 8, ("txt",))
    assert (outcome.error, outcome.fix) == ("no ink", "buy some")
    assert names(out) == ["scan/scan.md", "scan/scan.pages.jsonl", "summary.json"]


def test_a_document_of_which_no_format_could_be_written_failed(
    out: Path, scan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_format(monkeypatch, "txt")
    (outcome,) = run(out, [scan], formats=["txt"])
    assert (outcome.status, outcome.exit_code) == ("failed", 6)


def test_pages_and_formats_that_failed_are_told_together(
    out: Path, scan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_format(monkeypatch, "txt")
    (outcome,) = run(out, [scan], FakeParser(failing=[1, 2]), formats=["md", "txt"])
    assert outcome.error == "2 pages failed (2, 3), the first: no 1; no ink"
    assert (outcome.status, outcome.exit_code, outcome.fix) == ("partial", 8, "mend it")


def test_after_a_format_failed_going_on_reads_no_page_again(
    out: Path, scan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        break_format(broken, "txt")
        run(out, [scan], formats=["txt"])
    parser = FakeParser()
    (outcome,) = run(out, [scan], parser, formats=["txt"], resume=True)
    assert (outcome.status, parser.read) == ("ok", [])
    assert names(out) == ["scan/scan.txt", "summary.json"]


def test_pictures_of_pages_that_are_kept_are_made_again(out: Path, scan: Path) -> None:
    stopped(out, scan, 3)
    run(out, [scan], formats=["png", "pdf"], resume=True)
    assert [name for name in names(out) if "pages/" in name] == [f"scan/pages/p{number}.png" for number in range(1, 6)]
    assert "scan/scan.pdf" in names(out)


def break_format(monkeypatch: pytest.MonkeyPatch, name: Format) -> None:
    def fail(_: object) -> None:
        raise InputError("no ink", fix="buy some")

    monkeypatch.setitem(outputs._OUTPUTS, name, outputs._Output(fail, f"NAME.{name}"))


# ---- names


def test_documents_of_one_name_get_folders_of_their_own(out: Path, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.png", "a.tif", "x/a.png", "y/a.png", "A.gif")]
    for path in files:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(png())
    outcomes = run(out, files)
    folders = [Path(outcome.folder or "").name for outcome in outcomes]
    assert folders == ["a", "a-tif", "a-png", "a-2", "A-gif"]
    assert all((out / name / f"{name}.md").is_file() for name in folders)


def test_standard_input_is_named_so(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(png())))
    (outcome,) = run(out, ["-"])
    assert outcome.folder == str(out / "stdin")


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("scan 1", "scan 1"),
        ("合同（终稿）", "合同（终稿）"),
        ("🧾 receipt", "🧾 receipt"),
        ("a/b\\c", "a_b_c"),
        ('<>:"|?*', "_______"),
        ("tab\tnew\nline\0", "tab_new_line_"),
        ("...", "_"),
        ("", "_"),
        (" . ", "_"),
        (".hidden", "hidden"),
        ("v1.2.", "v1.2"),
        ("CON", "_CON"),
        ("nul", "_nul"),
        ("Com1", "_Com1"),
        ("lpt9.old", "_lpt9.old"),
        ("console", "console"),
        ("com10", "com10"),
        ("x" * 200, "x" * 120),
        ("x" * 119 + ". tail", "x" * 119),
        ("版" * 200, "版" * 66),
        ("\udcff", "_"),
    ],
)
def test_a_name_becomes_a_folder_name_that_every_system_takes(name: str, folder: str) -> None:
    assert safe_name(name) == folder


@given(st.text(max_size=300))
def test_every_name_is_safe_and_stays_so(name: str) -> None:
    found = safe_name(name)
    assert found
    assert not set(found) & set('<>:"/\\|?*\0\n')
    assert not found.endswith((" ", "."))
    assert len(found.encode()) + len(".pages.jsonl.part") + 1 <= 255
    assert safe_name(found) == found


def test_a_long_chinese_name_can_be_written(out: Path, tmp_path: Path) -> None:
    path = tmp_path / ("版" * 80 + ".png")
    path.write_bytes(png())
    assert run(out, [path])[0].status == "ok"


# ---- going on


def test_finished_pages_are_on_disk_when_a_run_is_killed(out: Path, scan: Path) -> None:
    stopped(out, scan, 3)
    lines = (out / "scan/scan.pages.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["page"]["page_index"] for line in lines[1:]] == [0, 1, 2]


def test_going_on_reads_only_the_pages_that_are_missing(out: Path, scan: Path) -> None:
    stopped(out, scan, 3)
    parser = FakeParser()
    (outcome,) = run(out, [scan], parser, resume=True)
    assert parser.read == [3, 4]
    assert (outcome.status, outcome.pages) == ("ok", 5)
    assert names(out) == ["scan/scan.json", "scan/scan.md", "summary.json"]


def test_a_run_that_went_on_gives_the_same_files_as_one_in_one_go(out: Path, tmp_path: Path, scan: Path) -> None:
    stopped(out, scan, 2)
    run(out, [scan], resume=True)
    run(tmp_path / "whole", [scan])
    for name in ("scan/scan.md", "scan/scan.json"):
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_figures_of_pages_that_are_kept_stay_linked(out: Path, scan: Path) -> None:
    first, second = FakeParser(stop_at=3), FakeParser()
    first.figures = second.figures = True
    with pytest.raises(KeyboardInterrupt):
        run(out, [scan], first)
    run(out, [scan], second, resume=True)
    assert (out / "scan/scan.md").read_text(encoding="utf-8").count("![figure]") == 5


def test_without_being_asked_to_go_on_everything_is_read_again(out: Path, scan: Path) -> None:
    stopped(out, scan, 3)
    parser = FakeParser()
    run(out, [scan], parser)
    assert parser.read == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("change", ["source", "parser", "options"])
def test_pages_that_were_read_otherwise_are_read_again(out: Path, scan: Path, change: str) -> None:
    stopped(out, scan, 3)
    if change == "source":
        scan.write_bytes(scan.read_bytes() + b"\0")
    parser = FakeParser(version="2" if change == "parser" else "1")
    run(out, [scan], parser, resume=True, options=ParseOptions(dpi=100) if change == "options" else None)
    assert parser.read == [0, 1, 2, 3, 4]


def test_a_page_whose_line_was_cut_off_is_read_again(out: Path, scan: Path) -> None:
    stopped(out, scan, 3)
    path = out / "scan/scan.pages.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    parser = FakeParser()
    run(out, [scan], parser, resume=True)
    assert parser.read == [2, 3, 4]


def test_pages_that_failed_are_read_again(out: Path, scan: Path) -> None:
    stopped(out, scan, 3, failing=[1])
    parser = FakeParser()
    (outcome,) = run(out, [scan], parser, resume=True)
    assert parser.read == [1, 3, 4]
    assert outcome.status == "ok"


def test_a_finished_document_is_not_read_again(out: Path, scan: Path) -> None:
    run(out, [scan])
    parser = FakeParser()
    (outcome,) = run(out, [scan], parser, resume=True)
    assert parser.read == []
    assert (outcome.status, outcome.pages) == ("ok", 5)


def test_a_finished_document_is_written_in_the_formats_asked_for_later(out: Path, scan: Path) -> None:
    run(out, [scan], formats=["json"])
    parser = FakeParser()
    run(out, [scan], parser, formats=["md"], resume=True)
    assert parser.read == []
    assert names(out) == ["scan/scan.json", "scan/scan.md", "summary.json"]


def test_what_is_outside_of_the_outline_of_a_figure_is_white_in_its_picture(out: Path, scan: Path) -> None:
    parser = FakeParser()
    parser.figures = True
    parser.outline = ((20, 10), (50, 10), (50, 12), (22, 20), (20, 20))
    run(out, [scan], parser)
    with Image.open(out / "scan/images/p1-b2.png") as picture:
        assert picture.size == (30, 10)
        assert (picture.getpixel((1, 8)), picture.getpixel((28, 8))) == ((255, 0, 0), (255, 255, 255))


def levels(out: Path) -> list[int | None]:
    document = Document.model_validate_json((out / "scan/scan.json").read_bytes())
    return [block.level for page in document.pages for block in page.blocks if block.label == "paragraph_title"]


def test_pages_are_restructured_without_being_read_again(out: Path, scan: Path) -> None:
    first = FakeParser()
    first.titles = True
    run(out, [scan], first)
    assert levels(out) == [None] * 5
    stats = Document.model_validate_json((out / "scan/scan.json").read_bytes()).stats
    for wish, level in ((True, 1), (False, None)):
        parser = FakeParser()
        run(out, [scan], parser, resume=True, options=ParseOptions(restructure_pages=wish))
        assert (parser.read, levels(out)) == ([], [level] * 5)
    assert Document.model_validate_json((out / "scan/scan.json").read_bytes()).stats == stats


def test_a_stopped_run_goes_on_with_pages_restructured(out: Path, scan: Path) -> None:
    first, second = FakeParser(stop_at=3), FakeParser()
    first.titles = second.titles = True
    with pytest.raises(KeyboardInterrupt):
        run(out, [scan], first)
    run(out, [scan], second, resume=True, options=ParseOptions(restructure_pages=True))
    assert (second.read, levels(out)) == ([3, 4], [1] * 5)


def test_a_document_with_a_failed_page_is_not_finished(out: Path, scan: Path) -> None:
    run(out, [scan], FakeParser(failing=[1]))
    parser = FakeParser()
    assert run(out, [scan], parser, resume=True)[0].status == "ok"
    assert 1 in parser.read


def test_a_document_read_otherwise_is_not_finished(out: Path, scan: Path) -> None:
    run(out, [scan])
    parser = FakeParser(version="2")
    run(out, [scan], parser, resume=True)
    assert parser.read == [0, 1, 2, 3, 4]


# ---- journal


def page(index: int, status: Any = "ok") -> ParsedPage:
    item = Page(
        page_index=index, width_px=1, height_px=1, status=status, blocks=(_block(index, 0, "text", "版\n\r\u2028"),)
    )
    return ParsedPage(item, None, Stats(layout_ms=0.1 + 0.2, lines=3))


def test_a_journal_gives_back_the_pages_put_into_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", "header")
    journal.start([page(0)])
    journal.append(page(2))
    found = journal.read()
    assert {index: (item.page, item.stats) for index, item in found.items()} == {
        index: (page(index).page, page(index).stats) for index in (0, 2)
    }


def test_a_journal_counts_only_under_its_own_header(tmp_path: Path) -> None:
    Journal(tmp_path / "j", "header").start([page(0)])
    assert Journal(tmp_path / "j", "another").read() == {}
    assert Journal(tmp_path / "nowhere", "header").read() == {}


@pytest.mark.parametrize("tail", ["{", "null", "[]", '{"page": 1}', '{"page": {}, "stats": {}}', "\0", '"page"'])
def test_a_line_of_a_journal_that_is_no_page_is_ignored(tmp_path: Path, tail: str) -> None:
    journal = Journal(tmp_path / "j", "header")
    journal.start([page(0)])
    with (tmp_path / "j").open("a", encoding="utf-8") as stream:
        stream.write(tail)
    assert list(journal.read()) == [0]


def test_a_journal_that_is_no_text_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / "j").write_bytes(b"\xff\xfe")
    assert Journal(tmp_path / "j", "header").read() == {}


def test_failed_pages_of_a_journal_do_not_count(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", "header")
    journal.start([page(0, "failed"), page(1)])
    assert list(journal.read()) == [1]


def test_starting_a_journal_forgets_what_is_not_kept(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", "header")
    journal.start([page(0), page(1)])
    journal.start([page(1)])
    assert list(journal.read()) == [1]
    journal.remove()
    journal.remove()
    assert not (tmp_path / "j").exists()


# ---- exit codes


@pytest.mark.parametrize(
    ("codes", "code"),
    [
        ([], 0),
        ([0, 0], 0),
        ([6], 6),
        ([6, 7], 6),
        ([7, 6], 7),
        ([0, 6], 8),
        ([6, 0], 8),
        ([8], 8),
        ([8, 8], 8),
        ([8, 6], 8),
        ([6, 8], 8),
        ([0, 8], 8),
    ],
)
def test_the_exit_code_is_8_when_something_was_done_and_something_failed(codes: list[int], code: int) -> None:
    assert exit_code([Outcome("x", "failed" if found else "ok", exit_code=found) for found in codes]) == code
