"""Runs a spec in a worker process, and turns whatever happens to it into a `RunResult`.

The parent owns the one deadline. The worker stands in a process group of its own, which is
killed in the end whatever happened; what an engine does never raises here.
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
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from lar import __version__
from lar.engines import engine_named
from lar.errors import (
    ENGINE_HINT,
    EXIT_CODES,
    OutOfTime,
    limit_of,
    out_of_address_space,
    says_out_of_memory,
)
from lar.measurement.listener import Listener
from lar.measurement.machine import read_machine, read_model_file
from lar.measurement.rows import SampleRows, open_rows, read_samples, warmups_in
from lar.options.table import BY_KEY
from lar.records import events
from lar.records.run import Failure, RunContext, RunResult, RunSpec, Status
from lar.running.interrupts import uninterrupted
from lar.running.worker_process import WorkerProcess, start_worker

# The parent looks for new samples this often while iterations run.
POLL_SECONDS = 0.02
# After passing on so many samples, in a few milliseconds, it looks at the time.
ROWS_AT_ONCE = 1000
# For so long it passes on the samples of a run that it has ended.
LAST_SECONDS = 0.3
# The system counts towards its limit of CPU time in ticks, and so sooner than it reports.
CPU_LIMIT_SLACK = 0.3
LOG_TAIL_BYTES = 64 * 1024
LOG_TAIL_LINES = 20
# A shorter wait is not worth a line.
PATIENCE_SECONDS = 2.0
INTERVAL_SECONDS = 1.0
# How often the engine's progress is kept: that takes some milliseconds beside the measuring.
KEEPING_SECONDS = 5.0

INTERRUPTED = Failure("interrupted", exit_code=EXIT_CODES["interrupted"])
# Between two looks at a worker that has nothing to say in its turn.
LOOK_SECONDS = 0.1
Answer = events.TurnEnded | events.ComputedAlone  # of a turn
LOG_READS = 32  # of 64 KiB, which is what a pipe holds by default


def run_isolated(
    spec: RunSpec, context: RunContext, listener: Listener, early: WorkerProcess | None = None
) -> RunResult:
    """Make a run in a worker process.

    `early` is a worker that was started beforehand, and does the first run that comes.
    """
    return watch_task("run", spec, context, listener, early).result


def watch_task(
    task: str,
    spec: RunSpec,
    context: RunContext,
    listener: Listener,
    early: WorkerProcess | None = None,
) -> Watch:
    """Have a worker do a task; return its watch, which has the result.

    The facts known before a run are read while the worker loads its libraries and before it may
    begin, so that this disturbs nothing that is timed.
    """
    with contextlib.ExitStack() as stack:
        if early is not None and not early.is_free:
            early.kill()  # so that its end does not disturb what is timed
            early = None
        worker = early or stack.enter_context(start_worker_for(task, spec))
        watch = Watch(worker, spec, context, listener)
        with watch.ending():
            watch.send(task)
            if any(BY_KEY[key].purpose == "dump" for key in spec.settings):
                # What finishes a dump, while the worker loads: later it would cost time.
                import lar.dumps.delivery  # noqa: F401
            watch.follow()
        watch.finish()
        return watch


def start_worker_for(task: str, spec: RunSpec) -> contextlib.AbstractContextManager[WorkerProcess]:
    """Start the worker of a spec's engine."""
    return start_worker(task, spec.engine, spec.driver, spec.environment, spec.python)


def run_here(spec: RunSpec, context: RunContext, listener: Listener) -> RunResult:
    """Make a run in this very process, for a debugger; a crash of the engine ends it."""
    from lar.worker.execution import Execution
    from lar.worker.main import failure_of

    context = with_model(spec, context)
    result = with_facts(new_result(spec), context)
    os.environ.update(spec.environment)
    tables = open_rows(-1, spec.sample_count, spec.runners)
    seen = [0] * len(tables)

    def show_rows() -> None:
        for number, rows in enumerate(tables):
            if rows.count > seen[number]:
                listener.on_rows(rows, seen[number], rows.count, result)
                seen[number] = rows.count

    def emit(event: events.Event) -> None:
        nonlocal result
        show_rows()
        result = events.apply_event(result, event)
        listener.on_event(event, result)

    try:
        emit(Execution(spec, context, emit, tables).run())
    except KeyboardInterrupt:
        show_rows()
        result = replace(result, status="interrupted", failure=INTERRUPTED)
    except Exception as error:
        emit(events.Failed(failure_of(error)))
    return with_samples(result, context, tables)


