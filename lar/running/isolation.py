"""Runs a spec in a worker process, and always returns a `RunResult`, even if the worker crashes.

A worker has other tasks too: it reads a model, unpacks testcases or finds devices. Only the parent
watches the deadline. The worker has its own process group, which is always killed in the end. A
failure of an engine never raises an error in the parent.
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import resource
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TypeVar

from lar import __version__, errors
from lar.engines import engine_named
from lar.engines.engine import import_late
from lar.engines.listener import Listener
from lar.errors import ENGINE_HINT, EXIT_CODES, EngineMissing, LarError, OutOfTime, memory_error
from lar.measurement.machine import read_machine, read_model_file
from lar.measurement.rows import SampleRows, open_rows, read_samples
from lar.options.table import BY_KEY, PYTHON
from lar.records import events
from lar.records.run import Failure, ModelInfo, RunContext, RunResult, RunSpec, Status
from lar.running.interrupts import uninterrupted
from lar.running.worker_process import WorkerProcess

A = TypeVar("A")

# How long the parent waits for output of a worker at a time.
POLL_SECONDS = 0.02
# How long the parent lets the classes of items gather. Taking each at once would take CPU time from
# the engine.
GATHER_SECONDS = 0.005
# After passing on this many samples, which takes a few milliseconds, the parent checks the time.
ROWS_AT_ONCE = 1000
# How long the parent still passes on the samples of a run that it has ended.
LAST_SECONDS = 0.3
LOG_BYTES = 64 * 1024  # the default capacity of a pipe
LOG_TAIL_LINES = 20
# The first line of progress comes after this time: a shorter wait needs no line.
PATIENCE_SECONDS = 2.0
INTERVAL_SECONDS = 1.0

FOREIGN_HINT = "it needs Python 3.10 or newer, NumPy and the engine; lar itself is not needed there"
INTERRUPTED = Failure("interrupted", exit_code=EXIT_CODES["interrupted"])


def run_isolated(
    spec: RunSpec, context: RunContext, listener: Listener, early: WorkerProcess | None = None
) -> RunResult:
    """Make a run in a worker process.

    `early` is a worker that was started in advance. If `early` already has a task, this worker is
    killed, and a new worker is started.
    """
    with contextlib.ExitStack() as stack:
        if early and not early.is_free:
            early.kill()  # its end must not disturb the timed iterations
        worker = early if early and early.is_free else start_for(spec, "run", stack)
        return Watch(worker, spec, context, listener).see_through("run")


def start_for(spec: RunSpec, task: str, stack: contextlib.ExitStack) -> WorkerProcess:
    """Start the worker of a spec's engine; the worker is killed when `stack` is closed."""
    return WorkerProcess(stack, (task, spec.engine, spec.driver), spec.environment, spec.python)


def run_here(spec: RunSpec, context: RunContext, listener: Listener) -> RunResult:
    """Make a run in this process, for a debugger; a crash of the engine ends this process."""
    from lar.worker.execution import Execution
    from lar.worker.main import failure_of

    tables = open_rows(-1, spec.sample_count, spec.runners)
    account = Account(spec, context, listener, tables)
    account.read_facts()
    os.environ.update(spec.environment)

    def emit(event: events.Event) -> None:
        account.events.append(event)
        account.pass_events()

    try:
        emit(Execution(spec, account.context, emit, tables).run())
    except KeyboardInterrupt:
        account.take_rows()
        account.result = replace(account.result, status="interrupted", failure=INTERRUPTED)
    except Exception as error:
        emit(events.Failed(failure_of(error)))
    return account.complete()


def new_result(spec: RunSpec) -> RunResult:
    """Return the result of a run that begins now."""
    started = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return RunResult(
        spec=spec, status="failed", phase="start", lar_version=__version__, started_at=started
    )


def with_model(spec: RunSpec, context: RunContext) -> RunContext:
    """Return the context with the facts about the model file; a file is read only once."""
    return context if context.model else replace(context, model=read_model_file(Path(spec.model)))


def name_of_signal(number: int) -> str:
    """Return a signal's name, or its number if it has no name."""
    return next((each.name for each in signal.Signals if each == number), f"signal {number}")


