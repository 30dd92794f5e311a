"""Memory of a PaddleOCR-VL reader over many crops of many sizes.

    python benchmarks/vlm_soak.py BUNDLE [--crops 1000] [--new-tokens 24] [--patch-step 256]

BUNDLE is a converted model (`docvino convert`). Prints the resident memory every 50 crops, how much it grew after the
first 200, and how many sizes the vision graph saw. `--patch-step` rounds those up, as profiles of GPUs do.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import time
from pathlib import Path

import numpy as np

from docvino.bundle import open_vlm_bundle
from docvino.device import Model, ShapeSteps, devices, profiles
from docvino.document import Crop
from docvino.machine.resident import UNTOLD, resident_mib
from docvino.runtime.stages import Clock
from docvino.runtime.vlm import VlmReader
from docvino.settings import ParseOptions, RuntimeConfig

BATCH = 10


def blots(size: tuple[int, int], seed: int) -> np.ndarray:
    """Random squares of 4 px, as fine as print: single pixels of noise are no ink to the reader."""
    small = np.random.default_rng(seed).integers(0, 256, (size[0] // 4 + 1, size[1] // 4 + 1, 3), np.uint8)
    return np.repeat(np.repeat(small, 4, 0), 4, 1)[: size[0], : size[1]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--crops", type=int, default=1000)
    parser.add_argument("--new-tokens", type=int, default=24)
    parser.add_argument("--most-px", type=int, default=400, help="largest side of a crop")
    parser.add_argument("--patch-step", type=int, default=1)
    args = parser.parse_args()
    chosen, run = devices.cpu_profile, Model.run
    patches = set()

    def stepped(*facts: object) -> profiles.Profile:
        return dataclasses.replace(chosen(*facts), steps=ShapeSteps(patches=args.patch_step))

    def counted(model: Model, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if "pixel_values" in inputs:
            patches.add(inputs["pixel_values"].shape[1])
        return run(model, inputs)

    devices.cpu_profile, Model.run = stepped, counted
    bundle = open_vlm_bundle(args.bundle)
    runtime = RuntimeConfig(device="CPU", precision=bundle.manifest.precision, model_cache=False)
    reader = VlmReader.open(bundle, runtime)[0]
    dice = random.Random(0)
    sizes = set()
    began, after, tokens = time.perf_counter(), {}, 0
    for done in range(0, args.crops, BATCH):
        crops = []
        for seed in range(done, done + BATCH):
            size = dice.randint(20, args.most_px), dice.randint(20, args.most_px)
            sizes.add(size)
            crops.append(Crop(blots(size, seed), "ocr", ()))
        options = ParseOptions(max_new_tokens=dice.randint(args.new_tokens // 2, args.new_tokens), loop_guard=False)
        for answer in reader.read(crops, options, Clock()):
            if answer.problem is not None:
                raise SystemExit(str(answer.problem))
            tokens += answer.tokens
        if (done + BATCH) % 50 == 0:
            if (held := resident_mib()) is None:
                raise SystemExit(UNTOLD)
            after[done + BATCH] = held
            spent = time.perf_counter() - began
            print(
                f"{done + BATCH:6d} crops {tokens:7d} tokens {after[done + BATCH]:8.1f} MiB {spent:7.0f} s", flush=True
            )
    growth = max(mib for count, mib in after.items() if count > 200) / after[200] - 1
    print(f"{len(sizes)} sizes of crops, {len(patches)} of the vision graph, {time.process_time():.0f} s of processors")
    print(f"from 200 to {args.crops} crops memory grew by {growth:.2%} at most")


if __name__ == "__main__":
    main()
