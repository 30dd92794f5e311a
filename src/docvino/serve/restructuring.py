"""Results of PaddleOCR-VL, as somebody sends them -> a document, restructured, and results again.

What was sent comes back as it was but for what restructuring changes: joined tables and numbers over all pages. Nothing
in it is trusted: types are checked, and tables and blocks are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from docvino.document import Block, Document, Page, Provenance, Source, Stats, box_polygon
from docvino.render.res import results
from docvino.serve.html_table import MOST_PLACES, parse_table
from docvino.serve.problems import RefusalError
from docvino.text.restructure import restructure

_MOST_BLOCKS = 20_000  # of all pages
_MOST_PLACES = 2 * MOST_PLACES  # of all tables
_MOST_HEADINGS = 2000
_FAR = 1_000_000.0

Place = Annotated[float, Field(ge=-_FAR, le=_FAR, allow_inf_nan=False)]

# Source: PaddleX 3.7.2: how formulas stand in the text of its results.
_DISPLAY = re.compile(r"\$\$ ?([^$]*?) ?\$\$")
_INLINE = re.compile(r"\$ ([^$\n]*?) \$")


class Entry(BaseModel):
    """One block; what else is in it is given back."""

    model_config = ConfigDict(extra="allow")

    block_label: str = Field(max_length=100)
    block_content: str
    block_bbox: tuple[Place, Place, Place, Place]


class ResPage(BaseModel):
    """One page; what else is in it is given back."""

    model_config = ConfigDict(extra="allow")

    width: int = Field(1, ge=0, le=int(_FAR))
    height: int = Field(1, ge=0, le=int(_FAR))
    parsing_res_list: list[Entry] = Field(max_length=_MOST_BLOCKS)


def restructured(
    pages: Sequence[ResPage], *, merge_tables: bool, relevel_titles: bool, concatenate: bool
) -> tuple[Document, list[dict[str, Any]]]:
    """The document, and the result of each page, or the one of all.

    Raises: RefusalError for more than is taken.
    """
    entries = [entry for page in pages for entry in page.parsing_res_list]
    if len(entries) > _MOST_BLOCKS:
        raise _too_much(f"{len(entries)} blocks", _MOST_BLOCKS)
    headings = sum(entry.block_label == "paragraph_title" for entry in entries)
    if relevel_titles and headings > _MOST_HEADINGS:
        raise _too_much(f"{headings} headings", _MOST_HEADINGS)
    left = _MOST_PLACES
    made = []
    for index, page in enumerate(pages):
        blocks = []
        for place, entry in enumerate(page.parsing_res_list):
            block = _block(entry, f"p{index + 1}-b{place + 1}", place, min(left, MOST_PLACES))
            left -= sum(cell.row_span * cell.column_span for cell in block.cells)
            blocks.append(block)
        status = "ok" if blocks else "empty"
        made.append(
            Page(page_index=index, width_px=page.width, height_px=page.height, status=status, blocks=tuple(blocks))
        )
    options = {"restructure_pages": True, "layout_shape_mode": "rect"}
    document = restructure(
        Document(
            source=Source(name="pages", sha256="", media_type="application/pdf"),
            pages=tuple(made),
            provenance=Provenance(package="", preset="", openvino="", models=(), options=options),
            stats=Stats(),
        ),
        merge_tables=merge_tables,
        relevel_titles=relevel_titles,
    )
    return document, _results(document, pages, concatenate=concatenate)


def _results(document: Document, pages: Sequence[ResPage], *, concatenate: bool) -> list[dict[str, Any]]:
    joined = {block.continues for page in document.pages for block in page.blocks if block.continues}
    shown = []
    for (_, result), page, sent in zip(results(document, None), document.pages, pages, strict=True):
        entries = []
        for new, block, entry in zip(result["parsing_res_list"], page.blocks, sent.parsing_res_list, strict=True):
            own = entry.model_dump()
            numbers = {key: new[key] for key in ("global_block_id", "global_group_id")}
            changed = {"block_content": new["block_content"]} if block.id in joined or block.continues else {}
            entries.append({**own, **changed, **numbers})
        shown.append({**sent.model_dump(exclude={"parsing_res_list"}), "parsing_res_list": entries})
    if not concatenate:
        return shown
    whole = {**shown[0], "page_count": len(shown)}
    whole["parsing_res_list"] = [
        {**entry, "block_id": place}
        for place, entry in enumerate(entry for result in shown for entry in result["parsing_res_list"])
    ]
    for name in ("layout_det_res", "doc_preprocessor_res"):
        if name in whole:
            whole[name] = [result.get(name) for result in shown]
    return [whole]


def _block(entry: Entry, block_id: str, place: int, places: int) -> Block:
    left, top, right, bottom = entry.block_bbox
    facts: dict[str, Any] = {"content": _text(entry.block_content), "format": "text"}
    if entry.block_label == "table" and "<t" in entry.block_content:
        cells, written = parse_table(entry.block_content, places)
        facts = {"content": written, "format": "html", "cells": cells}
    elif entry.block_label == "display_formula":
        facts = {"content": entry.block_content.strip().strip("$").strip(), "format": "latex"}
    return Block(
        id=block_id,
        label=entry.block_label,
        polygons=(box_polygon(min(left, right), min(top, bottom), max(left, right), max(top, bottom)),),
        order=place,
        **facts,
    )


def _text(content: str) -> str:
    """Formulas as docvino writes them, so that Markdown does not take their signs for money."""
    return _INLINE.sub(r"\\(\1\\)", _DISPLAY.sub(r"\\[\1\\]", content))


def _too_much(what: str, most: int) -> RefusalError:
    return RefusalError(422, "over_limit", f"{what} in one request", fix=f"send {most} or fewer")
