"""The process beside a Dask worker that does a task in its folder.

Runs are made here, and not in one of Dask's threads: an interrupt ends them as Ctrl-C does in a
shell.
"""

from __future__ import annotations

import os
import pickle
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from lar.engines import engine_named
from lar.engines.listener import Listener
from lar.errors import Interrupted, LarError, first_line
from lar.farm.sending import ROOT, Answer, check_place, map_texts
from lar.farm.worker import Task
from lar.measurement.machine import read_machine
from lar.measurement.rows import SampleRows
from lar.records.events import Event
from lar.records.run import Failure, RunContext, RunResult, RunSpec
from lar.running.interrupts import heed_interrupts, uninterrupted
from lar.running.steps import make_here
from lar.worker.main import end_with_parent

if TYPE_CHECKING:  # most tasks are runs
    from lar.records.bench import BenchResult
    from lar.records.run import MachineFacts
    from lar.records.tuning import TuneRequest
    from lar.running.variants import Variant
    from lar.tuning.player import RoundOrder

# So often news is passed on: more often would disturb what is timed.
FLUSH_SECONDS = 0.5
# Not more rows than this are passed on at once.
MOST_ROWS = 2000


class Stream(Listener):
    """Writes what happens during a task, some of it at once."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._entries: list[Any] = []
        self._rows = 0
        self._due = time.monotonic()

    def add(self, *entry: Any, now: bool = False) -> None:
        """Pass an entry on, soon or now."""
        self._entries.append(entry)
        if now or time.monotonic() >= self._due:
            self.flush()

    def flush(self) -> None:
        """Pass on what is waiting."""
        self.write(pickle.dumps(self._entries))
        self._entries, self._rows = [], 0
        self._due = time.monotonic() + FLUSH_SECONDS

    def write(self, said: bytes | Answer) -> None:
        """Say something to the Dask worker."""
        pickle.dump(said, self._file)
        self._file.flush()

    def on_event(self, event: Event, result: RunResult) -> None:
        self.add("event", event, now=True)

    def on_rows(self, rows: SampleRows, first: int, last: int, result: RunResult) -> None:
        self._rows += last - first
        if self._rows <= MOST_ROWS:
            times = [*rows.times(first, last)]
            self.add("rows", rows.runner, first, times, rows.warmups)

    def on_log(self, text: bytes) -> None:
        self.add("log", text)

    def on_progress(self, text: str, elapsed: float) -> None:
        self.add("progress", text, elapsed)


def play_run(stream: Stream, spec: RunSpec, context: RunContext) -> RunResult:
    """Make a run."""
    return make_here(spec, replace(context, began=time.monotonic()), stream)


def play_bench(
    stream: Stream, variants: Sequence[Variant], baseline: int, options: Mapping[str, Any]
) -> BenchResult:
    """Make a bench; all of its variants are measured here."""
    from lar.running.bench import run_bench

    return run_bench(variants, baseline, report=partial(stream.add, "bench"), **options)


def play_round(stream: Stream, order: RoundOrder) -> None:
    """Play a round of a search; results are passed on when their processes end."""
    from lar.files.work_folders import work_folder
    from lar.tuning.player import LocalPlayer

    keep = partial(stream.add, "ended", now=True)
    with work_folder() as folder:
        LocalPlayer(Path(folder)).play(order, partial(stream.add, "show"), keep)


def make_space(stream: Stream, *asked: Any) -> tuple[TuneRequest, MachineFacts, dict[str, str]]:
    """Return the request of a search, with what can be tried here, from the given arguments.

    `lar.tuning.space.make_request` makes it. The facts about this machine and the versions of
    its engines come with it.
    """
    from lar.tuning.space import make_request

    made = make_request(*asked)
    engines = {space.engine: engine_named(space.engine).version for space in made.spaces}
    return made, read_machine(), engines


def answer_to(task: Task, root: str, contents: Mapping[str, bytes], stream: Stream) -> Answer:
    """Lay out the files of a task and do it; return its value and the files that it wrote."""
    for folder in task.sending.folders:
        Path(root, check_place(folder)).mkdir(parents=True, exist_ok=True)
    for place, content in contents.items():
        path = Path(root, check_place(place))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    sys.argv = [*task.command]
    arguments = map_texts(task.arguments, lambda text: text.replace(ROOT, root))
    value = task.function(stream, *arguments)
    found = {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
        for each in map(Path(root).joinpath, sorted(task.sending.wanted))
        for path in (each, *sorted(each.rglob("*")))
        if path.exists()
    }
    written = {it: data for it, data in found.items() if it not in contents or data != contents[it]}
    return Answer(root=root, value=value, written=written)


def main() -> None:
    """Do the task on standard input, for the Dask worker that started this process."""
    end_with_parent()
    heed_interrupts()
    stream = Stream(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)  # whatever prints goes to the log of the Dask worker
    task, root, contents = pickle.load(sys.stdin.buffer)
    try:
        answer = answer_to(task, root, contents, stream)
    except (KeyboardInterrupt, LarError) as error:
        known = error if isinstance(error, LarError) else Interrupted("interrupted")
        answer = Answer(root=root, failure=Failure.of(known))
    except Exception as error:  # a defect ends as one line too
        text = f"{type(error).__name__}: {first_line(error)}"
        answer = Answer(root=root, failure=Failure(text, "this is a defect of lar"))
    with uninterrupted():
        stream.flush()
        stream.write(answer)
        os._exit(0)
