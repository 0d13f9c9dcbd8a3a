"""Two runs joined on their operators: what each took in an iteration, and whether the difference
is more than the iterations scatter.

All figures are means over the timed iterations, so that runs of different length compare.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from lar.errors import UsageError
from lar.profiles.activities import device_times_of, host_activities_of
from lar.profiles.differences import Difference, difference_of
from lar.records.profile import Profile

Metric = Literal["calls", "host", "self_host", "device", "self_device"]
Side = Literal["both", "baseline", "experiment"]
METRICS: tuple[Metric, ...] = ("calls", "host", "self_host", "device", "self_device")
CONFIDENCE = 0.95

# An operator's part in one run: of each metric a value for each iteration, durations in
# nanoseconds; None where the run has no such figure.
Samples = Mapping[Metric, Sequence[float] | None]


@dataclass(frozen=True)
class DiffRow:
    """An operator or a type, and the runs that have it (`side`). The difference of a metric is None
    if one run lacks the metric; a run without the operator took 0 calls and 0 time."""

    name: str
    type: str
    side: Side
    values: Mapping[Metric, Difference | None]


@dataclass(frozen=True)
class Diff:
    """The rows in the order of the graphs, their sum, and the iterations' own durations."""

    rows: tuple[DiffRow, ...]
    total: DiffRow
    iteration: Difference


def check_timed(baseline: Profile, experiment: Profile) -> None:
    """Check that two runs can be compared.

    Raises:
        UsageError: one of them has no timed iterations.
    """
    for which, profile in (("first", baseline), ("second", experiment)):
        if not profile.timed_steps():
            raise UsageError(
                f"the {which} profile has no timed iterations, and there is nothing to compare",
                "make it with --iter 2 or more",
            )


def main_metric_of(baseline: Profile, experiment: Profile) -> Metric:
    """Return the durations that matter: the device's where both runs have one."""
    return "device" if baseline.on_device and experiment.on_device else "host"


def describe_run(profile: Profile) -> str:
    facts, count = profile.facts, len(profile.timed_steps())
    engine = " ".join(part for part in (facts.engine, facts.engine_version, facts.device) if part)
    return f"{facts.model.path or 'unnamed model'} on {engine}, {count} iterations"


def caveats_of(baseline: Profile, experiment: Profile) -> list[str]:
    """Return what the figures leave open, a line each."""
    lines = []
    if baseline.on_device != experiment.on_device:
        lines.append(
            "one run was on a device and the other was not: the host's durations are of "
            "dispatching in the one and of computing in the other"
        )
    lines.append(
        "the machine may have been in another state during the other run, which no interval tells"
    )
    return lines


def diff_of(
    baseline: Profile,
    experiment: Profile,
    group_by: str = "name",
    accepts: Callable[[str, str], bool] = lambda name, type: True,
) -> Diff:
    """Compare the operators of two runs, or their types; both must have timed iterations.

    `accepts` takes an operator's name and type.
    """
    first, second = samples_of(baseline), samples_of(experiment)
    if group_by == "type":
        pairs = pairs_of_types(baseline, experiment)
    else:
        pairs = pairs_of_operators(baseline, experiment)
    chosen: list[Pair] = []
    for name, type, left, right in pairs:
        left = [n for n in left if n in first and accepts(baseline.operators[n].name, type)]
        right = [n for n in right if n in second and accepts(experiment.operators[n].name, type)]
        if left or right:
            chosen.append((name, type, left, right))
    # The interval of each row is as wide as lets all of them hold together with the confidence.
    confidence = 1 - (1 - CONFIDENCE) / max(1, len(chosen))

    def row_of(pair: Pair, confidence: float) -> DiffRow:
        name, type, left, right = pair
        one = sum_of_samples([first[number] for number in left], baseline)
        two = sum_of_samples([second[number] for number in right], experiment)
        side: Side = "both" if left and right else "baseline" if left else "experiment"
        values = {metric: difference_of(one[metric], two[metric], confidence) for metric in METRICS}
        return DiffRow(name, type, side, values)

    everything: Pair = (
        "Total",
        "",
        [number for _, _, left, _ in chosen for number in left],
        [number for _, _, _, right in chosen for number in right],
    )
    iteration = difference_of(durations_of(baseline), durations_of(experiment), CONFIDENCE)
    assert iteration is not None, "checked by the caller"
    return Diff(
        tuple(row_of(pair, confidence) for pair in chosen),
        row_of(everything, CONFIDENCE),
        iteration,
    )


