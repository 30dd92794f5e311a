"""Facts of reading safetensors: what is there comes out exactly, what is not whole is refused and named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from docvino.convert.safetensors import INDEX, SINGLE, Weights, find_files
from docvino.errors import ConvertError
from vlm_models import write_safetensors

VALUES = np.array([[1.5, -2.0, 0.0], [3.25, 1e-3, -65000.0]], np.float32)
BIAS = np.array([0.5, 0.25], np.float32)


def one_file(folder: Path, **tensors: NDArray[Any]) -> Path:
    path = folder / SINGLE
    write_safetensors(path, tensors or {"a.weight": VALUES, "a.bias": BIAS})
    return path


def with_header(path: Path, header: dict[str, Any], blob: bytes) -> Path:
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + blob)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(ConvertError) as caught, Weights((path,)):
        pass
    assert caught.value.fix
    return str(caught.value)


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
def test_every_format_is_read_as_float32(tmp_path: Path, kind: str) -> None:
    exact = np.array([[1.5, -2.0, 0.25]], np.float32)
    stored = exact.astype(np.float16) if kind == "float16" else exact
    write_safetensors(tmp_path / SINGLE, {"a": stored}, bfloat16=kind == "bfloat16")
    with Weights((tmp_path / SINGLE,)) as weights:
        values = weights.read("a")
        assert values.dtype == np.float32
        np.testing.assert_array_equal(values, exact)


def test_tensors_that_nobody_read_are_listed_with_their_shapes(tmp_path: Path) -> None:
    with Weights((one_file(tmp_path),)) as weights:
        weights.read("a.weight")
        assert weights.unused == {"a.bias": (2,)}


def test_names_get_their_new_beginning_the_longest_that_fits(tmp_path: Path) -> None:
    path = one_file(tmp_path, **{"model.text.x": BIAS, "model.y": BIAS, "z": BIAS})
    with Weights((path,), {"model.text.": "t.", "model.": "m."}) as weights:
        assert set(weights.unused) == {"t.x", "m.y", "z"}


def test_two_names_that_become_one_are_refused(tmp_path: Path) -> None:
    path = one_file(tmp_path, **{"old.x": BIAS, "new.x": BIAS})
    with pytest.raises(ConvertError, match="a second time"):
        Weights((path,), {"old.": "new."})


def test_missing_and_misshapen_tensors_are_named(tmp_path: Path) -> None:
    with Weights((one_file(tmp_path),)) as weights:
        weights.check({"a.weight": (2, 3)})
        with pytest.raises(ConvertError, match=r"lack b, c"):
            weights.check({"b": (1,), "a.bias": (2,), "c": (1,)})
        with pytest.raises(ConvertError, match=r"a.weight \[2, 3\] instead of \[3, 2\]"):
            weights.check({"a.weight": (3, 2)})


def test_a_long_list_of_missing_tensors_is_cut(tmp_path: Path) -> None:
    with Weights((one_file(tmp_path),)) as weights, pytest.raises(ConvertError, match="and 15 more"):
        weights.check({f"x{number}": (1,) for number in range(20)})


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("half", [False, True])
def test_weights_that_are_not_finite_are_refused_by_name(tmp_path: Path, bad: float, half: bool) -> None:
    values = VALUES.copy()
    values[1, 2] = bad
    write_safetensors(tmp_path / SINGLE, {"layer.7.weight": values}, bfloat16=half)
    with Weights((tmp_path / SINGLE,)) as weights, pytest.raises(ConvertError, match=r"layer\.7\.weight.*not finite"):
        weights.read("layer.7.weight")


def test_tensors_in_a_format_for_other_uses_may_be_there_but_not_be_needed(tmp_path: Path) -> None:
    header = {"ids": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]}}
    with Weights((with_header(tmp_path / SINGLE, header, b"\0" * 8),)) as weights:
        assert weights.unused == {"ids": (1,)}
        with pytest.raises(ConvertError, match=r"ids \(I64\)"):
            weights.check({"ids": (1,)})


# ---- files that are not whole


@given(st.data())
def test_a_file_cut_off_anywhere_is_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = one_file(tmp_path_factory.mktemp("cut"))
    whole = path.read_bytes()
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    assert "cut off" in refusal(path) or "another size" in refusal(path)


def test_a_file_with_something_behind_its_tensors_is_refused(tmp_path: Path) -> None:
    path = one_file(tmp_path)
    path.write_bytes(path.read_bytes() + b"\0")
    assert "longer than its header says" in refusal(path)


def test_a_renamed_file_is_no_safetensors_file(tmp_path: Path) -> None:
    path = tmp_path / SINGLE
    path.write_bytes(b"PK\x03\x04" + b"\0" * 100)
    assert "is not a safetensors file" in refusal(path)


@pytest.mark.parametrize(
    ("offsets", "words"),
    [(([0, 8], [4, 12]), "overlaps"), (([0, 8], [12, 20]), "another size"), (([0, 8], [8, 12]), "another size")],
)
def test_tensors_that_overlap_or_leave_gaps_are_refused(
    tmp_path: Path, offsets: tuple[list[int], list[int]], words: str
) -> None:
    header = {
        name: {"dtype": "F32", "shape": [2], "data_offsets": place}
        for name, place in zip(("a", "b"), offsets, strict=True)
    }
    assert words in refusal(with_header(tmp_path / SINGLE, header, b"\0" * max(offsets[1])))


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [2]},
        {"dtype": "F99", "shape": [2], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": "2", "data_offsets": ["x", 8]},
        [],
    ],
)
def test_a_header_of_another_form_is_refused(tmp_path: Path, entry: Any) -> None:
    assert refusal(with_header(tmp_path / SINGLE, {"a": entry}, b"\0" * 8))


def test_a_header_that_names_a_tensor_twice_is_refused(tmp_path: Path) -> None:
    entry = '{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
    text = f'{{"a":{entry},"a":{entry}}}'.encode()
    (tmp_path / SINGLE).write_bytes(len(text).to_bytes(8, "little") + text + b"\0" * 4)
    assert "twice" in refusal(tmp_path / SINGLE)


# ---- folders


def shards(folder: Path, places: dict[str, str]) -> None:
    (folder / INDEX).write_text(json.dumps({"weight_map": places}), encoding="utf-8")


def test_shards_are_found_by_their_index_and_read_as_one(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "model-1.safetensors", {"a": VALUES})
    write_safetensors(tmp_path / "model-2.safetensors", {"b": BIAS})
    shards(tmp_path, {"a": "model-1.safetensors", "b": "model-2.safetensors"})
    with Weights(find_files(tmp_path)) as weights:
        np.testing.assert_array_equal(weights.read("a"), VALUES)
        np.testing.assert_array_equal(weights.read("b"), BIAS)


def test_a_tensor_in_two_shards_is_refused(tmp_path: Path) -> None:
    for number in (1, 2):
        write_safetensors(tmp_path / f"model-{number}.safetensors", {"a": BIAS})
    shards(tmp_path, {"a": "model-1.safetensors", "b": "model-2.safetensors"})
    with pytest.raises(ConvertError, match="a second time"):
        Weights(find_files(tmp_path))


def test_a_folder_says_which_shard_it_lacks(tmp_path: Path) -> None:
    shards(tmp_path, {"a": "model-1.safetensors"})
    with pytest.raises(ConvertError, match=r"lacks model-1\.safetensors"):
        find_files(tmp_path)


def test_an_index_cannot_name_files_elsewhere(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "secret.safetensors", {"a": BIAS})
    inner = tmp_path / "inner"
    inner.mkdir()
    shards(inner, {"a": "../secret.safetensors"})
    with pytest.raises(ConvertError, match="outside its folder"):
        find_files(inner)


def test_a_damaged_index_is_refused(tmp_path: Path) -> None:
    (tmp_path / INDEX).write_text("[1]", encoding="utf-8")
    with pytest.raises(ConvertError, match="damaged"):
        find_files(tmp_path)


def test_a_folder_without_the_usual_file_says_what_it_has_instead(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "weights.safetensors", {"a": BIAS})
    with pytest.raises(ConvertError, match=r"only weights\.safetensors"):
        find_files(tmp_path)
