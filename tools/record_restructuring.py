"""Records what PaddleX makes of random pages when it restructures them, for tests/unit/test_restructure_recorded.py.

    python -m pip install paddlex==3.7.2 beautifulsoup4 scikit-learn opencv-contrib-python
    python tools/record_restructuring.py

In an environment of its own: nothing of docvino is imported, PaddleX's own functions do all the work. Sizes of headings
are grouped by scikit-learn's k-means, here with 50 starts in place of PaddleX's one, so that its best grouping is
recorded and not one by chance. Needed only when a newer PaddleX is to be followed.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import sklearn.cluster
from paddlex.inference.pipelines.layout_parsing.merge_table import merge_tables_across_pages
from paddlex.inference.pipelines.layout_parsing.title_level import assign_levels_to_parsing_res

TARGET = Path(__file__).resolve().parents[1] / "tests" / "data" / "restructuring.json"
CASES = 120
SIZES = ((19, 26, 35, 47), (30, 31), (23, 25, 28, 37, 61), (28,))  # no two groupings of which are equally good
NUMBERS = (
    *("{n} ", "{n}. ", "{n}.{m} ", "{n}.{m}.{k} ", "({n}) ", "{n}) ", "（{n}）", "{n}、", "{n}."),
    *("一、", "二、", "十二、", "（三）", "第四章 ", "第五节", "I. ", "IV) ", "X．", "A. ", "b) ", "C．"),
)
NAMES = (
    "Heading",
    "Overview of it",
    "概述",
    "方法",
    "Introduction",
    "REFERENCES",
    "Related work:",
    "参考文献",
    "结论：",
)
AROUND = ("header", "header_image", "footer", "footer_image", "number", "footnote", "vision_footnote", "seal", "text")
AROUND += ("figure_title", "image", "paragraph_title", "aside_text")


def titles(dice: np.random.Generator) -> list[dict[str, Any]]:
    """Headings of one document with boxes; most of a document's are numbered in the same few ways."""
    ways = [str(way) for way in dice.choice(NUMBERS, int(dice.integers(1, 5)), replace=False)]
    sizes = SIZES[int(dice.integers(len(SIZES)))]
    made = []
    for _ in range(int(dice.integers(1, 14))):
        n, m, k = (int(number) for number in dice.integers(1, 20, 3))
        number = str(dice.choice(ways)).format(n=n, m=m, k=k) if dice.random() < 0.7 else ""
        lines = int(dice.choice([1, 1, 1, 2]))
        text = number + str(dice.choice(NAMES)) + "\nand more" * (lines - 1)
        height = int(dice.choice(sizes)) * lines
        width = int(dice.choice([height // 3 + 1, 5 * height, 9 * height]))
        made.append({"content": text, "box": [100, 200, 100 + width, 200 + height]})
    return made


def html(rows: list[list[tuple[str, int, int]]]) -> str:
    """Rows of (text, rowspan, colspan) as PaddleOCR-VL writes them."""
    cells = [
        [
            "<td" + f' rowspan="{high}"' * (high > 1) + f' colspan="{wide}"' * (wide > 1) + f">{text}</td>"
            for text, high, wide in row
        ]
        for row in rows
    ]
    return "<table>" + "".join(f"<tr>{''.join(row)}</tr>" for row in cells) + "</table>"


def head(dice: np.random.Generator, columns: int) -> list[list[tuple[str, int, int]]]:
    name = f"h{dice.integers(9)}"
    if columns > 2 and dice.random() < 0.4:
        first = [(name, 2, 1), ("Ａll of　it", 1, columns - 1)]
        return [first, [(f"{name}{column}", 1, 1) for column in range(1, columns)]]
    return [[(f"{name} {column}", 1, 1) for column in range(columns)]]


def body(dice: np.random.Generator, columns: int) -> list[list[tuple[str, int, int]]]:
    rows = []
    for _ in range(int(dice.integers(1, 4))):
        wide = int(dice.integers(1, columns)) if columns > 1 and dice.random() < 0.3 else 1
        texts = [(f"d{dice.integers(10_000)} &amp; x", 1, wide)]
        rows.append(texts + [(f"d{dice.integers(10_000)}", 1, 1) for _ in range(columns - wide)])
    return rows


def plain(dice: np.random.Generator, labels: tuple[str, ...]) -> dict[str, Any]:
    return {"label": str(dice.choice(labels)), "box": [50, 50, 500, 80], "content": f"words {dice.integers(1000)}"}


def pages(dice: np.random.Generator) -> list[list[dict[str, Any]]]:
    """Pages with tables that may go on from each other."""
    columns = int(dice.integers(1, 5))
    top, repeats = head(dice, columns), dice.random() < 0.6
    made = []
    for _ in range(int(dice.integers(2, 5))):
        blocks = [plain(dice, AROUND[:9]) for _ in range(int(dice.integers(0, 3)))]
        if dice.random() < 0.95:
            if dice.random() < 0.25:
                columns = int(dice.integers(1, 5))
            rows = top if repeats else head(dice, columns) if dice.random() < 0.4 else []
            right = 600 + int(dice.choice([0, 0, 3, -30, 60, 90]))
            content = html([*rows, *body(dice, columns)])
            blocks.append({"label": "table", "box": [100, 100, right, 400], "content": content})
        blocks += [plain(dice, AROUND if dice.random() < 0.3 else AROUND[2:8]) for _ in range(int(dice.integers(0, 3)))]
        made.append(blocks)
    return made


def main() -> None:
    sklearn.cluster.KMeans = functools.partial(many_starts, sklearn.cluster.KMeans)
    dice = np.random.default_rng(20261130)
    recorded: dict[str, list[Any]] = {"titles": [], "tables": []}
    for _ in range(CASES):
        found = titles(dice)
        blocks = [SimpleNamespace(label="paragraph_title", bbox=one["box"], content=one["content"]) for one in found]
        assign_levels_to_parsing_res([blocks])
        recorded["titles"].append([{**t, "level": b.title_level} for t, b in zip(found, blocks, strict=True)])
        drawn = pages(dice)
        numbers = iter(range(100))
        objects = []
        for page in drawn:
            row = []
            for one in page:
                number = next(numbers)
                ids = {"global_block_id": number, "global_group_id": number}
                row.append(SimpleNamespace(label=one["label"], bbox=one["box"], content=one["content"], **ids))
            objects.append(row)
        merge_tables_across_pages(objects)
        wanted = [[{"content": b.content, "group": b.global_group_id} for b in page] for page in objects]
        recorded["tables"].append({"pages": drawn, "wanted": wanted})
    TARGET.write_text(json.dumps(recorded, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
    merged = sum(one["content"] == "" for case in recorded["tables"] for page in case["wanted"] for one in page)
    print(f"{TARGET}: {CASES} documents each, {merged} tables that go on")


def many_starts(kind: Any, **options: Any) -> Any:
    return kind(**{**options, "n_init": 50})


if __name__ == "__main__":
    main()
