"""The checklist names tests that exist, and leaves no line without one or a reason."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PAGE = (TESTS.parent / "docs" / "checklist-paddleocr-vl.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`((?:unit|e2e|contract)/\w+\.py)::(\w+)`", PAGE)


def functions(path: Path) -> set[str]:
    """Tests that pytest collects: functions of the module called test_..."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def rows(heading: str) -> list[list[str]]:
    """The cells of the table under a heading, without its head."""
    section = PAGE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    table = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table]


def test_every_test_that_the_checklist_names_exists() -> None:
    missing = [f"{file}::{name}" for file, name in NAMED if name not in functions(TESTS / file)]
    assert missing == []
    assert len(NAMED) >= 40


def test_names_are_written_in_the_form_that_is_checked() -> None:
    assert len(re.findall(r"\btest_\w+\.py", PAGE)) == len(NAMED) + 1  # this file is named, too


def test_every_line_has_a_test_or_says_why_not() -> None:
    numbered = {"Checklist": 12, "Defects upstream": 14}
    for heading, count in numbered.items():
        found = rows(heading)
        assert [row[0] for row in found if row[0] != "+"] == [str(number) for number in range(1, count + 1)]
        for row in found:
            assert "::test_" in row[-1] or "golden vector" in row[-1] or "not held: " in row[-1], row
    assert all("::test_" in row[-1] for row in rows("Golden vectors"))
