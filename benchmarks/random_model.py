"""Writes a PaddleOCR-VL folder of the published size with random weights: for speed and memory, not for reading.

    python benchmarks/random_model.py FOLDER

Needs the extra `reference` (PyTorch, transformers). 1.8 GB, about half a minute. Sizes, names and special tokens are
those of the published models; ordinary tokens are single characters and place holders.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from docvino.reference import make_random
from docvino.specs import vlm

# The one fact of the published config.json that the defaults of transformers lack.
ROTATION = {"rope_type": "default", "rope_theta": 500_000.0, "mrope_section": [16, 24, 24]}


def published_tokenizer() -> str:
    """A tokenizer.json with as many tokens as the published one and its special tokens at their ids."""
    by_id = {number: token for token, number in vlm.PUBLISHED_TOKENS.items()}
    letters = iter(map(chr, [10, *range(32, 127)]))
    tokens = []
    for number in range(vlm.PUBLISHED_VOCABULARY):
        tokens.append(by_id.get(number) or next(letters, f"<token {number}>"))
    added = [
        {
            "id": number,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": token not in vlm.KEPT_TOKENS,
        }
        for number, token in sorted(by_id.items())
    ]
    model = {
        "type": "BPE",
        "unk_token": "<unk>",
        "vocab": {token: number for number, token in enumerate(tokens)},
        "merges": [],
    }
    return json.dumps({"version": "1.0", "added_tokens": added, "decoder": {"type": "Fuse"}, "model": model})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    make_random(folder, published_tokenizer(), text={"rope_parameters": ROTATION}, vision={})
    print(f"{sum(path.stat().st_size for path in folder.iterdir()) / 1e6:.0f} MB in {folder}")


if __name__ == "__main__":
    main()
