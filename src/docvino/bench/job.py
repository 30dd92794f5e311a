"""One part of a benchmark as it is handed to its process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from docvino.settings import ParseOptions, RuntimeConfig

Part = Literal["limits", "classic", "requests", "vlm", "pages", "start", "soak"]
Tell = Callable[[int, int], None]  # steps done, and all of them


class Job(BaseModel):
    """
    pages      files to read
    repeats    values of each figure, after `warm_up` that do not count
    quick      the smallest sizes only
    way        of a start: see `starts.WAYS`
    minutes    of a soak
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    part: Part
    runtime: RuntimeConfig
    options: ParseOptions = ParseOptions()
    pages: tuple[Path, ...] = ()
    repeats: int = 5
    warm_up: int = 1
    quick: bool = False
    random_weights: bool = False
    way: str = ""
    minutes: float = 0.0

    @property
    def rounds(self) -> int:
        return self.warm_up + self.repeats
