"""Writes a PaddleOCR-VL folder of the published size with random weights: for speed and memory, not for reading.

    python benchmarks/random_model.py FOLDER

Needs the extra `reference` (PyTorch, transformers). 1.8 GB, about half a minute. Sizes, names and special tokens are
those of the published models; ordinary tokens are single characters and place holders.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from docvino.bench.random_weights import published_tokenizer
from docvino.reference import make_random

# The one fact of the published config.json that the defaults of transformers lack.
ROTATION = {"rope_type": "default", "rope_theta": 500_000.0, "mrope_section": [16, 24, 24]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    make_random(folder, published_tokenizer(), text={"rope_parameters": ROTATION}, vision={})
    print(f"{sum(path.stat().st_size for path in folder.iterdir()) / 1e6:.0f} MB in {folder}")


if __name__ == "__main__":
    main()
