"""The public functions: a run, a look into a model, the devices; each in a worker process."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lar.engines import engine_named
from lar.errors import LarError, error_with_code
from lar.measurement.listener import Listener
from lar.measurement.machine import read_machine, read_model_file
from lar.records.events import DevicesFound, Event, ModelRead, Unpacked
from lar.records.run import Failure, ModelInfo, RunResult, RunSpec
from lar.running.isolation import run_isolated
from lar.running.output_files import deliver_artifacts, place_artifacts
from lar.running.plan import Plan, as_one_run, parse_values, plan_run, spec_of
from lar.running.worker_process import WorkerProcess

if TYPE_CHECKING:
    from lar.running.array_inputs import Inputs


def run(model: str | Path, inputs: Inputs | None = None, **options: Any) -> RunResult:
    """Run a model in a worker process and return the result, whatever became of it.

    Args:
        model: a model file, or a file or folder of testcases, all of which are run.
        inputs: what `--input` takes, an array for the only input, or a mapping from input names
            to arrays or files.
        options: the flags of `lar run` by key, as `iter=100`, `warmup_iter=3`, `cuda=0`.

    Returns:
        The result. What the engine did is `result.status`; nothing is raised for it.

    Raises:
        UsageError: the model or an option cannot be used.
        EngineMissing: the engine is not installed.
    """
    from lar.running.array_inputs import GivenInputs  # the command line gives texts alone

    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="lar-") as folder:
        values = parse_values(options)
        given = None if inputs is None else GivenInputs(inputs, Path(folder))
        if given is not None:
            values["input"] = given.items + (values.get("input") or [])
        plan = settle_stack(plan_run(str(model), values), began)
        result = run_spec(
            replace(spec_of(plan), ranges=open_ranges()),
            overwrite=bool(plan.values["overwrite"]),
            resume=plan.values["resume"],
            began=began,
        )
    if given is not None:
        result = given.named_in(result)
    if result.status == "interrupted":
        raise KeyboardInterrupt
    return result


def open_ranges() -> tuple[str, ...]:
    """Return the names of the ranges that this process is in; only who names some imports them."""
    ranges = sys.modules.get("lar.profiles.ranges")
    return ranges.open_ranges() if ranges else ()


def settle_stack(plan: Plan, began: float | None = None) -> Plan:
    """Return the plan as it is, or of one run where the model takes a whole `.npz` as it is.

    The time limit counts from `began` on the monotonic clock, or from now.

    Raises:
        UsageError: the model cannot be read, or an option needs a data set.
    """
    if not plan.is_stack:
        return plan
    from lar.datasets.items import is_one_run  # few runs need it

    inputs = info_of(spec_of(plan), began).inputs
    taken = {each.name: each.shape for each in inputs}
    return as_one_run(plan) if is_one_run(plan.values["input"], taken) else plan


def run_spec(
    spec: RunSpec,
    listener: Listener | None = None,
    *,
    started: WorkerProcess | None = None,
    in_process: bool = False,
    overwrite: bool = False,
    resume: bool = False,
    began: float | None = None,
) -> RunResult:
    """Run a planned spec in a worker process, or in this one; dumps may `overwrite` others.

    The time limit counts from `began` on the monotonic clock, or from now.

    Raises:
        UsageError: a file that an option has the engine write cannot be written.
    """
    began = time.monotonic() if began is None else began
    with (
        place_artifacts(spec, overwrite=overwrite, resume=resume) as placed,
        unpack_cases(placed, began) as ready,
    ):
        execute = profile_spec if {"profile", "profile_host"} & set(spec.settings) else settle_spec
        result = execute(ready, listener, started=started, in_process=in_process, began=began)
        result = deliver_artifacts(placed, result)
    if resume and spec.tell_classes:
        from lar.datasets.resume import add_earlier_classes  # few runs need it

        result = add_earlier_classes(spec, result)
    return told_of(spec, result, ready)


@contextlib.contextmanager
def unpack_cases(spec: RunSpec, began: float) -> Iterator[RunSpec]:
    """Give a spec whose model is not in a file of testcases; it goes away in the end.

    Raises:
        UsageError: the file is damaged.
    """
    if all(case.inputs for case in spec.cases):
        yield spec
        return
    read_model_file(Path(spec.model))  # a damaged file is found by its checksum first
    with tempfile.TemporaryDirectory(prefix="lar-") as folder:
        listener = Collector(Unpacked)
        run_task(replace(spec, work_folder=folder), "unpack", listener, began)
        found: Unpacked = listener.found
        asked = {case.name for case in spec.cases}
        cases = tuple(case for case in found.cases if case.name in asked)
        yield replace(spec, model=found.model, cases=cases, packed_in=spec.model)


def told_of(spec: RunSpec, result: RunResult, ran: RunSpec) -> RunResult:
    """Return the result of a spec, not of the one made from it, which was run."""
    loaded = ran.model
    numbers = [item.number for item in ran.items] or range(len(spec.cases))
    if numbers and spec.iterations:
        count = len(result.samples.end_to_end)
        cases = tuple(numbers[index // spec.iterations] for index in range(count))
        result = replace(result, samples=replace(result.samples, case=cases))
    if loaded != spec.model:

        def named(text: str) -> str:
            folder = os.path.dirname(loaded) + os.sep
            return text.replace(loaded, spec.model).replace(folder, f"{spec.model}: ")

        failure = result.failure
        if failure is not None:
            failure = replace(failure, message=named(failure.message), hint=named(failure.hint))
        result = replace(result, failure=failure, warnings=tuple(map(named, result.warnings)))
    return replace(result, spec=spec)


def profile_spec(
    spec: RunSpec,
    listener: Listener | None,
    *,
    started: WorkerProcess | None,
    in_process: bool,
    began: float,
) -> RunResult:
    """Run a spec without the profiler and then with it, both within the one time limit."""
    from lar.running.profiled_run import run_profiled  # few runs need it

    def run(stage: RunSpec, listener: Listener, *, started: WorkerProcess | None) -> RunResult:
        return settle_spec(stage, listener, started=started, in_process=in_process, began=began)

    return run_profiled(
        spec,
        listener or Listener(),
        functools.partial(run, started=None),
        functools.partial(run, started=started),
        None if spec.timeout_seconds is None else began + spec.timeout_seconds,
    )


def settle_spec(
    spec: RunSpec,
    listener: Listener | None,
    *,
    started: WorkerProcess | None,
    in_process: bool,
    began: float,
) -> RunResult:
    """Run a spec, and then do what its engine needs done when a worker has ended.

    The time limit counts from `began` on the monotonic clock.
    """
    engine, keys = engine_named(spec.engine), set(spec.settings)
    settles = keys & set(engine.settles)
    staged = engine.staged is not None and keys & set(engine.staged.keys)
    if not settles and not staged:
        return execute_spec(spec, listener, started=started, in_process=in_process, began=began)
    with tempfile.TemporaryDirectory(prefix="lar-") as folder:
        placed = replace(spec, work_folder=folder)
        execute = run_in_stages if staged else execute_spec
        result = execute(placed, listener, started=started, in_process=in_process, began=began)
        try:
            if settles:
                engine.settle(placed)
        except LarError as error:
            if result.status == "ok":
                raise
            # Why the run itself did not end well comes first.
            result = replace(result, warnings=(*result.warnings, error.message))
    return result


def run_in_stages(
    spec: RunSpec,
    listener: Listener | None,
    *,
    started: WorkerProcess | None,
    in_process: bool,
    began: float,
) -> RunResult:
    """Have the engine make a run in several processes, all of them within the one time limit."""
    listener = listener or Listener()
    facts = functools.cache(lambda: read_facts(spec))

    def step(stage: RunSpec, listener: Listener) -> RunResult:
        return run_isolated(
            stage,
            listener,
            before_start=facts,
            began=began,
            ask_progress=ask_progress,
            explain_log=explain_log,
        )

    def run(stage: RunSpec) -> RunResult:
        if in_process:
            return execute_spec(stage, listener, started=None, in_process=True, began=began)
        return run_isolated(
            stage,
            listener,
            before_start=facts,
            started=started,
            began=began,
            ask_progress=ask_progress,
            explain_log=explain_log,
        )

    staged = engine_named(spec.engine).staged
    assert staged is not None
    return staged.run(spec, listener, step, run)


def execute_spec(
    spec: RunSpec,
    listener: Listener | None,
    *,
    started: WorkerProcess | None,
    in_process: bool,
    began: float,
) -> RunResult:
    """Run a spec whose work folder, if it needs one, is there."""
    if in_process:
        from lar.running.in_process import run_here

        return run_here(spec, listener or Listener(), read_facts(spec))
    return run_isolated(
        spec,
        listener,
        before_start=lambda: read_facts(spec),
        started=started,
        began=began,
        ask_progress=ask_progress,
        explain_log=explain_log,
    )


def ask_progress(spec: RunSpec) -> str:
    """Return how far a run's preparation is, empty where its engine tells nothing."""
    return engine_named(spec.engine).describe_progress(spec)


