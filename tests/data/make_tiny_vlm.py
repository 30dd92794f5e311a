"""Writes tests/data/tiny-vlm and its golden case anew. Needs the extra `reference`; run it from the project's root:

python tests/data/make_tiny_vlm.py
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from docvino.reference import make_random, record
from vlm_models import TINY, TINY_CASE, character_tokenizer, tiny_tokens

# Nothing is as in the published model, so that no size can be taken for another.
TEXT = {
    "vocab_size": 170,
    "hidden_size": 64,
    "intermediate_size": 192,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0, "mrope_section": [5, 7, 4]},
}
VISION = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 98,
}

if __name__ == "__main__":
    shutil.rmtree(TINY, ignore_errors=True)
    make_random(TINY, character_tokenizer(tiny_tokens()), text=TEXT, vision=VISION, budget=(9_408, 50_176), seed=3)
    case = record(TINY, TINY_CASE, steps=48)
    sys.stdout.write(f"{len(set(case.outputs.tokens))} different tokens of {len(case.outputs.tokens)}: {case.text!r}\n")
