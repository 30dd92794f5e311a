"""The command `docvino serve`."""

from __future__ import annotations

from contextlib import closing
from importlib.util import find_spec
from typing import Annotated

import typer

from docvino.cli_common import (
    CacheDir,
    Config,
    DataDir,
    DecoderDevice,
    Device,
    Execution,
    LayoutDevice,
    Precision,
    Preset,
    VisionDevice,
    announce,
    note,
    settings_of,
)
from docvino.errors import MissingExtraError


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on. Default 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 takes any free one. Default 8080.")] = None,
    api_key: Annotated[
        str | None, typer.Option(help="Key that requests must carry; better DOCVINO_API_KEY, which ps does not show.")
    ] = None,
    auth: Annotated[
        bool | None, typer.Option("--auth/--no-auth", help="Listen on any address without a key. Default --auth.")
    ] = None,
    max_upload_mib: Annotated[int | None, typer.Option(help="Largest request in MiB. Default 100.")] = None,
    max_queue: Annotated[int | None, typer.Option(help="Documents that wait; more get 429. Default 32.")] = None,
    sync_pages: Annotated[
        int | None, typer.Option(help="Most pages of a request that waits for its answer. Default 50.")
    ] = None,
    sync_wait_s: Annotated[float | None, typer.Option(help="Most seconds that it waits. Default 300.")] = None,
    document_limit_s: Annotated[float | None, typer.Option(help="Most seconds of a document. Default 7200.")] = None,
    page_limit_s: Annotated[float | None, typer.Option(help="Most seconds of a page. Default 600.")] = None,
    render_memory_mib: Annotated[
        int | None, typer.Option(help="Memory of the process that decodes documents. Default 2048.")
    ] = None,
    render_limit_s: Annotated[float | None, typer.Option(help="Most seconds to decode a page. Default 60.")] = None,
    max_jobs: Annotated[int | None, typer.Option(help="Jobs that are kept. Default 1000.")] = None,
    job_hours: Annotated[float | None, typer.Option(help="Hours that a finished job is kept. Default 168.")] = None,
    allow_url_host: Annotated[
        str | None,
        typer.Option(help="By comma: hosts whose URLs are fetched; addresses or networks for private ones."),
    ] = None,
    max_pages: Annotated[int | None, typer.Option(help="Most pages of one document. Default 2000.")] = None,
    max_pixels: Annotated[int | None, typer.Option(help="Largest page in pixels. Default 100000000.")] = None,
    dpi: Annotated[float | None, typer.Option(help="Resolution for PDF pages. Default 144.")] = None,
    layout: Annotated[str | None, typer.Option(help="auto (default), none, whitespace or picodet.")] = None,
    preset: Preset = None,
    device: Device = None,
    layout_device: LayoutDevice = None,
    vision_device: VisionDevice = None,
    decoder_device: DecoderDevice = None,
    precision: Precision = None,
    execution: Execution = None,
    max_rows: Annotated[int | None, typer.Option(help="Elements decoded side by side. Default 16.")] = None,
    kv_cache_mib: Annotated[int | None, typer.Option(help="Memory for keys and values, MiB. Default 1024.")] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads; 0 lets OpenVINO choose.")] = None,
    allow_fallback: Annotated[
        bool | None,
        typer.Option(
            "--allow-fallback",
            help="Where a device refuses a model or answers wrongly, use f32, else the CPU, and say so.",
            show_default=False,
        ),
    ] = None,
    data_dir: DataDir = None,
    cache_dir: CacheDir = None,
    config: Config = None,
) -> None:
    """Reads documents for others, over HTTP. Needs the extra serve.

    Listens on this machine only unless --host says otherwise, which needs a key (DOCVINO_API_KEY) or --no-auth. Other
    settings of `docvino parse` come from DOCVINO_* and the settings file, and are what requests do not say.
    """
    given = {key: value for key, value in locals().items() if key != "config"}
    settings = settings_of(config, **given)
    for module, package in (("fastapi", "fastapi"), ("uvicorn", "uvicorn"), ("python_multipart", "python-multipart")):
        if find_spec(module) is None:
            raise MissingExtraError(f"the service needs the package {package}", fix='pip install "docvino[serve]"')
    from docvino.cli_progress import loading
    from docvino.parser import Parser
    from docvino.serve import run

    run.check_safe(settings.serve)
    with closing(run.listen(settings.serve)) as listening:
        announce(settings.runtime)
        with loading(settings.runtime.preset):
            parser = Parser.open(settings.runtime, shared=True)
        with parser:
            run.serve(settings, listening, parser, lambda address: note(f"docvino serves at {address}"))
