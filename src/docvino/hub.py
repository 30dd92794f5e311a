"""Fetches models that are folders on hubs: Hugging Face, ModelScope, AI Studio, a plain server, a local folder.

Each file is had from the first of the mirrors that has the right one; `docvino.download` does that. Only files that
the spec names are fetched: what else a repository holds, its Python files above all, is neither downloaded nor run.
"""

from __future__ import annotations

import base64
import contextlib
import json
import netrc
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from docvino import download as http
from docvino.download import Limits, Origin, UnavailableError, Wanted, git_sha1_of, sha256_of, storage_errors
from docvino.errors import ConfigError, FetchError
from docvino.settings import HUBS, RuntimeConfig
from docvino.specs.model import HubFile, HubFolder, VlmPreset

RECORD = "fetched.json"
RECORD_VERSION = 1

HUGGINGFACE = "https://huggingface.co"
MODELSCOPE = "https://www.modelscope.cn"
AISTUDIO = "https://git.aistudio.baidu.com"


@dataclass(frozen=True)
class Progress:
    """How far a folder is: bytes of all its files that are there, and in all as far as sizes are known."""

    file: str
    done_bytes: int
    total_bytes: int


@dataclass(frozen=True)
class _Entry:
    """What the record says of a file that was fetched."""

    sha256: str
    size_bytes: int
    origin: str
    checked: str


def folder_path(folder: HubFolder, data_dir: Path, revision: str | None = None) -> Path:
    """Where the files lie, or will lie once fetched. Another revision than the pinned one has a folder of its own."""
    return data_dir / "sources" / (folder.name if revision is None else f"{folder.name}@{quote(revision, safe='')}")


def is_fetched(folder: HubFolder, data_dir: Path) -> bool:
    """Whether all that is required is there, by name and size; `fetch_folder` looks at the content, too."""
    return not missing_files(folder, folder_path(folder, data_dir))


def source_folder(preset: VlmPreset, data_dir: Path) -> Path:
    """Where the files of a vision-language preset are.

    Raises: FetchError when they have to be fetched first.
    """
    if isinstance(preset.source, Path):
        return preset.source
    if not is_fetched(preset.source, data_dir):
        raise FetchError(f"{preset.name} is not fetched", fix=f"docvino fetch {preset.name}")
    return folder_path(preset.source, data_dir)


def missing_files(folder: HubFolder, path: Path) -> list[HubFile]:
    """The required files that `path` lacks or has at another size than they should."""
    return [file for file in folder.files if file.required and not _has_right_size(path / file.path, file.size_bytes)]


def fetch_folder(
    folder: HubFolder,
    runtime: RuntimeConfig,
    *,
    revision: str | None = None,
    local: Path | None = None,
    environ: Mapping[str, str] | None = None,
    limits: Limits | None = None,
    report: Callable[[str], None] = lambda _line: None,
    progress: Callable[[Progress], None] = lambda _progress: None,
) -> Path:
    """The folder with every required file of the model, checked; files that are there already cost no network.

    revision   another one than the pinned: the spec's sizes and hashes are then not asked for, the hub's own are
    local      a folder that has the files; when given, nothing is downloaded
    environ    HF_* and NETRC are read from it, os.environ unless given

    Small files come first, so that what is lacking is known before the weights are under way. Files that were placed
    before a failure stay. Several processes may fetch into one data folder at the same time: the later one waits.

    Raises: FetchError, which names what is missing and where it can be had; ConfigError for a revision that is none.
    """
    job = _Job(
        folder, runtime, revision, os.environ if environ is None else environ, limits or Limits(), report, progress
    )
    with job.locked():
        for file in job.files:
            job.bring(file, local)
        job.conclude(local)
    return job.path


