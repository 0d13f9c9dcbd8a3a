"""Pages in a browser, where one is installed.

One browser is started for all pages of a tests' process, when the first is opened, and shows them
one after the other: a start takes much longer than a page does. It is asked through two pipes, by
the DevTools protocol, and needs no network. A browser whose pipes are closed ends by itself.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
NEEDS_BROWSER = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    "--remote-debugging-pipe",
    # A page needs none of these, and they are a quarter of what a start costs.
    *("--no-first-run", "--disable-extensions", "--disable-default-apps", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
    "--disable-features=Translate,OptimizationHints,MediaRouter,DialMediaRouteProvider",
)
LONGEST = 120  # seconds for anything that a page does
WIDTHS = (400, 1000, 2000)
SCHEMES = ("light", "dark")

# What finds the faults of a page.
CHECKS = (Path(__file__).parent / "browser_checks.js").read_text()


class Browser:
    """A browser without a window."""

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="chromium-")
        commands, self.commands = os.pipe()
        self.answers, answers = os.pipe()
        # The protocol's places are 3 and 4; what is moved there must stand elsewhere before.
        given = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (commands, answers)]
        self.process = os.posix_spawn(
            str(CHROMIUM),
            [str(CHROMIUM), *FLAGS, f"--user-data-dir={self.folder}", "about:blank"],
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_DUP2, given[0], 3),
                (os.POSIX_SPAWN_DUP2, given[1], 4),
            ],
            setpgroup=0,
        )
        for end in (commands, answers, *given):
            os.close(end)
        self.unread = b""
        self.number = 0
        self.events: list[dict[str, Any]] = []

    def ask(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result; what happens meanwhile is kept in `events`."""
        self.number += 1
        command: dict[str, Any] = {"id": self.number, "method": method, "params": parameters}
        if session:
            command["sessionId"] = session
        os.write(self.commands, json.dumps(command).encode() + b"\0")
        answer = self.read_until(lambda message: message.get("id") == self.number)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def read_until(self, is_wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the first message that is wanted."""
        deadline = time.monotonic() + LONGEST
        while True:
            while b"\0" in self.unread:
                text, _, self.unread = self.unread.partition(b"\0")
                message: dict[str, Any] = json.loads(text)
                if "method" in message:
                    self.events.append(message)
                if is_wanted(message):
                    return message
            ready, _, _ = select.select([self.answers], [], [], deadline - time.monotonic())
            part = os.read(self.answers, 1 << 20) if ready else b""
            assert part, "the browser does not answer"
            self.unread += part

    def close(self) -> None:
        for end in (self.commands, self.answers):
            os.close(end)
        # One that hangs, and the processes that it has started.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.process, 0)
        shutil.rmtree(self.folder, ignore_errors=True)


class Page:
    """A page that is open in a browser."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.target = browser.ask("Target.createTarget", url="about:blank")["targetId"]
        found = browser.ask("Target.attachToTarget", targetId=self.target, flatten=True)
        self.session = found["sessionId"]
        for name in ("Page.enable", "Runtime.enable", "Log.enable"):
            self.ask(name)

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self.browser.ask(method, self.session, **parameters)

    def open(self, file: Path) -> None:
        """Open a file, and wait until all of it is there."""
        self.browser.events.clear()
        self.ask("Page.navigate", url=file.as_uri())
        if not any(each["method"] == "Page.loadEventFired" for each in self.browser.events):
            self.browser.read_until(lambda it: it.get("method") == "Page.loadEventFired")

    def resize(self, width: int, height: int = 900) -> None:
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            **{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )

    def emulate(self, *, scheme: str = "light", media: str = "") -> None:
        """Have the system ask for a colour scheme, or for paper (`print`)."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.ask("Emulation.setEmulatedMedia", media=media, features=features)

    def value(self, expression: str) -> Any:
        """Return the value of an expression, after what waits for the next picture was done."""
        drawn = "new Promise((done) => requestAnimationFrame(() => setTimeout(done)))"
        text = f"{drawn}.then(() => {expression})"
        result = self.ask(
            "Runtime.evaluate", expression=text, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def elements(self) -> str:
        """Return all elements as text."""
        return str(self.value("document.documentElement.outerHTML"))

    def press(self, key: str, text: str = "") -> None:
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            self.ask(
                "Input.dispatchKeyEvent",
                **{"type": kind, "key": key, "code": key, **({"text": text} if text else {})},
            )

    def pdf(self) -> bytes:
        taken = self.ask("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
        return base64.b64decode(taken["data"])

    def console(self) -> list[str]:
        """Return what the page has written there, and the errors that nothing has caught."""
        found = []
        for event in self.browser.events:
            given = event["params"]
            if event["method"] == "Runtime.consoleAPICalled":
                found.append(" ".join(str(it.get("description")) for it in given["args"]))
            elif event["method"] == "Runtime.exceptionThrown":
                found.append(str(given["exceptionDetails"]))
            elif event["method"] == "Log.entryAdded":
                found.append(str(given["entry"]["text"]))
        return found


@cache
def shared_page() -> Page:
    """The one page of a tests' process: another would take a process of its own."""
    browser = Browser()
    atexit.register(browser.close)
    return Page(browser)


def opened(
    text: str, folder: Path, *, width: int = 1000, height: int = 900, scheme: str = "light"
) -> Page:
    """Open a page in the browser, in place of the one before."""
    file = folder / "page.html"
    file.write_text(text)
    page = shared_page()
    page.resize(width, height)
    page.emulate(scheme=scheme)
    page.open(file)
    return page


def open_page(text: str, folder: Path) -> tuple[str, list[str]]:
    """Open a page in Chromium; return its elements as text, and what its console said."""
    page = opened(text, folder)
    return page.elements(), page.console()


def unreadable(page: Page) -> list[str]:
    """Return what of a page leaves it, is cut, has too little contrast, or is drawn smaller."""
    return [str(each) for each in page.value(CHECKS)]
