"""PP-OCRv6 small: text detection and recognition of Chinese, English, Japanese and Latin lines."""

from docvino.specs.model import (
    DetectionFacts,
    ImageNetMean,
    ImageNetStd,
    ModelSpec,
    RecognitionFacts,
    TensorContract,
    WheelMember,
)

DETECTION = ModelSpec(
    name="pp-ocrv6-small-det",
    title="PP-OCRv6 small text detection",
    role="text-detection",
    licence="Apache-2.0",
    homepage="https://github.com/PaddlePaddle/PaddleOCR",
    source=WheelMember(
        package="rapidocr",
        version="3.10.0",
        member="rapidocr/models/PP-OCRv6_det_small.onnx",
        sha256="090f04abcd9d9a7498bc4ebf677e4cb9bdce1fe4197ddb7e529f1ef44e1ff94f",
        size_bytes=9_929_594,
    ),
    inputs=(TensorContract("x", (-1, 3, -1, -1)),),
    outputs=(TensorContract("fetch_name_0", (-1, 1, -1, -1)),),
    # Source: inference.yml of PP-OCRv6_small_det (NormalizeImage in BGR order, DBPostProcess, dynamic shapes up to
    # 4000 px with a minimum of 32); DetResizeForTest without arguments enlarges the shorter side to 736 px
    # (ppocr/data/imaug/operators.py, DetResizeForTest.__init__) and rounds to multiples of 32.
    facts=DetectionFacts(
        mean=ImageNetMean,
        std=ImageNetStd,
        limit_side_px=736,
        # Differs: upstream has no such limit. A strip of 500 x 120 px is enlarged six times there: its letters are then
        # too large to be found (a formula of five lost), a line of 300 x 60 px is split, at 40 times the work.
        max_enlargement=2.0,
        max_side_px=4000,
        # Differs: upstream has no limit of area. 2.5 Mpx is an A4 page at 160 dpi. On two pages of 300 dpi (9 Mpx) the
        # same 82 and 45 lines are found in a fifth of the time, all 45 lines of the second (10 pt) even at 60 dpi.
        # The network needs 250 MiB per Mpx (measured 2026-11-30 on a CPU).
        max_area_px=2_500_000,
        stride_px=32,
        threshold=0.2,
        box_threshold=0.45,
        unclip_ratio=1.4,
        max_boxes=3000,
    ),
    # Source: measured 2026-11-30 on a CPU (1.6e-5, 0.043, 0.10 at fp32, fp16, int8); bf16 elsewhere (0.56).
    tolerances={"fp32": 1e-3, "fp16": 0.2, "bf16": 0.7, "int8": 0.3},
)

RECOGNITION = ModelSpec(
    name="pp-ocrv6-small-rec",
    title="PP-OCRv6 small text recognition, 18,708 characters",
    role="text-recognition",
    licence="Apache-2.0",
    homepage="https://github.com/PaddlePaddle/PaddleOCR",
    source=WheelMember(
        package="rapidocr",
        version="3.10.0",
        member="rapidocr/models/PP-OCRv6_rec_small.onnx",
        sha256="6f327246b50388f3c176ae304bd95767ea6dc0c9ae92153ef8cbe210b3c14884",
        size_bytes=21_234_383,
    ),
    inputs=(TensorContract("x", (-1, 3, 48, -1)),),
    outputs=(TensorContract("fetch_name_0", (-1, -1, 18_710)),),
    # Source: inference.yml of PP-OCRv6_small_rec (RecResizeImg 3 x 48 x 320, widths up to 3200, CTCLabelDecode);
    # RecResizeImg scales pixels to -1..1 (ppocr/data/imaug/rec_img_aug.py, resize_norm_img). The dictionary is the
    # model's own metadata entry `character`.
    facts=RecognitionFacts(height_px=48, min_width_px=320, max_width_px=3200, dictionary_key="character"),
    # Source: measured 2026-11-30 on a CPU (2.0e-6, 0.0055, 0.22 at fp32, fp16, int8).
    tolerances={"fp32": 1e-3, "fp16": 0.05, "bf16": 0.3, "int8": 0.5},
)
