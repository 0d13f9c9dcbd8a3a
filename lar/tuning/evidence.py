"""What the trials say of the candidates: which can be built upon, and how fast each is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Generic, Literal, TypeVar

from lar.measurement.differences import FIRST_LOOK, compare_turns, is_look, trimmed_mean
from lar.measurement.objectives import log_ratios_for
from lar.measurement.turns import Ratios
from lar.records.choices import Objective
from lar.records.run import Status
from lar.records.summary import Difference
from lar.records.tuning import BASELINE, Candidate, Trial, TrialKind, TrialRow, TuneRequest
from lar.tuning.candidates import CacheKey, combinations_of
from lar.tuning.surrogate import Look, Surrogate

T = TypeVar("T")

Fate = Status | Literal["refused", "wrong", "too slow"]
Confirmation = Literal["better", "not better", "open"]

# A candidate that takes so many times as long as the plain run of its model is not built upon.
FAR = math.log(2)

TIMED: tuple[TrialKind, ...] = ("screen", "race", "confirm")


class Same(Generic[T]):
    """A record by its identity, as a key of a cache: to hash its samples would take long."""

    def __init__(self, record: T) -> None:
        self.record = record

    def __hash__(self) -> int:
        return id(self.record)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.record is other.record


@dataclass
class Evidence:
    """The trials of a search, by candidate.

    Attributes:
        fates: what became of each candidate that was tried; "ok" only if it was so in all trials.
        looks: the processes that were measured beside the plain run, in their order.
        searches: the trials that filled a cache, or did not, by cache.
        begun_seconds: how long searches took that were interrupted, by cache; they go on.
        tries: the trials in which a candidate was measured, or should have been.
        doubtful: the candidates that are too slow by one process that something may have disturbed.
    """

    request: TuneRequest
    trials: Sequence[Trial]
    fates: dict[Candidate, Fate] = field(default_factory=dict)
    looks: list[Look] = field(default_factory=list)
    searches: dict[CacheKey, Trial] = field(default_factory=dict)
    begun_seconds: dict[CacheKey, float] = field(default_factory=dict)
    tries: dict[Candidate, int] = field(default_factory=dict)
    doubtful: list[Candidate] = field(default_factory=list)

    @cached_property
    def values(self) -> dict[Candidate, list[float]]:
        """The logarithms of the ratios to the plain run, a process each, by candidate."""
        found: dict[Candidate, list[float]] = {}
        for look in self.looks:
            found.setdefault(look.candidate, []).append(look.value)
        return found

    @cached_property
    def surrogate(self) -> Surrogate:
        """What the looks say of every candidate."""
        return Surrogate(self.looks)

    @cached_property
    def means(self) -> dict[Candidate, float]:
        """What the surrogate says of those that were measured, as logarithms of ratios to the
        baseline; a round whose plain run something disturbed does not make all others fast."""
        measured = [*self.values]
        means = self.surrogate.means_of(measured)
        return {BASELINE: 0.0, **dict(zip(measured, map(float, means), strict=True))}

    @cached_property
    def known(self) -> set[tuple[int, str]]:
        """The models and names of choices that some candidate has and works."""
        able = (each for each in self.means if self.fates.get(each, "ok") == "ok")
        return {(each.model, name) for each in able for name in each.choices}

    def unknown(self, candidate: Candidate) -> list[str]:
        """Return the choices of a candidate that were not seen to work."""
        return [it for it in candidate.choices if (candidate.model, it) not in self.known]

    @cached_property
    def failed(self) -> list[tuple[int, frozenset[str]]]:
        """What is not built upon, as models and choices: the candidates that failed; where one of
        their choices was not seen to work, that choice."""
        return [
            (each.model, frozenset(unknown if len(unknown) == 1 else each.choices))
            for each, fate in self.fates.items()
            if fate != "ok"
            for unknown in [self.unknown(each)]
        ]

    def is_excluded(self, candidate: Candidate) -> bool:
        """Return whether it is one that failed, or is built upon one that did."""
        choices = set(candidate.choices)
        return any(model == candidate.model and choices >= each for model, each in self.failed)

    def has_cache(self, key: CacheKey) -> bool:
        """Return whether a cache is filled, at least with what a search had found when its time
        ended."""
        if key not in self.searches:
            return False
        row = self.searches[key].rows[0]
        return row.status == "ok" or (row.status == "timed_out" and bool(row.cache))

    def compare(
        self,
        first: Candidate,
        second: Candidate,
        *,
        kinds: Sequence[TrialKind] = TIMED,
        comparisons: int = 1,
    ) -> Difference | None:
        """Compare the second with the first, by the trials that had both; None if too few had."""
        return compare_turns(self.ratios(first, second, kinds=kinds), comparisons=comparisons)

    @cached_property
    def confirmations(self) -> dict[Candidate, Confirmation]:
        """What fresh processes have shown of those that were to win, in the order of their trials.

        Each next one has half of the probability of error of the one before, so that all have no
        more than one alone.
        """
        return {each: self.confirmation_of(found) for each, found in self.proofs.items()}

    @cached_property
    def proofs(self) -> dict[Candidate, Difference | None]:
        """How fresh processes of those that were to win differ from the plain run's."""
        tried = dict.fromkeys(
            row.candidate
            for trial in self.trials
            if trial.kind == "confirm"
            for row in trial.rows
            if row.candidate != BASELINE
        )
        return {
            each: self.compare(BASELINE, each, kinds=("confirm",), comparisons=2**number)
            for number, each in enumerate(tried, start=1)
        }

    def confirmation_of(self, found: Difference | None) -> Confirmation:
        """Return what trials against the plain run show; "open": they are too few."""
        if found is None or found.processes < FIRST_LOOK:
            return "open"
        if is_look(found.processes) and found.is_shown:
            return "better" if found.verdict == "faster" else "not better"
        smallest = found.smallest_detectable
        is_small = smallest is not None and smallest < self.request.margin
        return "not better" if is_small else "open"

    def ratios(
        self, first: Candidate, second: Candidate, *, kinds: Sequence[TrialKind] = TIMED
    ) -> Ratios:
        """Return the ratios of the second's objective over the first's in the trials with both."""
        rounds: list[list[float]] = []
        least: list[list[float]] = []
        calm = 0
        for trial in self.trials:
            if trial.kind in kinds:
                found = ratios_in(self.request.objective, Same(trial), first, second)
                rounds += found.rounds
                least += found.least
                calm += found.are_calm * len(found.rounds)
        return Ratios(rounds, 2 * calm >= len(rounds), least)


