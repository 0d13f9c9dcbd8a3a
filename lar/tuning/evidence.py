"""What the trials say of the candidates: which can be built upon, and how fast each is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Generic, Literal, TypeVar

from lar.measurement.differences import trimmed_mean
from lar.measurement.objectives import compare_ratios, log_ratios_for
from lar.measurement.turns import Ratios
from lar.records.run import Status
from lar.records.summary import Difference
from lar.records.tuning import (
    BASELINE,
    Candidate,
    Choice,
    ModelSpace,
    Objective,
    Trial,
    TrialRow,
    TuneRequest,
)

T = TypeVar("T")

Fate = Status | Literal["refused", "wrong", "too slow"]

# A candidate that takes so many times as long as the plain run of its model is not built upon.
FAR = math.log(2)


class Same(Generic[T]):
    """A record by its identity, as a key of a cache: to hash the samples would take long."""

    def __init__(self, record: T) -> None:
        self.record = record

    def __hash__(self) -> int:
        return id(self.record)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.record is other.record


@dataclass(frozen=True)
class Look:
    """A candidate's process: the logarithm of its objective over that of the trial's plain run."""

    trial: int
    candidate: Candidate
    value: float


@dataclass
class Evidence:
    """The trials of a search, by candidate.

    Attributes:
        fates: of each candidate that was tried; the worst of its trials.
        looks: the processes that were measured beside the plain run, in their order.
        caches: by `cache_key`, whether the search that fills it has ended well.
    """

    request: TuneRequest
    trials: Sequence[Trial]
    fates: dict[Candidate, Fate] = field(default_factory=dict)
    looks: list[Look] = field(default_factory=list)
    caches: dict[CacheKey, bool] = field(default_factory=dict)

    @property
    def by_candidate(self) -> dict[Candidate, list[float]]:
        """The values of each candidate's looks."""
        found: dict[Candidate, list[float]] = {}
        for look in self.looks:
            found.setdefault(look.candidate, []).append(look.value)
        return found

    def is_excluded(self, candidate: Candidate) -> bool:
        """Return whether it is one that failed, or is built upon one that did."""
        choices = set(candidate.choices)
        return any(
            candidate.model == failed.model and choices.issuperset(failed.choices)
            for failed in self.failed
        )

    @property
    def failed(self) -> list[Candidate]:
        """The candidates that are not built upon."""
        return [each for each, fate in self.fates.items() if fate != "ok"]

    def compare(
        self,
        first: Candidate,
        second: Candidate,
        *,
        kinds: Sequence[str] = ("screen", "race", "confirm"),
        comparisons: int = 1,
        since: int = 0,
    ) -> Difference | None:
        """Compare the second with the first, by the trials that had both; None if too few have."""
        ratios = self.ratios(first, second, kinds=kinds, since=since)
        return compare_ratios(ratios, comparisons=comparisons)

    def ratios(
        self,
        first: Candidate,
        second: Candidate,
        *,
        kinds: Sequence[str] = ("screen", "race", "confirm"),
        since: int = 0,
    ) -> Ratios:
        """Return the ratios of the second's times over the first's, of the trials from number
        `since` on that had both."""
        objective, rounds, calm = self.request.objective, [], 0
        for trial in self.trials:
            if trial.kind in kinds and trial.number >= since:
                found = ratios_in(objective, Same(trial), first, second)
                rounds += found.rounds
                calm += found.are_calm * len(found.rounds)
        return Ratios(rounds, are_calm=2 * calm >= len(rounds))


CacheKey = tuple[int, str, tuple[str, ...]]


@lru_cache(maxsize=1 << 14)
def ratios_in(
    objective: Objective, trial: Same[Trial], first: Candidate, second: Candidate
) -> Ratios:
    """Return the ratios of two candidates in a trial; none if it does not have both."""
    firsts, seconds = (
        [row for row in trial.record.rows if row.candidate == each] for each in (first, second)
    )
    return log_ratios_for(objective, [(a, b) for a in firsts for b in seconds])


@lru_cache(maxsize=1 << 10)
def looks_in(objective: Objective, trial: Same[Trial]) -> tuple[Look, ...]:
    """Return what a trial has measured beside its plain run."""
    found = []
    for row in trial.record.rows:
        if row.candidate != BASELINE:
            ratios = ratios_in(objective, trial, BASELINE, row.candidate).rounds
            found += [
                Look(trial.record.number, row.candidate, trimmed_mean(ratio))
                for ratio in ratios
                if ratio
            ]
    return tuple(found)


def gather_evidence(request: TuneRequest, trials: Sequence[Trial]) -> Evidence:
    """Return what the trials say, in any order of their rows."""
    evidence = Evidence(request, trials)
    for trial in trials:
        for row in trial.rows:
            if trial.kind == "search":
                if row.status != "interrupted":
                    for key in cache_keys(row.candidate, request.spaces[row.candidate.model]):
                        done = evidence.caches.get(key, False)
                        evidence.caches[key] = done or row.status == "ok"
            elif (fate := fate_of(row)) != "interrupted":
                before = evidence.fates.get(row.candidate, "ok")
                evidence.fates[row.candidate] = fate if before == "ok" else before
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
    """Mark the candidates that are far slower than the plain run of their model."""
    means = {each: math.fsum(it) / len(it) for each, it in evidence.by_candidate.items()}
    for candidate, value in means.items():
        plain = means.get(Candidate(model=candidate.model), 0.0)
        if candidate.choices and value > plain + FAR:
            evidence.fates[candidate] = "too slow"


def dimension_of(space: ModelSpace) -> dict[str, int]:
    """Return the number of the dimension of each choice, by name."""
    return {
        choice.name: number
        for number, dimension in enumerate(space.dimensions)
        for choice in dimension.choices
    }


def searched_choices(candidate: Candidate, space: ModelSpace) -> list[Choice]:
    """Return the choices of a candidate that need a search before they are measured."""
    return [
        choice
        for dimension in space.dimensions
        for choice in dimension.choices
        if choice.search and choice.name in candidate.choices
    ]


def cache_keys(candidate: Candidate, space: ModelSpace) -> list[CacheKey]:
    """Return what distinguishes the caches that a candidate needs: candidates with the same key
    share one."""
    dimensions = {dimension.name: dimension for dimension in space.dimensions}
    keys = []
    for choice in searched_choices(candidate, space):
        deciding = {
            each.name
            for name in choice.cache_depends
            if name in dimensions
            for each in dimensions[name].choices
        }
        others = tuple(name for name in candidate.choices if name in deciding)
        keys.append((candidate.model, choice.name, others))
    return keys


def make_candidate(model: int, choices: Iterable[str], space: ModelSpace) -> Candidate:
    """Return a candidate with its choices in the order of the dimensions."""
    order = dimension_of(space)
    return Candidate(model=model, choices=tuple(sorted(choices, key=order.__getitem__)))