def new_result(spec: RunSpec) -> RunResult:
    """Return the result of a run that begins now."""
    started = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return RunResult(
        spec=spec, status="failed", phase="start", lar_version=__version__, started_at=started
    )


def with_model(spec: RunSpec, context: RunContext) -> RunContext:
    """Return the context with the facts about the model file, which is read once for all runs."""
    return context if context.model else replace(context, model=read_model_file(Path(spec.model)))


def with_facts(result: RunResult, context: RunContext) -> RunResult:
    """Return the result with what is known before the run."""
    engine, spec = engine_named(result.spec.engine), result.spec
    environment = {**engine.environment, **os.environ, **spec.environment}
    machine = read_machine(environment, engine.variable_prefixes)
    return replace(result, machine=machine, model=context.model)


def with_samples(result: RunResult, context: RunContext, tables: Sequence[SampleRows]) -> RunResult:
    """Return the result of a run that has ended, with its samples and names that the user knows."""
    failure = result.failure and result.failure.called(context.names)
    warmup, samples = read_samples(tables)
    return replace(result, failure=failure, warmup=warmup, samples=samples)


def event_or_failure(line: bytes) -> events.Event:
    """Decode an event; any other line is a failure of the engine, since lar writes events alone."""
    try:
        return events.event_of(line)
    except ValueError as error:
        text = f"the engine wrote into the pipe of lar's events: {error}"
        return events.Failed(Failure(text, ENGINE_HINT))


def name_of_signal(number: int) -> str:
    """Return a signal's name, or its number if it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def cpu_limit_reached(status: int, usage: resource.struct_rusage | None) -> int:
    """Return the limit of CPU time in seconds that ended a process with that status, else 0.

    At the limit the system sends SIGXCPU, and SIGKILL where no more may be asked for.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_CPU)
    if soft == resource.RLIM_INFINITY or not os.WIFSIGNALED(status) or usage is None:
        return 0
    used = usage.ru_utime + usage.ru_stime
    ended_by = os.WTERMSIG(status)
    is_late = ended_by == signal.SIGKILL and used >= soft - CPU_LIMIT_SLACK
    return soft if is_late or ended_by == signal.SIGXCPU else 0


