"""The documents are true: help texts, settings, links, layers, schema."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

from docvino.machine.table import read_toml
from docvino.render.json import json_schema
from docvino.settings import ParseOptions, RuntimeConfig, ServeConfig

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
    for model in (RuntimeConfig, ParseOptions, ServeConfig):
        for name, field in model.model_fields.items():
            assert f"`{name}`" in text
            assert (field.description or "?") in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_relative_link_leads_to_a_file(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def _anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings: small letters, hyphens for spaces, no punctuation."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_anchor_leads_to_a_heading(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", page.read_text(encoding="utf-8")):
        there = (page.parent / target).resolve() if target else page
        assert anchor in _anchors(there), f"{target}#{anchor}"


def test_no_document_names_a_folder_of_one_machine() -> None:
    for page in PAGES:
        assert not re.findall(r"(?<![\w.])/(?:home|root|work|tmp)/\w+", page.read_text(encoding="utf-8")), page.name


def test_every_test_that_the_docs_name_exists() -> None:
    named = re.findall(r"`((?:unit|e2e)/test_\w+\.py)::(test_\w+)`", (ROOT / "docs" / "pitfalls.md").read_text("utf-8"))
    assert len(named) > 30
    missing = [
        f"{file}::{name}"
        for file, name in named
        if f"\ndef {name}(" not in (ROOT / "tests" / file).read_text(encoding="utf-8")
    ]
    assert missing == []


def test_the_tested_versions_in_the_docs_are_those_the_doctor_knows() -> None:
    text = (ROOT / "docs" / "hardware.md").read_text(encoding="utf-8")
    tested = read_toml("tested.toml")
    for name, row in {"python": tested["python"], **tested["packages"]}.items():
        assert f"| {name} | {', '.join(row['versions'])} | {row['range']} |" in text


def test_every_line_of_the_doctor_for_gpus_is_explained() -> None:
    text = (ROOT / "docs" / "hardware.md").read_text(encoding="utf-8").lower()
    names = (
        "kernel driver",
        "device node",
        "rights",
        "opencl loader",
        "opencl driver",
        "level zero",
        "compute runtime",
    )
    for name in (
        *names,
        "compiler (igc)",
        "resizable bar",
        "known problem",
        "opencl devices",
        "frequency",
        "inference",
    ):
        assert name in text, name
