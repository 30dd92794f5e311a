"""nano: a small model of the PaddleOCR-VL architecture that comes with docvino. Its card: models/nano/README.md."""

from pathlib import Path

from docvino.specs.model import VlmPreset

# The folder as it would come from a hub: config.json, model.safetensors, tokenizer.json, preprocessor_config.json.
FOLDER = Path(__file__).resolve().parents[1] / "models" / "nano"

NANO = VlmPreset(
    name="nano",
    title="a small PaddleOCR-VL for clean print, trained by docvino: lines, tables, formulas",
    licence="Apache-2.0",
    source=FOLDER,
    layout="whitespace",
)
