"""Every error that docvino raises on purpose.

    DocvinoError                 exit 1
    ├── ConfigError              exit 2   a flag, a setting or a name that does not exist
    ├── MissingExtraError        exit 3   an optional package, a toolchain or pip itself is not there
    ├── ArtifactError            exit 4   model files
    │   ├── FetchError           exit 4   download, hash, missing member
    │   ├── ConvertError         exit 4   a graph that cannot become IR
    │   ├── BundleError          exit 4   a converted model folder that is missing, old or damaged
    │   └── VerifyError          exit 5   a device that answers wrongly
    ├── InputError               exit 6   a document that cannot be read
    └── InferenceError           exit 7   a model that fails while running
        ├── DeviceError          exit 7   a device that is absent or refuses a model
        └── GenerationError      exit 7   a text generator that cannot go on

Each error is one line with the cause and one line (`fix`) with what to do about it. Errors of foreign
libraries are turned into these in the one file that owns the library.
"""

from __future__ import annotations

import difflib
from typing import ClassVar

EXIT_OK = 0
EXIT_PARTLY_DONE = 8  # some documents or pages of a run failed, the others are there


class DocvinoError(Exception):
    """A failure with a cause (`str(error)`) and a remedy (`error.fix`), each one line."""

    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500

    def __init__(self, message: str, *, fix: str) -> None:
        super().__init__(" ".join(message.split()))
        self.fix = " ".join(fix.split())


class ConfigError(DocvinoError):
    exit_code = 2
    http_status = 400


class MissingExtraError(DocvinoError):
    exit_code = 3
    http_status = 501


class ArtifactError(DocvinoError):
    exit_code = 4
    http_status = 503


class FetchError(ArtifactError):
    """A model file that could not be obtained, or is not the file that was asked for."""


class ConvertError(ArtifactError):
    """A model that could not be converted, or whose conversion computes other numbers."""


class BundleError(ArtifactError):
    """A converted model folder that is missing, incomplete or made by another version."""


class VerifyError(ArtifactError):
    """A converted model whose answers on this device differ from the recorded ones."""

    exit_code = 5


class InputError(DocvinoError):
    exit_code = 6
    http_status = 422


class InferenceError(DocvinoError):
    exit_code = 7
    http_status = 500


class DeviceError(InferenceError):
    """A device that is not there, or does not accept a model."""

    http_status = 503


class GenerationError(InferenceError):
    """A text generator that cannot continue a sequence."""


def nearest(name: str, known: tuple[str, ...]) -> str:
    """A sentence that helps somebody who mistyped `name`."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