def durations_of(profile: Profile) -> list[float]:
    return [step.duration_ns for step in profile.timed_steps()]


Pair = tuple[str, str, list[int], list[int]]  # name, type, operators of either run


def pairs_of_types(baseline: Profile, experiment: Profile) -> list[Pair]:
    """Put the operators of each type together."""
    pairs: dict[str, Pair] = {}
    for side, profile in enumerate((baseline, experiment)):
        for number, operator in enumerate(profile.operators):
            pair = pairs.setdefault(operator.type, (operator.type, operator.type, [], []))
            (pair[2], pair[3])[side].append(number)
    return list(pairs.values())


def pairs_of_operators(baseline: Profile, experiment: Profile) -> list[Pair]:
    """Join operators by name, and those left over by type and position among those of the type."""
    names = {operator.name: n for n, operator in reversed([*enumerate(experiment.operators)])}
    twins: dict[int, int] = {}
    taken: set[int] = set()
    for number, operator in enumerate(baseline.operators):
        twin = names.get(operator.name)
        if twin is not None and twin not in taken:
            twins[number] = twin
            taken.add(twin)
    left_over: dict[str, list[int]] = {}
    for number, operator in enumerate(experiment.operators):
        if number not in taken:
            left_over.setdefault(operator.type, []).append(number)
    pairs: list[Pair] = []
    for number, operator in enumerate(baseline.operators):
        waiting = left_over.get(operator.type)
        if number not in twins and waiting:
            twins[number] = waiting.pop(0)
        twin = twins.get(number)
        right = [] if twin is None else [twin]
        name = operator.name
        if twin is not None and experiment.operators[twin].name != name:
            name = f"{name} = {experiment.operators[twin].name}"
        pairs.append((name, operator.type, [number], right))
    for waiting in left_over.values():
        for number in waiting:
            operator = experiment.operators[number]
            pairs.append((operator.name, operator.type, [], [number]))
    return pairs


def samples_of(profile: Profile) -> dict[int, Samples]:
    """Return what each operator that was executed took in each timed iteration."""
    places = {step.number: place for place, step in enumerate(profile.timed_steps())}
    samples: dict[int, dict[Metric, list[float]]] = {}
    times_ns = device_times_of(profile)
    for execution, device_ns in zip(profile.timed_executions(), times_ns, strict=True):
        if (place := places.get(execution.step)) is None:
            continue
        if execution.operator not in samples:
            samples[execution.operator] = {metric: [0.0] * len(places) for metric in METRICS}
        own = samples[execution.operator]
        host_ns = profile.host_ns(execution)
        own["calls"][place] += 1
        own["host"][place] += host_ns
        own["self_host"][place] += host_ns
        own["device"][place] += device_ns
        own["self_device"][place] += device_ns
    activities = host_activities_of(profile)
    for activity in activities:
        parent = activities[activity.parent] if activity.parent >= 0 else None
        if parent is None or parent.operator == activity.operator:
            continue  # an execution within its own dispatch
        place = places.get(parent.step)
        if place is not None and parent.operator in samples:
            samples[parent.operator]["self_host"][place] -= activity.duration_ns
    without = () if profile.on_device else ("device", "self_device")
    return {
        operator: {metric: None if metric in without else own[metric] for metric in METRICS}
        for operator, own in samples.items()
    }


def sum_of_samples(parts: Sequence[Samples], profile: Profile) -> Samples:
    """Return the sums by iteration; of no parts zeros, as many as there are iterations."""
    zeros = [0.0] * len(profile.timed_steps())
    if not parts:
        device = zeros if profile.on_device else None
        return {**dict.fromkeys(METRICS, zeros), "device": device, "self_device": device}
    return {metric: add_samples([part[metric] for part in parts]) for metric in METRICS}


def add_samples(parts: Iterable[Sequence[float] | None]) -> list[float] | None:
    known = [part for part in parts if part is not None]
    return [math.fsum(values) for values in zip(*known, strict=True)] if known else None
