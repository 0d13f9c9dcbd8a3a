"""Measures whether `lar report A B` is right for pairs of profiles with a known answer.

`lar report` must join the operators of profiles with different layouts, levels of optimisation and
engines. The right answer follows from the names of the model's nodes, which are in the names of the
weights that an operator reads and of the tensors that it writes.

`lar report` must call no operator slower or faster if both profiles are of one command. If one
operator is made slower in a profile, `lar report` must call only this operator slower.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec
from disturbance import disturbed
from figures import Outcome, Settings, note, repeat
from processes import LAR, LARGE, MOBILENET, MOBILENET_ONNX, RESNET50, make_large, run_well
from tables import read_sections

from lar.engines import operator_kinds_of_both
from lar.engines.operator_times import read_profile
from lar.graphs.graph import COPY
from lar.graphs.matching import is_generic
from lar.graphs.operator_twins import OperatorPair, match_operators
from lar.profiles.differences import compare_profiles
from lar.records.profile import Profile

SLOWER = 2
SHORTEST_SHARE = 0.005  # least share of an iteration for an operator to slow down
BLOCKED = re.compile("_nchwc$")
OF_WEIGHT = re.compile(r"(.+)\.(weight|bias)")

LEAST_SHARE = 0.95
ITERATIONS = 100
PAIRS = 3  # the fewest pairs of runs that lar judges

# How models for pictures and for texts are profiled: the file's suffix and the flags.
WAYS = read_sections(__file__)


class Joined(NamedTuple):
    """How well the operators of two profiles were joined.

    `share` is the share of the time in operators with a partner. `wrong` are wrong pairs, and
    `missed` are operators without a partner.
    """

    share: float
    wrong: list[str]
    missed: list[str]


def make_profile(model: str | Path, flags: Sequence[str], place: Path, iterations: int) -> Profile:
    """Run a model with `--profile`; return the profile.

    Raises:
        SystemExit: the run did not end well.
    """
    words = ("--iter", str(iterations), "--warmup-iter", "3", "--profile", str(place))
    run_well(LAR, str(model), *flags, *words)
    return read_profile(place)


def labels_of(profile: Profile) -> list[tuple[frozenset[str], frozenset[str]]]:
    """Return, for each operator, the names of the model's nodes that it computes.

    The first set has the nodes whose weights the operator reads, the second set the nodes whose
    results it writes. Both are as complete as the names of tensors allow.
    """
    makers = {key: each for each in profile.operators for key in each.writes}

    def weights_in(key: str, depth: int = 0) -> Iterator[str]:
        if found := OF_WEIGHT.fullmatch(COPY.sub("", key)):
            yield found[1]
        elif key in makers and depth < 4:
            for each in makers[key].reads:
                yield from weights_in(each, depth + 1)

    labels = []
    for operator in profile.operators:
        weights = {name for key in operator.weights for name in weights_in(key)}
        if operator.weights and not weights and BLOCKED.search(operator.name):
            # A weight that the engine has padded has a new name.
            weights = {re.sub("(_relu)?_nchwc$", "", operator.name)}
        given = {operator.names.get(key, COPY.sub("", key)) for key in operator.writes}
        labels.append(
            (frozenset(weights), frozenset(name for name in given if not is_generic(name)))
        )
    return labels


def times_of(profile: Profile) -> list[float]:
    """Return the time of each operator: the median over the iterations, in nanoseconds."""
    found: list[list[int]] = [[] for _ in profile.operators]
    for each in profile.timed_executions:
        found[each.operator].append(profile.host_ns(each))
    return [median(times) if times else 0.0 for times in found]


def judge_joined(profiles: tuple[Profile, Profile], *, hidden: bool = False) -> Joined:
    """Join the operators of two profiles, and compare the pairs with the right answer.

    If `hidden` is true, the names of the second profile are hidden from the code that joins.
    """
    labels, times = [*map(labels_of, profiles)], [*map(times_of, profiles)]
    known = [frozenset().union(*itertools.chain(*side)) for side in labels]
    given = (profiles[0], without_names(profiles[1])) if hidden else profiles
    wrong, missed, right = [], [], 0.0
    for pair in match_operators(*given, operator_kinds_of_both(*profiles)):
        operators = [(side, place) for side, places in enumerate(pair) for place in places]
        if problem := problem_of(pair, labels):
            names = (
                " + ".join(profile.operators[place].name for place in places)
                for profile, places in zip(profiles, pair, strict=True)
            )
            wrong.append(f"{' = '.join(names)}: {problem}")
        elif pair.a and pair.b:
            right += sum(times[side][place] for side, place in operators)
        else:
            # An operator that only one run has, such as a conversion of a layout, needs no partner.
            # Neither does a weight.
            missed += [
                (times[side][place], side, profiles[side].operators[place].name)
                for side, place in operators
                if profiles[side].operators[place].reads
                and not known[1 - side].isdisjoint(frozenset().union(*labels[side][place]))
            ]
    total = right + sum(time for time, _, _ in missed)
    lines = [
        f"{time / 1e3:.0f} us {'AB'[side]} {name}"
        for time, side, name in sorted(missed, reverse=True)
    ]
    return Joined(right / total if total else 1.0, wrong, lines)


def problem_of(
    pair: OperatorPair, labels: Sequence[Sequence[tuple[frozenset[str], frozenset[str]]]]
) -> str:
    """Return why a pair is wrong according to names.

    The text is empty if the names allow the pair, or if the pair has only one side.
    """
    sides = [[labels[side][place] for place in places] for side, places in enumerate(pair)]
    weights = [frozenset().union(*(each[0] for each in side)) for side in sides]
    given = [frozenset().union(*(each[1] for each in side)) for side in sides]
    if all(weights) and weights[0] != weights[1]:
        return f"weights of {sorted(weights[0])} and {sorted(weights[1])}"
    parts = itertools.starmap(is_part, itertools.product(*given))
    if not any(weights) and all(given) and not any(parts):
        return f"{sorted(given[0])} and {sorted(given[1])}"
    return ""


def is_part(one: str, other: str) -> bool:
    """Return whether two names are equal, or one is the name of a part of the other."""
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


def without_names(profile: Profile) -> Profile:
    """Return a profile without the model's names, as from an engine that does not keep names."""
    numbers = itertools.count()
    keys: dict[str, str] = {}

    def hide(key: str) -> str:
        return keys.setdefault(key, f"var_{next(numbers)}")

    operators = tuple(
        msgspec.structs.replace(
            each,
            name=f"{each.type}_{place}",
            module="",
            reads=tuple(map(hide, each.reads)),
            writes=tuple(map(hide, each.writes)),
            weights=tuple(map(hide, each.weights)),
            names={},
        )
        for place, each in enumerate(profile.operators)
    )
    return replace(profile, operators=operators)


