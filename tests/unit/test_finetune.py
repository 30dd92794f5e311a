"""Facts of fine-tuning: the data, refusals, adapters merged without PyTorch; and real training of the tiny model."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from docvino.bundle import bundle_folder, open_vlm_bundle
from docvino.cli import main
from docvino.convert.adapter import merge_adapter
from docvino.convert.kind import find_kind
from docvino.convert.safetensors import Weights, find_files, write_tensors
from docvino.convert.vlm_graph import RENAMED
from docvino.errors import ConfigError, ConvertError, InputError, MissingExtraError
from docvino.finetune import (
    ADAPTER,
    Example,
    Plan,
    check_folder,
    edit_distance,
    error_rate,
    finetune,
    read_examples,
    split_examples,
)
from docvino.golden_vlm import sample_image
from vlm_models import TINY, copy_of_tiny, read_config, write_config, write_safetensors

QUERY = "model.layers.0.self_attn.q_proj.weight"
PEFT_QUERY = "base_model.model.model.language_model.layers.0.self_attn.q_proj"
ALPHA, RANK = 6, 2


def write_examples(folder: Path, texts: tuple[str, ...] = ("ab", "Total 42", "cd")) -> Path:
    """Pictures of no meaning, each different, with texts: what is learned is which text belongs to which."""
    folder.mkdir(exist_ok=True)
    lines = []
    for number, text in enumerate(texts):
        Image.fromarray(np.roll(sample_image(), 17 * number, axis=1)).save(folder / f"{number}.png")
        lines.append(json.dumps({"image": f"{number}.png", "task": "ocr", "text": text}))
    (folder / "data.jsonl").write_text("\n".join(lines) + "\n\n", encoding="utf-8")
    return folder / "data.jsonl"


def write_adapter(folder: Path, matrices: dict[str, NDArray[np.float32]], **changes: Any) -> Path:
    folder.mkdir()
    about = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "bias": "none", **changes}
    (folder / "adapter_config.json").write_text(json.dumps(about), encoding="utf-8")
    write_safetensors(folder / "adapter_model.safetensors", matrices)
    return folder


def query_matrices() -> dict[str, NDArray[np.float32]]:
    dice = np.random.default_rng(1)
    return {
        f"{PEFT_QUERY}.lora_A.weight": dice.normal(size=(RANK, 64)).astype(np.float32),
        f"{PEFT_QUERY}.lora_B.weight": dice.normal(size=(128, RANK)).astype(np.float32),
    }


def tensors(folder: Path) -> dict[str, NDArray[np.float32]]:
    with Weights(find_files(folder), RENAMED) as weights:
        return {name: weights.read(name).copy() for name in weights.names}


# ---- data


def test_examples_are_read_with_pictures_beside_the_file(tmp_path: Path) -> None:
    found = read_examples(write_examples(tmp_path / "data"))
    assert found[1] == Example(tmp_path / "data" / "1.png", "ocr", "Total 42")
    assert len(found) == 3


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2 is no JSON"),
        ("[1]", "line 2 is not a JSON object"),
        ('{"image": "0.png", "task": "ocr"}', "line 2 lacks a text for 'text'"),
        ('{"image": "0.png", "task": "ocr", "text": 5}', "line 2 lacks a text for 'text'"),
        ('{"image": "0.png", "task": "ocr", "txt": "a"}', "line 2 has 'txt'"),
        ('{"image": "0.png", "task": "tabel", "text": "a"}', "unknown task 'tabel'"),
        ('{"image": "none.png", "task": "ocr", "text": "a"}', "no picture"),
    ],
)
def test_a_line_that_is_no_example_is_named(tmp_path: Path, line: str, said: str) -> None:
    data = write_examples(tmp_path, ("ab",))
    data.write_text(data.read_text(encoding="utf-8").strip() + f"\n{line}\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_examples(data)
    assert said in str(caught.value)


def test_a_file_that_is_empty_or_missing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n", encoding="utf-8")
    for name in ("empty.jsonl", "missing.jsonl"):
        with pytest.raises(InputError):
            read_examples(tmp_path / name)


def test_the_held_out_share_is_at_least_one_and_fixed_by_the_seed() -> None:
    examples = [Example(Path(f"{n}.png"), "ocr", str(n)) for n in range(20)]
    training, held = split_examples(examples, 0.01, 3)
    assert (len(training), len(held)) == (19, 1)
    assert split_examples(examples, 0.3, 3) == split_examples(examples, 0.3, 3)
    assert {*training, *held} == set(examples)
    with pytest.raises(InputError):
        split_examples(examples[:1], 0.5, 0)


def test_the_error_rate_counts_characters_of_all_texts_together() -> None:
    assert edit_distance("kitten", "sitting") == 3
    assert error_rate(["abcd", ""], ["abxd", "yz"]) == pytest.approx(3 / 6)
    assert error_rate(["a"], [""]) == 1.0


# ---- refusals


def test_the_tiny_folder_can_be_trained() -> None:
    assert check_folder(TINY).tasks


@pytest.mark.parametrize("missing", ["tokenizer.json", "preprocessor_config.json", "config.json", "model.safetensors"])
def test_a_folder_without_one_of_its_files_is_refused_with_the_files_name(tmp_path: Path, missing: str) -> None:
    folder = copy_of_tiny(tmp_path / "model")
    (folder / missing).unlink()
    with pytest.raises(ConvertError) as caught:
        check_folder(folder)
    assert missing in str(caught.value)


def test_weights_of_other_shapes_than_the_config_says_are_refused_by_name(tmp_path: Path) -> None:
    folder = copy_of_tiny(tmp_path / "model")
    config = read_config(folder)
    config["text_config"]["intermediate_size"] += 8
    write_config(folder, config)
    with pytest.raises(ConvertError) as caught:
        check_folder(folder)
    assert "mlp" in str(caught.value)


def test_another_models_processor_is_refused(tmp_path: Path) -> None:
    folder = copy_of_tiny(tmp_path / "model")
    values = read_config(folder, "preprocessor_config.json")
    write_config(folder, {**values, "patch_size": 16}, "preprocessor_config.json")
    with pytest.raises(ConvertError) as caught:
        check_folder(folder)
    assert "patch_size" in str(caught.value)


def test_without_torch_training_says_which_extra_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError) as caught:
        finetune(TINY, write_examples(tmp_path / "data"), tmp_path / "out", Plan())
    assert "docvino[finetune]" in caught.value.fix


def test_a_folder_in_use_and_a_missing_checkpoint_are_refused(tmp_path: Path) -> None:
    data = write_examples(tmp_path / "data")
    with pytest.raises(ConfigError) as caught:
        finetune(TINY, data, tmp_path / "data", Plan())
    assert "--resume" in caught.value.fix
    with pytest.raises(ConfigError):
        finetune(TINY, data, tmp_path / "new", Plan(), resume=True)


def test_the_command_names_an_unknown_precision(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["finetune", str(TINY), str(tmp_path / "data.jsonl"), "-o", str(tmp_path / "out"), "--precision", "int9"]
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2
    assert "int9" in capsys.readouterr().err


# ---- writing weights


def test_tensors_are_written_as_they_were_read(tmp_path: Path) -> None:
    with Weights(find_files(TINY), RENAMED) as weights:
        kinds = {name: (weights.stored_as(name), weights.shape(name)) for name in weights.names}
        write_tensors(tmp_path / "model.safetensors", kinds, weights.read)
    kept, again = tensors(TINY), tensors(tmp_path)
    assert kept.keys() == again.keys()
    for name, value in kept.items():
        np.testing.assert_array_equal(value, again[name])


def test_bfloat16_is_rounded_to_the_nearest_and_halves_to_even(tmp_path: Path) -> None:
    values = np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -1 - 2**-9], np.float32)
    write_tensors(tmp_path / "model.safetensors", {"a": ("BF16", (5,))}, lambda _: values)
    with Weights((tmp_path / "model.safetensors",)) as weights:
        assert weights.read("a").tolist() == [1.0, 1.0, 1 + 2**-6, 1 + 2**-7, -1.0]


# ---- adapters


def test_a_merged_adapter_changes_its_matrix_and_nothing_else(tmp_path: Path) -> None:
    matrices = query_matrices()
    adapter = write_adapter(tmp_path / "adapter", matrices)
    merge_adapter(adapter, TINY, tmp_path / "merged")
    kept, merged = tensors(TINY), tensors(tmp_path / "merged")
    first, second = matrices.values()
    np.testing.assert_allclose(merged[QUERY], kept[QUERY] + ALPHA / RANK * (second @ first), rtol=2**-8)
    assert [name for name in kept if not np.array_equal(kept[name], merged[name])] == [QUERY]
    assert (tmp_path / "merged" / "tokenizer.json").read_bytes() == (TINY / "tokenizer.json").read_bytes()


def test_rank_stabilised_adapters_have_their_own_scale(tmp_path: Path) -> None:
    matrices = query_matrices()
    adapter = write_adapter(tmp_path / "adapter", matrices, use_rslora=True)
    merge_adapter(adapter, TINY, tmp_path / "merged")
    first, second = matrices.values()
    wanted = tensors(TINY)[QUERY] + ALPHA / RANK**0.5 * (second @ first)
    np.testing.assert_allclose(tensors(tmp_path / "merged")[QUERY], wanted, rtol=2**-8)


@pytest.mark.parametrize(
    ("changes", "said"), [({"use_dora": True}, "use_dora"), ({"bias": "all"}, "bias"), ({"peft_type": "LOHA"}, "LOHA")]
)
def test_adapters_that_are_more_than_two_matrices_are_refused(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    adapter = write_adapter(tmp_path / "adapter", query_matrices(), **changes)
    with pytest.raises(ConvertError) as caught:
        merge_adapter(adapter, TINY, tmp_path / "merged")
    assert said in str(caught.value)


def test_an_adapter_of_another_model_is_refused(tmp_path: Path) -> None:
    matrices = query_matrices()
    wide = {name: np.concatenate([value, value], axis=value.shape.index(RANK) ^ 1) for name, value in matrices.items()}
    foreign = {name.replace("layers.0", "layers.9"): value for name, value in matrices.items()}
    half = dict(list(matrices.items())[:1])
    for number, wrong in enumerate((wide, foreign, half, {})):
        adapter = write_adapter(tmp_path / f"adapter{number}", wrong)
        with pytest.raises(ConvertError):
            merge_adapter(adapter, TINY, tmp_path / "merged")
    (adapter / "adapter_model.safetensors").unlink()
    with pytest.raises(ConvertError) as caught:
        merge_adapter(adapter, TINY, tmp_path / "merged")
    assert "adapter_model.safetensors" in str(caught.value)


def test_the_command_converts_an_adapter_with_its_base(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    adapter = write_adapter(tmp_path / "tuned", query_matrices())
    assert find_kind(adapter) == "adapter"
    words = ["convert", str(adapter), "--data-dir", str(tmp_path / "data")]
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2
    assert "--base" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        main([*words, "--base", str(TINY)])
    assert stopped.value.code == 0
    assert open_vlm_bundle(bundle_folder(tmp_path / "data", "tuned", "fp32")).manifest.spec == "tuned"


# ---- training


def needs_training() -> None:
    for package in ("torch", "transformers", "peft"):
        pytest.importorskip(package)


@pytest.mark.reference
@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # what torch and transformers warn of is theirs
def test_training_learns_what_pictures_say_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    needs_training()
    data = write_examples(tmp_path / "data")
    plan = Plan(epochs=2, batch=2, learning_rate=2e-3, patience=30)
    first = finetune(TINY, data, tmp_path / "out", plan, validation=data, precisions=())
    longer = Plan(epochs=25, batch=2, learning_rate=2e-3, patience=30)
    second = finetune(TINY, data, tmp_path / "out", longer, validation=data, resume=True, precisions=("fp32", "int8"))
    about = json.loads((tmp_path / "out" / "finetune.json").read_text(encoding="utf-8"))
    assert [entry["epoch"] for entry in about["log"]][:3] == [1, 2, 3]
    assert about["log"][-1]["loss"] < 0.5 * about["log"][0]["loss"]
    assert second.cer_before == first.cer_before
    assert second.torch_cer < first.cer_before
    exact = second.parities[0]
    assert (exact.precision, exact.problem, exact.same_texts) == ("fp32", None, 3)
    assert exact.relative is not None
    assert exact.relative < 1e-3


@pytest.mark.reference
@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_an_adapter_that_was_trained_converts_to_what_the_merged_folder_holds(tmp_path: Path) -> None:
    needs_training()
    data = write_examples(tmp_path / "data")
    plan = Plan(epochs=3, batch=1, lora_rank=4, learning_rate=5e-3, patience=30)
    outcome = finetune(TINY, data, tmp_path / "out", plan, validation=data, precisions=("fp32",))
    assert outcome.parities[0].problem is None
    merge_adapter(tmp_path / "out" / ADAPTER, TINY, tmp_path / "again")
    one, other = tensors(tmp_path / "out"), tensors(tmp_path / "again")
    assert all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.reference
@pytest.mark.filterwarnings("default")
def test_a_checkpoint_of_another_plan_is_refused(tmp_path: Path) -> None:
    needs_training()
    data = write_examples(tmp_path / "data")
    finetune(TINY, data, tmp_path / "out", Plan(epochs=1), precisions=())
    with pytest.raises(ConfigError) as caught:
        finetune(TINY, data, tmp_path / "out", Plan(epochs=1, lora_rank=2), resume=True, precisions=())
    assert "does not fit" in str(caught.value)
