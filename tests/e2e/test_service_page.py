"""The page at `/` in a real Chromium, with the real service and nano behind it: what people do, and what they see."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from PIL import Image, ImageDraw, ImageFont

from browser import Browser, find_chromium, running_browser
from docvino.bundle import bundle_folder, is_vlm_bundle
from docvino.convert.vlm import convert_vlm
from docvino.demo import draw_page
from docvino.specs import nano
from models import MODELS

CHROMIUM = find_chromium()
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (Debian: apt-get install chromium)")

KEY = "a key for tests"
START_LIMIT_S = 120
JOB_ID = "location.hash.slice(1).split('/')[0]"
MARKUP = "<img src=x onerror=alert(1)>"
ROWS = (("Step", "Pages"), ("Scan", "48"), ("Repair", "17"))


@contextmanager
def serving(data: Path, *arguments: str) -> Iterator[str]:
    """`docvino serve` on a free port: its address."""
    log = data / "serve.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "docvino", "serve", "--preset", "nano", "--port", "0", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stream,
            env={**os.environ, "DOCVINO_DATA_DIR": str(data), "DOCVINO_CACHE_DIR": str(MODELS / "cache")},
        )
    try:
        until = time.monotonic() + START_LIMIT_S
        while not (found := re.search(r"http://[\d.]+:\d+", log.read_text(encoding="utf-8"))):
            assert process.poll() is None, log.read_text(encoding="utf-8")
            assert time.monotonic() < until
            time.sleep(0.1)
        yield found[0] + "/"
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with nano and without jobs."""
    kept = bundle_folder(MODELS, "nano", "fp32")
    if not is_vlm_bundle(kept):
        convert_vlm(nano.FOLDER, kept, "fp32")
    folder = tmp_path_factory.mktemp("data")
    shutil.copytree(kept, bundle_folder(folder, "nano", "fp32"))
    return folder


@pytest.fixture(scope="module")
def service(data: Path) -> Iterator[str]:
    with serving(data) as address:
        yield address


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert CHROMIUM is not None
    with running_browser(CHROMIUM, tmp_path_factory.mktemp("profile")) as browser:
        yield browser


