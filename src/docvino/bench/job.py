"""One part of a benchmark as it is handed to its process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from docvino.bench.report import Better, Row
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

    def row(
        self,
        group: str,
        name: str,
        unit: str,
        better: Better,
        execution: str,
        values: Sequence[float],
        *,
        note: str = "",
        why: str | None = None,
        limit: str | None = None,
        cost: float | None = None,
    ) -> Row:
        """A figure of this job's model; fields as in `Row`."""
        return Row(
            group=group,
            name=name,
            unit=unit,
            better=better,
            precision=self.runtime.precision,
            execution=execution,
            values=tuple(values),
            note=note,
            why=why,
            limit=limit,
            cost=cost,
            random_weights=self.random_weights,
        )
