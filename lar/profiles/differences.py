"""Compares two commands by pairs of their profiles: their iterations and operators.

Each profile is from one process. Three pairs or more can show that times differ
(`lar.measurement.differences`). One pair is too few for a verdict, and only shows the times.

`contrasts_of` finds how the runs themselves differ: model, options, versions, machine.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import median
from typing import NamedTuple

from lar.errors import UsageError
from lar.graphs import OperatorKinds
from lar.graphs.operator_twins import OperatorPair, match_operators
from lar.measurement.differences import (
    FEWEST_DEGREES,
    Spread,
    compare_pairs,
    spread_of,
    usual_spread,
)
from lar.options.command_line import text_of
from lar.options.option import flag_of, is_set
from lar.options.table import BY_KEY, DRIVER, ENGINE, ITER, STALL_TIMEOUT, TIMEOUT, WARMUP_ITER
from lar.profiles.rows import rows_of
from lar.profiles.times import CLOCK_STEP_NS, iteration_times_of, operators_matching
from lar.records.profile import Profile, ProfiledOperator
from lar.records.summary import Difference

# Facts that change between runs of one command on one machine.
CHANGING = frozenset({"load"})

# Facts that may differ between runs of one command.
AMOUNTS = frozenset({"iterations", "warm-up iterations", "lar"})
NOTHING = "-"
MOST_WORDS = 12

# Options that other facts of a run already show, or that do not change its times.
LEFT_OUT = frozenset(
    each.key for each in (ITER, WARMUP_ITER, ENGINE, DRIVER, TIMEOUT, STALL_TIMEOUT)
)


class Contrast(NamedTuple):
    """A fact that differs between two runs, with both values as strings."""

    what: str
    a: str
    b: str


def contrasts_of(a: Profile, b: Profile) -> list[Contrast]:
    """Return the facts that differ, in the order: model, engine, options, amounts, machine.

    A fact of the machine that only one run has recorded is left out, since older versions of lar
    recorded fewer facts.
    """
    recorded = a.facts.machine.keys() & b.facts.machine.keys()
    first, second = (facts_of(profile, recorded - CHANGING) for profile in (a, b))
    return [
        Contrast(name, *without_common_words(first.get(name, NOTHING), second.get(name, NOTHING)))
        for name in {**first, **second}
        if first.get(name) != second.get(name)
    ]


def without_common_words(one: str, other: str) -> tuple[str, str]:
    """Return two strings; if both are long lists of words, their common words are left out.

    For example, the lists of two processors' instruction sets have many common words.
    """
    words = one.split(), other.split()
    if min(map(len, words)) <= MOST_WORDS:
        return one, other
    common = {*words[0]} & {*words[1]}
    first, second = (" ".join(it for it in each if it not in common) or NOTHING for each in words)
    return first, second


def are_of_one_command(a: Profile, b: Profile) -> bool:
    """Return whether two runs differ at most in their numbers of iterations or version of lar."""
    return all(each.what in AMOUNTS for each in contrasts_of(a, b))


def facts_of(profile: Profile, recorded: Collection[str]) -> dict[str, str]:
    """Return the known facts of a run that may differ in another run.

    `recorded` names the facts of the machine to return: the facts that both runs have recorded.
    """
    facts = profile.facts
    options = {
        flag_of(key): "given" if value is True else value
        for key, value in facts.options.items()
        if is_set(value) and is_about_computing(key)
    }
    machine = {name: value for name, value in facts.machine.items() if name in recorded}
    variables = facts.machine.get("variables", {}) if machine.pop("variables", None) else {}
    found: dict[str, object] = {
        "model": facts.model.path,
        "content of the model": facts.model.sha256[:12],
        "engine": facts.engine,
        "version of the engine": facts.engine_version,
        "driver": facts.driver,
        "device": facts.device,
        "lar": facts.lar_version,
        **options,
        "batch": facts.batch,
        "threads": facts.threads,
        "iterations": facts.iterations,
        "warm-up iterations": facts.warmup_iterations,
        **{f"machine: {name.replace('_', ' ')}": value for name, value in machine.items()},
        **{f"${name}": text for name, text in variables.items()},
    }
    return {name: text_of(it) for name, it in found.items() if it not in (None, "", ())}


def is_about_computing(key: str) -> bool:
    """Return whether an option may change the computation, and not only reports or files."""
    option = BY_KEY.get(key)
    if option is None:
        return True
    is_output = bool(option.writes) or option.purpose in ("profile", "report")
    return not is_output and key not in LEFT_OUT


MOST_NAMES = 3
WITHIN_A_STEP = "the change is within a step of the clock"


class Use(NamedTuple):
    """The executions of an operator in an iteration, and their time in nanoseconds."""

    calls: float
    time_ns: float


@dataclass(frozen=True)
class ComparedTimes:
    """The times of the same work in each process of A and of B, in nanoseconds.

    A side that does not do this work has no times. `calls` are counted per iteration. `difference`
    is the difference that the pairs of processes show, or None if only one side does the work.
    """

    name: str
    type: str
    times_ns: tuple[Sequence[float], Sequence[float]]
    calls: tuple[float, float] = (1, 1)
    difference: Difference | None = None

    @property
    def a_ns(self) -> float:
        return median(self.times_ns[0] or [0.0])

    @property
    def b_ns(self) -> float:
        return median(self.times_ns[1] or [0.0])

    @property
    def change_ns(self) -> float:
        return self.b_ns - self.a_ns

    @property
    def change_percent(self) -> float | None:
        """The change in percent of A's time, or None if A has no time."""
        return 100 * self.change_ns / self.a_ns if self.a_ns else None

    @property
    def is_of_both(self) -> bool:
        return all(self.times_ns)


