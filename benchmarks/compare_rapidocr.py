"""docvino beside RapidOCR on the same pages, in one run: character error rate and seconds a page.

    python -m pip install rapidocr==3.10.0 onnxruntime
    docvino fetch pp-ocr && docvino convert pp-ocr
    python benchmarks/compare_rapidocr.py [--rounds 5] [--execution f32,bf16] [--folder FOLDER_WITH_ground_truth.json]

Both use the same weights (PP-OCRv6 small). RapidOCR's onnxruntime engine computes in f32; its OpenVINO engine leaves
the arithmetic to OpenVINO, which takes bf16 where a processor has it, so that it is read once as it comes and once in
f32. Each round reads every page once with every
engine, engines taking turns page by page, so that a busy machine is busy for all. RapidOCR's lines are put in order
by position (top, then left), as it has no reading order of its own; it is run as it comes (angle classifier on) and
with `use_cls` off.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import draw
from docvino.device import openvino_version
from docvino.inputs import open_document
from docvino.parser import Parser
from docvino.settings import ParseOptions, resolve
from score import cer, whole_text

Page = tuple[str, bytes, str]


def drawn_pages() -> list[Page]:
    chinese, chinese_truth = draw.chinese_page()
    english, english_truth = draw.english_two_columns()
    mixed, mixed_truth = draw.mixed_page()
    pages = [
        ("chinese", draw.png(chinese), chinese_truth.text),
        ("english, two columns", draw.png(english), english_truth.text),
        ("mixed scripts", draw.png(mixed), mixed_truth.text),
        ("skewed scan", draw.jpeg(draw.skewed(chinese)), chinese_truth.text),
        ("half size", draw.png(draw.low_resolution(chinese)), chinese_truth.text),
        ("inverted", draw.png(draw.inverted(chinese)), chinese_truth.text),
    ]
    turned = [(f"turned by {a}", draw.jpeg(draw.turned(chinese, a)), chinese_truth.text) for a in (90, 180, 270)]
    return pages + turned


def folder_pages(folder: Path) -> list[Page]:
    """Pages of a folder whose ground_truth.json lists blocks of lines."""
    truth = json.loads((folder / "ground_truth.json").read_text(encoding="utf-8"))
    pages = []
    for name, entry in truth.items():
        source = truth.get(entry.get("same_text_as", ""), entry)
        text = "".join(line["text"] for block in source.get("blocks", []) for line in block["lines"])
        if text and name.lower().endswith((".png", ".jpg", ".tif")):
            pages.append((name, (folder / name).read_bytes(), text))
    return pages


def docvino(execution: str) -> Callable[[str, bytes], str]:
    parser = Parser.open(resolve({"execution": execution}, environ=os.environ).runtime)
    return lambda name, data: whole_text(parser.parse(data, ParseOptions(pages="1"), name=name))


def rapidocr(engine: str, use_cls: bool) -> Callable[[NDArray[np.uint8]], str]:
    """
    engine   onnxruntime, openvino, or "openvino, f32"
    """
    from rapidocr import EngineType, RapidOCR

    kind = EngineType.ONNXRUNTIME if engine == "onnxruntime" else EngineType.OPENVINO
    stages = ("Det", "Cls", "Rec")
    reader = RapidOCR(params={f"{stage}.engine_type": kind for stage in stages} | {"Global.use_cls": use_cls})

    def read(pixels: NDArray[np.uint8]) -> str:
        with (
            in_f32() if engine.endswith("f32") else nullcontext()
        ):  # models are loaded by the first call that needs them
            found = reader(pixels[..., ::-1])
        if found.boxes is None:
            return ""
        lines = sorted(zip(found.boxes, found.txts, strict=True), key=lambda pair: _row(pair[0]))
        return "\n".join(text for _, text in lines)

    return read


@contextmanager
def in_f32() -> Iterator[None]:
    """RapidOCR has no setting for the arithmetic of its OpenVINO engine: it is added to those that it sets."""
    from rapidocr.inference_engine.openvino.main import CPUConfig

    as_it_is = CPUConfig.get_config
    CPUConfig.get_config = lambda self: as_it_is(self) | {"INFERENCE_PRECISION_HINT": "f32"}
    try:
        yield
    finally:
        CPUConfig.get_config = as_it_is


def _row(box: NDArray[np.float32]) -> tuple[int, float]:
    return round(float(box[:, 1].mean()) / 12), float(box[:, 0].min())


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--execution", default="f32", help="arithmetic of docvino, by comma: f32, bf16")
    arguments.add_argument("--folder", type=Path)
    options = arguments.parse_args()
    logging.disable(logging.INFO)
    pages = folder_pages(options.folder) if options.folder else drawn_pages()
    decoded = {}
    for name, data, _ in pages:
        with open_document(data, name, ParseOptions()) as document:
            decoded[name] = np.ascontiguousarray(document.page(0).pixels)
    engines: dict[str, Callable[[str, bytes], str]] = {
        f"docvino (OpenVINO, {execution})": docvino(execution) for execution in options.execution.split(",")
    }
    first = next(iter(engines))
    for engine in ("onnxruntime", "openvino", "openvino, f32"):
        for use_cls in (True, False):
            reader = rapidocr(engine, use_cls)
            title = f"rapidocr ({engine}{'' if use_cls else ', use_cls off'})"
            engines[title] = lambda name, _, reader=reader: reader(decoded[name])
    times: dict[str, list[float]] = {title: [] for title in engines}
    errors: dict[str, dict[str, float]] = {title: {} for title in engines}
    for number in range(options.rounds + 1):  # the first round warms up
        spent = dict.fromkeys(engines, 0.0)
        for name, data, truth in pages:
            for title, read in engines.items():
                started = time.perf_counter()
                text = read(name, data)
                spent[title] += time.perf_counter() - started
                errors[title][name] = cer(truth, text)
        if number:
            for title, seconds in spent.items():
                times[title].append(seconds / len(pages))

    print(
        f"{len(pages)} pages, {options.rounds} rounds; {os.cpu_count()} cores, {platform.machine()}, Python "
        f"{platform.python_version()}, OpenVINO {openvino_version()}, rapidocr {_version('rapidocr')}, onnxruntime "
        f"{_version('onnxruntime')}"
    )
    print(f"\n| {'engine':38} | mean CER | median s a page | min | ratio |\n|---|---|---|---|---|")
    base = statistics.median(times[first])
    for title, values in times.items():
        mean = 100 * statistics.mean(errors[title].values())
        median = statistics.median(values)
        print(f"| {title:38} | {mean:6.2f} % | {median:.2f} | {min(values):.2f} | {median / base:.2f} |")
    print(f"\n| page | {' | '.join(engines)} |\n|---|{'---|' * len(engines)}")
    for name, _, _ in pages:
        print(f"| {name} | {' | '.join(f'{100 * errors[title][name]:.2f} %' for title in engines)} |")


def _version(name: str) -> str:
    from importlib.metadata import version

    return version(name)


if __name__ == "__main__":
    main()
