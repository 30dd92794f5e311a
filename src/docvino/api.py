"""The one-call library interface."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docvino.document import Document
from docvino.parser import Parser
from docvino.render.html import to_html
from docvino.render.json import to_json
from docvino.render.markdown import to_markdown
from docvino.render.text import to_text
from docvino.settings import default_config_file, resolve


@dataclass(frozen=True)
class Reading:
    """A parsed document and its renderings, without pictures; `docvino.outputs` writes all formats as files."""

    document: Document

    @property
    def markdown(self) -> str:
        return to_markdown(self.document)

    @property
    def html(self) -> str:
        return to_html(self.document)

    @property
    def text(self) -> str:
        return to_text(self.document)

    @property
    def json(self) -> str:
        return to_json(self.document)


def parse(source: str | Path | bytes, **settings: Any) -> Reading:
    """Reads one document: a path, "-" for standard input, or bytes.

    settings   any of RuntimeConfig's and ParseOptions' names, e.g. device="GPU", pages="1-3". What is not given comes
               from DOCVINO_* variables, the settings file and the defaults, as on the command line.

    Models are loaded for this call alone; hold a `Parser` to read many documents.

    Raises: ConfigError, BundleError, DeviceError, InputError.
    """
    file = default_config_file()
    merged = resolve(settings, environ=os.environ, config_file=file if file.is_file() else None)
    with Parser.open(merged.runtime) as parser:
        return Reading(parser.parse(source, merged.options))
