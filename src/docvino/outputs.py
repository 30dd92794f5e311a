"""A document -> files in its folder, in the formats asked for. A format that fails costs its own files only.

OUT/NAME/NAME.md, .json, .html, .docx, .xlsx, .txt, .pdf     one file of each
OUT/NAME/tables/p1-b3.csv                                    one file per table
OUT/NAME/NAME_res.json, NAME_0_res.json                      one file per page
OUT/NAME/pages/p1.png                                        one file per page
OUT/NAME/images/p1-b3.png                                    figures, which md, html and docx show
"""

from __future__ import annotations

import glob
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from docvino.document import Document, Page, Point
from docvino.errors import ConfigError, DocvinoError, InputError, MissingExtraError, nearest
from docvino.inputs import InputDocument
from docvino.render.flow import is_picture
from docvino.render.html import html_parts
from docvino.render.json import to_json
from docvino.render.markdown import to_markdown
from docvino.render.res import to_res
from docvino.render.tables import BYTE_ORDER_MARK, tables_of, to_csv
from docvino.render.text import to_text

Format = Literal["md", "json", "html", "docx", "xlsx", "csv", "txt", "pdf", "res", "png"]
FORMATS: tuple[Format, ...] = get_args(Format)
USUAL: tuple[Format, ...] = ("md", "json")
TEXTS: tuple[Format, ...] = ("md", "json", "html", "txt")  # can go to standard output

