"""The steps of a run in the parent process, from the places of its files to its result.

    place the files that it writes
      unpack its testcases
        make a plain run before a profiled one
          lend it a work folder, have its engine settle what is left there
            run it in a worker process, or in this one
      deliver the files

Each step takes the spec and the context, may hand changed ones to the next, and gives the result
of that; a step that the run does not need does nothing.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from lar.engines import engine_named
from lar.errors import LarError, count_of, writing
from lar.files.work_folders import work_folder
from lar.measurement.listener import Listener, SideListener
from lar.measurement.machine import read_instruction_sets, read_model_file
from lar.measurement.rows import SampleRows
from lar.measurement.summary import summarize
from lar.options.table import BY_KEY, PROFILE_SYSCALLS, PROFILES, one_of
from lar.records.events import Unpacked
from lar.records.run import RunContext, RunResult, RunSpec, Samples, accuracy_of
from lar.running.isolation import INTERRUPTED, run_here, run_isolated, with_model
from lar.running.output_files import deliver_artifacts, place_artifacts
from lar.running.tasks import run_task
from lar.running.worker_process import WorkerProcess

if TYPE_CHECKING:
    from lar.records.profile import Profile

# Enough for a median; a long profiled run should not take twice as long for it.
PLAIN_ITERATIONS = 30
IN_GZIP = (
    "the profile has more than 8 MB and is in gzip: for a program that reads JSON alone, as "
    "profile_analyze, `gzip -dc FILE` prints it"
)

Make: TypeAlias = Callable[[RunSpec, RunContext, Listener], RunResult]
"""What makes a run."""


def make_run(
    spec: RunSpec,
    context: RunContext,
    listener: Listener | None = None,
    early: WorkerProcess | None = None,
    *,
    make: Make | None = None,
) -> RunResult:
    """Make a planned run, in a worker process or in this one, and return its result.

    `early` is a worker that was started for it beforehand. `make` makes it elsewhere: it is given
    the spec and the context of a run whose files have their places.

    Raises:
        UsageError: a file that an option has the engine write cannot be written.
    """
    launch = run_here if context.in_process else partial(run_isolated, early=early)
    with place_artifacts(spec, context) as (left, placed):
        unpacking = contextlib.nullcontext((left, placed)) if make else unpack_cases(left, placed)
        with unpacking as ready:
            result = (make or maker_of(left, launch))(*ready, listener or Listener())
        result = deliver_artifacts(left, placed.written, result)
    if context.resume and spec.tell_classes:
        from lar.datasets.resume import add_earlier_classes  # few runs need it

        result = add_earlier_classes(spec, result)
    return result_as_asked(spec, left, result)


def make_here(spec: RunSpec, context: RunContext, listener: Listener) -> RunResult:
    """Make a run whose files have their places, on this machine.

    Raises:
        UsageError: its testcases are damaged.
    """
    with unpack_cases(spec, context) as ready:
        return maker_of(spec, run_isolated)(*ready, listener)


def maker_of(spec: RunSpec, launch: Make) -> Make:
    """Return a function that makes a run whose files and testcases are there: in stages if its
    engine needs them, with what that does when a worker has ended, and twice for a profile."""
    engine, make = engine_named(spec.engine), launch
    if engine.staged and one_of(engine.staged.options, spec.settings):
        make = partial(engine.staged.run, run_isolated, launch)
    if make is not launch or one_of(engine.settles, spec.settings):
        make = partial(settle_run, make)
    if one_of(PROFILES, spec.settings):
        make = partial(run_profiled, make)
    return make


@contextlib.contextmanager
def unpack_cases(spec: RunSpec, context: RunContext) -> Iterator[tuple[RunSpec, RunContext]]:
    """Unpack the model and the testcases of a file that holds both, into a folder that goes away.

    Raises:
        UsageError: the file is damaged.
    """
    if all(case.inputs for case in spec.cases):
        yield spec, context
        return
    read_model_file(Path(spec.model))  # a damaged file is found by its checksum first
    with work_folder() as folder:
        found = run_task("unpack", Unpacked, spec, replace(context, work_folder=folder))
        asked = {case.name for case in spec.cases}
        cases = tuple(case for case in found.cases if case.name in asked)
        names = {**context.names, found.model: spec.model}
        fed = (file for case in cases for _, file in case.inputs)
        for file in (*fed, *(each.file for case in cases for each in case.expected)):
            names[file] = f"{spec.model}: {os.path.relpath(file, os.path.dirname(found.model))}"
        yield replace(spec, cases=cases), replace(context, model_file=found.model, names=names)


def result_as_asked(spec: RunSpec, ran: RunSpec, result: RunResult) -> RunResult:
    """Return the result of the spec that was asked for, not of the one that was run for it."""
    numbers = [item.number for item in ran.items] or range(len(spec.cases))
    if numbers and spec.iterations:
        count = len(result.samples.end_to_end)
        cases = tuple(numbers[index // spec.iterations] for index in range(count))
        result = replace(result, samples=replace(result.samples, case=cases))
    result = replace(result, spec=spec)
    count, first, five = accuracy_of(result.items)
    if count:
        result = replace(result, top1=first / count, top5=five / count)
    return replace(result, summary=summarize(result))


def settle_run(make: Make, spec: RunSpec, context: RunContext, listener: Listener) -> RunResult:
    """Make a run in a work folder, and then do what its engine does when a worker has ended."""
    engine = engine_named(spec.engine)
    with work_folder() as folder:
        # It may take several processes, which all need the facts about the model.
        context = replace(with_model(spec, context), work_folder=folder)
        result = make(spec, context, listener)
        try:
            engine.settle(spec, context)
        except LarError as error:
            if result.status == "ok":
                raise
            # The failure of the run itself comes first.
            result = replace(result, warnings=(*result.warnings, error.message))
    return result


class PlainRun(SideListener):
    """Shows the plain run as progress alone, since the profiled one prints its lines."""

    def on_rows(self, rows: SampleRows, first: int, last: int, result: RunResult) -> None:
        whole = count_of(result.spec.sample_count, "iteration")
        text = f"timing without the profiler: {last} of {whole}"
        self.shown.on_progress(text, time.monotonic() - self.began)


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
    from lar.profiles.packed_file import is_packed, is_packed_name  # few runs are profiled

    option = next(each for each in PROFILES if each.key in written)
    place = os.path.abspath(str(spec.settings[option.key]))
    try:
        with writing(place, option.flag):
            complete_profile(written[option.key], place, result, context.deadline(spec))
        in_gzip = is_packed(written[option.key]) and not is_packed_name(place)
    except KeyboardInterrupt:
        return replace(result, status="interrupted", failure=INTERRUPTED)
    return replace(result, warnings=(*result.warnings, IN_GZIP)) if in_gzip else result


def without_profile(plain: RunResult, spec: RunSpec) -> RunResult:
    """Return the result of a profiled run that was not made, since the plain one ended badly."""
    failure = plain.failure
    if failure is not None and plain.status == "timed_out":
        failure = replace(failure, problem=f"{failure.problem}, before the profiler was used")
    found = replace(plain, spec=spec, failure=failure, unprofiled=plain.samples)
    return replace(found, warmup=Samples(), samples=Samples())


def plain_spec(spec: RunSpec) -> RunSpec:
    """Return the same run without a profile, and without the files that it writes."""
    options = [BY_KEY[key] for key in spec.settings]
    kept = [option.key for option in options if option.purpose != "profile" and not option.writes]
    settings = {key: spec.settings[key] for key in kept}
    several = bool(spec.cases or spec.items)
    iterations = spec.iterations if several else min(spec.iterations, PLAIN_ITERATIONS)
    return replace(spec, settings=settings, iterations=iterations)


def complete_profile(path: str, place: str, result: RunResult, deadline: float | None) -> None:
    """Add to the profile in a file what only this process knows, and move it to `place`.

    Raises:
        OSError: it cannot be written.
    """
    import msgspec

    from lar.engines.model_names import name_operators
    from lar.measurement.kept_peaks import find_peak
    from lar.profiles.costs import cost_of, plain_iterations_of
    from lar.profiles.disturbance import noise_of
    from lar.profiles.ranges import PYTHON_THREAD, ranges_during, spans_of_ranges, watch_open_ranges
    from lar.profiles.trace_file import change_profile

    model = Path(result.spec.model)

    def complete(profile: Profile) -> Profile:
        facts, t0_ns = profile.facts, profile.facts.clock.t0_ns
        known = {**asdict(result.machine)} if result.machine else {}
        machine = {**known, "instruction_sets": read_instruction_sets()}
        watch_open_ranges(place, t0_ns)
        ranges = tuple(spans_of_ranges(ranges_during(t0_ns), t0_ns))
        return replace(
            profile,
            facts=msgspec.structs.replace(
                facts,
                arguments=command_line(),
                folder=os.getcwd(),
                machine=machine,
                peak_memory_bytes=result.peak_memory_bytes,
                cost=cost_of(result.samples, result.unprofiled),
                peak=None if profile.on_device else find_peak(facts.threads or 1, deadline),
                noise=noise_of(result.samples, result.spec.runners),
                plain=plain_iterations_of(result.unprofiled),
            ),
            operators=name_operators(profile.operators, model=model, engine=facts.engine),
            spans=ranges,
            threads={PYTHON_THREAD: "python"} if ranges else {},
        )

    change_profile(path, complete)


def command_line() -> tuple[str, ...]:
    """Return what was typed, where lar itself is the program that runs."""
    program = Path(sys.argv[0]) if sys.argv else Path()
    is_own = program.name == "lar" or program.parts[-2:] == ("lar", "__main__.py")
    return tuple(sys.argv) if is_own else ()
