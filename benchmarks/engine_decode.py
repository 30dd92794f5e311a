"""Tokens a second of a text decoder in docvino's engine: decoding 1 to 32 rows, reading prompts.

    python benchmarks/engine_decode.py decoder.xml [--execution bf16] [--kv u8] [--rows 1,4,8,16,32] [--repeats 7]

Takes any decoder that docvino converts. Prints medians of `--repeats` runs, after one that warms up, and the share of a
step that is docvino's own around the decoder (embeddings, sampling) and not the decoder's. All row counts take turns in
each round, so a busy machine slows them alike; compare ratios within one run.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from docvino.bench.vlm import Timed, request
from docvino.decoder.contract import KvSettings
from docvino.decoder.paged import PagedDecoder
from docvino.decoder.stateful import StatefulDecoder
from docvino.runtime.engine import Engine
from docvino.runtime.scheduler import EngineLimits
from docvino.settings import RuntimeConfig


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("decoder", type=Path)
    parser.add_argument("--device", default="CPU")
    parser.add_argument("--execution", default="f32", choices=["f32", "bf16", "f16"])
    parser.add_argument("--kv", default=None, choices=["u8", "f16", "f32"])
    parser.add_argument("--stateful", action="store_true", help="the stateful form, one row")
    parser.add_argument("--head-dim", type=int, default=128, help="width of the rotary tables")
    parser.add_argument("--rows", default="1,4,8,16,32")
    parser.add_argument("--prompts", default="300,1000")
    parser.add_argument("--context", type=int, default=300, help="tokens before the first that is timed")
    parser.add_argument("--steps", type=int, default=6, help="decoding steps of each run")
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args()
    runtime = RuntimeConfig(device=args.device, execution=args.execution, model_cache=False)
    random = np.random.default_rng(0)
    table = (random.standard_normal((4096, 4096)) * 0.02).astype(np.float32)

    def rotary(positions: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        angles = positions[0][:, None] * 10000.0 ** -np.linspace(0, 1, args.head_dim // 2, endpoint=False)
        angles = np.concatenate([angles, angles], axis=1)
        return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)

    kind = StatefulDecoder if args.stateful else PagedDecoder
    began = time.perf_counter()
    decoder = kind(args.decoder, args.decoder.stem, runtime, KvSettings(precision=args.kv), rotary)
    print(
        f"{args.decoder.name}: loaded in {time.perf_counter() - began:.1f} s on {', '.join(decoder.devices)}, "
        f"{decoder.execution_precision}, keys and values {decoder.kv_type}, {decoder.num_blocks} blocks of "
        f"{decoder.block_tokens} tokens"
    )

    def embed(ids: NDArray[np.int64]) -> NDArray[np.float32]:
        return table[ids % len(table), : decoder.hidden]

    def run(rows: int, prompt: int, new: int) -> Timed:
        timed = Timed(decoder, prompts=new == 1)
        requests = [request(random, decoder.hidden, prompt, new) for _ in range(rows)]
        Engine(timed, embed, EngineLimits(max(rows, 1))).generate_all(requests)  # type: ignore[arg-type]
        return timed

    counts = [1] if args.stateful else [int(part) for part in args.rows.split(",")]
    prompts = [int(part) for part in args.prompts.split(",")]
    decode_s: dict[int, list[float]] = {count: [] for count in counts}
    own: dict[int, list[float]] = {count: [] for count in counts}
    prefill_s: dict[int, list[float]] = {prompt: [] for prompt in prompts}
    for repeat in range(args.repeats + 1):
        for count in counts:
            calls = [call for call in run(count, args.context, args.steps + 2).calls if call[0] == "decode"]
            # From the start of one call to the start of the next: all that the engine does for a step is in it.
            steps = [after[2] - before[2] for before, after in itertools.pairwise(calls[1:])]
            inside = [call[3] - call[2] for call in calls[1:-1]]
            if repeat:
                decode_s[count].append(statistics.median(steps))
                own[count].append(1 - statistics.median(inside) / statistics.median(steps))
        for prompt in prompts:
            calls = run(1, prompt, 1).calls
            if repeat:
                prefill_s[prompt].append(sum(call[3] - call[2] for call in calls))
    for count in counts:
        seconds = statistics.median(decode_s[count])
        share = statistics.median(own[count])
        speed = f"{count / seconds:8.1f} tokens/s  {seconds * 1000:8.1f} ms a step"
        print(f"decode {count:3d} rows  {speed}  {share:6.1%} own")
    for prompt in prompts:
        print(f"prompt {prompt:5d}  {prompt / statistics.median(prefill_s[prompt]):8.1f} tokens/s")


if __name__ == "__main__":
    main()
