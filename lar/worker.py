"""The worker: executes one `RunSpec` in this process and tells what happens as events.

    python -m lar.worker run lar.engines.megengine.lite:LiteDriver < spec.json

runs a spec by hand and prints its events. The parent process gives two descriptors more: where
events go, and the shared file for the samples.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from lar import __version__
from lar.errors import ENGINE_HINT, EXIT_CODES, EngineMissing, LarError, first_line
from lar.events import (
    LAST_EVENTS,
    DevicesFound,
    Emit,
    Event,
    Failed,
    Listener,
    ModelRead,
    Packed,
    PhaseEntered,
    Unpacked,
    apply_event,
    line_of,
)
from lar.measurement.rows import SampleRows, join_samples, open_rows
from lar.records import Failure, RunResult, RunSpec, read_spec

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def execute_run(spec: RunSpec, path: str, emit: Emit, tables: Sequence[SampleRows]) -> None:
    """Run the spec, in the ranges of NVTX that the parent process is in."""
    from lar.execution import execute

    with contextlib.ExitStack() as stack:
        if spec.ranges:
            from lar.profiling.ranges import nvtx_range  # few runs need it

            for name in spec.ranges:
                stack.enter_context(nvtx_range(name))

        def emit_outside(event: Event) -> None:
            # The parent process may end this one as soon as it knows the result.
            if isinstance(event, LAST_EVENTS):
                stack.close()
            emit(event)

        execute(spec, path, emit_outside if spec.ranges else emit, tables)


def read_model(spec: RunSpec, path: str, emit: Emit, tables: Sequence[SampleRows]) -> None:
    """Read what the spec's model file holds."""
    from lar.engines import load_name

    emit(PhaseEntered("load"))
    emit(ModelRead(load_name(path)(Path(spec.model))))


def find_devices(spec: RunSpec, path: str, emit: Emit, tables: Sequence[SampleRows]) -> None:
    """Find the devices of the spec's engine."""
    from lar.engines import load_name

    emit(DevicesFound(load_name(path)()))


def unpack_cases(spec: RunSpec, path: str, emit: Emit, tables: Sequence[SampleRows]) -> None:
    """Unpack the testcases in the spec's model file."""
    from lar.engines import load_name

    emit(PhaseEntered("load"))
    emit(Unpacked(*load_name(path)(spec)))


def pack_cases(spec: RunSpec, path: str, emit: Emit, tables: Sequence[SampleRows]) -> None:
    """Pack testcases into the spec's model."""
    from lar.testcases.packing import pack

    emit(PhaseEntered("load"))
    emit(Packed(*pack(spec, path)))


TASKS: Mapping[str, Callable[[RunSpec, str, Emit, Sequence[SampleRows]], None]] = {
    "run": execute_run,
    "info": read_model,
    "devices": find_devices,
    "unpack": unpack_cases,
    "pack": pack_cases,
}


def failure_of(error: BaseException) -> Failure:
    """Return what the user is told about an error."""
    detail = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    if isinstance(error, ImportError):
        error = EngineMissing(
            f"a library cannot be imported: {error}", "install it, or run `uv sync`"
        )
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        reason = (error.strerror or str(error)).lower()
        error = LarError(f"a file cannot be written: {reason}", "make room on the disk")
    if isinstance(error, LarError):
        return Failure(
            message=error.message, hint=error.hint, exit_code=error.exit_code, detail=detail
        )
    return Failure(f"the engine failed: {first_line(error)}", ENGINE_HINT, detail=detail)


def run_here(spec: RunSpec, path: str, listener: Listener, facts: Mapping[str, Any]) -> RunResult:
    """Execute a spec in this very process, for a debugger; a crash of the engine ends it.

    `facts` are fields of the result that are known beforehand.
    """
    result = RunResult(
        spec=spec,
        status="failed",
        phase="start",
        lar_version=__version__,
        started_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        **facts,
    )
    os.environ.update(spec.environment)
    capacity = spec.sample_count
    tables = open_rows(-1, capacity, spec.runners)
    seen = [0] * len(tables)

    def show_rows() -> None:
        for number, rows in enumerate(tables):
            if rows.count > seen[number]:
                listener.on_rows(rows, seen[number], rows.count, result)
                seen[number] = rows.count

    def emit(event: Event) -> None:
        nonlocal result
        show_rows()
        result = apply_event(result, event)
        listener.on_event(event, result)

    try:
        sha256 = result.model.sha256 if result.model else ""
        execute_run(replace(spec, model_sha256=sha256), path, emit, tables)
    except KeyboardInterrupt:
        show_rows()
        failure = Failure("interrupted", exit_code=EXIT_CODES["interrupted"])
        result = replace(result, status="interrupted", failure=failure)
    except Exception as error:
        emit(Failed(failure_of(error)))
    return replace(
        result,
        warmup=join_samples([rows.samples(0, spec.warmup_iterations) for rows in tables]),
        samples=join_samples([rows.samples(spec.warmup_iterations, capacity) for rows in tables]),
    )


def end_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies (Linux)."""
    if sys.platform == "linux":
        import ctypes

        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, int(signal.SIGKILL), 0, 0, 0)


def main(argv: list[str]) -> None:
    """Execute the spec that stands on standard input; never returns."""
    task, path, *descriptors = argv
    event_file, sample_file = (int(text) for text in descriptors or ("1", "-1"))
    if descriptors:
        end_with_parent()

    def emit(event: Event) -> None:
        if isinstance(event, LAST_EVENTS):
            flush_output()  # the parent ends this process when it has read such an event
        os.write(event_file, line_of(event))

    try:
        # The engine's libraries load while the parent still prepares the spec.
        importlib.import_module(path.partition(":")[0])
        if task == "run":
            importlib.import_module("lar.execution")
            importlib.import_module("lar.inputs")
        gc.freeze()  # what was imported is no garbage: collections need not look at it again
        gc.enable()
        spec = read_spec(sys.stdin.buffer.read())
        tables = open_rows(sample_file, spec.sample_count, spec.runners)
        TASKS[task](spec, path, emit, tables)
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
