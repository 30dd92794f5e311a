"""How a child process of `border` answers: one line of JSON that other output cannot be taken for."""

from __future__ import annotations

import json
import sys
from typing import Any

from docvino.machine.border import ANSWER


def answer(facts: dict[str, Any]) -> None:
    sys.stdout.flush()
    # A driver may have left a line unfinished.
    sys.stdout.write("\n" + ANSWER + json.dumps(facts) + "\n")
    sys.stdout.flush()