@lru_cache(maxsize=1 << 14)
def ratios_in(
    objective: Objective, trial: Same[Trial], first: Candidate, second: Candidate
) -> Ratios:
    """Return the ratios of two candidates in a trial; none if it does not have both."""
    firsts, seconds = (
        [row for row in trial.record.rows if row.candidate == each] for each in (first, second)
    )
    return log_ratios_for(objective, [(a, b) for a in firsts for b in seconds])


@lru_cache(maxsize=1 << 11)
def looks_in(objective: Objective, trial: Same[Trial]) -> tuple[Look, ...]:
    """Return what a trial has measured beside its plain run."""
    found = []
    for row in trial.record.rows:
        if row.candidate != BASELINE:
            ratios = ratios_in(objective, trial, BASELINE, row.candidate).rounds
            number = row.turns[0].round if row.turns else 0
            found += [
                Look((trial.record.number, number), row.candidate, trimmed_mean(each))
                for each in ratios
                if each
            ]
    return tuple(found)


def gather_evidence(request: TuneRequest, trials: Sequence[Trial]) -> Evidence:
    """Return what the trials say."""
    evidence = Evidence(request, trials)
    combinations = combinations_of(request.spaces)
    for trial in trials:
        for row in trial.rows:
            if trial.kind == "search":
                for key in combinations[row.candidate.model].cache_keys(row.candidate):
                    if row.status != "interrupted":
                        evidence.searches[key] = trial
                    else:
                        begun = evidence.begun_seconds.get(key, 0.0)
                        evidence.begun_seconds[key] = begun + trial.seconds
            elif (fate := fate_of(row)) != "interrupted":
                if evidence.fates.get(row.candidate, "ok") == "ok":
                    evidence.fates[row.candidate] = fate
                evidence.tries[row.candidate] = evidence.tries.get(row.candidate, 0) + 1
        if trial.kind != "search":
            evidence.looks += looks_in(request.objective, Same(trial))
    leave_out_far(evidence)
    return evidence


def fate_of(row: TrialRow) -> Fate:
    """Return what became of a candidate in a trial; it is wrong if its outputs differ."""
    if row.status == "ok" and row.output_difference is not None:
        return "wrong" if row.output_difference.agreement == "different" else "ok"
    return row.status


def leave_out_far(evidence: Evidence) -> None:
    """Mark the candidates that are far slower than the plain run of their model, by all that was
    measured and by what is made of it."""
    for candidate, values in evidence.values.items():
        plain = Candidate(model=candidate.model)
        of_plain = evidence.means.get(plain, 0.0)
        least = min(values) - max(evidence.values.get(plain, [0.0]))
        works = evidence.fates.get(candidate, "ok") == "ok"
        if candidate.choices and works and min(least, evidence.means[candidate] - of_plain) > FAR:
            evidence.fates[candidate] = "too slow"
            is_calm = evidence.ratios(BASELINE, candidate).are_calm
            if evidence.tries.get(candidate) == 1 and not is_calm:
                evidence.doubtful.append(candidate)
