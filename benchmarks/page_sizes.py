"""Memory of `pp-ocr` over pages of many sizes, and what rounding sizes up does to it, to the time and to the texts.

    python benchmarks/page_sizes.py --data-dir DIR [--pages 60] [--steps 1,1 160,160 ...]

DIR holds the converted models of `pp-ocr`. Each pair of steps (of pages, of lines, in px; see `profiles.ShapeSteps`) is
run in a process of its own over the same drawn pages. Prints resident memory along the way, time, the number of sizes
that each network saw, and how many characters differ from those read with the first pair.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

LETTERS = "the reading room archive number paper every box enters clerk writes both lamp minutes warm colours 2019 300"


def resident_mib() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise SystemExit("this system does not say how much memory a process has")


def page(seed: int) -> object:
    """A page of random size with lines of random length, uint8 (H, W, 3)."""
    import numpy as np
    from PIL import Image, ImageDraw, ImageFont

    dice = random.Random(seed)
    width, height = dice.randint(500, 1700), dice.randint(400, 1900)
    picture = Image.new("RGB", (width, height), (252, 251, 247))
    pen, size = ImageDraw.Draw(picture), dice.randint(20, 34)
    font, words = ImageFont.load_default(size), LETTERS.split()
    for top in range(40, height - 3 * size, round(2.2 * size)):
        line = " ".join(dice.choice(words) for _ in range(dice.randint(1, 14)))
        while font.getlength(line) > width - 80 and " " in line:
            line = line.rsplit(" ", 1)[0]
        pen.text((40, top), line, font=font, fill=(25, 25, 35))
    return np.asarray(picture)


def child(data: Path, steps: tuple[int, int], pages: int) -> None:
    import numpy as np

    from docvino.device import Model, ShapeSteps, devices, profiles
    from docvino.document import PageImage
    from docvino.parser import Parser
    from docvino.runtime.stages import Clock
    from docvino.settings import ParseOptions, RuntimeConfig

    chosen = profiles.cpu_profile

    def with_steps(*facts: object) -> profiles.Profile:
        return dataclasses.replace(chosen(*facts), steps=ShapeSteps(page_px=steps[0], line_px=steps[1]))

    devices.cpu_profile = with_steps
    shapes: dict[str, set[tuple[int, ...]]] = {}
    run, start = Model.run, Model._start

    def seen(model: Model, inputs: dict[str, np.ndarray]) -> None:
        shapes.setdefault(model.name, set()).update(values.shape for values in inputs.values())

    Model.run = lambda self, inputs: (seen(self, inputs), run(self, inputs))[1]
    Model._start = lambda self, request, batch: (seen(self, batch), start(self, request, batch))[1]
    after, texts, spent = {}, [], 0.0
    with Parser.open(RuntimeConfig(device="CPU", data_dir=data, model_cache=False, self_test=False)) as parser:
        for number in range(pages):
            image = PageImage(0, page(number))
            began = time.process_time()
            reading = parser._read(image, ParseOptions(), Clock())
            spent += time.process_time() - began
            texts.append("\n".join(answer.text for answer in reading.answers))
            if (number + 1) % 10 == 0:
                after[number + 1] = round(resident_mib())
    sizes = {name: len(found) for name, found in shapes.items() if len(found) > 1}
    print(json.dumps({"MiB": after, "processor s a page": spent / pages, "sizes": sizes, "texts": texts}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--pages", type=int, default=60)
    parser.add_argument("--steps", nargs="+", default=["1,1", "160,1", "1,160", "160,160"])
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    pairs = [tuple(int(part) for part in text.split(",")) for text in args.steps]
    if args.child:
        child(args.data_dir, pairs[0], args.pages)
        return
    from rapidfuzz.distance import Levenshtein

    first: list[str] = []
    for text in args.steps:
        command = [sys.executable, __file__, "--child", "--data-dir", str(args.data_dir), "--pages", str(args.pages)]
        done = subprocess.run([*command, "--steps", text], stdout=subprocess.PIPE, check=True, env=os.environ)
        found = json.loads(done.stdout)
        texts = found.pop("texts")
        first = first or texts
        found["other characters"] = sum(Levenshtein.distance(a, b) for a, b in zip(first, texts, strict=True))
        found["of"] = sum(map(len, first))
        print(text, json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
