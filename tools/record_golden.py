"""Records the golden cases that the package ships: inputs drawn here, outputs from ONNX Runtime.

    python -m pip install onnxruntime pylopdf-fonts-zh-cn==0.1.1
    docvino fetch pp-ocr
    python tools/record_golden.py

Needed only when a model is added or a spec changes. It checks that ONNX Runtime finds what was drawn.
"""

from __future__ import annotations

from importlib.resources import files

import numpy as np
import onnxruntime
from PIL import Image, ImageDraw, ImageFont

from docvino import golden
from docvino.fetch import source_path
from docvino.settings import resolve
from docvino.specs import MODELS
from docvino.specs.model import ModelSpec, RecognitionFacts

MOST_VALUES = 32_768  # values kept of one output
SEED = 20261130


def font(size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(str(files("pylopdf_fonts_zh_cn") / "NotoSansSC-Regular.otf"), size)


def page(width: int, height: int, lines: list[tuple[int, int, int, str]]) -> np.ndarray:
    """Lines are (x, y, font size, text)."""
    image = Image.new("RGB", (width, height), (250, 249, 245))
    draw = ImageDraw.Draw(image)
    for x, y, size, text in lines:
        draw.text((x, y), text, font=font(size), fill=(30, 30, 40))
    return np.asarray(image)


BODY = [
    "文档解析分为版面分析和内容识别两个步骤。",
    "Layout comes first: where are the titles,",
    "the paragraphs, the tables and pictures?",
    "然后识别每个区域中的文字，并保留位置。",
    "Reading comes second, line after line.",
]
FULL_PAGE = page(
    608,
    800,
    [(140, 50, 34, "版面分析 Layout")] + [(60, 130 + 40 * row, 22, BODY[row % len(BODY)]) for row in range(12)],
)
IMAGES: dict[str, list[np.ndarray]] = {
    "pp-ocrv6-small-det": [
        page(
            256, 128, [(16, 12, 24, "版面分析 Layout"), (16, 56, 20, "line by line 1234"), (16, 92, 18, "第二步：识别")]
        )
    ],
    "pp-ocrv6-small-rec": [
        page(480, 48, [(8, 4, 32, "版面分析 Layout 2026-11-30")]),
        page(300, 48, [(8, 4, 32, "合计￥1,284.60元")]),
    ],
    "picodet-cdla": [FULL_PAGE],
    "pp-lcnet-orientation": [np.ascontiguousarray(np.rot90(FULL_PAGE))],
}
EXPECTED = {
    "pp-ocrv6-small-det": ["line"] * 3,
    "pp-ocrv6-small-rec": ["版面分析 Layout 2026-11-30", "合计￥1,284.60元"],
    "picodet-cdla": ["text", "title"],
    "pp-lcnet-orientation": ["270"],
}


def record(spec: ModelSpec) -> None:
    session = onnxruntime.InferenceSession(
        str(source_path(spec, resolve().runtime.data_dir)), providers=["CPUExecutionProvider"]
    )
    images = IMAGES[spec.name]
    names = [contract.name for contract in spec.outputs]
    outputs = dict(zip(names, session.run(names, golden.prepare(spec, images)), strict=True))
    metadata = session.get_modelmeta().custom_metadata_map
    characters = metadata[spec.facts.dictionary_key] if isinstance(spec.facts, RecognitionFacts) else None
    items = golden.interpret(spec, outputs, images[0], characters)
    found = sorted(item.text for item in items)
    if found != sorted(EXPECTED[spec.name]):
        raise SystemExit(f"{spec.name}: expected {EXPECTED[spec.name]}, ONNX Runtime gives {found}")
    kept, indices = {}, {}
    for name, tensor in outputs.items():
        flat = tensor.ravel()
        if flat.size > MOST_VALUES:
            # Half of them the largest values (what decides), half of them anywhere.
            largest = np.argsort(-np.abs(flat))[: MOST_VALUES // 8]
            others = np.random.default_rng(SEED).choice(flat.size, MOST_VALUES // 8, replace=False)
            indices[name] = np.unique(np.concatenate([largest, others]))
            flat = flat[indices[name]]
        kept[name] = flat
    path = files("docvino") / "goldens" / f"{spec.name}.npz"
    engine = f"onnxruntime {onnxruntime.__version__}"
    golden.save_golden(path, golden.Golden(tuple(images), kept, indices, items, engine))
    print(f"{spec.name}: {[(item.text, round(item.score, 3)) for item in items]}, {path.stat().st_size} bytes")


if __name__ == "__main__":
    for model in MODELS.values():
        record(model)
