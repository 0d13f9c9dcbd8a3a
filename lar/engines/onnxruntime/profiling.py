"""Profiles a session with ONNX Runtime's own profiler, on the clock of the run's recorder."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lar.engines.onnxruntime.blocked_layout import DOMAIN, block_size
from lar.engines.onnxruntime.messages import one_line
from lar.engines.onnxruntime.optimized_graph import OptimizedGraph, read_graph
from lar.engines.onnxruntime.profile_events import RunEvents, TimedRun, load_spans
from lar.engines.onnxruntime.profile_file import (
    MOST_EVENTS,
    RawProfile,
    RawRun,
    busy_threads,
    decode_raw,
)
from lar.engines.onnxruntime.profiled_memory import allocations_of
from lar.engines.onnxruntime.profiled_operators import OperatorTable
from lar.engines.onnxruntime.saving import save_optimized
from lar.engines.profiler import EngineTrace
from lar.errors import LarError
from lar.options.table import PROFILES, one_of
from lar.records.profile import Alignment, Step

ROUNDING_NS = 1000  # the engine's times are whole microseconds, rounded down


class Call(NamedTuple):
    """When an iteration called the engine, and when that call returned."""

    step: Step
    begin_ns: int
    end_ns: int


def start_profiling(driver: Any, _: object) -> None:
    """Have the driver's session write its profile, beside where lar's is written."""
    if driver.profiler is None:
        driver.profiler = SessionProfiler(driver)
        driver.options.enable_profiling = True
        prefix = os.path.join(folder_of(driver), "onnxruntime")
        driver.options.profile_file_prefix = prefix


def profile_no_other(driver: Any, _: object) -> None:
    """Have the sessions that are made besides the driver's write none."""
    driver.options.enable_profiling = False


def folder_of(driver: Any) -> str:
    """Return the folder in which the run's profile is written; it goes away with the run."""
    written = driver.context.written
    place: str = next(written[key] for key in ("profile", "profile_raw") if key in written)
    return os.path.dirname(place)


class SessionProfiler:
    """Keeps when the iterations were, and reads what the session tells when all have ended."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.calls: list[Call] = []

    def take(self, step: Step, forward_ns: int, dispatched_ns: int, waited_ns: int) -> None:
        self.calls.append(Call(step, forward_ns, dispatched_ns))

    def finish(self) -> EngineTrace:
        driver, session = self.driver, self.driver.session
        began_ns = session.get_profiling_start_time_ns()
        file = session.end_profiling()
        data = Path(file).read_bytes()
        if not data.rstrip().endswith(b"]"):  # it does not say so itself
            raise LarError(
                "ONNX Runtime could not write the whole of its profile", "make room on the disk"
            )
        settings = driver.spec.settings
        if one_of(PROFILES, settings) is None:
            return EngineTrace(raw_file=file)
        raw = decode_raw(data, file)
        graph, dropped = graph_of(driver)
        dropped += cut_of(raw, len(self.calls))
        offset, error = align_runs(raw.runs, self.calls, began_ns - driver.recorder.unix_ns)
        table = OperatorTable(raw, graph)
        events = RunEvents(table, driver.facts().device)
        events.add_runs(place_runs(raw.runs, self.calls, offset))
        threads = busy_threads(node.event for run in raw.runs for node in run.nodes)
        events.add_threads(threads)
        executions = tuple(events.executions)
        steps = [call.step for call in self.calls]
        with_memory = "profile_memory" in settings and not events.on_device
        return EngineTrace(
            operators=tuple(table.operators),
            executions=executions,
            spans=(*load_spans(raw.load, offset), *events.spans),
            allocations=allocations_of(executions, steps, table) if with_memory else (),
            threads=events.threads,
            thread_count=1 + len(threads),
            alignments=(Alignment("onnxruntime", offset, error),),
            dropped=(*events.dropped, *dropped),
            raw_file=file,
        )


def graph_of(driver: Any) -> tuple[OptimizedGraph | None, list[str]]:
    """Return the graph that a driver runs; where there is none, None and why."""
    try:
        content = driver.saved.content if driver.saved else save_graph(driver)
        is_blocked = DOMAIN in content
        plain = save_graph(driver, level="ORT_ENABLE_BASIC") if is_blocked else b""
    except Exception as error:  # the engine has no one kind for these
        why = one_line(str(error))
        return None, [f"FLOPs, bytes and memory: ONNX Runtime cannot save the graph: {why}"]
    block = block_size(driver.onnxruntime) if is_blocked else 1
    return read_graph(content, block, plain), []


def save_graph(driver: Any, level: str = "") -> bytes:
    """Return the optimised model of a driver without the larger weights, at another `level`."""
    options, levels = driver.options, driver.onnxruntime.GraphOptimizationLevel
    usual = options.graph_optimization_level
    with tempfile.TemporaryDirectory(dir=folder_of(driver)) as folder:
        # The engine always writes the weights too, and only into the model's folder.
        os.symlink(os.devnull, os.path.join(folder, "weights"))
        path = Path(folder, "optimized.onnx")
        try:
            options.graph_optimization_level = getattr(levels, level) if level else usual
            save_optimized(driver, path, "weights")
        finally:
            options.graph_optimization_level = usual
        return path.read_bytes()


def cut_of(raw: RawProfile, calls: int) -> list[str]:
    """Say how many iterations are missing in the engine's profile, if some are."""
    missing = calls - len(raw.runs)
    if missing <= 0:
        return []
    return [
        f"the operators of the last {missing} of {calls} iterations: ONNX Runtime keeps "
        f"{MOST_EVENTS} events"
    ]


def align_runs(
    runs: Sequence[RawRun], calls: Sequence[Call], guess_ns: int
) -> tuple[int, int | None]:
    """Return what to add to the engine's times, and how far that can be off.

    Each run lies within the call that made it, which bounds the offset from both sides. `guess_ns`
    is what the time of day tells; it is used as far as it lies within the bounds.
    """
    pairs = [*zip(runs, calls, strict=False)]
    if not pairs:
        return guess_ns, None
    least = max(call.begin_ns - run.start_ns - ROUNDING_NS for run, call in pairs)
    most = min(call.end_ns - run.end_ns for run, call in pairs)
    # The time of day may have been set meanwhile: no one offset then fits all.
    offset = min(max(guess_ns, least), most) if least <= most else (least + most) // 2
    return offset, max(abs(offset - least), abs(most - offset))


def place_runs(runs: Sequence[RawRun], calls: Sequence[Call], offset_ns: int) -> list[TimedRun]:
    """Return the runs with the iterations that they were, each moved into its own call."""
    placed = []
    for run, call in zip(runs, calls, strict=False):
        own = max(offset_ns, call.begin_ns - run.start_ns)
        placed.append(TimedRun(run, call.step, min(own, call.end_ns - run.end_ns)))
    return placed
