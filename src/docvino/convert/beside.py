"""What lies beside a model's graph: inference.yml, dictionary, tokenizer; and what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from docvino.bundle import Tensor
from docvino.convert import yml
from docvino.specs.model import ImageNetMean, ImageNetStd

CONFIGS = ("inference.yml", "inference.yaml", "infer_cfg.yml")
_TOKENIZER_SIGNS = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.txt", "vocab.json")
# Post-processing that turns classes into text, and so needs a list of characters or tokens.
_DECODERS = re.compile(r"LabelDecode|LaTeXOCRDecode|UniMERNetDecode")
_BY_TOKENIZER = re.compile(r"LaTeXOCRDecode|UniMERNetDecode")


@dataclass(frozen=True)
class Beside:
    """What a model's own files say about its input and classes.

    config      name of the file that says so, None when there is none that can be read
    mean, std   of channels in the order the network sees them, pixels scaled to 0..1
    bgr         whether that order is blue, green, red
    size        height and width of its input where it names one, 0 for a free width
    dictionary  one character or token per class, None when there is none
    dictionary_from  which file, or which entry, that is
    decoder     name of the post-processing, "" when none is named
    problem     why the config cannot be read
    """

    config: str | None = None
    mean: tuple[float, float, float] = ImageNetMean
    std: tuple[float, float, float] = ImageNetStd
    bgr: bool = False
    size: tuple[int, int] | None = None
    dictionary: tuple[str, ...] | None = None
    dictionary_from: str = ""
    decoder: str = ""
    problem: str | None = None


def look(folder: Path, metadata_dictionary: str | None = None) -> Beside:
    """Reads what lies in `folder`; `metadata_dictionary` is what the graph itself carries, one entry per line."""
    config = next((folder / name for name in CONFIGS if (folder / name).is_file()), None)
    found = Beside()
    if config is not None:
        try:
            found = _from_config(config.name, yml.parse(config.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            found = Beside(problem=f"{config.name} cannot be read: {error}")
    if found.dictionary is None and metadata_dictionary is not None:
        found = _with_dictionary(found, metadata_dictionary, "its metadata")
    if found.dictionary is None:
        for path in sorted(folder.glob("*.txt")):
            if re.search(r"dict|keys", path.name, re.IGNORECASE):
                found = _with_dictionary(found, path.read_bytes().decode(errors="replace"), path.name)
                break
    return found


def warnings(
    folder: Path, beside: Beside, inputs: Sequence[Tensor], outputs: Sequence[Tensor], *, paddle: bool
) -> list[str]:
    """What may go wrong with this model later, one sentence each."""
    return [*_shapes(inputs), *_classes(beside, outputs), *_missing(folder, beside, paddle)]


def _shapes(inputs: Sequence[Tensor]) -> Iterator[str]:
    for port in inputs:
        if "?" in port.shape or ".." in port.shape:
            dimensions = port.shape.strip("[]").split(",")
            example = ",".join(size if size.isdigit() else "1" if n == 0 else "N" for n, size in enumerate(dimensions))
            yield (
                f"input {port.name} has the dynamic shape {port.shape}; where a device needs a fixed one: "
                f"docvino convert --input-shape {port.name}={example}"
            )


def _classes(beside: Beside, outputs: Sequence[Tensor]) -> Iterator[str]:
    if beside.dictionary is None:
        return
    sizes = [port.shape.strip("[]").split(",")[-1] for port in outputs]
    classes = [int(size) for size in sizes if size.isdigit()]
    entries = len(beside.dictionary)
    # CTC adds the blank and, where the dictionary has no space, the space; table decoders add a start and an end.
    if classes and not any(entries <= count <= entries + 2 for count in classes):
        yield (
            f"the dictionary ({beside.dictionary_from}) has {entries} entries, which with blank and space makes "
            f"{entries + 1} or {entries + 2} classes; the output has {', '.join(map(str, classes))}"
        )


def _missing(folder: Path, beside: Beside, paddle: bool) -> Iterator[str]:
    if beside.problem is not None:
        yield beside.problem
    elif paddle and beside.config is None:
        yield "there is no inference.yml beside it: nothing says how its input is resized and normalised"
    has_tokenizer = any((folder / name).is_file() for name in _TOKENIZERS)
    if beside.dictionary is None and _DECODERS.search(beside.decoder):
        if not _BY_TOKENIZER.search(beside.decoder):
            yield f"{beside.config} names {beside.decoder}, and there is no dictionary in it or beside it"
        elif not has_tokenizer:
            yield f"{beside.config} names {beside.decoder}, and there is no tokenizer.json beside it"
    signs = [name for name in _TOKENIZER_SIGNS if (folder / name).is_file()]
    if signs and not has_tokenizer:
        yield f"there is {signs[0]} and none of {', '.join(_TOKENIZERS)}"


def _with_dictionary(beside: Beside, text: str, origin: str) -> Beside:
    entries = tuple(line.removesuffix("\r") for line in text.removesuffix("\n").split("\n"))
    return Beside(**{**beside.__dict__, "dictionary": entries, "dictionary_from": origin})


def _from_config(name: str, config: yml.Value) -> Beside:
    if not isinstance(config, dict):
        raise ValueError("it is no mapping")
    steps = dict(_steps(config))
    normalise, decode = steps.get("NormalizeImage", {}), steps.get("DecodeImage", {})
    line = steps.get("RecResizeImg")
    post = config.get("PostProcess")
    post = post if isinstance(post, dict) else {}
    characters = post.get("character_dict")
    mean, std = _triple(normalise.get("mean")), _triple(normalise.get("std"))
    if line is not None and mean is None:
        mean = std = (0.5, 0.5, 0.5)  # RecResizeImg scales pixels to -1..1 itself
    return Beside(
        config=name,
        mean=mean or ImageNetMean,
        std=std or ImageNetStd,
        bgr=decode.get("img_mode") == "BGR" or line is not None,
        size=_size(steps),
        dictionary=tuple("" if entry is None else str(entry) for entry in characters)
        if isinstance(characters, list)
        else None,
        dictionary_from=name if isinstance(characters, list) else "",
        decoder=str(post.get("name") or ""),
    )


def _steps(config: dict[str, yml.Value]) -> Iterator[tuple[str, dict[str, yml.Value]]]:
    """Pre-processing steps by name, as PaddleX writes them ({name: {...}}) or as PaddleDetection does (type: name)."""
    section = config.get("PreProcess") or config.get("Preprocess")
    if isinstance(section, dict):
        section = section.get("transform_ops")
    for step in section if isinstance(section, list) else ():
        if isinstance(step, dict) and "type" in step:
            yield str(step["type"]), step
        elif isinstance(step, dict):
            for key, value in step.items():
                yield key, value if isinstance(value, dict) else {}


def _size(steps: dict[str, dict[str, yml.Value]]) -> tuple[int, int] | None:
    shape = steps.get("RecResizeImg", {}).get("image_shape")
    if isinstance(shape, list) and len(shape) == 3:
        return int(str(shape[1])), 0
    for step, key in (
        ("CropImage", "size"),
        ("Resize", "target_size"),
        ("ResizeImage", "size"),
        ("ResizeTableImage", "max_len"),
    ):
        value = steps.get(step, {}).get(key)
        if isinstance(value, str) and value.isdigit():
            return int(value), int(value)
        if isinstance(value, list) and len(value) == 2:
            return int(str(value[0])), int(str(value[1]))
    return None


def _triple(value: yml.Value) -> tuple[float, float, float] | None:
    if not isinstance(value, list) or len(value) != 3:
        return None
    first, second, third = (float(str(entry)) for entry in value)
    return first, second, third
