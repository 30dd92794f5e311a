"""Nothing happens at import."""

from __future__ import annotations

import os
import pkgutil
import subprocess
import sys

import docvino

MODULES = sorted(name for _, name, _ in pkgutil.walk_packages(docvino.__path__, "docvino.") if "__main__" not in name)
HEAVY = "{'numpy', 'openvino', 'cv2', 'PIL', 'pypdfium2'}"

WATCH = """
import importlib, logging, os, sys
# What other libraries do at their import is theirs: have it done before the watch begins.
import cv2, numpy, openvino, openvino.opset13, PIL.Image, PIL.ImageDraw, PIL.ImageFont, platformdirs, pyclipper
import pydantic, pypdfium2, rich.console, rich.table, typer
seen = []
def watch(event, arguments):
    writes = event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
    if writes or event.startswith("socket.") or event in {"subprocess.Popen", "os.mkdir", "os.remove", "os.rename"}:
        seen.append((event, arguments))
sys.addaudithook(watch)
environment, handlers = dict(os.environ), list(logging.root.handlers)
for module in sys.argv[1:]:
    importlib.import_module(module)
    assert dict(os.environ) == environment, f"{module} changed the environment"
    assert logging.root.handlers == handlers, f"{module} set up logging"
    assert not seen, f"{module}: {seen}"
print("watched", len(sys.argv) - 1)
"""


def python(code: str, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


def test_importing_any_module_writes_nothing_opens_no_socket_and_sets_no_logging() -> None:
    assert python(WATCH, *MODULES) == f"watched {len(MODULES)}"


def test_the_package_itself_imports_nothing_heavy() -> None:
    assert python(f"import sys, docvino; print(sorted(set(sys.modules) & ({HEAVY} | {{'pydantic', 'typer'}})))") == "[]"


def test_help_imports_neither_openvino_nor_numpy() -> None:
    code = "import sys\nfrom docvino.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    assert python(code + f"print(sorted(set(sys.modules) & {HEAVY}))") == "[]"


def test_the_doctor_needs_neither_openvino_nor_numpy_so_that_it_can_say_what_is_wrong_with_them() -> None:
    code = "import sys\nfrom docvino.doctor import examine, report\nfrom docvino.machine import border\n"
    assert python(code + f"print(sorted(set(sys.modules) & {HEAVY}))") == "[]"


def test_every_public_name_can_be_imported() -> None:
    assert {name for name in docvino.__all__ if getattr(docvino, name) is not None} == set(docvino.__all__)
