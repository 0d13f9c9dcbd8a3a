"""Runs, benches and rounds of searches, made by the workers of a farm."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from lar.engines.listener import Listener
from lar.errors import LarError
from lar.farm import worker
from lar.farm.farm import Farm, Follow, Killed, Lost, On
from lar.farm.sending import Sending
from lar.measurement.rows import NAN, open_rows
from lar.records.bench import BenchResult
from lar.records.events import Event, apply_event
from lar.records.run import Failure, MachineFacts, RunContext, RunResult, RunSpec
from lar.records.tuning import TuneRequest
from lar.running.bench import Report
from lar.running.isolation import new_result
from lar.running.steps import make_run
from lar.running.variants import Variant
from lar.tuning.player import Entrant, Keep, RoundOrder, Show

# The most runs of `run_many` that wait for a device at the same time.
MOST_WAITING = 32


def open_farm(scheduler: str) -> contextlib.closing[Farm]:
    """Connect to a scheduler: `dask://HOST:PORT`.

    Raises:
        EngineMissing: Dask is not installed.
        LarError: no scheduler answers.
    """
    return contextlib.closing(Farm(scheduler))


def run_many(specs: Sequence[RunSpec], scheduler: str | Farm, *, on: str = "") -> list[RunResult]:
    """Make runs on the workers of a scheduler, one at a time on each device.

    Args:
        specs: the runs, as `lar.running.plan.plan_run` plans them.
        scheduler: the address of the scheduler, `dask://HOST:PORT`, or a farm that `open_farm` has
            opened.
        on: the label that a worker must have; empty for any worker.

    Returns:
        The results, in the order of the specs. The `status` of a result says how the run ended,
        since neither a failed run nor a lost worker raises an error. An interrupt ends the runs. If
        `scheduler` is an open farm, the farm stays open.

    Raises:
        LarError: no scheduler answers.
    """
    if isinstance(scheduler, str):
        with open_farm(scheduler) as farm:
            return run_many(specs, farm, on=on)

    def make(spec: RunSpec) -> RunResult:
        try:
            return make_on_farm(scheduler, on, spec, RunContext())
        except LarError as error:
            return failed_result(spec, error)

    with ThreadPoolExecutor(MOST_WAITING) as threads:
        try:
            return [*threads.map(make, specs)]
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            scheduler.interrupt()
            raise


def make_on_farm(
    farm: Farm, on: On, spec: RunSpec, context: RunContext, listener: Listener | None = None
) -> RunResult:
    """Make a planned run on a worker, as `make_run` does on this machine.

    Raises:
        UsageError: a file cannot be read or written, or no worker has the label.
        LarError: the scheduler or the worker cannot be used.
    """

    def make(spec: RunSpec, context: RunContext, listener: Listener) -> RunResult:
        sending = Sending()
        sent, context = sending.rewrite_spec(spec), sending.rewrite_context(context)
        follow = RunFollower(spec, listener).takers
        try:
            made = farm.play(sending, worker.play_run, sent, context, on=on, follow=follow)
            if not isinstance(made, RunResult):
                raise LarError("a worker sent no result", "start workers with this version of lar")
            return replace(made, spec=spec)
        except Lost as error:
            return failed_result(spec, error)

    return make_run(spec, context, listener, make=make)


def failed_result(spec: RunSpec, error: LarError) -> RunResult:
    """Return the result of a run that no worker has finished."""
    return replace(new_result(spec), status="crashed", failure=Failure.of(error))


class RunFollower:
    """Passes a worker's messages about a run to a listener, as if this process made the run."""

    def __init__(self, spec: RunSpec, listener: Listener) -> None:
        self.spec = spec
        self.listener = listener
        self.takers: Follow = {"log": listener.on_log, "progress": listener.on_progress}
        self.takers |= {"began": self.begin, "event": self.take_event, "rows": self.take_rows}

    def begin(self) -> None:
        """Start with an empty result, each time that a worker starts the run."""
        self.result = new_result(self.spec)
        self.tables = open_rows(-1, self.spec.sample_count, self.spec.runners)

    def take_event(self, event: Event) -> None:
        """Pass on an event."""
        self.result = apply_event(self.result, event)
        self.listener.on_event(event, self.result)

    def take_rows(
        self, runner: int, first: int, times: Sequence[tuple[float, ...]], warmups: int | None
    ) -> None:
        """Append times from a worker to this process's copy of the worker's table of samples.

        Iterations whose times were not sent get rows without times.
        """
        rows = self.tables[runner]
        for row in [*([(NAN, NAN, NAN)] * (first - rows.count)), *times]:
            if rows.count < rows.capacity:
                if rows.count == warmups:
                    rows.end_warmup()
                rows.append(*row)
        if rows.count > first:
            self.listener.on_rows(rows, first, rows.count, self.result)


