"""Scores of a nano bundle on drawn crops that training never saw: other seeds, words kept for evaluation.

    docvino convert src/docvino/models/nano --precision fp32 --data-dir build/nano/data
    python recipes/nano/evaluate.py build/nano/data/bundles/nano-fp32 --assets build/nano/assets

Every crop goes docvino's own road: painted at its size on a page, resized, cut and read as any other crop.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rapidfuzz.distance import Levenshtein

from batches import draw, order
from crops import Drawing, Painter, paint
from docvino.bundle import VLM_PARTS, open_vlm_bundle
from docvino.codec.prompt import Tokenizer
from docvino.device import compile_part
from docvino.settings import RuntimeConfig
from docvino.stateful import StatefulReader
from texts import Texts, split_words

SEED = 20_261_130
GROUPS = ("line", "paragraph", "table", "formula", "seal", "spotting", "stamped")
PITCHES_PX = (22, 28, 34, 42, 56)
_TAG = re.compile(r"<(?:fcel|ecel|lcel|ucel|xcel|nl)>")
_PLACE = re.compile(r"<\|LOC_(\d+)\|>")


@dataclass
class Score:
    """wrong of `total` characters; `same`: crops read without a mistake; `form`: tables whose tags are all right."""

    crops: int = 0
    wrong: int = 0
    total: int = 0
    same: int = 0
    form: int = 0
    misses: list[tuple[str, str]] = field(default_factory=list)
    # Spotting: distance of corners in thousandths of the crop, of texts that were read right.
    off: list[int] = field(default_factory=list)

    def add(self, task: str, truth: str, said: str) -> None:
        if task == "spotting":
            self._add_places(truth, said)
            truth, said = _PLACE.sub("", truth), _PLACE.sub("", said)
        self.crops += 1
        self.wrong += Levenshtein.distance(said, truth)
        self.total += len(truth)
        self.same += said == truth
        self.form += _TAG.findall(said) == _TAG.findall(truth)
        if said != truth:
            self.misses.append((truth, said))

    def _add_places(self, truth: str, said: str) -> None:
        known, found = (dict(_pieces(text)) for text in (truth, said))
        for text in known.keys() & found.keys():
            self.off += [abs(a - b) for a, b in zip(known[text], found[text], strict=True)]

    def line(self) -> dict[str, object]:
        values: dict[str, object] = {
            "crops": self.crops,
            "cer": round(100 * self.wrong / max(1, self.total), 2),
            "exact": round(100 * self.same / max(1, self.crops), 1),
        }
        if self.off:
            values["corner_median"] = sorted(self.off)[len(self.off) // 2]
        if self.form != self.crops:
            values["structure"] = round(100 * self.form / max(1, self.crops), 1)
        return values


def _pieces(said: str) -> list[tuple[str, tuple[int, ...]]]:
    pieces = re.findall(r"([^<]*)((?:<\|LOC_\d+\|>){8})", said)
    return [(text, tuple(map(int, _PLACE.findall(places)))) for text, places in pieces]


def evaluation_crops(assets: Path, each: int, seed: int = SEED) -> list[tuple[str, Drawing, random.Random]]:
    """`each` crops of every group, drawn as at the end of training, with dice that paint them."""
    painter = Painter(assets, Texts(split_words(assets / "words.txt")[1]))
    dice = random.Random(seed)
    found: list[tuple[str, Drawing, random.Random]] = []
    left = dict.fromkeys(GROUPS, each)
    while any(left.values()):
        wanted = order(dice, 1.0)
        if left[wanted.group]:
            left[wanted.group] -= 1
            drawing = draw(painter, dice, wanted, wanted.height, wanted.width)
            found.append((wanted.group, drawing, random.Random(dice.getrandbits(32))))
    return found


def clean_lines(assets: Path, each: int, seed: int = SEED) -> list[tuple[str, Drawing, random.Random]]:
    """Undamaged text of one to six lines, `each` crops for every distance of lines, named after it."""
    painter = Painter(assets, Texts(split_words(assets / "words.txt")[1]), damage=0)
    dice = random.Random(seed)
    found: list[tuple[str, Drawing, random.Random]] = []
    for pitch in PITCHES_PX:
        for _ in range(each):
            lines, letters = dice.randint(1, 6), dice.choice((10, 20, 40, 60))
            drawing = painter.ocr(dice, pitch * lines, round(letters * pitch * 0.37), lines=lines)
            found.append((f"lines {pitch} px apart", drawing, random.Random(dice.getrandbits(32))))
    return found


def open_reader(bundle: Path) -> StatefulReader:
    opened = open_vlm_bundle(bundle)
    runtime = RuntimeConfig(model_cache=False)
    vision, embed, decoder = (compile_part(opened.part(part), part, runtime) for part in VLM_PARTS)
    return StatefulReader(vision, embed, decoder, Tokenizer.open(opened.tokenizer), opened.facts)


def evaluate(
    reader: StatefulReader, drawn: list[tuple[str, Drawing, random.Random]], report: Callable[[str], None] = print
) -> dict[str, Score]:
    scores = {name: Score() for name in dict.fromkeys(name for name, _, _ in drawn)}
    for name, drawing, dice in drawn:
        answer = reader.read(paint(drawing, dice), drawing.task, len(drawing.text) + 60)
        scores[name].add(drawing.task, drawing.text, answer.text)
    for name, score in scores.items():
        report(json.dumps({"group": name, **score.line()}))
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--assets", type=Path, required=True)
    parser.add_argument("--each", type=int, default=60, help="crops of each group")
    parser.add_argument(
        "--clean", action="store_true", help="undamaged text by the distance of its lines, nothing else"
    )
    parser.add_argument("--misses", type=int, default=0, help="show so many wrong answers of each group")
    arguments = parser.parse_args()
    begun = time.perf_counter()
    chosen = clean_lines if arguments.clean else evaluation_crops
    scores = evaluate(open_reader(arguments.bundle), chosen(arguments.assets, arguments.each))
    print(f"{time.perf_counter() - begun:.0f} s")
    for name, score in scores.items():
        for truth, said in score.misses[: arguments.misses]:
            print(name, repr(truth), repr(said), sep="\n    ")


if __name__ == "__main__":
    main()
