"""The functions that Dask calls on a worker to do a task.

A new process does each task, and sends messages about the task's progress. To start a worker:

dask worker tcp://HOST:8786 --host ADDRESS --nworkers 1 --nthreads 1 --resources "device=1 x86=1"
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from subprocess import PIPE, Popen
from typing import TYPE_CHECKING, Any, BinaryIO

from lar import __version__
from lar.engines import engine_named
from lar.engines.listener import Listener
from lar.errors import Interrupted, LarError, first_line
from lar.farm.sending import ROOT, Answer, Sending, check_place, map_texts
from lar.files.python_process import python_command
from lar.measurement.machine import read_machine
from lar.measurement.rows import SampleRows
from lar.records.events import Event
from lar.records.run import Failure, RunContext, RunResult, RunSpec
from lar.running.interrupts import heed_interrupts, uninterrupted
from lar.running.isolation import name_of_signal, run_isolated
from lar.running.steps import maker_of, unpack_cases
from lar.worker import end_with_parent

if TYPE_CHECKING:
    from lar.records.bench import BenchResult
    from lar.records.run import MachineFacts
    from lar.records.tuning import TuneRequest
    from lar.running.variants import Variant
    from lar.tuning.player import RoundOrder

# Dask's topic for the messages of workers during tasks.
TOPIC = "lar"
# The time between two looks for an interrupt, or for a file that must arrive.
LOOK_SECONDS = 0.1
# A process that must end is interrupted each second, and killed after this many times.
MOST_INTERRUPTS = 5

Publish = Callable[..., None]
Check = Callable[[], bool]

_interrupted: set[str] = set()


class TaskLost(Exception):
    """The error of a task whose process ended without an answer; the text says how it ended."""


@dataclass(frozen=True)
class Task:
    """A call of a function of `lar.farm.worker`, to be made on a device of the farm.

    `sending` has the files to send. `arguments` name these files by their paths on the worker.
    `client` is the id of the Dask client.
    """

    name: str
    client: str
    function: Callable[..., Any]
    arguments: Sequence[Any]
    sending: Sending
    command: Sequence[str] = field(default_factory=lambda: sys.argv)
    version: str = __version__


async def interrupt(name: str) -> None:
    """Mark a task to end soon; Dask calls this while the task is running."""
    _interrupted.add(name)


def play(task: Task) -> Answer:
    """Do a task; return the answer, with the files that the task has written.

    Raises:
        TaskLost: the process has ended without an answer.
        LarError: another version of lar sent the task, or the client no longer wants the answer.
    """
    from distributed import get_worker

    if task.version != __version__:
        problem = f"a worker has lar {__version__}, and this is lar {task.version}"
        raise LarError(problem, "install the same lar version on both machines", flag="--scheduler")
    worker, attempt = get_worker(), uuid.uuid4().hex

    def publish(**said: Any) -> None:
        message = {"attempt": attempt, "worker": worker.address, **said}
        worker.log_event(TOPIC, (task.name, message))

    def is_unwanted() -> bool:
        found = worker.state.tasks.get(task.name)  # its client may be gone
        return task.name in _interrupted or not found or found.state in ("cancelled", "resumed")

    # A worker forgets the files of a client that has gone, so the key names the client.
    keys = {each: f"{task.client}-{each}-{worker.address}" for each in task.sending.files.values()}
    publish(missing={key: each for each, key in keys.items() if key not in worker.data})
    while not all(key in worker.data for key in keys.values()):
        if is_unwanted():
            raise Interrupted("interrupted")
        time.sleep(LOOK_SECONDS)
    contents = {place: worker.data[keys[each]] for place, each in task.sending.files.items()}
    with tempfile.TemporaryDirectory(prefix="lar-", dir=worker.local_directory) as root:
        try:
            return do(task, root, contents, publish, is_unwanted)
        finally:
            _interrupted.discard(task.name)


def do(
    task: Task, root: str, contents: Mapping[str, bytes], publish: Publish, is_unwanted: Check
) -> Answer:
    """Do a task in a new process; an interrupt ends this process as Ctrl-C does in a shell.

    Raises:
        TaskLost: the process has ended without an answer.
    """
    words = python_command("from lar.farm.worker import main; main()")
    environment = environment_of_runs()
    process = Popen(words, env=environment, stdin=PIPE, stdout=PIPE, start_new_session=True)
    assert process.stdin is not None
    assert process.stdout is not None
    threading.Thread(target=end_unwanted, args=(process, is_unwanted)).start()
    with process:
        try:
            with process.stdin:
                pickle.dump((task, root, contents), process.stdin)
            while not isinstance(said := pickle.load(process.stdout), Answer):
                publish(root=root, happened=said)
            return said
        except (EOFError, OSError, pickle.UnpicklingError):
            status = process.wait()
            how = name_of_signal(-status) if status < 0 else f"exit code {status}"
            raise TaskLost(f"its process ended by {how}") from None


def environment_of_runs() -> dict[str, str]:
    """Return the environment without the variables that Dask's nanny adds for workers.

    With the variables of the nanny, engines would compute on one thread.
    """
    import dask

    added: Mapping[str, object] = dask.config.get("distributed.nanny.pre-spawn-environ", {})
    return {name: value for name, value in os.environ.items() if str(added.get(name, "")) != value}


def end_unwanted(process: Popen[bytes], is_unwanted: Check) -> None:
    """End a process as soon as the client no longer wants the answer of the process."""
    while not is_unwanted():
        if process.poll() is not None:
            return
        time.sleep(LOOK_SECONDS)
    for _ in range(MOST_INTERRUPTS):  # interrupts in quick succession count as one
        process.send_signal(signal.SIGINT)
        time.sleep(1.0)
    process.kill()


# The process that does a task, beside the Dask worker
#
# Runs are made in this process, and not in a thread of Dask: an interrupt ends them as Ctrl-C does
# in a shell.


# The time between two messages. More messages would disturb a timed run.
FLUSH_SECONDS = 0.5
# The most rows in one message.
MOST_ROWS = 2000


class Stream(Listener):
    """Writes messages about a task to the Dask worker, several messages at a time."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._entries: list[Any] = []
        self._rows = 0
        self._due = time.monotonic()

    def add(self, *entry: Any, now: bool = False) -> None:
        """Add a message; write all messages if `now` is true or `FLUSH_SECONDS` have passed."""
        self._entries.append(entry)
        if now or time.monotonic() >= self._due:
            self.flush()

    def flush(self) -> None:
        """Write all messages that were not written before."""
        self.write(pickle.dumps(self._entries))
        self._entries, self._rows = [], 0
        self._due = time.monotonic() + FLUSH_SECONDS

    def write(self, said: bytes | Answer) -> None:
        """Write messages, or the answer, to the Dask worker."""
        pickle.dump(said, self._file)
        self._file.flush()

    def on_event(self, event: Event, result: RunResult) -> None:
        self.add("event", event, now=True)

    def on_rows(self, rows: SampleRows, first: int, last: int, result: RunResult) -> None:
        self._rows += last - first
        if self._rows <= MOST_ROWS:
            self.add("rows", rows.runner, first, [*rows.times(first, last)], rows.warmups)

    def on_log(self, text: bytes) -> None:
        self.add("log", text)

    def on_progress(self, text: str, elapsed: float) -> None:
        self.add("progress", text, elapsed)


