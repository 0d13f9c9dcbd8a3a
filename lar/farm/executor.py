"""The process beside a Dask worker that makes the runs of its jobs, one after the other.

It reads a line for each job and writes lines: what happens, and in the end the answer. Runs are
made here, not in a thread of Dask's: an interrupt ends them as Ctrl-C does in a shell.

    python -m lar.farm.executor
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, BinaryIO

from lar.engines import engine_named
from lar.errors import Interrupted, LarError, first_line
from lar.files.work_folders import work_folder
from lar.measurement.listener import Listener
from lar.measurement.machine import read_machine
from lar.measurement.rows import SampleRows
from lar.records.events import Event, line_of
from lar.records.run import (
    Failure,
    RunResult,
    read_request,
    record_from_json,
    record_to_json,
)
from lar.running.interrupts import heed_interrupts
from lar.running.steps import make_here
from lar.worker.main import end_with_parent

# What is followed from afar is passed on this often: more would disturb what is timed.
FLUSH_SECONDS = 0.5
# More rows between two of these are not passed on.
MOST_ROWS = 2000


class Stream(Listener):
    """Writes what happens during a job as lines, some at once."""

    def __init__(self, write: Callable[[str, Any], None], *, is_followed: bool) -> None:
        self._write = write
        self._is_followed = is_followed
        self._entries: list[Any] = []
        self._rows = 0
        self._due = time.monotonic()

    def add(self, *entry: Any, now: bool = False) -> None:
        """Pass an entry on, soon or now."""
        if not self._is_followed:
            return
        self._entries.append(entry)
        if now or time.monotonic() >= self._due:
            self.flush()

    def flush(self) -> None:
        """Pass on what waits."""
        if self._entries:
            self._write("happened", self._entries)
        self._entries, self._rows = [], 0
        self._due = time.monotonic() + FLUSH_SECONDS

    def on_event(self, event: Event, result: RunResult) -> None:
        self.add("event", line_of(event).decode(), now=True)

    def on_rows(self, rows: SampleRows, first: int, last: int, result: RunResult) -> None:
        self._rows += last - first
        if self._rows <= MOST_ROWS:
            times = [rows.row(index) for index in range(first, last)]
            self.add("rows", rows.runner, first, times, rows.warmups)

    def on_log(self, text: bytes) -> None:
        self.add("log", text.decode(errors="replace"))

    def on_progress(self, text: str, elapsed: float) -> None:
        self.add("progress", text, elapsed)


def play_run(request: str, stream: Stream) -> bytes:
    """Make a run; return its result as JSON."""
    spec, context = read_request(request)
    context = replace(context, began=time.monotonic())
    return record_to_json(make_here(spec, context, stream))


def play_bench(request: str, stream: Stream) -> bytes:
    """Make a bench; return its result as JSON."""
    from lar.farm.requests import BenchRequest  # few jobs are benches
    from lar.running.bench import BenchProgress, run_bench

    def report(progress: BenchProgress) -> None:
        stream.add("bench", asdict(progress))

    asked = record_from_json(request, BenchRequest)
    result = run_bench(
        asked.variants,
        asked.baseline,
        budget_seconds=asked.budget_seconds,
        margin=asked.margin,
        report=report,
    )
    return result.to_json().encode()


def play_round(request: str, stream: Stream) -> bytes:
    """Play a round of a search; its results are passed on as its processes end."""
    from lar.tuning.player import LocalPlayer, RoundOrder

    def keep(place: int, result: RunResult) -> None:
        stream.add("ended", place, record_to_json(result).decode(), now=True)

    order = record_from_json(request, RoundOrder)
    with work_folder() as folder:
        LocalPlayer(Path(folder)).play(order, lambda doing: stream.add("show", doing), keep)
    return b"{}"


def make_space(request: str, stream: Stream) -> bytes:
    """Return what a search can try here, and the facts about this machine, as JSON."""
    from lar.farm.requests import SearchAnswer, SearchRequest
    from lar.tuning.requests import make_request

    asked = record_from_json(request, SearchRequest)
    made = make_request(asked.models, asked.options, asked.asked, asked.engines)
    engines = {space.engine: engine_named(space.engine).version for space in made.spaces}
    return record_to_json(SearchAnswer(made, read_machine(), engines))


KINDS: Mapping[str, Callable[[str, Stream], bytes]] = {
    "run": play_run,
    "bench": play_bench,
    "round": play_round,
    "space": make_space,
}


def answer_to(job: Mapping[str, Any], write: Callable[[str, Any], None]) -> tuple[str, Any]:
    """Do a job; return what is written in the end."""
    stream = Stream(write, is_followed=job["follow"])
    sys.argv = job["arguments"]
    try:
        record = KINDS[job["kind"]](job["request"], stream)
        stream.flush()
    except KeyboardInterrupt:
        return "failure", asdict(Failure.of(Interrupted("interrupted")))
    except LarError as error:
        return "failure", asdict(Failure.of(error))
    except Exception as error:  # a defect: it ends as one line all the same
        hint = "this is a defect of lar"
        return "failure", asdict(Failure(f"{type(error).__name__}: {first_line(error)}", hint))
    return "record", record.decode()


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Do jobs until no more come."""

    def write(kind: str, value: Any) -> None:
        answers.write(json.dumps([kind, value]).encode() + b"\n")
        answers.flush()

    while True:
        with contextlib.suppress(KeyboardInterrupt):  # it came when the job was done
            line = requests.readline()
            if not line:
                return
            write(*answer_to(json.loads(line), write))


def main() -> None:
    """Serve the Dask worker that has started this process; never returns."""
    end_with_parent()
    heed_interrupts()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what anything prints goes to the log of the Dask worker
    try:
        serve(sys.stdin.buffer, answers)
    finally:
        os._exit(0)


if __name__ == "__main__":
    main()
