"""The benchmark's report, comparison, limits, slopes, charts and random weights."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from docvino.bench import chart, child, corpus, limits, measure, soak, starts
from docvino.bench.compare import as_markdown as compared
from docvino.bench.compare import compare
from docvino.bench.job import Job
from docvino.bench.measure import Wish, parse_parts, parse_precisions
from docvino.bench.pages import page_rows
from docvino.bench.random_weights import published_tokenizer, write_published, write_random
from docvino.bench.report import Report, Row, as_markdown, figure, read_report
from docvino.bench.vlm import vision_flop
from docvino.convert.safetensors import Weights, find_files
from docvino.convert.vlm import convert_vlm
from docvino.convert.vlm_facts import read_facts
from docvino.convert.vlm_graph import RENAMED, tensor_shapes
from docvino.device import find_device, list_devices
from docvino.device.rates import can_multiply, multiply_rate
from docvino.document import Stats
from docvino.errors import BundleError, ConfigError, InputError
from docvino.settings import RuntimeConfig
from docvino.specs import vlm
from fake_core import a770
from vlm_models import TINY, character_tokenizer, read_config, tiny_tokens


def row(name: str = "a page", *values: float, **more: object) -> Row:
    given = {"group": "pages", "unit": "s", "better": "lower", "precision": "int8", **more}
    return Row(name=name, values=values, **given)  # type: ignore[arg-type]


def report(*rows: Row, **more: object) -> Report:
    facts: dict[str, object] = {
        "date": "2026-12-01 10:00 UTC",
        "machine": {"cpu": "a CPU", "cores": "2"},
        "versions": {"docvino": "0.1.0"},
        "preset": "nano",
        "precisions": ("fp16", "int8"),
        "corpus": "drawn",
        "corpus_sha256": "ab" * 32,
        "random_weights": False,
        "quick": False,
        "repeats": 5,
        "warm_up": 1,
        "rows": rows,
        **more,
    }
    return Report.model_validate(facts)


# ---- rows and report


def test_a_row_tells_min_median_p95_and_noise() -> None:
    found = row("a page", 10.0, 11.0, 10.0, 12.0, 10.0)
    assert (found.min, found.median, found.p95) == (10.0, 10.0, 12.0)
    assert found.noise == pytest.approx(0.1)


@pytest.mark.parametrize("values", [(), (3.0,)])
def test_noise_of_fewer_than_two_values_is_not_told(values: tuple[float, ...]) -> None:
    assert row("a page", *values).noise is None


@given(st.lists(st.floats(0.01, 1e6), min_size=1, max_size=60))
def test_95_of_100_values_are_not_above_p95(values: list[float]) -> None:
    p95 = row("a page", *values).p95
    assert p95 in values
    assert sum(value <= p95 for value in values) >= 0.95 * len(values)


def test_a_report_comes_back_from_its_json_with_the_figures_of_each_row_in_it(tmp_path: Path) -> None:
    made = report(row("a page", 1.0, 2.0, 3.0), row("fp32", why="not converted"))
    path = tmp_path / "bench.json"
    path.write_text(made.model_dump_json(), encoding="utf-8")
    assert read_report(path) == made
    first = json.loads(path.read_text(encoding="utf-8"))["rows"][0]
    assert (first["min"], first["median"], first["p95"]) == (1.0, 2.0, 3.0)


@pytest.mark.parametrize("content", ["", "[]", '{"rows": []}'])
def test_a_file_that_is_no_report_is_said_to_be_none(tmp_path: Path, content: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match="not a report"):
        read_report(path)
    with pytest.raises(ConfigError, match="cannot read"):
        read_report(tmp_path / "absent.json")


def test_a_report_of_a_later_form_is_not_read_as_one_of_this(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    path.write_text(report(report_version=2).model_dump_json(), encoding="utf-8")
    with pytest.raises(ConfigError, match="version 2"):
        read_report(path)


def test_the_table_says_of_every_row_what_it_is_and_why_it_is_empty() -> None:
    text = as_markdown(
        report(
            row("a page", 1.5, 1.6, execution="f32 on CPU"),
            row("decode, 1 sequences", group="vlm", unit="tokens/s", better="higher", why="no memory"),
            random_weights=True,
        )
    )
    assert "| a page | int8 | f32 on CPU | 1.55 | 1.50 | 1.60 | 3 % | s ↓ |" in text
    assert "not measured: no memory" in text
    assert "Random weights" in text


def test_rows_of_random_weights_say_so_each() -> None:
    text = as_markdown(report(row("a page", 1.0, random_weights=True)))
    (line,) = [line for line in text.splitlines() if line.startswith("| a page")]
    assert line.endswith("random weights |")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (0.0, "0"),
        (1234.5, "1,234"),
        (12.345, "12.3"),
        (0.012345, "0.0123"),
        (-0.5, "-0.500"),
        (1e-9, "0.000000"),
    ],
)
def test_figures_have_three_digits(value: float | None, text: str) -> None:
    assert figure(value) == text


# ---- comparison


@pytest.mark.parametrize(
    ("old", "new", "better", "verdict"),
    [
        ((10.0, 10.1, 10.2), (8.0, 8.1, 8.2), "lower", "better"),
        ((10.0, 10.1, 10.2), (8.0, 8.1, 8.2), "higher", "worse"),
        ((10.0, 10.1, 10.2), (10.2, 10.3, 10.3), "lower", "same"),
        ((10.0, 12.0, 16.0), (8.0, 10.0, 12.0), "lower", "same"),
        ((10.0,), (10.9,), "lower", "same"),
        ((10.0,), (11.1,), "lower", "worse"),
    ],
)
def test_a_verdict_is_one_beyond_the_noise_of_both(
    old: tuple[float, ...], new: tuple[float, ...], better: str, verdict: str
) -> None:
    (found,) = compare(report(row("a", *old, better=better)), report(row("a", *new, better=better)))
    assert found.verdict == verdict


def test_a_figure_that_only_one_report_has_gets_no_verdict() -> None:
    found = compare(report(row("a", 1.0), row("gone", 1.0)), report(row("a", why="no memory"), row("new", 1.0)))
    assert [(one.row.name, one.verdict) for one in found] == [
        ("a", "not comparable"),
        ("new", "not comparable"),
        ("gone", "not comparable"),
    ]
    assert "not comparable" in compared(found)


def test_one_figure_at_two_precisions_is_two_figures() -> None:
    old = report(row("a", 1.0, precision="fp16"), row("a", 3.0, precision="int8"))
    new = report(row("a", 3.0, precision="int8"), row("a", 2.0, precision="fp16"))
    assert [one.verdict for one in compare(old, new)] == ["same", "worse"]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"machine": {"cpu": "another CPU", "cores": "2"}}, "machines: cpu 'a CPU' and 'another CPU'"),
        ({"preset": "pp-ocr"}, "presets"),
        ({"corpus_sha256": "cd" * 32}, "pages"),
        ({"random_weights": True}, "kinds of weights"),
        ({"quick": True}, "kinds of runs"),
    ],
)
def test_reports_of_different_things_are_not_compared(change: dict[str, object], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        compare(report(row("a", 1.0)), report(row("a", 1.0), **change))


def test_reports_of_different_versions_are_what_comparing_is_for() -> None:
    (found,) = compare(report(row("a", 2.0)), report(row("a", 1.0), versions={"docvino": "0.2.0"}))
    assert (found.ratio, found.verdict) == (0.5, "better")


# ---- chart


def test_the_chart_has_a_row_of_pixels_for_each_figure_and_none_for_what_was_not_measured() -> None:
    few = chart.draw_chart(report(row("a", 1.0, 2.0)))
    more = chart.draw_chart(report(row("a", 1.0, 2.0), row("b", 3.0), row("c", why="no memory")))
    assert few.width == more.width == chart.WIDTH_PX
    assert more.height - few.height == chart._ROW_PX


def test_the_longest_bar_is_the_largest_figure() -> None:
    image = chart.draw_chart(report(row("small", 1.0), row("large", 4.0)))
    colour = chart._COLOURS["int8"]
    pixels = np.asarray(image)
    painted = (pixels == colour).all(axis=2)[120:].sum(axis=1)  # below the legend
    lengths = sorted(set(painted) - {0})
    assert lengths[-1] / lengths[0] == pytest.approx(4, rel=0.02)


@pytest.mark.parametrize("rows", [(), (row("nothing", 0.0),), (row("falling", -0.2, -0.1),)])
def test_a_chart_of_nothing_zero_or_less_is_a_picture_all_the_same(rows: tuple[Row, ...], tmp_path: Path) -> None:
    chart.write_chart(report(*rows), tmp_path / "bench.png")
    assert (tmp_path / "bench.png").stat().st_size > 1000


# ---- pages


def test_drawn_pages_are_always_the_same_and_differ_from_one_another() -> None:
    first, second = corpus.drawn_pages(), corpus.drawn_pages()
    assert first == second
    assert len(set(first)) == 4
    assert corpus.sha256_of(first) != corpus.sha256_of(first[:1])


def test_a_long_run_gets_pages_of_ever_other_sizes() -> None:
    sizes = {Image.open(io.BytesIO(data)).size for data in islice(corpus.endless_pages(), 8)}
    assert len(sizes) == 8


def test_page_rows_are_the_stats_by_stage_and_page() -> None:
    job = Job(part="pages", runtime=RuntimeConfig(precision="int8"))
    stats = Stats(vision_ms=6000, decoding_ms=2000, layout_ms=1000, tokens=400, crops=8)
    rows = {one.name: one for one in page_rows(job, [stats, stats], 2, "f32 on CPU", None)}
    assert rows["a page"].values == (4.5, 4.5)
    assert rows["a page: vision"].median == 3
    assert "a page: detection" not in rows
    assert rows["pages a minute"].median == pytest.approx(60 / 4.5)
    assert rows["tokens a second, decoding"].median == 200
    assert rows["tokens a second, all stages"].median == pytest.approx(400 / 9)
    assert rows["peak memory"].why


# ---- limits


def test_memory_is_read_at_more_than_nothing() -> None:
    assert 0.1 < limits.read_bandwidth(quick=True) < 5000


def test_a_cpu_multiplies_in_f32_and_in_8_bits() -> None:
    device = find_device("CPU")
    kinds = can_multiply(device)
    assert {"f32", "int8"} <= set(kinds)
    assert all(multiply_rate(device, kind, 16, 0.0) > 1e8 for kind in ("f32", "int8"))


@pytest.mark.parametrize(
    ("name", "card", "gb_s"),
    [
        ("Intel(R) Arc(TM) A770 Graphics (dGPU)", "A770", 560),
        ("Intel(R) Arc(TM) A770M Graphics (dGPU)", "A770M", 512),
        ("Intel(R) Arc(TM) Pro B60 Graphics (dGPU)", "Pro B60", None),
        ("Intel(R) Arc(TM) B580 Graphics (dGPU)", "B580", 456),
    ],
)
def test_published_figures_are_those_of_the_card_that_the_driver_names(
    name: str, card: str, gb_s: float | None
) -> None:
    found = limits.published(name)
    assert found is not None
    assert (found.name, found.gb_s) == (card, gb_s)


def test_published_figures_say_that_nobody_measured_them_and_unknown_cards_have_none(
    machine: Callable[..., object],
) -> None:
    machine(a770())
    card = next(device for device in list_devices() if device.family == "GPU")
    rows = limits.published_rows(card)
    assert [one.name for one in rows] == ["memory read, published", "matmul int8, published", "matmul f16, published"]
    assert all("not measured" in one.note for one in rows)
    assert limits.published("Intel(R) UHD Graphics 770 (iGPU)") is None
    assert limits.published_rows(find_device("CPU")) == []


def test_every_published_row_has_a_source_and_a_figure() -> None:
    for card in limits.read_published():
        assert card["source"]
        assert card.get("gb_s") or card.get("int8_tops")


def limit(name: str, *values: float) -> Row:
    return Row(group="limits", name=name, unit="GB/s", better="higher", values=values)


def test_a_share_is_the_rate_times_its_cost_over_the_best_of_the_limit() -> None:
    decode = row("decode", 20.0, 25.0, group="vlm", unit="tokens/s", limit="memory read", cost=4e8)
    (share,) = limits.shares([limit("memory read", 9.0, 10.0), decode])
    assert share.values == (pytest.approx(80), pytest.approx(100))
    assert (share.unit, share.name) == ("%", "decode: share of memory read")


def test_a_published_limit_counts_before_a_measured_one_and_a_missing_one_is_said() -> None:
    decode = row("decode", 20.0, group="vlm", unit="tokens/s", limit="memory read", cost=4e8)
    (share,) = limits.shares([limit("memory read", 10.0), limit("memory read, published", 100.0), decode])
    assert share.values == (pytest.approx(8),)
    (share,) = limits.shares([decode])
    assert share.values == ()
    assert share.why


def test_the_work_of_the_vision_tower_is_that_of_its_matrices_and_its_attention() -> None:
    facts = read_facts(TINY)
    sizes = tensor_shapes(facts)
    tower = {name: shape for name, shape in sizes.items() if name.startswith("visual") and "layers" in name}
    matrices = sum(int(np.prod(shape)) for shape in tower.values() if len(shape) == 2)
    merger = sum(int(np.prod(sizes[f"mlp_AR.linear_{i}.weight"])) for i in (1, 2))
    embedding = int(np.prod(sizes["visual.vision_model.embeddings.patch_embedding.weight"]))
    attention = 4 * 100 * facts.vision.hidden_size * facts.vision.layers
    assert vision_flop(facts, 100) == 100 * (2 * (matrices + embedding) + attention + 2 * merger / 4)


# ---- slope, starts


def test_the_slope_of_memory_is_found_after_the_pages_that_warm_up() -> None:
    noise = np.random.default_rng(0).normal(0, 0.5, 200)
    held = [300 + min(page, 30) * 10 + 0.25 * page + noise[page] for page in range(200)]
    slope, why = soak.slope_of(held)
    assert slope == pytest.approx(0.25, abs=0.01)
    assert why is None


@pytest.mark.parametrize("pages", [0, 1, 23])
def test_too_few_pages_give_no_slope_but_the_reason(pages: int) -> None:
    slope, why = soak.slope_of([300.0] * pages)
    assert slope is None
    assert why is not None
    assert "more minutes" in why
    assert soak.slope_of([300.0] * 24) == (pytest.approx(0, abs=1e-9), None)


def test_the_second_start_is_compared_with_the_first_round_by_round() -> None:
    rows = [
        row(f"{way}: {what}", *values, group="starts")
        for way, what, values in (
            ("first", "ready", (6.0, 8.0)),
            ("second", "ready", (1.0, 2.0)),
            ("no test", "ready", (1.0, 1.0)),
            ("second", "first text", (2.0, 2.0)),
        )
    ]
    (gain,) = starts.gains(rows)
    assert (gain.name, gain.values, gain.better) == ("second start against the first: ready", (6.0, 4.0), "higher")


# ---- random weights


def test_random_weights_of_any_shape_go_the_road_of_a_fetched_model(tmp_path: Path) -> None:
    config = read_config(TINY)
    source = tmp_path / "source"
    text = {**config["text_config"], "rope_parameters": config["text_config"]["rope_parameters"]}
    vision = {**config["vision_config"], "patch_size": 14}
    write_random(source, character_tokenizer(tiny_tokens()), text=text, vision=vision, budget=(9_408, 50_176))
    facts = read_facts(source)
    with Weights(find_files(source), RENAMED) as weights:
        weights.check(tensor_shapes(facts))
        assert set(weights.names) == set(tensor_shapes(facts))
        head = weights.read("lm_head.weight")
        norm = weights.read("model.norm.weight")
    assert float(head.std()) == pytest.approx(0.05, rel=0.1)
    assert float(norm.mean()) == pytest.approx(1, abs=0.1)
    made = convert_vlm(source, tmp_path / "bundles" / "random-int8", "int8")
    assert made.size_bytes > 100_000


def test_the_tokenizer_of_random_weights_has_the_published_tokens_at_their_places() -> None:
    vocabulary = json.loads(published_tokenizer())["model"]["vocab"]
    assert len(vocabulary) == vlm.PUBLISHED_VOCABULARY
    assert all(vocabulary[token] == number for token, number in vlm.PUBLISHED_TOKENS.items())


def test_random_weights_are_made_of_published_models_only(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nano"):
        write_published("nano", tmp_path / "source")
    assert not (tmp_path / "source").exists()


# ---- plan


def test_parts_and_precisions_are_words_of_a_list() -> None:
    assert parse_parts("pages, limits") == ("pages", "limits")
    assert parse_precisions("int8,fp32") == ("fp32", "int8")
    assert parse_precisions(None) == ()
    for wrong in (lambda: parse_parts("page"), lambda: parse_precisions("int16"), lambda: parse_parts(",")):
        with pytest.raises(ConfigError):
            wrong()


def test_a_preset_that_is_not_converted_is_an_error_and_no_empty_report(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="nano is not converted") as error:
        measure.bench(RuntimeConfig(preset="nano", data_dir=tmp_path), Wish(), say=print, progress=lambda *_: None)
    assert "docvino convert nano" in error.value.fix


def test_rows_of_one_figure_from_several_processes_become_one() -> None:
    merged = measure._merged([row("a", 1.0), row("b", 9.0), row("a", 2.0)])
    assert [(one.name, one.values) for one in merged] == [("a", (1.0, 2.0)), ("b", (9.0,))]


def test_one_figure_at_all_precisions_stands_together_in_the_order_of_measuring() -> None:
    rows = [row("b", 1.0), row("a", 1.0), row("b", 2.0, precision="fp16"), row("l", 1.0, group="limits")]
    assert [one.name for one in measure._ordered(rows)] == ["l", "b", "b", "a"]


def test_a_file_of_the_user_that_is_gone_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        measure._pages(Wish(files=(tmp_path / "gone.png",)), tmp_path)


def job_in(tmp_path: Path, **more: object) -> Job:
    runtime = RuntimeConfig(preset="nano", data_dir=tmp_path, cache_dir=tmp_path / "cache")
    return Job(part="pages", runtime=runtime, pages=(tmp_path / "none.png",), **more)  # type: ignore[arg-type]


def test_a_precision_that_is_not_converted_is_a_row_that_says_how_to_get_it(tmp_path: Path) -> None:
    found = measure._not_converted(RuntimeConfig(preset="nano", data_dir=tmp_path), "fp16", is_vlm=True)
    assert found.why == "nano is not converted at fp16; docvino convert nano --precision fp16"


def test_a_part_that_fails_is_a_row_that_says_why(tmp_path: Path) -> None:
    (found,) = measure._run(job_in(tmp_path), tmp_path, lambda _: None)
    assert found.values == ()
    assert found.why is not None
    assert "not converted" in found.why
    assert "docvino convert nano" in found.why


def test_a_part_whose_process_dies_is_a_row_that_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false" if Path("/bin/false").exists() else sys.executable)
    (found,) = measure._run(job_in(tmp_path), tmp_path, lambda _: None)
    assert found.why is not None
    assert found.why.startswith("its process ended with exit code")


def test_a_process_whose_parent_is_gone_ends_at_its_next_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told = tmp_path / "progress"
    tell = child.teller(told, parent=os.getppid())
    tell(1, 2)
    assert told.read_text() == "1 2"
    monkeypatch.setattr(os, "getppid", lambda: 1)
    with pytest.raises(SystemExit):
        tell(2, 2)


def test_a_report_says_nothing_of_folders(tmp_path: Path) -> None:
    page = tmp_path / "secret-name.png"
    page.write_bytes(corpus.one_page())
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (copy,), about, digest = measure._pages(Wish(files=(page,)), scratch)
    assert copy.name == "file-1.png"
    assert "secret" not in about
    assert digest == corpus.sha256_of([corpus.one_page()])


def test_the_command_refuses_two_models_at_once(tmp_path: Path) -> None:
    words = ["bench", "--preset", "nano", "--random-weights", "paddleocr-vl-1.6", "-o", str(tmp_path)]
    done = subprocess.run([sys.executable, "-m", "docvino", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "two models" in done.stderr
