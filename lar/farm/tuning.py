"""The search for the fastest settings of another machine: its space, its rounds."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lar.farm.field import MOST_LOSSES, Field, Job, Names, Outcome
from lar.farm.requests import SearchAnswer, SearchRequest
from lar.farm.runs import failed_result, make_on_farm, raise_failure
from lar.farm.sending import Sending
from lar.measurement.listener import Listener
from lar.records.facts import MachineFacts
from lar.records.run import (
    RunContext,
    RunResult,
    RunSpec,
    read_result,
    record_from_json,
    record_to_json,
)
from lar.records.tuning import TuneRequest
from lar.tuning.player import Entrant, Keep, RoundOrder, Show


class FarmPlayer:
    """Plays rounds on workers that have a label, all of whose machines are alike.

    The processes of a round are on one machine. Where its worker is lost, those that had ended are
    kept; if there are none, it is played again on another.
    """

    def __init__(self, farm: Field, label: str, machine: MachineFacts) -> None:
        """`machine` is what the workers' machines are like."""
        self.farm = farm
        self.label = label
        self.group = uuid.uuid4().hex
        farm.keep_to(self.group, machine)

    def search(self, spec: RunSpec, listener: Listener) -> RunResult:
        """Have an engine fill the cache that a spec names."""
        return make_on_farm(self.farm, self.label, spec, RunContext(), listener, group=self.group)

    def play(self, order: RoundOrder, show: Show, keep: Keep) -> None:
        """Play a round, and keep the result of each process when it has ended.

        Raises:
            UsageError: a file cannot be read, or no worker has the label.
            LarError: the scheduler, or the worker, cannot be used.
        """
        sending = Sending()
        sent = replace(
            order,
            entrants=tuple(send_entrant(sending, each) for each in order.entrants),
            names=sending.rewrite_names(order.names),
        )
        outcome = Outcome()
        for losses in range(MOST_LOSSES):
            follower = RoundFollower(sending, show, keep)
            # Each time another job: what comes late of a worker that seemed lost is not taken.
            job = Job("round", record_to_json(sent), sending, self.label, self.group)
            job = replace(job, follow=follower, losses=losses, is_repeated=False)
            outcome = play_job(self.farm, job)
            if outcome.losses > losses:
                if follower.has_kept:
                    return
                continue
            if outcome.failure is not None:
                raise_failure(outcome.failure)
            follower.finish()
            return
        assert outcome.failure is not None
        first, *others = order.entrants
        if len(others) > 1:  # which of them does it? Those left out are measured in a later round
            half = (first, *others[: len(others) // 2])
            self.play(replace(order, entrants=half), show, keep)
            return
        # Whatever does that, it is not the plain run, unless that is alone.
        keep(len(others), failed_result(order.entrants[-1].spec, outcome.failure))


def play_job(farm: Field, job: Job) -> Outcome:
    """Have a job done, and return what came of it."""
    for _, outcome in farm.play([job]):
        return outcome
    raise KeyboardInterrupt


def send_entrant(sending: Sending, entrant: Entrant) -> Entrant:
    """Return a candidate with places on the worker."""
    return replace(
        entrant,
        spec=sending.rewrite_spec(entrant.spec),
        like_baseline=sending.add_inputs(entrant.like_baseline),
    )


class RoundFollower:
    """Shows how far a round is, and keeps the results of processes that have ended."""

    def __init__(self, sending: Sending, show: Show, keep: Keep) -> None:
        self.sending = sending
        self.show = show
        self.keep = keep
        self.waiting: list[tuple[int, RunResult]] = []
        self.has_kept = False

    def __call__(self, entries: Sequence[Any]) -> None:
        root, *happened = entries
        names = Names(self.sending, root)
        for kind, *values in happened:
            if kind == "show":
                self.show(*values)
            else:
                place, content = values
                self.take(place, read_result(names.in_text(content)))

    def take(self, place: int, result: RunResult) -> None:
        """Keep a result. That of a plain run that works waits for another: alone it is of no use,
        and if the worker is lost, the round begins again on another machine."""
        self.waiting.append((place, result))
        if self.has_kept or place or result.status != "ok":
            for each in self.waiting:
                self.keep(*each)
            self.waiting, self.has_kept = [], True

    def finish(self) -> None:
        """Keep what waits: the round has ended."""
        for each in self.waiting:
            self.keep(*each)
        self.waiting = []


def request_on_farm(
    farm: Field,
    label: str,
    models: Sequence[str],
    options: Mapping[str, Any],
    asked: TuneRequest,
    engines: Sequence[str] = (),
) -> SearchAnswer:
    """Return the request of a search on a worker that has the label: what can be tried there.

    Raises:
        UsageError: a model or an option cannot be used, or no worker has the label.
        LarError: the scheduler, or the worker, cannot be used.
    """
    sending = Sending()
    sent = [sending.add_with_weights(model) for model in models]
    if asked.extent not in ("quick", "full"):
        asked = replace(asked, extent=sending.add(asked.extent, "--space"))
    given = sending.rewrite_settings(options)
    request = SearchRequest(tuple(sent), given, asked, tuple(engines))
    outcome = play_job(farm, Job("space", record_to_json(request), sending, label))
    if outcome.failure is not None:
        raise_failure(outcome.failure)
    return record_from_json(outcome.record, SearchAnswer)
