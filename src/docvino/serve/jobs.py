"""Jobs on disk: a table in SQLite, and a folder for each. They outlive the process, however it ends.

ROOT/jobs.db                     one row per job and per finished page
ROOT/jobs/ID/source              the document as it was sent
ROOT/jobs/ID/reading.json        what the pages were read with: others are not taken
ROOT/jobs/ID/read/3.json         a finished page, from 0 in the order of reading, with its times
ROOT/jobs/ID/document.json       the whole, when all are read
ROOT/jobs/ID/images/p1-b3.png    figures

A password is never written: a job that needs one and was interrupted has to be sent again.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from pydantic import BaseModel, Field, ValidationError

from docvino.document import Document, Page, PageStatus, Stats
from docvino.outputs import write_atomically
from docvino.parser import ParsedPage
from docvino.serve.problems import RefusalError, not_found

Status = Literal["queued", "running", "done", "failed", "cancelled"]
ACTIVE: tuple[Status, ...] = ("queued", "running")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, status TEXT NOT NULL, options TEXT NOT NULL, locked INTEGER NOT NULL,
    created REAL NOT NULL, started REAL, finished REAL, pages_total INTEGER, kept INTEGER NOT NULL DEFAULT 0,
    error TEXT);
CREATE TABLE IF NOT EXISTS pages (
    number INTEGER PRIMARY KEY AUTOINCREMENT, job TEXT NOT NULL REFERENCES jobs(id) ON DELETE CASCADE,
    position INTEGER NOT NULL, status TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS pages_of_job ON pages(job, number);
"""


class JobError(BaseModel):
    """Why a job failed, or was given up."""

    code: str
    message: str
    fix: str


class Job(BaseModel):
    """One document that is read in the background."""

    id: str
    name: str = Field(description="file name of the document")
    status: Status
    pages_total: int | None = Field(description="pages to read; null until the document was opened")
    pages_done: int = Field(description="pages read so far, those that failed among them")
    pages_failed: int = Field(description="pages that could not be read")
    pages_kept: int = Field(description="pages that were finished before the service was started again, not read anew")
    created: float = Field(description="seconds since 1970")
    started: float | None = None
    finished: float | None = None
    error: JobError | None = None


@dataclass(frozen=True)
class PageDone:
    """A page that is finished; `position` counts from 0 in the order of reading, `number` orders all events."""

    number: int
    position: int
    status: PageStatus