def next_of(waiting: deque[events.Event]) -> events.Event:
    """Remove and return the next event.

    If several successive events have the classes of items, these events are joined into one.
    """
    event = waiting.popleft()
    while (
        waiting
        and isinstance(event, events.Classified)
        and isinstance(more := waiting[0], events.Classified)
    ):
        event = events.Classified(event.items + more.items)
        del waiting[0]
    return event


class Account:
    """Collects the events and samples of a run in progress, and passes them to a listener."""

    def __init__(
        self, spec: RunSpec, context: RunContext, listener: Listener, tables: Sequence[SampleRows]
    ) -> None:
        self.spec, self.context, self.listener, self.tables = spec, context, listener, tables
        self.engine = engine_named(spec.engine)
        self.result = new_result(spec)
        self.events: deque[events.Event] = deque()  # received, but not passed on yet
        self.last: events.Event | None = None
        self.ended = False  # the last event was passed on, or the run was given up
        self.deadline: float | None = None
        self._seen_rows = [0] * len(tables)
        # Beside other work, reporting takes longer.
        self.slowdown = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))

    def read_facts(self) -> None:
        """Read the facts about the machine and the model, before the run."""
        self.context = with_model(self.spec, self.context)
        environment = {**self.engine.environment, **os.environ, **self.spec.environment}
        machine = read_machine(environment, self.engine.variable_prefixes)
        self.result = replace(self.result, machine=machine, model=self.context.model)

    def pass_events(self) -> None:
        """Pass the received events to the listener, up to the last event of the run.

        Samples that were written before an event are passed before this event.
        """
        while self.events and not self.ended:
            self.take_rows()
            self.await_room()
            with uninterrupted():
                event = self.last = next_of(self.events)
                self.result = events.apply_event(self.result, event)
                self.ended = isinstance(event, events.LAST_EVENTS)
                self.listener.on_event(event, self.result)

    def take_rows(self) -> None:
        """Pass the new samples in the tables to the listener."""
        phase = self.result.phase
        # The tables may already have rows of a phase whose first event is still unread.
        if phase in ("start", "load", "prepare"):
            return
        for number, rows in enumerate(self.tables):
            count = rows.warmups_so_far if phase == "warmup" else rows.count
            while (first := self._seen_rows[number]) < count:
                self.await_room()
                last = min(count, first + ROWS_AT_ONCE)
                with uninterrupted():  # so that each sample is passed on exactly once
                    self.listener.on_rows(rows, first, last, self.result)
                    self._seen_rows[number] = last

    def await_room(self) -> None:
        """Wait until the listener can take more events or samples.

        Raises:
            OutOfTime: the run is past its deadline.
        """
        self.check_deadline()
        while not self.listener.has_room(POLL_SECONDS):
            self.check_deadline()

    def is_late(self) -> bool:
        """Return whether the deadline has passed, or will pass before the run is reported."""
        seconds = self.listener.report_seconds * self.slowdown
        reporting = seconds * sum(rows.count for rows in self.tables)
        return self.deadline is not None and time.monotonic() + reporting > self.deadline

    def check_deadline(self) -> None:
        """Check the deadline of the run.

        Raises:
            OutOfTime: the run is past its deadline.
        """
        if self.is_late():
            limit = self.spec.timeout_seconds or 0.0  # without a limit, `give_up` drops this error
            problem = f"timed out after {limit:g} s in phase {self.describe_phase()}"
            raise OutOfTime(problem, "--timeout S allows more time")

    def describe_phase(self) -> str:
        """Return the name of the current phase, with the number of the current iteration."""
        phase = self.result.phase
        if phase not in ("warmup", "iterations"):
            return phase
        warmups = [rows.warmups_so_far for rows in self.tables]
        timed = [rows.count - rows.warmups_so_far for rows in self.tables]
        return f"{phase} (iteration {min(warmups if phase == 'warmup' else timed)})"

    def complete(self) -> RunResult:
        """Return the result of the ended run, with its samples.

        The failure's message uses names that the user knows.
        """
        result, failure = self.result, self.result.failure
        if failure and self.spec.python and failure.exit_code == EngineMissing.exit_code:
            problem = f"lar's worker cannot run there: {failure.problem}"
            place = failure.detail, PYTHON.flag, self.spec.python
            failure = Failure(problem, FOREIGN_HINT, EngineMissing.exit_code, *place)
        failure = failure and failure.called(self.context.names)
        warmup, samples = read_samples(self.tables)
        return replace(result, failure=failure, warmup=warmup, samples=samples)