def called_different(pairs: Sequence[tuple[Profile, Profile]]) -> list[str]:
    """Return the names of the operators that `lar report` calls slower or faster."""
    found = compare_profiles(pairs, operator_kinds_of_both(*pairs[0]))
    return [it.name for it in found.operators if it.difference and it.difference.is_shown]


def slow_down(profile: Profile, operator: int, factor: float) -> Profile:
    """Return a profile in which every execution of one operator takes longer.

    All later executions in the iteration begin and end later.
    """
    later = 0
    executions, before = [], -1
    for each in profile.executions:
        later = later if each.step == before else 0
        before = each.step
        more = round(each.duration_ns * (factor - 1)) if each.operator == operator else 0
        executions.append(
            msgspec.structs.replace(
                each,
                start_ns=each.start_ns + later,
                end_ns=each.end_ns + later + more,
                dispatch_start_ns=None,
                dispatch_end_ns=None,
            )
        )
        later += more
    return replace(profile, executions=tuple(executions))


def operators_to_slow(profile: Profile) -> list[int]:
    """Return the operators that take at least `SHORTEST_SHARE` of an iteration."""
    times = times_of(profile)
    least = SHORTEST_SHARE * sum(times)
    return [place for place, time in enumerate(times) if time >= least]


def measure_joined(settings: Settings) -> Outcome:
    """Profile three models in all ways, and join each two profiles of a model.

    The models are ResNet50, MobileNetV2 and an encoder. Profiles are joined with names, and with
    the names of one side hidden.
    """
    make_large("encoder")
    least, wrong, pairs = [1.0, 1.0], [0, 0], 0
    for model, ways in (
        (Path(RESNET50).with_suffix(""), "pictures"),
        (Path(MOBILENET).with_suffix(""), "pictures"),
        (LARGE / "encoder", "texts"),
    ):
        made = {}
        for number, (suffix, *flags) in enumerate(map(str.split, WAYS[ways])):
            path = model.with_suffix(f".{suffix}")
            place = settings.folder / f"{path.name}.{number}.json"
            made[" ".join((path.name, *flags))] = make_profile(path, flags, place, 10)
        for one, other in itertools.combinations(made, 2):
            pairs += 1
            for names in ((one, other), (other, one)):
                for hidden in (False, True):
                    joined = judge_joined((made[names[0]], made[names[1]]), hidden=hidden)
                    least[hidden] = min(least[hidden], joined.share)
                    wrong[hidden] += len(joined.wrong)
                    if joined.share < LEAST_SHARE or joined.wrong:
                        about = f"{' | '.join(names)}{' without names' if hidden else ''}"
                        note(f"{about}: {joined.share:.1%}, {joined.wrong}, {joined.missed[:3]}")
    return Outcome(
        f"at least {least[0]:.1%} of the time in {pairs} pairs of profiles, {wrong[0]} wrong; with "
        f"the names of one hidden {least[1]:.1%}, {wrong[1]} wrong",
        min(least) >= LEAST_SHARE and not any(wrong),
    )


