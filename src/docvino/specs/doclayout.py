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
from docvino.specs import paddleocr_vl
from docvino.specs.model import (
    Asking,
    DocLabel,
    DocLayoutFacts,
    HubFile,
    HubFolder,
    HubMember,
    ModelSpec,
    Repository,
    TensorContract,
)

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

# The published ONNX file. Source of the pin: five unrelated public projects that carry it alike, read 2026-11-30.
FOLDER_V3 = HubFolder(
    name="pp-doclayout-v3",
    title="PP-DocLayoutV3 layout detection, 25 labels, as ONNX",
    licence="Apache-2.0",
    homepage="https://huggingface.co/PaddlePaddle/PP-DocLayoutV3_onnx",
    repositories=MappingProxyType(
        {
            "huggingface": Repository("PaddlePaddle/PP-DocLayoutV3_onnx", "46bbdf188bb0a772c08aed74882ce7e51a8f1ea6"),
            "modelscope": Repository("PaddlePaddle/PP-DocLayoutV3_onnx", "master"),
        }
    ),
    files=(
        HubFile("inference.onnx", 130_502_049, "45bf71750b00739a41fc209f132eb104a4d6b5bb29483c9078164d8b87cf28ba"),
        HubFile("inference.yml", required=False),
    ),
)
# A folder inside the repository of PaddleOCR-VL v1, in Paddle's old format, which OpenVINO reads itself.
FOLDER_V2 = HubFolder(
    name="pp-doclayout-v2",
    title="PP-DocLayoutV2 layout detection, 25 labels, as Paddle program",
    licence="Apache-2.0",
    homepage=paddleocr_vl.V1.homepage,
    repositories=paddleocr_vl.V1.repositories,
    files=(
        HubFile("PP-DocLayoutV2/inference.pdmodel"),
        HubFile("PP-DocLayoutV2/inference.pdiparams"),
        HubFile("PP-DocLayoutV2/inference.yml", required=False),
    ),
)

_INPUTS = (
    TensorContract("image", (1, 3, 800, 800)),
    TensorContract("im_shape", (1, 2)),
    TensorContract("scale_factor", (1, 2)),
)
_OUTPUTS = (TensorContract("boxes", (-1, -1)), TensorContract("counts", (-1,)))
# Of scores. No weights could be had where this was written: limits as `golden.SCORE_LIMITS` has them, not measured.
_TOLERANCES = {"fp32": 0.01, "fp16": 0.02, "bf16": 0.1}
# int8 weights could not be judged, either, and the file is small beside the model that it works for.
_PRECISIONS = ("fp32", "fp16")

V3 = ModelSpec(
    name=FOLDER_V3.name,
    title=FOLDER_V3.title,
    role="document-layout",
    licence=FOLDER_V3.licence,
    homepage=FOLDER_V3.homepage,
    source=HubMember(FOLDER_V3, "inference.onnx"),
    inputs=_INPUTS,
    outputs=(*_OUTPUTS, TensorContract("masks", (-1, -1, -1))),
    facts=FACTS_V3,
    tolerances=_TOLERANCES,
    precisions=_PRECISIONS,
)
V2 = ModelSpec(
    name=FOLDER_V2.name,
    title=FOLDER_V2.title,
    role="document-layout",
    licence=FOLDER_V2.licence,
    homepage=FOLDER_V2.homepage,
    source=HubMember(FOLDER_V2, "PP-DocLayoutV2/inference.pdmodel"),
    inputs=_INPUTS,
    outputs=_OUTPUTS,
    facts=FACTS_V2,
    tolerances=_TOLERANCES,
    precisions=_PRECISIONS,
)
