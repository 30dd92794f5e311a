"""Document <-> JSON in docvino's own schema."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from docvino.document import SCHEMA_VERSION, Document
from docvino.errors import InputError


def to_json(document: Document) -> str:
    """Indented JSON, UTF-8 characters as they are, with a final newline."""
    return document.model_dump_json(indent=2) + "\n"


def from_json(text: str) -> Document:
    """Raises: InputError when the text is not a document of this schema version."""
    try:
        document = Document.model_validate_json(text)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise InputError(
            f"not a docvino document: {error.errors()[0]['msg'].lower()} at {where or 'the top'}",
            fix="parse the source again with this version of docvino",
        ) from error
    if document.schema_version != SCHEMA_VERSION:
        raise InputError(
            f"a document of schema version {document.schema_version}, this docvino reads {SCHEMA_VERSION}",
            fix="parse the source again with this version of docvino",
        )
    return document


def json_schema() -> dict[str, Any]:
    """The JSON schema of a document."""
    return Document.model_json_schema()
