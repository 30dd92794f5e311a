"""All peers on this machine: readers of lines on the same pages, then PaddleOCR-VL's steps, then its page of 20 crops.

    python benchmarks/peers/run.py OUT [--rounds 5] [--model MODEL --data DATA [--gguf GGUF]]

Without --model only readers of lines are compared. Each of the three comparisons takes turns within itself, engine by
engine in each round; OUT gets one text file with all of them. What each needs is told in compare_rapidocr.py and
compare_vlm.py. Engines that are not installed end the comparison they belong to, and the file says so.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
LIMIT_S = 6 * 3600


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", type=Path, help="a folder as from a hub, or of random_model.py")
    parser.add_argument("--data", type=Path, help="where it is converted under the name `model`")
    parser.add_argument("--gguf", type=Path, help="of make_gguf.py")
    parser.add_argument("--execution", default="f32", help="arithmetic of docvino, by comma: f32, bf16")
    args = parser.parse_args()
    if args.model and not args.data:
        parser.error("--model needs --data, the folder of its conversions")
    rounds = ["--rounds", str(args.rounds)]
    commands = {"Readers of lines": ["compare_rapidocr.py", *rounds]}
    if args.model:
        model = ["--model", str(args.model), "--data", str(args.data), "--execution", args.execution, *rounds]
        gguf = ["--gguf", str(args.gguf)] if args.gguf else []
        commands["PaddleOCR-VL, steps"] = ["compare_vlm.py", *model, *gguf, "--too-slow-s", "12"]
        commands["PaddleOCR-VL, the 20 crops of a page"] = ["compare_vlm.py", *model, "--page"]
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with args.out.open("w", encoding="utf-8") as report:
        for title, (script, *words) in commands.items():
            print(f"{title}: {script} {' '.join(words)}", flush=True)
            done = subprocess.run(
                [sys.executable, str(HERE / script), *words],
                stdout=subprocess.PIPE,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
            ended = "" if done.returncode == 0 else f"\nended with code {done.returncode}\n"
            report.write(f"# {title}\n\n{done.stdout}{ended}\n")
            report.flush()


if __name__ == "__main__":
    main()
