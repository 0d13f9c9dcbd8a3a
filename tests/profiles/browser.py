"""Pages in a browser, where one is installed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


def open_page(text: str, folder: Path) -> tuple[str, list[str]]:
    """Open a page in Chromium; return its elements as text, and what its console said."""
    file = folder / "page.html"
    file.write_text(text)
    flags = (
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        *("--enable-logging=stderr", "--dump-dom", f"--user-data-dir={folder / 'chromium'}"),
        # A page needs none of these, and they are a quarter of what a start costs.
        *("--no-first-run", "--disable-extensions", "--disable-default-apps", "--disable-sync"),
        *("--disable-background-networking", "--disable-component-update"),
        "--disable-features=Translate,OptimizationHints,MediaRouter,DialMediaRouteProvider",
    )
    with subprocess.Popen(
        [str(CHROMIUM), *flags, file.as_uri()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            elements, messages = process.communicate(timeout=120)
        finally:
            # One that hangs, and the processes that it has started.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return elements, [line for line in messages.splitlines() if "CONSOLE" in line]
