"""Runs a spec in a worker process, and turns whatever happens to it into a `RunResult`.

The parent owns the one deadline. The worker stands in a process group of its own, which is
killed in the end whatever happened; what an engine does never raises here.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any, BinaryIO

from lar import __version__
from lar.errors import EXIT_CODES
from lar.events import LAST_EVENTS, Listener, apply_event, event_of
from lar.measurement.rows import SampleRows, create_shared_file
from lar.records import Failure, RunResult, RunSpec, record_to_json

# The parent looks at the samples that often while iterations run.
POLL_SECONDS = 0.02
LOG_TAIL_BYTES = 64 * 1024
LOG_TAIL_LINES = 20
# The worker's descriptors: standard input brings the spec, 1 and 2 are the log.
EVENT_FILE, SAMPLE_FILE = 3, 4
INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass
class Worker:
    """A started worker process and the parent's ends of its pipes."""

    pid: int
    spec_pipe: BinaryIO
    events: int
    log: int
    rows: SampleRows
    reaped: tuple[int, Any] | None = None
    killed: bool = False

    def poll_exit(self, block: bool = False) -> tuple[int, Any] | None:
        """Return the exit status and resource usage once the process has ended."""
        if self.reaped is None:
            pid, status, usage = os.wait4(self.pid, 0 if block else os.WNOHANG)
            self.reaped = (status, usage) if pid else None
        return self.reaped

    def kill(self) -> None:
        """Kill the worker's whole group and wait for it."""
        if not self.killed:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self.poll_exit(block=True)
            self.killed = True

    def cpu_ticks(self) -> int:
        """Return the CPU time used so far, in clock ticks; 0 where the system does not tell."""
        try:
            with open(f"/proc/{self.pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            return int(fields[11]) + int(fields[12])
        except (OSError, IndexError):
            return 0


@contextlib.contextmanager
def start_worker(spec: RunSpec, task: str, path: str) -> Iterator[Worker]:
    """Start a worker, and kill its group in the end."""
    capacity = spec.warmup_iterations + spec.iterations
    with contextlib.ExitStack() as stack:

        def above_worker_files(file: int) -> int:
            # Away from the numbers that the worker is given, so that none is overwritten
            # before it is copied.
            high = fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 16)
            os.close(file)
            return high

        def open_pipe() -> tuple[int, int]:
            return tuple(above_worker_files(file) for file in os.pipe())  # type: ignore[return-value]

        spec_out, spec_in = open_pipe()
        event_out, event_in = open_pipe()
        log_out, log_in = open_pipe()
        samples = above_worker_files(create_shared_file(capacity))
        stack.callback(os.close, event_out)
        stack.callback(os.close, log_out)
        os.set_blocking(event_out, False)
        os.set_blocking(log_out, False)
        spec_pipe = open(spec_in, "wb", buffering=0)  # noqa: SIM115 - closed by the stack
        stack.callback(spec_pipe.close)
        # The parent's own module path, so that the same lar is run and nothing in the
        # current folder can stand in for a library.
        code = (
            f"import sys; sys.path[:] = {sys.path!r}; "
            "from lar.worker import main; main(sys.argv[1:])"
        )
        arguments = [task, path, str(EVENT_FILE), str(SAMPLE_FILE)]
        copies = {0: spec_out, 1: log_in, 2: log_in, EVENT_FILE: event_in, SAMPLE_FILE: samples}
        try:
            pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-c", code, *arguments],
                {**os.environ, **spec.environment},
                file_actions=[(os.POSIX_SPAWN_DUP2, file, name) for name, file in copies.items()],
                setpgroup=0,
            )
            rows = SampleRows(samples, capacity)
        finally:
            for file in {*copies.values()}:
                os.close(file)
        worker = Worker(pid, spec_pipe, event_out, log_out, rows)
        try:
            yield worker
        finally:
            worker.kill()


def run_isolated(
    spec: RunSpec,
    path: str,
    listener: Listener | None = None,
    *,
    task: str = "run",
    before_start: Callable[[], dict[str, Any]] | None = None,
) -> RunResult:
    """Execute a spec in a worker process.

    `before_start` gives fields of the result; it runs while the worker loads its libraries and
    before the worker may begin, so that it disturbs nothing that is timed.
    """
    listener = listener or Listener()
    began = time.monotonic()
    result = RunResult(
        spec=spec,
        status="failed",
        phase="start",
        lar_version=__version__,
        started_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )
    with start_worker(spec, task, path) as worker:
        watch = Watch(worker, spec, listener, result)
        try:
            if before_start is not None:
                watch.result = replace(watch.result, **before_start())
            send_spec(worker.spec_pipe, spec)
            watch.follow()
        except KeyboardInterrupt:
            watch.give_up(
                "interrupted", Failure(message="interrupted", exit_code=EXIT_CODES["interrupted"])
            )
        warmups, count = spec.warmup_iterations, worker.rows.count
        return replace(
            watch.result,
            warmup=worker.rows.samples(0, min(warmups, count)),
            samples=worker.rows.samples(warmups, count),
            wall_seconds=time.monotonic() - began,
            log_tail=watch.log_tail(),
        )


def send_spec(pipe: BinaryIO, spec: RunSpec) -> None:
    """Write the spec to the worker and close the pipe; a worker that died is seen later."""
    with contextlib.suppress(BrokenPipeError):
        pipe.write(record_to_json(spec))
    pipe.close()