@dataclass(frozen=True)
class ComparedProfiles:
    """The compared iterations, the compared operators in A's order, and sums of operators.

    `total` is the sum of all operators, `shared` the sum of the operators that both sides have. The
    iterations of the plain runs, which are not profiled, are compared. If any profile has no
    plain run, the profiled iterations of all profiles are compared.
    """

    iteration: ComparedTimes
    operators: tuple[ComparedTimes, ...]
    total: ComparedTimes
    shared: ComparedTimes

    @property
    def is_judged(self) -> bool:
        """Whether there are enough pairs for a verdict."""
        rows = (self.iteration, *self.operators)
        return any(it.difference and it.difference.verdict != "not judged" for it in rows)


def compare_profiles(
    pairs: Sequence[tuple[Profile, Profile]],
    kinds: tuple[OperatorKinds, OperatorKinds],
    group_by: str = "name",
    pattern: str = "",
) -> ComparedProfiles:
    """Compare the iterations of two commands, and their operators, types or modules.

    `pairs` are profiles of A and B that were made alternately: a profile of A, a profile of B, and
    so on. Only operators whose name or type matches `pattern` are compared. `kinds` are the
    operator kinds of the engines of A and B.

    Raises:
        UsageError: a profile has no timed iterations, or is of another command than the first
            profile of its side.
    """
    a, b = pairs[0]
    sides = [*zip(*pairs, strict=True)]
    for own in sides:
        for each in own:
            check_comparable(own[0], each)
    uses = [
        [uses_like(own[0], each, kind) for each in own]
        for own, kind in zip(sides, kinds, strict=True)
    ]
    shown = [operators_matching(side, pattern) for side in (a, b)]
    joined = [*match_operators(a, b, kinds)]
    chosen = [
        pair
        for pair in joined
        if any(own.intersection(places) for own, places in zip(shown, pair, strict=True))
    ]
    rows = [
        add_up(name, type, pair, uses) for name, type, pair in grouped(chosen, (a, b), group_by)
    ]
    rows = [row for row in rows if any(row.times_ns)]
    ratios = [*filter(None, map(log_ratios, rows))]
    usual = usual_spread(ratios) if len(pairs) > FEWEST_DEGREES else None
    kind, times = "plain", [[plain_ns(each) for each in own] for own in sides]
    if not all(map(all, times)):
        kind, times = "profiled", [[median(iteration_times_of(it)) for it in own] for own in sides]
    return ComparedProfiles(
        judged(ComparedTimes(f"{kind} iteration", "", (times[0], times[1]))),
        tuple(judged(row, usual, len(ratios), CLOCK_STEP_NS) for row in rows),
        add_up("all operators", "", merged(joined), uses),
        add_up("operators of both", "", merged([pair for pair in joined if all(pair)]), uses),
    )


def check_comparable(first: Profile, other: Profile) -> None:
    """Check that the profile `other` has timed iterations and the same command as `first`.

    Raises:
        UsageError: the profile has no timed iterations, or is of another command.
    """
    about = f"a profile of {other.facts.model.path}"
    if not other.timed_steps():
        raise UsageError(
            f"{about} has no timed iterations, and there is nothing to compare",
            "run again with --iter 2 or more",
        )
    if not are_of_one_command(first, other):
        raise UsageError(
            f"{about} and the first profile of the same side come from different commands",
            "give profiles of side A and of side B in turn: A B A B",
        )


def plain_ns(profile: Profile) -> float:
    """Return the median nanoseconds of an iteration without profiling; 0 if it was not measured.

    Only undisturbed iterations are used if enough iterations were undisturbed.
    """
    cost = profile.facts.cost
    return max(0.0, 1e9 * cost.calm[1]) if cost else 0.0


