"""Starts and ends a worker process; imports little, so that the worker starts early."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import IO, Any

from lar.engines import engine_named
from lar.engines.engine import ONE_BLAS_THREAD
from lar.files import python_process
from lar.measurement.rows import SampleRows, create_shared_file, make_rows
from lar.running.interrupts import uninterrupted

# The worker's file descriptors: 0 is for the spec, 1 and 2 for the log, and these two for events
# and samples.
EVENT_FILE, SAMPLE_FILE = 3, 4
# How long to wait without interrupts until a killed process has ended. It ends sooner, unless the
# system waits for a device; after this time Ctrl-C ends the wait.
GONE_SECONDS = 2.0
# The time between two checks whether the process has ended.
GLANCE_SECONDS = 0.001

# Imports make no garbage, so garbage collection starts after them.
CODE = """\
import gc
gc.disable()
from lar.worker import start
start(sys.argv[1:], {library!r})
"""

# The code that another Python runs first. That Python may be too old for newer syntax. It uses its
# own libraries, and takes only lar from this lar's folder.
FOREIGN_CODE = """\
import os
if sys.version_info < (3, 10):
    said = "it is Python %d.%d" % sys.version_info[:2]
    event = '["Failed", {{"failure": {{"problem": "%s", "exit_code": 3}}}}]\\n' % said
    os.write(int(sys.argv[4]), event.encode())
    os._exit(1)
sys.path.insert(0, {home!r})
import lar
del sys.path[0]
"""
HOME = os.path.realpath(python_process.HOME)


class WorkerProcess:
    """A worker process, and the parent's ends of its pipes.

    `is_free` is true until the worker gets a task.
    """

    def __init__(
        self,
        stack: ExitStack,
        words: Sequence[str] = (),
        environment: Mapping[str, str] = {},
        python: str = "",
    ) -> None:
        """Start the worker; its process group is killed when `stack` is closed.

        The worker loads the driver's libraries and then waits for a request. `words` are the names
        of the task, the engine and the driver. `python` is the worker's Python interpreter; an
        empty string means this process's interpreter. Without `words`, the worker is a fork of this
        process, which then must have only one thread. The fork imports the modules that all workers
        need, and then waits until `take_words` sends `words`.
        """
        self.is_free = True
        self._reaped: tuple[int, Any] | None = None
        self._killed = False
        request_out, request_in = map(above_worker_files, os.pipe())
        self.events, event_in = map(above_worker_files, os.pipe())
        self.log, log_in = map(above_worker_files, os.pipe())
        self._samples = above_worker_files(create_shared_file())
        for file in (self.events, self.log, self._samples):
            os.set_blocking(file, False)
            stack.callback(os.close, file)
        self.requests = stack.enter_context(os.fdopen(request_in, "wb", 0))
        files = {0: request_out, 1: log_in, 2: log_in, EVENT_FILE: event_in}
        files[SAMPLE_FILE] = self._samples
        arguments = [*words, str(EVENT_FILE), str(SAMPLE_FILE)]
        with uninterrupted():
            try:
                if words:
                    self.pid = start_python(arguments, environment, files, python)
                else:
                    work = partial(work_as_copy, self.requests)
                    self.pid = python_process.fork_python(files, work)
            finally:
                for file in (request_out, event_in, log_in):
                    os.close(file)
            # A copy that got no task needs no wait for its end.
            stack.callback(lambda: self.kill() if words or not self.is_free else self.end())

    def take_words(self, words: Sequence[str], environment: Mapping[str, str], python: str) -> bool:
        """Send `words` (task, engine, driver) to a worker that was forked in advance.

        Return False, and send nothing, if the run needs another Python or other environment
        variables.
        """
        engine = engine_named(words[1])
        wanted = {**engine.environment, **os.environ, **environment}
        if python or wanted != {**ONE_BLAS_THREAD, **os.environ}:
            return False
        import json

        line = json.dumps([*words, engine.shared_library_of(words[2])])
        self.send(f"{line}\n".encode(), more=True)
        return True

    def make_room(self, capacity: int, runners: int) -> tuple[SampleRows, ...]:
        """Make room for `capacity` samples of each runner, before the worker gets its task."""
        self.is_free = False
        return make_rows(self._samples, capacity, runners)

    def send(self, request: bytes, *, more: bool = False) -> None:
        """Write a request; close the pipe unless `more` says that further requests follow.

        If the worker has died, this function raises no error, since `poll_exit` reports the death
        later.
        """
        with suppress(BrokenPipeError):
            left = memoryview(request)
            while left:
                left = left[self.requests.write(left) :]
        if not more:
            self.requests.close()

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the worker's whole process group, unless the group was killed."""
        if not self._killed:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def poll_exit(self) -> tuple[int, Any] | None:
        """Return the exit status and resource usage of the process, or None while it is alive."""
        if self._reaped is None:
            with uninterrupted():  # the system gives the status only once
                pid, status, usage = os.wait4(self.pid, os.WNOHANG)
                self._reaped = (status, usage) if pid else None
        return self._reaped

    def end(self) -> None:
        """Kill the worker's whole process group, without a wait for its end."""
        self.send_signal(signal.SIGKILL)

    def kill(self) -> None:
        """Kill the worker's whole process group, and wait for its end."""
        gone_by = time.monotonic() + GONE_SECONDS
        with uninterrupted():
            self.end()
            while self.poll_exit() is None and time.monotonic() < gone_by:
                time.sleep(GLANCE_SECONDS)
        while self.poll_exit() is None:
            time.sleep(GLANCE_SECONDS)
        self._killed = True

    def cpu_ticks(self) -> int:
        """Return the worker's CPU time so far, in clock ticks; 0 if the time is unknown."""
        with suppress(OSError, IndexError), open(f"/proc/{self.pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
            return int(fields[11]) + int(fields[12])
        return 0


def above_worker_files(file: int) -> int:
    """Replace a file descriptor by a copy whose number is above the worker's descriptors.

    A new worker gets copies of some descriptors under fixed low numbers. Such a copy would
    overwrite a descriptor that has the same number and is not copied yet.
    """
    try:
        return fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, SAMPLE_FILE + 1)
    finally:
        os.close(file)


def start_python(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    files: Mapping[int, int],
    python: str = "",
) -> int:
    """Start Python with the worker's code in its own process group; return the process ID.

    `files` maps the worker's descriptors to descriptors of this process.
    """
    _, name, driver, *_ = arguments
    engine = engine_named(name)
    code = FOREIGN_CODE.format(home=HOME) if python else ""
    code += CODE.format(library="" if python else engine.shared_library_of(driver))
    command = python_process.python_command(code, *arguments, python=python)
    return os.posix_spawn(
        command[0],
        command,
        {**engine.environment, **os.environ, **environment},
        file_actions=[(os.POSIX_SPAWN_DUP2, file, number) for number, file in files.items()],
        setpgroup=0,
        setsigmask=(),  # this process may have interrupts blocked, the worker should not
    )


def work_as_copy(requests: IO[bytes]) -> None:
    """Run the worker's code in this process, which is a copy of lar's process."""
    from lar.worker import start

    requests.close()  # the parent's end of the pipe
    os.environ.update({**ONE_BLAS_THREAD, **os.environ})
    start([str(EVENT_FILE), str(SAMPLE_FILE)])
