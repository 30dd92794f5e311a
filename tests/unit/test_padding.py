"""Facts of sizes that are rounded up: few sizes for a device, and the same answers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import openvino as ov
import pytest

from docvino.bundle import VlmBundle, bundle_folder
from docvino.codec import detection, recognition, vlm
from docvino.convert.vlm import convert_vlm
from docvino.device import Model, PaddedModel, compile_part
from docvino.device.padding import MASK, add_mask, padded
from docvino.errors import InferenceError
from docvino.settings import RuntimeConfig
from docvino.specs.nano import FOLDER
from docvino.specs.pp_ocr import RECOGNITION
from fake_core import FakeCore, a770

Machine = Callable[..., FakeCore]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> VlmBundle:
    return convert_vlm(FOLDER, bundle_folder(tmp_path_factory.mktemp("data"), "nano", "fp32"), "fp32").bundle


def vision(bundle: VlmBundle, device: str) -> Model:
    runtime = RuntimeConfig(device=device, execution="f32", model_cache=False)
    return compile_part(bundle.part("vision"), "vision", runtime, bundle.facts.largest_patches())


def picture(rows: int, columns: int, seed: int, bundle: VlmBundle) -> dict[str, np.ndarray]:
    side = bundle.facts.vision.patch_px
    pixels = np.random.default_rng(seed).integers(0, 256, (rows * side, columns * side, 3), np.uint8)
    return vlm.cut(pixels, bundle.facts).inputs()  # type: ignore[return-value]


def test_every_attention_has_the_mask(bundle: VlmBundle) -> None:
    model = ov.Core().read_model(bundle.part("vision"))
    assert add_mask(model) == bundle.facts.vision.layers
    readers = model.input(MASK).get_node().output(0).get_target_inputs()
    assert {reader.get_node().get_type_name() for reader in readers} == {"ScaledDotProductAttention"}
    assert len(readers) == bundle.facts.vision.layers


def test_image_tokens_are_those_of_the_plain_graph_whatever_is_added(machine: Machine, bundle: VlmBundle) -> None:
    machine(a770())
    plain, filled = vision(bundle, "CPU"), vision(bundle, "GPU")
    assert isinstance(filled, PaddedModel)
    assert not isinstance(plain, PaddedModel)
    for seed, (rows, columns) in enumerate(((2, 2), (4, 30), (16, 16), (18, 30))):
        inputs = picture(rows, columns, seed, bundle)
        wanted, found = plain.run(inputs)["image_embeds"], filled.run(inputs)["image_embeds"]
        assert found.shape == wanted.shape == (1, rows * columns // 4, bundle.facts.text.hidden_size)
        assert np.linalg.norm(found - wanted) < 1e-4 * np.linalg.norm(wanted)


def test_many_sizes_become_few(machine: Machine, bundle: VlmBundle) -> None:
    machine(a770())
    model = vision(bundle, "GPU")
    assert isinstance(model, PaddedModel)
    seen = set()
    run = Model.run

    def counted(self: Model, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        seen.add(inputs["pixel_values"].shape[1])
        return run(self, inputs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Model, "run", counted)
        for columns in range(2, 60, 2):
            model.run(picture(14, columns, columns, bundle))
    assert seen == {256, 512, 768, 1024}


def test_warming_runs_every_size_there_may_be(machine: Machine, bundle: VlmBundle) -> None:
    machine(a770())
    model = vision(bundle, "GPU")
    assert isinstance(model, PaddedModel)
    assert model.warm(600) == 3


def test_numbers_that_are_not_finite_are_seen_beside_what_was_added(machine: Machine, bundle: VlmBundle) -> None:
    machine(a770())
    inputs = picture(4, 4, 0, bundle)
    inputs["pixel_values"][0, 3] = np.inf
    with pytest.raises(InferenceError, match="not finite"):
        vision(bundle, "GPU").run(inputs)


@pytest.mark.parametrize(("count", "step", "total"), [(1, 256, 256), (256, 256, 256), (257, 256, 512), (5, 1, 5)])
def test_rounding_up(count: int, step: int, total: int) -> None:
    assert padded(count, step) == total


def test_lines_are_padded_with_grey_to_a_multiple_of_the_step() -> None:
    lines = [np.full((48, width, 3), 200, np.uint8) for width in (330, 500)]
    plain = recognition.prepare(lines, RECOGNITION.facts)
    stepped = recognition.prepare(lines, RECOGNITION.facts, 160)
    assert (plain.shape[3], stepped.shape[3]) == (500, 640)
    assert np.array_equal(stepped[..., :500], plain)
    assert not stepped[..., 500:].any()


def test_a_page_is_padded_with_its_own_edge() -> None:
    page = np.random.default_rng(0).random((1, 3, 64, 96)).astype(np.float32)
    wider = detection.pad(page, 80)
    assert wider.shape == (1, 3, 80, 160)
    assert np.array_equal(wider[..., :64, :96], page)
    assert np.array_equal(wider[0, :, 70, 120], page[0, :, 63, 95])
    assert detection.pad(page, 32) is page
