"""Runs, benches and many runs at once, made by a farm's workers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from lar.errors import EXIT_CODES, LarError
from lar.farm.cluster import DaskCluster
from lar.farm.field import Field, Job, Outcome
from lar.farm.requests import BenchRequest
from lar.farm.sending import Sending, hash_file
from lar.measurement.listener import Listener
from lar.measurement.machine import checksum_place, read_model_file
from lar.measurement.rows import NAN, SampleRows, open_rows
from lar.records.bench import BenchResult, read_bench
from lar.records.events import apply_event, event_of
from lar.records.facts import ModelFile
from lar.records.run import (
    Failure,
    RunContext,
    RunResult,
    RunSpec,
    read_result,
    record_to_json,
    request_to_json,
)
from lar.running.bench import BenchProgress
from lar.running.isolation import new_result
from lar.running.output_files import deliver_artifacts, place_artifacts
from lar.running.steps import make_run, result_as_asked
from lar.running.variants import Variant

Ended = Callable[[int, RunResult, float], None]


@contextlib.contextmanager
def open_farm(scheduler: str) -> Iterator[Field]:
    """Connect to a scheduler: `dask://HOST:PORT`.

    Raises:
        EngineMissing: Dask is not installed.
        UsageError: the address is none.
        LarError: no scheduler answers.
    """
    cluster = DaskCluster(scheduler)
    try:
        yield Field(cluster)
    finally:
        cluster.close()


def run_many(
    specs: Sequence[RunSpec],
    scheduler: str | Field,
    *,
    on: str = "",
    ended: Ended | None = None,
) -> list[RunResult]:
    """Make runs on the workers of a scheduler, each device one at a time.

    Args:
        specs: the runs, as `lar.running.plan.plan_run` plans them.
        scheduler: its address, `dask://HOST:PORT`, or a farm that `open_farm` has opened.
        on: the label that a worker must have, empty if any may make the runs.
        ended: is called when a run has ended, with its number, its result, and the seconds from
            when a device took it until the result was here.

    Returns:
        The results, in the order of the specs. What became of a run is its `status`: nothing is
        raised for it, or for a worker that is lost.

    Raises:
        UsageError: a file of a run cannot be read, or cannot be written.
        LarError: no scheduler answers.
    """
    with contextlib.ExitStack() as stack:
        farm = (
            stack.enter_context(open_farm(scheduler)) if isinstance(scheduler, str) else scheduler
        )
        placed = [stack.enter_context(place_artifacts(spec, RunContext())) for spec in specs]
        jobs = [run_job(left, context, on) for left, context in placed]
        results: dict[int, RunResult] = {}
        for number, outcome in farm.play(jobs):
            left, context = placed[number]
            try:
                result = result_of(outcome, left)
                result = deliver_artifacts(left, context.written, result)
            except LarError as error:
                result = failed_result(left, Failure.of(error))
            results[number] = result_as_asked(specs[number], left, result)
            if ended is not None:
                ended(number, results[number], outcome.seconds)
    return [results[number] for number in range(len(specs))]


def make_on_farm(
    farm: Field,
    label: str,
    spec: RunSpec,
    context: RunContext,
    listener: Listener | None = None,
    *,
    group: str = "",
) -> RunResult:
    """Make a planned run on a worker that has the label, as `make_run` makes it here; its machine
    is like those of other jobs of the group.

    Raises:
        UsageError: a file cannot be read or written, or no worker has the label.
        LarError: the scheduler, or the worker, cannot be used.
    """
    return make_run(spec, context, listener, make=partial(play_run, farm, label, group))


def play_run(
    farm: Field, label: str, group: str, spec: RunSpec, context: RunContext, listener: Listener
) -> RunResult:
    """Have a worker make a run whose files have their places."""
    job = replace(run_job(spec, context, label, listener), group=group)
    for _, outcome in farm.play([job]):
        return result_of(outcome, spec)
    raise KeyboardInterrupt


def run_job(
    spec: RunSpec, context: RunContext, label: str, listener: Listener | None = None
) -> Job:
    """Return the job of a run.

    Raises:
        UsageError: a file of it cannot be read.
    """
    sending = Sending()
    sent = sending.rewrite_spec(spec)
    place = checksum_place(Path(spec.model))
    if place.is_file():
        sending.add(str(place))
    context = replace(context, model=facts_of_model(spec.model))
    request = request_to_json(sent, sending.rewrite_context(context, sent.model))
    follow = RunFollower(spec, sending, listener) if listener is not None else None
    return Job("run", request, sending, label, follow=follow)


_models: dict[tuple[str, str], ModelFile] = {}


def facts_of_model(model: str) -> ModelFile:
    """Return the facts about a model file; one that many runs have is read once.

    Raises:
        UsageError: it cannot be read, or is not the one that was hashed.
    """
    key = (model, hash_file(model)[0])
    if key not in _models:
        _models[key] = read_model_file(Path(model))
    return _models[key]


def result_of(outcome: Outcome, spec: RunSpec) -> RunResult:
    """Return the result of a run.

    Raises:
        LarError: there is none, since it cannot be made.
    """
    if outcome.record:
        return replace(read_result(outcome.record), spec=spec)
    assert outcome.failure is not None
    if outcome.losses:
        return failed_result(spec, outcome.failure)
    raise_failure(outcome.failure)
    raise AssertionError


def failed_result(spec: RunSpec, failure: Failure) -> RunResult:
    """Return the result of a run that no worker has made to its end."""
    return replace(new_result(spec), status="crashed", failure=failure)


def raise_failure(failure: Failure) -> None:
    """Raise the error of a job.

    Raises:
        LarError: always; or KeyboardInterrupt.
    """
    if failure.exit_code == EXIT_CODES["interrupted"]:
        raise KeyboardInterrupt
    raise failure.to_error()


class RunFollower:
    """Passes what happens during a run on to a listener, as if it happened here."""

    def __init__(self, spec: RunSpec, sending: Sending, listener: Listener) -> None:
        self.result = new_result(spec)
        self.sending = sending
        self.listener = listener
        self.tables: tuple[SampleRows, ...] = ()

    def __call__(self, entries: Sequence[Any]) -> None:
        from lar.farm.field import Names

        root, *happened = entries
        names = Names(self.sending, root)
        for kind, *values in happened:
            if kind == "event":
                event = event_of(names.in_text(values[0]).encode())
                self.result = apply_event(self.result, event)
                self.listener.on_event(event, self.result)
            elif kind == "rows":
                self.take_rows(*values)
            elif kind == "log":
                self.listener.on_log(values[0].encode())
            else:
                self.listener.on_progress(*values)

    def take_rows(
        self, runner: int, first: int, times: Sequence[Sequence[float]], warmups: int | None
    ) -> None:
        """Add rows to a table like that of the worker; those that did not come have no times."""
        spec = self.result.spec
        if not self.tables:
            self.tables = open_rows(-1, spec.sample_count, spec.runners)
        rows = self.tables[runner]
        for row in ([(NAN, NAN, NAN)] * (first - rows.count)) + list(map(tuple, times)):
            if rows.count < rows.capacity:
                if rows.count == warmups:
                    rows.end_warmup()
                rows.append(*row)
        if rows.count > first:
            self.listener.on_rows(rows, first, rows.count, self.result)


def bench_on_farm(
    farm: Field,
    label: str,
    variants: Sequence[Variant],
    baseline: int = 0,
    *,
    budget_seconds: float = 120.0,
    margin: float = 0.01,
    report: Callable[[BenchProgress], None] | None = None,
) -> BenchResult:
    """Measure variants in turns on one worker that has the label.

    A bench whose worker is lost begins again on another: its samples are of one machine.

    Raises:
        UsageError: a file cannot be read, or no worker has the label.
        LarError: the scheduler, or the worker, cannot be used.
    """
    refusal = variants[baseline].failure
    if refusal is not None:
        raise refusal.within(f"the baseline {variants[baseline].name!r}").to_error()
    sending = Sending()
    request = BenchRequest(
        tuple(send_variant(sending, each) for each in variants), baseline, budget_seconds, margin
    )
    follow = partial(follow_bench, report) if report is not None else None
    job = Job("bench", record_to_json(request), sending, label, follow=follow)
    for _, outcome in farm.play([job]):
        if outcome.failure is not None:
            raise_failure(outcome.failure)
        return read_bench(outcome.record)
    raise KeyboardInterrupt


def send_variant(sending: Sending, variant: Variant) -> Variant:
    """Return a variant with places on the worker."""
    if variant.spec is None:
        return variant
    options = sending.rewrite_settings(variant.options)
    spec = sending.rewrite_spec(variant.spec)
    return replace(variant, model=spec.model, options=options, spec=spec)


def follow_bench(report: Callable[[BenchProgress], None], entries: Iterable[Any]) -> None:
    """Report how far a bench has come."""
    for entry in entries:
        if entry[0] == "bench":
            fields: Mapping[str, Any] = entry[1]
            report(BenchProgress(**fields))
