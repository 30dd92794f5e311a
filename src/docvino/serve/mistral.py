"""The shape of Mistral's OCR: POST /v1/ocr."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, ConfigDict, Field

from docvino.document import Document, Page, polygon_box
from docvino.outputs import figures_of
from docvino.render.flow import pages_to_read
from docvino.render.markdown import page_markdown
from docvino.serve.documents import awaited
from docvino.serve.forms import changed
from docvino.serve.incoming import Incoming
from docvino.serve.problems import RefusalError
from docvino.serve.service import Service

_MOST_PAGES = 10_000
_DPI = 72  # of a picture that does not say


class ImageUrl(BaseModel):
    url: str


class Source(BaseModel):
    """A data URI, or a URL of a host that the service may fetch from."""

    type: Literal["document_url", "image_url", "file"]
    document_url: str | None = None
    image_url: str | ImageUrl | None = None
    document_name: str | None = None

    @property
    def url(self) -> str:
        """Raises: RefusalError."""
        image = self.image_url.url if isinstance(self.image_url, ImageUrl) else self.image_url
        url = self.document_url if self.type == "document_url" else image if self.type == "image_url" else None
        if not url:
            raise RefusalError(
                422,
                "bad_request",
                "there is no document in the request",
                fix="send a document_url or an image_url, as a data URI",
            )
        return url


_EXAMPLE = {
    "model": "docvino",
    "document": {"type": "document_url", "document_url": "data:application/pdf;base64,JVBERi0="},
    "pages": [0],
    "include_image_base64": False,
}


class Asked(BaseModel):
    """`pages` count from 0; any model name is taken, as one model reads."""

    model_config = ConfigDict(extra="ignore")

    model: str | None = None
    id: str | None = None
    document: Source
    pages: list[Annotated[int, Field(ge=0, le=_MOST_PAGES)]] | str | None = Field(None, max_length=_MOST_PAGES)
    include_image_base64: bool | None = None
    image_limit: int | None = Field(None, ge=0)
    image_min_size: int | None = Field(None, ge=0)


class Image(BaseModel):
    id: str
    top_left_x: int
    top_left_y: int
    bottom_right_x: int
    bottom_right_y: int
    image_base64: str | None = None
    image_annotation: str | None = None


class Dimensions(BaseModel):
    dpi: int
    height: int
    width: int


class PageOut(BaseModel):
    index: int
    markdown: str
    images: list[Image]
    dimensions: Dimensions


class Usage(BaseModel):
    pages_processed: int
    doc_size_bytes: int


class Answered(BaseModel):
    pages: list[PageOut]
    model: str
    document_annotation: str | None = None
    usage_info: Usage


def routes(service: Service, incoming: Incoming) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["Mistral"])

    @router.post("/ocr", summary="A document to Markdown, page by page")
    async def ocr(asked: Annotated[Asked, Body(examples=[_EXAMPLE])], request: Request) -> Answered:
        wishes: dict[str, Any] = {}
        if isinstance(asked.pages, str):
            wishes["pages"] = _counted_from_one(asked.pages)
        elif asked.pages:
            wishes["pages"] = ",".join(str(page + 1) for page in asked.pages)
        options = changed(service.options, wishes)
        folder, name = await run_in_threadpool(incoming.store, asked.document.url, asked.document.document_name)
        try:
            document = await awaited(service, request, service.read_now(folder, name, options))
            return await run_in_threadpool(_answered, document, folder, asked, service.parser.runtime.preset)
        finally:
            await run_in_threadpool(service.forget, folder)

    return router


def _counted_from_one(pages: str) -> str:
    """ "0-2,5" -> "1-3,6". Raises: RefusalError."""
    try:
        parts = [[int(number) + 1 for number in part.split("-")] for part in pages.split(",")]
    except ValueError:
        raise RefusalError(422, "bad_request", "pages are numbers from 0", fix='write [0, 1] or "0-1,5"') from None
    return ",".join("-".join(map(str, numbers)) for numbers in parts)


def _answered(document: Document, folder: Path, asked: Asked, model: str) -> Answered:
    files = figures_of(document, folder)
    pages = [
        _page(page, shown, files, asked) for page, shown in zip(document.pages, pages_to_read(document), strict=True)
    ]
    size = (folder / "source").stat().st_size
    return Answered(pages=pages, model=model, usage_info=Usage(pages_processed=len(pages), doc_size_bytes=size))


def _page(page: Page, shown: Page, files: Any, asked: Asked) -> PageOut:
    images: list[Image] = []
    for block in page.blocks:
        if block.id not in files or (asked.image_limit is not None and len(images) >= asked.image_limit):
            continue
        left, top, right, bottom = map(round, polygon_box(block.polygons[0]))
        if asked.image_min_size and min(right - left, bottom - top) < asked.image_min_size:
            continue
        data = None
        if asked.include_image_base64:
            data = f"data:image/png;base64,{base64.b64encode(files[block.id].read_bytes()).decode('ascii')}"
        images.append(
            Image(
                id=f"{block.id}.png",
                top_left_x=left,
                top_left_y=top,
                bottom_right_x=right,
                bottom_right_y=bottom,
                image_base64=data,
            )
        )
    links = {image.id.removesuffix(".png"): image.id for image in images}
    return PageOut(
        index=page.page_index,
        markdown="\n\n".join(page_markdown(shown, links)),
        images=images,
        dimensions=Dimensions(dpi=round(page.dpi or _DPI), height=page.height_px, width=page.width_px),
    )
