"""Fixtures that every test may use: the repository, the command line, scripted models."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent

RunLar = Callable[..., "subprocess.CompletedProcess[str]"]
WriteScript = Callable[..., str]


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return REPOSITORY


@pytest.fixture(scope="session")
def run_lar() -> RunLar:
    """Run one lar command line to its end: `run_lar("info", model, timeout=60)`."""

    def run(
        *args: str,
        cwd: str | Path | None = None,
        input: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 60,
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "lar", *args],
            cwd=cwd,
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            # PYTHONPATH, so that `-m lar` is this one from any folder.
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), **(env or {})},
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    return run


@pytest.fixture
def write_script(tmp_path: Path) -> WriteScript:
    """Write a script for the fake engine into the test's folder and return its path."""
    count = 0

    def write(**fields: Any) -> str:
        nonlocal count
        path = tmp_path / f"script_{count}.fake"
        path.write_text(json.dumps(fields))
        count += 1
        return str(path)

    return write


@pytest.fixture(autouse=True)
def keep_subnormal_numbers() -> None:
    """Undo what MegEngine's library does to a process that loads it: subnormals become zero.

    Of the C library's floating-point environments, -1 is the default one (fenv.h).
    """
    if "megengine" in sys.modules or "megenginelite" in sys.modules:
        ctypes.CDLL(None).fesetenv(ctypes.c_void_p(-1))