class Watch(Account):
    """Watches a worker until it has finished, failed, died, stalled or run out of time."""

    def __init__(
        self, worker: WorkerProcess, spec: RunSpec, context: RunContext, listener: Listener
    ) -> None:
        super().__init__(spec, context, listener, worker.make_room(spec.sample_count, spec.runners))
        self.worker = worker
        self.deadline = context.deadline(spec)
        self._began = self._alive_at = time.monotonic()
        self._signs_of_life: tuple[object, ...] = ()
        self._progress_due = self._began + PATIENCE_SECONDS
        self._partial = self._log = b""
        self._poll = select.poll()
        for file in (worker.events, worker.log):
            self._poll.register(file, select.POLLIN)

    def see_through(self, task: str) -> RunResult:
        """Wait until the worker has done its task, and return the result.

        Afterwards, `last` is the worker's last event, which has the answer to the task.
        """
        try:
            self.send(task)
            # Prepare the end of the run and of a dump while the worker loads: later it costs time.
            import_late(self.engine, "hints_for")
            if any(BY_KEY[key].purpose == "dump" for key in self.spec.settings):
                from lar.engines.model_names import read_ahead

                read_ahead(self.engine, Path(self.spec.model))
            return self.finish()
        except KeyboardInterrupt:
            self.give_up("interrupted", INTERRUPTED)
            return self.finish()

    def send(self, task: str) -> None:
        """Send the task to the worker.

        Before a run is sent, this process reads the facts about the machine and the model. While
        this process reads the facts, the worker only loads its libraries, so that no timed
        iteration is disturbed.
        """
        if task == "run":
            self.read_facts()
        if not self.is_late():  # else a quick worker would answer after its time limit
            self.worker.send(pickle.dumps((self.spec, self.context)), more=self.context.turns)

    def attend(self) -> None:
        """Wait a moment for output of the worker, handle it, and check the time."""
        # Poll less often while the engine loads or searches, to leave the cores to the engine.
        seconds = POLL_SECONDS if self.result.phase in ("warmup", "iterations") else 0.1
        if self.spec.tell_classes and self.result.phase == "iterations":
            time.sleep(GATHER_SECONDS)
        ready = {file for file, _ in self._poll.poll(1000 * seconds)}
        try:
            if self.worker.log in ready:
                self.await_room()
                if not self.read_log():
                    self._poll.unregister(self.worker.log)
            self.take_rows()
            if self.worker.events in ready and not self.receive_events():
                self._poll.unregister(self.worker.events)
            self.pass_events()
            if not self.ended:
                self.report_progress()
                self.look_for_end()
            if self.ended:
                self.deadline = None  # the worker has ended in time
                self.take_rest()
        except OutOfTime as error:
            self.give_up("timed_out", Failure.of(error))

    def look_for_end(self) -> None:
        """End a run whose engine has crashed or hangs.

        Raises:
            OutOfTime: the run is past its deadline, or has stalled for too long.
        """
        if failure := self.explain_log():
            self.give_up("crashed", failure)
        elif exited := self.worker.poll_exit():
            self.receive_events()  # the last event may have come after the poll
            self.pass_events()
            if not self.ended:
                self.explain_exit(*exited)
        else:
            self.check_deadline()
            self.check_stall()

    def take_rest(self) -> None:
        """Read the remaining events, samples and log of a run that has ended.

        Raises:
            OutOfTime: the run is past its deadline.
        """
        self.read_log()  # one full pipe and no more: a child of the engine may print for ever
        self.pass_events()
        self.take_rows()
        self.await_room()

    def finish(self) -> RunResult:
        """Follow the worker until its task is done, end the worker, and return the result."""
        while not self.ended:
            self.attend()
        self.worker.end()  # the system frees its memory while the result is completed
        found, seconds = self.complete(), time.monotonic() - self.context.began
        return replace(found, wall_seconds=seconds, log_tail=self.log_tail())

    def receive_events(self) -> bool:
        """Read the new events of the worker; return False when the pipe has ended."""
        with uninterrupted():
            try:
                data = os.read(self.worker.events, 1 << 20)
            except BlockingIOError:
                return True
            *lines, self._partial = (self._partial + data).split(b"\n")
            self.events += map(events.event_of, lines)
        return bool(data)

    def read_log(self) -> bool:
        """Read new output of the engine, and keep the last part; return False at the pipe's end."""
        try:
            data = os.read(self.worker.log, LOG_BYTES)
        except BlockingIOError:
            return False
        self.listener.on_log(data)
        self._log = (self._log + data)[-LOG_BYTES:]
        return bool(data)

    def report_progress(self) -> None:
        """Report the engine's progress at intervals, until the first iteration has ended.

        With each report, the engine saves what its preparation, such as a search for algorithms,
        has found so far.
        """
        now = time.monotonic()
        is_over = self.result.phase in ("start", "finish") or any(self._seen_rows)
        if is_over or now < self._progress_due:
            return
        self._progress_due = now + INTERVAL_SECONDS
        if text := self.engine.describe_progress(self.spec, self.context):
            self.engine.keep_progress(self.spec, self.context)
            self.listener.on_progress(text, now - self._began)

    def explain_log(self) -> Failure | None:
        """Return why the engine crashed or hangs, or None if the log does not show the reason."""
        error = self.engine.explain_log(self._log) if self._log else None
        if error is None:
            return None
        return replace(Failure.of(error, self.log_tail()), exit_code=EXIT_CODES["crashed"])

    def check_stall(self) -> None:
        """Check that the worker has computed or answered recently.

        Raises:
            OutOfTime: the run has stalled for too long.
        """
        now, stall = time.monotonic(), self.spec.stall_seconds
        beats = sum(rows.beats for rows in self.tables)
        signs = (*self._seen_rows, beats, self._log, self.result.phase, self.worker.cpu_ticks())
        if signs != self._signs_of_life:
            self._signs_of_life, self._alive_at = signs, now
        elif stall is not None and now - self._alive_at > stall:
            says = f"hangs, it has neither computed nor answered for {stall:g} s"
            problem = f"the engine {says} in phase {self.describe_phase()}"
            raise OutOfTime(problem, "--stall-timeout S waits longer, 0 for ever")

    def give_up(self, status: Status, failure: Failure) -> None:
        """Kill the worker, and end the run with this status and failure.

        If the worker has sent its last event before lar kills the worker, the result of the run is
        the result in this event, and lar does not use `status` and `failure`. But an interrupted
        run always has the status "interrupted", since otherwise a command that makes several runs
        would continue.
        """
        self.worker.kill()
        self.receive_events()
        is_interrupted = status == "interrupted"
        in_time = any(isinstance(event, events.LAST_EVENTS) for event in self.events)
        self.deadline = time.monotonic() + LAST_SECONDS if is_interrupted or not in_time else None
        with contextlib.suppress(OutOfTime):
            self.take_rest()
        if is_interrupted or not self.ended:
            self.result = replace(self.result, status=status, failure=failure)
            self.ended = True

    def explain_exit(self, status: int, usage: resource.struct_rusage) -> None:
        """Record why a worker has exited without sending its last event."""
        self.read_log()
        code, phase = os.waitstatus_to_exitcode(status), self.describe_phase()
        peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        message = f"the engine ended the process in phase {phase}: exit code {code}"
        if code < 0:
            message = f"the engine crashed in phase {phase}: killed by {name_of_signal(-code)}"
        damaged = "the model file may be damaged: copy or export it again"
        hint = damaged if self.result.phase == "load" else ENGINE_HINT
        if code == -signal.SIGKILL:
            hint = f"did the machine run out of memory? The run held {peak >> 20} MiB"
        # Too little memory is the cause if the log says so. It is also the cause if the address
        # space has a limit and the worker has not even started the engine.
        refused = memory_error(LarError(self._log.decode(errors="replace")))
        if limit := phase == "start" and errors.limit_of("address space"):
            refused = errors.out_of_address_space(limit)
        why = self.explain_log() or Failure.of(refused or LarError(message, hint), self.log_tail())
        self.result = replace(self.result, status="crashed", failure=why, peak_memory_bytes=peak)
        self.ended = True

    def log_tail(self) -> str:
        """Return the last lines of the engine's output."""
        lines = self._log.decode(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        return "\n".join(line[:400] for line in lines)


class TurnWorker(Watch, Listener):
    """A worker that computes only in its turns.

    The time between turns is not part of the worker's time limits.

    Between turns, all threads of the worker are stopped, since idle threads of an engine would wait
    in a busy loop for up to 0.1 s, and take CPU time from other workers.
    """

    report_seconds = 0.0

    def __init__(
        self, stack: contextlib.ExitStack, spec: RunSpec, context: RunContext, task: str = "run"
    ) -> None:
        """Start the worker, which is killed when `stack` is closed."""
        self._since = time.monotonic()  # when its last turn ended
        super().__init__(start_for(spec, task, stack), spec, replace(context, turns=True), self)
        self.send(task)

    def pause(self) -> None:
        """Stop the worker until its next turn."""
        self._since = time.monotonic()
        self.worker.send_signal(signal.SIGSTOP)  # stops all threads, also those in a busy loop

    def go_on(self) -> None:
        """Let the worker continue, and extend its time limits by the time of the pause."""
        self.worker.send_signal(signal.SIGCONT)
        idle_seconds = time.monotonic() - self._since
        self._alive_at += idle_seconds
        if self.deadline is not None:
            self.deadline += idle_seconds

    def take(self, number: int, most_seconds: float = math.inf) -> events.TurnEnded | None:
        """Let the worker compute for one turn; return its answer, or None if the worker has ended.

        For a run, `number` is the number of iterations in the turn. A worker that needs more than
        `most_seconds` is killed.
        """
        self.go_on()
        self.last = None
        self.worker.send(b"%d\n" % number, more=True)
        end = time.monotonic() + most_seconds
        while not isinstance(self.last, events.TurnEnded) and not self.ended:
            self.attend()
            if time.monotonic() > end:
                problem = f"the engine has not computed it in {most_seconds:g} s"
                self.give_up("timed_out", Failure.of(OutOfTime(problem)))
        self.pause()
        return self.last if isinstance(self.last, events.TurnEnded) else None

    def finish(self) -> RunResult:
        """Let the worker finish its task, and return its result."""
        if not self.ended:
            self.go_on()
            self.worker.requests.close()
        return super().finish()


def info_of(
    spec: RunSpec, context: RunContext | None = None, *, at_shapes: bool = False
) -> ModelInfo:
    """Read the model file of a spec, in a worker process and within the time limit.

    With `at_shapes`, FLOPs and bytes are computed for the input shapes that the spec gives.

    Raises:
        UsageError: the file is not a model, or is damaged.
        EngineMissing: the library that reads the model's format is not installed.
        LarError: the reader failed, or ran out of time.
    """
    info = run_task("info_at" if at_shapes else "info", events.ModelRead, spec, context).info
    if spec.cases:
        info = replace(info, metadata={**info.metadata, "testcases": str(len(spec.cases))})
    return info


def find_devices(engine: str) -> tuple[str, ...]:
    """Return the devices of this machine on which an engine can run, with the CPU first.

    Raises:
        LarError: the engine cannot be loaded.
    """
    spec = RunSpec(model="", engine=engine_named(engine).name, driver="", iterations=0)
    return run_task("devices", events.DevicesFound, spec).devices


def run_task(task: str, answer: type[A], spec: RunSpec, context: RunContext | None = None) -> A:
    """Let a worker of the spec's engine execute a task, and return the event with the answer.

    Raises:
        LarError: the worker failed, crashed or hung.
    """
    if spec.model:
        read_model_file(Path(spec.model))  # finds a damaged file by its checksum first
    with contextlib.ExitStack() as stack:
        watch = Watch(start_for(spec, task, stack), spec, context or RunContext(), Listener())
        require_ok(watch.see_through(task))
    assert isinstance(watch.last, answer)
    return watch.last


def require_ok(result: RunResult, *, within: str = "", names: Mapping[str, str] = {}) -> None:
    """Raise the failure of a run that failed, or KeyboardInterrupt if it was interrupted.

    `within` names the task that the run belongs to. `names` maps files to names that the user
    knows.

    Raises:
        KeyboardInterrupt: the run was interrupted.
        LarError: the run failed.
    """
    if result.status == "interrupted":
        raise KeyboardInterrupt
    if result.status != "ok":
        assert result.failure is not None
        failure = result.failure.called(names)
        raise (failure.within(within) if within else failure).to_error()
