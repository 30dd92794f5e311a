"""Writes tests/data/nano-crops.npz anew: drawn crops that nano never saw, with what they say. Run it from the root:

python tests/data/make_nano_crops.py ASSETS

ASSETS as for recipes/nano (its README says how to make them).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import cv2
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "recipes" / "nano"))

from crops import paint  # noqa: E402
from evaluate import evaluation_crops  # noqa: E402

SEED = 7  # neither that of training nor of the published scores
EACH = {"line": 24, "paragraph": 8, "table": 12, "formula": 12, "seal": 8, "spotting": 8, "stamped": 8}


def main() -> None:
    left, pictures, about = dict(EACH), [], []
    for name, drawing, dice in evaluation_crops(Path(sys.argv[1]), max(EACH.values()), SEED):
        if not left.get(name):
            continue
        left[name] -= 1
        # JPEG: the grain of scans does not compress otherwise.
        pictures.append(cv2.imencode(".jpg", paint(drawing, dice)[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 90])[1])
        about.append({"group": name, "task": drawing.task, "text": drawing.text})
    ends = np.cumsum([len(picture) for picture in pictures])
    out = Path(__file__).with_name("nano-crops.npz")
    np.savez(
        out,
        jpeg=np.concatenate([picture.reshape(-1) for picture in pictures]),
        ends=ends,
        about=np.array(json.dumps(about, ensure_ascii=False)),
    )
    sys.stdout.write(f"{len(about)} crops, {out.stat().st_size / 1e3:.0f} kB\n")


if __name__ == "__main__":
    main()
