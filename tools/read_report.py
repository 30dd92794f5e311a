"""Looks at a machine from the file that its owner sent: python tools/read_report.py REPORT [--verbose] [--device GPU]

The file is what `docvino doctor --report` wrote. The checks are made anew from what was read there, by this version of
docvino with its own settings.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from docvino.cli_doctor import show, show_end
from docvino.doctor.examine import examine
from docvino.machine.border import Recorded
from docvino.settings import resolve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("report", type=Path)
    parser.add_argument("--device")
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    readings = json.loads(given.report.read_text(encoding="utf-8"))["readings"]
    settings = resolve({"device": given.device})
    show_end(show(examine(settings, Recorded(readings), verbose=given.verbose)))


if __name__ == "__main__":
    main()
