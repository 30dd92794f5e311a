"""Brings one file over HTTP(S) to a path, whatever the network does on the way; the only file that opens connections.

Several origins are tried in order. What has arrived stays in a `.part` file beside the target and is gone on with, in
this run or a later one; the target appears whole and checked, or not at all. urllib of the standard library does the
talking, because the rules below (who may be redirected where, what is resumed, what is tried again) are this file's
own under any library, and because it knows the system's certificates and proxies.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import http.client
import json
import os
import re
import shutil
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from email.message import Message
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal
from urllib.parse import quote, urljoin, urlsplit

from docvino import __version__
from docvino.errors import FetchError

_CHUNK_BYTES = 1 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")
_GIT_SHA1 = re.compile(r"[0-9a-f]{40}")
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_RETRIED = (408, 425, 429, 500, 502, 503, 504)
_REDIRECTS = (301, 302, 303, 307, 308)

Report = Callable[[str], None]
Progress = Callable[[int, "int | None"], None]  # bytes that are there, bytes in all if known
Check = Literal["pinned sha256", "sha256 of the hub", "git sha1 of the hub", "size only"]


@dataclass(frozen=True)
class Limits:
    """How long a network may misbehave.

    connect_s          until a connection stands
    stall_s            without a single byte
    attempts           in a row without progress, per origin
    progress_bytes     that must be won for the count of attempts to begin anew
    backoff_s          before the second attempt, then doubled up to `longest_wait_s`
    longest_wait_s     also the most of a server's Retry-After that is waited for
    """

    connect_s: float = 15.0
    stall_s: float = 30.0
    attempts: int = 5
    progress_bytes: int = 1 << 20
    backoff_s: float = 1.0
    longest_wait_s: float = 60.0
    redirects: int = 10


@dataclass(frozen=True)
class Wanted:
    """What is known of a file beforehand; `label` is its name in messages.

    required   False: when an origin has no such file, the others are not asked
    """

    label: str
    size_bytes: int | None = None
    sha256: str | None = None
    required: bool = True


@dataclass(frozen=True)
class Origin:
    """One place that may have the file.

    name           for people
    place          what is asked for, for people: repository and revision, or the URL
    authorization  value of that header; goes to this URL's own host only
    etag_is_hash   the server's ETag is the file's sha256 or its git object name, as on Hugging Face
    access_fix     what to do when access is refused
    """

    name: str
    place: str
    url: str
    authorization: str | None = field(default=None, repr=False)
    etag_is_hash: bool = False
    access_fix: str = "ask for access there"


@dataclass(frozen=True)
class Received:
    """`checked` says by what the content was compared; `origin` is None when a former run had brought it all."""

    size_bytes: int
    sha256: str
    checked: Check
    origin: Origin | None


@dataclass(frozen=True)
class Failure:
    """Why one origin did not give the file. `absent` when it said that it has none."""

    origin: Origin
    cause: str
    fix: str
    absent: bool = False


class UnavailableError(Exception):
    """No origin gave the file; `failures` are in the order of the origins. What it means is the caller's to say."""

    def __init__(self, failures: Sequence[Failure]) -> None:
        super().__init__("; ".join(f"{failure.origin.name}: {failure.cause}" for failure in failures))
        self.failures = tuple(failures)
        # What can be done about the first origin, unless it just does not have the file.
        self.fix = next((failure for failure in failures if not failure.absent), failures[0]).fix


class _RetryError(Exception):
    """Worth another attempt, after `wait_s` if the server named it; `unreachable` when no connection came about."""

    def __init__(self, cause: str, wait_s: float | None = None, *, unreachable: bool = False) -> None:
        super().__init__(cause)
        self.wait_s = wait_s
        self.unreachable = unreachable


class _RestartError(Exception):
    """What is in the part file does not belong to what the server has now."""


class _RefusedError(Exception):
    """This origin will not give the file, however often it is asked."""

    def __init__(self, cause: str, fix: str, *, absent: bool = False) -> None:
        super().__init__(cause)
        self.fix = fix
        self.absent = absent


