"""Files with every byte that a report must have.

After a change that is meant to be seen, `LAR_GOLDEN=write` writes them anew.
"""

from __future__ import annotations

import os
from pathlib import Path

GOLDEN = Path(__file__).parent / "golden"


def check_golden(name: str, content: str) -> None:
    file = GOLDEN / name
    if os.environ.get("LAR_GOLDEN") == "write":
        file.write_text(content)
    assert file.exists(), f"run the test with LAR_GOLDEN=write, then read and commit {file}"
    assert content == file.read_text()
