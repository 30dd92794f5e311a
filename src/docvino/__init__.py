"""docvino reads documents into Markdown and JSON, locally, through OpenVINO.

    import docvino
    print(docvino.parse("scan.pdf").markdown)

`parse` is for one document; `Parser` keeps the models for many. Everything is imported when it is first used.
"""

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from docvino.api import Reading, parse
    from docvino.document import Document
    from docvino.parser import Parser
    from docvino.settings import ParseOptions, RuntimeConfig

__all__ = ["Document", "ParseOptions", "Parser", "Reading", "RuntimeConfig", "__version__", "parse"]

_HOMES = {
    "Document": "document",
    "ParseOptions": "settings",
    "Parser": "parser",
    "Reading": "api",
    "RuntimeConfig": "settings",
    "parse": "api",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'docvino' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"docvino.{_HOMES[name]}"), name)
