"""Facts of the layout stage: a graph of the published contract is converted, verified and asked for regions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

from docvino import golden
from docvino.bundle import Bundle, bundle_folder, open_bundle
from docvino.convert.ir import Conversion, convert
from docvino.device import compile_model
from docvino.document import PageImage
from docvino.errors import ConfigError, ConvertError
from docvino.fetch import source_path
from docvino.golden import Item, load_golden, save_golden
from docvino.runtime.doclayout import DocLayout
from docvino.settings import ParseOptions, RuntimeConfig
from docvino.specs import doclayout, layout_of, select_models
from docvino.specs.model import DocLayoutFacts, ModelSpec
from docvino.verify import verify_model
from layout_models import Row, layout_graph, layout_spec

ROWS: tuple[Row, ...] = (
    ("text", 0.9, (0.1, 0.5, 0.9, 0.7), 2),
    ("doc_title", 0.8, (0.1, 0.1, 0.9, 0.2), 0),
    ("table", 0.6, (0.1, 0.75, 0.9, 0.95), 1),
    ("footer", 0.35, (0.1, 0.97, 0.9, 0.99), 3),
    ("seal", 0.1, (0.1, 0.3, 0.2, 0.4), 4),
)
PAGE = PageImage(0, np.full((1000, 2000, 3), 255, np.uint8))


def runtime(folder: Path, **settings: Any) -> RuntimeConfig:
    return RuntimeConfig(**{"data_dir": folder, "model_cache": False, **settings})


def put(folder: Path, graph: ov.Model | None = None) -> ModelSpec[DocLayoutFacts]:
    """A graph where `docvino fetch` puts it."""
    return layout_spec(graph or layout_graph(ROWS), source_path(doclayout.V3, folder).parent)


def made(spec: ModelSpec[DocLayoutFacts], config: RuntimeConfig) -> Conversion:
    done = convert(spec, source_path(spec, config.data_dir), config)
    assert isinstance(done, Conversion)
    return done


@pytest.fixture
def stage(tmp_path: Path) -> DocLayout:
    config = runtime(tmp_path)
    spec = put(tmp_path)
    return DocLayout(compile_model(made(spec, config).bundle.graph, spec, config), spec)


def test_regions_come_in_the_order_of_the_network_and_in_page_pixels(stage: DocLayout) -> None:
    regions = stage.detect(PAGE, ParseOptions())
    assert [(region.label, region.bounds, region.order) for region in regions] == [
        ("doc_title", (200, 100, 1800, 200), 0),
        ("table", (200, 750, 1800, 950), 1),
        ("text", (200, 500, 1800, 700), 2),
        ("footer", (200, 970, 1800, 990), 3),
    ]
    assert regions[0].score == pytest.approx(0.8)
    black = PageImage(0, np.zeros((1000, 2000, 3), np.uint8))
    assert stage.detect(black, ParseOptions()) == []


def test_the_options_of_the_call_count(stage: DocLayout) -> None:
    labels = [region.label for region in stage.detect(PAGE, ParseOptions(layout_threshold=0.5))]
    assert labels == ["doc_title", "table", "text"]
    assert "seal" in [region.label for region in stage.detect(PAGE, ParseOptions(layout_threshold=0.05))]


def test_outlines_come_from_the_masks(tmp_path: Path) -> None:
    masks = np.ones((len(ROWS), 200, 200), np.int32)
    masks[0, :120, 100:] = 0  # the upper right part of the text
    config, spec = runtime(tmp_path), put(tmp_path, layout_graph(ROWS, masks))
    stage = DocLayout(compile_model(made(spec, config).bundle.graph, spec, config), spec)
    (text,) = [r for r in stage.detect(PAGE, ParseOptions(layout_shape_mode="poly")) if r.label == "text"]
    assert len(text.polygon) == 6
    assert text.bounds == (200, 500, 1800, 700)


def test_the_bundle_has_names_and_sizes_of_its_own_and_says_what_it_was_made_from(tmp_path: Path) -> None:
    manifest = made(put(tmp_path), runtime(tmp_path)).bundle.manifest
    assert {port.name: port.shape for port in manifest.inputs} == {
        "image": "[1,3,800,800]",
        "im_shape": "[1,2]",
        "scale_factor": "[1,2]",
    }
    assert [port.name for port in manifest.outputs] == ["boxes", "counts", "masks"]
    assert (manifest.source.package, manifest.source.version) == ("someone/layout", "0" * 40)
    assert manifest.source.member == "inference.xml"
    assert len(manifest.source.sha256) == 64


def test_what_the_published_graph_gives_is_what_a_device_is_judged_by(tmp_path: Path) -> None:
    config, spec = runtime(tmp_path, precision="fp16"), put(tmp_path)
    bundle = made(spec, config).bundle
    case = load_golden(bundle.golden)
    assert [item.text for item in case.items] == ["doc_title", "table", "text", "footer"]
    assert case.outputs["scores"].tolist() == pytest.approx([0.9, 0.8, 0.6, 0.35, 0.1])
    assert "published graph" in case.engine
    assert verify_model(spec, config).problem is None
    save_golden(bundle.golden, replace(case, outputs={"scores": case.outputs["scores"] + np.float32(0.05)}))
    seal(bundle)
    assert "outputs differ by 0.05" in str(verify_model(spec, config).problem)
    moved = tuple(replace(item, box=(0.0, 0.0, 100.0, 100.0)) for item in case.items)
    save_golden(bundle.golden, replace(case, items=moved))
    seal(bundle)
    assert "nothing like 'doc_title'" in str(verify_model(spec, config).problem)


def seal(bundle: Bundle) -> None:
    """Makes the manifest agree with the files."""
    from docvino.bundle import MANIFEST, file_sha256

    files = {**bundle.manifest.files, "golden.npz": file_sha256(bundle.golden)}
    text = bundle.manifest.model_copy(update={"files": files}).model_dump_json()
    (bundle.folder / MANIFEST).write_text(text, encoding="utf-8")


def test_regions_at_the_threshold_may_come_and_go() -> None:
    case = golden.Golden((PAGE.pixels,), {"scores": np.array([0.9, 0.305], np.float32)}, {}, (), "x")
    case = replace(case, items=(Item("text", 0.9, (200, 500, 1800, 700)), Item("footer", 0.305, (0, 0, 9, 9))))
    rows = np.array([[22, 0.9, 200, 500, 1800, 700, 0], [8, 0.299, 0, 0, 9, 9, 1]], np.float32)
    outputs: Any = {"boxes": rows, "counts": np.array([2]), "masks": np.ones((2, 200, 200), np.int32)}
    assert golden.compare(doclayout.V3, case, outputs, None, ("fp32",)).problem is None
    rows[0, 1] = 0.2
    problem = golden.compare(doclayout.V3, case, outputs, None, ("fp32",)).problem
    assert problem == "0 items where the reference has 1"


def test_scores_are_compared_whatever_the_order_of_the_rows() -> None:
    outputs: Any = {"boxes": np.array([[0, 0.2, 0, 0, 1, 1, 0], [0, 0.7, 0, 0, 1, 1, 1]], np.float32)}
    assert golden.measured(doclayout.V3, outputs)["scores"].tolist() == pytest.approx([0.7, 0.2])


@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_formats_that_nobody_has_judged_are_refused(tmp_path: Path, precision: str) -> None:
    with pytest.raises(ConfigError, match=f"no {precision} form") as caught:
        made(put(tmp_path), runtime(tmp_path, precision=precision))
    assert "fp16" in caught.value.fix
    assert [doclayout.V3.stored_as(wanted) for wanted in ("fp32", "fp16", "int8", "int4")] == [
        *("fp32", "fp16", "fp16", "fp16"),
    ]


def test_a_graph_of_another_contract_is_refused(tmp_path: Path) -> None:
    x = ops.parameter([-1, 3, 800, 800], np.float32, name="x")
    x.output(0).set_names({"x"})
    with pytest.raises(ConvertError, match="has no tensor image"):
        made(put(tmp_path, ov.Model([ops.relu(x)], [x], "other")), runtime(tmp_path))
    rows = layout_graph(ROWS)
    swapped = ov.Model([rows.get_results()[place] for place in (2, 1, 0)], rows.get_parameters(), "swapped")
    with pytest.raises(ConvertError, match="has no tensor boxes"):
        made(put(tmp_path, swapped), runtime(tmp_path))
    rows = layout_graph(ROWS)
    unordered = ops.gather(rows.get_results()[0].input_value(0), ops.constant(list(range(6))), ops.constant(1))
    results = [ops.result(unordered), *rows.get_results()[1:]]
    with pytest.raises(ConvertError, match="which are no regions"):
        made(put(tmp_path, ov.Model(results, rows.get_parameters(), "unordered")), runtime(tmp_path))
    assert not bundle_folder(tmp_path, doclayout.V3.name, "fp32").exists()


def test_v2_has_two_outputs_eight_columns_and_lies_deeper_in_its_folder(tmp_path: Path) -> None:
    whole = layout_graph(ROWS)
    rows, counts, _ = whole.get_results()
    table = ops.concat([rows.input_value(0), ops.constant(np.array([[5], [4], [3], [2], [1]], np.float32))], 1)
    graph = ov.Model([ops.result(table), counts], whole.get_parameters(), "v2")
    spec = replace(doclayout.V2, source=replace(doclayout.V2.source, member="PP-DocLayoutV2/inference.xml"))  # type: ignore[type-var]
    path = source_path(spec, tmp_path)
    path.parent.mkdir(parents=True)
    ov.save_model(graph, path, compress_to_fp16=False)
    config = runtime(tmp_path)
    stage = DocLayout(compile_model(made(spec, config).bundle.graph, spec, config), spec)
    regions = stage.detect(PAGE, ParseOptions(layout_shape_mode="poly"))
    assert [(region.label, region.bounds) for region in regions] == [
        ("doc_title", (200, 100, 1800, 200)),
        ("table", (200, 750, 1800, 950)),
        ("text", (200, 500, 1800, 700)),
    ]
    assert {len(region.polygon) for region in regions} == {4}


def test_a_layout_model_is_chosen_by_its_name_and_for_a_reader() -> None:
    assert select_models("pp-doclayout-v3") == (doclayout.V3,)
    assert layout_of("paddleocr-vl-v1") is doclayout.V2
    assert layout_of("paddleocr-vl-1.6") is layout_of("a model of mine") is doclayout.V3


def test_an_open_bundle_is_kept(tmp_path: Path) -> None:
    config, spec = runtime(tmp_path), put(tmp_path)
    first = made(spec, config).bundle
    again = convert(spec, source_path(spec, tmp_path), config)
    assert isinstance(again, Bundle)
    assert again.manifest_sha256 == open_bundle(first.folder).manifest_sha256
