"""What clients send: the form of a document with the options of its reading."""

from __future__ import annotations

from typing import Any

from fastapi import UploadFile
from pydantic import Field, ValidationError

from docvino.serve.problems import RefusalError
from docvino.settings import ParseOptions


class DocumentForm(ParseOptions):
    """One document, and how it is to be read; options that are not sent are those of the service."""

    file: UploadFile = Field(description="the document: PDF, PNG, JPEG, WebP, BMP, GIF or TIFF")
    formats: str = Field(
        "markdown",
        description="by comma: markdown, json, html, text, docx, xlsx, csv, pdf, res, png",
        examples=["markdown,html"],
    )


def options_of(form: DocumentForm, own: ParseOptions) -> ParseOptions:
    """The service's own options, changed by what the form says.

    Raises: RefusalError when it asks for more than the service gives.
    """
    names = form.model_fields_set & ParseOptions.model_fields.keys()
    return changed(own, {name: getattr(form, name) for name in names})


def changed(own: ParseOptions, wishes: dict[str, Any]) -> ParseOptions:
    """Raises: RefusalError for limits above the service's own, and for values that are none."""
    for name in ("max_pixels", "max_pages"):
        most = getattr(own, name)
        if isinstance(wishes.get(name), int) and wishes[name] > most:
            raise RefusalError(
                422,
                "over_limit",
                f"{name} is {wishes[name]}, the service's limit {most}",
                fix=f"{name}: {most} or less",
            )
    try:
        return ParseOptions.model_validate({**own.model_dump(), **wishes})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise RefusalError(422, "bad_request", f"{where}: {first['msg'].lower()}", fix="correct it") from None
