"""Runs that go wrong: what makes one do so, and how it must end."""

from __future__ import annotations

import contextlib
import os
import pty
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL, PIPE

from tests.command_lines import MODULE_PATH, ROOT, run_lar

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


def broken(folder: Path, *modules: str) -> dict[str, str]:
    """An environment in which Python finds some modules, and they do not load."""
    for name in modules:
        (folder / f"{name}.py").write_text("raise ImportError('broken')\n")
    return shim(folder)


@contextlib.contextmanager
def started(
    *words: str, cwd: Path = ROOT, before: Sequence[str] = ()
) -> Iterator[subprocess.Popen[str]]:
    """A lar command line in a process of its own, which goes on, and is killed in the end."""
    # No preexec_fn: a worker of pytest-xdist has a second thread, which may hold a lock that the
    # fork needs.
    command = [*before, sys.executable, "-m", "lar", *words]
    with subprocess.Popen(
        command, cwd=cwd, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def printed_on_terminal(*words: str, env: Mapping[str, str] | None = None) -> str:
    """What a lar command line prints on a terminal, until it has ended."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "lar", *words]
    with (
        os.fdopen(leader, "rb", buffering=0) as terminal,
        subprocess.Popen(command, stdout=follower, stderr=follower, env=env) as process,
    ):
        os.close(follower)
        printed = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while piece := terminal.read(1 << 16):
                printed += piece
    assert process.returncode == 0, printed
    return printed.decode()


def read_until(process: subprocess.Popen[str], beginning: str) -> list[str]:
    """Read lines of what a program prints, up to one that begins so."""
    assert process.stdout is not None
    lines: list[str] = []
    while not (lines and lines[-1].startswith(beginning)):
        line = process.stdout.readline()
        assert line, lines
        lines.append(line.rstrip("\n"))
    return lines


def end_of(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Read what is left of a process's output and errors, until it has ended.

    Not `communicate`: it passes over what `read_until` has buffered.
    """
    assert process.stdout is not None
    assert process.stderr is not None
    output, errors = process.stdout.read(), process.stderr.read()
    process.wait(30)
    return output, errors


def run_until(
    words: Sequence[str], beginning: str, act: Callable[[subprocess.Popen[str]], object]
) -> Done:
    """Run a lar command line in a process of its own, and do something once it has printed a line
    that begins so."""
    with started(*words) as process:
        lines = read_until(process, beginning)
        act(process)
        stdout, stderr = end_of(process)
    return Done([*words], process.returncode, "\n".join([*lines, stdout]), stderr)


def run_shell(command: str, *words: str, cwd: Path) -> Done:
    """Run a shell command in which $LAR is lar and $1... are words."""
    return subprocess.run(
        ["bash", "-c", command.replace("$LAR", f"'{sys.executable}' -m lar"), "bash", *words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": MODULE_PATH},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def run_limited(kibibytes: int, *words: str) -> Done:
    """Run lar in a shell that may not have more than so much address space."""
    # One thread: each takes address space for its stack and its heap.
    command = f'export OMP_NUM_THREADS=1; ulimit -v {kibibytes} && exec $LAR "$@"'
    return run_shell(command, *words, cwd=ROOT)


def contents_of(place: Path) -> dict[str, tuple[int, int]]:
    """The files of a folder, each with its size and the time of its last change."""
    found = {path: path.stat() for path in place.rglob("*") if path.is_file()}
    return {str(path): (stat.st_size, stat.st_mtime_ns) for path, stat in found.items()}


def refuse(place: Path, command: str, parts: list[str], code: int = 2) -> Done:
    """Check that a command line is refused, and return what it prints."""
    before = contents_of(place)
    done = run_lar(*shlex.split(command), cwd=place)
    check_error(done, code, *(part.strip() for part in parts))
    assert max(map(len, done.stderr.splitlines())) < 1000
    assert "parse_" not in done.stderr  # no names of functions
    assert "try fewer options" not in done.stderr
    assert contents_of(place) == before
    return done