def name_of_signal(number: int) -> str:
    """Return a signal's name, its number where it has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Watch:
    """Follows a worker until it has finished, failed, died, stalled or run out of time."""

    def __init__(
        self, worker: Worker, spec: RunSpec, listener: Listener, result: RunResult
    ) -> None:
        self.worker = worker
        self.spec = spec
        self.listener = listener
        self.result = result
        self.began = time.monotonic()
        self._seen_rows = 0
        self._partial = b""
        self._log = b""
        self._log_bytes = 0
        self._ended = False
        self._progress: tuple[object, ...] = ()
        self._progress_at = self.began

    def follow(self) -> None:
        """Read events, samples and log until the end."""
        poll = select.poll()
        for file in (self.worker.events, self.worker.log):
            poll.register(file, select.POLLIN)
        closed = False
        while not self._ended:
            busy = closed or self.result.phase in ("warmup", "iterations")
            ready = {file for file, _ in poll.poll(1000 * (POLL_SECONDS if busy else 0.1))}
            if self.worker.log in ready and not self.read_log():
                poll.unregister(self.worker.log)
            self.take_rows()
            if self.worker.events in ready and not self.read_events():
                poll.unregister(self.worker.events)
                closed = True
            if self._ended:
                break
            if (closed or not ready) and self.worker.poll_exit() is not None:
                self.explain_exit()
            else:
                self.check_time()
        self.take_rows()

    def read_events(self) -> bool:
        """Take the events that have come; False at their end."""
        try:
            data = os.read(self.worker.events, 1 << 20)
        except BlockingIOError:
            return True
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            try:
                event = event_of(line)
            except ValueError as error:
                text = f"the engine wrote into the pipe of lar's events: {error}"
                self.end("crashed", Failure(text, exit_code=EXIT_CODES["crashed"]))
                break
            self.take_rows()  # those that were written before the event was sent
            self.result = apply_event(self.result, event)
            self.listener.on_event(event, self.result)
            self._ended = isinstance(event, LAST_EVENTS)
        return bool(data)

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
        """Tell the listener about new samples."""
        warmups = self.spec.warmup_iterations
        # Rows may stand there already while the event that begins their phase is still unread.
        most = {"start": 0, "load": 0, "prepare": 0, "warmup": warmups}.get(self.result.phase)
        count = self.worker.rows.count if most is None else min(most, self.worker.rows.count)
        if count > self._seen_rows:
            # An interrupt waits until these are told, so that none is told twice or never.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)
            try:
                self.listener.on_rows(self.worker.rows, self._seen_rows, count, self.result)
                self._seen_rows = count
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def check_time(self) -> None:
        """End the run when it is past its deadline, or has stood still for too long."""
        now = time.monotonic()
        limit, stall = self.spec.timeout_seconds, self.spec.stall_seconds
        progress = (
            self._seen_rows,
            self._log_bytes,
            self.result.phase,
            self.worker.cpu_ticks(),
        )
        if progress != self._progress:
            self._progress, self._progress_at = progress, now
        if limit is not None and now - self.began > limit:
            self.time_out(f"timed out after {limit:g} s in", "--timeout S gives it more time")
        elif stall is not None and now - self._progress_at > stall:
            self.time_out(
                f"the engine hangs, it has neither computed nor answered for {stall:g} s in",
                "--stall-timeout S waits longer, 0 for ever",
            )

    def time_out(self, what: str, hint: str) -> None:
        message = f"{what} phase {self.describe_phase()}"
        self.give_up("timed_out", Failure(message, hint, EXIT_CODES["timed_out"]))

    def give_up(self, status: Any, failure: Failure) -> None:
        """Kill the worker; the run ends so, unless the worker has told its end meanwhile."""
        self.worker.kill()
        # A pipe holds less than each reads at once.
        self.read_log()
        self.read_events()
        self.take_rows()
        if not self._ended:
            self.end(status, failure)

    def describe_phase(self) -> str:
        """Name the phase, and the iteration in it."""
        phase, done = self.result.phase, self._seen_rows
        if phase == "iterations":
            return f"{phase} (iteration {done - self.spec.warmup_iterations})"
        return f"{phase} (iteration {done})" if phase == "warmup" else phase

    def end(self, status: Any, failure: Failure) -> None:
        self.result = replace(self.result, status=status, failure=failure)
        self._ended = True

    def explain_exit(self) -> None:
        """Say how a worker ended that ended without a word."""
        status, usage = self.worker.poll_exit(block=True) or (0, None)
        while self.read_log():
            pass
        peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024) if usage else None
        if os.WIFSIGNALED(status):
            name = name_of_signal(os.WTERMSIG(status))
            message = f"the engine crashed in phase {self.describe_phase()}: killed by {name}"
        else:
            message = (
                f"the engine ended the process in phase {self.describe_phase()}: "
                f"exit code {os.WEXITSTATUS(status)}"
            )
        hint = ""
        if self.result.phase == "load":
            hint = "the model file may be damaged: copy or export it again"
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            hint = f"did the machine run out of memory? The run held {(peak or 0) >> 20} MiB"
        self.result = replace(self.result, peak_memory_bytes=peak)
        self.end(
            "crashed",
            Failure(
                message=message, hint=hint, exit_code=EXIT_CODES["crashed"], detail=self.log_tail()
            ),
        )

    def log_tail(self) -> str:
        """Return the last lines that the engine printed."""
        lines = self._log.decode(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        return "\n".join(line[:400] for line in lines)
