"""Fetches a document by URL, where the service was told to: named hosts, checked addresses, no redirects.

The name is resolved once, all its addresses are checked, and the connection goes to the address that was checked: a
name that means another address a moment later gains nothing.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from urllib.parse import unquote, urlsplit

from docvino.serve.problems import RefusalError

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolve = Callable[[str, int], Sequence[str]]

_CONNECT_LIMIT_S = 10.0
_FETCH_LIMIT_S = 60.0
_CHUNK = 1 << 16
_PORTS = {"http": 80, "https": 443}
# Addresses that carry an IPv4 one: what they lead to is what counts.
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class Fetcher:
    """Fetches from hosts that are allowed.

    allowed   names, "*.name" for what lies below, and addresses or networks ("10.0.0.0/8") that may be private
    """

    def __init__(self, allowed: Sequence[str], most_bytes: int, resolve: Resolve | None = None) -> None:
        self._names: list[str] = []
        self._networks: list[_Network] = []
        self._most_bytes, self._resolve = most_bytes, resolve or resolved
        for entry in allowed:
            try:
                self._networks.append(ipaddress.ip_network(entry.strip("[]"), strict=False))
            except ValueError:
                self._names.append(entry.lower().rstrip("."))

    def fetch(self, url: str) -> tuple[bytes, str]:
        """The bytes behind the URL, and the last part of its path as a name.

        Raises: RefusalError for what is not allowed, cannot be had, is too large or too slow.
        """
        scheme, host, port, target = self._parts(url)
        address = self._checked(host, port)
        until = time.monotonic() + _FETCH_LIMIT_S
        connection = _Connection(scheme, host, port, str(address))
        try:
            connection.request("GET", target, headers={"User-Agent": "docvino", "Accept-Encoding": "identity"})
            with contextlib.closing(connection.getresponse()) as response:
                data = self._body(response, until)
        except (OSError, http.client.HTTPException) as error:
            raise _not_fetched(f"the host cannot be reached ({type(error).__name__})", "check the URL") from error
        finally:
            connection.close()
        return data, unquote(urlsplit(url).path).rpartition("/")[2] or "document"

    def _body(self, response: http.client.HTTPResponse, until: float) -> bytes:
        if response.status != 200:
            raise _not_fetched(f"the host answered {response.status}", "give the URL that it leads to, if any")
        data = bytearray()
        while piece := response.read1(_CHUNK):
            data += piece
            if len(data) > self._most_bytes:
                raise RefusalError(
                    413, "too_large", f"the document is larger than {self._most_bytes >> 20} MiB", fix="send less"
                )
            if time.monotonic() > until:
                raise _not_fetched(f"it did not come within {_FETCH_LIMIT_S:g} s", "send the document itself")
        return bytes(data)

    def _parts(self, url: str) -> tuple[str, str, int, str]:
        """Scheme, host, port, and what is asked of the host. Raises: RefusalError."""
        try:
            parts = urlsplit(url)
            host, port = (parts.hostname or "").rstrip("."), parts.port
        except ValueError as error:
            raise RefusalError(400, "bad_url", "this is no URL", fix="give an https URL, or the document") from error
        if parts.scheme not in _PORTS or not host or any(ord(letter) < 33 for letter in url):
            raise RefusalError(
                400, "bad_url", "only http and https URLs are fetched", fix="or send the document itself"
            )
        if "@" in parts.netloc:
            raise RefusalError(400, "bad_url", "a URL with a user in it is not fetched", fix="leave it out")
        if not self._is_allowed(host):
            raise RefusalError(
                403,
                "url_not_allowed",
                "documents of this host are not fetched",
                fix="send the document itself, or let the service be started with allow_url_host",
            )
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        with contextlib.suppress(UnicodeError):
            host = host.encode("idna").decode("ascii") if not host.isascii() else host
        return parts.scheme, host, port or _PORTS[parts.scheme], target

    def _is_allowed(self, host: str) -> bool:
        if any(host == name or (name.startswith("*.") and host.endswith(name[1:])) for name in self._names):
            return True
        with contextlib.suppress(ValueError):
            return self._in_networks(ipaddress.ip_address(host))
        return False

    def _in_networks(self, address: _Address) -> bool:
        return any(address.version == network.version and address in network for network in self._networks)

    def _checked(self, host: str, port: int) -> _Address:
        """The first address of the host, when all of them may be connected to. Raises: RefusalError."""
        try:
            found = [ipaddress.ip_address(text.partition("%")[0]) for text in self._resolve(host, port)]
        except (OSError, ValueError, UnicodeError) as error:
            raise _not_fetched("the host's name leads nowhere", "check the URL") from error
        meant = [carried(address) for address in found]
        if not meant or not all(is_public(address) or self._in_networks(address) for address in meant):
            raise RefusalError(
                403,
                "private_address",
                "the host's name leads to an address that is not public",
                fix="send the document itself, or let allow_url_host name the address",
            )
        return found[0]


def carried(address: _Address) -> _Address:
    """The IPv4 address that an IPv6 one stands for (mapped, 6to4, Teredo, NAT64), else the address itself."""
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64 or ((int(address) >> 32) == 0 and int(address) > 1):
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        return inner or address
    return address


def is_public(address: _Address) -> bool:
    """Python's own tables, and what they call global that no stranger's document lies behind."""
    is_old_private = isinstance(address, ipaddress.IPv6Address) and address.is_site_local
    return address.is_global and not (address.is_multicast or address.is_reserved or is_old_private)


def resolved(host: str, port: int) -> list[str]:
    """All addresses of a name. Raises: OSError."""
    return [str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def _not_fetched(why: str, fix: str) -> RefusalError:
    return RefusalError(422, "not_fetched", f"the document was not fetched: {why}", fix=fix)


class _Connection(http.client.HTTPConnection):
    """Connects to one address; the name is what the host is asked and its certificate checked for."""

    def __init__(self, scheme: str, host: str, port: int, address: str) -> None:
        super().__init__(host, port, timeout=_CONNECT_LIMIT_S)
        self._scheme, self._address = scheme, address

    def connect(self) -> None:
        self.sock = socket.create_connection((self._address, self.port), self.timeout)
        if self._scheme == "https":
            self.sock = ssl.create_default_context().wrap_socket(self.sock, server_hostname=self.host)
