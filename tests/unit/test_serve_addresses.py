"""What is fetched by URL, and what is not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from docvino.serve.addresses import Fetcher
from docvino.serve.problems import RefusalError


class Handler(BaseHTTPRequestHandler):
    hosts: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.hosts.append(self.headers["Host"])
        if self.path == "/away":
            self.send_response(302)
            self.send_header("Location", "/here.pdf")
            self.end_headers()
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"x" * (5000 if self.path == "/big" else 5))

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join(10)


def refused(fetcher: Fetcher, url: str) -> str:
    with pytest.raises(RefusalError) as caught:
        fetcher.fetch(url)
    assert "\n" not in str(caught.value)
    return caught.value.code


def test_a_document_of_an_allowed_host_is_fetched_from_the_checked_address(port: int) -> None:
    asked = []

    def resolve(host: str, _port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    fetcher = Fetcher(("docs.example", "127.0.0.0/8"), 1000, resolve)
    assert fetcher.fetch(f"http://docs.example:{port}/a/here%20it.pdf?x=1") == (b"xxxxx", "here it.pdf")
    assert asked == ["docs.example"]  # once: nobody can answer otherwise the second time
    assert Handler.hosts[-1] == f"docs.example:{port}"


def test_redirects_are_not_followed_and_large_answers_are_given_up(port: int) -> None:
    fetcher = Fetcher(("127.0.0.1",), 1000)
    assert refused(fetcher, f"http://127.0.0.1:{port}/away") == "not_fetched"
    assert refused(fetcher, f"http://127.0.0.1:{port}/big") == "too_large"
    assert refused(fetcher, "http://127.0.0.1:1/") == "not_fetched"


@pytest.mark.parametrize(
    "url",
    [
        "https://other.example/",
        "https://docs.example.evil.example/",
        "https://evildocs.example/",
        "https://10.0.0.1/",
        "https://[::1]/",
    ],
)
def test_other_hosts_are_not_asked(url: str) -> None:
    fetcher = Fetcher(("docs.example", "*.below.example"), 1000, lambda *_: pytest.fail("it was looked up"))
    assert refused(fetcher, url) == "url_not_allowed"


@pytest.mark.parametrize(
    "url",
    ["ftp://docs.example/", "file:///etc/passwd", "gopher://docs.example", "https://", "https://u:p@docs.example/",
     "https://docs.example/a\r\nX: y", "http://[::1", "http://docs.example:99999/", "javascript:alert(1)"],
)  # fmt: skip
def test_what_is_no_plain_url_is_refused(url: str) -> None:
    assert refused(Fetcher(("docs.example",), 1000, lambda *_: pytest.fail("asked")), url) == "bad_url"


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.1.2.3", "192.168.0.1", "172.16.9.9", "169.254.169.254", "0.0.0.0", "100.64.0.1", "224.0.0.1",
     "255.255.255.255", "::1", "::", "fe80::1%eth0", "fc00::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
     "64:ff9b::7f00:1", "2002:7f00:1::", "::127.0.0.1", "2001:db8::1", "fec0::1"],
)  # fmt: skip
def test_a_name_that_leads_to_a_private_address_is_refused(address: str) -> None:
    assert refused(Fetcher(("docs.example",), 1000, lambda *_: [address]), "http://docs.example/") == "private_address"
    mixed = Fetcher(("docs.example",), 1000, lambda *_: ["93.184.215.14", address])
    assert refused(mixed, "http://docs.example/") == "private_address"


def test_names_below_a_host_are_allowed_by_a_star() -> None:
    fetcher = Fetcher(("*.docs.example",), 1000, lambda *_: ["10.0.0.1"])
    assert refused(fetcher, "http://a.docs.example/") == "private_address"  # allowed, and then looked up
    assert refused(fetcher, "http://docs.example/") == "url_not_allowed"
