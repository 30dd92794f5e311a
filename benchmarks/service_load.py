"""Many clients at once against `docvino serve`: the answers of one client, times, refusals, and what is left behind.

    python benchmarks/service_load.py --clients 8 --documents 50 --preset nano

Needs the extra serve and httpx, and the preset converted. Documents are drawn: small pages with lines of their own, as
PNG and as PDF of two pages. A client that gets 429 waits as Retry-After says and tries again.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from PIL import Image, ImageDraw, ImageFont

START_LIMIT_S = 300
TRY_LIMIT_S = 600


@dataclass
class Heard:
    seconds: list[float] = field(default_factory=list)
    refused: int = 0
    answers: dict[int, list[object]] = field(default_factory=dict)


def page(number: int) -> Image.Image:
    image = Image.new("RGB", (560, 60 + 50 * (1 + number % 3)), "white")
    pen, font = ImageDraw.Draw(image), ImageFont.load_default(28)
    for line in range(1 + number % 3):
        pen.text((20, 20 + 50 * line), f"Invoice {number:04d}, line {line + 1}: {number * 37 % 1000}.50", "black", font)
    return image


def document(number: int) -> tuple[str, bytes]:
    stream = io.BytesIO()
    if number % 5 == 4:
        page(number).save(stream, "PDF", save_all=True, append_images=[page(number + 500)], resolution=144)
        return f"{number}.pdf", stream.getvalue()
    page(number).save(stream, "PNG")
    return f"{number}.png", stream.getvalue()


def ask(client: httpx.Client, number: int, heard: Heard) -> None:
    name, data = document(number)
    begun = time.monotonic()
    while True:
        answer = client.post("/v1/parse", files={"file": (name, data)}, data={"formats": "markdown"})
        if answer.status_code != 429:
            break
        heard.refused += 1
        assert time.monotonic() - begun < TRY_LIMIT_S, "refused for too long"
        time.sleep(float(answer.headers["Retry-After"]))
    heard.seconds.append(time.monotonic() - begun)
    answer.raise_for_status()
    said = answer.json()
    heard.answers[number] = [said["document"]["pages"], said["outputs"]["markdown"]]


def one_client(url: str, numbers: list[int]) -> Heard:
    heard = Heard()
    with httpx.Client(base_url=url, timeout=TRY_LIMIT_S) as client:
        for number in numbers:
            ask(client, number, heard)
    return heard


def state(pid: int) -> dict[str, float]:
    """Of the service and the process that decodes for it."""
    status = Path(f"/proc/{pid}/status").read_text()
    names = [str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()]
    found = re.search(r"VmRSS:\s+(\d+)", status)
    children = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout.split()
    return {
        "rss_mib": round(int(found[1]) / 1024, 1) if found else 0.0,
        "threads": int(re.search(r"Threads:\s+(\d+)", status)[1]),  # type: ignore[index]
        "files": len(names),
        "sockets": sum(name.startswith("socket:") for name in names),
        "children": len(children),
    }


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--documents", type=int, default=50, help="of each client; all clients send the same ones")
    parser.add_argument("--preset", default="nano")
    parser.add_argument("--queue", type=int, default=4, help="small, so that clients are refused at times")
    parser.add_argument("--rounds", type=int, default=1, help="rounds of all clients, for the slope of memory")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        process, url = started(asked.preset, asked.queue, Path(folder))
        try:
            report = measured(process.pid, url, asked)
        finally:
            process.terminate()
            process.wait(60)
    print(json.dumps(report, indent=2))
    sys.exit(0 if report["different_answers"] == 0 else 1)


def started(preset: str, queue: int, folder: Path) -> tuple[subprocess.Popen[str], str]:
    log = folder / "log"
    with log.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "docvino", "serve", "--preset", preset, "--port", "0", "--max-queue", str(queue)],
            stdout=subprocess.DEVNULL,
            stderr=stream,
            text=True,
        )
    until = time.monotonic() + START_LIMIT_S
    while not (found := re.search(r"serves at (\S+)", log.read_text())):
        if process.poll() is not None or time.monotonic() > until:
            process.kill()
            raise SystemExit(log.read_text())
        time.sleep(0.1)
    return process, found[1]


def measured(pid: int, url: str, asked: argparse.Namespace) -> dict[str, object]:
    numbers = list(range(asked.documents))
    begun = time.monotonic()
    alone = one_client(url, numbers)
    alone_s = time.monotonic() - begun
    time.sleep(1)
    states = [state(pid)]
    peak = [0.0]
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.2):
            peak[0] = max(peak[0], state(pid)["rss_mib"])

    watcher = threading.Thread(target=watch)
    watcher.start()
    heard: list[Heard] = []
    begun = time.monotonic()
    for _ in range(asked.rounds):
        with ThreadPoolExecutor(asked.clients) as pool:
            # Each begins elsewhere, so that different documents meet.
            shifts = [numbers[9 * c % len(numbers) :] + numbers[: 9 * c % len(numbers)] for c in range(asked.clients)]
            heard += pool.map(lambda mine: one_client(url, mine), shifts)
        time.sleep(1)
        states.append(state(pid))
    together_s = time.monotonic() - begun - asked.rounds
    over.set()
    watcher.join()
    different = Counter(
        number for one in heard for number, answer in one.answers.items() if answer != alone.answers[number]
    )
    seconds = [value for one in heard for value in one.seconds]
    pages = sum(len(answer[0]) for answer in alone.answers.values())  # type: ignore[arg-type]
    return {
        "clients": asked.clients,
        "documents": len(seconds),
        "different_answers": sum(different.values()),
        "alone": {
            "seconds": round(alone_s, 1),
            "pages_per_s": round(pages / alone_s, 2),
            "p50_s": round(statistics.median(alone.seconds), 3),
            "p95_s": round(quantile(alone.seconds, 0.95), 3),
        },
        "together": {
            "seconds": round(together_s, 1),
            "pages_per_s": round(asked.rounds * asked.clients * pages / together_s, 2),
            "p50_s": round(statistics.median(seconds), 3),
            "p95_s": round(quantile(seconds, 0.95), 3),
            "refused_429": sum(one.refused for one in heard),
        },
        "before": states[0],
        "after_each_round": states[1:],
        "peak_rss_mib": peak[0],
    }


if __name__ == "__main__":
    main()
