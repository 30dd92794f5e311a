"""How long a vision-language model takes to start, with and without what is kept between runs.

    python benchmarks/start_times.py BUNDLE [--rounds 5] [--device CPU]

BUNDLE is a converted model (`docvino convert`). Each start is a process of its own, and the ways to start take turns:

    no cache    nothing kept, nothing tested: models are compiled
    first       with an empty cache: models are compiled, kept, and tested against their recorded answers
    second      from what the first start has kept
    no test     from the cache, with the self-test switched off

Prints medians: seconds until the reader is there, of the wall and of all processors; then seconds of its first crop,
and of the same crop again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

WAYS = ("no cache", "first", "second", "no test")
CROP_PX = (336, 336)  # 576 patches, the least that PaddleOCR-VL makes of a crop
NEW_TOKENS = 16


def start(bundle: Path, way: str, device: str, cache: Path) -> None:
    """In the child: one start and two crops, as one line of JSON."""
    import time

    began = time.perf_counter()
    import numpy as np

    from docvino.bundle import open_vlm_bundle
    from docvino.document import Crop
    from docvino.runtime.stages import Clock
    from docvino.runtime.vlm import VlmReader
    from docvino.settings import ParseOptions, RuntimeConfig

    imported = time.perf_counter()
    opened = open_vlm_bundle(bundle)
    runtime = RuntimeConfig(
        device=device,
        precision=opened.manifest.precision,
        cache_dir=cache,
        model_cache=way != "no cache",
        self_test=way in ("first", "second"),
    )
    reader, parts = VlmReader.open(opened, runtime)
    found = {
        "import": imported - began,
        "open": time.perf_counter() - imported,
        "processors": time.process_time(),
        "from cache": sum(part.compiled.from_cache for part in parts),
    }
    squares = np.random.default_rng(0).integers(0, 256, (CROP_PX[0] // 7, CROP_PX[1] // 7, 3), np.uint8)
    crop = Crop(np.repeat(np.repeat(squares, 7, 0), 7, 1), "ocr", ())
    options = ParseOptions(max_new_tokens=NEW_TOKENS, loop_guard=False)
    for name in ("first crop", "second crop"):
        began = time.perf_counter()
        (answer,) = reader.read([crop], options, Clock())
        assert answer.problem is None, answer.problem
        found[name] = time.perf_counter() - began
    print(json.dumps(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="CPU")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--cache", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.way:
        start(args.bundle, args.way, args.device, args.cache)
        return
    runs: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache"
        for number in range(args.rounds):
            shutil.rmtree(cache, ignore_errors=True)
            for way in WAYS:
                command = [sys.executable, __file__, str(args.bundle), "--device", args.device]
                done = subprocess.run(
                    [*command, "--way", way, "--cache", str(cache)], stdout=subprocess.PIPE, check=True, env=os.environ
                )
                runs[way].append(json.loads(done.stdout))
                print(f"{number + 1} {way}: {done.stdout.decode().strip()}", file=sys.stderr, flush=True)
        size = sum(path.stat().st_size for path in cache.rglob("*") if path.is_file())
    columns = ("open", "processors", "first crop", "second crop", "from cache")
    print(f"| start | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 1)}")
    for way in WAYS:
        cells = [f"{statistics.median(run[column] for run in runs[way]):.2f}" for column in columns]
        print(f"| {way} | {' | '.join(cells)} |")
    print(f"\ncache: {size / 1e6:.0f} MB; medians of {args.rounds}, taking turns")


if __name__ == "__main__":
    main()
