"""A profiled run as the parent process makes it: a plain run first, then the profiled one.

The plain run shows what profiling costs. What the worker has recorded is completed with what only
the parent knows: that cost, the machine, its measured peak, the ranges that the user has named.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lar.errors import count_of, error_of_write
from lar.measurement.listener import Listener
from lar.measurement.machine import read_instruction_sets
from lar.measurement.rows import SampleRows
from lar.options.table import BY_KEY, PROFILE_SYSCALLS, PROFILES
from lar.records.run import RunContext, RunResult, RunSpec, Samples
from lar.running.isolation import INTERRUPTED

if TYPE_CHECKING:
    from lar.records.profile import Machine, Profile

# Enough for a median; a long profiled run should not take twice as long for it.
PLAIN_ITERATIONS = 30

Make = Callable[[RunSpec, RunContext, Listener], RunResult]


class PlainRun(Listener):
    """Shows the plain run as progress alone, since the profiled one prints its lines."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.began = time.monotonic()

    def on_log(self, text: bytes) -> None:
        self.listener.on_log(text)

    def on_progress(self, text: str, elapsed: float) -> None:
        self.listener.on_progress(text, elapsed)

    def on_rows(self, rows: SampleRows, first: int, last: int, result: RunResult) -> None:
        whole = count_of(result.spec.sample_count, "iteration")
        text = f"timing without the profiler: {last} of {whole}"
        self.listener.on_progress(text, time.monotonic() - self.began)


def run_profiled(make: Make, spec: RunSpec, context: RunContext, listener: Listener) -> RunResult:
    """Make a plain run and then the profiled one; return the result of that.

    Where the plain run does not end well, the profiled one is not made.

    Raises:
        UsageError: a file cannot be written, or calls of the system cannot be traced here.
    """
    if PROFILE_SYSCALLS.is_given(spec.settings):
        from lar.measurement.syscalls import require_strace

        require_strace()
    written = context.written
    before = make(plain_spec(spec), replace(context, written={}), PlainRun(listener))
    if before.status != "ok":
        return without_profile(before, spec)
    result = replace(make(spec, context, listener), unprofiled=before.samples)
    if result.status != "ok":
        return result
    option = next(each for each in PROFILES if each.key in written)
    place = os.path.abspath(str(spec.settings[option.key]))
    try:
        complete_profile(written[option.key], place, result, context.deadline(spec))
    except KeyboardInterrupt:
        return replace(result, status="interrupted", failure=INTERRUPTED)
    except OSError as error:
        raise error_of_write(error, flag=option.flag, subject=place) from None
    return result


def without_profile(plain: RunResult, spec: RunSpec) -> RunResult:
    """Return the result of a profiled run that was not made, since the plain one ended badly."""
    failure = plain.failure
    if failure is not None and plain.status == "timed_out":
        failure = replace(failure, problem=f"{failure.problem}, before the profiler was used")
    return replace(
        plain,
        spec=spec,
        failure=failure,
        warmup=Samples(),
        samples=Samples(),
        unprofiled=plain.samples,
    )


def plain_spec(spec: RunSpec) -> RunSpec:
    """Return the same run without a profile, and without the files that it writes."""
    settings = {
        key: value
        for key, value in spec.settings.items()
        if BY_KEY[key].purpose != "profile" and not BY_KEY[key].writes
    }
    several = bool(spec.cases or spec.items)
    return replace(
        spec,
        settings=settings,
        iterations=spec.iterations if several else min(spec.iterations, PLAIN_ITERATIONS),
    )


def complete_profile(path: str, place: str, result: RunResult, deadline: float | None) -> None:
    """Add to the profile in a file what only this process knows; it goes to `place` then.

    Raises:
        OSError: it cannot be written.
    """
    import msgspec

    from lar.measurement.kept_peaks import find_peak
    from lar.profiles.costs import cost_of, plain_iterations_of
    from lar.profiles.disturbance import noise_of
    from lar.profiles.ranges import PYTHON_THREAD, ranges_during, spans_of_ranges, watch_open_ranges
    from lar.profiles.trace_file import change_profile
    from lar.running.model_names import name_operators

    def complete(profile: Profile) -> Profile:
        facts, t0_ns = profile.facts, profile.facts.clock.t0_ns
        watch_open_ranges(place, t0_ns)
        ranges = tuple(spans_of_ranges(ranges_during(t0_ns), t0_ns))
        return replace(
            profile,
            facts=msgspec.structs.replace(
                facts,
                arguments=command_line(),
                folder=current_folder(),
                machine=machine_of(result),
                peak_memory_bytes=result.peak_memory_bytes,
                cost=cost_of(result.samples, result.unprofiled),
                peak=None if profile.on_device else find_peak(facts.threads or 1, deadline),
                noise=noise_of(result.samples, result.spec.runners),
                plain=plain_iterations_of(result.unprofiled),
            ),
            operators=tuple(
                name_operators(
                    profile.operators, model=Path(result.spec.model), engine=facts.engine
                )
            ),
            spans=ranges,
            threads={PYTHON_THREAD: "python"} if ranges else {},
        )

    change_profile(path, complete)


def machine_of(result: RunResult) -> Machine:
    """Return the machine of a run, with what its processor can do."""
    if result.machine is None:
        return {}
    known: Machine = {**asdict(result.machine)}  # type: ignore[typeddict-item]
    known["instruction_sets"] = read_instruction_sets()
    return known


def current_folder() -> str:
    """Return the folder that relative paths start from, empty if it is gone."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def command_line() -> tuple[str, ...]:
    """Return what was typed, where lar itself is the program that runs."""
    program = Path(sys.argv[0]) if sys.argv else Path()
    is_own = program.name == "lar" or program.parts[-2:] == ("lar", "__main__.py")
    return tuple(sys.argv) if is_own else ()