_OTHER_SOURCE = "choose another source: docvino fetch --from"
_NETWORK_FIX = f"check network and proxy (HTTPS_PROXY), or {_OTHER_SOURCE}"
_WRONG_FIX = f"{_OTHER_SOURCE}; if all have the same, report it"
_PORTAL_FIX = f"open it in a browser (a log-in page of the network or a proxy?), or {_OTHER_SOURCE}"


def download(
    wanted: Wanted,
    origins: Sequence[Origin],
    target: Path,
    *,
    limits: Limits,
    report: Report = lambda _line: None,
    progress: Progress = lambda _done, _total: None,
) -> Received:
    """Places the file at `target`, from the first of the `origins`, one at least, that has the right one.

    Only one process at a time may do this for one target: the caller holds a lock.

    Raises: UnavailableError when no origin gave it, FetchError when it cannot be stored.
    """
    part = _Part(target, wanted)
    failures: list[Failure] = []
    with storage_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        if part.is_whole():
            size = part.size()
            part.become(target)
            return Received(size, str(wanted.sha256), "pinned sha256", None)
        for origin in origins:
            try:
                return _from_origin(wanted, origin, target, part, limits, report, progress)
            except _RefusedError as error:
                failures.append(Failure(origin, str(error), error.fix, error.absent))
                if error.absent and not wanted.required:
                    break
                report(f"{wanted.label}: {origin.name}: {error}")
    raise UnavailableError(failures)


def sha256_of(path: Path) -> str:
    """Raises: OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def git_sha1_of(path: Path) -> str:
    """The name that git, and so a hub, gives to this content. Raises: OSError."""
    digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


@contextlib.contextmanager
def storage_errors(target: Path) -> Iterator[None]:
    """Turns errors of the file system into FetchError."""
    try:
        yield
    except OSError as error:
        raise storage_error(error, target, "--data-dir") from error


def storage_error(error: OSError, path: Path | str, elsewhere: str) -> FetchError:
    """What to say of a file that cannot be written; `elsewhere` is the setting that chooses another folder."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        fix = f"free some space there, or choose another folder with {elsewhere}"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        fix = f"allow this user to write there, or choose another folder with {elsewhere}"
    else:
        fix = f"see what is wrong there, or choose another folder with {elsewhere}"
    return FetchError(f"cannot write {path}: {error.strerror or error}", fix=fix)


def human_size(size_bytes: int) -> str:
    """With the unit in which it has at most four digits: 1.81 GB, 2.6 MB, 1.5 kB, 133 bytes."""
    if size_bytes >= 1_000_000_000:
        return f"{size_bytes / 1e9:.2f} GB"
    if size_bytes >= 100_000:
        return f"{size_bytes / 1e6:.1f} MB"
    return f"{size_bytes / 1e3:.1f} kB" if size_bytes >= 1000 else f"{size_bytes} bytes"


def replace(part: Path, target: Path) -> None:
    """Renames `part` to `target`. Windows refuses while somebody reads `target`."""
    for attempt in range(10):
        try:
            part.replace(target)
            return
        except PermissionError:
            if os.name != "nt" or attempt == 9:
                raise
            time.sleep(0.2)