def explain_log(spec: RunSpec, log: bytes) -> LarError | None:
    """Return the error of an engine that has printed this and is lost, None where it is not."""
    return engine_named(spec.engine).explain_log(log)


def read_facts(spec: RunSpec) -> dict[str, Any]:
    """Return the fields of a result that are known before the run."""
    return {"machine": read_machine(), "model": read_model_file(Path(spec.packed_in or spec.model))}


def read_info(model: str | Path, engine: str | None = None) -> ModelInfo:
    """Read what a model file holds, in a worker process, without running it.

    Raises:
        UsageError: the file is no model, or is damaged.
        EngineMissing: the library that reads its format is not installed.
    """
    return info_of(spec_of(plan_run(str(model), {"engine": engine, "iter": 0})))


def info_of(spec: RunSpec, began: float | None = None) -> ModelInfo:
    """Read what the model file of a spec holds, within its time limit.

    Raises:
        LarError: as `read_info` does, or there was not time enough.
    """
    listener = Collector(ModelRead)
    read_model_file(Path(spec.model))
    run_task(spec, "info", listener, began)
    info: ModelInfo = listener.found.info
    if spec.cases:
        info = replace(info, metadata={**info.metadata, "testcases": str(len(spec.cases))})
    return info


def find_devices(engine: str) -> tuple[str, ...]:
    """Find the devices that an engine can run on here, the CPU first.

    Raises:
        LarError: the engine cannot be loaded.
    """
    spec = RunSpec(
        model="", engine=engine_named(engine).name, driver="", warmup_iterations=0, iterations=0
    )
    listener = Collector(DevicesFound)
    run_task(spec, "devices", listener)
    devices: tuple[str, ...] = listener.found.devices
    return devices


def run_task(spec: RunSpec, task: str, listener: Collector, began: float | None = None) -> None:
    """Have a worker do a task and send one event of the listener's kind.

    Raises:
        LarError: it failed, crashed or hung.
    """
    result = run_isolated(spec, listener, task=task, began=began, explain_log=explain_log)
    if listener.found is None:
        if result.status == "interrupted":
            raise KeyboardInterrupt
        raise error_of(result)


def error_of(result: RunResult) -> LarError:
    """Return why a run did not end well, as the error that it would be here."""
    failure = result.failure or Failure("the worker gave no result")
    return error_with_code(failure.exit_code, failure.message, failure.hint, failure.detail)


class Collector(Listener):
    """Keeps the last event of one kind."""

    def __init__(self, kind: type[Any]) -> None:
        self.kind = kind
        self.found: Any = None

    def on_event(self, event: Event, result: RunResult) -> None:
        if isinstance(event, self.kind):
            self.found = event
