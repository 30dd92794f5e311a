"""The shape of PaddleX's serving: POST /layout-parsing and /restructure-pages.

Source: PaddleX 3.7.2, schemas of the pipeline PaddleOCR-VL. Differs: a field that docvino cannot follow is refused, not
ignored; null is always fine.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import uuid4

from fastapi import APIRouter, Body, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, ConfigDict, Field, StrictBool
from pydantic.alias_generators import to_camel

from docvino.document import Document, Page
from docvino.outputs import figures_of
from docvino.render.flow import is_picture, pages_to_read
from docvino.render.markdown import page_markdown
from docvino.render.overlay import overlay_png
from docvino.render.res import results
from docvino.serve.documents import awaited, outcome
from docvino.serve.forms import changed
from docvino.serve.incoming import Incoming
from docvino.serve.problems import RefusalError
from docvino.serve.restructuring import ResPage, restructured
from docvino.serve.results import formats_of
from docvino.serve.service import Service
from docvino.settings import LayoutMerge, LayoutShape, ParseOptions

_FORMATS = ("docx", "xlsx", "html", "pdf", "markdown")

_TAKES = ConfigDict(extra="ignore", alias_generator=to_camel, populate_by_name=True)

_LINK = re.compile(r"""[("]([^()"\s]+)[)"]""")  # of Markdown and of HTML
Number = Annotated[float, Field(allow_inf_nan=False)]

_EXAMPLE = {"file": "JVBERi0=", "fileType": 0, "useChartRecognition": False, "returnMarkdownImages": True}


class LayoutParsing(BaseModel):
    """One document, as base64 or as a URL of a host that the service may fetch from."""

    model_config = _TAKES

    file: str = Field(min_length=1)
    file_type: Literal[0, 1] | None = Field(None, description="0: PDF, 1: image; docvino sees it by itself")
    use_doc_orientation_classify: StrictBool | None = None
    use_doc_unwarping: StrictBool | None = None
    use_layout_detection: StrictBool | None = None
    use_chart_recognition: StrictBool | None = None
    use_seal_recognition: StrictBool | None = None
    use_ocr_for_image_block: StrictBool | None = None
    layout_threshold: Number | dict[str, Any] | None = None
    layout_nms: StrictBool | None = None
    layout_unclip_ratio: Number | list[Number] | dict[str, Any] | None = None
    layout_merge_bboxes_mode: LayoutMerge | dict[str, Any] | None = None
    layout_shape_mode: LayoutShape | None = "auto"
    prompt_label: Literal["ocr", "formula", "table", "chart", "seal", "spotting"] | None = None
    format_block_content: StrictBool | None = None
    repetition_penalty: Number | None = None
    temperature: Number | None = None
    top_p: Number | None = None
    min_pixels: int | None = None
    max_pixels: int | None = None
    max_new_tokens: int | None = None
    merge_layout_blocks: StrictBool | None = None
    markdown_ignore_labels: list[str] | None = None
    vlm_extra_args: dict[str, Any] | None = None
    prettify_markdown: StrictBool = True
    show_formula_number: StrictBool = False
    restructure_pages: StrictBool = False
    merge_tables: StrictBool = True
    relevel_titles: StrictBool = True
    return_markdown_images: StrictBool = True
    output_formats: list[str] | None = Field(None, max_length=10)
    visualize: StrictBool | None = None
    log_id: str | None = Field(None, max_length=200)


class RestructurePage(BaseModel):
    model_config = _TAKES

    pruned_result: ResPage
    markdown_images: dict[str, str] | None = None


_PAGE_EXAMPLE = {
    "prunedResult": {
        "width": 600,
        "height": 800,
        "parsing_res_list": [
            {"block_label": "text", "block_content": "One line.", "block_bbox": [10, 10, 200, 40], "block_id": 0}
        ],
    }
}


class RestructurePages(BaseModel):
    """Results of /layout-parsing, page by page, to be made one document."""

    model_config = _TAKES

    pages: list[RestructurePage] = Field(min_length=1, max_length=10_000)
    merge_tables: StrictBool = True
    relevel_titles: StrictBool = True
    concatenate_pages: StrictBool = False
    prettify_markdown: StrictBool = True
    show_formula_number: StrictBool = False
    return_markdown_images: StrictBool = True
    output_formats: list[str] | None = Field(None, max_length=10)
    log_id: str | None = Field(None, max_length=200)


