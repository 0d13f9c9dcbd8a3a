"""The worker: executes one `RunSpec` in this process and sends events about it.

    python -m lar.worker.main run ENGINE DRIVER < spec.json

runs a spec by hand and prints its events. The parent process gives two descriptors more: where
events go, and the shared file for the samples.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from lar.engines import engine_named
from lar.errors import (
    ENGINE_HINT,
    NO_ROOM,
    EngineMissing,
    LarError,
    address_space_limit,
    first_line,
    out_of_address_space,
    says_out_of_memory,
)
from lar.measurement.rows import SampleRows, open_rows
from lar.records.events import (
    LAST_EVENTS,
    DevicesFound,
    Emit,
    Event,
    Failed,
    ModelRead,
    Packed,
    PhaseEntered,
    Unpacked,
    line_of,
)
from lar.records.run import Failure, RunContext, RunSpec, read_request


class Task(NamedTuple):
    """A task of the parent: its spec, the file for the samples, and the turns that it gives."""

    spec: RunSpec
    context: RunContext
    tables: Sequence[SampleRows]
    turns: Iterable[int] | None = None


def execute_run(task: Task, emit: Emit) -> None:
    """Run the spec, in the ranges of NVTX that the parent process is in."""
    from lar.worker.execution import Execution

    with contextlib.ExitStack() as stack:
        if task.context.ranges:
            from lar.profiles.ranges import nvtx_range  # few runs need it

            for name in task.context.ranges:
                stack.enter_context(nvtx_range(name))

        def emit_outside(event: Event) -> None:
            # The parent process may end this one as soon as it knows the result.
            if isinstance(event, LAST_EVENTS):
                stack.close()
            emit(event)

        chosen = emit_outside if task.context.ranges else emit
        Execution(task.spec, task.context, chosen, task.tables).run(task.turns)


def answer_of(name: str, spec: RunSpec, context: RunContext) -> Event:
    """Return the one event that answers a task."""
    engine = engine_named(spec.engine)
    if name == "info":
        return ModelRead(engine.read_model(Path(spec.model)))
    if name == "devices":
        return DevicesFound(engine.find_devices())
    if name == "unpack":
        return Unpacked(*engine.unpack_testcases(spec, context))
    from lar.worker.packing import pack

    return Packed(*pack(spec, context))


def do_task(name: str, task: Task, emit: Emit) -> None:
    """Do what the parent asks for."""
    if name == "run":
        execute_run(task, emit)
        return
    if name != "devices":
        emit(PhaseEntered("load"))
    if name == "isolate":
        from lar.worker.isolating import compute_each

        compute_each(task.spec, task.context, task.turns or (), emit)
    else:
        emit(answer_of(name, task.spec, task.context))


def failure_of(error: BaseException) -> Failure:
    """Return the failure that the user sees for an error."""
    detail = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    if isinstance(error, (ImportError, OSError)) and "failed to map segment" in str(error):
        error = LarError(
            f"no memory to load a library: {first_line(error)}",
            "free memory, or raise its limit: ulimit -v unlimited",
        )
    # What an error was raised from counts too: NumPy and the engines explain it away.
    if (limit := address_space_limit()) and says_out_of_memory(detail):
        error = out_of_address_space(limit)
    if isinstance(error, ImportError):
        error = EngineMissing(
            f"a library cannot be imported: {error}", "install it, or run `uv sync`"
        )
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        reason = (error.strerror or str(error)).lower()
        error = LarError(f"a file cannot be written: {reason}", "make room on the disk")
    if isinstance(error, LarError):
        return Failure.of(error, detail)
    return Failure(f"the engine failed: {first_line(error)}", ENGINE_HINT, detail=detail)


def import_modules(task: str, engine: str, driver: str) -> None:
    """Import what a task needs, while the parent still prepares the spec."""
    if driver:
        engine_named(engine).driver_class(driver)
    if task == "run":
        import lar.inputs.batching
        import lar.inputs.feed
        import lar.worker.execution  # noqa: F401


def end_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies (Linux)."""
    if sys.platform == "linux":
        import ctypes

        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, int(signal.SIGKILL), 0, 0, 0)


def main(argv: list[str]) -> None:
    """Execute the spec that stands on standard input; never returns."""
    task, engine, driver, *descriptors = argv
    event_file, sample_file = (int(text) for text in descriptors or ("1", "-1"))
    if descriptors:
        end_with_parent()

    def emit(event: Event) -> None:
        if isinstance(event, LAST_EVENTS):
            flush_output()  # the parent ends this process when it has read such an event
        os.write(event_file, line_of(event))

    try:
        import_modules(task, engine, driver)
        gc.freeze()  # what was imported stays: collections need not look at it again
        gc.enable()
        # The parent sends a line, after which turns may come.
        requests = sys.stdin.buffer
        spec, context = read_request(requests.readline() if descriptors else requests.read())
        tables = open_rows(sample_file, spec.sample_count, spec.runners)
        # Each line is the number of a turn that the parent gives.
        turns = map(int, iter(requests.readline, b"")) if context.turns else None
        do_task(task, Task(spec, context, tables, turns), emit)
        status = 0
    except KeyboardInterrupt:
        status = 130
    except BaseException as error:
        emit(Failed(failure_of(error)))
        status = 1
    flush_output()
    # Engines' destructors take time and some of them crash; there is nothing left to save.
    os._exit(status)


def flush_output() -> None:
    """Write out what Python and the engine's C library still hold of their output."""
    import ctypes

    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)


if __name__ == "__main__":
    main(sys.argv[1:])
