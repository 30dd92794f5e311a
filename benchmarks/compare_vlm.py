"""PaddleOCR-VL on one machine: docvino beside transformers and llama.cpp, all rows taking turns in each round.

    python benchmarks/random_model.py MODEL          (random weights of the published size)
    docvino convert MODEL --name model --precision int8 --data-dir DATA      (and int4; fp16 for --page)
    python benchmarks/peers/make_gguf.py MODEL GGUF
    python benchmarks/compare_vlm.py --model MODEL --data DATA --gguf GGUF --rounds 5 --json out.json

Each engine is a process of its own that computes only when it is its turn. Needs the extra `reference`, gguf and
llama-cpp-python. Random weights cost what trained ones cost; nothing is said here about answers. `--page` measures the
20 crops of a page instead of the single steps.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
from datetime import date
from importlib.metadata import version
from pathlib import Path

from docvino.bench.limits import read_bandwidth
from docvino.bench.vlm import GRIDS, PROMPTS, SEQUENCES

WORKER = Path(__file__).resolve().parent / "peers" / "worker.py"
ROWS = [("decode", rows) for rows in SEQUENCES]
ROWS += [("prefill", tokens) for tokens in PROMPTS]
ROWS += [("vision", patches) for patches in GRIDS]


class Worker:
    def __init__(self, name: str, words: list[str]) -> None:
        self.name = name
        command = [sys.executable, str(WORKER), *words]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        ready = json.loads(self._answer())
        self.tasks = ready["tasks"]
        print(f"{name}: loaded in {ready['seconds']:.1f} s", flush=True)

    def ask(self, task: str, number: int = 0) -> float:
        assert self._process.stdin
        self._process.stdin.write(f"{task} {number}\n")
        self._process.stdin.flush()
        return float(json.loads(self._answer()))

    def _answer(self) -> str:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended with code {self._process.wait()}")
        return line

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(60)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--gguf", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--too-slow-s", type=float, default=30, help="what takes longer at first is measured once")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--execution", default="f32", help="arithmetic of docvino, by comma: f32, bf16")
    parser.add_argument("--only", default="", help="engines whose names contain one of these words, by comma")
    parser.add_argument("--tasks", default="decode,prefill,vision", help="kinds of steps, by comma")
    args = parser.parse_args()
    data, model = str(args.data), str(args.model)
    engines = {
        f"docvino {weights} in {execution}": ["docvino", data, weights, execution]
        for execution in args.execution.split(",")
        for weights in ("int8", "int4")
    }
    engines |= {f"transformers {kind}": ["transformers", model, kind] for kind in ("bf16", "fp32")}
    if args.page:
        for execution in args.execution.split(","):
            for weights in ("int8", "fp16"):
                engines[f"stateful loop {weights} in {execution}"] = ["stateful", data, weights, execution]
    elif args.gguf:
        for kind in ("q8_0", "q4_k_m"):
            engines[f"llama.cpp {kind}"] = ["llama", str(args.gguf / f"decoder-{kind}.gguf")]
    words = [word for word in args.only.split(",") if word]
    workers = [Worker(n, w) for n, w in engines.items() if not words or any(word in n for word in words)]
    rows = [("page", 0)] if args.page else [row for row in ROWS if row[0] in args.tasks.split(",")]
    found: dict[str, list[float]] = {}
    bandwidth, once = [], set()
    # Many crops of three sizes warm themselves up; single steps need a round for it.
    for turn in range(1 if args.page else 0, args.rounds + 1):
        bandwidth.append(read_bandwidth())
        for task, number in rows:
            for worker in workers:
                key = f"{worker.name}|{task}|{number}"
                if task in worker.tasks and key not in once:
                    seconds = worker.ask(task, number)
                    print(f"{turn} {task} {number} {worker.name} {seconds:.3f} s", file=sys.stderr, flush=True)
                    if turn or seconds > args.too_slow_s:  # the first round warms up
                        found.setdefault(key, []).append(seconds)
                    if not turn and seconds > args.too_slow_s:
                        once.add(key)
        print(f"round {turn} of {args.rounds}", flush=True)
    peaks = {worker.name: worker.ask("rss") for worker in workers}
    for worker in workers:
        worker.close()
    packages = {name: version(name) for name in ("openvino", "torch", "transformers", "numpy")}
    print(f"{date.today()} {platform.processor() or platform.machine()} {packages}")
    print(f"memory read {min(bandwidth):.1f} to {max(bandwidth):.1f} GB/s, median {statistics.median(bandwidth):.1f}")
    for task, number in rows:
        print(f"\n{task} {number or ''}")
        for worker in workers:
            times = found.get(f"{worker.name}|{task}|{number}")
            if times:
                middle = statistics.median(times)
                rate = "" if task == "page" else f"{number / middle:9.1f} /s"
                spread = "once" if len(times) == 1 else f"{min(times):.3f}..{max(times):.3f} s"
                print(f"  {worker.name:26s} {middle * 1000:10.1f} ms {rate}  ({spread})")
    print("\npeak MiB " + ", ".join(f"{name} {peak:.0f}" for name, peak in peaks.items()))
    if args.json:
        record = {"date": str(date.today()), "packages": packages, "bandwidth_gb_s": bandwidth, "seconds": found}
        args.json.write_text(json.dumps({**record, "peak_mib": peaks}, indent=1))


if __name__ == "__main__":
    main()
