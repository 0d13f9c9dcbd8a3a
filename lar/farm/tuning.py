"""The search for the fastest settings of another machine: its space, its trials."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from lar.farm.field import MOST_LOSSES, Field, Job, Outcome
from lar.farm.requests import SearchAnswer, SearchRequest
from lar.farm.runs import make_on_farm, raise_failure
from lar.farm.sending import Sending
from lar.records.run import (
    Failure,
    MachineFacts,
    RunContext,
    RunResult,
    RunSpec,
    record_from_json,
    record_to_json,
)
from lar.records.tuning import Trial, TrialRow
from lar.running.compared_dumps import MakeOn
from lar.tuning.player import Entrant, Keep, Show, TrialOrder, keep_nothing


class FarmPlayer:
    """Plays trials on workers that have a label, all of whose machines are alike.

    A trial whose worker is lost is played again on another: its samples are of one machine.
    """

    def __init__(self, farm: Field, label: str = "", machine: MachineFacts | None = None) -> None:
        """`machine` is what the workers' machines are like; that of the first trial if None."""
        self.farm = farm
        self.label = label
        self.group = uuid.uuid4().hex
        if machine is not None:
            farm.keep_to(self.group, machine)

    @property
    def make_on(self) -> MakeOn:
        """What makes a run on such a machine."""

        def make(spec: RunSpec, context: RunContext, label: str) -> RunResult:
            return make_on_farm(self.farm, self.label, spec, context, group=self.group)

        return make

    def play(self, order: TrialOrder, show: Show, keep: Keep = keep_nothing) -> Trial:
        """Play a trial; it comes whole from the worker, and nothing of it before.

        Raises:
            UsageError: a file cannot be read, or no worker has the label.
            LarError: the scheduler, or the worker, cannot be used.
        """
        sending = Sending()
        entrants = tuple(send_entrant(sending, each) for each in order.entrants)
        sent = replace(order, entrants=entrants, names=sending.rewrite_names(order.names))
        job = Job(
            "trial",
            record_to_json(sent),
            sending,
            self.label,
            self.group,
            follow=partial(follow_trial, show),
        )
        for _, outcome in self.farm.play([job]):
            if outcome.losses >= MOST_LOSSES and outcome.failure is not None:
                return lost_trial(order, outcome.failure)
            return record_from_json(record_of(outcome), Trial)
        raise KeyboardInterrupt


def send_entrant(sending: Sending, entrant: Entrant) -> Entrant:
    """Return a candidate with places on the worker."""
    return replace(
        entrant,
        spec=entrant.spec and sending.rewrite_spec(entrant.spec),
        like_baseline=sending.add_inputs(entrant.like_baseline),
    )


def follow_trial(show: Show, entries: Sequence[Any]) -> None:
    """Show what is done."""
    for kind, *values in entries[1:]:
        if kind == "show":
            show(*values)


def record_of(outcome: Outcome) -> str:
    """Return the record that a job gave.

    Raises:
        LarError: it gave none.
    """
    if outcome.failure is not None:
        raise_failure(outcome.failure)
    return outcome.record


def lost_trial(order: TrialOrder, failure: Failure) -> Trial:
    """Return a trial that has lost its workers: whatever does that, it is not the plain run, unless
    that is alone."""
    first, *others = order.entrants
    row = TrialRow(candidate=first.candidate)
    if not others:
        row = replace(row, status="crashed", failure=failure)
    lost = [
        TrialRow(candidate=each.candidate, status="crashed", failure=failure) for each in others
    ]
    return Trial(number=order.number, kind=order.kind, rows=(row, *lost), began=order.began)


def request_on_farm(
    farm: Field,
    label: str,
    models: Sequence[str],
    options: Mapping[str, Any],
    machine: MachineFacts | None = None,
    **asked: Any,
) -> SearchAnswer:
    """Return the request of a search on a worker that has the label: what can be tried there.

    `machine` is what that worker's is like, any if None. `asked` are the other arguments of
    `lar.tuning.requests.make_request`.

    Raises:
        UsageError: a model or an option cannot be used, or no worker has the label.
        LarError: the scheduler, or the worker, cannot be used.
    """
    sending = Sending()
    sent = [sending.add_with_weights(model) for model in models]
    if asked.get("extent", "quick") not in ("quick", "full"):
        asked["extent"] = sending.add(asked["extent"], "--space")
    request = SearchRequest(tuple(sent), sending.rewrite_settings(options), asked)
    group = uuid.uuid4().hex if machine is not None else ""
    if machine is not None:
        farm.keep_to(group, machine)
    job = Job("space", record_to_json(request), sending, label, group)
    for _, outcome in farm.play([job]):
        return record_from_json(record_of(outcome), SearchAnswer)
    raise KeyboardInterrupt