class Envelope(BaseModel):
    """What every answer of PaddleX's serving comes in."""

    model_config = _TAKES

    log_id: str
    error_code: int = 0
    error_msg: str = "Success"
    result: dict[str, Any]


def routes(service: Service, incoming: Incoming) -> APIRouter:
    router = APIRouter(tags=["PaddleX"])

    @router.post("/layout-parsing", summary="A document to the results of PaddleOCR-VL")
    async def layout_parsing(asked: Annotated[LayoutParsing, Body(examples=[_EXAMPLE])], request: Request) -> Envelope:
        options = options_of(asked, service.options)
        formats = _formats(asked.output_formats)
        folder, name = await run_in_threadpool(incoming.store, asked.file)
        try:
            document = await awaited(service, request, service.read_now(folder, name, options))
            made = await run_in_threadpool(_parsed, service, document, folder, options, asked, formats)
        finally:
            await run_in_threadpool(service.forget, folder)
        return Envelope(log_id=asked.log_id or uuid4().hex, result=made)

    @router.post("/restructure-pages", summary="Results of pages to those of one document")
    async def restructure_pages(
        asked: Annotated[RestructurePages, Body(examples=[{"pages": [_PAGE_EXAMPLE]}])], request: Request
    ) -> Envelope:
        if asked.output_formats:
            raise _not_offered("outputFormats", "ask /layout-parsing with restructurePages for files")
        # In the queue, as a long document takes seconds: no more of them at a time than others.
        made = await outcome(service, request, *service.compute(lambda: _restructured(asked)))
        return Envelope(log_id=asked.log_id or uuid4().hex, result=made)

    return router


def _restructured(asked: RestructurePages) -> dict[str, Any]:
    """Raises: RefusalError."""
    document, pruned = restructured(
        [page.pruned_result for page in asked.pages],
        merge_tables=asked.merge_tables,
        relevel_titles=asked.relevel_titles,
        concatenate=asked.concatenate_pages,
    )
    links: dict[str, str] = {}
    images: dict[str, str] = {}
    for page, sent in zip(document.pages, asked.pages, strict=True):
        images |= sent.markdown_images or {}
        links |= _links(page, sent)
    texts = [
        "\n\n".join(page_markdown(page, links, pretty=asked.prettify_markdown)) for page in pages_to_read(document)
    ]
    if asked.concatenate_pages:
        texts = ["\n\n".join(text for text in texts if text)]
    shown = []
    for result, text in zip(pruned, texts, strict=True):
        named = dict.fromkeys(path for path in _LINK.findall(text) if path in images)
        own = {path: images[path] for path in named} if asked.return_markdown_images else None
        shown.append({"prunedResult": result, "markdown": {"text": text, "images": own}})
    return {"layoutParsingResults": shown}


def _links(page: Page, sent: RestructurePage) -> dict[str, str]:
    """Block id -> path, of the pictures that came with a page: they come in the order of reading."""
    in_cells = {path for entry in sent.pruned_result.parsing_res_list for path in _LINK.findall(entry.block_content)}
    paths = [path for path in sent.markdown_images or {} if path not in in_cells]
    pictures = [block for block in page.blocks if is_picture(block)]
    return dict(zip((block.id for block in pictures), paths, strict=True)) if len(paths) == len(pictures) else {}


