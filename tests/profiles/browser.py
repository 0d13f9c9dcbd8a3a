"""Pages in a browser, where one is installed."""

from __future__ import annotations

import shutil
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
    )
    done = subprocess.run(
        [str(CHROMIUM), *flags, file.as_uri()], capture_output=True, text=True, timeout=120
    )
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]
