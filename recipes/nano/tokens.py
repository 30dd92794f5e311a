"""nano's tokenizer: byte-pair encoding without merges, so that a character is a token; special ones as in the real model."""

from __future__ import annotations

import json

import texts
from docvino.specs import vlm

UNKNOWN, START, PAD = "<unk>", "<s>", "<unk>"  # the real model pads with <unk>, too
STEERING = (UNKNOWN, START, vlm.END, vlm.BEGIN, vlm.IMAGE, vlm.IMAGE_START, vlm.IMAGE_END)
# Parts of a prompt, whole: fewer tokens to pay for in every crop.
PROMPT_PARTS = ("User: ", "\nAssistant:\n", *vlm.TASK_PROMPTS.values())
GREEK = ("alpha", "beta", "gamma", "delta", "theta", "lambda", "mu", "pi", "sigma", "phi", "omega")
FUNCTIONS = ("sin", "cos", "log", "ln")
LATEX = (
    *("\\frac{", "\\sqrt{", "\\sum_{", "\\int_{", "\\infty", "}{", "^{", "_{", "}^{"),
    *(f"\\{name}" for name in (*GREEK, *FUNCTIONS)),
)
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))  # what is not in the alphabet is spelt in these


def vocabulary() -> tuple[str, ...]:
    """Every token in the order of its id."""
    whole = (*STEERING, *vlm.TABLE_TAGS, *vlm.LOCATION_MARKS, *PROMPT_PARTS, *LATEX)
    return (*whole, *BYTES, "\n", *texts.ASCII, *texts.SIGNS, *texts.characters(), *vlm.LOCATIONS)


def tokenizer_json() -> str:
    """Content of tokenizer.json."""
    tokens = vocabulary()
    ids = {token: number for number, token in enumerate(tokens)}
    assert len(ids) == len(tokens)
    whole = (*STEERING, *vlm.TABLE_TAGS, *vlm.LOCATION_MARKS, *PROMPT_PARTS, *LATEX, *vlm.LOCATIONS)
    added = [
        {
            "id": ids[token],
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": token in STEERING,
        }
        for token in whole
    ]
    model = {
        "type": "BPE",
        "unk_token": UNKNOWN,
        "fuse_unk": False,
        "byte_fallback": True,
        "vocab": ids,
        "merges": [],
    }
    decoder = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]}
    return json.dumps(
        {"version": "1.0", "added_tokens": added, "decoder": decoder, "model": model}, ensure_ascii=False, indent=0
    )