WITHOUT_RUNNING: frozenset[Format] = frozenset(
    {"md", "html", "docx", "xlsx", "csv", "txt"}
)  # no running heads and feet

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Finished:
    """A document that was read, with what its outputs are made of.

    source    still open: pictures of pages are read from it again, one at a time, so that no document is held as pixels
    pretty    Markdown with centred figures, captions and tables
    """

    document: Document
    folder: Path
    source: InputDocument
    password: str | None = field(default=None, repr=False)
    pretty: bool = False

    def file(self, ending: str) -> Path:
        return self.folder / f"{self.folder.name}{ending}"

    @property
    def figures(self) -> Mapping[str, Path]:
        """Block id -> picture, of the figures that have one."""
        return figures_of(self.document, self.folder)

    def page_pixels(self, page: Page) -> NDArray[np.uint8] | None:
        """uint8 (H, W, 3) RGB, the page as it was read, upright; None when it cannot be read."""
        if page.status == "failed":
            return None
        try:
            pixels = self.source.page(page.page_index).pixels
        except InputError:
            return None
        return np.rot90(pixels, -page.rotation_degrees // 90)

    def text_points(self, index: int) -> Sequence[Point]:
        """As those of the source; none of a page that is damaged."""
        try:
            return self.source.text_points(index)
        except InputError:
            return ()


class _Pictures(Mapping[str, bytes]):
    """Pictures that are read when they are asked for."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = files

    def __getitem__(self, key: str) -> bytes:
        return self._files[key].read_bytes()

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


@dataclass(frozen=True)
class _Output:
    """How a format is written.

    files   the pattern of its files in the document's folder; NAME stands for the folder's name
    needs   (module, package, extra) that it cannot do without
    """

    write: Callable[[Finished], None]
    files: str
    needs: tuple[str, str, str] | None = None


def parse_formats(text: str) -> tuple[Format, ...]:
    """The formats of a list such as "md,docx".

    Raises: ConfigError for an unknown one, MissingExtraError for one whose packages are not installed.
    """
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in FORMATS:
            raise ConfigError(f"unknown format {name or '(none)'}", fix=nearest(name, FORMATS))
    wanted = tuple(one for one in FORMATS if one in names)
    for one in wanted:
        _check_extra(one)
    return wanted


def write_outputs(finished: Finished, formats: Sequence[Format]) -> dict[Format, DocvinoError]:
    """Writes each format; returns why those that failed did.

    Of a document whose pages all failed only JSON is written: empty files, or those of an earlier run, would look like
    success.
    """
    if all(page.status == "failed" for page in finished.document.pages):
        for name in FORMATS:
            if name != "json":
                _remove(finished, name)
        formats = [name for name in formats if name == "json"]
    problems = {name: _problem(finished, name) for name in formats}
    return {name: problem for name, problem in problems.items() if problem is not None}


def text_of(document: Document, name: Format, *, pretty: bool = False) -> str:
    """The document in one of `TEXTS`, without pictures."""
    return {
        "md": lambda: to_markdown(document, pretty=pretty),
        "json": lambda: to_json(document),
        "html": lambda: "".join(html_parts(document, {})),
        "txt": lambda: to_text(document),
    }[name]()


def html_of(document: Document, folder: Path) -> str:
    """The document as HTML with the pictures of its folder in it."""
    return "".join(html_parts(document, _Pictures(figures_of(document, folder))))


def figures_of(document: Document, folder: Path) -> Mapping[str, Path]:
    """Block id -> picture in the folder of the document, of the figures that have one."""
    ids = (block.id for page in document.pages for block in page.blocks if is_picture(block))
    return {id_: path for id_ in ids if (path := folder / "images" / picture_name(id_)).is_file()}


def picture_name(block_id: str) -> str:
    return f"{block_id}.png"


def write_atomically(path: Path, content: str | bytes | Iterable[str]) -> None:
    """The file is there whole or not at all; text is UTF-8 and may come in parts."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        if isinstance(content, bytes):
            temporary.write_bytes(content)
        else:
            with temporary.open("w", encoding="utf-8", errors="replace", newline="") as stream:
                stream.writelines([content] if isinstance(content, str) else content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _check_extra(name: Format) -> None:
    needs = _OUTPUTS[name].needs
    if needs is not None and find_spec(needs[0]) is None:
        raise MissingExtraError(
            f"the format {name} needs the package {needs[1]}", fix=f'pip install "docvino[{needs[2]}]"'
        )


def _problem(finished: Finished, name: Format) -> DocvinoError | None:
    """Writes one format, or says why not and leaves none of its files."""
    try:
        _check_extra(name)
        if "*" in _OUTPUTS[name].files:
            _remove(finished, name)  # an earlier run may have had more tables or pages
        _OUTPUTS[name].write(finished)
        return None
    except DocvinoError as error:
        problem = error
    except OSError as error:
        cause = error.strerror or str(error)
        problem = ConfigError(
            f"cannot write {name} to {finished.folder}: {cause}", fix="free some space or choose another -o folder"
        )
    except Exception as error:  # noqa: BLE001 - whatever is wrong with one format, the others are written
        _log.debug("format %s", name, exc_info=True)
        problem = DocvinoError(
            f"{name} was not written: {type(error).__name__}: {error}",
            fix="leave it out of --format, and report this as a bug with what --debug shows",
        )
    with suppress(OSError):
        _remove(finished, name)
    return problem


def _remove(finished: Finished, name: Format) -> None:
    pattern = _OUTPUTS[name].files.replace("NAME", glob.escape(finished.folder.name))
    for path in finished.folder.glob(pattern):
        path.unlink(missing_ok=True)


def _markdown(finished: Finished) -> None:
    write_atomically(finished.file(".md"), to_markdown(finished.document, _links(finished), pretty=finished.pretty))


def _links(finished: Finished) -> Mapping[str, str]:
    return {id_: f"images/{path.name}" for id_, path in finished.figures.items()}


def _json(finished: Finished) -> None:
    write_atomically(finished.file(".json"), to_json(finished.document))


def _html(finished: Finished) -> None:
    write_atomically(finished.file(".html"), html_parts(finished.document, _Pictures(finished.figures)))


def _docx(finished: Finished) -> None:
    from docvino.render.docx import to_docx

    write_atomically(finished.file(".docx"), to_docx(finished.document, _Pictures(finished.figures)))


def _xlsx(finished: Finished) -> None:
    from docvino.render.xlsx import to_xlsx

    write_atomically(finished.file(".xlsx"), to_xlsx(finished.document))


def _csv(finished: Finished) -> None:
    folder = finished.folder / "tables"
    for _, block, cells in tables_of(finished.document):
        folder.mkdir(exist_ok=True)
        write_atomically(folder / f"{block.id}.csv", BYTE_ORDER_MARK + to_csv(cells))


def _text(finished: Finished) -> None:
    write_atomically(finished.file(".txt"), to_text(finished.document))


def _pdf(finished: Finished) -> None:
    from docvino.render.pdf import pictures_pdf, searchable_pdf

    document, source = finished.document, finished.source
    if document.source.media_type == "application/pdf":
        made = searchable_pdf(
            document, source.data, source.page_count, finished.password, finished.page_pixels, finished.text_points
        )
    else:
        made = pictures_pdf(document, finished.page_pixels)
    write_atomically(finished.file(".pdf"), made)


def _res(finished: Finished) -> None:
    document = finished.document
    one_file = document.source.media_type != "application/pdf" and len(document.pages) == 1
    for page, text in to_res(document, document.source.name, _links(finished)):
        ending = "_res.json" if page is None or one_file else f"_{page.page_index}_res.json"
        write_atomically(finished.file(ending), text)


def _png(finished: Finished) -> None:
    from docvino.render.overlay import overlay_png

    folder = finished.folder / "pages"
    for page in finished.document.pages:
        pixels = finished.page_pixels(page)
        if pixels is not None:
            folder.mkdir(exist_ok=True)
            write_atomically(folder / f"p{page.page_index + 1}.png", overlay_png(page, pixels))


_OUTPUTS: dict[Format, _Output] = {
    "md": _Output(_markdown, "NAME.md"),
    "json": _Output(_json, "NAME.json"),
    "html": _Output(_html, "NAME.html"),
    "docx": _Output(_docx, "NAME.docx", ("docx", "python-docx", "office")),
    "xlsx": _Output(_xlsx, "NAME.xlsx", ("openpyxl", "openpyxl", "office")),
    "csv": _Output(_csv, "tables/p*.csv"),
    "txt": _Output(_text, "NAME.txt"),
    "pdf": _Output(_pdf, "NAME.pdf", ("pikepdf", "pikepdf", "pdf")),
    "res": _Output(_res, "NAME*_res.json"),
    "png": _Output(_png, "pages/p*.png"),
}