def play_run(stream: Stream, spec: RunSpec, context: RunContext) -> RunResult:
    """Make a run whose files are already in the task's folder.

    Raises:
        UsageError: the testcases of the run are damaged.
    """
    with unpack_cases(spec, replace(context, began=time.monotonic())) as ready:
        return maker_of(spec, run_isolated)(*ready, stream)


def play_bench(
    stream: Stream, variants: Sequence[Variant], baseline: int, options: Mapping[str, Any]
) -> BenchResult:
    """Run a bench, with all its variants, on this machine."""
    from lar.running.bench import run_bench

    return run_bench(variants, baseline, report=partial(stream.add, "bench"), **options)


def play_round(stream: Stream, order: RoundOrder) -> None:
    """Play a round of a search; the result of a process is sent when the process ends."""
    from lar.files.work_folders import work_folder
    from lar.tuning.player import LocalPlayer

    keep = partial(stream.add, "ended", now=True)
    with work_folder() as folder:
        LocalPlayer(Path(folder)).play(order, partial(stream.add, "show"), keep)


def make_space(stream: Stream, *asked: Any) -> tuple[TuneRequest, MachineFacts, dict[str, str]]:
    """Return the request that starts a search, facts about this machine, and versions of engines.

    The arguments are passed to `lar.tuning.space.make_request`. The request has only choices that
    can be tried on this machine.
    """
    from lar.tuning.space import make_request

    made = make_request(*asked)
    engines = {space.engine: engine_named(space.engine).version for space in made.spaces}
    return made, read_machine(), engines


def answer_to(task: Task, root: str, contents: Mapping[str, bytes], stream: Stream) -> Answer:
    """Write a task's input files, do the task, and return its value and the files it wrote."""
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
    os.dup2(2, 1)  # prints go to the log of the Dask worker
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
