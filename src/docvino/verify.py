"""Proves on a device that converted models give the recorded answers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from docvino import golden, golden_vlm
from docvino.bundle import (
    VERIFICATION,
    VLM_PARTS,
    Bundle,
    VlmBundle,
    bundle_folder,
    open_bundle,
    open_vlm_bundle,
    write_json,
)
from docvino.codec.prompt import Tokenizer
from docvino.device import compile_model, compile_part, openvino_version, target_of
from docvino.errors import InferenceError, VerifyError
from docvino.golden_vlm import PartDifference
from docvino.selftest import FORMATS, judge
from docvino.settings import RuntimeConfig
from docvino.specs.model import ModelSpec
from docvino.stateful import StatefulReader


@dataclass(frozen=True)
class Verification:
    """How one model did on one device. `problem` is None when it passed."""

    spec: str
    precision: str
    device: str
    execution: str
    openvino: str
    reference: str
    problem: str | None
    max_abs_diff: float | None = None
    tolerance: float | None = None
    max_score_diff: float | None = None
    from_cache: bool = False
    compile_ms: float | None = None
    infer_ms: float | None = None


@dataclass(frozen=True)
class VlmVerification:
    """How a vision-language model did on one device. `problem` is None when it passed.

    parts        how far each graph was from the recorded numbers; `allowed` is the largest relative difference
    from_cache   how many of the graphs were loaded compiled
    """

    spec: str
    precision: str
    device: str
    execution: str
    openvino: str
    reference: str
    problem: str | None
    parts: tuple[PartDifference, ...] = ()
    allowed: float | None = None
    equal_tokens: int | None = None
    tokens: int | None = None
    from_cache: int | None = None
    compile_ms: float | None = None


V = TypeVar("V", Verification, VlmVerification)


def verify_model(spec: ModelSpec[Any], runtime: RuntimeConfig) -> Verification:
    """Checks the files of a bundle by sha256, runs its golden case on `runtime.device`, and compares.

    Writes the outcome to the bundle's verify.json. A model that cannot run is an outcome, too.

    Raises: BundleError when the model is not converted or a file is not what the manifest says.
    """
    bundle = open_bundle(bundle_folder(runtime.data_dir, spec.name, runtime.precision))
    bundle.check_files()
    runtime = runtime.on_stage("layout") if spec.role in ("layout", "document-layout") else runtime
    base = _base(spec.name, runtime.precision, runtime, golden.load_golden(bundle.golden).engine)
    try:
        started = time.perf_counter()
        model = compile_model(bundle.graph, spec, runtime)
        compiled = time.perf_counter()
        comparison = judge(bundle, spec, model)
        finished = time.perf_counter()
    except InferenceError as error:
        return _written(bundle, Verification(**base, problem=str(error)))
    return _written(
        bundle,
        Verification(
            **{**base, "device": ", ".join(model.devices)},
            **asdict(comparison),
            from_cache=model.compiled.from_cache,
            compile_ms=(compiled - started) * 1000,
            infer_ms=(finished - compiled) * 1000 / max(golden.REPEATS, model.slots),
        ),
    )


def verify_vlm(folder: Path, runtime: RuntimeConfig) -> VlmVerification:
    """Checks the files of a vision-language model by sha256 and runs its golden case on `runtime.device`.

    One sequence at a time, through the graphs as they lie on disk. Writes the outcome to the bundle's verify.json.

    Raises: BundleError when a file is not what the manifest says.
    """
    bundle = open_vlm_bundle(folder)
    bundle.check_files()
    case = golden_vlm.load_case(bundle.golden)
    tokenizer = Tokenizer.open(bundle.tokenizer)
    base = _base(bundle.manifest.spec, bundle.manifest.precision, runtime, case.engine)
    try:
        started = time.perf_counter()
        at = {"vision": runtime.on_stage("vision")}
        vision, embed, decoder = (
            compile_part(bundle.part(part), part, at.get(part, runtime.on_stage("decoder"))) for part in VLM_PARTS
        )
        compile_ms = (time.perf_counter() - started) * 1000
        reader = StatefulReader(vision, embed, decoder, tokenizer, bundle.facts)
        found = golden_vlm.run(reader, tokenizer, bundle.facts, case.image, case.task, follow=case.outputs.tokens)
    except InferenceError as error:
        return _written(bundle, VlmVerification(**base, problem=str(error)))
    parts = (vision, embed, decoder)
    formats = (bundle.manifest.precision, *(FORMATS[part.execution_precision] for part in parts))
    base["device"] = ", ".join(dict.fromkeys(device for part in parts for device in part.devices))
    # asdict would turn the parts into dictionaries.
    comparison = vars(golden_vlm.compare(case, found, formats))
    from_cache = sum(part.compiled.from_cache for part in parts)
    return _written(bundle, VlmVerification(**base, **comparison, from_cache=from_cache, compile_ms=compile_ms))


def _base(spec: str, precision: str, runtime: RuntimeConfig, reference: str) -> dict[str, Any]:
    """What is known before anything runs.

    Raises: DeviceError when the device is absent.
    """
    target = target_of(runtime)
    return {
        "spec": spec,
        "precision": precision,
        "device": target.device.name,
        "execution": target.execution,
        "openvino": openvino_version(),
        "reference": reference,
    }


def raise_failures(results: Sequence[Verification | VlmVerification]) -> None:
    """Raises: VerifyError that names the models whose answers are wrong."""
    failed = [f"{result.spec} ({result.problem})" for result in results if result.problem is not None]
    if failed:
        raise VerifyError(
            f"wrong on {results[0].device}: {'; '.join(failed)}",
            fix="use --execution f32, another --precision, or --device CPU",
        )


def _written(bundle: Bundle | VlmBundle, result: V) -> V:
    path = bundle.folder / VERIFICATION
    try:
        write_json(path, [asdict(result)])
    except OSError as error:
        raise VerifyError(
            f"cannot write {path.name}: {error.strerror}", fix="make the data directory writable"
        ) from error
    return result