class JobStore:
    """All jobs. Threads may share it."""

    def __init__(self, root: Path, max_jobs: int, keep_s: float) -> None:
        """Raises: OSError, sqlite3.Error when the folder cannot be used."""
        self._root, self._max_jobs, self._keep_s = root, max_jobs, keep_s
        (root / "jobs").mkdir(parents=True, exist_ok=True, mode=0o700)
        shutil.rmtree(root / "tmp", ignore_errors=True)  # requests of an earlier process
        (root / "tmp").mkdir(mode=0o700)
        self._lock = threading.RLock()
        self._db = sqlite3.connect(root / "jobs.db", check_same_thread=False, timeout=10, isolation_level=None)
        self._db.row_factory = sqlite3.Row
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON", "auto_vacuum=FULL"):
            self._db.execute(f"PRAGMA {pragma}")
        self._db.executescript(_SCHEMA)

    def close(self) -> None:
        with self._lock:
            self._db.close()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                self._db.execute("ROLLBACK")
                raise

    def temporary(self) -> Path:
        """A new folder that is gone at the next start."""
        folder = self._root / "tmp" / uuid4().hex
        folder.mkdir(mode=0o700)
        return folder

    def folder(self, job_id: str) -> Path:
        return self._root / "jobs" / job_id

    def add(self, prepared: Path, name: str, options: dict[str, Any], *, locked: bool) -> Job:
        """Makes a job of a folder of `temporary`, which holds the source.

        Raises: RefusalError when there are too many that are not finished.
        """
        self.clean()
        job_id = uuid4().hex
        with self._writing() as db:
            (count,) = db.execute("SELECT count(*) FROM jobs").fetchone()
            if count >= self._max_jobs:
                raise RefusalError(
                    429, "too_many_jobs", f"{count} jobs are not finished", fix="wait for some", retry_after_s=60
                )
            prepared.rename(self.folder(job_id))
            db.execute(
                "INSERT INTO jobs (id, name, status, options, locked, created) VALUES (?, ?, 'queued', ?, ?, ?)",
                (job_id, name, json.dumps(options), locked, time.time()),
            )
        return self.get(job_id)

    def clean(self) -> None:
        """Removes finished jobs that are too old, and the oldest ones when there are too many."""
        with self._lock:
            rows = self._db.execute(
                "SELECT id, finished FROM jobs WHERE status NOT IN ('queued', 'running') ORDER BY finished"
            ).fetchall()
            (count,) = self._db.execute("SELECT count(*) FROM jobs").fetchone()
            spare = count - self._max_jobs + 1
            old = time.time() - self._keep_s
            for place, row in enumerate(rows):
                if place < spare or row["finished"] < old:
                    self._remove(row["id"])

    def get(self, job_id: str) -> Job:
        """Raises: RefusalError (404)."""
        with self._lock:
            row = self._db.execute("SELECT * FROM jobs WHERE id = ?", (job_id,)).fetchone()
            if row is None:
                raise not_found("there is no such job", fix="GET /v1/jobs lists those there are")
            return self._job(row)

    def newest(self, limit: int = 1000) -> list[Job]:
        """The newest first, `limit` of them."""
        with self._lock:
            rows = self._db.execute("SELECT * FROM jobs ORDER BY created DESC LIMIT ?", (limit,)).fetchall()
            return [self._job(row) for row in rows]

    def unfinished(self) -> list[tuple[Job, dict[str, Any], bool]]:
        """Jobs that an earlier process left, oldest first: with their options, and if a password belonged to it."""
        with self._lock:
            rows = self._db.execute(
                "SELECT * FROM jobs WHERE status IN ('queued', 'running') ORDER BY created"
            ).fetchall()
            return [(self._job(row), json.loads(row["options"]), bool(row["locked"])) for row in rows]

    def pages_since(self, job_id: str, number: int) -> Sequence[PageDone]:
        """Pages that were finished after the event `number`, in that order."""
        with self._lock:
            rows = self._db.execute(
                "SELECT number, position, status FROM pages WHERE job = ? AND number > ? ORDER BY number",
                (job_id, number),
            ).fetchall()
        return [PageDone(row["number"], row["position"], row["status"]) for row in rows]

    def options(self, job_id: str) -> dict[str, Any]:
        with self._lock:
            row = self._db.execute("SELECT options FROM jobs WHERE id = ?", (job_id,)).fetchone()
        options: dict[str, Any] = json.loads(row["options"]) if row else {}
        return options

    def begin(self, job_id: str, pages_total: int, key: str) -> dict[int, ParsedPage]:
        """The pages that were finished before, by their position, when they were read in the same way."""
        folder = self.folder(job_id)
        (folder / "read").mkdir(exist_ok=True)
        kept = _kept(folder, key, pages_total)
        write_atomically(folder / "reading.json", key)
        with self._writing() as db:
            db.execute("DELETE FROM pages WHERE job = ?", (job_id,))
            db.executemany(
                "INSERT INTO pages (job, position, status) VALUES (?, ?, ?)",
                [(job_id, position, item.page.status) for position, item in sorted(kept.items())],
            )
            db.execute(
                "UPDATE jobs SET status = 'running', started = ?, pages_total = ?, kept = ? WHERE id = ?",
                (time.time(), pages_total, len(kept), job_id),
            )
        return kept

    def page_done(self, job_id: str, position: int, item: ParsedPage) -> None:
        """The file first: a page that the table knows is there."""
        line = json.dumps({"page": item.page.model_dump(mode="json"), "stats": item.stats.model_dump()})
        write_atomically(self.folder(job_id) / "read" / f"{position}.json", line)
        with self._writing() as db:
            db.execute(
                "INSERT INTO pages (job, position, status) VALUES (?, ?, ?)", (job_id, position, item.page.status)
            )

    def end(self, job_id: str, status: Status, error: JobError | None = None) -> None:
        with self._writing() as db:
            db.execute(
                "UPDATE jobs SET status = ?, finished = ?, error = ? WHERE id = ? AND status IN ('queued', 'running')",
                (status, time.time(), error.model_dump_json() if error else None, job_id),
            )

    def page(self, job_id: str, position: int) -> Page:
        """The page as it was read, before pages were restructured.

        Raises: RefusalError (404) for one that is not read.
        """
        item = _page_file(self.folder(job_id) / "read" / f"{position}.json")
        if item is None:
            raise not_found(f"page {position} of this job is not read", fix="pages count from 0; wait for its event")
        return item.page

    def document(self, job_id: str) -> Document:
        """Raises: RefusalError (404 without the job, 409 when it is not done)."""
        job = self.get(job_id)
        document = self._whole(job_id) if job.status == "done" else None
        if document is None:
            raise RefusalError(
                409,
                "not_done",
                f"the job is {job.status}",
                fix="wait for its end event" if job.status in ACTIVE else "send the document again",
            )
        return document

    def _whole(self, job_id: str) -> Document | None:
        try:
            return Document.model_validate_json((self.folder(job_id) / "document.json").read_bytes())
        except (OSError, ValidationError):
            return None

    def remove(self, job_id: str) -> None:
        """Raises: RefusalError (404)."""
        with self._lock:
            self.get(job_id)
            self._remove(job_id)

    def _remove(self, job_id: str) -> None:
        with self._writing() as db:
            db.execute("DELETE FROM jobs WHERE id = ?", (job_id,))
        shutil.rmtree(self.folder(job_id), ignore_errors=True)

    def _job(self, row: sqlite3.Row) -> Job:
        counts = self._db.execute(
            "SELECT count(*) AS done, coalesce(sum(status = 'failed'), 0) AS failed FROM pages WHERE job = ?",
            (row["id"],),
        ).fetchone()
        return Job(
            id=row["id"],
            name=row["name"],
            status=row["status"],
            pages_total=row["pages_total"],
            pages_done=counts["done"],
            pages_failed=counts["failed"],
            pages_kept=row["kept"],
            created=row["created"],
            started=row["started"],
            finished=row["finished"],
            error=JobError.model_validate_json(row["error"]) if row["error"] else None,
        )


def _kept(folder: Path, key: str, pages_total: int) -> dict[int, ParsedPage]:
    try:
        if (folder / "reading.json").read_text(encoding="utf-8") != key:
            return {}
    except (OSError, UnicodeDecodeError):
        return {}
    found = {position: _page_file(folder / "read" / f"{position}.json") for position in range(pages_total)}
    return {position: item for position, item in found.items() if item is not None and item.page.status != "failed"}


def _page_file(path: Path) -> ParsedPage | None:
    try:
        entry = json.loads(path.read_bytes())
        page = Page.model_validate_json(json.dumps(entry["page"]))
        return ParsedPage(page, None, Stats.model_validate(entry["stats"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
