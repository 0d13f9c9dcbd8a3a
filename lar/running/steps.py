"""The steps of a run in the parent process, from where its files go to what its result says.

    place the files that it writes
      unpack its testcases
        make a plain run before a profiled one
          lend it a work folder, have its engine settle what is left there
            run it in a worker process, or in this one
      deliver the files

Each step takes a `Run` and gives its result; a step that the run does not need does nothing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from lar.engines import engine_named
from lar.engines.engine import StagedRun
from lar.errors import LarError
from lar.files.work_folders import work_folder
from lar.measurement.listener import Listener
from lar.measurement.machine import read_model_file
from lar.options.table import PROFILES, one_of
from lar.records.events import Unpacked
from lar.records.run import RunContext, RunResult, RunSpec
from lar.records.testcase import Case
from lar.running.isolation import facts_of, run_isolated
from lar.running.output_files import deliver_artifacts, place_artifacts
from lar.running.run import Run
from lar.running.tasks import run_task


def make_run(run: Run) -> RunResult:
    """Make a planned run, in a worker process or in this one, and return its result.

    Raises:
        UsageError: a file that an option has the engine write cannot be written.
    """
    spec = run.spec
    with place_artifacts(run) as placed, unpack_cases(placed) as ready:
        make = profile_run if one_of(PROFILES, spec.settings) else maker_of(ready)
        result = make(ready)
        result = deliver_artifacts(placed, result)
    if run.resume and spec.tell_classes:
        from lar.datasets.resume import add_earlier_classes  # few runs need it

        result = add_earlier_classes(spec, result)
    return result_as_asked(spec, ready, result)


@contextlib.contextmanager
def unpack_cases(run: Run) -> Iterator[Run]:
    """Unpack the model and the testcases of a file that holds both, into a folder that goes away.

    Raises:
        UsageError: the file is damaged.
    """
    spec = run.spec
    if all(case.inputs for case in spec.cases):
        yield run
        return
    read_model_file(Path(spec.model))  # a damaged file is found by its checksum first
    with work_folder() as folder:
        context = replace(run.context, work_folder=folder)
        found = run_task("unpack", Unpacked, spec, context, began=run.began)
        asked = {case.name for case in spec.cases}
        cases = tuple(case for case in found.cases if case.name in asked)
        names = {**run.context.names, found.model: spec.model}
        for file in files_of(cases):
            names[file] = f"{spec.model}: {os.path.relpath(file, os.path.dirname(found.model))}"
        yield replace(
            run,
            spec=replace(spec, cases=cases),
            context=replace(run.context, model_file=found.model, names=names),
        )


def files_of(cases: Iterable[Case]) -> Iterator[str]:
    """Yield the files of testcases, of what they feed and of what they expect."""
    for case in cases:
        yield from (file for _, file in case.inputs)
        yield from (each.file for each in case.expected)


def result_as_asked(spec: RunSpec, ran: Run, result: RunResult) -> RunResult:
    """Return the result of the spec that was asked for, not of the one that was run for it."""
    numbers = [item.number for item in ran.spec.items] or range(len(spec.cases))
    if numbers and spec.iterations:
        count = len(result.samples.end_to_end)
        cases = tuple(numbers[index // spec.iterations] for index in range(count))
        result = replace(result, samples=replace(result.samples, case=cases))
    return replace(result, spec=spec)


def profile_run(run: Run) -> RunResult:
    """Make a run without the profiler and then with it, both within the one time limit."""
    from lar.running.profiled_run import run_profiled  # few runs need it

    make = maker_of(run)

    def plain(spec: RunSpec, context: RunContext, listener: Listener) -> RunResult:
        return make(replace(run, spec=spec, context=context, listener=listener, worker=None))

    return run_profiled(run, plain, make)


def maker_of(run: Run) -> Callable[[Run], RunResult]:
    """Return what makes a run whose files and testcases are there: in stages if its engine needs
    them, and with what its engine does when a worker has ended."""
    engine, settings = engine_named(run.spec.engine), run.spec.settings
    launch = launcher_of(run)
    if engine.staged and one_of(engine.staged.options, settings):
        launch = partial(run_in_stages, engine.staged)
    elif not one_of(engine.settles, settings):
        return launch
    return partial(settle_run, launch)


def settle_run(launch: Callable[[Run], RunResult], run: Run) -> RunResult:
    """Make a run in a work folder, and then do what its engine does when a worker has ended."""
    engine = engine_named(run.spec.engine)
    with work_folder() as folder:
        context = replace(run.context, work_folder=folder)
        result = launch(replace(run, context=context))
        try:
            if one_of(engine.settles, run.spec.settings):
                engine.settle(run.spec, context)
        except LarError as error:
            if result.status == "ok":
                raise
            # Why the run itself did not end well comes first.
            result = replace(result, warnings=(*result.warnings, error.message))
    return result


def launcher_of(run: Run) -> Callable[[Run], RunResult]:
    """Return what makes a run whose files, testcases and work folder are there."""
    if not run.in_process:
        return run_isolated
    from lar.running.in_process import run_here  # for debuggers alone

    return run_here


def run_in_stages(staged: StagedRun, run: Run) -> RunResult:
    """Have the engine make a run in several processes, all of them within the one time limit."""
    run = replace(run, facts=facts_of(run))
    launch = launcher_of(run)

    def step(spec: RunSpec, context: RunContext, listener: Listener) -> RunResult:
        stage = replace(run, spec=spec, context=context, listener=listener, worker=None)
        return run_isolated(stage)

    def last(spec: RunSpec, context: RunContext) -> RunResult:
        return launch(replace(run, spec=spec, context=context))

    return staged.run(run.spec, run.context, run.listener, step, last)
