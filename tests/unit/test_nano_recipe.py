"""Facts of recipes/nano: what is drawn for nano's training says what it shows."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "nano"


@pytest.fixture(autouse=True)
def recipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Its modules can be imported, and are gone afterwards."""
    monkeypatch.syspath_prepend(str(RECIPE))
    yield
    for file in RECIPE.glob("*.py"):
        sys.modules.pop(file.stem, None)


def test_spotted_texts_follow_each_other_in_rows() -> None:
    from crops import _in_rows

    right, left = ((200.0, 10.0, 260.0, 40.0), "right"), ((10.0, 20.0, 90.0, 44.0), "left, a little lower")
    below, last = ((120.0, 36.0, 180.0, 60.0), "its middle is below the first row"), ((0.0, 90.0, 50.0, 110.0), "last")
    assert _in_rows([last, below, right, left]) == [left, right, below, last]


def test_a_crop_shown_again_keeps_its_answer_and_all_of_its_ink() -> None:
    torch = pytest.importorskip("torch")
    from batches import _LOW, Batch, repainted

    torch.manual_seed(3)
    ink = torch.full((16, 56, 112), _LOW, dtype=torch.uint8)
    ink[:, 0, :] = ink[:, -1, :] = ink[:, :, 0] = ink[:, :, -1] = _LOW + 191  # a frame at the very edge
    answers, looks = torch.arange(64).view(16, 4), torch.arange(16 * 11.0).view(16, 11)
    first = Batch("ocr", "line", (4, 8), ink, None, looks, answers)
    again = repainted(first)
    assert again.answers is answers
    assert sorted(again.looks[:, 0].tolist()) == looks[:, 0].tolist()
    # Each side of a frame that is 0.88 to 1 times as large has at least 0.88 * 0.88 of its ink.
    kept = (again.ink.float() - _LOW).sum((1, 2)) / (ink.float() - _LOW).sum((1, 2))
    assert 0.75 < float(kept.min()) < 0.97
    assert float(kept.max()) <= 1.01
    assert not torch.equal(again.ink, ink)


def test_places_of_spotted_texts_hold_when_the_crop_is_shown_again() -> None:
    torch = pytest.importorskip("torch")
    from batches import Batch, repainted

    ink = torch.randint(32, 223, (2, 28, 56), dtype=torch.uint8)
    shown = repainted(Batch("spotting", "spotting", (2, 4), ink, None, torch.zeros(2, 11), torch.zeros(2, 3)))
    assert torch.equal(shown.ink, ink)
