"""What a search for the fastest settings does next, as a pure function of what was tried.

It has four kinds of trials:

screen   every single choice once, then the combinations that may be the best, as far as the
         surrogate can say; in the space `full` all others too
search   where a choice needs a search, one candidate fills its cache, and can be screened then
race     those that may be the best, beside each other, until none of them can beat the first
confirm  the winner against the plain run, in fresh processes that had no part in choosing it

It ends when nothing that is left can win by the margin, or when the time is spent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice, zip_longest
from typing import NamedTuple

import numpy as np

from lar.measurement.differences import FIRST_LOOK
from lar.measurement.objectives import score_of_process
from lar.records.tuning import BASELINE, Candidate, Ending, Trial, TrialKind, TuneRequest
from lar.tuning.candidates import CacheKey, combinations_of
from lar.tuning.evidence import TIMED, Evidence, gather_evidence
from lar.tuning.surrogate import Matrix, Outlook

IsValid = Callable[[Candidate], bool]

MOST_BESIDE = 7  # candidates beside the plain run in one trial

# How long a trial measures, in seconds; before it is known how long its processes take to start.
FIRST_SECONDS = 1.0
LEAST_SECONDS = 0.5
MOST_SECONDS = 5.0
# For the 99th percentile, a process makes so many iterations.
ITERATIONS_FOR_P99 = 200

# A trial takes some time however few its candidates are: as much as so many of them.
FIXED_PART = 1.5

# Of the candidates of each model that were measured, so many of the best are built upon.
BEAM = 12
# Of a trial, the room for those without the choice that the best owes most to, and how likely they
# must be to win.
ROOM_APART = 2
LEAST_CHANCE_APART = 0.01
# The room for those that differ from the best in one of its choices.
ROOM_BESIDE_BEST = 3
# Of the candidates that are thought of in the space `full` beside those, so many at a time.
MOST_OTHERS = 300
# What a choice must gain to be worth a longer command line, in margins.
COST_OF_CHOICE = 0.5
# The probabilities of winning by the margin below which a candidate is not tried, or searched for.
LEAST_CHANCE = 0.02
LEAST_CHANCE_OF_SEARCH = 0.05
# Single choices are measured, whatever is expected of them, until this part of the budget is spent.
SINGLES_SHARE = 0.5
# The plain run of a model that is so much slower than the best: its choices come last.
FAR_MODEL = math.log(2)

# An engine's search is thought to take so many iterations of the plain run, and is not begun with
# less than a part of that.
SEARCH_ITERATIONS = 400
LEAST_SEARCH_SECONDS = 2.0
LEAST_PART = 0.4
# It gains so many times what other choices do, of which nothing is known.
SEARCH_PROMISE = 1.5
# It is ended after so many times what it is thought to take.
MOST_PART = 10.0
LEAST_LIMIT = 60.0  # seconds
# One that was cut short needs so much more time; one that is known may take so much longer.
LONGER = 1.5
# The trials that are kept for what comes out of a search; one may take longer than those before.
TRIALS_AFTER_SEARCH = 1.5

# A choice with which the engine measures at each load is thought to take so many iterations of the
# plain run, and is not tried in the space `quick` where a load takes more than this of the budget.
LOAD_ITERATIONS = 5000
MOST_LOAD_SHARE = 0.03

# The probability of winning by the margin below which a racer leaves.
NO_CHANCE = 0.05
MOST_RACERS = 5  # in one trial, beside the best
LEAST_LOOKS = 3  # processes of the best, before it is confirmed
MOST_TRIES = 2  # of a candidate that gave no times


class Step(NamedTuple):
    """What to measure next, all together for about so long; for a search it is the time limit."""

    kind: TrialKind
    candidates: tuple[Candidate, ...]
    seconds: float


class Ended(NamedTuple):
    """That the search has ended, and why."""

    ending: Ending


def next_step(
    request: TuneRequest, trials: Sequence[Trial], is_valid: IsValid, left_seconds: float
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
    winner = survey.in_confirmation
    if winner is None:
        left = left_seconds - survey.seconds_to_confirm
        wanted = survey.find_step(left)
        step = survey.shorten(wanted, left) if wanted else None
        if step is not None:
            return step
        winner = survey.best
        if winner == BASELINE or survey.evidence.confirmations.get(winner) == "better":
            return Ended("budget" if wanted or survey.find_step(math.inf) else "settled")
    step = Step("confirm", (BASELINE, winner), survey.turn_seconds(2))
    return step if survey.seconds_of(step) <= left_seconds else Ended("budget")


@dataclass
class Survey:
    """What the evidence leaves to be done."""

    request: TuneRequest
    evidence: Evidence
    is_valid: IsValid

    def __post_init__(self) -> None:
        self.combinations = combinations_of(self.request.spaces)
        self.margin = math.log1p(self.request.margin)
        self.surrogate = self.evidence.surrogate

    @cached_property
    def measured(self) -> list[Candidate]:
        """The candidates that were measured and may win, the plain run among them, in the order of
        what is expected of them and of how many choices they have. One that was confirmed stays
        first until another is better by the margin."""
        evidence = self.evidence
        found = [
            each
            for each in evidence.means
            if evidence.fates.get(each, "ok") == "ok"
            and evidence.confirmations.get(each) != "not better"
        ]
        means = self.costs_of(found)
        order = [int(index) for index in np.argsort(means, kind="stable")]
        for index in order:
            is_confirmed = evidence.confirmations.get(found[index]) == "better"
            if is_confirmed and means[index] < means[order[0]] + self.margin:
                return [found[index], *(found[other] for other in order if other != index)]
        ordered = [found[index] for index in order]
        first = self.simplify(ordered)
        return [first, *(each for each in ordered if each != first)]

    def simplify(self, candidates: Sequence[Candidate]) -> Candidate:
        """Return the candidate with the fewest choices of those that are parts of the first one and
        are not clearly worse: the gap is within the margin and one standard error."""
        first = candidates[0]
        parts = [
            each
            for each in candidates
            if each.model == first.model and {*each.choices} < {*first.choices} and each.choices
        ]
        gaps, variances = self.surrogate.expect([first, *parts]).gaps()
        near = [
            (len(each.choices), float(gap), each)
            for each, gap, variance in zip([first, *parts], gaps, variances, strict=True)
            if gap <= self.margin + math.sqrt(variance)
        ]
        return min(near)[-1]

    def costs_of(self, candidates: Sequence[Candidate]) -> Matrix:
        """Return what is expected of candidates, with a little for each of their choices."""
        counts = np.array([len(each.choices) for each in candidates])
        found: Matrix = self.surrogate.means_of(candidates) + COST_OF_CHOICE * self.margin * counts
        return found

    @property
    def best(self) -> Candidate:
        """The one that seems to be the best."""
        return self.measured[0]

    @property
    def in_confirmation(self) -> Candidate | None:
        """The winner that is being confirmed."""
        trials = self.evidence.trials
        if not trials or trials[-1].kind != "confirm":
            return None
        return next(
            (
                row.candidate
                for row in trials[-1].rows
                if self.evidence.confirmations.get(row.candidate) == "open"
                and self.evidence.fates.get(row.candidate, "ok") == "ok"
            ),
            None,
        )

    # What is next

    def find_step(self, left: float) -> Step | None:
        """Return what is best done next in the time that is left; None if nothing can pay."""
        if singles := self.screen_singles(left):
            return singles
        promising, search = self.screen_promising(), self.search(left)
        if search is not None and search.seconds < self.search_seconds(search.candidates[0]):
            return promising or self.race() or search  # it is likely to be cut short
        if promising is not None and search is not None:
            return promising if self.pays_more(promising, search, left) else search
        return (
            promising
            or search
            or self.race()
            or (self.screen([]) if self.evidence.doubtful else None)
            or self.screen_others(left)
        )

    def pays_more(self, screen: Step, search: Step, left: float) -> bool:
        """Return whether a trial comes before a search: it is expected to gain more in its time; or
        more at all, where there would be no time left for the search."""
        (candidate,) = search.candidates
        new = [each for each in screen.candidates if each not in self.evidence.tries]
        gains = self.surrogate.expect([self.best, *new, candidate]).gains()
        gain, gain_of_search = gains[1:-1].max(), SEARCH_PROMISE * gains[-1]
        if not self.can_search(candidate, left - self.seconds_of(screen)):
            return bool(gain >= gain_of_search)
        seconds = self.search_seconds(candidate)
        return bool(gain * seconds >= gain_of_search * self.seconds_of(screen))

    def screen_singles(self, left: float) -> Step | None:
        """Return a trial of single choices, and of what may be the best if there is room."""
        if self.evidence.trials and left < (1 - SINGLES_SHARE) * self.request.budget_seconds:
            return None
        picked = [*islice(filter(self.is_open, self.singles()), self.room)]
        if self.evidence.trials and not picked:
            return None
        if self.evidence.looks and len(picked) < self.room:
            others = [each for each in self.near_best() if each not in picked]
            picked += self.most_promising(others, self.room - len(picked), LEAST_CHANCE)
        return self.screen(picked)

    def screen_promising(self) -> Step | None:
        """Return a trial of the candidates that may be the best. If it is full of those with the
        choice that the best owes most to, some make room for others: what was measured of single
        choices may have been bad luck, and choices that help most alone may help little together.
        These follow the first, for what stands behind may be cut off for lack of time."""
        near = self.near_best()
        picked = self.most_promising(near, self.room, LEAST_CHANCE)
        main = self.main_choice
        if len(picked) == self.room and all(main in each.choices for each in picked):
            others = [each for each in near if main not in each.choices and len(each.choices) > 1]
            apart = self.most_promising(others, ROOM_APART, LEAST_CHANCE_APART)
            picked = [picked[0], *apart, *picked[1 : self.room - len(apart)]]
        if len(picked) == self.room:
            near = [each for each in self.beside_best() if each not in picked][:ROOM_BESIDE_BEST]
            picked[self.room - len(near) :] = near
        return self.screen(picked) if picked else None

    def beside_best(self) -> list[Candidate]:
        """Return what the best is without one of its choices, or with another in its place, the
        most promising first: what saves time alone may cost some where others have saved it."""
        best = self.best
        found = [
            each
            for each in self.combinations[best.model].neighbours(best)
            if 0 < len(each.choices) <= len(best.choices) and self.is_open(each)
        ]
        order = np.argsort(self.surrogate.means_of(found), kind="stable") if found else ()
        return [found[int(index)] for index in order]

    @property
    def main_choice(self) -> str:
        """The choice of the best that helps most alone; empty for a plain run."""
        best, means = self.best, self.evidence.means
        alone = {name: replace(best, choices=(name,)) for name in best.choices}
        return min(best.choices, key=lambda name: means.get(alone[name], 0.0), default="")

    def screen_others(self, left: float) -> Step | None:
        """Return a trial of any that were not tried, or a search for one, in the space `full`."""
        if self.request.extent != "full":
            return None
        every = chain.from_iterable(each.every() for each in self.combinations)
        new = [*islice(filter(self.is_new, every), MOST_OTHERS)]
        if not new:
            return None
        order = np.argsort(self.surrogate.means_of(new), kind="stable")
        ordered = [new[int(index)] for index in order]
        picked = [*islice(filter(self.is_open, ordered), self.room)]
        if picked:
            return self.screen(picked)
        able = (each for each in ordered if self.can_search(each, left) and self.is_valid(each))
        return next((Step("search", (it,), self.search_limit(it, left)) for it in able), None)

    def screen(self, picked: Sequence[Candidate]) -> Step:
        """Return a trial of new candidates beside the best, and of those that need a second look
        where there is room."""
        beside = [] if self.best == BASELINE else [self.best]
        again = self.evidence.doubtful[: max(0, self.room - len(picked))]
        chosen = (BASELINE, *beside, *picked, *again)
        return Step("screen", chosen, self.turn_seconds(len(chosen)))

    def search(self, left: float) -> Step | None:
        """Return a search that may pay in the time that is left."""
        near = [
            each
            for base in self.measured[:BEAM]
            for each in self.combinations[base.model].neighbours(base)
            if self.is_new(each) and self.has_basis(each) and self.can_search(each, left)
        ]
        picked = self.most_promising(
            [*dict.fromkeys(near)], 1, LEAST_CHANCE_OF_SEARCH, is_ready=False
        )
        return Step("search", (picked[0],), self.search_limit(picked[0], left)) if picked else None

    def race(self) -> Step | None:
        """Return a trial of those that may be the best; None if none of them can win."""
        racers = self.racers()
        is_known = self.best == BASELINE or len(self.evidence.values[self.best]) >= LEAST_LOOKS
        if not racers and is_known:
            return None
        beside = [] if self.best == BASELINE else [self.best]
        chosen = (BASELINE, *beside, *racers[:MOST_RACERS])
        return Step("race", chosen, self.turn_seconds(len(chosen)))

    def racers(self) -> list[Candidate]:
        """Return those that may be better than the best by the margin, the likeliest first."""
        others = [each for each in self.measured[1:] if each != BASELINE]
        if not others:
            return []
        known = self.surrogate.expect([self.best, *others]).chances(self.margin)
        chances = dict(zip(others, known[1:], strict=True))
        able = [each for each in others if chances[each] > NO_CHANCE and not self.has_lost(each)]
        return sorted(able, key=lambda each: -chances[each])

    def has_lost(self, candidate: Candidate) -> bool:
        """Return whether it is shown to be slower than the best, or not faster by the margin."""
        found = self.evidence.compare(self.best, candidate)
        if found is None or found.interval is None or found.processes < FIRST_LOOK:
            return False
        return found.verdict == "slower" or math.log(found.interval.low) > -self.margin

    # Candidates

    @property
    def room(self) -> int:
        """How many new candidates a trial has room for."""
        return MOST_BESIDE - (self.best != BASELINE)

    def is_new(self, candidate: Candidate) -> bool:
        """Return whether it was neither tried nor is built upon one that failed."""
        tries = self.evidence.tries.get(candidate, 0)
        is_known = candidate in self.evidence.means or tries >= MOST_TRIES
        return not is_known and not self.is_excluded(candidate)

    def is_excluded(self, candidate: Candidate) -> bool:
        """Return whether it is not to be tried: it is built upon one that failed, or takes too long
        to load."""
        return self.evidence.is_excluded(candidate) or self.is_long_to_load(candidate)

    def is_long_to_load(self, candidate: Candidate) -> bool:
        """Return whether the engine measures at each load, and takes too much of a quick search."""
        if self.request.extent != "quick":
            return False
        names = self.combinations[candidate.model].measured_at_load.intersection(candidate.choices)
        limit = MOST_LOAD_SHARE * self.request.budget_seconds
        return any(self.load_seconds(candidate, name) > limit for name in names)

    def is_ready(self, candidate: Candidate) -> bool:
        """Return whether the caches that it needs are filled."""
        keys = self.combinations[candidate.model].cache_keys(candidate)
        return all(self.evidence.has_cache(key) for key in keys)

    def is_open(self, candidate: Candidate) -> bool:
        """Return whether it can be measured now, for the first time."""
        return self.is_new(candidate) and self.is_ready(candidate) and self.is_valid(candidate)

    def singles(self) -> Iterator[Candidate]:
        """Yield the plain runs of all models, then their single choices in turn; those of a model
        that is far slower than the best come last."""
        yield from (each.plain for each in self.combinations[1:])
        plains = [each.plain for each in self.combinations]
        means = self.surrogate.means_of([self.best, *plains])
        is_far = [
            plain in self.evidence.means
            and mean > means[0] + FAR_MODEL
            and model != self.best.model
            for model, (plain, mean) in enumerate(zip(plains, means[1:], strict=True))
        ]
        for far in (False, True):
            rows = [
                each.singles()
                for each, it in zip(self.combinations, is_far, strict=True)
                if it == far
            ]
            for row in zip_longest(*rows):
                yield from filter(None, row)

    def near_best(self) -> list[Candidate]:
        """Return the candidates that are thought of: single choices, those that differ from one of
        the best in one dimension, and those that join two of them."""
        found = dict.fromkeys(self.singles())
        for combinations in self.combinations:
            best = [each for each in self.measured if each.model == combinations.model][:BEAM]
            best.append(self.climb(best[0] if best else combinations.plain))
            for each in best:
                found |= dict.fromkeys(combinations.neighbours(each))
                found |= dict.fromkeys(combinations.join(each, other) for other in best)
        return [each for each in found if self.is_new(each) and self.has_basis(each)]

    def has_basis(self, candidate: Candidate) -> bool:
        """Return whether its choices were seen to work, or one was not and it was measured without
        that one: else nobody knows what a failure is due to."""
        unknown = self.evidence.unknown(candidate)
        others = tuple(each for each in candidate.choices if each not in unknown)
        return not unknown or (
            len(unknown) == 1 and replace(candidate, choices=others) in self.evidence.means
        )

    def climb(self, candidate: Candidate) -> Candidate:
        """Return the candidate from which no step in one dimension leads to a better one, as far as
        is expected of them."""
        combinations = self.combinations[candidate.model]
        while True:
            near = [candidate, *combinations.neighbours(candidate)]
            near = [near[0], *(it for it in near[1:] if not self.is_excluded(it))]
            index = int(np.argmin(self.costs_of(near)))
            if index == 0:
                return candidate
            candidate = near[index]

    def most_promising(
        self,
        candidates: Sequence[Candidate],
        room: int,
        least_chance: float,
        *,
        is_ready: bool = True,
    ) -> list[Candidate]:
        """Return so many of the candidates that have their caches, or have not, each of which gains
        most beside those before it. Those that can hardly win by the margin are left out."""
        able = [each for each in candidates if self.is_ready(each) == is_ready]
        outlook = self.surrogate.expect([self.best, *able])
        covariances = outlook.covariances.copy()
        noise = 2 * self.surrogate.noise**2
        is_left = np.ones(len(able) + 1, dtype=bool)
        is_left[0] = False
        picked: list[Candidate] = []
        while len(picked) < room and is_left.any():
            now = Outlook(outlook.candidates, outlook.means, covariances)
            index = int(np.argmax(np.where(is_left, now.gains(), -math.inf)))
            if now.chances(self.margin)[index] < least_chance:
                break
            is_left[index] = False
            if self.is_valid(able[index - 1]):
                picked.append(able[index - 1])
                column = covariances[:, index].copy()
                covariances -= np.outer(column, column) / (column[index] + noise)
        return picked

    # Searches of an engine

    def can_search(self, candidate: Candidate, left: float) -> bool:
        """Return whether the caches that a candidate lacks can be filled in the time that is
        left."""
        missing = self.missing_caches(candidate)
        if not missing or any(key in self.evidence.searches for key in missing):
            return False
        limit = self.search_limit(candidate, left)
        known = [
            trial
            for key, trial in self.evidence.searches.items()
            if any(key.model == it.model and key.choice == it.choice for it in missing)
        ]
        for trial in known:
            if trial.rows[0].status != "ok" and limit < LONGER * trial.seconds:
                return False
        part = LONGER if known else LEAST_PART
        return limit >= part * self.search_seconds(candidate)

    def missing_caches(self, candidate: Candidate) -> list[CacheKey]:
        """Return the caches that a candidate needs and that are not filled."""
        keys = self.combinations[candidate.model].cache_keys(candidate)
        return [key for key in keys if not self.evidence.has_cache(key)]

    def search_seconds(self, candidate: Candidate) -> float:
        """Return how long the searches of a candidate may take: as long as those of the same
        choices, else a guess by the plain run."""
        found = 0.0
        for key in self.missing_caches(candidate):
            known = [
                trial.seconds
                for other, trial in self.evidence.searches.items()
                if (other.model, other.choice) == (key.model, key.choice)
                and trial.rows[0].status == "ok"
            ]
            guess = LEAST_SEARCH_SECONDS + SEARCH_ITERATIONS * self.plain_seconds(key.model)
            usual = max(known, default=guess)
            begun = self.evidence.begun_seconds.get(key, 0.0)
            found += max(min(usual, LEAST_SEARCH_SECONDS), usual - begun)
        return found

    def search_limit(self, candidate: Candidate, left: float) -> float:
        """Return how long a search may take: what is found must still be measured; it may hang."""
        usual = self.search_seconds(candidate)
        measured = Step("race", (BASELINE, BASELINE, BASELINE), 0.0)
        able = left - TRIALS_AFTER_SEARCH * self.seconds_of(measured)
        return min(able, max(MOST_PART * usual, LEAST_LIMIT))

    # Times

    def plain_seconds(self, model: int) -> float:
        """Return how long an iteration of the plain run of a model takes; 0 if it is not known."""
        plain = Candidate(model=model)
        times = [
            seconds
            for trial in self.evidence.trials
            for row in trial.rows
            if row.candidate == plain and (seconds := score_of_process("latency", row))
        ]
        return min(times, default=0.0)

    def load_seconds(self, candidate: Candidate, name: str) -> float:
        """Return how long a candidate takes to load, by a choice that is measured there: as the one
        of those loaded with it that took least, as others load beside them; else it is tried alone
        first, if a guess allows it."""
        known = [
            row.load_seconds
            for trial in self.evidence.trials
            for row in trial.rows
            if row.load_seconds is not None
            and row.candidate.model == candidate.model
            and name in row.candidate.choices
        ]
        if known:
            return min(known)
        is_alone = candidate.choices == (name,)
        plain_seconds = self.plain_seconds(candidate.model)
        return LOAD_ITERATIONS * plain_seconds if is_alone and plain_seconds else math.inf

    def turn_seconds(self, count: int) -> float:
        """Return how long a trial of so many candidates measures: half as long as it takes to start
        them, or so long that percentiles are known."""
        trials = [it for it in self.evidence.trials if it.kind in TIMED and it.rows]
        if not trials:
            return FIRST_SECONDS
        starts = [max(0.0, it.seconds - seconds_measured(it)) / len(it.rows) for it in trials]
        wanted = count * math.fsum(starts) / len(starts) / 2
        most = MOST_SECONDS
        if self.request.objective == "p99":
            wanted = max(wanted, count * ITERATIONS_FOR_P99 * self.plain_seconds(BASELINE.model))
            most = max(most, self.request.budget_seconds / 20)
        return min(max(wanted, LEAST_SECONDS), most)

    def seconds_of(self, step: Step) -> float:
        """Return how long a step will take, as those before it did."""
        if step.kind == "search":
            return step.seconds
        return (FIXED_PART + len(step.candidates)) * self.seconds_per_row(step.kind)

    def seconds_per_row(self, kind: TrialKind) -> float:
        """Return how long a trial takes for each of its candidates, beside the fixed part; 0 if it
        is not known."""
        for kinds in ((kind,), TIMED):
            trials = [it for it in self.evidence.trials if it.kind in kinds and it.rows]
            if trials:
                rows = math.fsum(FIXED_PART + len(it.rows) for it in trials)
                return math.fsum(it.seconds for it in trials) / rows
        return 0.0

    @property
    def seconds_to_confirm(self) -> float:
        """Return the time that is kept for a winner to be confirmed."""
        pair = Step("confirm", (BASELINE, BASELINE), 0.0)
        return min(FIRST_LOOK * self.seconds_of(pair), self.request.budget_seconds / 2)

    def shorten(self, step: Step, left: float) -> Step | None:
        """Return a step with as many of its candidates as there is time for; None if there is none
        for any."""
        if self.seconds_of(step) <= left or not self.evidence.trials:
            return step
        least = 2 if self.best == BASELINE else 3
        room = left / self.seconds_per_row(step.kind) - FIXED_PART
        count = int(room) if step.kind != "search" else 0
        if count < least:
            return None
        return replace_candidates(step, step.candidates[:count])


def replace_candidates(step: Step, candidates: Iterable[Candidate]) -> Step:
    """Return a step with other candidates, for a part of the time."""
    chosen = tuple(candidates)
    return step._replace(
        candidates=chosen, seconds=step.seconds * len(chosen) / len(step.candidates)
    )


def seconds_measured(trial: Trial) -> float:
    """Return how long the timed iterations of a trial took."""
    return math.fsum(math.fsum(turn.samples.end_to_end) for row in trial.rows for turn in row.turns)