class _Job:
    """One run over the files of one folder."""

    def __init__(
        self,
        folder: HubFolder,
        runtime: RuntimeConfig,
        revision: str | None,
        environ: Mapping[str, str],
        limits: Limits,
        report: Callable[[str], None],
        progress: Callable[[Progress], None],
    ) -> None:
        if revision is not None and (not re.fullmatch(r"[A-Za-z0-9_][\w./-]{0,199}", revision) or ".." in revision):
            raise ConfigError(f"{revision!r} is no revision", fix="give a commit, a tag or a branch")
        self.folder = folder
        self.path = folder_path(folder, runtime.data_dir, revision)
        self._runtime, self._revision, self._environ = runtime, revision, environ
        self._limits, self._report, self._progress = limits, report, progress
        files = folder.files if revision is None else [replace(f, size_bytes=None, sha256=None) for f in folder.files]
        # Unknown sizes last: the weights are among them more likely than not.
        self.files = sorted(files, key=lambda file: (file.size_bytes is None, file.size_bytes or 0, file.path))
        self._offline = runtime.offline or _is_true(environ.get("HF_HUB_OFFLINE"))
        self._record = self._read_record()
        self._sizes = {file.path: file.size_bytes or 0 for file in self.files}
        self._done: dict[str, int] = {}
        self._failures: dict[str, UnavailableError | None] = {}  # None where no hub was asked

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        # Here, because some versions try out links in the folder for temporary files when they are imported.
        from filelock import FileLock, Timeout

        lock_file = self.path.with_name(f".{self.path.name}.lock")
        with storage_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            lock = FileLock(lock_file)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                self._report(f"{self.folder.name}: another process is fetching it; waiting for that")
                lock.acquire()
            except NotImplementedError as error:
                raise FetchError(
                    f"the file system of {self.path.parent} knows no locks", fix="choose a local disk with --data-dir"
                ) from error
        try:
            # What the other one has brought meanwhile is on record now.
            self._record = self._read_record()
            yield
        finally:
            lock.release()

    def bring(self, file: HubFile, local: Path | None) -> None:
        """Sees to it that the file is there. One that no mirror has is left to `conclude`."""
        target = self.path / file.path
        label = f"{self.folder.name}/{file.path}"
        known = file.sha256 or (self._record[file.path].sha256 if file.path in self._record else None)
        if os.path.exists(target):  # noqa: PTH110 - Path.exists raises where the folder above may not be entered
            if known is not None and _is_intact(target, known):
                self._finished(file, target)
                return
            self._report(f"{label} is not the file it should be (size or sha256 differs); it will be replaced")
        if local is not None:
            self._from_local(file, local, label)
        elif not self._from_cache(file, label):
            if self._offline:
                self._failures[file.path] = None
            else:
                self._from_hubs(file, label)

    def conclude(self, local: Path | None) -> None:
        """Raises: FetchError when a required file is not there."""
        lacking = [file for file in self.files if file.required and file.path in self._failures]
        if not lacking:
            size = sum(self._done.values())
            self._report(
                f"{self.folder.name}: {len(self._done)} files, {http.human_size(size)}, complete in {self.path}"
            )
            return
        names = ", ".join(file.path for file in lacking)
        if local is not None:
            raise FetchError(
                f"{self.folder.name}: {local} lacks {names}, or has other content there",
                fix=f"take {'it' if len(lacking) == 1 else 'them'} from {self._home()}",
            )
        if self._offline:
            raise FetchError(
                f"not in {self.path}, and the network must not be used: {names}",
                fix=f"run once without offline, or put {'it' if len(lacking) == 1 else 'them'} there from "
                f"{self._home()}, or name a folder that has them: docvino fetch {self.folder.name} --local FOLDER",
            )
        error = self._failures[lacking[0].path]
        raise FetchError(
            f"{self.folder.name} lacks {names}: {error}",
            fix=f"{error.fix if error else ''}; or put {'it' if len(lacking) == 1 else 'them'} into {self.path} "
            f"from {self._home()}",
        ) from error

    def _home(self) -> str:
        pinned = self.folder.repositories.get("huggingface")
        revision = self._revision or (pinned.revision if pinned else None)
        return self.folder.homepage + (f" (revision {revision})" if revision else "")

    def _from_hubs(self, file: HubFile, label: str) -> None:
        wanted = Wanted(label, file.size_bytes, file.sha256, file.required)
        asked = [self._origin(mirror, file) for mirror in self._runtime.mirrors]
        origins = [origin for origin in asked if origin is not None]
        if not origins:
            raise ConfigError(
                f"{self.folder.name} is not on {', '.join(self._runtime.mirrors)}",
                fix=f"it is on {', '.join(self.folder.repositories)}: docvino fetch {self.folder.name} --from HUB",
            )
        target = self.path / file.path
        try:
            received = http.download(
                wanted,
                origins,
                target,
                limits=self._limits,
                report=self._report,
                progress=lambda done, total: self._advance(file, done, total),
            )
        except UnavailableError as error:
            if file.required and not all(failure.absent for failure in error.failures):
                raise FetchError(f"{label} could not be fetched: {error}", fix=error.fix) from error
            self._failures[file.path] = error
            if file.required:
                self._report(f"{label}: no mirror has it")
            else:
                self._report(f"{label}: not there, and not required")
            return
        origin = received.origin.name if received.origin else "a former run"
        self._keep(file, _Entry(received.sha256, received.size_bytes, origin, received.checked))

    def _origin(self, mirror: str, file: HubFile) -> Origin | None:
        """Where `mirror` has the file; None for a hub that the spec does not know the model on."""
        path = quote(file.path)
        if mirror not in HUBS:
            url = f"{mirror.rstrip('/')}/{self.folder.name}/{path}"
            return Origin(
                urlsplit(mirror).hostname or mirror,
                f"{mirror.rstrip('/')}/{self.folder.name}",
                url,
                authorization=_netrc_authorization(url, self._environ),
                access_fix="put user and password into the file .netrc",
            )
        repository = self.folder.repositories.get(mirror)
        if repository is None:
            return None
        revision = self._revision or repository.revision
        place = f"{repository.name} at revision {revision}"
        if mirror == "huggingface":
            endpoint = _endpoint(self._environ)
            return Origin(
                mirror,
                place,
                f"{endpoint}/{repository.name}/resolve/{quote(revision, safe='')}/{path}",
                authorization=_bearer(endpoint, self._environ),
                etag_is_hash=True,
                access_fix=f"accept the conditions on {endpoint}/{repository.name} and set HF_TOKEN to your token",
            )
        if mirror == "modelscope":
            url = f"{MODELSCOPE}/models/{repository.name}/resolve/{quote(revision, safe='')}/{path}"
            return Origin(mirror, place, url)
        # Source: aistudio-sdk 0.3.9, file_download.py: one path part each, and no `ref` for the main branch.
        owner, _, name = repository.name.partition("/")
        reference = "" if revision == "master" else f"?ref={quote(revision, safe='')}"
        url = f"{AISTUDIO}/api/v1/repos/{owner}/{name}/media/{quote(file.path, safe='')}{reference}"
        return Origin(mirror, place, url)

    def _from_local(self, file: HubFile, local: Path, label: str) -> None:
        origin = local / file.path
        with storage_errors(self.path / file.path):
            if not origin.is_file():
                self._failures[file.path] = None
                return
            sha256 = sha256_of(origin)
            if file.sha256 is not None and sha256 != file.sha256:
                self._report(f"{label}: {origin} is left aside: its sha256 is {sha256}, not {file.sha256}")
                self._failures[file.path] = None
                return
            self._place(origin, self.path / file.path, link=False)
        checked = "size only" if file.sha256 is None else "pinned sha256"
        self._keep(file, _Entry(sha256, origin.stat().st_size, str(local), checked))

    def _from_cache(self, file: HubFile, label: str) -> bool:
        """Takes the file out of the Hugging Face cache of this user, if it is there and can be checked."""
        repository = self.folder.repositories.get("huggingface")
        if repository is None:
            return False
        home = cache_folder(self._environ) / f"models--{repository.name.replace('/', '--')}"
        revision = self._revision or repository.revision
        try:
            reference = home / "refs" / revision
            commit = reference.read_text(encoding="ascii").strip() if reference.is_file() else revision
            if not re.fullmatch(r"[0-9a-f]{40}", commit):
                return False
            blob = (home / "snapshots" / commit / file.path).resolve(strict=True)
            sha256 = sha256_of(blob)
            # A blob is named by the hub's hash of it. Where links are not to be had (Windows) only a pin can tell.
            expected = {64: sha256, 40: git_sha1_of(blob)}.get(len(blob.name))
            if sha256 != file.sha256 if file.sha256 is not None else expected != blob.name:
                self._report(f"{label}: {blob} is left aside: it is not the file it should be")
                return False
        except (OSError, ValueError):
            return False
        with storage_errors(self.path / file.path):
            self._place(blob, self.path / file.path, link=True)
        checked = "hash of the cache" if file.sha256 is None else "pinned sha256"
        self._keep(file, _Entry(sha256, blob.stat().st_size, "huggingface cache", checked))
        return True

    def _place(self, origin: Path, target: Path, *, link: bool) -> None:
        """Links or copies; the target appears whole. Raises: OSError."""
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.copy-{os.getpid()}-{secrets.token_hex(4)}")
        try:
            try:
                if not link:
                    raise OSError
                os.link(origin, part)
            except OSError:  # another disk, or a file system without links
                shutil.copyfile(origin, part)
            http.replace(part, target)
        finally:
            part.unlink(missing_ok=True)

    def _keep(self, file: HubFile, entry: _Entry) -> None:
        self._record[file.path] = entry
        record = {
            "record_version": RECORD_VERSION,
            "model": self.folder.name,
            "revision": self._revision or "pinned",
            "files": {path: asdict(entry) for path, entry in sorted(self._record.items())},
        }
        with storage_errors(self.path / RECORD):
            part = self.path / f".{RECORD}.part"
            part.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
            http.replace(part, self.path / RECORD)
        self._report(
            f"{self.folder.name}/{file.path}: {http.human_size(entry.size_bytes)} from {entry.origin}, {entry.checked}"
        )
        self._finished(file, self.path / file.path)

    def _finished(self, file: HubFile, target: Path) -> None:
        size = target.stat().st_size
        self._advance(file, size, size)

    def _advance(self, file: HubFile, done: int, total: int | None) -> None:
        self._done[file.path] = done
        self._sizes[file.path] = max(total or 0, done, self._sizes[file.path])
        self._progress(Progress(file.path, sum(self._done.values()), sum(self._sizes.values())))

    def _read_record(self) -> dict[str, _Entry]:
        try:
            found: Any = json.loads((self.path / RECORD).read_text(encoding="utf-8"))
            if found["record_version"] != RECORD_VERSION:
                return {}
            return {str(path): _Entry(**entry) for path, entry in found["files"].items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return {}  # without a record, files whose hash nobody told are fetched again


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Where the Hugging Face tools keep downloads. Source: huggingface_hub, constants.py."""
    if cache := environ.get("HF_HUB_CACHE") or environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(cache).expanduser()
    if home := environ.get("HF_HOME"):
        return Path(home).expanduser() / "hub"
    base = environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "huggingface" / "hub"


def _endpoint(environ: Mapping[str, str]) -> str:
    endpoint = (environ.get("HF_ENDPOINT") or HUGGINGFACE).rstrip("/")
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise ConfigError("HF_ENDPOINT is no URL, or has a password in it", fix=f"set it like {HUGGINGFACE}")
    return endpoint


def _is_true(text: str | None) -> bool:
    return (text or "").upper() in ("1", "ON", "YES", "TRUE")


def _is_intact(path: Path, sha256: str) -> bool:
    try:
        return sha256_of(path) == sha256
    except OSError:
        return False


def _has_right_size(path: Path, size_bytes: int | None) -> bool:
    try:
        return path.is_file() and size_bytes in (None, path.stat().st_size)
    except OSError:
        return False


def _bearer(endpoint: str, environ: Mapping[str, str]) -> str | None:
    token = (environ.get("HF_TOKEN") or "").strip()
    return f"Bearer {token}" if token and _is_private(endpoint) else None


def _netrc_authorization(url: str, environ: Mapping[str, str]) -> str | None:
    """User and password for a plain server, from .netrc."""
    host = urlsplit(url).hostname or ""
    file = Path(environ.get("NETRC") or "~/.netrc").expanduser()
    try:
        found = netrc.netrc(str(file)).authenticators(host) if file.is_file() and _is_private(url) else None
    except (OSError, netrc.NetrcParseError, UnicodeError):
        return None
    if found is None:
        return None
    return "Basic " + base64.b64encode(f"{found[0]}:{found[2]}".encode()).decode()


def _is_private(url: str) -> bool:
    """Whether what is sent there can be read by nobody on the way."""
    parts = urlsplit(url)
    return parts.scheme == "https" or parts.hostname in ("localhost", "127.0.0.1", "::1")
