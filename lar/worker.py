"""The worker: executes one `RunSpec` in this process and tells what happens as events.

    python -m lar.worker run lar.engines.megengine.lite:LiteDriver < spec.json

runs a spec by hand and prints its events. The parent process gives two descriptors more: where
events go, and the shared file for the samples.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from lar import __version__
from lar.errors import EXIT_CODES, EngineMissing, LarError, UsageError
from lar.events import (
    LAST_EVENTS,
    DevicesFound,
    Emit,
    EngineStarted,
    Event,
    Failed,
    Fed,
    Finished,
    Listener,
    Loaded,
    ModelRead,
    PhaseEntered,
    Prepared,
    apply_event,
    line_of,
)
from lar.measurement.rows import SampleRows
from lar.records import (
    Failure,
    OutputSummary,
    RunResult,
    RunSpec,
    TimeSources,
    read_spec,
)


def execute(spec: RunSpec, driver_path: str, emit: Emit, rows: SampleRows) -> None:
    """Run a spec from load to outputs, emitting what happens.

    Raises:
        LarError: with the engine's message made clear where it is known.
    """
    from lar.engines import ENGINES, load_name, rows_of
    from lar.inputs import feed_of
    from lar.inputs.batching import repeat_batches
    from lar.measurement.loop import take_samples

    driver = load_name(driver_path)(spec, rows_of(ENGINES[spec.engine]))
    try:
        emit(EngineStarted(driver.facts()))
        emit(PhaseEntered("load"))
        began = driver.clock()
        load_model(driver)
        load_seconds = driver.clock() - began
        infos = driver.inputs()
        # A wrong input is told before any time is.
        feed = feed_of(spec.inputs, infos, image=spec.image, fill=spec.fill, seed=spec.seed)
        arrays, fed = feed.arrays, feed.fed
        if spec.batch_size is not None:
            arrays, fed = repeat_batches(arrays, fed, infos, spec.batch_size)
        emit(Loaded(load_seconds, infos))
        emit(Fed(fed, feed.warnings))
        emit(PhaseEntered("prepare"))
        began = driver.clock()
        driver.feed(arrays)
        prepare_seconds = driver.clock() - began
        meter = driver.meter()
        emit(Prepared(prepare_seconds, sources_of(driver, meter is not None)))

        if spec.warmup_iterations:
            emit(PhaseEntered("warmup"))
            take_samples(driver, spec.warmup_iterations, rows, meter)
        if spec.iterations:
            emit(PhaseEntered("iterations"))
            take_samples(driver, spec.iterations, rows, meter)
        emit(PhaseEntered("finish"))
        ran = spec.warmup_iterations + spec.iterations > 0
        outputs = tuple(summarize_outputs(driver.outputs())) if ran else ()
        peak = read_peak_memory()
        driver.close()
        emit(Finished(outputs, peak))
    except LarError:
        raise
    except MemoryError as error:
        raise LarError("out of memory", "a smaller batch or model, or more memory") from error
    except Exception as error:
        explained = driver.explain(error, loading=False)
        if explained is None:
            raise
        raise explained from error


def load_model(driver: Any) -> None:
    """Load the model.

    Raises:
        LarError: it does not load; what the engine says of it stands in the hint.
    """
    try:
        driver.load()
    except (LarError, MemoryError):
        raise
    except Exception as error:
        explained = driver.explain(error, loading=True)
        if explained is not None:
            raise explained from error
        said = first_line(error)
        raise UsageError(
            f"{driver.spec.model}: the engine cannot load it; it may be damaged, or made for "
            "another version",
            f"copy or export it again; the engine says: {said}",
        ) from error


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, its type where it has none."""
    text = str(error).strip()
    return text.splitlines()[0][:300] if text else type(error).__name__


def sources_of(driver: Any, metered: bool) -> TimeSources:
    """Say where the three times of each sample come from."""
    if driver.device_seconds is not None:
        device = "engine"
    else:
        device = "CPU time of the busiest thread" if metered else ""
    return TimeSources(
        end_to_end="clock around dispatch and wait", host="clock around dispatch", device=device
    )


