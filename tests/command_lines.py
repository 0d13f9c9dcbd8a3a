"""Ways to run a lar command line to its end: in this process or in one of its own."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent

# Where any Python finds the scripted engine: a package of its own, with an entry point.
SCRIPTED_ENGINE = REPOSITORY / "tests" / "engines" / "scripted_engine"
MODULE_PATH = os.pathsep.join(map(str, (REPOSITORY, SCRIPTED_ENGINE)))

Done = subprocess.CompletedProcess[str]


class OutOfTime(BaseException):
    """A command line that runs in this process does not end; lar handles no such exception."""


def run_here(words: Sequence[str], cwd: str | Path | None = None, timeout: float = 60) -> Done:
    """Run one lar command line in this process; its worker, if it needs one, is another."""
    from lar.cli.main import main

    def end(number: int, frame: object) -> None:
        raise OutOfTime(f"lar {' '.join(words)}: did not end in {timeout} s")

    stdout, stderr = (
        io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace", newline="")
        for _ in range(2)
    )
    with pytest.MonkeyPatch.context() as patch:
        if cwd is not None:
            patch.chdir(cwd)
        patch.setattr(sys, "argv", ["lar", *words])
        patch.setattr(sys, "stdout", stdout)
        patch.setattr(sys, "stderr", stderr)
        before = signal.signal(signal.SIGALRM, end)
        signal.setitimer(signal.ITIMER_REAL, timeout)
        try:
            code = main(list(words))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
    texts = []
    for stream in (stdout, stderr):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())
    return subprocess.CompletedProcess([*words], code, *texts)


def run_apart(
    words: Sequence[str],
    cwd: str | Path | None = None,
    timeout: float = 60,
    input: str | None = None,
    env: Mapping[str, str] | None = None,
) -> Done:
    """Run one lar command line in a process of its own, as a shell does."""
    return subprocess.run(
        [sys.executable, "-m", "lar", *words],
        cwd=cwd,
        input=input,
        stdin=subprocess.DEVNULL if input is None else None,
        # PYTHONPATH, so that `-m lar` is this one from any folder.
        env={**os.environ, "PYTHONPATH": MODULE_PATH, **(env or {})},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
