"""The documents are true: help texts, settings, links, layers, schema."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

from docvino.render.json import json_schema
from docvino.settings import ParseOptions, RuntimeConfig

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def test_the_help_in_the_docs_is_the_help_of_the_program() -> None:
    spec = importlib.util.spec_from_file_location("write_cli_docs", ROOT / "tools" / "write_cli_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert module.render().split() == written.split(), "run: python tools/write_cli_docs.py"


def test_the_published_schema_is_the_schema_of_the_program() -> None:
    published = json.loads((ROOT / "docs" / "document.schema.json").read_text(encoding="utf-8"))
    assert published == json_schema(), "run: docvino schema > docs/document.schema.json"


def test_every_setting_is_described_in_the_docs() -> None:
    text = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    for model in (RuntimeConfig, ParseOptions):
        for name, field in model.model_fields.items():
            assert f"`{name}`" in text
            assert (field.description or "?") in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_relative_link_leads_to_a_file(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_no_document_names_a_folder_of_one_machine() -> None:
    for page in PAGES:
        assert not re.findall(r"(?<![\w.])/(?:home|root|work|tmp)/\w+", page.read_text(encoding="utf-8")), page.name
