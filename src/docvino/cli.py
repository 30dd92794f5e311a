"""The command line. Each command imports its room when it is chosen; stdout is the result, stderr the log."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.markup import escape
from rich.table import Table

from docvino import __version__
from docvino.cli_bench import bench
from docvino.cli_common import (
    CacheDir,
    Config,
    DataDir,
    DecoderDevice,
    Device,
    Execution,
    Json,
    LayoutDevice,
    Precision,
    Preset,
    VisionDevice,
    announce,
    complain,
    note,
    print_json,
    settings_of,
    stdout,
)
from docvino.cli_convert import convert, fetch, reference, verify
from docvino.cli_devices import cache, devices
from docvino.cli_doctor import doctor
from docvino.cli_finetune import finetune
from docvino.cli_models import models, toolchain
from docvino.cli_serve import serve
from docvino.errors import EXIT_PARTLY_DONE, ConfigError, DocvinoError
from docvino.settings import RuntimeConfig, Settings, setting_names

if TYPE_CHECKING:
    from docvino.outputs import Format
    from docvino.parser import Parser

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
app.add_typer(cache, name="cache")
for command in (doctor, devices, fetch, convert, reference, verify, finetune, bench, serve):
    app.command()(command)


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
    layout_nms: Annotated[
        bool | None,
        typer.Option("--layout-nms/--no-layout-nms", help="Drop regions that cover a better one. Default on."),
    ] = None,
    layout_merge_bboxes_mode: Annotated[
        str | None, typer.Option(help="Of regions in regions: large, small, union; auto (default) by label.")
    ] = None,
    layout_unclip_ratio: Annotated[
        float | None, typer.Option(help="Regions are made so many times as wide and high. Default 1.")
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
    restructure_pages: Annotated[
        bool | None,
        typer.Option(
            "--restructure-pages/--no-restructure-pages",
            help="Join tables over page breaks, give headings the levels of a whole document. Default off.",
        ),
    ] = None,
    merge_tables: Annotated[
        bool | None,
        typer.Option("--merge-tables/--no-merge-tables", help="With --restructure-pages: join tables. Default on."),
    ] = None,
    relevel_titles: Annotated[
        bool | None,
        typer.Option(
            "--relevel-titles/--no-relevel-titles", help="With --restructure-pages: levels of headings. Default on."
        ),
    ] = None,
    concatenate_pages: Annotated[
        bool | None,
        typer.Option(
            "--concatenate-pages/--no-concatenate-pages",
            help="With --restructure-pages: the format res is one result of all pages. Default off.",
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
    layout_device: LayoutDevice = None,
    vision_device: VisionDevice = None,
    decoder_device: DecoderDevice = None,
    precision: Precision = None,
    execution: Execution = None,
    async_slots: Annotated[
        int | None, typer.Option(help="Inferences of text lines in flight. Default 2, on a graphics card 4.")
    ] = None,
    max_rows: Annotated[int | None, typer.Option(help="Elements decoded side by side. Default 16.")] = None,
    step_tokens: Annotated[int | None, typer.Option(help="Prompt tokens of one decoder call. Default 512.")] = None,
    kv_cache_mib: Annotated[int | None, typer.Option(help="Memory for keys and values, MiB. Default 1024.")] = None,
    kv_precision: Annotated[
        str | None, typer.Option(help="Stored keys and values: u8, f16, f32. Default u8 on a CPU, else f16.")
    ] = None,
    self_test: Annotated[
        bool | None,
        typer.Option("--self-test/--no-self-test", help="Test a model when first loaded on a device. Default on."),
    ] = None,
    allow_fallback: Annotated[
        bool | None,
        typer.Option(
            "--allow-fallback",
            help="Where a device refuses a model or answers wrongly, use f32, else the CPU, and say so.",
            show_default=False,
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
    announce(settings.runtime)
    if out is None:
        _parse_to_stdout(files[0], settings, wanted[0], pretty=pretty)
        return
    from docvino.batch import Batch, exit_code
    from docvino.cli_progress import run_with_progress

    with _opened(settings.runtime) as parser:
        parser.check(settings.options)
        batch = Batch(parser, out, settings.options, formats=wanted, pretty=pretty, resume=resume)
        outcomes = run_with_progress(batch, files)
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
    from docvino.cli_progress import run_with_progress
    from docvino.demo import DEMO_PRESETS, prepare, write_page

    chosen = settings.origins["preset"].source != "default"
    names = (settings.runtime.preset,) if chosen else DEMO_PRESETS
    announce(settings.runtime)
    page = write_page(out)
    outcomes, said = [], []
    for name in names:
        runtime = settings.runtime.model_copy(update={"preset": name})
        prepare(name, runtime, note)
        with _opened(runtime) as parser:
            (outcome,) = run_with_progress(Batch(parser, out / name, settings.options), [str(page)])
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


@contextmanager
def _opened(runtime: RuntimeConfig) -> Iterator[Parser]:
    """The parser, loaded: that takes some seconds with models of gigabytes."""
    from docvino.cli_progress import loading
    from docvino.parser import Parser

    with ExitStack() as stack:
        with loading(runtime.preset):
            parser = stack.enter_context(Parser.open(runtime))
        yield parser


def _parse_to_stdout(argument: str, settings: Settings, kind: Format, *, pretty: bool) -> None:
    from docvino.cli_progress import page_bar
    from docvino.outputs import text_of
    from docvino.parser import open_source

    options = settings.options
    with open_source(argument, options) as opened, _opened(settings.runtime) as parser:
        parsed = []
        with page_bar(len(opened.page_indices)) as (page_done, within_page):
            for item in parser.pages(opened, options, watch=within_page):
                parsed.append(replace(item, image=None))
                page_done(len(parsed), len(opened.page_indices))
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
