"""A PaddleOCR-VL folder from Hugging Face -> a bundle of three OpenVINO graphs, compared with recorded numbers."""

from __future__ import annotations

import gc
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from docvino import __version__, golden_vlm
from docvino.bundle import (
    FACTS,
    GOLDEN,
    MANIFEST,
    MANIFEST_VERSION,
    TOKENIZER,
    VERIFICATION,
    VLM_PARTS,
    GraphContract,
    VlmBundle,
    VlmManifest,
    building,
    file_sha256,
    open_vlm_bundle,
    write_json,
)
from docvino.codec.prompt import Tokenizer, build_prompt
from docvino.convert import vlm_facts
from docvino.convert.inspect import tensor
from docvino.convert.safetensors import INDEX, Weights, find_files
from docvino.convert.vlm_facts import read_facts
from docvino.convert.vlm_graph import RENAMED, build_decoder, build_embed, build_vision, tensor_shapes
from docvino.device import Model, compile_part, first_line, openvino_version
from docvino.errors import ConvertError
from docvino.golden_vlm import VlmCase, VlmComparison
from docvino.settings import RuntimeConfig, WeightPrecision
from docvino.specs.vlm import VlmFacts
from docvino.stateful import StatefulReader

OWN_STEPS = 16  # greedy tokens of a case that the conversion records itself

_OWN_ENGINE = "this conversion"


@dataclass(frozen=True)
class VlmConversion:
    """`comparison` is None when there was no reference to compare with: the golden case is the conversion's own.

    peak_mib   most memory the process had, mapped pages of the weight files included; None where it cannot be read
    """

    bundle: VlmBundle
    comparison: VlmComparison | None
    seconds: float
    peak_mib: float | None
    size_bytes: int


def model_name(folder: Path) -> str:
    """A model's name out of its folder's: small letters, digits, dots, dashes, e.g. paddleocr-vl-1.6."""
    return re.sub(r"[^a-z0-9.]+", "-", folder.resolve().name.lower()).strip("-.") or "paddleocr-vl"