def table_page() -> Image.Image:
    """A line that looks like markup, and a ruled table."""
    image = Image.new("RGB", (1100, 760), "white")
    pen, font = ImageDraw.Draw(image), ImageFont.load_default(30)
    pen.text((70, 90), MARKUP, font=font, fill="black")
    for row, cells in enumerate(ROWS):
        for column, text in enumerate(cells):
            left, top = 70 + 300 * column, 220 + 70 * row
            pen.rectangle((left, top, left + 300, top + 70), outline="black", width=2)
            pen.text((left + 20, top + 18), text, font=font, fill="black")
    return image


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two pages as a PDF of scans."""
    path = tmp_path_factory.mktemp("documents") / "report.pdf"
    draw_page().image.save(path, save_all=True, append_images=[table_page()], resolution=144)
    return path


def read(browser: Browser, document: Path) -> None:
    """Gives the document to the page that is open, and waits until it is read and shown."""
    browser.choose_files("#files", document)
    browser.wait("document.querySelector('#jobs li[data-status=done] [aria-current]')", 120)
    browser.wait("document.querySelector('.box') && document.querySelector('.block')")


@pytest.fixture(scope="module")
def address(chromium: Browser, service: str, report: Path) -> str:
    """Where the page shows the report, which was read once."""
    chromium.open(service)
    read(chromium, report)
    return str(chromium.ask("location.href"))


@pytest.fixture
def browser(chromium: Browser) -> Browser:
    chromium.resize(1280, 800)
    chromium.open("about:blank")
    chromium.errors.clear()
    chromium.requests.clear()
    return chromium


@pytest.fixture
def shown(browser: Browser, address: str) -> Browser:
    """The first page of the report."""
    browser.open(address)
    browser.wait("document.querySelector('.box') && document.querySelector('.block')")
    return browser


def test_a_document_is_read_and_shown_beside_its_picture(shown: Browser, service: str) -> None:
    assert shown.text("#name") == "report.pdf"
    assert shown.text("#state") == "2 pages"
    assert "page becomes text" in shown.text("#reading")
    boxes = shown.ask("[...document.querySelectorAll('.box')].map((box) => box.dataset.id)")
    blocks = shown.ask("[...document.querySelectorAll('.block')].map((block) => block.dataset.id)")
    assert boxes == blocks
    assert len(boxes) >= 3
    picture = shown.ask("[document.querySelector('canvas').width, document.querySelector('canvas').height]")
    assert picture == [1100, 760]
    assert shown.errors == []
    assert {url for url in shown.requests if not url.startswith((service, "blob:"))} == set()


def test_boxes_lie_on_what_was_read(shown: Browser) -> None:
    """The title's ink is inside the title's box, in pixels of the picture."""
    points = shown.ask("document.querySelector('.box polygon').getAttribute('points')")
    corners = [tuple(map(float, point.split(","))) for point in points.split()]
    left, top = (min(values) for values in zip(*corners, strict=True))
    right, bottom = (max(values) for values in zip(*corners, strict=True))
    assert left < 320 < 780 < right
    assert top < 90 < bottom


def test_pointing_at_one_lights_up_the_other(shown: Browser) -> None:
    lit = "[...document.querySelectorAll('.lit')].map((element) => element.dataset.id)"
    ids = shown.ask("[...document.querySelectorAll('.block')].map((block) => block.dataset.id)")
    shown.hover(f".block[data-id='{ids[1]}']")
    assert shown.ask(lit) == [ids[1], ids[1]]
    shown.hover(f".box[data-id='{ids[0]}'] polygon")
    assert shown.ask(lit) == [ids[0], ids[0]]


def test_keys_go_from_box_to_box_and_to_the_text(shown: Browser) -> None:
    ids = shown.ask("[...document.querySelectorAll('.block')].map((block) => block.dataset.id)")
    shown.ask("document.querySelector('.box').focus()")
    shown.press("ArrowDown")
    shown.press("Enter")
    assert shown.ask("document.activeElement.className").startswith("block")
    assert shown.ask("document.activeElement.dataset.id") == ids[1]


def test_a_table_is_a_table_and_markup_is_text(shown: Browser) -> None:
    shown.click("#after")
    shown.wait("document.querySelector('.block table')")
    cells = shown.ask("[...document.querySelectorAll('td')].map((cell) => cell.innerText.trim())")
    page = shown.ask(f"fetch('v1/jobs/' + {JOB_ID} + '/pages/1').then((answer) => answer.json())")
    assert cells == [cell["text"] for block in page["blocks"] for cell in block["cells"]]
    assert cells[:4] == [*ROWS[0], *ROWS[1]]  # nano may say a row twice
    assert "onerror" in shown.text("#reading")
    assert shown.ask("document.querySelectorAll('#reading img, #reading script').length") == 0
    assert shown.ask("location.hash").endswith("/2")


def test_the_slider_marks_what_is_unsure_in_both(shown: Browser) -> None:
    shown.ask("(() => { const it = document.getElementById('limit'); it.value = 100; "
              "it.dispatchEvent(new Event('input')); })()")  # fmt: skip
    marked = shown.ask("document.querySelectorAll('.box.marked').length")
    assert marked >= 1
    assert shown.ask("document.querySelectorAll('.block.marked').length") == marked
    assert shown.text("#marked").startswith(str(marked))


def test_kinds_are_hidden_by_the_legend(shown: Browser) -> None:
    shown.click("#legend button")
    kind = shown.ask("document.querySelector('#legend button').dataset.kind")
    assert shown.ask(
        f"[...document.querySelectorAll('.box[data-kind={kind}]')].every((box) => box.hasAttribute('hidden'))"
    )
    shown.click("#legend button")
    assert shown.ask("document.querySelectorAll('.box[hidden]').length") == 0


def test_the_markdown_is_that_of_the_service(shown: Browser) -> None:
    shown.click("#tab-markdown")
    shown.wait("document.querySelector('#markdown').textContent.includes('How a page')")
    theirs = shown.ask(f"fetch('v1/jobs/' + {JOB_ID} + '/result?format=markdown').then((answer) => answer.text())")
    assert shown.ask("document.querySelector('#markdown').textContent") == theirs
    shown.click("#tab-reading")


@pytest.mark.parametrize(("name", "ending", "begins"), [("Markdown", "md", b""), ("PDF, searchable", "pdf", b"%PDF")])
def test_results_are_saved_under_the_documents_name(
    shown: Browser, tmp_path: Path, name: str, ending: str, begins: bytes
) -> None:
    shown.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    shown.click("#downloads summary")
    shown.ask(f"[...document.querySelectorAll('#formats button')].find((b) => b.textContent === '{name}').click()")
    shown.wait("!document.getElementById('downloads').open", 60)
    saved = tmp_path / f"report.{ending}"
    for _ in range(100):
        if saved.is_file():
            break
        shown.ask("new Promise((resolve) => setTimeout(resolve, 50))")
    assert saved.read_bytes().startswith(begins)
    assert saved.stat().st_size > 100


def test_the_address_leads_back_to_the_page(browser: Browser, address: str) -> None:
    browser.open(address.removesuffix("/1") + "/2")
    browser.wait("document.querySelector('.block table')")
    assert browser.text("#name") == "report.pdf"
    assert browser.ask("document.getElementById('number').value") == "2"


def test_deleting_asks_once_and_then_leaves_nothing(browser: Browser, service: str, report: Path) -> None:
    count = "fetch('v1/jobs').then((answer) => answer.json()).then((said) => said.jobs.length)"
    browser.open(service)
    read(browser, report)
    before = browser.ask(count)
    browser.click("#delete")
    assert browser.text("#delete") == "Really delete?"
    browser.click("#delete")
    browser.wait("!document.getElementById('welcome').hidden")
    assert browser.ask(count) == before - 1


def test_what_is_no_document_is_told_with_its_fix(browser: Browser, service: str, tmp_path: Path) -> None:
    wrong = tmp_path / "notes.pdf"
    wrong.write_bytes(b"these are no pages")
    browser.open(service)
    browser.choose_files("#files", wrong)
    browser.wait("document.querySelector('#problems .problem')")
    told = browser.ask("[...document.querySelectorAll('#problems .problem > *')].map((part) => part.innerText)")
    assert told[0]
    assert told[1]
    assert told[2].startswith("request ")
    assert browser.ask("document.getElementById('problems').getAttribute('role')") == "alert"
    assert told[0] in browser.text("#failure")
    assert browser.ask("document.querySelector('.halves').hidden")


def test_nothing_is_wider_than_a_phone(shown: Browser) -> None:
    shown.resize(390, 844, mobile=True)
    shown.wait("document.documentElement.clientWidth === 390")
    assert shown.ask("document.documentElement.scrollWidth") == 390
    box = shown.ask("document.querySelector('.paper').getBoundingClientRect().width")
    assert 250 < box <= 390


@pytest.mark.slow
def test_a_key_is_asked_for_and_goes_with_every_request(browser: Browser, data: Path, report: Path) -> None:
    with serving(data, "--api-key", KEY) as address:
        browser.open(address)
        browser.wait("document.getElementById('key').open")
        browser.type(KEY)
        browser.press("Enter")
        browser.wait("!document.getElementById('key').open")
        browser.choose_files("#files", report)
        browser.wait("document.querySelector('.box')", 120)
        assert browser.ask("sessionStorage.length + localStorage.length + document.cookie.length") == 1
        assert KEY not in browser.ask("location.href")
