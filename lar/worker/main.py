"""The worker: executes one `RunSpec` in this process and sends events to the parent process.

The parent process gives two file descriptors: one for events, and one for the shared file with the
samples.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import pickle
import sys
from pathlib import Path

from lar import errors
from lar.engines import engine_named
from lar.measurement.rows import open_rows
from lar.records import events
from lar.records.run import Failure


def do_task(name: str, sample_file: int, emit: events.Emit) -> events.Event | None:
    """Do the task that the parent sends on standard input, and return the last event.

    Return None for a task that computes single operators in turns, since such a task has no last
    event.
    """
    # The request is pickled, since pickle is imported quickly. Numbers of turns may follow the
    # request, one in each line.
    requests = sys.stdin.buffer
    spec, context = pickle.load(requests)
    turns = map(int, iter(requests.readline, b"")) if context.turns else None
    engine = engine_named(spec.engine)
    with contextlib.ExitStack() as stack:
        if context.ranges:
            from lar.profiles.ranges import nvtx_range  # few runs need it

            for each in context.ranges:
                stack.enter_context(nvtx_range(each))
        if name == "run":
            from lar.worker.execution import Execution

            tables = open_rows(sample_file, spec.sample_count, spec.runners)
            return Execution(spec, context, emit, tables).run(turns)
        if name == "devices":
            return events.DevicesFound(engine.find_devices())
        emit(events.PhaseEntered("load"))
        if name == "info":
            return events.ModelRead(engine.read_model(Path(spec.model)))
        if name == "unpack":
            return events.Unpacked(*engine.unpack_testcases(spec, context))
        from lar.worker import tasks

        if name == "info_at":
            return events.ModelRead(tasks.read_model_at(spec, context, emit))
        if name == "pack":
            return tasks.pack(spec, context)
        tasks.compute_each(spec, context, turns or (), emit)
        return None


def failure_of(error: BaseException) -> Failure:
    """Return the failure that is reported to the user for an error."""
    import traceback  # slow to import

    detail = "".join(traceback.format_exception(error))
    error = errors.memory_error(error) or error
    if isinstance(error, ImportError):
        problem = f"a library cannot be imported: {error}"
        error = errors.EngineMissing(problem, "install it, or run `uv sync`")
    elif isinstance(error, OSError) and error.errno in errors.NO_ROOM:
        reason, hint = errors.reason_of_write(error)
        error = errors.LarError(f"a file cannot be written: {reason}", hint)
    elif not isinstance(error, errors.LarError):
        problem = f"the engine failed: {errors.first_line(error)}"
        error = errors.LarError(problem, errors.ENGINE_HINT)
    return Failure.of(error, detail)


def import_modules(task: str, engine: str, driver: str) -> None:
    """Import the modules that a task needs, while the parent still prepares the spec."""
    if driver:
        engine_named(engine).driver_class(driver)
    if task == "run":
        import lar.worker.execution  # noqa: F401


def main(argv: list[str]) -> None:
    """Execute the task that is sent on standard input; never return."""
    task, engine, driver, *descriptors = argv
    event_file, sample_file = map(int, descriptors)

    def emit(event: events.Event) -> None:
        os.write(event_file, events.line_of(event))

    last, status = b"", 0
    try:
        import_modules(task, engine, driver)
        gc.freeze()  # imported modules stay, so the garbage collector can skip them
        gc.enable()
        answer = do_task(task, sample_file, emit)
        last = b"" if answer is None else events.line_of(answer)
    except KeyboardInterrupt:
        status = 130
    except BaseException as error:
        last, status = events.line_of(events.Failed(failure_of(error))), 1
    # Python and the engine's C library may still buffer output.
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)
    os.write(event_file, last)  # the parent may end this process as soon as it knows the result
    # Skip the destructors of engines: they take time, and some of them crash.
    os._exit(status)
