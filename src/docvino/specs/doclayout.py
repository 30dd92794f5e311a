"""PP-DocLayoutV3 and V2: the layout models of PaddleOCR-VL, their 25 labels and what each of them is read as.

Source of labels, tasks, merge modes and thresholds: PaddleX 3.7.2, configs/pipelines/PaddleOCR-VL-1.6.yaml (V3) and
PaddleOCR-VL.yaml (V2), and the pipeline paddleocr_vl. Names: label_list of the models' inference.yml. The configuration
that transformers has calls labels 5 and 15 "formula", 9 "footer", 13 "header", 23 "text": those names are not used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from docvino.document import Task
from docvino.specs.model import Asking, DocLabel, DocLayoutFacts

_ASKED_IMAGE: tuple[Asking, Task] = ("use_ocr_for_image_block", "ocr")

# By class. Threshold 0.3 for all: PaddleOCR-VL-1.6.yaml.
_LABELS_V3 = (
    DocLabel("abstract", "ocr", 0.3),
    DocLabel("algorithm", "ocr", 0.3),
    DocLabel("aside_text", "ocr", 0.3, running=True),
    DocLabel("chart", None, 0.3, asking=("use_chart_recognition", "chart"), absorbs=True),
    DocLabel("content", "ocr", 0.3),
    DocLabel("display_formula", "formula", 0.3, absorbs=True),
    DocLabel("doc_title", "ocr", 0.3, absorbs=True),
    DocLabel("figure_title", "ocr", 0.3),
    DocLabel("footer", "ocr", 0.3, running=True),
    DocLabel("footer_image", None, 0.3, asking=_ASKED_IMAGE, running=True),
    DocLabel("footnote", "ocr", 0.3, running=True),
    DocLabel("formula_number", "ocr", 0.3),
    DocLabel("header", "ocr", 0.3, running=True),
    DocLabel("header_image", None, 0.3, asking=_ASKED_IMAGE, running=True),
    DocLabel("image", None, 0.3, asking=_ASKED_IMAGE),
    DocLabel("inline_formula", "formula", 0.3, absorbs=True),
    DocLabel("number", "ocr", 0.3, running=True),
    DocLabel("paragraph_title", "ocr", 0.3, absorbs=True),
    DocLabel("reference", "ocr", 0.3),  # the whole list of references; its region is always dropped
    DocLabel("reference_content", "ocr", 0.3),
    DocLabel("seal", None, 0.3, asking=("use_seal_recognition", "seal")),
    DocLabel("table", "table", 0.3),
    DocLabel("text", "ocr", 0.3),
    DocLabel("vertical_text", "ocr", 0.3),
    DocLabel("vision_footnote", "ocr", 0.3),
)
# Source: PaddleOCR-VL.yaml; 0.5 where nothing else is said.
_THRESHOLDS_V2 = {
    **dict.fromkeys(
        ("display_formula", "doc_title", "inline_formula", "paragraph_title", "text", "vertical_text"), 0.4
    ),
    "seal": 0.45,
}

FACTS_V3 = DocLayoutFacts(side_px=800, labels=_LABELS_V3, masks=True)
FACTS_V2 = DocLayoutFacts(
    side_px=800,
    labels=tuple(replace(label, threshold=_THRESHOLDS_V2.get(label.name, 0.5)) for label in _LABELS_V3),
    masks=False,
)

# The same for both versions but for the thresholds.
LABELS: Mapping[str, DocLabel] = MappingProxyType({label.name: label for label in _LABELS_V3})
PICTURES = frozenset(label.name for label in _LABELS_V3 if label.task is None)
RUNNING = frozenset(label.name for label in _LABELS_V3 if label.running)
