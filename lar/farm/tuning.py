"""The search for the fastest settings of another machine: its space, its trials."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lar.farm.field import MOST_LOSSES, Field, Job, Names, Outcome
from lar.farm.requests import SearchAnswer, SearchRequest
from lar.farm.runs import make_on_farm, raise_failure
from lar.farm.sending import Sending
from lar.records.facts import MachineFacts
from lar.records.run import (
    Failure,
    RunContext,
    RunResult,
    RunSpec,
    record_from_json,
    record_to_json,
)
from lar.records.tuning import BASELINE, Trial, TrialRow
from lar.running.side_runs import MakeOn
from lar.tuning.player import CutShort, Entrant, Keep, Show, TrialOrder, keep_nothing


class FarmPlayer:
    """Plays trials on workers that have a label, all of whose machines are alike.

    The samples of a trial are of one machine. One whose worker is lost is cut short where rows were
    kept of it; else it is played again on another.
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
        """Play a trial; the row of a candidate comes when its process has ended.

        Raises:
            CutShort: the worker is lost, and rows were kept.
            UsageError: a file cannot be read, or no worker has the label.
            LarError: the scheduler, or the worker, cannot be used.
        """
        sending = Sending()
        entrants = tuple(send_entrant(sending, each) for each in order.entrants)
        sent = replace(order, entrants=entrants, names=sending.rewrite_names(order.names))
        request = record_to_json(sent)
        for losses in range(MOST_LOSSES):
            follower = TrialFollower(sending, show, keep)
            # Each time another job: what comes late of a worker that seemed lost is not taken.
            outcome = self.play_job(
                Job(
                    "trial",
                    request,
                    sending,
                    self.label,
                    self.group,
                    follow=follower,
                    losses=losses,
                    is_repeated=False,
                )
            )
            if outcome.losses <= losses:
                return record_from_json(record_of(outcome), Trial)
            if follower.has_kept:
                raise CutShort
        assert outcome.failure is not None
        first, *others = order.entrants
        if len(others) > 1:  # which of them does it? Those left out are measured in a later trial
            half = (first, *others[: len(others) // 2])
            return self.play(replace(order, entrants=half), show, keep)
        return lost_trial(order, outcome.failure)

    def play_job(self, job: Job) -> Outcome:
        """Have a job done, and return what came of it."""
        for _, outcome in self.farm.play([job]):
            return outcome
        raise KeyboardInterrupt


def send_entrant(sending: Sending, entrant: Entrant) -> Entrant:
    """Return a candidate with places on the worker."""
    return replace(
        entrant,
        spec=entrant.spec and sending.rewrite_spec(entrant.spec),
        like_baseline=sending.add_inputs(entrant.like_baseline),
    )


class TrialFollower:
    """Shows how far a trial is, and keeps the rows of candidates whose processes have ended."""

    def __init__(self, sending: Sending, show: Show, keep: Keep) -> None:
        self.sending = sending
        self.show = show
        self.keep = keep
        self.waiting: list[tuple[int, TrialRow, float]] = []
        self.has_kept = False

    def __call__(self, entries: Sequence[Any]) -> None:
        root, *happened = entries
        names = Names(self.sending, root)
        for kind, *values in happened:
            if kind == "show":
                self.show(*values)
            elif kind == "row":
                place, content, seconds = values
                self.take(place, record_from_json(names.in_text(content), TrialRow), seconds)

    def take(self, place: int, row: TrialRow, seconds: float) -> None:
        """Keep a row. That of a plain run that works waits for another: a session has no use for it
        alone, and if the worker is lost, the trial begins again with another machine's. So does a
        search, of which a row says no more than how long it took."""
        if row.status == "interrupted":
            self.keep(place, row, seconds)
            return
        self.waiting.append((place, row, seconds))
        if self.has_kept or row.candidate != BASELINE or row.status != "ok":
            for each in self.waiting:
                self.keep(*each)
            self.waiting, self.has_kept = [], True


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
