"""Programs of the tests, in processes of their own: MegEngine changes how one computes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests import command_lines

REPOSITORY = Path(__file__).resolve().parents[3]
MODELS = REPOSITORY / "models"
DIGITS = str(MODELS / "digits_cnn.mge")
INT8 = str(MODELS / "int8.mge")
# Searched without weights transformed ahead; of its convolutions two have winograd algorithms.
CACHE = REPOSITORY / "tests" / "data" / "digits_cnn.cache"


def run_python(
    *arguments: object, env: Mapping[str, str] | None = None, **options: Any
) -> command_lines.Done:
    """Run Python on arguments, with lar and these variables in its environment."""
    environment = {**os.environ, "PYTHONPATH": command_lines.MODULE_PATH, **(env or {})}
    return command_lines.run_python(*map(str, arguments), env=environment, **options)


def ask(*arguments: object) -> Any:
    """Return what a program has printed last, as JSON."""
    return json.loads(run_python(*arguments, timeout=100, code=0).stdout.splitlines()[-1])
