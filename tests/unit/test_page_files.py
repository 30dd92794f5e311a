"""The files of the page at `/`: how they are sent, and what must never be in them."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from importlib.resources import files

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from docvino.render import flow
from docvino.serve.page import POLICY, add_page
from docvino.settings import ParseOptions

STATIC = files("docvino.serve") / "static"
FILES = {file.name: file.read_text(encoding="utf-8") for file in STATIC.iterdir()}
SCRIPTS = {name: text for name, text in FILES.items() if name.endswith(".js")}
CSS = FILES["page.css"]
TYPES = {
    "/": "text/html; charset=utf-8",
    "/page/page.css": "text/css; charset=utf-8",
    "/page/page.js": "text/javascript; charset=utf-8",
    "/page/icon.svg": "image/svg+xml",
}


@pytest.fixture(scope="module")
def client() -> TestClient:
    app = FastAPI()
    add_page(app)
    return TestClient(app)


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


def tags() -> list[tuple[str, dict[str, str | None]]]:
    parser = Tags()
    parser.feed(FILES["index.html"])
    return parser.seen


@pytest.mark.parametrize(("path", "media_type"), TYPES.items())
def test_files_say_what_they_are_and_what_they_may(client: TestClient, path: str, media_type: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == media_type
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_policy_allows_nothing_inline_and_no_other_host() -> None:
    assert "default-src 'none'" in POLICY
    assert "unsafe" not in POLICY
    assert "http" not in POLICY


def test_a_file_that_is_known_is_not_sent_again(client: TestClient) -> None:
    first = client.get("/page/page.js")
    again = client.get("/page/page.js", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert first.headers["cache-control"] == "no-cache"


def test_every_file_is_sent_and_nothing_else(client: TestClient) -> None:
    for name, text in FILES.items():
        assert client.get("/" if name == "index.html" else f"/page/{name}").text == text
    for path in ("/page/", "/page/index.html", "/page/../page.py", "/page/%2e%2e/page.py", "/page/nothing.js"):
        assert client.get(path).status_code == 404, path


def test_the_page_asks_nothing_of_other_hosts() -> None:
    for name, text in FILES.items():
        outside = re.findall(r"""["'(]\s*(?:https?:)?//[^"')\s]+""", text)
        assert [found for found in outside if "www.w3.org/" not in found] == [], name  # names of namespaces


def test_no_text_of_a_model_can_become_markup() -> None:
    unsafe = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|srcdoc|setHTML")
    for name, text in SCRIPTS.items():
        assert unsafe.search(text) is None, name
        assert "text/html" not in text, name


def test_there_is_nothing_inline_that_the_policy_would_stop() -> None:
    for tag, attributes in tags():
        assert tag != "style"
        assert tag != "script" or attributes.get("src")
        assert not any(name == "style" or name.startswith("on") for name in attributes), (tag, attributes)


def test_addresses_are_relative_so_that_a_proxy_may_add_a_prefix() -> None:
    for tag, attributes in tags():
        for name in ("src", "href"):
            assert not (attributes.get(name) or "").startswith("/"), (tag, attributes)
    assert not re.search(r"""["'`]/(?:v1|page/|version)""", "".join(SCRIPTS.values()))


def test_every_element_that_a_script_takes_is_there_once() -> None:
    ids = [attributes["id"] for _, attributes in tags() if "id" in attributes]
    assert len(set(ids)) == len(ids)
    taken = {name for text in SCRIPTS.values() for name in re.findall(r'\$\("([\w-]+)"\)', text)}
    assert taken - set(ids) == set()


def test_everything_to_be_used_has_a_name() -> None:
    labelled = re.sub(r"<label.*?</label>", "", FILES["index.html"], flags=re.DOTALL)
    assert "<input" not in labelled
    for body in re.findall(r"<button[^>]*>(.*?)</button>", FILES["index.html"], re.DOTALL):
        assert body.strip()
    assert all("alt" in attributes for tag, attributes in tags() if tag == "img")


def test_labels_are_those_of_the_outputs() -> None:
    found = re.search(r"export const LABELS = (\{.*?\});", SCRIPTS["labels.js"], re.DOTALL)
    assert found is not None
    labels = {kind: set(names) for kind, names in json.loads(found[1]).items()}
    assert labels == {
        "title": set(flow.TITLES),
        "caption": set(flow.CAPTIONS),
        "picture": set(flow.PICTURES),
        "furniture": set(flow.FURNITURE),
        "lines": set(flow._LINES),
    }


def test_fields_of_the_form_are_options_of_a_call() -> None:
    names = {attributes["name"] for tag, attributes in tags() if tag == "input" and "name" in attributes}
    assert names == {"pages", "password", "restructure_pages"}
    assert names <= set(ParseOptions.model_fields)


def colours(dark: bool) -> dict[str, str]:
    light_part, dark_part = CSS.split("@media (prefers-color-scheme: dark)", 1)
    pattern = re.compile(r"--([\w-]+): (#[0-9a-f]{6})")
    return dict(pattern.findall(light_part)) | (dict(pattern.findall(dark_part.split("* {")[0])) if dark else {})


def luminance(colour: str) -> float:
    """Source: WCAG 2.2, relative luminance."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_texts_stand_out_from_what_they_stand_on(dark: bool) -> None:
    """Source: WCAG 2.2, 1.4.3: 4.5 for texts; 1.4.11: 3 for the edges of what is used."""
    known = colours(dark)
    for text in ("ink", "quiet", "warn", "bad", "good", "title", "text", "table", "formula", "picture", "caption"):
        assert contrast(known[text], known["paper"]) >= 4.5, text
    pairs = (
        ("ink", "ground"), ("quiet", "ground"), ("first-ink", "first"), ("ink", "lit"), ("warn", "warn-ground"),
        ("bad", "bad-ground"), ("ink", "bad-ground"), ("quiet", "bad-ground"),
    )  # fmt: skip
    for text, ground in pairs:
        assert contrast(known[text], known[ground]) >= 4.5, (text, ground)
    assert contrast(known["edge-strong"], known["paper"]) >= 3
    assert contrast(known["focus"], known["paper"]) >= 3
