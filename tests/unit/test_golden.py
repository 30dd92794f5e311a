"""Facts of golden cases: what is kept, and what counts as the same answer."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from docvino import golden
from docvino.errors import BundleError, VerifyError
from docvino.golden import (
    REPEATS,
    Comparison,
    Golden,
    Item,
    compare,
    compare_all,
    load_golden,
    packaged_golden,
    prepare,
    save_golden,
)
from docvino.specs import MODELS
from docvino.specs.model import RecognitionFacts
from docvino.specs.orientation import ORIENTATION
from docvino.specs.picodet import LAYOUT
from docvino.specs.pp_ocr import DETECTION, RECOGNITION

SCORES = np.array([[0.1, 0.2, 0.6, 0.1]], np.float32)
PAGE = np.zeros((300, 300, 3), np.uint8)
CASE = Golden((PAGE,), {"fetch_name_0": SCORES}, {}, (Item("180", 0.6),), "an engine 1.0")


def against(scores: np.ndarray, case: Golden = CASE, *, formats: tuple[str, ...] = ("fp32",)) -> Comparison:
    return compare(ORIENTATION, case, {"fetch_name_0": scores.astype(np.float32)}, None, formats)


def text_map(left: int, width: int = 60, value: float = 0.9) -> np.ndarray:
    drawn = np.zeros((1, 1, 64, 160), np.float32)
    drawn[0, 0, 20:32, left : left + width] = value
    return drawn


def lines(outputs: np.ndarray, wanted: np.ndarray) -> Comparison:
    """Detection outputs against others, with a tolerance that only the boxes can miss."""
    image = np.zeros((64, 160, 3), np.uint8)
    items = golden.interpret(DETECTION, {"fetch_name_0": wanted}, image, None)
    case = Golden((image,), {"fetch_name_0": wanted}, {}, items, "an engine")
    lenient = replace(DETECTION, tolerances={"fp32": 10.0})
    return compare(lenient, case, {"fetch_name_0": outputs}, None, ["fp32"])


def test_a_saved_case_is_read_back_with_its_images_in_order(tmp_path: Path) -> None:
    images = tuple(np.full((2, 3 + number, 3), number, np.uint8) for number in range(12))
    items = (Item("版面", 0.9), Item("line", 0.5, (1.0, 2.0, 3.0, 4.5)))
    saved = Golden(images, {"a": SCORES, "b": SCORES[0, :2]}, {"b": np.array([0, 3])}, items, "an engine 1.0")
    save_golden(tmp_path / "golden.npz", saved)
    read = load_golden(tmp_path / "golden.npz")
    assert len(read.images) == 12
    assert all(np.array_equal(one, other) for one, other in zip(read.images, images, strict=True))
    assert (read.items, read.engine) == (items, "an engine 1.0")
    assert read.outputs.keys() == {"a", "b"}
    assert np.array_equal(read.outputs["a"], SCORES)
    assert {name: index.tolist() for name, index in read.indices.items()} == {"b": [0, 3]}


def test_a_missing_case_is_a_bundle_error(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"cannot read golden case golden\.npz") as caught:
        load_golden(tmp_path / "golden.npz")
    assert caught.value.fix == "docvino convert the model again"


@pytest.mark.parametrize("content", [b"", b"no numbers", b"PK\x03\x04 cut off"], ids=["empty", "text", "half a zip"])
def test_a_damaged_case_is_a_bundle_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "golden.npz").write_bytes(content)
    with pytest.raises(BundleError):
        load_golden(tmp_path / "golden.npz")


def test_a_case_with_a_changed_byte_is_a_bundle_error(tmp_path: Path) -> None:
    path = tmp_path / "golden.npz"
    save_golden(path, replace(CASE, images=(np.random.default_rng(1).integers(0, 256, (9, 9, 3), np.uint8),)))
    with zipfile.ZipFile(path) as archive:
        entry = archive.getinfo("image_0.npy")
        place = entry.header_offset + 30 + len(entry.filename) + entry.compress_size // 2
    content = bytearray(path.read_bytes())
    content[place] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(BundleError):
        load_golden(path)


def test_a_case_without_items_is_a_bundle_error(tmp_path: Path) -> None:
    np.savez(tmp_path / "golden.npz", output_a=SCORES, engine=np.array("x"))
    with pytest.raises(BundleError):
        load_golden(tmp_path / "golden.npz")


@pytest.mark.parametrize("name", MODELS)
def test_the_package_ships_a_case_for_every_model_that_fits_its_contract(name: str, tmp_path: Path) -> None:
    spec = MODELS[name]
    (tmp_path / "golden.npz").write_bytes(packaged_golden(name))
    case = load_golden(tmp_path / "golden.npz")
    assert case.engine.startswith("onnxruntime ")
    assert case.items
    assert case.outputs.keys() == {contract.name for contract in spec.outputs}
    ((input_name, tensor),) = prepare(spec, case.images).items()
    assert input_name == spec.inputs[0].name
    assert all(want in (-1, have) for want, have in zip(spec.inputs[0].shape, tensor.shape, strict=True))
    if isinstance(spec.facts, RecognitionFacts):
        assert tensor.shape[0] == len(case.images) == len(case.items)


def test_a_model_without_a_case_cannot_be_verified() -> None:
    with pytest.raises(VerifyError, match="no golden case for nothing"):
        packaged_golden("nothing")


def test_equal_outputs_pass_without_any_difference() -> None:
    found = against(SCORES)
    assert (found.max_abs_diff, found.tolerance, found.problem) == (0.0, 1e-3, None)
    assert found.max_score_diff < 1e-6


def test_outputs_within_the_tolerance_pass() -> None:
    found = against(SCORES + 0.0009)
    assert found.problem is None
    assert found.max_abs_diff == pytest.approx(0.0009, abs=1e-6)


def test_outputs_outside_the_tolerance_fail_and_both_numbers_are_named() -> None:
    assert against(SCORES + 0.002).problem == "outputs differ by 0.002, allowed is 0.001"


def test_the_coarsest_number_format_sets_the_limits() -> None:
    assert against(SCORES + 0.004, formats=("fp32", "fp32")).problem is not None
    found = against(SCORES + 0.004, formats=("fp32", "fp16"))
    assert (found.problem, found.tolerance) == (None, 0.01)


def test_scores_that_differ_too_much_fail_whatever_the_tolerance() -> None:
    lenient = replace(ORIENTATION, tolerances={"fp32": 1.0})
    found = compare(lenient, CASE, {"fetch_name_0": SCORES + np.float32(0.02)}, None, ["fp32"])
    assert found.problem == "scores differ by 0.020, allowed is 0.01"


def test_numbers_that_are_no_numbers_fail() -> None:
    broken = SCORES.copy()
    broken[0, 0] = np.nan
    assert against(broken).problem is not None
    two = replace(CASE, outputs={**CASE.outputs, "second": SCORES})
    outputs = {"fetch_name_0": SCORES, "second": np.full_like(SCORES, np.nan)}
    assert compare(ORIENTATION, two, outputs, None, ["fp32"]).problem is not None


def test_outputs_of_another_size_fail() -> None:
    assert against(SCORES[:, :3]).problem == "output fetch_name_0 has another size"
    kept = replace(CASE, outputs={"fetch_name_0": SCORES[0, 2:]}, indices={"fetch_name_0": np.array([2, 3])})
    assert against(SCORES, kept).problem is None
    assert against(SCORES[:, :3], kept).problem == "output fetch_name_0 has another size"


def test_only_the_kept_values_of_a_large_output_are_compared() -> None:
    kept = replace(CASE, outputs={"fetch_name_0": SCORES[0, 2:]}, indices={"fetch_name_0": np.array([2, 3])})
    other = SCORES.copy()
    other[0, 0] = 0.4
    assert against(other, kept).problem is None
    other[0, 3] = 0.4
    assert against(other, kept).problem is not None


def test_another_answer_fails_even_within_the_tolerance() -> None:
    case = replace(
        CASE, outputs={"fetch_name_0": np.array([[0, 0, 0.5, 0.4999]], np.float32)}, items=(Item("180", 0.5),)
    )
    assert against(np.array([[0, 0, 0.4999, 0.5]]), case).problem == "nothing like '180' (0.50) was found"


class Slots:
    """A model of two slots whose second one answers wrongly."""

    def run_all(self, batches: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        for number, batch in enumerate(batches):
            assert batch["x"].shape == (1, 3, 224, 224)
            yield {"fetch_name_0": SCORES + np.float32(0.005 * (number % 2))}


def test_a_case_runs_several_times_and_the_worst_run_counts() -> None:
    outputs = golden.run(ORIENTATION, CASE, Slots())
    assert len(outputs) == REPEATS
    found = compare_all(ORIENTATION, CASE, outputs, None, ["fp32"])
    assert found.problem == "outputs differ by 0.005, allowed is 0.001"
    assert compare_all(ORIENTATION, CASE, outputs[::2], None, ["fp32"]).problem is None


def test_a_run_that_fails_counts_even_when_another_one_differs_more() -> None:
    lenient = replace(ORIENTATION, tolerances={"fp32": 1.0})
    near = SCORES.copy()
    near[0, 2] -= 0.02
    far = SCORES.copy()
    far[0, 0] += 0.3
    outputs = [{"fetch_name_0": values} for values in (far, near, SCORES)]
    assert compare_all(lenient, CASE, outputs[:1], None, ["fp32"]).problem is None
    found = compare_all(lenient, CASE, outputs, None, ["fp32"])
    assert found.problem == "scores differ by 0.020, allowed is 0.01"


def test_a_missing_or_an_added_line_fails() -> None:
    both = np.maximum(text_map(10), text_map(100, 40))
    assert lines(text_map(10), both).problem == "1 items where the reference has 2"
    assert lines(both, text_map(10)).problem == "2 items where the reference has 1"
    assert lines(both, both).problem is None


def test_a_line_may_move_by_a_pixel_and_no_further() -> None:
    assert lines(text_map(41), text_map(40)).problem is None
    assert lines(text_map(48), text_map(40)).problem == "nothing like 'line' (0.90) was found"


def test_lines_are_matched_whatever_their_order() -> None:
    wanted = (Item("a", 0.9), Item("b", 0.8), Item("a", 0.7))
    found = (Item("a", 0.7), Item("a", 0.9), Item("b", 0.8))
    assert golden._compare_items(wanted, found, 0.01) == (0.0, None)


def test_one_found_line_stands_for_one_wanted_line_only() -> None:
    wanted = (Item("a", 0.9), Item("a", 0.9))
    _, problem = golden._compare_items(wanted, (Item("a", 0.9), Item("b", 0.9)), 0.01)
    assert problem == "nothing like 'a' (0.90) was found"


def test_recognised_text_is_compared_character_by_character() -> None:
    image = np.zeros((48, 100, 3), np.uint8)
    wanted = np.zeros((1, 2, 4), np.float32)
    wanted[0, 0, 1] = wanted[0, 1, 2] = 0.9
    case = Golden((image,), {"fetch_name_0": wanted}, {}, (Item("ab", 0.9),), "an engine")
    lenient = replace(RECOGNITION, tolerances={"fp32": 10.0})
    assert compare(lenient, case, {"fetch_name_0": wanted}, "a\nb", ["fp32"]).problem is None
    swapped = wanted[:, ::-1].copy()
    assert compare(lenient, case, {"fetch_name_0": swapped}, "a\nb", ["fp32"]).problem is not None


def test_an_empty_layout_means_no_items() -> None:
    outputs = {contract.name: np.zeros(contract.shape, np.float32) for contract in LAYOUT.outputs}
    assert golden.interpret(LAYOUT, outputs, PAGE, None) == ()