class Watch:
    """Follows a worker until it has finished, failed, died, stalled or run out of time."""

    def __init__(
        self, worker: WorkerProcess, spec: RunSpec, context: RunContext, listener: Listener
    ) -> None:
        self.worker, self.spec, self.context, self.listener = worker, spec, context, listener
        self.engine = engine_named(spec.engine)
        self.result = new_result(spec)
        self.last: events.Event | None = None
        self.ended = False  # its last event has come, or it was given up
        self.deadline = context.deadline(spec)
        self._began = self._alive_at = time.monotonic()
        self._signs_of_life: tuple[object, ...] = ()
        self._progress_due = self._began + PATIENCE_SECONDS
        self._keeping_due = self._began + KEEPING_SECONDS
        self._events: deque[events.Event] = deque()  # that have come, and are not passed on yet
        self._partial = b""
        self._closed = False  # the events have come to their end
        self._log, self._log_bytes = b"", 0
        worker.make_room(spec.sample_count, spec.runners)
        self._seen_rows = [0] * len(worker.tables)
        self._poll = select.poll()
        for file in (worker.events, worker.log):
            self._poll.register(file, select.POLLIN)
        # Other work may hold the CPUs when it is time to report.
        self.slowdown = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))

    @contextlib.contextmanager
    def ending(self) -> Iterator[None]:
        """End the run, with that status, if it is interrupted or out of time inside."""
        try:
            yield
        except KeyboardInterrupt:
            self.give_up("interrupted", INTERRUPTED)
        except OutOfTime as error:
            self.give_up("timed_out", Failure.of(error))

    def send(self, task: str = "run") -> None:
        """Read the facts that are known before a run, and send the worker its task."""
        if task == "run":
            self.context = with_model(self.spec, self.context)
            self.result = with_facts(self.result, self.context)
        with self.ending():
            self.check_deadline()  # or a quick worker would answer although its time is over
            self.worker.send(pickle.dumps((self.spec, self.context)), more=self.context.turns)

    def follow(self) -> None:
        """Read events, samples and log until the end.

        Raises:
            OutOfTime: the run is past its deadline, or has stood still for too long.
        """
        self.check_deadline()  # what was done before it may have taken all the time
        while not self.ended:
            busy = self._closed or self.result.phase in ("warmup", "iterations")
            self.attend(POLL_SECONDS if busy else 0.1)
        self.take_rest()

    def attend(self, seconds: float) -> None:
        """Wait up to so long until something comes, take it, and look at the time.

        Raises:
            OutOfTime: the run is past its deadline, or has stood still for too long.
        """
        ready = {file for file, _ in self._poll.poll(1000 * seconds)}
        if self.worker.log in ready:
            self.await_room()
            if not self.read_log():
                self._poll.unregister(self.worker.log)
        self.take_rows()
        if self.worker.events in ready and not self.read_events():
            self._poll.unregister(self.worker.events)
            self._closed = True
        if self.ended:
            return
        self.report_progress()
        if failure := self.explain_log():
            self.give_up("crashed", failure)
        elif (self._closed or not ready) and self.worker.poll_exit() is not None:
            self.read_events()  # its last event may come after the poll and before its exit
            if not self.ended:
                self.explain_exit()
        else:
            self.check_deadline()
            self.check_stall()

    def take_rest(self, deadline: float | None = None) -> None:
        """Take all that a run which has ended in time has sent, however long this takes unless it
        has a deadline.

        Raises:
            OutOfTime: this is past its deadline.
        """
        self.deadline = deadline
        self.drain_log()
        self.pass_events()
        self.take_rows()
        self.await_room()

    def finish(self) -> RunResult:
        """End the worker and return the result."""
        if self.result.status == "ok":
            self.worker.end()  # the rest is done while its memory is freed
        else:
            self.worker.kill()
        found = with_samples(self.result, self.context, self.worker.tables)
        self.worker.tables = ()  # a long run's take tens of megabytes
        seconds = time.monotonic() - self.context.began
        self.result = replace(found, wall_seconds=seconds, log_tail=self.log_tail())
        return self.result

    def drain_log(self) -> None:
        """Take what still stands in the log's pipe; bounded, as an engine's child may go on."""
        for _ in range(LOG_READS):
            if not self.read_log():
                return

    def read_events(self) -> bool:
        """Take the events that have come, and pass them on; False at their end."""
        more = self.receive_events()
        self.pass_events()
        return more

    def receive_events(self) -> bool:
        """Take the events that have come; False at their end."""
        with uninterrupted():
            try:
                data = os.read(self.worker.events, 1 << 20)
            except BlockingIOError:
                return True
            *lines, self._partial = (self._partial + data).split(b"\n")
            self._events += map(event_or_failure, lines)
        return bool(data)

    def pass_events(self) -> None:
        """Pass on to the listener the events that have come, each after the samples before it."""
        while self._events and not self.ended:
            self.take_rows()
            self.await_room()
            with uninterrupted():
                event = self.last = self._events.popleft()
                self.result = events.apply_event(self.result, event)
                self.ended = isinstance(event, events.LAST_EVENTS)
                self.listener.on_event(event, self.result)

    def read_log(self) -> bool:
        """Take what the engine has printed, keeping only the tail; False when there is no more."""
        try:
            data = os.read(self.worker.log, 1 << 16)
        except BlockingIOError:
            return False
        self.listener.on_log(data)
        self._log = (self._log + data)[-LOG_TAIL_BYTES:]
        self._log_bytes += len(data)
        return bool(data)

    def take_rows(self) -> None:
        """Pass on to the listener the samples that have come."""
        phase = self.result.phase
        for number, rows in enumerate(self.worker.tables):
            # Rows may stand there already while the event that begins their phase is still unread.
            if phase in ("start", "load", "prepare"):
                count = 0
            else:
                count = warmups_in(rows) if phase == "warmup" else rows.count
            while (first := self._seen_rows[number]) < count:
                self.await_room()
                last = min(count, first + ROWS_AT_ONCE)
                with uninterrupted():  # so that each is passed on exactly once
                    self.listener.on_rows(rows, first, last, self.result)
                    self._seen_rows[number] = last

    def await_room(self) -> None:
        """Wait until the listener has room for more.

        Raises:
            OutOfTime: the run is past its deadline.
        """
        self.check_deadline()
        while not self.listener.has_room(POLL_SECONDS):
            self.check_deadline()

    def report_progress(self) -> None:
        """Ask the engine now and then for its progress until its first iteration has ended, report
        it, and have it kept."""
        now = time.monotonic()
        is_over = self.result.phase in ("start", "finish") or any(self._seen_rows)
        if is_over or now < self._progress_due:
            return
        self._progress_due = now + INTERVAL_SECONDS
        if text := self.engine.describe_progress(self.spec, self.context):
            if now >= self._keeping_due:
                self._keeping_due = now + KEEPING_SECONDS
                self.engine.keep_progress(self.spec, self.context)
            self.listener.on_progress(text, now - self._began)

    def explain_log(self) -> Failure | None:
        """Return why the engine crashed or hangs, if its log shows that."""
        error = self.engine.explain_log(self._log) if self._log else None
        if error is None:
            return None
        return replace(Failure.of(error, self.log_tail()), exit_code=EXIT_CODES["crashed"])

    def check_deadline(self) -> None:
        """Look at the time.

        Raises:
            OutOfTime: the run is past its deadline.
        """
        if self.deadline is None:
            return
        seconds = self.listener.report_seconds * self.slowdown
        reporting = seconds * sum(rows.count for rows in self.worker.tables)
        if time.monotonic() + reporting > self.deadline:
            limit = self.spec.timeout_seconds
            what = "interrupted" if limit is None else f"timed out after {limit:g} s"
            problem = f"{what} in phase {self.describe_phase()}"
            raise OutOfTime(problem, "--timeout S gives it more time")

    def check_stall(self) -> None:
        """Look for signs of life.

        Raises:
            OutOfTime: the run has stood still for too long.
        """
        now, stall = time.monotonic(), self.spec.stall_seconds
        beats = sum(rows.beats for rows in self.worker.tables)
        ticks = self.worker.cpu_ticks()
        signs = (*self._seen_rows, beats, self._log_bytes, self.result.phase, ticks)
        if signs != self._signs_of_life:
            self._signs_of_life, self._alive_at = signs, now
        elif stall is not None and now - self._alive_at > stall:
            says = f"hangs, it has neither computed nor answered for {stall:g} s"
            problem = f"the engine {says} in phase {self.describe_phase()}"
            raise OutOfTime(problem, "--stall-timeout S waits longer, 0 for ever")

    def give_up(self, status: Status, failure: Failure) -> None:
        """Kill the worker; the run ends so, unless the worker's last event has come meanwhile.

        An interrupted run always ends so: else a command of several runs would go on.
        """
        self.worker.kill()
        self.receive_events()
        in_time = any(isinstance(event, events.LAST_EVENTS) for event in self._events)
        hurry = status == "interrupted" or not in_time
        passed = False
        with contextlib.suppress(OutOfTime):
            self.take_rest(time.monotonic() + LAST_SECONDS if hurry else None)
            passed = True
        if status == "interrupted" or not (passed and self.ended):
            self.conclude(status, failure)

    def describe_phase(self) -> str:
        """Name the phase, and the iteration in it."""
        phase = self.result.phase
        counts = {"iterations": lambda rows: rows.count - warmups_in(rows), "warmup": warmups_in}
        if phase not in counts:
            return phase
        return f"{phase} (iteration {min(map(counts[phase], self.worker.tables))})"

    def conclude(self, status: Status, failure: Failure) -> None:
        self.result = replace(self.result, status=status, failure=failure)
        self.ended = True

    def explain_exit(self) -> None:
        """Explain the exit of a worker that sent no last event."""
        (status, usage), phase = self.worker.poll_exit() or (0, None), self.describe_phase()
        self.drain_log()
        peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024) if usage else None
        if os.WIFSIGNALED(status):
            name = name_of_signal(os.WTERMSIG(status))
            message = f"the engine crashed in phase {phase}: killed by {name}"
        else:
            code = os.WEXITSTATUS(status)
            message = f"the engine ended the process in phase {phase}: exit code {code}"
        hint = ENGINE_HINT
        if self.result.phase == "load":
            hint = "the model file may be damaged: copy or export it again"
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            hint = f"did the machine run out of memory? The run held {(peak or 0) >> 20} MiB"
        if limit := cpu_limit_reached(status, usage):
            message = f"the limit of CPU time ended the engine in phase {phase}"
            hint = f"it is {limit} s (ulimit -t): raise it with ulimit -t unlimited"
        self.result = replace(self.result, peak_memory_bytes=peak)
        unexplained = Failure(message, hint, EXIT_CODES["crashed"], self.log_tail())
        if (space := limit_of("RLIMIT_AS")) and says_out_of_memory(
            self._log.decode(errors="replace")
        ):
            unexplained = Failure.of(out_of_address_space(space), self.log_tail())
        self.conclude("crashed", self.explain_log() or unexplained)

    def log_tail(self) -> str:
        """Return the last lines that the engine printed."""
        lines = self._log.decode(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        return "\n".join(line[:400] for line in lines)


class TurnWorker(Watch, Listener):
    """A worker that does something only when it is given a turn; its time stands still between.

    Then its threads are stopped too: an engine's idle threads wait by asking without a pause, for
    up to a tenth of a second, and would take the CPUs of others.
    """

    report_seconds = 0.0

    def __init__(
        self, stack: contextlib.ExitStack, spec: RunSpec, context: RunContext, task: str = "run"
    ) -> None:
        """Start the worker; the stack kills it."""
        self._since = time.monotonic()  # when its last turn ended
        worker = stack.enter_context(start_worker_for(task, spec))
        super().__init__(worker, spec, replace(context, turns=True), self)
        self.send(task)

    def attend(self, seconds: float) -> None:
        """Wait up to so long for something to come of the worker, and take it."""
        try:
            super().attend(seconds)
        except OutOfTime as error:
            self.give_up("timed_out", Failure.of(error))

    def pause(self) -> None:
        """Stop it until its turn comes."""
        self._since = time.monotonic()
        self.worker.send_signal(signal.SIGSTOP)  # all threads, those too that ask without a pause

    def go_on(self) -> None:
        """Have it go on; its time stood still meanwhile."""
        self.worker.send_signal(signal.SIGCONT)
        idle_seconds = time.monotonic() - self._since
        self._alive_at += idle_seconds
        if self.deadline is not None:
            self.deadline += idle_seconds

    def take(self, number: int, most_seconds: float = math.inf) -> Answer | None:
        """Have it do what a number stands for; return its answer, None if it has ended meanwhile,
        as it does where it takes too long."""
        self.go_on()
        self.last = None
        self.worker.send(b"%d\n" % number, more=True)
        deadline = time.monotonic() + most_seconds
        while not isinstance(self.last, Answer) and not self.ended:
            self.attend(LOOK_SECONDS)
            if time.monotonic() > deadline:
                late = Failure(f"the engine has not computed it in {most_seconds:g} s")
                self.give_up("timed_out", replace(late, exit_code=OutOfTime.exit_code))
        self.pause()
        return self.last if isinstance(self.last, Answer) else None

    def finish(self) -> RunResult:
        """Have it come to its end, and return its result."""
        if not self.ended:
            self.go_on()
            self.worker.end_requests()
            while not self.ended:
                self.attend(LOOK_SECONDS)
        self.take_rest()
        return super().finish()
