"""Algorithms that compete for an operator, judged by the processes in which they were timed.

Each process has one of an operator's algorithms. What is compared is its time over that of the
algorithm which the cache chooses, in a process that computes in turns with it: one value for each
pair of processes, as in `lar bench`. A wrong choice of one operator costs little, and the whole
model is measured in the end: the probability of a wrong "faster" is kept for each operator, not for
all together.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lar.engines.engine import CachedOperator
from lar.measurement.differences import compare_pairs, is_look, trimmed_mean
from lar.measurement.statistics import percentile_of
from lar.records.algorithms import TimedOperator, TriedAlgorithm
from lar.records.run import Failure
from lar.records.summary import Difference

# The operators that make so much of the time are timed, with at most so many algorithms each, none
# of which the search has found slower than this.
SHARE_THAT_MATTERS = 0.95
MOST_RIVALS = 6
SLOWEST = 2.0
# An algorithm that is so much slower in each process, of so many, is not measured any more.
MUCH_SLOWER = {1: 1.5, 2: 1.15}
# Part of the time of all operators; who cannot save so much need not be measured any longer.
LEAST_GAIN = 0.001


@dataclass(eq=False)
class Rival:
    """An algorithm that competes with the one that the cache has chosen, as far as it is timed.

    `log_ratios` has the logarithm of its time over that of the choice, a list for each process.
    """

    name: str
    search_seconds: float
    log_ratios: list[list[float]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    difference: Difference | None = None
    failure: Failure | None = None
    is_decided: bool = False
    is_much_slower: bool = False
    looked: int = 0  # at so many processes
    shown: bool = False  # faster or slower, at a look that counts

    @property
    def is_faster(self) -> bool:
        return (
            self.failure is None
            and self.shown
            and self.difference is not None
            and self.difference.verdict == "faster"
        )


@dataclass(eq=False)
class Contest:
    """An operator and the algorithms that compete for it.

    `is_apart` says that the operator can be told apart from others in a profile; where it cannot,
    an algorithm is judged by the time of the whole model in which it alone is another one.
    """

    operator: CachedOperator
    share: float
    rivals: list[Rival]
    is_apart: bool = True
    seconds: list[float] = field(default_factory=list)

    @property
    def undecided(self) -> list[Rival]:
        return [rival for rival in self.rivals if not rival.is_decided]

    @property
    def winner(self) -> Rival | None:
        """The fastest of those that are shown to be faster; None where the choice stays."""
        faster = [rival for rival in self.rivals if rival.is_faster]
        return min(faster, key=ratio_of, default=None)


def proofs_of(contests: Iterable[Contest], choices: Mapping[str, str]) -> dict[str, float]:
    """Return the seconds of the choices that were measured to the end, by the operator's key: those
    that are shown to be faster, and those that stay where every rival is decided.

    An operator that cannot be told apart has no time of its own.
    """
    found = {}
    for contest in contests:
        name, winner = choices.get(contest.operator.key), contest.winner
        times: list[float] = []
        if winner is not None and winner.name == name:
            times = winner.seconds
        elif name is None and winner is None and not contest.undecided:
            times = contest.seconds
        if contest.is_apart and times:
            found[contest.operator.key] = statistics.median(times)
    return found


def ratio_of(rival: Rival) -> float:
    return rival.difference.ratio if rival.difference else math.inf


def make_contests(
    operators: Iterable[CachedOperator],
    shares: Mapping[str, float],
    indistinct: Iterable[str] = (),
) -> list[Contest]:
    """Return the operators that matter and have other algorithms, the one with the largest share
    of the time first; `shares` and `indistinct` are by key."""
    unknown = set(indistinct)
    ordered = sorted(operators, key=lambda each: -shares.get(each.key, 0.0))
    contests, covered = [], 0.0
    for operator in ordered:
        share, is_apart = shares.get(operator.key, 0.0), operator.key not in unknown
        if is_apart and (not share or covered >= SHARE_THAT_MATTERS):
            continue
        covered += share
        if rivals := rivals_of(operator):
            contests.append(Contest(operator, share, rivals, is_apart))
    return contests


def rivals_of(operator: CachedOperator) -> list[Rival]:
    """Return the algorithms that may be faster than the choice, the best of the search first."""
    if not operator.algorithms:
        return []
    chosen, *others = operator.algorithms
    limit = SLOWEST * max(chosen.seconds, min(each.seconds for each in operator.algorithms))
    near = sorted((it for it in others if it.seconds <= limit), key=lambda each: each.seconds)
    return [Rival(each.name, each.seconds) for each in near[:MOST_RIVALS]]


def lanes_of(contests: Iterable[Contest], most: int) -> list[dict[str, Rival]]:
    """Return what the processes of a round run: for each a rival of as many operators as possible,
    by the operator's key; the others take the cache's choice.

    `most` processes have rivals of all operators that can be told apart; each rival of another
    operator has a process of its own.
    """
    lanes: list[dict[str, Rival]] = []
    alone: list[dict[str, Rival]] = []
    for contest in contests:
        key = contest.operator.key
        if not contest.is_apart:
            alone += [{key: rival} for rival in contest.undecided]
            continue
        for place, rival in enumerate(contest.undecided[:most]):
            if place == len(lanes):
                lanes.append({})
            lanes[place][key] = rival
    return lanes + alone


def judge(contest: Contest, *, final: bool = False) -> None:
    """Decide which rivals need not be measured any longer; the last look is `final`."""
    for rival in contest.undecided:
        rival.is_much_slower = rival.is_decided = is_much_slower(rival)
    # Those that are out can no longer be taken for faster by chance.
    left = [it for it in contest.rivals if not (it.is_much_slower or it.failure)]
    for rival in [it for it in contest.rivals if it.is_much_slower or not it.is_decided]:
        found = compare_pairs(rival.log_ratios, comparisons=max(1, len(left)))
        rival.difference = found
        if found is None or rival.is_much_slower:
            continue
        at_look = found.processes > rival.looked and is_look(found.processes)
        if at_look or final:
            rival.looked = found.processes
            rival.shown = found.is_shown
        best = found.interval.low if found.interval else 0.0
        smallest = found.smallest_detectable
        is_precise = smallest is not None and contest.share * smallest < LEAST_GAIN
        cannot_gain = contest.share * (1 - best) < LEAST_GAIN
        rival.is_decided = rival.shown or is_precise or cannot_gain


def is_much_slower(rival: Rival) -> bool:
    """Return whether a rival is so much slower that more processes would not help it."""
    centres = [trimmed_mean(each) for each in rival.log_ratios if each]
    return any(
        len(centres) >= processes and min(centres) > math.log(ratio)
        for processes, ratio in MUCH_SLOWER.items()
    )


Try = Callable[[Mapping[str, str]], Failure | None]
"""Runs the model with choices; why that fails, or None."""


def find_faulty(
    choices: Mapping[str, str],
    failure: Failure,
    try_choices: Try,
    is_late: Callable[[], bool] = lambda: False,
) -> dict[str, Failure]:
    """Return which of the choices are at fault for a failure, by key, each with its own.

    Halves are tried alone. Where both do well and fail only together, the second half is left out
    with the failure of all. Once it is late nothing more is tried, and all that may be at fault is
    left out.
    """
    if len(choices) == 1:
        return dict.fromkeys(choices, failure)
    if is_late():
        return dict.fromkeys(choices, failure.within("it or another that was tried with it"))
    items = list(choices.items())
    halves = [dict(items[: len(items) // 2]), dict(items[len(items) // 2 :])]
    found: dict[str, Failure] = {}
    for half in halves:
        own = failure if is_late() else try_choices(half)
        if own is not None:
            found.update(find_faulty(half, own, try_choices, is_late))
    return found or dict.fromkeys(halves[1], failure)


def describe_contest(contest: Contest, chosen: str) -> TimedOperator:
    """Return the record of an operator, whose choice is now the algorithm of that name."""
    before = contest.operator.algorithms[0]
    return TimedOperator(
        name=contest.operator.name,
        shapes=contest.operator.shapes,
        share=contest.share,
        before=before.name,
        after=chosen,
        search_seconds=before.seconds,
        seconds=median_of(contest.seconds),
        tried=tuple(
            TriedAlgorithm(
                name=rival.name,
                search_seconds=rival.search_seconds,
                seconds=median_of(rival.seconds),
                difference=rival.difference,
                verdict=verdict_of(rival),
                failure=rival.failure,
                processes=len(rival.log_ratios),
            )
            for rival in contest.rivals
        ),
    )


def verdict_of(rival: Rival) -> str:
    """Return what was found of a rival."""
    if rival.failure is not None:
        return "out"
    if rival.is_much_slower:
        return "much slower"
    if rival.difference is None:
        return "too few processes" if rival.log_ratios else "not timed"
    if rival.shown:
        return rival.difference.verdict
    interval = rival.difference.interval
    return "not faster" if interval and interval.low >= 1 else "no difference shown"


def median_of(values: Sequence[float]) -> float | None:
    return percentile_of(sorted(values), 50) if values else None
