"""Small PaddleOCR-VL folders for tests: the recorded tiny one, the reading model, and tokenizers of characters."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from docvino.specs import vlm

DATA = Path(__file__).resolve().parent / "data"
TINY = DATA / "tiny-vlm"  # written by tests/data/make_tiny_vlm.py
TINY_CASE = DATA / "tiny-vlm.npz"
READING_MODEL = Path(__file__).resolve().parents[2] / "shared" / "experiments" / "reading_model"

STEERING = (vlm.END, vlm.IMAGE, vlm.IMAGE_START, vlm.IMAGE_END, vlm.BEGIN, "<unk>", "<s>", "<pad>")


def character_tokenizer(tokens: Sequence[str]) -> str:
    """A tokenizer.json in which every character of `tokens` is a token, and longer ones are found whole."""
    longer = [(number, token) for number, token in enumerate(tokens) if len(token) > 1]
    added = [
        {
            "id": number,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": token in STEERING,
        }
        for number, token in longer
    ]
    model = {"type": "BPE", "unk_token": "<unk>", "vocab": {t: i for i, t in enumerate(tokens)}, "merges": []}
    return json.dumps({"version": "1.0", "added_tokens": added, "decoder": {"type": "Fuse"}, "model": model})


def tiny_tokens() -> tuple[str, ...]:
    """168 tokens, in an order of their own."""
    steering = ("<unk>", "<s>", vlm.END, "<pad>", vlm.IMAGE, vlm.IMAGE_START, vlm.IMAGE_END, vlm.BEGIN)
    places = tuple(f"<|LOC_{place}|>" for place in range(0, 1001, 40))
    letters = tuple(map(chr, range(32, 127)))
    return (
        *steering,
        *vlm.TABLE_TAGS,
        *places,
        *vlm.LOCATION_MARKS,
        "\n",
        *letters,
        *"文档识别表格公式图章检测中英数字，。",
    )[:168]


def copy_of_tiny(folder: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(TINY, folder))


def reading_folder(folder: Path) -> Path:
    """The reading model as a folder from a hub: it comes with its vocabulary only."""
    folder.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        (folder / name).symlink_to(READING_MODEL / name)
    tokens = json.loads((READING_MODEL / "vocab.json").read_text(encoding="utf-8"))
    (folder / "tokenizer.json").write_text(character_tokenizer(tokens), encoding="utf-8")
    preprocessor = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "min_pixels": 12_544, "max_pixels": 50_176}
    (folder / "preprocessor_config.json").write_text(json.dumps(preprocessor), encoding="utf-8")
    return folder


def read_config(folder: Path, name: str = "config.json") -> dict[str, Any]:
    value: dict[str, Any] = json.loads((folder / name).read_text(encoding="utf-8"))
    return value


def write_config(folder: Path, value: dict[str, Any], name: str = "config.json") -> None:
    (folder / name).write_text(json.dumps(value), encoding="utf-8")


def write_safetensors(path: Path, tensors: dict[str, NDArray[Any]], bfloat16: bool = False) -> None:
    """float32 or float16 arrays as a file; with `bfloat16` the upper halves of float32."""
    header, blob = {}, b""
    for name, values in tensors.items():
        raw = (values.view(np.uint32) >> 16).astype(np.uint16) if bfloat16 else values
        kind = "BF16" if bfloat16 else {"float32": "F32", "float16": "F16"}[values.dtype.name]
        header[name] = {"dtype": kind, "shape": list(values.shape), "data_offsets": [len(blob), len(blob) + raw.nbytes]}
        blob += raw.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + blob)
