"""The service without HTTP: one parser, a queue, jobs on disk, and how each kind of request is read."""

from __future__ import annotations

import logging
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from docvino.batch import reading_key, safe_name, save_pictures
from docvino.document import Answer, Document, Page, Task
from docvino.errors import ConfigError, DocvinoError, InputError
from docvino.inputs import InputDocument
from docvino.outputs import write_atomically
from docvino.parser import ParsedPage, Parser
from docvino.render.json import to_json
from docvino.render.picture import encode_jpeg
from docvino.serve.jobs import Job, JobError, JobStore
from docvino.serve.metrics import Metrics
from docvino.serve.problems import RefusalError, refusal
from docvino.serve.rendering import Renderer
from docvino.serve.results import Output, Writer
from docvino.serve.worker import Stop, StoppedError, Worker
from docvino.settings import ParseOptions, ServeConfig, Settings

_log = logging.getLogger("docvino.serve")

_T = TypeVar("_T")
READERS = 8  # documents that are read at a time; each holds the pixels of a page
_END_LIMIT_S = 20.0

PageDone = Callable[[int, ParsedPage], None]


@dataclass(eq=False)
class Waiting:
    """A reading that somebody waits for; `folder` has its source and pictures, and is removed by `Service.forget`."""

    folder: Path
    stop: Stop
    future: Future[Document]


