"""Ways to run a lar command line to its end: in this process or in one of its own."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Where any Python finds the scripted engine: a package of its own, with an entry point.
SCRIPTED_ENGINE = ROOT / "tests" / "engines" / "scripted_engine"
MODULE_PATH = os.pathsep.join(map(str, (ROOT, SCRIPTED_ENGINE)))

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
        variables = {*os.environ}
        before = signal.signal(signal.SIGALRM, end)
        signal.setitimer(signal.ITIMER_REAL, timeout)
        try:
            code = main(list(words))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            for name in {*os.environ} - variables:  # as of --max-file-size
                del os.environ[name]
    texts = []
    for stream in (stdout, stderr):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())
    return subprocess.CompletedProcess([*words], code, *texts)


def run_program(
    *words: str,
    cwd: str | Path = ROOT,
    input: str | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 120,
    code: int | None = None,
) -> Done:
    """Run a program to its end, in an environment that takes the place of this one if it is given.
    With a `code`, it must end with that."""
    done = subprocess.run(
        words,
        cwd=cwd,
        input=input,
        stdin=subprocess.DEVNULL if input is None else None,
        env=env,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert code in (None, done.returncode), f"{done.stdout}\n{done.stderr}"
    return done


def run_python(*words: str, **options: Any) -> Done:
    """Run this Python to its end, as `run_program` does."""
    return run_program(sys.executable, *words, **options)


def run_apart(
    words: Sequence[str],
    cwd: str | Path | None = None,
    timeout: float = 60,
    input: str | None = None,
    env: Mapping[str, str] | None = None,
) -> Done:
    """Run one lar command line in a process of its own, as a shell does."""
    # PYTHONPATH, so that `-m lar` is this one from any folder.
    environment = {**os.environ, "PYTHONPATH": MODULE_PATH, **(env or {})}
    place = os.getcwd() if cwd is None else cwd
    return run_python("-m", "lar", *words, cwd=place, timeout=timeout, input=input, env=environment)


def run_lar(
    *words: str,
    cwd: str | Path | None = None,
    input: str | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 60,
    code: int | None = None,
) -> Done:
    """Run one lar command line to its end: `run_lar("info", model, timeout=60)`. With a `code`, it
    must end with that.

    The command line runs in this process, and its worker in another as ever: starting Python and
    importing NumPy for each of a thousand would double what they cost. With standard input or an
    environment it gets a process of its own, and so it does on another thread and where the model
    would run in this process.
    """
    on_main_thread = threading.current_thread() is threading.main_thread()
    without_worker = "--in-process" in (word.replace("_", "-") for word in words)
    if input is None and env is None and on_main_thread and not without_worker:
        done = run_here(words, cwd, timeout)
    else:
        done = run_apart(words, cwd, timeout, input, env)
    assert code in (None, done.returncode), f"{done.stdout}\n{done.stderr}"
    return done
