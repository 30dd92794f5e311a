"""Draws labelled lines in one typeface: what `docvino finetune` needs to teach nano a typeface that it reads badly.

    python recipes/nano/finetune_demo.py FONT.ttf build/nano/demo --assets build/nano/assets
    docvino finetune src/docvino/models/nano build/nano/demo/train.jsonl --validation build/nano/demo/validation.jsonl \
        -o build/nano/tuned --epochs 10 --batch 4 --learning-rate 4e-4 --device cpu

50 lines to train on, 40 to validate with, of other words; RGB PNG files and JSON lines.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

from PIL import Image

from crops import Painter, paint
from texts import Texts, split_words

SHARES = (("train", 50), ("validation", 40))


def draw_lines(font: Path, out: Path, assets: Path, seed: int = 7) -> None:
    """Lines of 12 to 34 characters, 28 to 52 px high."""
    out.mkdir(parents=True, exist_ok=True)
    for (name, count), words in zip(SHARES, split_words(assets / "words.txt"), strict=True):
        painter = Painter(assets, Texts(words), damage=0.2, extra={"en": (font,), "zh": (font,)})
        dice = random.Random(f"{seed} {name}")
        with (out / f"{name}.jsonl").open("w", encoding="utf-8") as lines:
            for number in range(count):
                height = dice.randint(28, 52)
                drawing = painter.ocr(dice, height, round(height * dice.uniform(5, 12)), limit=34, scripts=("en",))
                image = f"{name}-{number:02d}.png"
                Image.fromarray(paint(drawing, dice)).save(out / image)
                lines.write(
                    json.dumps({"image": image, "task": "ocr", "text": drawing.text}, ensure_ascii=False) + "\n"
                )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("font", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--assets", type=Path, required=True)
    arguments = parser.parse_args()
    draw_lines(arguments.font, arguments.out, arguments.assets)