def uses_like(first: Profile, profile: Profile, kinds: OperatorKinds) -> Mapping[int, Use]:
    """Return how often and how long each operator of `profile` runs, by its index in `first`.

    `first` and `profile` are profiles of the same command. Each operator of `profile` is matched
    with the operator of `first` that does the same work.
    """
    uses = uses_of(profile)
    if profile is first:
        return uses
    twins = {
        place: original
        for pair in match_operators(first, profile, (kinds, kinds))
        for original, place in zip(pair.a, pair.b, strict=False)
    }
    return {twins[place]: use for place, use in uses.items() if place in twins}


def uses_of(profile: Profile) -> Mapping[int, Use]:
    """Return how often and how long each operator runs in an iteration, without inner operators."""
    steps = len(profile.timed_steps())
    return {
        place: Use(row.times.calls / steps, row.iteration_ns)
        for row in rows_of(profile)
        for place in row.operators
    }


def grouped(
    joined: Sequence[OperatorPair], sides: tuple[Profile, Profile], group_by: str
) -> Iterator[tuple[str, str, OperatorPair]]:
    """Yield the name, the type and the operators of each row."""
    groups: dict[str, list[OperatorPair]] = {}
    for pair in joined:
        operators = [operators_at(*each) for each in zip(sides, pair, strict=True)]
        heads = [
            max(own, key=lambda it: (it.flops or 0, it.size_bytes or 0)) for own in operators if own
        ]
        type = joined_title(head.type for head in heads)
        if group_by == "name":
            yield joined_title(name_of(own) for own in operators if own), type, pair
        else:
            title = type if group_by == "type" else heads[0].module or "(no module)"
            groups.setdefault(title, []).append(pair)
    for title, own in groups.items():
        yield title, "", merged(own)


def operators_at(profile: Profile, places: Iterable[int]) -> list[ProfiledOperator]:
    return [profile.operators[place] for place in places]


def name_of(operators: Sequence[ProfiledOperator]) -> str:
    """Return the names of operators, joined into one string; if many, only the first few."""
    names = [*dict.fromkeys(each.name for each in operators)]
    if len(names) > MOST_NAMES:
        names[MOST_NAMES - 1 :] = [f"{len(names) - MOST_NAMES + 1} more"]
    return " + ".join(names)


def joined_title(titles: Iterable[str]) -> str:
    return " = ".join(dict.fromkeys(titles))


def merged(pairs: Sequence[OperatorPair]) -> OperatorPair:
    """Return one pair with the operators of several pairs; a pair has operators of A and of B."""
    sides = (chain.from_iterable(pair[side] for pair in pairs) for side in (0, 1))
    return OperatorPair(*map(tuple, sides))


def add_up(
    name: str, type: str, pair: OperatorPair, uses: Sequence[Sequence[Mapping[int, Use]]]
) -> ComparedTimes:
    """Return the sum of operators' times in each process.

    `uses` has, for each process of A and of B, how often and how long each operator runs.
    """
    times, calls = [], []
    for places, own in zip(pair, uses, strict=True):
        used = [[each[place] for place in places if place in each] for each in own]
        is_used = any(used)
        times.append([math.fsum(it.time_ns for it in each) for each in used] if is_used else [])
        calls.append(median(math.fsum(it.calls for it in each) for each in used))
    return ComparedTimes(name, type, (times[0], times[1]), (calls[0], calls[1]))


def judged(
    times: ComparedTimes, usual: Spread | None = None, comparisons: int = 1, step_ns: float = 0.0
) -> ComparedTimes:
    """Return compared times, completed with the difference that the pairs of processes show.

    `usual` is the usual spread of operators' times. If the spread of `times` is larger than
    `usual`, the spread of `times` is used. A difference must exceed one step of the clock for each
    call, since times in whole steps may agree in all processes by chance.
    """

    own = spread_of(log_ratios(times))
    if usual and own:
        usual = replace(usual, deviation=max(usual.deviation, own.deviation))

    def compare(step: float) -> Difference | None:
        ratios = [[ratio] for ratio in log_ratios(times, step)]
        return compare_pairs(ratios, usual=usual, comparisons=comparisons, once=True)

    found = compare(0.0)
    if found and found.is_shown:
        nearer = compare(step_ns * max(times.calls))
        if not nearer or nearer.verdict != found.verdict:
            found = replace(found, verdict="not judged", reason=WITHIN_A_STEP)
    return replace(times, difference=found)


def log_ratios(times: ComparedTimes, step: float = 0.0) -> list[float]:
    """Return the log of B's time divided by A's time for each pair; empty if any time is 0.

    Before the division, B's time is moved towards A's time by up to `step` nanoseconds.
    """
    pairs = [*zip(*times.times_ns, strict=False)]
    if not all(a > 0 and b > 0 for a, b in pairs):
        return []
    return [math.log((max(a, b - step) if b > a else min(a, b + step)) / a) for a, b in pairs]