def summarize_outputs(outputs: Mapping[str, Any]) -> list[OutputSummary]:
    """Summarise each output, one in memory at a time."""
    import hashlib

    import numpy as np

    summaries = []
    for name in outputs:
        value = outputs[name]
        if isinstance(value, str):  # the name of a type that is no array of numbers
            summaries.append(summarize_opaque(name, value))
            continue
        array = np.require(value, requirements="C")
        numeric = array.dtype.kind in "biuf"
        finite = array[np.isfinite(array)] if array.dtype.kind == "f" else array
        told = numeric and finite.size > 0
        mean = float(finite.mean(dtype=np.float64)) if told else None
        summaries.append(
            OutputSummary(
                name=name,
                dtype=array.dtype.name,
                shape=array.shape,
                minimum=float(finite.min()) if told else None,
                maximum=float(finite.max()) if told else None,
                mean=mean if mean is not None and np.isfinite(mean) else None,
                nonfinite_count=int(array.size - finite.size),
                sha256=hashlib.sha256(array.data).hexdigest(),
            )
        )
    return summaries


def summarize_opaque(name: str, type_name: str) -> OutputSummary:
    """Summarise an output that NumPy does not hold: a map, a sequence, text, bfloat16."""
    return OutputSummary(
        name=name,
        dtype=type_name,
        shape=(),
        minimum=None,
        maximum=None,
        mean=None,
        nonfinite_count=0,
        sha256="",
    )


def read_peak_memory() -> int | None:
    """Return the most memory this process has held, in bytes (VmHWM), None where unknown."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def read_model(spec: RunSpec, path: str, emit: Emit, rows: SampleRows) -> None:
    """Read what the spec's model file holds."""
    from lar.engines import load_name

    emit(PhaseEntered("load"))
    emit(ModelRead(load_name(path)(Path(spec.model))))


def find_devices(spec: RunSpec, path: str, emit: Emit, rows: SampleRows) -> None:
    """Find the devices of the spec's engine."""
    from lar.engines import load_name

    emit(DevicesFound(load_name(path)()))


TASKS: Mapping[str, Callable[[RunSpec, str, Emit, SampleRows], None]] = {
    "run": execute,
    "info": read_model,
    "devices": find_devices,
}


def failure_of(error: BaseException) -> Failure:
    """Return what the user is told about an error."""
    detail = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    if isinstance(error, ImportError):
        error = EngineMissing(
            f"a library cannot be imported: {error}", "install it, or run `uv sync`"
        )
    if isinstance(error, LarError):
        return Failure(
            message=error.message, hint=error.hint, exit_code=error.exit_code, detail=detail
        )
    return Failure(message=f"the engine failed: {first_line(error)}", detail=detail)


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
    warmups = spec.warmup_iterations
    rows = SampleRows.anonymous(warmups + spec.iterations)
    seen = 0

    def show_rows() -> None:
        nonlocal seen
        if rows.count > seen:
            listener.on_rows(rows, seen, rows.count, result)
            seen = rows.count

    def emit(event: Event) -> None:
        nonlocal result
        show_rows()
        result = apply_event(result, event)
        listener.on_event(event, result)

    try:
        sha256 = result.model.sha256 if result.model else ""
        execute(replace(spec, model_sha256=sha256), path, emit, rows)
    except KeyboardInterrupt:
        show_rows()
        failure = Failure("interrupted", exit_code=EXIT_CODES["interrupted"])
        result = replace(result, status="interrupted", failure=failure)
    except Exception as error:
        emit(Failed(failure_of(error)))
    return replace(
        result,
        warmup=rows.samples(0, min(warmups, rows.count)),
        samples=rows.samples(warmups, rows.count),
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
            importlib.import_module("lar.inputs")
        gc.enable()
        spec = read_spec(sys.stdin.buffer.read())
        TASKS[task](
            spec, path, emit, SampleRows(sample_file, spec.warmup_iterations + spec.iterations)
        )
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
