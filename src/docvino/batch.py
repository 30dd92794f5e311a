"""Many documents into a folder: finished pages are kept at once, a failure costs its own document only.

OUT/NAME/            one folder per document, with the files of `outputs`
OUT/summary.json     one entry per input, in the order given
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import cv2
import numpy as np
from pydantic import ValidationError

from docvino.codec.crops import cut_region
from docvino.document import Document, Page, Provenance, Source, Stats, box_polygon, polygon_box
from docvino.errors import EXIT_OK, EXIT_PARTLY_DONE, ConfigError, DocvinoError
from docvino.inputs import InputDocument
from docvino.outputs import USUAL, Finished, Format, picture_name, write_atomically, write_outputs
from docvino.parser import ParsedPage, Parser, open_source
from docvino.render.flow import is_picture
from docvino.runtime.stages import Watch, unwatched
from docvino.settings import AFTER_READING, ParseOptions

Status = Literal["ok", "empty", "partial", "failed"]


@dataclass(frozen=True)
class Outcome:
    """What became of one input.

    status           ok; empty (no page has text); partial (some pages or formats failed); failed
    exit_code        0, 8 when partial, or that of the error
    failed_formats   those that were not written
    """

    input: str
    status: Status
    pages: int = 0
    failed_pages: int = 0
    seconds: float = 0.0
    folder: str | None = None
    error: str | None = None
    fix: str | None = None
    exit_code: int = EXIT_OK
    failed_formats: tuple[Format, ...] = ()


@dataclass(frozen=True)
class Progress:
    """One page is done: page `done` of `total` of the document at `input`."""

    input: str
    done: int
    total: int
    page: Page
    stats: Stats


class Batch:
    """Parses inputs one after another into `out`."""

    def __init__(
        self,
        parser: Parser,
        out: Path,
        options: ParseOptions,
        *,
        formats: Sequence[Format] = USUAL,
        pretty: bool = False,
        resume: bool = False,
        on_page: Callable[[Progress], None] = lambda _: None,
        watch: Watch = unwatched,
    ) -> None:
        """
        watch   as in `Parser.pages`
        """
        self._parser = parser
        self._out = out
        self._options = options
        self._formats = formats
        self._pretty = pretty
        self._resume = resume
        self.on_page = on_page
        self.watch = watch
        self._names = {"summary.json"}

    def run(self, inputs: Sequence[str]) -> Iterator[Outcome]:
        """One outcome per input; writes summary.json when all are done.

        Raises: ConfigError when nothing can be written to `out`.
        """
        outcomes = []
        with _writing_to(self._out):
            self._out.mkdir(parents=True, exist_ok=True)
        for argument in inputs:
            outcome = self._one(argument)
            outcomes.append(outcome)
            yield outcome
        summary = json.dumps([asdict(outcome) for outcome in outcomes], ensure_ascii=False, indent=2) + "\n"
        with _writing_to(self._out):
            write_atomically(self._out / "summary.json", summary)

    def _one(self, argument: str) -> Outcome:
        folder = self._out / self._unique_name(argument)
        try:
            read = self._document(argument, folder)
        except DocvinoError as error:
            return Outcome(argument, "failed", error=str(error), fix=error.fix, exit_code=error.exit_code)
        except OSError as error:
            return Outcome(
                argument,
                "failed",
                error=f"cannot write to {folder}: {error.strerror}",
                fix="free some space or choose another -o folder",
                exit_code=ConfigError.exit_code,
            )
        return _outcome(argument, folder, read)

    def _document(self, argument: str, folder: Path) -> _Read:
        with open_source(argument, self._options) as opened:
            folder.mkdir(parents=True, exist_ok=True)
            key = reading_key(self._parser, opened.source, self._options)
            journal = Journal(folder / f"{folder.name}.pages.jsonl", key)
            finished = journal.read() if self._resume else {}
            if self._resume and (done := self._finished_document(folder, opened.source)) is not None:
                failed_formats = self._write(folder, done, opened)  # in the formats of this run, which may be others
                journal.remove()
                return _Read(done, None, failed_formats, len(self._formats))
            parsed = []
            problem: DocvinoError | None = None
            journal.start(finished.values())
            for number, item in enumerate(self._parser.pages(opened, self._options, finished, self.watch), start=1):
                if item.page.page_index not in finished:
                    save_pictures(folder, item)
                    journal.append(item)
                parsed.append(ParsedPage(item.page, None, item.stats))
                problem = problem or item.problem
                self.on_page(Progress(argument, number, len(opened.page_indices), item.page, item.stats))
            document = self._parser.collect(opened.source, parsed, self._options)
            failed_formats = self._write(folder, document, opened)
        if problem is None and not failed_formats:
            journal.remove()  # else it stays, so that --resume reads only what failed
        return _Read(document, problem, failed_formats, len(self._formats))

    def _finished_document(self, folder: Path, source: Source) -> Document | None:
        """The document of an earlier run when it was read from the same bytes in the same way."""
        try:
            document = Document.model_validate_json((folder / f"{folder.name}.json").read_bytes())
        except (OSError, ValidationError):
            return None
        now = self._parser.provenance(self._options)
        same = document.source == source and _of_reading(document.provenance) == _of_reading(now)
        if not same or any(page.status == "failed" for page in document.pages):
            return None
        parsed = [ParsedPage(page, None, Stats()) for page in document.pages]
        return self._parser.collect(source, parsed, self._options).model_copy(update={"stats": document.stats})

    def _write(self, folder: Path, document: Document, opened: InputDocument) -> dict[Format, DocvinoError]:
        finished = Finished(document, folder, opened, self._options.password, pretty=self._pretty)
        return write_outputs(finished, self._formats)

    def _unique_name(self, argument: str) -> str:
        name = "stdin" if argument == "-" else safe_name(Path(argument).stem)
        candidates = [name, safe_name(Path(argument).name.replace(".", "-"))]
        candidates += (f"{name}-{number}" for number in range(2, len(self._names) + 3))
        chosen = next(candidate for candidate in candidates if candidate.casefold() not in self._names)
        self._names.add(chosen.casefold())
        return chosen


class Journal:
    """The finished pages of a document that is being read, one JSON line each after a header line.

    Pages count only under the header they were written with: the same source bytes, models and options.
    """

    def __init__(self, path: Path, header: str) -> None:
        self._path = path
        self._header = header

    def read(self) -> dict[int, ParsedPage]:
        """Finished pages by index; a line that was cut off by a crash is ignored."""
        try:
            header, *lines = self._path.read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError):
            return {}
        pages: dict[int, ParsedPage] = {}
        if header != self._header:
            return {}
        for line in lines:
            try:
                entry = json.loads(line)
                page = Page.model_validate_json(json.dumps(entry["page"]))
                stats = Stats.model_validate(entry["stats"])
            except (json.JSONDecodeError, ValidationError, KeyError, TypeError):
                continue
            if page.status != "failed":
                pages[page.page_index] = ParsedPage(page, None, stats)
        return pages

    def start(self, pages: Iterable[ParsedPage]) -> None:
        """Begins the file anew with the pages that are kept from an earlier run."""
        kept = [self._line(page) for page in pages]
        write_atomically(self._path, "".join(line + "\n" for line in (self._header, *kept)))

    def append(self, item: ParsedPage) -> None:
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(self._line(item) + "\n")

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)

    @staticmethod
    def _line(item: ParsedPage) -> str:
        return json.dumps({"page": item.page.model_dump(mode="json"), "stats": item.stats.model_dump()})


def reading_key(parser: Parser, source: Source, options: ParseOptions) -> str:
    """Equal for readings that find the same on a page: same source bytes, models and options."""
    provenance = _of_reading(parser.provenance(options))
    return json.dumps({"source": source.model_dump(), "provenance": provenance.model_dump()}, sort_keys=True)


def save_pictures(folder: Path, item: ParsedPage) -> None:
    """Writes the figures of a page, as `images/ID.png` of the folder."""
    for block in item.page.blocks:
        if not is_picture(block) or item.image is None:
            continue
        left, top, right, bottom = polygon_box(block.polygons[0])
        part = item.image.pixels[int(top) : int(np.ceil(bottom)), int(left) : int(np.ceil(right))]
        if part.size and block.polygons[0] != box_polygon(left, top, right, bottom):
            # Source: PaddleX 3.7.2: what is outside of the outline is white in picture files, too.
            part = cut_region(item.image.pixels, (left, top, np.ceil(right), np.ceil(bottom)), block.polygons[0])
        if part.size:
            (folder / "images").mkdir(exist_ok=True)
            _, png = cv2.imencode(".png", np.ascontiguousarray(part[..., ::-1]))
            (folder / "images" / picture_name(block.id)).write_bytes(png.tobytes())


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """0 when all went well, 8 when some did, else the first failure's own code."""
    codes = [outcome.exit_code for outcome in outcomes]
    if all(code == EXIT_OK for code in codes):
        return EXIT_OK
    return EXIT_PARTLY_DONE if {EXIT_OK, EXIT_PARTLY_DONE} & set(codes) else codes[0]


