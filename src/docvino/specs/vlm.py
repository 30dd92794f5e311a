"""The PaddleOCR-VL family: what is true of every model of it, and the form of one model's own facts.

Versions v1, 1.5 and 1.6 have the same graph; v1 differs in the end of its prompt. A smaller model of the same
architecture (other sizes, another tokenizer) is one of the family, too: its facts come from its own files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, PositiveInt

from docvino.document import Task

MODEL_TYPE = "paddleocr_vl"  # of config.json
PromptStyle = Literal["v1", "v1.5"]

# Source: the chat templates of the published models. 1.6 is prompted as 1.5.
# Differs: the published OpenVINO notebook ends every prompt as v1 does.
PROMPT_HEAD = "{begin}User: {image_start}"
PROMPT_TAILS: Mapping[PromptStyle, str] = {
    "v1": "{image_end}{task}\nAssistant: ",
    "v1.5": "{image_end}{task}\nAssistant:\n",
}
# Source: the pipeline of PaddleX 3.7.2, one prompt per task.
TASK_PROMPTS: Mapping[Task, str] = {
    "ocr": "OCR:",
    "table": "Table Recognition:",
    "formula": "Formula Recognition:",
    "chart": "Chart Recognition:",
    "seal": "Seal Recognition:",
    "spotting": "Spotting:",
}
# v1 was not trained on seals and spotting.
TASKS: Mapping[PromptStyle, tuple[Task, ...]] = {
    "v1": ("ocr", "table", "formula", "chart"),
    "v1.5": ("ocr", "table", "formula", "chart", "seal", "spotting"),
}

BEGIN = "<|begin_of_sentence|>"
IMAGE = "<|IMAGE_PLACEHOLDER|>"
IMAGE_START = "<|IMAGE_START|>"
IMAGE_END = "<|IMAGE_END|>"
END = "</s>"
TABLE_TAGS = ("<ecel>", "<fcel>", "<xcel>", "<lcel>", "<ucel>", "<nl>")
LOCATIONS = tuple(f"<|LOC_{place}|>" for place in range(1001))  # thousandths of the crop's width or height
LOCATION_MARKS = ("<|LOC_BEGIN|>", "<|LOC_END|>", "<|LOC_SEP|>")
TEXT_MARKS = ("<|TEXT_START|>", "<|TEXT_END|>")  # around spotted text, in tokenizers that have them
# Tokens that are the answer itself, although a tokenizer may call them special.
KEPT_TOKENS = frozenset({*TABLE_TAGS, *LOCATIONS, *LOCATION_MARKS, *TEXT_MARKS})

# Token ids of the published tokenizer. Source: config.json of the models; table tags, locations and the begin of a
# sentence from three independent re-implementations that agree with it.
PUBLISHED_VOCABULARY = 103_424
PUBLISHED_TOKENS: Mapping[str, int] = {
    "<unk>": 0,
    "<s>": 1,
    END: 2,
    BEGIN: 100_273,
    IMAGE: 100_295,
    **{location: 100_297 + place for place, location in enumerate(LOCATIONS)},
    **{mark: 101_298 + place for place, mark in enumerate(LOCATION_MARKS)},
    IMAGE_START: 101_305,
    IMAGE_END: 101_306,
    **{tag: 101_308 + place for place, tag in enumerate(TABLE_TAGS)},
}

MAX_SIDE_RATIO = 200  # smart_resize upstream refuses a longer strip
# Source: PaddleX 3.7.2, the pipeline's default. A dense page in one crop may need more.
MAX_NEW_TOKENS = 4096


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PixelBudget(Frozen):
    """The area a crop is resized to, in pixels."""

    min_pixels: int
    max_pixels: int


# Source: PaddleX 3.7.2: the pipeline overrides the limits of the hub's preprocessor files for every task and version.
PIPELINE_BUDGET = PixelBudget(min_pixels=112_896, max_pixels=1_003_520)
SPOTTING_BUDGET = PixelBudget(min_pixels=112_896, max_pixels=1_605_632)
SPOTTING_DOUBLE_BELOW_PX = 1500  # Source: PaddleX 3.7.2, the pipeline's crops for spotting
HUB_BUDGETS: Mapping[PixelBudget, PromptStyle] = {
    PixelBudget(min_pixels=147_384, max_pixels=2_822_400): "v1",
    PixelBudget(min_pixels=112_896, max_pixels=1_003_520): "v1.5",
}


class PixelFacts(Frozen):
    """How a crop becomes numbers: (p / 255 - mean) / std, channels RGB; and how large it is made, by task.

    double_below_px   pictures for spotting with both sides below this are made twice as large first; 0: none
    """

    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    budgets: dict[Task, PixelBudget]
    double_below_px: int = 0


class VisionFacts(Frozen):
    """Sizes of the vision tower and projector.

    position_side   the learned position table has this many rows and columns
    head_dim        numbers per attention head; a quarter of it are rotary frequencies of rows, as many of columns
    """

    hidden_size: PositiveInt
    intermediate_size: PositiveInt
    layers: PositiveInt
    heads: PositiveInt
    head_dim: PositiveInt
    patch_px: PositiveInt
    merge: PositiveInt
    position_side: PositiveInt
    rope_theta: float
    layer_norm_eps: float

    @property
    def factor_px(self) -> int:
        """Sides of a resized crop are multiples of this: one image token."""
        return self.patch_px * self.merge


class TextFacts(Frozen):
    """Sizes of the decoder. `mrope_sections` say how many frequencies use the time, row and column position."""

    hidden_size: PositiveInt
    intermediate_size: PositiveInt
    layers: PositiveInt
    heads: PositiveInt
    kv_heads: PositiveInt
    head_dim: PositiveInt
    vocabulary: PositiveInt
    max_positions: PositiveInt
    rope_theta: float
    mrope_sections: tuple[int, int, int]
    rms_norm_eps: float
    biased: bool
    tied_head: bool


class TokenFacts(Frozen):
    """Ids that the runtime needs to know. Decoding stops at any of `end`."""

    begin: int
    image: int
    image_start: int
    image_end: int
    end: tuple[int, ...]


class VlmFacts(Frozen):
    """Everything a reader needs to know of one model; `facts.json` of its bundle."""

    prompt_style: PromptStyle
    vision: VisionFacts
    text: TextFacts
    pixels: PixelFacts
    tokens: TokenFacts
    max_new_tokens: int

    @property
    def tasks(self) -> tuple[Task, ...]:
        return TASKS[self.prompt_style]

    def largest_patches(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the vision graph's inputs for the largest crop that any task allows."""
        side, dim = self.vision.patch_px, self.vision.head_dim
        count = max(budget.max_pixels for budget in self.pixels.budgets.values()) // side**2
        return {
            "pixel_values": (1, count, 3 * side**2),
            "position_taps": (1, count, 4),
            "position_weights": (1, count, 4),
            "rotary_cos": (1, count, dim),
            "rotary_sin": (1, count, dim),
        }
