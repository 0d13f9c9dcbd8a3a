"""The worker: executes one `RunSpec` in this process and sends events about it.

The parent process gives two descriptors: where events go, and the shared file for the samples.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path

from lar.engines import engine_named
from lar.errors import (
    ENGINE_HINT,
    NO_ROOM,
    EngineMissing,
    LarError,
    first_line,
    memory_error,
    reason_of_write,
)
from lar.measurement.rows import SampleRows, open_rows
from lar.records import events
from lar.records.run import Failure, RunContext, RunSpec


def do_task(
    name: str,
    spec: RunSpec,
    context: RunContext,
    tables: Sequence[SampleRows],
    turns: Iterable[int] | None,
    emit: events.Emit,
) -> events.Event | None:
    """Do what the parent asks for; return the last event, None if the task ends with the turns that
    the parent gives."""
    engine = engine_named(spec.engine)
    if name == "run":
        from lar.worker.execution import Execution

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
    """Return the failure that the user sees for an error."""
    detail = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    error = memory_error(error) or error
    if isinstance(error, ImportError):
        error = EngineMissing(
            f"a library cannot be imported: {error}", "install it, or run `uv sync`"
        )
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        reason, hint = reason_of_write(error)
        error = LarError(f"a file cannot be written: {reason}", hint)
    if isinstance(error, LarError):
        return Failure.of(error, detail)
    return Failure(f"the engine failed: {first_line(error)}", ENGINE_HINT, detail=detail)


def import_modules(task: str, engine: str, driver: str) -> None:
    """Import what a task needs, while the parent still prepares the spec."""
    if driver:
        engine_named(engine).driver_class(driver)
    if task == "run":
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
    event_file, sample_file = map(int, descriptors)
    end_with_parent()

    def emit(event: events.Event) -> None:
        os.write(event_file, events.line_of(event))

    last, status = b"", 0
    try:
        import_modules(task, engine, driver)
        gc.freeze()  # imported modules stay: the collector need not look at them
        gc.enable()
        # Pickled, since that needs no library that starts slowly.
        requests = sys.stdin.buffer
        spec, context = pickle.load(requests)
        tables = open_rows(sample_file, spec.sample_count, spec.runners)
        # Each line is the number of a turn that the parent gives.
        turns = map(int, iter(requests.readline, b"")) if context.turns else None
        with contextlib.ExitStack() as stack:
            if context.ranges:
                from lar.profiles.ranges import nvtx_range  # few runs need it

                for name in context.ranges:
                    stack.enter_context(nvtx_range(name))
            answer = do_task(task, spec, context, tables, turns, emit)
        last = b"" if answer is None else events.line_of(answer)
    except KeyboardInterrupt:
        status = 130
    except BaseException as error:
        last, status = events.line_of(events.Failed(failure_of(error))), 1
    flush_output()
    os.write(event_file, last)  # the parent may end this process as soon as it knows the result
    # Engines' destructors take time and some of them crash; there is nothing left to save.
    os._exit(status)


def flush_output() -> None:
    """Write out what Python and the engine's C library still hold of their output."""
    import ctypes

    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)