def options_of(asked: LayoutParsing, own: ParseOptions) -> ParseOptions:
    """Raises: RefusalError for what docvino does not offer."""
    refused = {
        "useDocUnwarping": asked.use_doc_unwarping,
        "formatBlockContent": asked.format_block_content,
        "markdownIgnoreLabels": asked.markdown_ignore_labels is not None,
        "vlmExtraArgs": bool(asked.vlm_extra_args),
        "minPixels": asked.min_pixels is not None,
        "maxPixels": asked.max_pixels is not None,
        "repetitionPenalty": asked.repetition_penalty not in (None, 1.0),
        "layoutThreshold": isinstance(asked.layout_threshold, dict),
        "layoutUnclipRatio": isinstance(asked.layout_unclip_ratio, (list, dict)),
        "layoutMergeBboxesMode": isinstance(asked.layout_merge_bboxes_mode, dict),
    }
    for name, is_asked in refused.items():
        if is_asked:
            raise _not_offered(name, "leave it out")
    if asked.use_layout_detection is False:
        raise _not_offered("useLayoutDetection: false", "let the service be started with --layout none")
    wishes = {
        "auto_rotate": asked.use_doc_orientation_classify,
        "use_chart_recognition": asked.use_chart_recognition,
        "use_seal_recognition": asked.use_seal_recognition,
        "use_ocr_for_image_block": asked.use_ocr_for_image_block,
        "layout_threshold": asked.layout_threshold,
        "layout_nms": asked.layout_nms,
        "layout_unclip_ratio": asked.layout_unclip_ratio,
        "layout_merge_bboxes_mode": asked.layout_merge_bboxes_mode,
        "layout_shape_mode": asked.layout_shape_mode,
        "task": asked.prompt_label,
        "temperature": asked.temperature,
        "top_p": asked.top_p,
        "max_new_tokens": asked.max_new_tokens,
        "merge_layout_blocks": asked.merge_layout_blocks,
        "restructure_pages": asked.restructure_pages,
        "merge_tables": asked.merge_tables,
        "relevel_titles": asked.relevel_titles,
    }
    return changed(own, {name: value for name, value in wishes.items() if value is not None})


def _not_offered(name: str, fix: str) -> RefusalError:
    return RefusalError(422, "not_offered", f"{name} is not offered", fix=fix)


def _formats(asked: list[str] | None) -> tuple[str, ...]:
    names = formats_of(",".join(asked)) if asked else ()
    if odd := [name for name in names if name not in _FORMATS]:
        raise RefusalError(422, "unknown_format", f"{odd[0]} is no file here", fix=f"{', '.join(_FORMATS)}")
    return names


def _parsed(
    service: Service,
    document: Document,
    folder: Path,
    options: ParseOptions,
    asked: LayoutParsing,
    formats: Iterable[str],
) -> dict[str, Any]:
    files = figures_of(document, folder)
    links = {id_: f"imgs/{path.name}" for id_, path in files.items()}
    is_pdf = document.source.media_type == "application/pdf"
    visible = dict(_pictures(service, document, folder, options)) if asked.visualize else {}
    shown = []
    pages = zip(results(document, None, links), pages_to_read(document), strict=True)
    for (page, result), joined in pages:
        assert page is not None  # pages are not concatenated here
        text = "\n\n".join(page_markdown(joined, links, pretty=asked.prettify_markdown))
        pictures = _encoded({links[id_]: path for id_, path in files.items() if links[id_] in text})
        shown.append(
            {
                "prunedResult": {key: result[key] for key in result if key not in ("input_path", "page_index")},
                "markdown": {"text": text, "images": pictures if asked.return_markdown_images else None},
                "outputImages": {"layout_det_res": visible[page.page_index]} if page.page_index in visible else None,
                "inputImage": None,
            }
        )
    sizes = [{"width": page.width_px, "height": page.height_px} for page in document.pages]
    if is_pdf or len(sizes) > 1:
        info: dict[str, Any] = {"type": "pdf" if is_pdf else "tiff", "numPages": len(sizes), "pages": sizes}
    else:
        info = {"type": "image", **sizes[0]}
    made: dict[str, Any] = {"layoutParsingResults": shown, "dataInfo": info}
    exports = {name: service.writer.write(folder, document, name, options).data for name in formats}
    if exports:
        made["exports"] = {name: base64.b64encode(data).decode("ascii") for name, data in exports.items()}
    return made


def _encoded(files: Mapping[str, Path]) -> dict[str, str]:
    return {link: base64.b64encode(path.read_bytes()).decode("ascii") for link, path in files.items()}


def _pictures(service: Service, document: Document, folder: Path, options: ParseOptions) -> Iterator[tuple[int, str]]:
    pages: list[Page] = [page for page in document.pages if page.status != "failed"]
    for page, pixels in service.page_pixels(folder, document.source.name, options, pages):
        yield page.page_index, base64.b64encode(overlay_png(page, pixels)).decode("ascii")
