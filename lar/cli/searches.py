"""Searches for several models at the same time, each in a process of its own.

The process computes little: workers of a farm play its trials. What it prints is kept in files and
printed whole when it has ended. It sends its progress and, in the end, what came of the search; if
this process dies, it ends too.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lar.cli.progress_line import PacedLine
from lar.errors import EXIT_CODES, LarError
from lar.records.run import Failure
from lar.running.interrupts import heed_interrupts
from lar.running.worker_process import module_path

if TYPE_CHECKING:
    from lar.tuning.session import Planned

CODE = """\
import sys
sys.path[:] = {path!r}
from lar.cli.searches import answer
answer({descriptor})
"""
LOOK_SECONDS = 0.2
# An interrupted search may take so long to have its worker end, and to print.
END_SECONDS = 15.0


class Ended(NamedTuple):
    """What came of a search: a sentence, and why it failed, if it did."""

    said: str
    error: LarError | None = None


Tune = Callable[[argparse.Namespace, "Planned", Callable[[str], None]], Ended]
"""Searches for one model of several, and shows its progress."""


class Search:
    """A search in a process of its own."""

    def __init__(
        self, number: int, tune: Tune, arguments: argparse.Namespace, planned: Planned
    ) -> None:
        self.number = number
        self.name = name_of(planned)
        self.doing = ""
        self.ended: Ended | None = None
        self._printed = [tempfile.TemporaryFile() for _ in range(2)]  # noqa: SIM115 - see close
        self.connection, theirs = Pipe()
        with theirs:
            code = CODE.format(path=module_path(), descriptor=theirs.fileno())
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                stdout=self._printed[0],
                stderr=self._printed[1],
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self.connection.send((sys.argv, tune, arguments, planned))

    def take(self) -> None:
        """Take what the process has sent."""
        try:
            kind, value = self.connection.recv()
        except (EOFError, OSError):
            code = self._process.wait()
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            error = LarError(
                f"the process of its search has ended: {how}",
                "the same command again goes on with its session",
                subject=self.name,
            )
            self.ended = Ended(error.message, error)
            return
        if kind == "doing":
            self.doing = value
        else:
            said, failure = value
            self.ended = Ended(said, failure and failure.to_error())

    def interrupt(self) -> None:
        """Have it end, with what it has found."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)

    def close(self) -> None:
        """End it, and print what it has printed."""
        if self.ended is None:
            self._process.kill()
        self._process.wait()
        self.connection.close()
        for file, stream in zip(self._printed, (sys.stdout, sys.stderr), strict=True):
            with file:
                file.seek(0)
                stream.flush()
                shutil.copyfileobj(file, stream.buffer)
                stream.flush()


def search_at_once(
    tune: Tune, arguments: argparse.Namespace, planned: Sequence[Planned], most: int
) -> list[Ended]:
    """Search for models, at most so many at once; print what each has printed when it has ended.

    An interrupt ends all that have begun, and is raised when they have printed what they found.
    """
    waiting = dict(enumerate(planned))
    running: list[Search] = []
    ended: dict[int, Ended] = {}
    with PacedLine(sys.stderr) as line:
        try:
            while waiting or running:
                running.extend(
                    Search(number, tune, arguments, waiting.pop(number))
                    for number in able_to_begin(waiting, running)[: most - len(running)]
                )
                take_all(running)
                for search in [it for it in running if it.ended is not None]:
                    line.end()
                    running.remove(search)
                    search.close()
                    assert search.ended is not None
                    ended[search.number] = search.ended
                if running:
                    line.show("; ".join(f"{it.name}: {it.doing}" for it in running if it.doing))
        except KeyboardInterrupt:
            deadline = time.monotonic() + END_SECONDS
            for search in running:
                search.interrupt()
            while any(it.ended is None for it in running) and time.monotonic() < deadline:
                take_all(it for it in running if it.ended is None)
            raise
        finally:
            line.end()
            for search in running:
                search.close()
    return [ended[number] for number in range(len(planned))]


def able_to_begin(waiting: Mapping[int, Planned], running: Iterable[Search]) -> list[int]:
    """Return the numbers of those that wait and whose session is surely not that of another: it is
    named after the model, and which name is free is seen when the search begins."""
    taken = {Path(each.name).stem for each in running}
    found = []
    for number, planned in waiting.items():
        stem = Path(name_of(planned)).stem
        if stem not in taken:
            taken.add(stem)
            found.append(number)
    return found


def name_of(planned: Planned) -> str:
    """Return the name of a model's file."""
    return Path(planned.request.spaces[0].model).name


def take_all(searches: Iterable[Search]) -> None:
    """Take what processes have sent, after waiting for it a while."""
    by_connection: dict[Any, Search] = {each.connection: each for each in searches}
    for connection in wait([*by_connection], LOOK_SECONDS):
        by_connection[connection].take()


def answer(descriptor: int) -> None:
    """Make the search that is asked for through a connection."""
    from lar.cli.main import print_error, print_traceback

    heed_interrupts()
    connection = Connection(descriptor)
    sys.argv, tune, arguments, planned = connection.recv()
    threading.Thread(target=end_with_parent, args=(connection,), daemon=True).start()
    try:
        ended: Ended = tune(arguments, planned, lambda text: connection.send(("doing", text)))
    except KeyboardInterrupt:
        ended = Ended("interrupted")
    except Exception as error:  # a defect: the other searches go on
        if arguments.debug:
            print_traceback()
        print_error(
            f"{type(error).__name__}: {error}", "this is a defect of lar; --debug shows where"
        )
        os._exit(EXIT_CODES["failed"])
    sys.stdout.flush()
    sys.stderr.flush()
    with contextlib.suppress(OSError):
        connection.send(("ended", (ended.said, ended.error and Failure.of(ended.error))))
    os._exit(0)


def end_with_parent(connection: Connection) -> None:
    """Interrupt this process when nobody is left to whom it could send."""
    with contextlib.suppress(EOFError, OSError):
        connection.recv()
    os.kill(os.getpid(), signal.SIGINT)
