"""`docvino bench` as people run it: both kinds of presets, a comparison, and random weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from docvino.bench.report import read_report
from docvino.bundle import is_vlm_bundle
from docvino.convert.vlm import convert_vlm
from docvino.settings import RuntimeConfig
from docvino.specs.nano import NANO
from models import Command


@pytest.fixture
def nano(runtime: RuntimeConfig) -> str:
    folder = runtime.data_dir / "bundles" / "nano-int8"
    if not is_vlm_bundle(folder):
        assert isinstance(NANO.source, Path)
        convert_vlm(NANO.source, folder, "int8")
    return "nano"


def rows_of(out: Path) -> dict[str, Any]:
    return {row.name: row for row in read_report(out / "bench.json").rows if row.precision in (None, "int8")}


@pytest.mark.slow
def test_lines_are_measured_in_every_part_and_compared_with_an_earlier_report(docvino: Command, tmp_path: Path) -> None:
    words = ("bench", "--quick", "--precision", "int8")
    done = docvino(*words, "--only", "limits,steps,pages", "-o", tmp_path / "a")
    assert done.returncode == 0, done.stderr
    rows = rows_of(tmp_path / "a")
    assert [row.why for row in rows.values() if row.why] == []
    for name in ("memory read", "matmul int8", "text detection, 960 x 960 px", "recognition, a line, 2 in flight"):
        assert rows[name].median > 0
    assert rows["a page"].median * rows["pages a minute"].median == pytest.approx(60, rel=0.2)
    assert rows["a page"].execution == "f32 on CPU"
    assert "| a page: detection | int8 |" in done.stdout
    with Image.open(tmp_path / "a" / "bench.png") as picture:
        assert picture.width > 1000

    again = docvino(
        *words, "--only", "limits", "-o", tmp_path / "b", "--compare", tmp_path / "a" / "bench.json", "--json"
    )
    assert again.returncode == 0, again.stderr
    verdicts = {one["row"]["name"]: one["verdict"] for one in json.loads(again.stdout)["comparison"]}
    assert verdicts["memory read"] in ("better", "same", "worse")
    assert verdicts["a page"] == "not comparable"  # the second run did not measure it
    other = docvino(*words, "--preset", "nano", "-o", tmp_path / "c", "--compare", tmp_path / "absent.json")
    assert other.returncode == 2
    assert not (tmp_path / "c").exists()


@pytest.mark.slow
def test_a_vision_language_model_is_measured_by_steps_pages_starts_and_over_time(
    docvino: Command, nano: str, tmp_path: Path
) -> None:
    done = docvino("bench", "--preset", nano, "--precision", "int8,int4", "--quick", "--soak", "0.05", "-o", tmp_path)
    assert done.returncode == 0, done.stderr
    rows = rows_of(tmp_path)
    assert rows["vision, 576 patches: share of matmul int8"].median > 0
    assert rows["decode, 4 sequences"].median > rows["decode, 1 sequence"].median / 2
    assert rows["a page: vision"].median > 0
    assert rows["tokens a second, decoding"].median > 0
    assert rows["second start against the first: ready"].median > 0
    slope = rows["memory slope"]
    assert slope.values or "more minutes" in slope.why
    missing = [row for row in read_report(tmp_path / "bench.json").rows if row.precision == "int4"]
    assert [row.why.partition(";")[0] for row in missing] == ["nano is not converted at int4"]


def test_a_page_that_cannot_be_read_is_a_row_that_tells_the_fault_and_not_the_name(
    docvino: Command, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no picture")
    done = docvino("bench", broken, "--quick", "--precision", "int8", "--only", "pages", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    (row,) = read_report(tmp_path / "out" / "bench.json").rows
    assert row.why is not None
    assert "file-1.png" in row.why
    assert "broken" not in row.why
