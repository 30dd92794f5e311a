"""Facts of recording a reference with transformers, and that the recorded tiny model is still what it records."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from docvino import golden_vlm
from docvino.cli import main
from docvino.convert.vlm import convert_vlm
from docvino.errors import ConfigError, MissingExtraError
from docvino.golden_vlm import load_case
from docvino.reference import make_random, record, record_file
from vlm_models import TINY, TINY_CASE, character_tokenizer, tiny_tokens


def needs_transformers() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")


@pytest.mark.reference
@pytest.mark.filterwarnings("default")  # what torch and transformers warn of is theirs
def test_recording_the_tiny_model_again_gives_the_recorded_numbers(tmp_path: Path) -> None:
    needs_transformers()
    kept = load_case(TINY_CASE)
    again = record(TINY, tmp_path / "case.npz", image=kept.image, steps=48)
    assert again.outputs.tokens == kept.outputs.tokens
    assert golden_vlm.compare(kept, again.outputs, ("fp32",)).problem is None
    np.testing.assert_array_equal(load_case(tmp_path / "case.npz").image, kept.image)


@pytest.mark.reference
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("tied", [False, True])
def test_a_new_random_model_of_other_sizes_computes_the_same_in_both(tmp_path: Path, tied: bool) -> None:
    needs_transformers()
    make_random(
        tmp_path / "model",
        character_tokenizer(tiny_tokens()),
        text={
            "vocab_size": 168,
            "hidden_size": 96,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 6,
            "num_key_value_heads": 3,
            "head_dim": 16,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [2, 3, 3]},
        },
        vision={
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "image_size": 140,
        },
        tied=tied,
        budget=(9_408, 50_176),
        seed=11,
    )
    record(tmp_path / "model", tmp_path / "case.npz", task="table", steps=34)
    done = convert_vlm(tmp_path / "model", tmp_path / "new-fp32", "fp32", reference=tmp_path / "case.npz")
    assert done.comparison is not None
    assert done.comparison.equal_tokens == done.comparison.tokens == 34
    assert max(part.max_abs_diff for part in done.comparison.parts) < 1e-4
    assert done.bundle.facts.text.tied_head == tied


@pytest.mark.reference
@pytest.mark.filterwarnings("default")
def test_the_command_line_records_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    needs_transformers()
    from PIL import Image

    Image.fromarray(golden_vlm.sample_image()).save(tmp_path / "crop.png")
    words = ["reference", str(TINY), "-o", str(tmp_path / "case.npz"), "--image", str(tmp_path / "crop.png")]
    with pytest.raises(SystemExit) as stopped:
        main([*words, "--steps", "3"])
    assert stopped.value.code == 0
    assert "3 tokens of transformers" in capsys.readouterr().err
    assert load_case(tmp_path / "case.npz").outputs.tokens == load_case(TINY_CASE).outputs.tokens[:3]


def test_without_torch_a_reference_says_which_extra_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError) as caught:
        record(TINY, tmp_path / "case.npz")
    assert "docvino[reference]" in caught.value.fix


def test_without_tokenizers_a_conversion_says_which_extra_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingExtraError) as caught:
        convert_vlm(TINY, tmp_path / "tiny-fp32", "fp32")
    assert "docvino[vlm]" in caught.value.fix


def test_an_unknown_task_is_named_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        record_file(TINY, tmp_path / "case.npz", None, "tabel", 1)
    assert "table" in caught.value.fix
