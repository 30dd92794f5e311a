"""How each kind of device is used unless settings say otherwise. Data; nothing here was run on a GPU or an NPU.

A profile is a beginning that the first-load self-test and `docvino verify --bring-up` judge, not a promise.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from docvino.settings import ExecutionPrecision, KvPrecision


@dataclass(frozen=True)
class ShapeSteps:
    """Inputs are made larger until they are multiples of these, so that few sizes are compiled; 1 leaves them alone.

    page_px     both sides of a page in which text lines are found; its edge is repeated
    line_px     width of text lines; grey is added, as it is to shorter lines beside longer ones
    patches     patches of a crop that a vision-language model reads; what is added is masked
    """

    page_px: int = 1
    line_px: int = 1
    patches: int = 1


@dataclass(frozen=True)
class Profile:
    """
    execution        arithmetic
    kv_precision     how keys and values of a decoder are stored
    async_slots      inference requests in flight for text lines
    line_batch       most text lines of one inference
    mixed_widths     whether lines of several widths share an inference, the shorter ones padded
    own_streams      whether requests run side by side only when each has a stream of its own
    any_size         whether inputs may change their size from call to call
    steps            sizes that inputs are rounded to
    about            why
    """

    name: str
    execution: ExecutionPrecision
    kv_precision: KvPrecision
    async_slots: int
    line_batch: int
    mixed_widths: bool
    own_streams: bool
    any_size: bool
    steps: ShapeSteps
    about: str


# Most lines of one inference. Measured on two CPU cores (2026-12-01, docs/performance.md): lines of one width are alike
# by one and by four; lines of several widths are 1.3 times as fast without the padding that they need side by side.
_LINES = 4
# A GPU compiles kernels for sizes it has not seen, and keeps them: sizes are rounded up. Source: opencv/opencv#18723
# (up to 40 s for each new size), openvinotoolkit/openvino#27198 (memory grows with the number of sizes).
_GPU_STEPS = ShapeSteps(page_px=160, line_px=160, patches=256)


def _cpu(name: str, about: str) -> Profile:
    # Source of f32: bf16 moves detector probabilities by up to half (measured, see settings.md). Source of u8: paged
    # decoding of rounded keys and values reads the same text (docs/paddleocr-vl.md) in a quarter of the memory.
    return Profile(
        name,
        "f32",
        "u8",
        2,
        _LINES,
        mixed_widths=False,
        own_streams=True,
        any_size=True,
        steps=ShapeSteps(),
        about=about,
    )


def _gpu(name: str, slots: int, about: str) -> Profile:
    # f16 for keys and values until 8 bits have passed on such a card: OpenVINO would take 8 bits without a word.
    # Widths share an inference there: each width in each number of lines would be a size to compile.
    return Profile(
        name,
        "f16",
        "f16",
        slots,
        _LINES,
        mixed_widths=True,
        own_streams=False,
        any_size=True,
        steps=_GPU_STEPS,
        about=about,
    )


CPU_AMX = _cpu("cpu-amx", "matrix units that f32 leaves idle: `--execution bf16` uses them, and rounds")
CPU_BF16 = _cpu("cpu-avx512-bf16", "`--execution bf16` reads crops 1.3 times as fast (measured on a Zen 4), and rounds")
CPU_VNNI = _cpu("cpu-vnni", "8-bit products in hardware: int8 weights decode fastest")
CPU_PLAIN = _cpu("cpu-avx2", "8-bit weights are unpacked to float: they save memory, not time")
ARC_B = _gpu("arc-b", 4, "Xe2 with matrix units and memory of its own")
ARC_A = _gpu("arc-a", 4, "Xe-HPG with matrix units and memory of its own; users advise 4 to 6 requests on an A770")
DISCRETE = _gpu("gpu-discrete", 4, "a card that docvino does not know by its architecture: treated as Arc")
XE_MATRIX = _gpu("xe-integrated-xmx", 2, "matrix units, memory shared with the processor")
XE_PLAIN = _gpu("xe-integrated", 2, "no matrix units, memory shared with the processor")
NPU = Profile(
    "npu",
    "f16",
    "f16",
    1,
    1,
    mixed_widths=False,
    own_streams=False,
    any_size=False,
    steps=ShapeSteps(),
    about="f16 only, and only graphs whose sizes are known: layout and orientation",
)
PROFILES = (CPU_AMX, CPU_BF16, CPU_VNNI, CPU_PLAIN, ARC_B, ARC_A, DISCRETE, XE_MATRIX, XE_PLAIN, NPU)

# Source: the first numbers of DEVICE_ARCHITECTURE (compute-runtime's platforms.h): 12.55 to 12.57 are Arc A, 20.1 and
# 20.2 Arc B; 20.4 is the integrated GPU of Lunar Lake.
_ARC = {(12, 55): ARC_A, (12, 56): ARC_A, (12, 57): ARC_A, (20, 1): ARC_B, (20, 2): ARC_B}


def gpu_profile(architecture: tuple[int, int] | None, *, discrete: bool, matrix_units: bool) -> Profile:
    """
    architecture   major and minor number, None when the driver does not say
    """
    if discrete:
        return _ARC.get(architecture or (0, 0), DISCRETE)
    return XE_MATRIX if matrix_units else XE_PLAIN


def cpu_profile(flags: Iterable[str], capabilities: Iterable[str]) -> Profile:
    """
    flags          of the processor as Linux names them; empty where nobody says
    capabilities   as OpenVINO names them
    """
    have = set(flags)
    if {"amx_bf16", "amx_int8"} & have:
        return CPU_AMX
    if "avx512_bf16" in have or (not have and "BF16" in set(capabilities)):
        return CPU_BF16
    return CPU_VNNI if {"avx512_vnni", "avx_vnni"} & have else CPU_PLAIN
