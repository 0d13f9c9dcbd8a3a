"""Runs that go wrong: what makes one do so, and how it must end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import PIPE

from tests.command_lines import MODULE_PATH

Done = subprocess.CompletedProcess[str]


def check_error(done: Done, code: int, *pieces: str) -> None:
    """The command failed with `code`, and its one error line with its hint holds the pieces."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    lines = done.stderr.splitlines()
    errors = [line for line in lines if line.startswith("lar: error: ")]
    assert len(errors) == 1, done.stderr
    place = lines.index(errors[0])
    assert len(lines) - place <= 2, done.stderr
    assert all(line.startswith("hint: ") for line in lines[place + 1 :]), done.stderr
    notes = ("lar: note: ", "lar: warning: ")
    words = ("the engine's last words:", "  | ") if code in (4, 124) else ()
    assert all(line.startswith((*notes, *words)) for line in lines[:place]), done.stderr
    text = "\n".join(lines[place:])
    for piece in pieces:
        assert piece.lower() in text.lower(), text


def check_not_started(done: Done) -> None:
    """No engine was started for what could be known before."""
    assert done.stdout == ""


def shim(folder: Path, *modules: str) -> dict[str, str]:
    """An environment in which Python does not find some modules."""
    lines = ["import sys", *(f"sys.modules[{name!r}] = None" for name in modules)]
    (folder / "sitecustomize.py").write_text("\n".join(lines))
    return {"PYTHONPATH": os.pathsep.join([str(folder), MODULE_PATH])}


def run_until(
    words: Sequence[str], cwd: Path, beginning: str, act: Callable[[subprocess.Popen[str]], object]
) -> Done:
    """Run a lar command line in a process of its own, and do something once it has printed a line
    that begins so."""
    whole = [sys.executable, "-m", "lar", *words]
    with subprocess.Popen(whole, cwd=cwd, stdout=PIPE, stderr=PIPE, text=True) as process:
        assert process.stdout is not None
        next(line for line in process.stdout if line.startswith(beginning))
        act(process)
        stdout, stderr = process.communicate(timeout=60)
    return Done(whole, process.returncode, stdout, stderr)


def run_limited(root: Path, kibibytes: int, *words: str, timeout: float = 60) -> Done:
    """Run lar in a shell that may not have more than so much address space."""
    command = f'ulimit -v {kibibytes} && exec "$0" -m lar "$@"'
    return subprocess.run(
        ["bash", "-c", command, sys.executable, *words],
        cwd=root,
        # One thread: each takes address space for its stack and its heap.
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
