"""Programs of the tests, in processes of their own: MegEngine changes how one computes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[3]
MODELS = REPOSITORY / "models"
DIGITS = str(MODELS / "digits_cnn.mge")
INT8 = str(MODELS / "int8.mge")
# Searched without weights transformed ahead; of its convolutions two have winograd algorithms.
CACHE = REPOSITORY / "tests" / "data" / "digits_cnn.cache"


def run_python(
    *arguments: object,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    timeout: float = 60,
) -> subprocess.CompletedProcess[str]:
    """Run Python on arguments, with lar and these variables in its environment."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **(env or {})},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def ask(*arguments: object, cwd: str | Path | None = None) -> Any:
    """Return what a program has printed last, as JSON."""
    done = run_python(*arguments, cwd=cwd, timeout=100)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