def bench_on_farm(
    farm: Farm, on: str, variants: Sequence[Variant], baseline: int, report: Report, **options: Any
) -> BenchResult:
    """Measure variants in turns on one worker with the label, like `run_bench` on this machine.

    If the worker is lost, the bench begins again on another worker, since all its samples must be
    of one machine.

    Raises:
        UsageError: a file cannot be read, or no worker has the label.
        LarError: the baseline is refused, or the scheduler or the worker cannot be used.
    """
    sending, follow = Sending(), {"bench": report}
    sent = tuple(send_variant(sending, each) for each in variants)
    return farm.play(sending, worker.play_bench, sent, baseline, options, on=on, follow=follow)


def send_variant(sending: Sending, variant: Variant) -> Variant:
    """Return the variant with the paths that its files have on the worker."""
    if variant.spec is None:
        return variant
    options = sending.rewrite_settings(variant.options)
    spec = sending.rewrite_spec(variant.spec)
    return replace(variant, model=spec.model, options=options, spec=spec)


# Searches for the fastest settings on another machine: the rounds and the space of a search


@dataclass
class FarmPlayer:
    """Plays the rounds of a search on workers that have a label and equal machines.

    The processes of a round run on one machine. If the worker of a round is lost, the results of
    finished processes are kept. If no process has finished, another worker plays the round again.
    """

    farm: Farm
    label: str
    machine: MachineFacts

    def workers(self) -> tuple[str, ...]:
        """Return the workers that have the label and run on a machine like `machine`."""
        return self.farm.alike(self.label, self.machine)

    def search(self, spec: RunSpec, listener: Listener) -> RunResult:
        """Make a run that fills the cache file that the spec names."""
        return make_on_farm(self.farm, self.workers(), spec, RunContext(), listener)

    def play(self, order: RoundOrder, show: Show, keep: Keep) -> None:
        """Play a round, and keep the result of each process as soon as the process has ended.

        Raises:
            UsageError: a file cannot be read, or no worker has the label.
            LarError: the scheduler or the worker cannot be used.
        """
        sending, follower = Sending(), RoundFollower(show, keep)
        sent = replace(
            order,
            entrants=tuple(send_entrant(sending, each) for each in order.entrants),
            names=sending.rewrite_names(order.names),
        )
        try:
            takers = follower.takers
            self.farm.play(sending, worker.play_round, sent, on=self.workers(), follow=takers)
            follower.finish()
        except CutShort:
            return
        except Killed as error:
            first, *others = order.entrants
            if len(others) > 1:
                # One of the candidates kills the workers. Half of them are played now, the other
                # half in a later round.
                half = (first, *others[: len(others) // 2])
                self.play(replace(order, entrants=half), show, keep)
            else:
                # The plain run is blamed only if it is alone.
                keep(len(others), failed_result(order.entrants[-1].spec, error))
        except Lost:
            if not follower.has_kept:
                raise


class CutShort(Exception):
    """Ends a round: its worker was lost, and some results of the round were already stored."""


@dataclass
class RoundFollower:
    """Shows the progress of a round, and keeps the results of processes that have ended."""

    show: Show
    keep: Keep
    waiting: list[tuple[int, RunResult]] = field(default_factory=list)
    has_kept: bool = False

    @property
    def takers(self) -> Follow:
        """The functions that handle a worker's messages about a round, by the kind of message."""
        return {"began": self.begin, "show": self.show, "ended": self.take}

    def begin(self) -> None:
        """Drop the results in `waiting`, since a worker starts the round again.

        Raises:
            CutShort: the worker was lost after some results of the round were already stored.
        """
        self.waiting = []
        if self.has_kept:
            raise CutShort

    def take(self, place: int, result: RunResult) -> None:
        """Keep a result; hold back a successful plain run's result until another result comes.

        A round is useless if it has only the result of the plain run. If the worker is lost before
        another result comes, another worker plays the whole round again.
        """
        self.waiting.append((place, result))
        if self.has_kept or place or result.status != "ok":
            self.has_kept = True
            self.finish()

    def finish(self) -> None:
        """Pass the results in the list `waiting` to the method `keep`, and empty the list."""
        for each in self.waiting:
            self.keep(*each)
        self.waiting = []


def send_entrant(sending: Sending, entrant: Entrant) -> Entrant:
    """Return the candidate with the paths that its files have on the worker."""
    spec = sending.rewrite_spec(entrant.spec)
    return replace(entrant, spec=spec, like_baseline=sending.add_inputs(entrant.like_baseline))


def request_on_farm(
    farm: Farm,
    label: str,
    models: Sequence[str],
    options: Mapping[str, Any],
    asked: TuneRequest,
    engines: Sequence[str] = (),
) -> tuple[TuneRequest, MachineFacts, dict[str, str]]:
    """Return the request of a search, with the choices that a worker with the label can try.

    The second and third returned values are the facts about the worker's machine, and the versions
    of the engines on that machine.

    Raises:
        UsageError: a model or an option cannot be used, or no worker has the label.
        LarError: the scheduler or the worker cannot be used.
    """
    sending = Sending()
    sent = [sending.add_with_weights(model) for model in models]
    if asked.extent not in ("quick", "full"):
        asked = replace(asked, extent=sending.add(asked.extent, "--space"))
    given = sending.rewrite_settings(options)
    return farm.play(sending, worker.make_space, sent, given, asked, engines, on=label)