class _Part:
    """The unfinished file, and beside it a note of where it comes from, so that only like is joined to like."""

    def __init__(self, target: Path, wanted: Wanted) -> None:
        self.path = target.with_name(f".{target.name}.part")
        self._note = target.with_name(f".{target.name}.part.json")
        self._wanted = wanted

    def size(self) -> int:
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def is_whole(self) -> bool:
        """Whether a former run ended between the last byte and the rename."""
        wanted = self._wanted
        return (
            wanted.sha256 is not None
            and self.size() > 0
            and wanted.size_bytes in (None, self.size())
            and sha256_of(self.path) == wanted.sha256
        )

    def resumable(self, url: str) -> tuple[int, str | None]:
        """How many bytes may be kept when `url` is asked, and the ETag they were sent under."""
        size = self.size()
        if size == 0 or (self._wanted.size_bytes is not None and size >= self._wanted.size_bytes):
            return 0, None
        try:
            note = json.loads(self._note.read_text(encoding="utf-8"))
            same, etag = note["url"] == url, note["etag"]
        except (OSError, ValueError, TypeError, KeyError):
            same, etag = False, None
        if same and isinstance(etag, str):
            return size, etag
        # Without an ETag to go by only a known sha256 can tell in the end whether the joint was right.
        return (size, None) if self._wanted.sha256 is not None else (0, None)

    def describe(self, url: str, etag: str | None) -> None:
        self._note.write_text(json.dumps({"url": url, "etag": etag}), encoding="utf-8")

    def drop(self) -> None:
        self.path.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)

    def become(self, target: Path) -> None:
        replace(self.path, target)
        self._note.unlink(missing_ok=True)


def _from_origin(
    wanted: Wanted, origin: Origin, target: Path, part: _Part, limits: Limits, report: Report, progress: Progress
) -> Received:
    at_start = furthest = part.size()
    failed_in_a_row, restarted = 0, False
    while True:
        kept, etag = part.resumable(origin.url)
        try:
            with _answer(origin, kept, etag, limits) as answer:
                sha256 = _receive(wanted, answer, part, kept, etag, limits, report, progress)
            return _judge(wanted, answer, part, target, sha256)
        except _RestartError as error:
            part.drop()
            failed_in_a_row += 1
            cause, wait_s, allowed = str(error), 0.0, limits.attempts
            report(f"{wanted.label}: {cause}; from the beginning")
        except _RefusedError:
            # The joint of two sources or two runs may have been wrong: a whole file from here is given one chance.
            if not kept or restarted or part.size():
                raise
            restarted = True
            report(f"{wanted.label}: what was kept did not fit; from the beginning")
            continue
        except _RetryError as error:
            if part.size() >= furthest + limits.progress_bytes:
                furthest, failed_in_a_row = part.size(), 0
            failed_in_a_row += 1
            cause = str(error)
            wait_s = limits.backoff_s * 2 ** (failed_in_a_row - 1) if error.wait_s is None else error.wait_s
            wait_s = min(wait_s, limits.longest_wait_s)
            # A host that was never reached is left soon, for the next may be; one that gave something is waited for.
            never = error.unreachable and part.size() == at_start
            allowed = min(2, limits.attempts) if never else limits.attempts
        if failed_in_a_row >= allowed:
            raise _RefusedError(f"{cause} (tried {failed_in_a_row} times)", _NETWORK_FIX)
        if wait_s:
            report(f"{wanted.label}: {origin.name}: {cause}; again in {wait_s:.3g} s")
            time.sleep(wait_s)


@dataclass(frozen=True)
class _Answer:
    """A 200 or 206 with what was learned on the way to it. `published` is a sha256 or git sha1, in lower case."""

    origin: Origin
    body: http.client.HTTPResponse
    status: int
    headers: Message
    published: str | None
    published_size: int | None

    def __enter__(self) -> _Answer:
        return self

    def __exit__(self, *_error: object) -> None:
        self.body.close()


def _answer(origin: Origin, kept: int, etag: str | None, limits: Limits) -> _Answer:
    """Asks for the file from byte `kept` on and follows redirects."""
    opener = urllib.request.build_opener(_NoRedirects, _Http(limits.stall_s), _Https(limits.stall_s))
    opener.addheaders = []
    headers = {"User-Agent": f"docvino/{__version__}", "Accept": "*/*", "Accept-Encoding": "identity"}
    if kept:
        headers["Range"] = f"bytes={kept}-"
        if etag is not None:
            headers["If-Range"] = etag
    url, authorization = origin.url, origin.authorization
    published, published_size = None, None
    for _ in range(limits.redirects + 1):
        request = urllib.request.Request(url, headers=headers)
        if authorization is not None:
            request.add_unredirected_header("Authorization", authorization)
        try:
            with _network_errors(limits):
                body = opener.open(request, timeout=limits.connect_s)
        except urllib.error.HTTPError as error:
            with error:
                if error.code not in _REDIRECTS:
                    raise _http_error(origin, error.code, error.headers, url) from None
                # Hugging Face names hash and size of a large file before it sends us to another host for it.
                if published is None:
                    published, published_size = _published(error.headers)
                following = _redirect(url, error.headers.get("Location"))
            if _host(following) != _host(url):
                authorization = None
            url = following
            continue
        if published is None:
            published, published_size = _published(body.headers)
        if published is None and origin.etag_is_hash:
            published = _hash_in(body.headers.get("ETag"))
        return _Answer(origin, body, body.status, body.headers, published, published_size)
    raise _RefusedError(f"more than {limits.redirects} redirects", _PORTAL_FIX)


