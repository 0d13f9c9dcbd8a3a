"""The steps of a run in the parent process, from where its files go to what its result says.

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
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from lar.engines import engine_named
from lar.engines.engine import StagedRun
from lar.errors import LarError
from lar.files.work_folders import work_folder
from lar.measurement.listener import Listener
from lar.measurement.machine import read_model_file
from lar.measurement.summary import summarize
from lar.options.table import PROFILES, one_of
from lar.records.dataset import accuracy_of
from lar.records.events import Unpacked
from lar.records.run import RunContext, RunResult, RunSpec
from lar.running.isolation import run_here, run_isolated, with_model
from lar.running.output_files import deliver_artifacts, place_artifacts
from lar.running.tasks import run_task
from lar.running.worker_process import WorkerProcess

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
        result = (make or partial(make_here, launch=launch))(left, placed, listener or Listener())
        result = deliver_artifacts(left, placed.written, result)
    if context.resume and spec.tell_classes:
        from lar.datasets.resume import add_earlier_classes  # few runs need it

        result = add_earlier_classes(spec, result)
    return result_as_asked(spec, left, result)


def make_here(
    spec: RunSpec, context: RunContext, listener: Listener, launch: Make = run_isolated
) -> RunResult:
    """Make a run whose files have their places, on this machine.

    Raises:
        UsageError: its testcases are damaged.
    """
    with unpack_cases(spec, context) as ready:
        return maker_of(spec, launch)(*ready, listener)


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
    accuracy = accuracy_of(result.items)
    if accuracy is not None:
        shares = [right / accuracy.count for right in (accuracy.first, accuracy.five)]
        result = replace(result, top1=shares[0], top5=shares[1])
    return replace(result, summary=summarize(result))


def maker_of(spec: RunSpec, launch: Make) -> Make:
    """Return what makes a run whose files and testcases are there: in stages if its engine needs
    them, with what its engine does when a worker has ended, and twice for a profile."""
    engine, make = engine_named(spec.engine), launch
    if engine.staged and one_of(engine.staged.options, spec.settings):
        make = partial(run_in_stages, engine.staged, launch)
    if make is not launch or one_of(engine.settles, spec.settings):
        make = partial(settle_run, make)
    if one_of(PROFILES, spec.settings):
        from lar.running.profiled_run import run_profiled  # few runs need it

        make = partial(run_profiled, make)
    return make


def settle_run(make: Make, spec: RunSpec, context: RunContext, listener: Listener) -> RunResult:
    """Make a run in a work folder, and then do what its engine does when a worker has ended."""
    engine = engine_named(spec.engine)
    with work_folder() as folder:
        context = replace(context, work_folder=folder)
        result = make(spec, context, listener)
        try:
            if one_of(engine.settles, spec.settings):
                engine.settle(spec, context)
        except LarError as error:
            if result.status == "ok":
                raise
            # Why the run itself did not end well comes first.
            result = replace(result, warnings=(*result.warnings, error.message))
    return result


def run_in_stages(
    staged: StagedRun, launch: Make, spec: RunSpec, context: RunContext, listener: Listener
) -> RunResult:
    """Have the engine make a run in several processes, all of them within the one time limit."""
    context = with_model(spec, context)

    def last(spec: RunSpec, context: RunContext) -> RunResult:
        return launch(spec, context, listener)

    return staged.run(spec, context, listener, run_isolated, last)
