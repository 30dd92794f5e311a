"""Writes docs/cli.md from the command line's own help texts: python tools/write_cli_docs.py"""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from docvino.cli import app
from docvino.cli_devices import cache
from docvino.cli_models import models, toolchain

TARGET = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
HEAD = """# Command line

Written by `python tools/write_cli_docs.py` from `--help`; a test keeps both alike.

Exit codes: 0 all done, 1 a bug, 2 usage or settings, 3 a missing extra or tool, 4 model files, 5 verification, 6 input,
7 device or inference, 8 some of several documents or pages failed.
"""


def command_names() -> list[list[str]]:
    """Every command as the words that call it, in the order of the help."""

    def name(command: object) -> str:
        given = getattr(command, "name", None)
        return str(given or command.callback.__name__)  # type: ignore[attr-defined]

    return [
        [],
        *([name(command)] for command in app.registered_commands),
        ["models"],
        *(["models", name(command)] for command in models.registered_commands),
        ["toolchain"],
        *(["toolchain", name(command)] for command in toolchain.registered_commands),
        ["cache"],
        *(["cache", name(command)] for command in cache.registered_commands),
    ]


def render() -> str:
    parts = [HEAD]
    for words in command_names():
        text = CliRunner().invoke(app, [*words, "--help"], terminal_width=100, env={"COLUMNS": "100"}).output
        parts.append(f"## {' '.join(['docvino', *words])}\n\n```text\n{text.strip()}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
