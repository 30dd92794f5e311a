"""Settings: what this machine is like (RuntimeConfig), what one call wants (ParseOptions), how to serve (ServeConfig).

Facts of a model are neither: they live in `docvino.specs`. Precedence, highest first: command-line flag,
`DOCVINO_*` environment variable, TOML file, default. `resolve` returns each value with its origin.
Nothing here reads the environment by itself: the caller passes it in.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from platformdirs import user_cache_path, user_config_path, user_data_path
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from docvino.document import Task
from docvino.errors import ConfigError, nearest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

AUTO = "AUTO"  # the device that docvino chooses; OpenVINO's own plugin of that name is not used
HIDDEN = "(hidden)"  # what is shown in place of a password
SECRETS = frozenset({"password", "api_key"})

WeightPrecision = Literal["fp32", "fp16", "int8", "int4"]
ExecutionPrecision = Literal["f32", "bf16", "f16"]
KvPrecision = Literal["u8", "f16", "f32"]
Layout = Literal["auto", "none", "whitespace", "picodet"]
Stage = Literal["layout", "vision", "decoder"]
LayoutShape = Literal["auto", "rect", "quad", "poly"]
LayoutMerge = Literal["auto", "large", "small", "union"]
HUBS = ("huggingface", "modelscope", "aistudio")


def _data_dir() -> Path:
    return user_data_path("docvino", appauthor=False)


def _cache_dir() -> Path:
    return user_cache_path("docvino", appauthor=False)


class RuntimeConfig(BaseModel):
    """Facts of this machine; each is `--name` on the command line and `DOCVINO_NAME` in the environment."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    preset: str = Field(
        "pp-ocr", description="which set of models reads the document, or the name of a converted PaddleOCR-VL model"
    )
    layout: Layout = Field(
        "auto",
        description="auto: the preset's own; none: a page is one element; whitespace: lines and ruled tables by ink; "
        "picodet: that model",
    )
    device: str = Field(
        AUTO,
        description="OpenVINO device: CPU, GPU (the strongest), GPU.0, GPU.1, NPU, or AUTO: a GPU with memory of its "
        "own, else any GPU, else the CPU",
    )
    layout_device: str | None = Field(None, description="device of the layout model; by default `device`")
    vision_device: str | None = Field(
        None, description="device of a vision-language model's vision tower; by default `device`"
    )
    decoder_device: str | None = Field(
        None, description="device of a vision-language model's decoder; by default `device`"
    )
    precision: WeightPrecision = Field(
        "fp32", description="stored weights: fp32, fp16, int8 or, for vision-language models, int4"
    )
    execution: ExecutionPrecision | None = Field(
        None, description="arithmetic on the device: f32, bf16 or f16; by default f32 on a CPU, f16 elsewhere"
    )
    async_slots: int | None = Field(
        None,
        ge=1,
        le=64,
        description="inference requests in flight for text lines; by default 4 on a GPU with memory of its own, 1 on "
        "an NPU, else 2",
    )
    max_rows: int = Field(16, ge=1, le=64, description="crops that a vision-language model decodes side by side")
    step_tokens: int = Field(512, ge=1, le=65_536, description="prompt tokens of one call of the decoder")
    kv_cache_mib: int = Field(1024, ge=1, description="memory for keys and values of the decoder, in MiB")
    kv_precision: KvPrecision | None = Field(
        None, description="stored keys and values: u8, f16 or f32; by default u8 on a CPU, f16 elsewhere"
    )
    self_test: bool = Field(
        True, description="compare each model with its recorded answers when it is first loaded on a device"
    )
    allow_fallback: bool = Field(
        False,
        description="where a device refuses a model or answers wrongly, compute it in f32, else on the CPU; where the "
        "decoder cannot run in paged form, read one crop at a time",
    )
    threads: int = Field(0, ge=0, le=1024, description="CPU threads for inference; 0 lets OpenVINO choose")
    model_cache: bool = Field(True, description="keep compiled models and passed self-tests between runs")
    data_dir: Path = Field(default_factory=_data_dir, description="where fetched and converted models live")
    cache_dir: Path = Field(
        default_factory=_cache_dir, description="where compiled models and passed self-tests are kept"
    )
    offline: bool = Field(False, description="never use the network")
    mirrors: tuple[str, ...] = Field(
        HUBS,
        min_length=1,
        description="where models of hubs are sought, in order: huggingface, modelscope, aistudio, URL",
    )

    def on_stage(self, stage: Stage) -> RuntimeConfig:
        """These settings with `device` being that of the stage."""
        own = {"layout": self.layout_device, "vision": self.vision_device, "decoder": self.decoder_device}[stage]
        return self if own is None else self.model_copy(update={"device": own})

    @field_validator("mirrors", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value

    @field_validator("mirrors")
    @classmethod
    def _known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for mirror in value:
            parts = urlsplit(mirror)
            if "@" in parts.netloc:
                # It would be shown wherever settings are.
                raise ValueError("a URL with user and password in it; put them into the file .netrc")
            if mirror not in HUBS and not (parts.scheme in ("http", "https") and parts.hostname):
                raise ValueError(f"{mirror} is neither a known hub nor an http(s) URL")
        return value


class ParseOptions(BaseModel):
    """The wish of one call."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pages: str | None = Field(None, description="pages to read, from 1: 1-3,7")
    dpi: float = Field(144.0, ge=36, le=1200, description="resolution at which PDF pages are rendered")
    password: str | None = Field(None, description="password of an encrypted PDF", repr=False)
    max_pixels: int = Field(100_000_000, ge=1, description="largest page in pixels")
    max_pages: int = Field(2000, ge=1, description="most pages of one document")
    auto_rotate: bool = Field(True, description="turn pages upright before reading")
    min_confidence: float = Field(0.5, ge=0, le=1, description="lines read with less confidence are left out")
    task: Task = Field("ocr", description="what a page without layout is: ocr, table, formula, chart, seal, spotting")
    layout_threshold: float | None = Field(
        None, ge=0, lt=1, description="least score of a region; by default the layout model's own"
    )
    layout_shape_mode: LayoutShape = Field(
        "auto", description="outlines of regions: rect, quad (turned rectangles), poly, or auto: what fits"
    )
    layout_nms: bool = Field(True, description="drop regions that cover a better one")
    layout_merge_bboxes_mode: LayoutMerge = Field(
        "auto", description="of regions in regions: large (keep the outer ones), small, union (all), or auto: by label"
    )
    layout_unclip_ratio: float = Field(1.0, gt=0, le=4, description="regions are made this many times as wide and high")
    merge_layout_blocks: bool = Field(True, description="read text that goes around a figure or on in a column as one")
    skip_dropped: bool = Field(
        False, description="do not read what Markdown leaves out: running heads, page numbers, notes in the margin"
    )
    use_chart_recognition: bool = Field(False, description="read charts as tables; else they are pictures")
    use_seal_recognition: bool = Field(False, description="read the text of seals; else they are pictures alone")
    use_ocr_for_image_block: bool = Field(False, description="read the text in images; else they are pictures alone")
    restructure_pages: bool = Field(
        False, description="pages are parts of one document: see merge_tables, relevel_titles and concatenate_pages"
    )
    merge_tables: bool = Field(
        True, description="with restructure_pages: a table that goes on over a page break is one table"
    )
    relevel_titles: bool = Field(True, description="with restructure_pages: headings get levels over all pages")
    concatenate_pages: bool = Field(
        False, description="with restructure_pages: the JSON of PaddleOCR-VL (res) is one result of all pages"
    )
    max_new_tokens: int | None = Field(None, ge=1, description="most tokens of one crop; by default the model's 4096")
    time_limit_s: float | None = Field(None, gt=0, description="most seconds of one crop; what was read is kept")
    loop_guard: bool = Field(True, description="end a text that goes in circles")
    temperature: float = Field(0.0, ge=0, description="0: the likeliest token; above: drawn, the higher the wilder")
    top_p: float = Field(1.0, gt=0, le=1, description="draw from the likeliest tokens of this probability together")
    seed: int = Field(0, ge=0, description="of the draws")


class ServeConfig(BaseModel):
    """How `docvino serve` answers: where, whom, and how much of anything."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field(
        "127.0.0.1", min_length=1, description="address to listen on; others than this machine's need a key"
    )
    port: int = Field(8080, ge=0, le=65535, description="port to listen on; 0: any free one")
    api_key: str | None = Field(
        None, min_length=1, repr=False, description="key that every request must carry, as a bearer token or X-API-Key"
    )
    auth: bool = Field(True, description="false: answer anybody who can reach the address, without a key")
    max_upload_mib: int = Field(100, ge=1, le=4096, description="largest request body in MiB")
    max_queue: int = Field(32, ge=1, le=10_000, description="documents that wait to be read; more are refused")
    sync_pages: int = Field(
        50, ge=1, description="most pages of a request that waits for its answer; longer ones are jobs"
    )
    sync_wait_s: float = Field(300.0, gt=0, description="most seconds that a request waits for its answer")
    document_limit_s: float = Field(7200.0, gt=0, description="most seconds that one document is read")
    page_limit_s: float = Field(600.0, gt=0, description="most seconds of one page, where the reader can be stopped")
    render_memory_mib: int = Field(
        2048, ge=256, description="memory of the process that decodes documents, in MiB; not limited on Windows"
    )
    render_limit_s: float = Field(
        60.0, gt=0, description="most seconds for decoding one page, or for writing one format"
    )
    max_jobs: int = Field(1000, ge=1, description="jobs that are kept; the oldest finished ones make room")
    job_hours: float = Field(168.0, gt=0, description="hours that a finished job is kept")
    allow_url_host: tuple[str, ...] = Field(
        (),
        description="hosts whose URLs are fetched: names, *.names, and addresses or networks for private ones; "
        "by default none",
    )

    @field_validator("allow_url_host", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


# Options that change nothing of what is read on a page.
AFTER_READING = frozenset({"restructure_pages", "merge_tables", "relevel_titles", "concatenate_pages"})


@dataclass(frozen=True)
class Origin:
    """Where a setting's value came from: a flag, an environment variable, a file, or the default.

    `value` is for people: no password and no key is in it.
    """

    value: object
    source: str


@dataclass(frozen=True)
class Settings:
    runtime: RuntimeConfig
    options: ParseOptions
    serve: ServeConfig
    origins: Mapping[str, Origin]


def default_config_file() -> Path:
    """The TOML file that is read when it exists: `docvino.toml` in the platform's configuration folder."""
    return user_config_path("docvino", appauthor=False) / "docvino.toml"


def setting_names() -> tuple[str, ...]:
    return (*RuntimeConfig.model_fields, *ParseOptions.model_fields, *ServeConfig.model_fields)


def resolve(
    flags: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    config_file: Path | None = None,
) -> Settings:
    """Merges flags, environment, TOML file and defaults into settings that know where each value came from.

    flags        by setting name; None means "not given"
    environ      variables to look at; those that start with DOCVINO_ must be known
    config_file  TOML with setting names as top-level keys; must exist when given

    Raises: ConfigError for an unknown name (naming the nearest one), a value out of range, an unreadable file.
    """
    known = setting_names()
    merged: dict[str, Origin] = {}
    for name, value in _read_toml(config_file, known).items():
        merged[name] = Origin(value, f"file {config_file}")
    for variable, text in sorted((environ or {}).items()):
        if not variable.startswith("DOCVINO_") or variable == "DOCVINO_CONFIG":
            continue
        name = variable.removeprefix("DOCVINO_").lower()
        if name not in known:
            variables = tuple("DOCVINO_" + key.upper() for key in known)
            raise ConfigError(f"unknown environment variable {variable}", fix=nearest(variable, variables))
        merged[name] = Origin(text, f"environment {variable}")
    for name, value in (flags or {}).items():
        if name not in known:
            raise ConfigError(f"unknown setting {name!r}", fix=nearest(name, known))
        if value is not None:
            merged[name] = Origin(value, f"flag --{name.replace('_', '-')}")
    runtime = _build(RuntimeConfig, merged)
    options = _build(ParseOptions, merged)
    serve = _build(ServeConfig, merged)
    origins = {
        name: Origin(_public(name, getattr(part, name)), merged[name].source if name in merged else "default")
        for part in (runtime, options, serve)
        for name in type(part).model_fields
    }
    return Settings(runtime=runtime, options=options, serve=serve, origins=origins)


def _read_toml(path: Path | None, known: tuple[str, ...]) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"cannot read settings file {path}: {error}", fix="give a readable TOML file") from error
    for name in table:
        if name not in known:
            raise ConfigError(f"unknown setting {name!r} in {path}", fix=nearest(name, known))
    return table


def _build(kind: type[Any], merged: Mapping[str, Origin]) -> Any:
    values = {name: merged[name].value for name in kind.model_fields if name in merged}
    try:
        return kind(**values)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        about = kind.model_fields[name].description
        raise ConfigError(
            f"bad value {_shown(name, merged[name].value)} for {name} ({merged[name].source}): {first['msg'].lower()}",
            fix=f"{name}: {about}",
        ) from None  # the original holds the value, which may be a password


def _public(name: str, value: object) -> object:
    return HIDDEN if name in SECRETS and value is not None else value


def _shown(name: str, value: object) -> str:
    return HIDDEN if name in SECRETS else re.sub(r"(?<=://)[^/\s'\"]*@", "****@", repr(value))