def convert_vlm(
    folder: Path,
    out: Path,
    precision: WeightPrecision,
    *,
    reference: Path | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> VlmConversion:
    """Builds the bundle `out`, a path ending in NAME-PRECISION, which is replaced whole when it is there.

    reference   a golden case that `docvino.reference` recorded of the same folder, else the folder's own golden.npz;
                without one the graphs are run once on the CPU and their own numbers are kept, for other devices to be
                compared with

    Weights go through memory part by part, each part written before the next is read.

    Raises: ConvertError for a folder that is incomplete, damaged, of another architecture, or whose graphs compute
    other numbers than the reference; BundleError when `out` cannot be written.
    """
    name, _, ending = out.name.rpartition("-")
    if not name or ending != precision:
        raise ConvertError(f"a bundle at {precision} cannot be named {out.name}", fix=f"name it NAME-{precision}")
    started = time.perf_counter()
    facts = read_facts(folder)
    if reference is None and (folder / GOLDEN).is_file():
        reference = folder / GOLDEN
    case = None if reference is None else golden_vlm.load_case(reference)
    # A prompt that cannot be built makes the model useless: find out before the long part.
    tokenizer = Tokenizer.open(folder / TOKENIZER)
    for task in facts.tasks:
        build_prompt(tokenizer, task, (2, 2), facts)
    graphs: dict[str, GraphContract] = {}
    files = find_files(folder)
    with building(out) as workspace:
        with Weights(files, RENAMED) as weights:
            weights.check(tensor_shapes(facts))
            for part in VLM_PARTS:
                begun = time.perf_counter()
                graphs[part] = _write_part(weights, facts, part, precision, workspace)
                stored = ", ".join(f"{kind} {size / 1e6:.1f} MB" for kind, size in graphs[part].weights.items())
                report(f"{name} {part}: {stored}, {time.perf_counter() - begun:.1f} s{_peak_text()}")
            unused = weights.unused
        if unused:
            report(f"{name}: not needed {', '.join(f'{key} {list(shape)}' for key, shape in unused.items())}")
        shutil.copyfile(folder / TOKENIZER, workspace / TOKENIZER)
        (workspace / FACTS).write_text(facts.model_dump_json(indent=2) + "\n", encoding="utf-8")
        comparison = _judge(workspace, facts, tokenizer, precision, case)
        manifest = VlmManifest(
            kind="vlm",
            manifest_version=MANIFEST_VERSION,
            spec=name,
            precision=precision,
            sources=_sources(folder, files),
            unused=tuple(unused),
            docvino=__version__,
            openvino=openvino_version(),
            graphs=graphs,
            files={path.name: file_sha256(path) for path in sorted(workspace.iterdir())},
        )
        (workspace / MANIFEST).write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")
        write_json(workspace / VERIFICATION, [])
        size = sum(path.stat().st_size for path in workspace.iterdir())
    return VlmConversion(open_vlm_bundle(out), comparison, time.perf_counter() - started, peak_mib(), size)


def _write_part(
    weights: Weights, facts: VlmFacts, part: str, precision: WeightPrecision, workspace: Path
) -> GraphContract:
    if part == "embed":
        model = build_embed(weights, precision)
    else:
        model = (build_vision if part == "vision" else build_decoder)(weights, facts, precision)
    try:
        ov.save_model(model, workspace / f"{part}.xml", compress_to_fp16=False)
    except RuntimeError as error:
        raise ConvertError(f"OpenVINO cannot write {part}: {first_line(error)}", fix="free some space") from error
    stored: Counter[str] = Counter()
    for op in model.get_ops():
        if op.get_type_name() == "Constant":
            stored[op.get_element_type().get_type_name()] += op.get_byte_size()
    contract = GraphContract(
        inputs=tuple(tensor(port) for port in model.inputs),
        outputs=tuple(tensor(port) for port in model.outputs),
        weights=dict(stored.most_common()),
    )
    del model
    gc.collect()  # graphs are cycles of objects: their constants would outlive them
    weights.forget_pages()
    return contract


def _judge(
    workspace: Path, facts: VlmFacts, tokenizer: Tokenizer, precision: WeightPrecision, case: VlmCase | None
) -> VlmComparison | None:
    """Runs the graphs on the CPU in float32 and compares with the case; writes the case, or the run's own as one."""
    on_cpu = RuntimeConfig(device="CPU", execution="f32", model_cache=False)
    embed, decoder = (_OnDemand(workspace / f"{part}.xml", on_cpu) for part in ("embed", "decoder"))
    vision = _OnDemand(workspace / "vision.xml", on_cpu, keep=False)
    reader = StatefulReader(vision, embed, decoder, tokenizer, facts)
    if case is None:
        image = golden_vlm.sample_image()
        own = golden_vlm.run(reader, tokenizer, facts, image, "ocr", steps=OWN_STEPS)
        case = VlmCase(image, "ocr", own, tokenizer.decode(own.tokens), _OWN_ENGINE)
        golden_vlm.save_case(workspace / GOLDEN, case)
        return None
    found = golden_vlm.run(reader, tokenizer, facts, case.image, case.task, follow=case.outputs.tokens)
    comparison = golden_vlm.compare(case, found, (precision,))
    if comparison.problem is not None:
        raise ConvertError(
            f"the graphs at {precision} compute other numbers than {case.engine}: {comparison.problem}",
            fix="check that the reference is of this model; use --precision fp32, and report this if it fails, too",
        )
    golden_vlm.save_case(workspace / GOLDEN, case)
    return comparison


class _OnDemand:
    """A graph that is compiled when it is first run; one that is not kept leaves its memory to the next."""

    def __init__(self, path: Path, runtime: RuntimeConfig, *, keep: bool = True) -> None:
        self._path, self._runtime, self._keep = path, runtime, keep
        self._model: Model | None = None

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[np.float32]]:
        model = self._compiled()
        if not self._keep:
            self._model = None
        return model.run(inputs)

    def reset_state(self) -> None:
        self._compiled().reset_state()

    def _compiled(self) -> Model:
        if self._model is None:
            self._model = compile_part(self._path, self._path.stem, self._runtime)
        return self._model


def _sources(folder: Path, files: tuple[Path, ...]) -> dict[str, str]:
    """sha256 of every file that the conversion read."""
    names = (
        vlm_facts.CONFIG,
        vlm_facts.PREPROCESSOR,
        vlm_facts.PROCESSOR,
        vlm_facts.GENERATION,
        vlm_facts.TEMPLATE,
        TOKENIZER,
        INDEX,
    )
    read = [folder / name for name in names if (folder / name).is_file()]
    return {path.name: file_sha256(path) for path in (*read, *files)}


def peak_mib() -> float | None:
    """Most resident memory of this process so far, in MiB; None where the system does not say."""
    if sys.platform == "win32":
        return None
    import resource

    kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kib / (1024 * 1024 if sys.platform == "darwin" else 1024)


def _peak_text() -> str:
    peak = peak_mib()
    return "" if peak is None else f", peak memory {peak:.0f} MiB"