def safe_name(name: str) -> str:
    """A folder name that every system takes: no separators, no reserved Windows names, at most 120 characters.

    At most 200 bytes, too, because Linux takes 255 and the files in the folder have its name and a suffix.
    """
    name = name.encode(errors="replace").decode()  # an undecodable byte of a Linux file name becomes "?"
    name = re.sub(r'[<>:"/\\|?*\x00-\x1f]', "_", name).strip(" .")[:120]
    name = name.encode()[:200].decode(errors="ignore").rstrip(" .")
    if not name or re.fullmatch(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?", name):
        return f"_{name}"
    return name


@contextmanager
def _writing_to(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(f"cannot write to {folder}: {error.strerror}", fix="choose another -o folder") from error


def _of_reading(provenance: Provenance) -> Provenance:
    """Without what changes nothing of what is read on a page."""
    options = {name: value for name, value in provenance.options.items() if name not in AFTER_READING}
    return provenance.decides().model_copy(update={"options": options})


@dataclass(frozen=True)
class _Read:
    """A document, what the first page that failed did fail of, and the formats that failed of so many."""

    document: Document
    problem: DocvinoError | None
    failed_formats: dict[Format, DocvinoError]
    formats: int


def _outcome(argument: str, folder: Path, read: _Read) -> Outcome:
    pages = read.document.pages
    failed = [page for page in pages if page.status == "failed"]
    outcome = Outcome(
        argument,
        "empty" if all(page.status == "empty" for page in pages) else "ok",
        pages=len(pages),
        failed_pages=len(failed),
        seconds=round(read.document.stats.total_ms / 1000, 3),
        folder=str(folder),
        failed_formats=tuple(read.failed_formats),
    )
    problems = [*([read.problem] if read.problem else []), *read.failed_formats.values()]
    if not problems:
        return outcome
    causes = [str(problem) for problem in problems]
    if read.problem and len(failed) > 1:
        listed = ", ".join(str(page.page_index + 1) for page in failed[:10])
        causes[0] = f"{len(failed)} pages failed ({listed}), the first: {read.problem}"
    nothing = len(failed) == len(pages) or len(read.failed_formats) == read.formats
    return replace(
        outcome,
        status="failed" if nothing else "partial",
        error="; ".join(causes),
        fix=problems[0].fix,
        exit_code=problems[0].exit_code if nothing else EXIT_PARTLY_DONE,
    )
