"""Every error has an exit code, an HTTP status and a fix."""

from __future__ import annotations

import re

import pytest

from docvino import errors
from docvino.errors import DocvinoError

EXIT_CODES = {
    "DocvinoError": 1,
    "ConfigError": 2,
    "MissingExtraError": 3,
    "ArtifactError": 4,
    "FetchError": 4,
    "ConvertError": 4,
    "BundleError": 4,
    "VerifyError": 5,
    "InputError": 6,
    "InferenceError": 7,
    "DeviceError": 7,
    "GenerationError": 7,
}


def tree(kind: type[DocvinoError]) -> list[type[DocvinoError]]:
    return [kind, *(leaf for child in kind.__subclasses__() for leaf in tree(child))]


def test_the_tree_holds_exactly_the_documented_errors_with_their_exit_codes() -> None:
    assert {kind.__name__: kind.exit_code for kind in tree(DocvinoError)} == EXIT_CODES


def test_the_module_text_names_every_error_with_its_exit_code() -> None:
    drawn = dict(re.findall(r"(\w+Error)\s+exit (\d)", errors.__doc__ or ""))
    assert {name: int(code) for name, code in drawn.items()} == EXIT_CODES


@pytest.mark.parametrize("kind", tree(DocvinoError), ids=lambda kind: kind.__name__)
def test_every_error_has_an_http_status_and_one_line_each_for_cause_and_fix(kind: type[DocvinoError]) -> None:
    error = kind("the cause\n  goes on", fix="do this\nand that")
    assert 400 <= kind.http_status < 600
    assert str(error) == "the cause goes on"
    assert error.fix == "do this and that"
