"""A headless Chromium for tests, spoken to over a pipe in its DevTools protocol: no driver and no package is needed."""

from __future__ import annotations

import base64
import itertools
import json
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ANSWER_S = 30
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
# Chromium reads commands from descriptor 3 and answers on 4: a small program puts the pipes there and becomes Chromium.
_EXEC = """
import fcntl, os, sys
commands, answers = (fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3])
os.dup2(commands, 3)
os.dup2(answers, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
KEYS = {
    "Enter": ("Enter", 13, "\r"),
    "Escape": ("Escape", 27, ""),
    "Tab": ("Tab", 9, ""),
    "ArrowDown": ("ArrowDown", 40, ""),
}


def find_chromium() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One tab. What the page logged as an error, threw, or was forbidden by its policy is kept in `errors`."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._write = os.fdopen(to_browser, "wb", buffering=0)
        self._read = os.fdopen(from_browser, "rb")
        self._numbers = itertools.count(1)
        self._answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self._session: str | None = None
        self.errors: list[str] = []
        self.requests: list[str] = []
        threading.Thread(target=self._listen, daemon=True).start()
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "DOM"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        self._write.close()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol, and its result."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        self._write.write(json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + ANSWER_S
        while True:
            answer = self._answers.get(timeout=max(0.01, deadline - time.monotonic()))
            if answer["id"] == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return dict(answer["result"])

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def ask(self, script: str) -> Any:
        """The value of an expression in the page; promises are waited for."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, f"{script}: {result['exceptionDetails']}"
        return result["result"].get("value")

    def wait(self, script: str, timeout_s: float = 20) -> None:
        """Until the expression is truthy in the page."""
        deadline = time.monotonic() + timeout_s
        while not self.ask(f"Boolean({script})"):
            assert time.monotonic() < deadline, f"not within {timeout_s} s: {script}; errors: {self.errors}"
            time.sleep(0.05)

    def text(self, selector: str) -> str:
        return str(self.ask(f"document.querySelector({json.dumps(selector)}).innerText"))

    def _middle(self, selector: str) -> tuple[float, float]:
        script = (
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); "
            "e.scrollIntoView({block: 'nearest'}); const r = e.getBoundingClientRect(); "
            "return [r.left + r.width / 2, r.top + r.height / 2]; })()"
        )
        x, y = self.ask(script)
        return x, y

    def hover(self, selector: str) -> None:
        x, y = self._middle(selector)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector: str) -> None:
        x, y = self._middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, name: str) -> None:
        key, code, text = KEYS[name]
        for kind in ("keyDown", "keyUp"):
            typed = {"text": text} if text and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **typed)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def choose_files(self, selector: str, *paths: Path) -> None:
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(path) for path in paths])

    def resize(self, width: int, height: int, *, mobile: bool = False) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

    def dark(self, on: bool) -> None:
        features = [{"name": "prefers-color-scheme", "value": "dark" if on else "light"}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def picture(self, *, whole: bool = False) -> bytes:
        """What is to be seen, as PNG; with `whole` also what is below the window."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(shot["data"])

    def _listen(self) -> None:
        rest = b""
        while chunk := self._read.read1(1 << 16):
            *messages, rest = (rest + chunk).split(b"\0")
            for message in messages:
                self._take(json.loads(message))
        self._read.close()

    def _take(self, message: dict[str, Any]) -> None:
        told = message.get("params", {})
        if "id" in message:
            self._answers.put(message)
        elif message["method"] == "Runtime.exceptionThrown":
            self.errors.append(str(told["exceptionDetails"].get("exception", {}).get("description", told)))
        elif message["method"] == "Log.entryAdded" and told["entry"]["level"] == "error":
            self.errors.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")
        elif message["method"] == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])


@contextmanager
def running_browser(chromium: str, folder: Path) -> Iterator[Browser]:
    """A browser that has never been used before; its files go to `folder`."""
    command_read, command_write = os.pipe()
    answer_read, answer_write = os.pipe()

    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            _EXEC,
            str(command_read),
            str(answer_write),
            chromium,
            "--headless=new",
            "--remote-debugging-pipe",
            f"--user-data-dir={folder}",
            "--no-first-run",
            "--no-sandbox",  # tests run as root in containers; the only page that is opened is our own
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--force-color-profile=srgb",
            "--hide-scrollbars",
            "--window-size=1280,800",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(command_read, answer_write),
    )
    os.close(command_read)
    os.close(answer_write)
    browser = None
    try:
        browser = Browser(command_write, answer_read)
        browser.resize(1280, 800)
        yield browser
    finally:
        if browser is not None:
            browser.close()
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
