"""Facts of what lies beside a graph: inference.yml, dictionaries, tokenizers."""

from __future__ import annotations

from pathlib import Path

import pytest

from docvino.bundle import Tensor
from docvino.convert import beside, yml
from docvino.specs.model import ImageNetMean

READER = """# written by PaddleX
Global:
  model_name: a_reader
Hpi:
  backend_configs:
    paddle_infer:
      trt_dynamic_shapes: &id001
        x:
        - - 1
          - 3
        - - 8
          - 48
    tensorrt:
      dynamic_shapes: *id001
PreProcess:
  transform_ops:
  - DecodeImage:
      channel_first: false
      img_mode: BGR
  - MultiLabelEncode:
      gtc_encode: NRTRLabelEncode
  - RecResizeImg:
      image_shape:
      - 3
      - 48
      - 320
  - KeepKeys:
PostProcess:
  name: CTCLabelDecode
  character_dict:
  - '!'
  - ''''
  - "\\u3000"
  - '"'
  - 版
  - ':'
  - '#'
  - '-'
  - a-b
"""
DETECTOR = """PreProcess:
  transform_ops:
  - DecodeImage: {img_mode: BGR, channel_first: false}
  - NormalizeImage:
      mean: [0.1, 0.2, 0.3]
      std: [0.4, 0.5, 0.6]
      scale: 1./255.   # of one
      order: hwc
"""
LAYOUT = """Preprocess:
- type: Resize
  target_size:
  - 800
  - 608
- type: NormalizeImage
  mean:
  - 0.0
  - 0.0
  - 0.0
  std:
  - 1.0
  - 1.0
  - 1.0
"""
CHARACTERS = ("!", "'", "\u3000", '"', "版", ":", "#", "-", "a-b")


def ports(shape: str) -> tuple[Tensor, ...]:
    return (Tensor(name="x", dtype="f32", shape=shape),)


def warned(folder: Path, outputs: str = "[1,8]", inputs: str = "[1,3,48,320]", *, paddle: bool = True) -> list[str]:
    found = beside.look(folder)
    return beside.warnings(folder, found, ports(inputs), ports(outputs), paddle=paddle)


def test_a_reader_says_its_height_its_arithmetic_and_its_characters(tmp_path: Path) -> None:
    (tmp_path / "inference.yml").write_text(READER, encoding="utf-8")
    found = beside.look(tmp_path)
    assert found.dictionary == CHARACTERS
    assert (found.size, found.bgr, found.mean, found.decoder) == ((48, 0), True, (0.5, 0.5, 0.5), "CTCLabelDecode")


def test_a_detector_says_its_mean_and_order(tmp_path: Path) -> None:
    (tmp_path / "inference.yml").write_text(DETECTOR, encoding="utf-8")
    found = beside.look(tmp_path)
    assert (found.mean, found.std, found.bgr, found.size) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6), True, None)


def test_steps_that_are_named_by_type_are_understood(tmp_path: Path) -> None:
    (tmp_path / "infer_cfg.yml").write_text(LAYOUT, encoding="utf-8")
    found = beside.look(tmp_path)
    assert (found.mean, found.std, found.size) == ((0, 0, 0), (1, 1, 1), (800, 608))


def test_with_nothing_beside_it_a_model_gets_the_values_of_imagenet_and_a_warning(tmp_path: Path) -> None:
    assert beside.look(tmp_path).mean == ImageNetMean
    assert warned(tmp_path) == [
        "there is no inference.yml beside it: nothing says how its input is resized and normalised"
    ]
    assert warned(tmp_path, paddle=False) == []


def test_a_config_that_cannot_be_read_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "inference.yml").write_text("PreProcess:\n  ? [complex\n", encoding="utf-8")
    assert warned(tmp_path) == ["inference.yml cannot be read: not understood: ? [complex"]
    (tmp_path / "inference.yml").write_text("- a\n", encoding="utf-8")
    assert warned(tmp_path) == ["inference.yml cannot be read: it is no mapping"]


@pytest.mark.parametrize(("classes", "fits"), [(9, True), (10, True), (11, True), (8, False), (12, False)])
def test_classes_are_the_dictionary_with_blank_and_space(tmp_path: Path, classes: int, fits: bool) -> None:
    (tmp_path / "inference.yml").write_text(READER, encoding="utf-8")
    said = warned(tmp_path, f"[?,40,{classes}]")
    assert said == (
        []
        if fits
        else [
            "the dictionary (inference.yml) has 9 entries, which with blank and space makes 10 or 11 classes; "
            f"the output has {classes}"
        ]
    )


def test_a_dictionary_may_lie_beside_as_text_or_in_the_graph(tmp_path: Path) -> None:
    (tmp_path / "LICENSE.txt").write_text("no dictionary", encoding="utf-8")
    assert beside.look(tmp_path).dictionary is None
    (tmp_path / "ppocr_keys_v1.txt").write_bytes("a\r\n版\r\n \r\n".encode())
    found = beside.look(tmp_path)
    assert (found.dictionary, found.dictionary_from) == (("a", "版", " "), "ppocr_keys_v1.txt")
    assert beside.look(tmp_path, "x\ny").dictionary == ("x", "y")
    assert "ppocr_keys_v1.txt) has 3 entries" in warned(tmp_path, "[1,9]", paddle=False)[0]


def test_a_dynamic_shape_is_a_warning_with_the_option_that_fixes_it(tmp_path: Path) -> None:
    (said,) = warned(tmp_path, inputs="[?,3,48,?]", paddle=False)
    assert said.endswith("docvino convert --input-shape x=1,3,48,N")


def test_a_decoder_without_its_dictionary_or_tokenizer_is_a_warning(tmp_path: Path) -> None:
    config = tmp_path / "inference.yml"
    config.write_text("PostProcess:\n  name: CTCLabelDecode\n", encoding="utf-8")
    assert warned(tmp_path) == ["inference.yml names CTCLabelDecode, and there is no dictionary in it or beside it"]
    config.write_text("PostProcess:\n  name: UniMERNetDecode\n", encoding="utf-8")
    assert warned(tmp_path) == ["inference.yml names UniMERNetDecode, and there is no tokenizer.json beside it"]
    (tmp_path / "tokenizer_config.json").write_bytes(b"{}")
    assert len(warned(tmp_path)) == 2
    (tmp_path / "tokenizer.json").write_bytes(b"{}")
    assert warned(tmp_path) == []


def test_every_scalar_is_text_and_comments_are_none() -> None:
    text = "a: 1 # one\n'b c': ~\nd: [x, 'y, z', [1, 2]]\ne: {f: 1}\n"
    text += 'g:\n  - - 1\n    - 2\n  -\n    h: "\\x41\\U0001F600"\n'
    assert yml.parse(text) == {
        "a": "1",
        "b c": None,
        "d": ["x", "y, z", ["1", "2"]],
        "e": {"f": "1"},
        "g": [["1", "2"], {"h": "A😀"}],
    }
    assert yml.parse("\n# nothing\n") is None


@pytest.mark.parametrize("text", ["a: |\n  block\n", "a: 'open\n", "a:\n    b: 1\n  c: 2\n", "just words\n"])
def test_what_is_not_understood_is_said(text: str) -> None:
    with pytest.raises(ValueError, match="not understood"):
        yml.parse(text)
