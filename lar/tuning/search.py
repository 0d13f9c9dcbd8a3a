"""What a search for the fastest settings does next, as a pure function of what was tried.

It goes through stages; each begins where the one before has nothing left that could pay:

screen   every single choice once, then combinations of those that seem to help, as the surrogate
         expects them
search   a candidate whose choice needs a search fills its cache, and is screened like others
race     those that may still be the best, beside each other, until none of them can win
confirm  the winner against the plain run in fresh processes
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from lar.measurement.differences import FIRST_LOOK, alpha_of_look
from lar.records.tuning import BASELINE, Candidate, Ending, Trial, TrialKind, TuneRequest
from lar.tuning.evidence import (
    Evidence,
    cache_keys,
    dimension_of,
    gather_evidence,
    make_candidate,
    searched_choices,
)
from lar.tuning.surrogate import NORMAL, Outlook, Surrogate, expected_gains

IsValid = Callable[[Candidate], bool]

MOST_BESIDE = 7  # candidates beside the plain run in one trial
MOST_RACERS = 5

# What a trial measures, in seconds.
FIRST_SECONDS = 1.0
LEAST_SECONDS = 0.5
MOST_SECONDS = 5.0

# Of the candidates that are measured, so many of the best are built upon.
BEAM = 5
# All candidates are thought of where there are no more than these.
MOST_CANDIDATES = 400
# Of the margin: what trying a candidate must gain on average to be worth its time.
WORTH = 0.2
# A search of algorithms takes at least so many iterations of the plain run.
SEARCH_ITERATIONS = 100
# The part of the budget in which single choices are measured whatever is expected of them.
SINGLES_SHARE = 0.5
# A model whose plain run is so much slower than the best is not looked at before the others.
FAR_MODEL = math.log(2)
# The probability of winning by the margin below which a racer leaves.
NO_CHANCE = 0.01
LEAST_LOOKS = 3


class Step(NamedTuple):
    """What to measure next, for about so long in turns; for a search it is the time limit."""

    kind: TrialKind
    candidates: tuple[Candidate, ...]
    seconds: float


class Ended(NamedTuple):
    """That the search has ended, and why."""

    ending: Ending


def next_step(
    request: TuneRequest,
    trials: Sequence[Trial],
    is_valid: IsValid,
    left_seconds: float,
) -> Step | Ended:
    """Return what to measure next.

    Args:
        request: what was asked for.
        trials: what was measured until now, in its order.
        is_valid: whether the rules of options and engines allow a candidate.
        left_seconds: what is left of the budget.
    """
    survey = Survey(request, gather_evidence(request, trials), is_valid)
    if survey.evidence.fates.get(BASELINE, "ok") != "ok":
        return Ended("failed")
    if left_seconds <= 0:
        return Ended("budget")
    confirmed = survey.confirm()
    left = left_seconds - survey.confirm_seconds
    wanted = None
    if not survey.is_confirming:
        wanted = survey.explore(left) or survey.search(left) or survey.race()
    if wanted is not None and (not trials or survey.seconds_of(wanted) <= left):
        return wanted
    if isinstance(confirmed, Step):
        if survey.seconds_of(confirmed) <= left_seconds:
            return confirmed
        return Ended("budget")
    unlimited = survey.explore(math.inf) or survey.search(math.inf) or survey.race()
    return Ended("settled" if unlimited is None else "budget")


@dataclass
class Survey:
    """What the evidence leaves to be done."""

    request: TuneRequest
    evidence: Evidence
    is_valid: IsValid

    @cached_property
    def surrogate(self) -> Surrogate:
        """What is expected of candidates."""
        return Surrogate(self.evidence.looks)

    @cached_property
    def measured(self) -> list[Candidate]:
        """The candidates that were measured and may win, the best first; the plain run is one."""
        rejected = self.rejected
        found = [BASELINE] + [
            each
            for each in self.evidence.by_candidate
            if self.evidence.fates.get(each, "ok") == "ok" and each not in rejected
        ]
        means = self.surrogate.expect(found).means
        return [found[index] for index in np.argsort(means, kind="stable")]

    @property
    def best(self) -> Candidate:
        """The one that seems the best."""
        return self.measured[0]

    @cached_property
    def rejected(self) -> set[Candidate]:
        """Winners that were not shown to be better than the plain run."""
        tried = {
            row.candidate
            for trial in self.evidence.trials
            if trial.kind == "confirm"
            for row in trial.rows
            if row.candidate != BASELINE
        }
        return {each for each in tried if self.is_shown_better(each) is False}

    def is_shown_better(self, candidate: Candidate) -> bool | None:
        """Return whether its trials against the plain run show that it is better; None as long as
        they are not enough."""
        found = self.evidence.compare(BASELINE, candidate, kinds=("confirm",))
        if found is None or found.processes < FIRST_LOOK:
            return None
        if found.verdict != "no difference shown":
            return found.verdict == "faster"
        if alpha_of_look(found.processes) is None:
            return None
        smallest = found.smallest_detectable
        return False if smallest is not None and smallest < self.request.margin else None

    @property
    def is_confirming(self) -> bool:
        """Whether a winner is being confirmed."""
        trials = self.evidence.trials
        return bool(trials) and trials[-1].kind == "confirm" and self.last_confirmed() is not None

    def last_confirmed(self) -> Candidate | None:
        """Return the candidate of the last trial that confirms, unless it is rejected or failed."""
        for trial in reversed(self.evidence.trials):
            if trial.kind == "confirm":
                for row in trial.rows:
                    if row.candidate != BASELINE and row.candidate in self.measured:
                        return row.candidate
        return None

    def confirm(self) -> Step | None:
        """Return the next trial of the winner against the plain run; None if none is needed."""
        winner = (self.last_confirmed() if self.is_confirming else None) or self.best
        if winner == BASELINE or self.is_shown_better(winner) is not None:
            return None
        return Step("confirm", (BASELINE, winner), self.turn_seconds(2))

    def turn_seconds(self, count: int) -> float:
        """Return how long a trial of so many candidates measures: about as long as it takes to
        start them."""
        start = [
            (trial.seconds - seconds_measured(trial)) / len(trial.rows)
            for trial in self.evidence.trials
            if trial.kind != "search" and trial.rows
        ]
        if not start:
            return FIRST_SECONDS
        mean = max(0.0, math.fsum(start) / len(start))
        return min(max(count * mean / 2, LEAST_SECONDS), MOST_SECONDS)

    def seconds_of(self, step: Step) -> float:
        """Return how long a step will take, as those before it did."""
        if step.kind == "search":
            return step.seconds
        for kinds in ((step.kind,), ("screen", "race", "confirm")):
            alike = [trial for trial in self.evidence.trials if trial.kind in kinds and trial.rows]
            if alike:
                per_row = math.fsum(it.seconds for it in alike) / sum(len(it.rows) for it in alike)
                return per_row * len(step.candidates)
        return 0.0

    @property
    def confirm_seconds(self) -> float:
        """The time that is kept for showing that the winner is better than the plain run."""
        done = sum(
            trial.kind == "confirm" and any(row.candidate == self.best for row in trial.rows)
            for trial in self.evidence.trials
        )
        needed = max(0, FIRST_LOOK - done)
        return min(
            needed * self.seconds_of(Step("confirm", (BASELINE, BASELINE), 0.0)),
            self.request.budget_seconds / 2,
        )

    # Candidates

    def is_open(self, candidate: Candidate) -> bool:
        """Return whether it was not tried and may be."""
        return (
            candidate != BASELINE
            and candidate not in self.evidence.fates
            and not self.evidence.is_excluded(candidate)
            and self.is_valid(candidate)
        )

    def is_ready(self, candidate: Candidate) -> bool:
        """Return whether the caches that it needs are filled."""
        keys = cache_keys(candidate, self.request.spaces[candidate.model])
        return all(self.evidence.caches.get(key, False) for key in keys)

    def is_far_model(self, model: int) -> bool:
        """Return whether the plain run of a model is far slower than the best of another."""
        plain = Candidate(model=model)
        if plain not in self.measured or self.best.model == model:
            return False
        gap = self.surrogate.expect([plain]).means[0] - self.surrogate.expect([self.best]).means[0]
        return bool(gap > FAR_MODEL)

    def singles(self) -> Iterator[Candidate]:
        """Yield the plain runs and the single choices of all models: the first choice of each
        dimension, the second ones, and so on."""
        columns = [
            [
                Candidate(model=model, choices=(choice.name,))
                for choices in zip_longest(*(it.choices for it in space.dimensions))
                for choice in choices
                if choice
            ]
            for model, space in enumerate(self.request.spaces)
        ]
        yield from (Candidate(model=model) for model in range(1, len(columns)))
        for row in zip_longest(*columns):
            yield from (each for each in row if each)

    def neighbours(self, candidate: Candidate) -> Iterator[Candidate]:
        """Yield the candidates that differ from one in one dimension."""
        space = self.request.spaces[candidate.model]
        of = dimension_of(space)
        for number, dimension in enumerate(space.dimensions):
            others = [name for name in candidate.choices if of[name] != number]
            yield make_candidate(candidate.model, others, space)
            for choice in dimension.choices:
                yield make_candidate(candidate.model, [*others, choice.name], space)

    def pool(self) -> list[Candidate]:
        """Return the candidates that are thought of: what differs from one of the best in one
        dimension, or joins two of them."""
        found = dict.fromkeys(self.singles())
        for model, space in enumerate(self.request.spaces):
            of = dimension_of(space)
            own = [each for each in self.measured if each.model == model][:BEAM]
            for each in own:
                found |= dict.fromkeys(self.neighbours(each))
                for other in own:
                    joined = {of[name]: name for name in (*other.choices, *each.choices)}
                    found[make_candidate(model, joined.values(), space)] = None
        done = self.evidence.fates.keys() | {BASELINE}
        return [each for each in found if each not in done and not self.evidence.is_excluded(each)]

    # Stages

    def explore(self, left: float) -> Step | None:
        """Return the next trial of candidates that were not measured; None if none can pay."""
        picked: list[Candidate] = []
        beside = [] if self.best == BASELINE else [self.best]
        room = MOST_BESIDE - len(beside)
        if not self.evidence.trials or left > (1 - SINGLES_SHARE) * self.request.budget_seconds:
            for each in self.singles():
                if len(picked) == room:
                    break
                if not self.is_far_model(each.model) and self.is_open(each) and self.is_ready(each):
                    picked.append(each)
        if len(picked) < room and self.evidence.looks:
            ready = [each for each in self.pool() if each not in picked and self.is_ready(each)]
            picked += self.most_promising(ready, room - len(picked), WORTH * self.request.margin)
        if not picked and self.evidence.trials:
            return None
        chosen = (BASELINE, *beside, *picked)
        return Step("screen", chosen, self.turn_seconds(len(chosen)))

    def most_promising(
        self, candidates: Sequence[Candidate], room: int, worth: float
    ) -> list[Candidate]:
        """Return so many candidates, of which each gains most beside those before it; those that
        gain less than it is worth are left out."""
        outlook = self.surrogate.expect([self.best, *candidates])
        picked: list[Candidate] = []
        covariances = outlook.covariances.copy()
        able = np.ones(len(candidates) + 1, dtype=bool)
        able[0] = False
        noise = 2 * self.surrogate.noise**2
        while len(picked) < room and able.any():
            gains = np.where(
                able, gains_over_first(Outlook(outlook.candidates, outlook.means, covariances)), 0.0
            )
            index = int(np.argmax(gains))
            if gains[index] < worth:
                break
            able[index] = False
            if not self.is_open(outlook.candidates[index]):
                continue
            picked.append(outlook.candidates[index])
            column = covariances[:, index].copy()
            covariances -= np.outer(column, column) / (column[index] + noise)
        return picked

    def search(self, left: float) -> Step | None:
        """Return a search of a cache that may pay; None without one."""
        waiting = []
        for base in self.measured[:BEAM]:
            space = self.request.spaces[base.model]
            for each in self.neighbours(base):
                if searched_choices(each, space) and not self.is_ready(each):
                    keys = cache_keys(each, space)
                    if not any(self.evidence.caches.get(key) is False for key in keys):
                        waiting.append(each)
        waiting = [each for each in dict.fromkeys(waiting) if not self.evidence.is_excluded(each)]
        found = self.most_promising(waiting, 1, self.request.margin)
        if not found:
            return None
        trial = Step("screen", (BASELINE, self.best, found[0]), 0.0)
        limit = left - 2 * self.seconds_of(trial)
        if limit < self.least_search_seconds():
            return None
        return Step("search", (found[0],), limit)

    def least_search_seconds(self) -> float:
        """Return the time below which a search is not worth to begin."""
        return max(1.0, SEARCH_ITERATIONS * plain_seconds(self.evidence.trials))

    def race(self) -> Step | None:
        """Return the next trial of those that may be the best; None if none can win."""
        racers = self.racers()
        looks = self.evidence.by_candidate
        if not racers and (self.best == BASELINE or len(looks[self.best]) >= LEAST_LOOKS):
            return None
        beside = [each for each in (self.best, *racers) if each != BASELINE]
        chosen = (BASELINE, *beside[: MOST_RACERS + 1])
        return Step("race", chosen, self.turn_seconds(len(chosen)))

    def racers(self) -> list[Candidate]:
        """Return those that may be better than the best by the margin, the likeliest first."""
        others = [each for each in self.measured if each != self.best]
        if not others:
            return []
        outlook = self.surrogate.expect([self.best, *others])
        gaps, variances = gaps_to_first(outlook)
        margin = math.log1p(self.request.margin)
        found = []
        for each, gap, variance in zip(others, gaps[1:], variances[1:], strict=True):
            chance = NORMAL.cdf(-(gap + margin) / math.sqrt(max(variance, 1e-12)))
            if chance > NO_CHANCE and not self.has_lost(each):
                found.append((chance, each))
        return [each for _, each in sorted(found, key=lambda item: -item[0])]

    def has_lost(self, candidate: Candidate) -> bool:
        """Return whether it is shown that it is slower than the best, or not better by the
        margin."""
        if candidate == BASELINE:
            return False
        found = self.evidence.compare(self.best, candidate)
        if found is None or found.interval is None or found.processes < FIRST_LOOK:
            return False
        return found.verdict == "slower" or found.interval.low > 1 - self.request.margin


def gaps_to_first(outlook: Outlook) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    """Return by how much each is slower than the first, with the variances."""
    covariances = outlook.covariances
    variances = np.diag(covariances) + covariances[0, 0] - 2 * covariances[0]
    return outlook.means - outlook.means[0], variances


def gains_over_first(outlook: Outlook) -> np.ndarray:  # type: ignore[type-arg]
    """Return how much better each is than the first, on average where it is."""
    return expected_gains(*gaps_to_first(outlook))


def seconds_measured(trial: Trial) -> float:
    """Return how long the timed iterations of a trial took."""
    return math.fsum(math.fsum(turn.samples.end_to_end) for row in trial.rows for turn in row.turns)


def plain_seconds(trials: Sequence[Trial]) -> float:
    """Return how long an iteration of the plain run takes; 0 if it was not measured."""
    times = [
        each
        for trial in trials[:1]
        for row in trial.rows
        if row.candidate == BASELINE
        for turn in row.turns
        for each in turn.samples.end_to_end
    ]
    return sorted(times)[len(times) // 2] if times else 0.0