def measure_same(settings: Settings) -> Outcome:
    """Profile one command again and again while the machine is disturbed, and compare pairs."""
    called = 0
    for number in repeat(settings):
        with disturbed(settings.seed + number):
            places = [settings.folder / f"same.{number}.{run}.json" for run in range(2 * PAIRS)]
            made = [make_profile(MOBILENET_ONNX, (), place, ITERATIONS) for place in places]
        names = called_different([*zip(made[::2], made[1::2], strict=True)])
        called += bool(names)
        note(f"pair {number}: {names}")
    return Outcome(f"{called} of {settings.repetitions}", called <= settings.repetitions // 20)


def measure_slower(settings: Settings) -> Outcome:
    """Profile one command many times; compare pairs in which one operator was made slower.

    The operator is made slower in the second profile of each pair.
    """
    draw = random.Random(settings.seed)
    flags = ("--multithread", "1")
    made = [
        make_profile(MOBILENET_ONNX, flags, settings.folder / f"slower.{number}.json", ITERATIONS)
        for number in range(4 * PAIRS)
    ]
    found = alone = 0
    for number in repeat(settings):
        # Two successive runs make a pair, as when runs are made in turns.
        chosen = draw.sample([*zip(made[::2], made[1::2], strict=True)], PAIRS)
        turned = [draw.sample(pair, 2) for pair in chosen]
        operator = draw.choice(operators_to_slow(made[0]))
        name = made[0].operators[operator].name
        pairs = [(one, slow_down(two, operator, SLOWER)) for one, two in turned]
        names = called_different(pairs)
        found += name in names
        alone += names == [name]
        note(f"{number}: {name}, called: {names}")
    return Outcome(
        f"{found} of {settings.repetitions}, {alone} with no other named, in {PAIRS} pairs of runs",
        alone >= 0.9 * settings.repetitions,
    )
