"""Facts of converting a PaddleOCR-VL folder: the numbers of transformers, a bundle that explains itself, refusals."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from docvino import golden_vlm
from docvino.bundle import (
    VLM_PARTS,
    Bundle,
    VlmBundle,
    bundle_folder,
    file_sha256,
    is_vlm_bundle,
    list_bundles,
    open_bundle,
    open_vlm_bundle,
)
from docvino.cli import main
from docvino.codec.prompt import Tokenizer, build_prompt
from docvino.codec.vlm import prepare
from docvino.convert.kind import find_kind
from docvino.convert.safetensors import INDEX, SINGLE, Weights
from docvino.convert.vlm import convert_vlm, model_name
from docvino.convert.vlm_facts import read_facts
from docvino.device import compile_part
from docvino.errors import BundleError, ConfigError, ConvertError, DocvinoError, VerifyError
from docvino.golden_vlm import VlmCase, load_case, save_case
from docvino.settings import RuntimeConfig, WeightPrecision
from docvino.stateful import StatefulReader
from docvino.verify import raise_failures, verify_vlm
from vlm_models import TINY, TINY_CASE, copy_of_tiny, read_config, write_config, write_safetensors

PRECISIONS: tuple[WeightPrecision, ...] = ("fp32", "fp16", "int8", "int4")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[WeightPrecision, VlmBundle]:
    """The recorded tiny model at every precision, compared with transformers on the way."""
    data = tmp_path_factory.mktemp("data")
    return {
        precision: convert_vlm(TINY, bundle_folder(data, "tiny", precision), precision, reference=TINY_CASE).bundle
        for precision in PRECISIONS
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return copy_of_tiny(tmp_path / "model")


def reader(bundle: VlmBundle) -> StatefulReader:
    runtime = RuntimeConfig(model_cache=False)
    vision, embed, decoder = (compile_part(bundle.part(part), part, runtime) for part in VLM_PARTS)
    return StatefulReader(vision, embed, decoder, Tokenizer.open(bundle.tokenizer), bundle.facts)


def refusal(folder: Path, out: Path) -> ConvertError:
    with pytest.raises(ConvertError) as caught:
        convert_vlm(folder, out / "tiny-fp32", "fp32")
    assert not list(out.glob("*tiny*"))  # nothing half made is left
    return caught.value


def rewrite(folder: Path, change: dict[str, str | None]) -> None:
    """Weights with other names; None leaves a tensor out."""
    with Weights((folder / SINGLE,)) as weights:
        tensors = {
            change.get(name, name): weights.read(name).copy()
            for name in tuple(weights.unused)
            if change.get(name, name) is not None
        }
    write_safetensors(folder / SINGLE, {str(name): values for name, values in tensors.items()}, bfloat16=True)


# ---- numbers


def test_fp32_computes_what_transformers_computes(tiny: dict[WeightPrecision, VlmBundle]) -> None:
    bundle, case = tiny["fp32"], load_case(TINY_CASE)
    found = golden_vlm.run(
        reader(bundle),
        Tokenizer.open(bundle.tokenizer),
        bundle.facts,
        case.image,
        case.task,
        follow=case.outputs.tokens,
    )
    np.testing.assert_allclose(found.image_embeds, case.outputs.image_embeds, atol=1e-4)
    np.testing.assert_allclose(found.inputs_embeds, case.outputs.inputs_embeds, atol=1e-4)
    np.testing.assert_allclose(found.logits, case.outputs.logits, atol=1e-4)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_free_greedy_run_says_the_48_tokens_of_transformers(
    tiny: dict[WeightPrecision, VlmBundle], precision: WeightPrecision
) -> None:
    bundle, case = tiny[precision], load_case(TINY_CASE)
    found = golden_vlm.run(
        reader(bundle), Tokenizer.open(bundle.tokenizer), bundle.facts, case.image, case.task, steps=48
    )
    assert found.tokens == case.outputs.tokens


@pytest.mark.parametrize(("precision", "limit"), [("fp32", 1e-5), ("fp16", 1e-5), ("int8", 0.04), ("int4", 0.3)])
def test_every_precision_is_as_near_as_its_format_allows(
    tiny: dict[WeightPrecision, VlmBundle], precision: WeightPrecision, limit: float
) -> None:
    bundle, case = tiny[precision], load_case(TINY_CASE)
    found = golden_vlm.run(
        reader(bundle),
        Tokenizer.open(bundle.tokenizer),
        bundle.facts,
        case.image,
        case.task,
        follow=case.outputs.tokens,
    )
    comparison = golden_vlm.compare(case, found, (precision,))
    assert comparison.problem is None
    assert max(part.relative for part in comparison.parts) < limit
    assert comparison.equal_tokens >= 36


def test_reading_stops_at_the_limit_and_at_the_end_token(tiny: dict[WeightPrecision, VlmBundle]) -> None:
    case = load_case(TINY_CASE)
    plain = reader(tiny["fp32"])
    answer = plain.read(case.image, case.task, 5)
    assert (answer.ids, answer.finish) == (case.outputs.tokens[:5], "length")
    tokens = tiny["fp32"].facts.tokens.model_copy(update={"end": (case.outputs.tokens[3],)})
    ending = tiny["fp32"].facts.model_copy(update={"tokens": tokens})
    runtime = RuntimeConfig(model_cache=False)
    vision, embed, decoder = (compile_part(tiny["fp32"].part(part), part, runtime) for part in VLM_PARTS)
    stopping = StatefulReader(vision, embed, decoder, Tokenizer.open(tiny["fp32"].tokenizer), ending)
    first = case.outputs.tokens.index(case.outputs.tokens[3])
    stopped = stopping.read(case.image, case.task, 48)
    assert (stopped.ids, stopped.finish) == (case.outputs.tokens[:first], "stop")


def test_one_crop_leaves_nothing_behind_for_the_next(tiny: dict[WeightPrecision, VlmBundle]) -> None:
    case = load_case(TINY_CASE)
    plain = reader(tiny["fp32"])
    before = plain.read(case.image, "ocr", 8)
    plain.read(case.image[:20, ::-1], "table", 8)
    assert plain.read(case.image, "ocr", 8).ids == before.ids


# ---- folders of other forms


def test_names_of_transformers_5_and_published_names_give_the_same_graphs(
    folder: Path, tmp_path: Path, tiny: dict[WeightPrecision, VlmBundle]
) -> None:
    with Weights((folder / SINGLE,)) as weights:
        names = tuple(weights.unused)
    new = {
        name: re.sub(r"^mlp_AR", "model.projector", re.sub(r"^visual", "model.visual", name))
        if not name.startswith("model.")
        else name.replace("model.", "model.language_model.", 1)
        for name in names
    }
    rewrite(folder, dict(new))
    bundle = convert_vlm(folder, tmp_path / "tiny-fp32", "fp32", reference=TINY_CASE).bundle
    for part in VLM_PARTS:
        assert bundle.manifest.files[f"{part}.bin"] == tiny["fp32"].manifest.files[f"{part}.bin"]


def test_a_model_in_shards_gives_the_same_graphs(
    folder: Path, tmp_path: Path, tiny: dict[WeightPrecision, VlmBundle]
) -> None:
    with Weights((folder / SINGLE,)) as weights:
        tensors = {name: weights.read(name).copy() for name in tuple(weights.unused)}
    (folder / SINGLE).unlink()
    names = sorted(tensors)
    halves = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for file, part in halves.items():
        write_safetensors(folder / file, {name: tensors[name] for name in part}, bfloat16=True)
    places = {name: file for file, part in halves.items() for name in part}
    (folder / INDEX).write_text(json.dumps({"weight_map": places}), encoding="utf-8")
    bundle = convert_vlm(folder, tmp_path / "tiny-fp32", "fp32").bundle
    assert {INDEX, *halves} <= set(bundle.manifest.sources)
    for part in VLM_PARTS:
        assert bundle.manifest.files[f"{part}.bin"] == tiny["fp32"].manifest.files[f"{part}.bin"]


def test_a_tied_head_is_the_embedding_table_and_a_head_in_the_file_is_then_not_needed(
    folder: Path, tmp_path: Path
) -> None:
    config = read_config(folder)
    config["tie_word_embeddings"] = True
    write_config(folder, config)
    bundle = convert_vlm(folder, tmp_path / "tiny-fp32", "fp32").bundle
    assert bundle.manifest.unused == ("lm_head.weight",)


def test_tensors_that_upstream_ships_and_never_uses_are_listed(folder: Path, tmp_path: Path) -> None:
    with Weights((folder / SINGLE,)) as weights:
        tensors = {name: weights.read(name).copy() for name in tuple(weights.unused)}
    extra = "visual.vision_model.embeddings.packing_position_embedding.weight"
    write_safetensors(folder / SINGLE, {**tensors, extra: np.zeros((4, 48), np.float32)}, bfloat16=True)
    lines: list[str] = []
    bundle = convert_vlm(folder, tmp_path / "tiny-int8", "int8", report=lines.append).bundle
    assert bundle.manifest.unused == (extra,)
    assert any(extra in line for line in lines)
    assert any("vision" in line and "MB" in line for line in lines)


# ---- bad input: one typed error, nothing half made


def test_a_missing_tensor_is_named(folder: Path, tmp_path: Path) -> None:
    rewrite(folder, {"model.layers.1.mlp.up_proj.weight": None})
    assert "model.layers.1.mlp.up_proj.weight" in str(refusal(folder, tmp_path))


def test_sizes_that_the_weights_do_not_have_are_named(folder: Path, tmp_path: Path) -> None:
    config = read_config(folder)
    config["text_config"]["intermediate_size"] = 128
    write_config(folder, config)
    assert "mlp.gate_proj.weight [192, 64] instead of [128, 64]" in str(refusal(folder, tmp_path))


def test_a_weight_that_is_no_number_is_named(folder: Path, tmp_path: Path) -> None:
    with Weights((folder / SINGLE,)) as weights:
        tensors = {name: weights.read(name).copy() for name in tuple(weights.unused)}
    tensors["model.layers.2.self_attn.k_proj.weight"][5, 5] = np.nan
    write_safetensors(folder / SINGLE, tensors, bfloat16=True)
    assert "model.layers.2.self_attn.k_proj.weight" in str(refusal(folder, tmp_path))


def test_truncated_weights_are_refused(folder: Path, tmp_path: Path) -> None:
    raw = (folder / SINGLE).read_bytes()
    (folder / SINGLE).write_bytes(raw[:-1000])
    assert "cut off" in str(refusal(folder, tmp_path))


def test_a_reference_of_other_weights_stops_the_conversion(folder: Path, tmp_path: Path) -> None:
    with Weights((folder / SINGLE,)) as weights:
        tensors = {name: weights.read(name).copy() for name in tuple(weights.unused)}
    tensors["mlp_AR.linear_2.weight"] *= 1.01
    write_safetensors(folder / SINGLE, tensors, bfloat16=True)
    with pytest.raises(ConvertError, match="vision differs by"):
        convert_vlm(folder, tmp_path / "tiny-fp32", "fp32", reference=TINY_CASE)


def test_a_reference_that_is_damaged_is_refused(tmp_path: Path) -> None:
    (tmp_path / "case.npz").write_bytes(b"PK")
    with pytest.raises(BundleError, match=r"case\.npz"):
        convert_vlm(TINY, tmp_path / "tiny-fp32", "fp32", reference=tmp_path / "case.npz")


def test_a_bundle_has_its_precision_in_its_name(tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match="tiny-int8"):
        convert_vlm(TINY, tmp_path / "tiny-int8", "fp32")


# ---- the bundle


def test_a_bundle_says_what_it_was_made_from_and_what_it_holds(tiny: dict[WeightPrecision, VlmBundle]) -> None:
    bundle = tiny["int4"]
    bundle.check_files()
    manifest = bundle.manifest
    assert (manifest.spec, manifest.precision, manifest.kind) == ("tiny", "int4", "vlm")
    assert set(manifest.sources) == {
        "config.json",
        "preprocessor_config.json",
        "generation_config.json",
        "tokenizer.json",
        SINGLE,
    }
    graphs = {f"{part}{ending}" for part in VLM_PARTS for ending in (".xml", ".bin")}
    assert set(manifest.files) == {*graphs, "tokenizer.json", "facts.json", "golden.npz"}
    assert [tensor.name for tensor in manifest.graphs["decoder"].inputs] == [
        "inputs_embeds",
        "attention_mask",
        "rotary_cos",
        "rotary_sin",
        "beam_idx",
    ]
    assert bundle.facts == read_facts(TINY)


def test_int4_is_for_layers_of_the_decoder_only(tiny: dict[WeightPrecision, VlmBundle]) -> None:
    graphs = tiny["int4"].manifest.graphs
    assert "i4" in graphs["decoder"].weights
    assert "i8" in graphs["decoder"].weights  # the head
    assert "i4" not in graphs["vision"].weights
    assert "i4" not in graphs["embed"].weights


def test_each_kind_of_bundle_is_opened_as_what_it_is(tiny: dict[WeightPrecision, VlmBundle]) -> None:
    folder = tiny["int8"].folder
    assert is_vlm_bundle(folder)
    with pytest.raises(BundleError):
        open_bundle(folder)
    found = list_bundles(folder.parent.parent)
    assert [type(bundle) for bundle in found] == [VlmBundle] * 4
    assert not any(isinstance(bundle, Bundle | DocvinoError) for bundle in found)


def test_damaged_facts_are_a_bundle_error(tmp_path: Path) -> None:
    bundle = convert_vlm(TINY, tmp_path / "tiny-int8", "int8").bundle
    (bundle.folder / "facts.json").write_text('{"prompt_style": "v9"}', encoding="utf-8")
    with pytest.raises(BundleError, match=r"facts\.json"):
        open_vlm_bundle(bundle.folder)


# ---- verification


def test_verification_gives_the_numbers_of_each_graph_and_keeps_them(tiny: dict[WeightPrecision, VlmBundle]) -> None:
    checked = verify_vlm(tiny["fp32"].folder, RuntimeConfig(model_cache=False))
    assert checked.problem is None
    assert checked.device == "CPU"
    assert [part.part for part in checked.parts] == ["vision", "embed", "decoder"]
    assert (checked.equal_tokens, checked.tokens) == (48, 48)
    raise_failures([checked])
    written = json.loads((tiny["fp32"].folder / "verify.json").read_text(encoding="utf-8"))
    assert written[0]["parts"][0]["part"] == "vision"


def test_a_device_that_answers_wrongly_is_refused(tmp_path: Path) -> None:
    bundle = convert_vlm(TINY, tmp_path / "tiny-fp32", "fp32", reference=TINY_CASE).bundle
    case = load_case(bundle.golden)
    wrong = VlmCase(case.image[:, ::-1], case.task, case.outputs, case.text, case.engine)
    save_case(bundle.golden, wrong)
    with pytest.raises(BundleError, match="sha256"):
        verify_vlm(bundle.folder, RuntimeConfig(model_cache=False))
    files = {
        **bundle.manifest.files,
        "golden.npz": file_sha256(bundle.golden),
    }
    manifest = bundle.manifest.model_copy(update={"files": files})
    (bundle.folder / "manifest.json").write_text(manifest.model_dump_json(), encoding="utf-8")
    checked = verify_vlm(bundle.folder, RuntimeConfig(model_cache=False))
    assert checked.problem is not None
    assert "vision differs" in checked.problem
    with pytest.raises(VerifyError, match="vision differs"):
        raise_failures([checked])


def test_a_conversion_without_a_reference_keeps_its_own_numbers(tmp_path: Path) -> None:
    done = convert_vlm(TINY, tmp_path / "tiny-int8", "int8")
    assert done.comparison is None
    case = load_case(done.bundle.golden)
    assert case.engine == "this conversion"
    assert len(case.outputs.tokens) == 16
    assert verify_vlm(done.bundle.folder, RuntimeConfig(model_cache=False)).problem is None


def test_a_nan_never_passes() -> None:
    case = load_case(TINY_CASE)
    logits = case.outputs.logits.copy()
    logits[0, 0] = np.nan
    found = golden_vlm.Outputs(case.outputs.image_embeds, case.outputs.inputs_embeds, logits, case.outputs.tokens)
    assert golden_vlm.compare(case, found, ("int4",)).problem is not None


def test_at_fp32_one_other_token_is_one_too_many() -> None:
    case = load_case(TINY_CASE)
    tokens = (*case.outputs.tokens[:-1], 0)
    found = golden_vlm.Outputs(case.outputs.image_embeds, case.outputs.inputs_embeds, case.outputs.logits, tokens)
    assert golden_vlm.compare(case, found, ("fp32",)).problem == "47 of 48 tokens are the recorded ones"
    assert golden_vlm.compare(case, found, ("fp32", "bf16")).problem is None


def test_the_drawn_sample_tells_rows_from_columns_and_red_from_blue() -> None:
    image = golden_vlm.sample_image()
    assert image.shape == (60, 210, 3)
    prompt = build_prompt(
        Tokenizer.open(TINY / "tokenizer.json"), "ocr", prepare(image, "ocr", read_facts(TINY)).grid, read_facts(TINY)
    )
    assert prompt.image.stop - prompt.image.start > 1
    assert np.abs(image[..., 0].astype(int) - image[..., 2]).mean() > 20


# ---- command line


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(list(words))
    printed = capsys.readouterr()
    return int(stopped.value.code or 0), printed.out, printed.err


def test_a_folder_is_converted_verified_found_and_removed_by_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--data-dir", str(tmp_path), "--precision", "int8")
    code, out, err = run(capsys, "convert", str(TINY), "--reference", str(TINY_CASE), *where, "--json")
    assert code == 0, err
    assert json.loads(out)[0]["model"] == "tiny-vlm"
    code, _, err = run(capsys, "convert", str(TINY), *where)
    assert (code, "is there" in err) == (0, True)
    code, out, _ = run(capsys, "verify", "tiny-vlm", *where)
    assert code == 0
    assert "same numbers" in out
    assert "of 48 tokens as transformers" in out
    code, out, _ = run(capsys, "verify", "tiny-vlm", *where, "--json")
    assert json.loads(out)[0]["parts"][2]["part"] == "decoder"
    code, out, _ = run(capsys, "models", "list", "--data-dir", str(tmp_path), "--json")
    assert [row["converted"] for row in json.loads(out) if row["model"] == "tiny-vlm"] == [["int8"]]
    code, out, _ = run(capsys, "models", "list", "--data-dir", str(tmp_path))
    assert "tiny-vlm" in out
    code, out, _ = run(capsys, "models", "path", "tiny-vlm", *where)
    assert out.strip().endswith("tiny-vlm-int8")
    assert run(capsys, "models", "remove", "tiny-vlm", *where)[0] == 0
    assert not is_vlm_bundle(bundle_folder(tmp_path, "tiny-vlm", "int8"))


def test_a_folder_of_something_else_is_refused_with_code_4(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    code, _, err = run(capsys, "convert", str(tmp_path / "empty"), "-o", str(tmp_path / "out"))
    assert code == 4
    assert "no model" in err


def test_options_for_folders_are_refused_for_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "convert", "pp-ocr", "--name", "x", "--data-dir", str(tmp_path))
    assert code == 2
    assert "--name: only for models of your own" in err


def test_models_of_one_graph_have_no_int4(tmp_path: Path) -> None:
    from docvino.convert.ir import convert
    from docvino.specs.pp_ocr import DETECTION

    with pytest.raises(ConfigError, match="no int4"):
        convert(DETECTION, tmp_path / "x.onnx", RuntimeConfig(precision="int4", data_dir=tmp_path))


def test_a_model_is_called_after_its_folder() -> None:
    assert model_name(Path("models/PaddleOCR-VL-1.6")) == "paddleocr-vl-1.6"
    assert model_name(Path("/x/Mein Modell_2")) == "mein-modell-2"


def test_kinds_are_told_apart_by_the_config(tmp_path: Path) -> None:
    assert find_kind(TINY) == "paddleocr-vl"
    assert find_kind(tmp_path) is None
    (tmp_path / "config.json").write_text('{"model_type": "bert"}', encoding="utf-8")
    assert find_kind(tmp_path) is None
    assert find_kind(tmp_path / "config.json") is None