def _redirect(url: str, location: str | None) -> str:
    if not location:
        raise _RefusedError("a redirect that says not where to", _PORTAL_FIX)
    # Headers come as Latin-1; what is not ASCII has to be quoted before it is asked for.
    following = urljoin(url, quote(location.encode("latin-1", "replace"), safe="%/:=&?~#+!$,;'@()*[]"))
    parts = urlsplit(following)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _RefusedError(f"a redirect to {parts.scheme or 'nothing'}:, which is not followed", _PORTAL_FIX)
    if urlsplit(url).scheme == "https" and parts.scheme == "http":
        raise _RefusedError(
            f"a redirect from https to http ({parts.hostname}), which is not followed: anybody could change the file",
            _PORTAL_FIX,
        )
    return following


def _host(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port


def _published(headers: Message) -> tuple[str | None, int | None]:
    return _hash_in(headers.get("X-Linked-Etag")), _number(headers.get("X-Linked-Size"))


def _hash_in(etag: str | None) -> str | None:
    bare = (etag or "").strip().removeprefix("W/").strip('"').lower()
    return bare if _SHA256.fullmatch(bare) or _GIT_SHA1.fullmatch(bare) else None


def _http_error(origin: Origin, code: int, headers: Message, url: str) -> Exception:
    said = f"HTTP {code} {http.client.responses.get(code, '')}".strip()
    where = "" if _host(url) == _host(origin.url) else f" from {urlsplit(url).hostname}"
    if code in _RETRIED:
        return _RetryError(said + where, _retry_after(headers.get("Retry-After")))
    if code == 416:
        return _RestartError("the server has fewer bytes than were kept")
    if code in (401, 403):
        return _RefusedError(f"{said}{where}: access to {origin.place} is refused", origin.access_fix)
    if code in (404, 410):
        return _RefusedError(
            f"{said}{where}: {origin.place} has no such file",
            f"check the revision and the name, or {_OTHER_SOURCE}",
            absent=True,
        )
    if code == 407:
        return _RefusedError(f"{said}: the proxy wants a password", "put it into HTTPS_PROXY")
    return _RefusedError(said + where, _NETWORK_FIX)


def _retry_after(text: str | None) -> float | None:
    """Seconds; the header has a number of them or a date."""
    if not text:
        return None
    seconds = _number(text)
    if seconds is not None:
        return float(seconds)
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    return None


def _receive(
    wanted: Wanted,
    answer: _Answer,
    part: _Part,
    kept: int,
    etag: str | None,
    limits: Limits,
    report: Report,
    progress: Progress,
) -> str:
    """Writes the body behind the `kept` bytes, or over them when the server sends the whole file.

    Returns the sha256 of the whole.
    """
    headers = answer.headers
    now_etag = headers.get("ETag")
    if answer.status == 206:
        start, total = _content_range(headers.get("Content-Range"))
        if start != kept or (etag is not None and now_etag is not None and now_etag != etag):
            raise _RestartError("the file has changed on the server since")
    else:
        if kept:
            report(f"{wanted.label}: the server sends the whole file again")
        kept, total = 0, _number(headers.get("Content-Length"))
    _refuse_by_headers(wanted, answer, total)
    if total is None:
        total = wanted.size_bytes if wanted.size_bytes is not None else answer.published_size
    chunked = headers.get("Transfer-Encoding", "").lower() == "chunked"
    if total is None and not chunked and wanted.sha256 is None and answer.published is None:
        raise _RefusedError("neither size nor hash is told, so a cut would not be noticed", _WRONG_FIX)
    if total is not None:
        _check_room(wanted, part.path.parent, total - kept)
    # A weak ETag promises alike, not identical, bytes.
    part.describe(answer.origin.url, None if now_etag is None or now_etag.startswith("W/") else now_etag)
    digest = hashlib.sha256()
    if kept:
        with part.path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
    with part.path.open("ab" if kept else "wb") as file:
        for chunk in _body(wanted, answer, kept, total, limits, progress):
            digest.update(chunk)
            write(file, chunk)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def _body(
    wanted: Wanted, answer: _Answer, done: int, total: int | None, limits: Limits, progress: Progress
) -> Iterator[bytes]:
    """The rest of the file, piece by piece, `total` bytes at most."""
    unchecked = wanted.sha256 is None and done == 0
    progress(done, total)
    while total is None or done < total:
        most = _CHUNK_BYTES if total is None else min(_CHUNK_BYTES, total - done)
        with _network_errors(limits):
            chunk = answer.body.read1(most)
        if not chunk:
            break
        if unchecked:
            _refuse_by_content(chunk)
            unchecked = False
        done += len(chunk)
        if total is None and done > _MOST_UNTOLD_BYTES:
            raise _RefusedError(f"it goes on after {done} bytes, and its size is not told", _WRONG_FIX)
        yield chunk
        progress(done, total)
    if total is not None and done < total:
        raise _RetryError(f"cut off after {done} of {total} bytes")


def write(file: BinaryIO, chunk: bytes) -> None:
    """The one place where what arrives goes to disk."""
    file.write(chunk)


def _judge(wanted: Wanted, answer: _Answer, part: _Part, target: Path, sha256: str) -> Received:
    """Compares what arrived with what is known, and gives it its name."""
    published, checked = answer.published, "size only"
    found, expected = sha256, sha256
    if wanted.sha256 is not None:
        expected, checked = wanted.sha256, "pinned sha256"
    elif published is not None and _SHA256.fullmatch(published):
        expected, checked = published, "sha256 of the hub"
    elif published is not None:
        found, expected, checked = git_sha1_of(part.path), published, "git sha1 of the hub"
    size = part.size()
    if found != expected:
        part.drop()
        raise _RefusedError(f"wrong content: its hash is {found}, not {expected}", _WRONG_FIX)
    part.become(target)
    return Received(size, sha256, checked, answer.origin)  # type: ignore[arg-type]


def _refuse_by_headers(wanted: Wanted, answer: _Answer, total: int | None) -> None:
    """Sees before the first byte that this is not the file, as far as can be seen."""
    headers, published = answer.headers, answer.published
    if wanted.sha256 is None or total is None or total != wanted.size_bytes:
        kind = headers.get_content_type()
        if headers.get("Content-Type") and kind in ("text/html", "application/xhtml+xml"):
            raise _RefusedError(_WEB_PAGE, _PORTAL_FIX)
    encoding = headers.get("Content-Encoding", "identity").lower()
    if encoding not in ("", "identity"):
        raise _RefusedError(f"it is sent compressed ({encoding}), which was not asked for", _WRONG_FIX)
    if total is not None and wanted.size_bytes not in (None, total):
        raise _RefusedError(f"it has {total} bytes there, not {wanted.size_bytes}", _WRONG_FIX)
    if wanted.sha256 is not None and published and _SHA256.fullmatch(published) and published != wanted.sha256:
        raise _RefusedError(f"wrong content: its hash is {published}, not {wanted.sha256}", _WRONG_FIX)


def _refuse_by_content(beginning: bytes) -> None:
    if beginning.startswith(_LFS_POINTER):
        raise _RefusedError("a git-lfs pointer instead of the file", _WRONG_FIX)
    if beginning.lstrip()[:15].lower().startswith((b"<!doctype html", b"<html")):
        raise _RefusedError(_WEB_PAGE, _PORTAL_FIX)


_WEB_PAGE = "a web page instead of the file"
_MOST_UNTOLD_BYTES = 8 << 30


def _content_range(text: str | None) -> tuple[int, int | None]:
    match = re.fullmatch(r"bytes (\d{1,15})-\d{1,15}/(\d{1,15}|\*)", (text or "").strip())
    if match is None:
        raise _RestartError("the server sends a part, and not which")
    return int(match.group(1)), _number(match.group(2))


def _number(text: str | None) -> int | None:
    text = (text or "").strip()
    return int(text) if re.fullmatch(r"[0-9]{1,15}", text) else None


def _check_room(wanted: Wanted, folder: Path, needed_bytes: int) -> None:
    free_bytes = shutil.disk_usage(folder).free
    if needed_bytes > free_bytes:
        raise FetchError(
            f"no room for {wanted.label} in {folder}: "
            f"{needed_bytes / 1e6:.1f} MB are needed, {free_bytes / 1e6:.1f} MB are free",
            fix="free some space there, or choose another folder with --data-dir",
        )


@contextlib.contextmanager
def _network_errors(limits: Limits) -> Iterator[None]:
    """Sorts what urllib and http.client raise into worth another attempt and not; HTTPError is let through."""
    try:
        yield
    except urllib.error.HTTPError:
        raise
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise _RefusedError(
                f"its certificate is not trusted ({reason.verify_message})",
                "trust the certificate of your network's proxy (SSL_CERT_FILE), and check this machine's clock",
            ) from error
        if isinstance(reason, http.client.InvalidURL):
            raise _RefusedError(f"not a URL that can be asked for ({reason})", _NETWORK_FIX) from error
        if isinstance(reason, TimeoutError):
            if reason is not error:  # urllib wraps what happens while it connects, and only that
                raise _RetryError(f"no connection within {limits.connect_s:g} s", unreachable=True) from error
            raise _RetryError(f"not a byte for {limits.stall_s:g} s") from error
        if "Tunnel connection failed" in str(reason):
            raise _RefusedError(
                f"the proxy does not let us through ({reason})", "see HTTPS_PROXY and NO_PROXY, or ask who runs it"
            ) from error
        if isinstance(reason, http.client.IncompleteRead | http.client.RemoteDisconnected):
            raise _RetryError("the connection ended early") from error
        lost = isinstance(reason, socket.gaierror | ConnectionRefusedError) or (
            isinstance(reason, OSError) and reason.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH)
        )
        what = reason.strerror if isinstance(reason, OSError) and reason.strerror else str(reason)
        raise _RetryError(f"no connection ({what})", unreachable=lost) from error


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Every redirect becomes an HTTPError: `_answer` decides where it may lead."""

    def redirect_request(self, *_arguments: Any) -> None:
        return None


class _Http(urllib.request.HTTPHandler):
    def __init__(self, stall_s: float) -> None:
        super().__init__()
        self._stall_s = stall_s

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        connection: Any = partial(_HttpConnection, self._stall_s)
        return self.do_open(connection, req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, stall_s: float) -> None:
        super().__init__()
        self._stall_s = stall_s

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        connection: Any = partial(_HttpsConnection, self._stall_s)
        return self.do_open(connection, req, context=ssl.create_default_context())


class _HttpConnection(http.client.HTTPConnection):
    """Its `timeout` is for connecting; from then on `stall_s` is."""

    def __init__(self, stall_s: float, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._stall_s = stall_s

    def connect(self) -> None:
        super().connect()
        self.sock.settimeout(self._stall_s)


class _HttpsConnection(http.client.HTTPSConnection):
    def __init__(self, stall_s: float, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._stall_s = stall_s

    def connect(self) -> None:
        super().connect()
        self.sock.settimeout(self._stall_s)
