"""Documents made by hand for tests of the outputs."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from PIL import Image

from docvino.document import (
    Block,
    Cell,
    ContentFormat,
    Document,
    Line,
    Page,
    Provenance,
    Source,
    Stats,
    box_polygon,
)
from docvino.text.tables import to_html as table_html

WIDTH_PX, HEIGHT_PX = 600, 800


def block(label: str, content: str = "", form: ContentFormat = "text", **facts: Any) -> Block:
    """A block without a place in a document; `page` gives it one."""
    facts.setdefault("polygons", (box_polygon(60, 80, 360, 120),))
    return Block(id="", label=label, order=0, content=content, format=form, **facts)


def table(*rows: Sequence[str], spans: Sequence[Cell] = (), **facts: Any) -> Block:
    """A table of plain cells, or of the cells given."""
    cells = tuple(spans) or tuple(
        Cell(row=row, column=column, text=text) for row, texts in enumerate(rows) for column, text in enumerate(texts)
    )
    return block("table", table_html(cells), "html", cells=cells, **facts)


SPANNING = (
    Cell(row=0, column=0, column_span=2, text="Wide"),
    Cell(row=0, column=2, row_span=2, text="Tall"),
    Cell(row=1, column=0, text="a"),
    Cell(row=1, column=1, text="b"),
)


def line(text: str, left: float, top: float, right: float, bottom: float) -> Line:
    return Line(text=text, polygon=box_polygon(left, top, right, bottom), confidence=0.9)


def page(*blocks: Block, index: int = 0, **facts: Any) -> Page:
    """A page of 600 x 800 px; its blocks are numbered."""
    numbered = tuple(
        one.model_copy(update={"id": f"p{index + 1}-b{place + 1}", "order": place}) for place, one in enumerate(blocks)
    )
    return Page(
        **{
            "page_index": index,
            "width_px": WIDTH_PX,
            "height_px": HEIGHT_PX,
            "status": "ok" if blocks else "empty",
            "blocks": numbered,
            **facts,
        }
    )


def document(*pages: Page, name: str = "scan.png", media_type: str = "image/png", **options: Any) -> Document:
    return Document(
        source=Source(name=name, sha256="0", media_type=media_type),
        pages=pages,
        provenance=Provenance(package="docvino", preset="pp-ocr", openvino="2026", models=(), options=options),
        stats=Stats(),
    )


def png(width: int = 30, height: int = 20, colour: str = "red") -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(stream, "PNG")
    return stream.getvalue()