@dataclass(eq=False)
class Service:
    """What answers. Threads may share it."""

    parser: Parser
    options: ParseOptions
    config: ServeConfig
    store: JobStore
    renderer: Renderer
    worker: Worker
    writer: Writer
    metrics: Metrics
    closing: threading.Event = field(default_factory=threading.Event)
    _stops: dict[str, Stop] = field(default_factory=dict)
    _passwords: dict[str, str] = field(default_factory=dict, repr=False)
    _deleted: set[str] = field(default_factory=set)

    @classmethod
    @contextmanager
    def open(cls, parser: Parser, settings: Settings) -> Iterator[Service]:
        """The service on a parser that is open; jobs of an earlier process go on.

        Raises: ConfigError when the data folder cannot be used.
        """
        config = settings.serve
        root = settings.runtime.data_dir / "service"
        metrics = Metrics()
        with ExitStack() as stack:
            try:
                store = JobStore(root, config.max_jobs, config.job_hours * 3600)
            except (OSError, sqlite3.Error) as error:
                raise ConfigError(f"cannot keep jobs in {root}: {error}", fix="choose another --data-dir") from error
            stack.callback(store.close)
            deaths = lambda: metrics.count("docvino_renderer_deaths_total")  # noqa: E731
            renderer = stack.enter_context(Renderer(config.render_memory_mib, config.render_limit_s, deaths))
            worker = Worker(READERS, config.max_queue)
            writer = Writer(config.render_memory_mib, config.render_limit_s)
            service = cls(parser, settings.options, config, store, renderer, worker, writer, metrics)
            stack.callback(service.close)
            metrics.watch("docvino_queue_documents", lambda: float(worker.waiting))
            metrics.watch("docvino_queue_limit", lambda: float(config.max_queue))
            metrics.watch("docvino_reading_documents", lambda: float(worker.running))
            service.resume()
            yield service

    def begin_end(self) -> None:
        """Refuses what is new and ends what is being read, at its next step; waits for nothing."""
        self.closing.set()
        self.worker.close(0.0)

    def close(self) -> None:
        """Ends what is being read; jobs go on at the next start."""
        self.begin_end()
        if not self.worker.close(_END_LIMIT_S):
            _log.warning("a page was still being read when the service ended")

    # ---- documents that somebody waits for

    def temporary(self) -> Path:
        return self.store.temporary()

    def forget(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)

    def read_now(self, folder: Path, name: str, options: ParseOptions) -> Waiting:
        """Reads the source of a folder of `temporary`.

        Raises: RefusalError, ConfigError.
        """
        self.parser.check(options)
        stop = self._stop()

        def call() -> Document:
            return self._counted(lambda: self._read_waiting(folder, name, options, stop))

        return Waiting(folder, stop, self.worker.submit(stop, call))

    def _read_waiting(self, folder: Path, name: str, options: ParseOptions, stop: Stop) -> Document:
        with self._opened(folder, name, options) as opened:
            pages = len(opened.page_indices)
            if pages > self.config.sync_pages:
                raise RefusalError(
                    422,
                    "too_many_pages",
                    f"{pages} pages, and a request that waits for its answer has {self.config.sync_pages} at most",
                    fix="send it to POST /v1/jobs, or choose some with pages",
                )
            document = self._read(opened, options, stop, folder)
        write_atomically(folder / "document.json", to_json(document))
        return document

    def read_element(self, folder: Path, task: Task, options: ParseOptions) -> tuple[Stop, Future[Answer]]:
        """What the model says of the first page of the source, as one element.

        Raises: RefusalError.
        """
        stop = self._stop()

        def call() -> Answer:
            stop.begin_page()
            with self._opened(folder, "image", options) as opened:
                image = opened.page(opened.page_indices[0])
            answer = self.parser.read_element(image, task, options, stop.within_page)
            self._count_tokens(answer.prompt_tokens, answer.tokens)
            return answer

        return stop, self.worker.submit(stop, call)

    def compute(self, call: Callable[[], _T]) -> tuple[Stop, Future[_T]]:
        """Anything else that takes its time, in its turn.

        Raises: RefusalError.
        """
        stop = self._stop()
        return stop, self.worker.submit(stop, call)

    # ---- jobs

    def create_job(self, folder: Path, name: str, options: ParseOptions) -> Job:
        """A job of the source in a folder of `temporary`.

        Raises: RefusalError, ConfigError; InputError when the document cannot be opened.
        """
        self.parser.check(options)
        self.worker.admit()
        with self._opened(folder, name, options):
            pass  # what is no document is told at once
        kept = options.model_dump(exclude={"password"}, exclude_defaults=True)
        job = self.store.add(folder, name, kept, locked=options.password is not None)
        if options.password is not None:
            self._passwords[job.id] = options.password
        try:
            self._submit(job, options)
        except RefusalError:
            self.store.remove(job.id)
            raise
        return job

    def resume(self) -> None:
        """Puts the jobs that an earlier process left into the queue."""
        for job, kept, locked in self.store.unfinished():
            if locked:
                why = "the document is locked, and its password was not kept when the service ended"
                self.store.end(job.id, "failed", JobError(code="bad_document", message=why, fix="send it again"))
                continue
            self._submit(job, ParseOptions(**kept), always=True)

    def _submit(self, job: Job, options: ParseOptions, *, always: bool = False) -> None:
        stop = self._stops[job.id] = self._stop()
        try:
            self.worker.submit(stop, lambda: self._run_job(job, options, stop), always=always)
        except RefusalError:
            del self._stops[job.id]
            raise

    def _run_job(self, job: Job, options: ParseOptions, stop: Stop) -> None:
        folder = self.store.folder(job.id)
        try:
            self._counted(lambda: self._read_job(folder, job, options, stop))
        except StoppedError as stopped:
            if stopped.reason == "cancelled":
                self.store.end(job.id, "cancelled")
            elif stopped.reason == "time":
                why = f"it was not read within {self.config.document_limit_s:g} s"
                self.store.end(job.id, "failed", JobError(code="too_slow", message=why, fix="choose some with pages"))
        except DocvinoError as error:
            said = refusal(error)
            self.store.end(job.id, "failed", JobError(code=said.code, message=str(said), fix=said.fix))
        except Exception as error:  # noqa: BLE001 - a job ends, whatever happens
            if job.id in self._deleted:
                return
            log_fault(f"job {job.id}", error)
            self.store.end(job.id, "failed", INTERNAL)
        else:
            self.store.end(job.id, "done")
        finally:
            self._stops.pop(job.id, None)
            if job.id in self._deleted:
                self._deleted.discard(job.id)
                self.forget(folder)

    def _read_job(self, folder: Path, job: Job, options: ParseOptions, stop: Stop) -> Document:
        with self._opened(folder, job.name, options) as opened:
            key = reading_key(self.parser, opened.source, options)
            kept = self.store.begin(job.id, len(opened.page_indices), key)
            finished = {opened.page_indices[position]: item for position, item in kept.items()}
            done: PageDone = lambda position, item: self.store.page_done(job.id, position, item)  # noqa: E731
            document = self._read(opened, options, stop, folder, finished, done)
        if all(page.status == "failed" for page in document.pages):
            raise InputError(
                f"no page could be read; the first: {document.pages[0].error}", fix="see the pages' own errors"
            )
        write_atomically(folder / "document.json", to_json(document))
        return document

    def cancel(self, job_id: str) -> Job:
        """Raises: RefusalError (404)."""
        job = self.store.get(job_id)
        stop = self._stops.get(job_id)
        if stop is not None:
            stop.set("cancelled")
        if job.status == "queued":
            self._stops.pop(job_id, None)
            self.store.end(job_id, "cancelled")  # it is seen at once, and skipped when its turn comes
        return self.store.get(job_id)

    def delete(self, job_id: str) -> None:
        """Raises: RefusalError (404)."""
        self.cancel(job_id)
        self._passwords.pop(job_id, None)
        if job_id in self._stops:
            self._deleted.add(job_id)  # its reader may write once more
        self.store.remove(job_id)

    def result(self, job_id: str, name: str) -> Output:
        """Raises: RefusalError."""
        document = self.store.document(job_id)
        return self.writer.write(self.store.folder(job_id), document, name, self._options_of(job_id))

    def page_picture(self, job_id: str, position: int) -> bytes:
        """The page as it was read, upright, as JPEG: boxes are in its pixels.

        Raises: RefusalError (404), InputError.
        """
        page = self.store.page(job_id, position)
        folder, name = self.store.folder(job_id), self.store.get(job_id).name
        with self._opened(folder, name, self._options_of(job_id)) as opened:
            image = opened.page(page.page_index)
        return encode_jpeg(image.pixels, page.rotation_degrees)

    def page_pixels(
        self, folder: Path, name: str, options: ParseOptions, pages: Iterable[Page]
    ) -> Iterator[tuple[Page, NDArray[np.uint8]]]:
        """Each page with its pixels, uint8 (H, W, 3) RGB, upright. Raises: InputError."""
        with self._opened(folder, name, options) as opened:
            for page in pages:
                yield page, np.rot90(opened.page(page.page_index).pixels, -page.rotation_degrees // 90)

    def _options_of(self, job_id: str) -> ParseOptions:
        return ParseOptions(**{**self.store.options(job_id), "password": self._passwords.get(job_id)})

    # ---- reading

    def _stop(self) -> Stop:
        return Stop(self.config.document_limit_s, self.config.page_limit_s)

    @contextmanager
    def _opened(self, folder: Path, name: str, options: ParseOptions) -> Iterator[InputDocument]:
        with self.renderer.open((folder / "source").read_bytes(), name, options) as opened:
            yield opened

    def _read(
        self,
        opened: InputDocument,
        options: ParseOptions,
        stop: Stop,
        folder: Path,
        finished: Mapping[int, ParsedPage] = MappingProxyType({}),
        page_done: PageDone = lambda _position, _item: None,
    ) -> Document:
        """Raises: StoppedError, and as `Parser.pages`."""
        parsed = []
        pages = self.parser.pages(opened, options, finished, stop.within_page)
        for position, index in enumerate(opened.page_indices):
            stop.begin_page()
            item = next(pages)
            if index not in finished:
                save_pictures(folder, item)
                page_done(position, item)
                self._count_page(item)
            parsed.append(replace(item, image=None))
        return self.parser.collect(opened.source, parsed, options)

    def _counted(self, read: Callable[[], Document]) -> Document:
        try:
            document = read()
        except StoppedError as stopped:
            self.metrics.count("docvino_documents_total", status=stopped.reason)
            raise
        except BaseException:
            self.metrics.count("docvino_documents_total", status="failed")
            raise
        self.metrics.count("docvino_documents_total", status="done")
        return document

    def _count_page(self, item: ParsedPage) -> None:
        self.metrics.count("docvino_pages_total", status=item.page.status)
        for name, value in item.stats.model_dump().items():
            if name.endswith("_ms"):
                self.metrics.count("docvino_stage_seconds_total", value / 1000, stage=name.removesuffix("_ms"))
        self._count_tokens(item.stats.prompt_tokens, item.stats.tokens)

    def _count_tokens(self, prompt: int, generated: int) -> None:
        self.metrics.count("docvino_tokens_total", prompt, kind="prompt")
        self.metrics.count("docvino_tokens_total", generated, kind="generated")


INTERNAL = JobError(
    code="internal_error", message="something went wrong inside of docvino", fix="see the log by the request's id"
)


def log_fault(what: str, error: BaseException) -> None:
    """Where it happened, without what it says: that may hold text of a document."""
    places = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        places.append(f"{Path(code.co_filename).name}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    _log.error("%s: %s at %s", what, type(error).__name__, " < ".join(reversed(places[-8:])))


def clean_name(name: str | None) -> str:
    """A file name as it may stand in a folder and in a header: no folders, no control characters, at most 120 long."""
    return safe_name((name or "document").replace("\\", "/").rpartition("/")[2]) if name else "document"
