"""The plan of the house, read from the imports: rooms import from layers above, heavy stacks have owners."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import docvino

PACKAGE = Path(docvino.__file__).parent
# Run by path in the toolchains' own environments, where Paddle and ONNX are; docvino imports none of them.
ELSEWHERE = PACKAGE / "convert" / "paddle_scripts"

LAYERS = (
    {"errors", "document"},
    {"settings", "specs"},
    {
        "codec",
        "text",
        "render",
        "bundle",
        "inputs",
        "device",
        "decoder",
        "golden",
        "golden_vlm",
        "stateful",
        "download",
        "process",
        "machine",
    },
    {"fetch", "hub", "archive"},
    {"toolchain"},
    {"selftest"},
    {"convert", "runtime", "verify", "reference"},
    {"parser"},
    {"outputs"},
    {"api", "batch", "bringup", "demo", "doctor", "finetune"},
    {"bench", "serve"},
    {"cli_common"},
    {"cli_progress"},
    {"cli_models", "cli_convert", "cli_devices", "cli_doctor", "cli_finetune", "cli_bench", "cli_serve"},
    {"cli"},
    {"__main__"},
)
# Rooms of one layer that may look at each other: an answer to a crop may be its error; codec is what golden cases are
# made and judged with, and what the plain loop of a vision-language model is made of; reference reads a model's facts
# as its conversion does; a decoder is compiled under the rules of devices; the machine is asked in child processes;
# outputs write formulas as text/math finds them.
SIBLINGS = {
    ("document", "errors"),
    ("golden", "codec"),
    ("golden_vlm", "codec"),
    ("golden_vlm", "stateful"),
    ("stateful", "codec"),
    ("reference", "convert"),
    ("decoder", "device"),
    ("machine", "process"),
    ("render", "text"),
}

OWNERS = {
    # decoder: keys and values in tensors that docvino owns, and the private pass that makes this possible
    # machine: a device is kept busy in a child process, which a broken driver may take down
    "openvino": {"device", "convert", "decoder", "machine"},
    "pypdfium2": {"inputs"},
    # codec resizes with Pillow what a model was trained on as Pillow resizes it; decoding stays with inputs.
    # render draws and encodes with it; bringup and bench draw what they read, bench its chart, too.
    "PIL": {"inputs", "bench", "bringup", "demo", "codec", "render"},
    "tokenizers": {"codec"},
    "cv2": {"codec", "inputs", "batch"},
    "pyclipper": {"codec"},
    "http": {"download", "serve"},
    "socket": {"download", "serve"},
    "ssl": {"download", "serve"},
    "filelock": {"hub"},
    "latex2mathml": {"render"},
    "docx": {"render"},
    "openpyxl": {"render"},
    "pikepdf": {"render"},
    "tarfile": {"archive"},
    "typer": {
        "cli",
        "cli_bench",
        "cli_serve",
        "cli_common",
        "cli_convert",
        "cli_devices",
        "cli_doctor",
        "cli_finetune",
        "cli_models",
    },
    "rich": {
        "cli",
        "cli_bench",
        "cli_common",
        "cli_convert",
        "cli_devices",
        "cli_doctor",
        "cli_finetune",
        "cli_models",
        "cli_progress",
    },
    "fastapi": {"serve"},
    "starlette": {"serve"},
    "uvicorn": {"serve"},
    "torch": {"reference", "finetune"},
    "transformers": {"reference", "finetune"},
    "peft": {"finetune"},
    "safetensors": {"finetune"},
    "onnx": set(),
    "onnxruntime": set(),
    "paddle": set(),
    "paddle2onnx": set(),
}


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts != ("__init__",) and ELSEWHERE not in path.parents:
            yield parts[0], path


def imported(path: Path) -> Iterator[str]:
    """Every module named by an import anywhere in the file, inside functions and type-checking blocks, too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "docvino":
                yield from (f"docvino.{alias.name}" for alias in node.names if alias.name != "__version__")
            else:
                yield node.module or ""


def layer(room: str) -> int:
    return next(number for number, rooms in enumerate(LAYERS) if room in rooms)


def test_every_room_has_a_layer() -> None:
    known = set().union(*LAYERS)
    assert {room for room, _ in modules()} == known


def test_rooms_import_only_from_layers_above() -> None:
    wrong = []
    for room, path in modules():
        for name in imported(path):
            if not name.startswith("docvino."):
                continue
            other = name.split(".")[1]
            if other != room and layer(other) >= layer(room) and (room, other) not in SIBLINGS:
                wrong.append(f"{path.relative_to(PACKAGE)} imports {name}")
    assert wrong == []


def test_each_heavy_stack_is_imported_only_by_its_owners() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for room, path in modules()
        for name in imported(path)
        if (top := name.split(".")[0]) in OWNERS and room not in OWNERS[top]
    ]
    assert wrong == []


def test_no_module_is_longer_than_800_lines() -> None:
    assert [path.name for _, path in modules() if len(path.read_text(encoding="utf-8").splitlines()) > 800] == []


def test_the_scripts_for_toolchains_import_nothing_of_docvino_and_nobody_imports_them() -> None:
    scripts = sorted(ELSEWHERE.glob("*.py"))
    assert len(scripts) == 5
    assert [name for path in scripts for name in imported(path) if name.startswith("docvino")] == []
    assert [path.name for _, path in modules() if any("paddle_scripts" in name for name in imported(path))] == []
