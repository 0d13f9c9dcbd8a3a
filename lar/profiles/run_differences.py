"""Two runs joined on their operators: what each took in an iteration, and what several pairs of
runs show of it.

Times are medians over the timed iterations, so that runs of different length compare and an
iteration that something disturbed does not count for more than it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_in
from statistics import median
from typing import TYPE_CHECKING, Literal

import msgspec

from lar.errors import UsageError
from lar.measurement.statistics import FEWEST_UNDISTURBED
from lar.profiles.activities import device_times_of, host_activities_of
from lar.profiles.differences import Change
from lar.profiles.disturbance import disturbed_executions, disturbed_steps, is_recorded
from lar.profiles.operator_verdicts import Pairs, judge_iterations, judge_operators
from lar.profiles.run_contrast import are_of_one_command, contrasts_of
from lar.profiles.times import iteration_times_of
from lar.profiles.totals import Totals, totals_of
from lar.records.profile import Profile, ProfiledOperator

if TYPE_CHECKING:
    from lar.graphs.operator_kinds import OperatorKinds
    from lar.profiles.run_likeness import OperatorPair

Metric = Literal["calls", "host", "self_host", "device", "self_device"]
Side = Literal["both", "baseline", "experiment"]
METRICS: tuple[Metric, ...] = ("calls", "host", "self_host", "device", "self_device")
MOST_NAMES = 3
# Runs of which less of the time is in operators that both have look like two models.
LEAST_JOINED = 0.5

# An operator's part in one run: of each metric a value for each iteration, durations in
# nanoseconds; None where the run has no such figure. `disturbed` counts executions.
Sampled = Literal[Metric, "disturbed"]
SAMPLED: tuple[Sampled, ...] = (*METRICS, "disturbed")
Samples = Mapping[Sampled, Sequence[float] | None]
Kinds = tuple["OperatorKinds", "OperatorKinds"]

# Why nothing is judged: the operators that both runs have are few, or one run computes more.
Unlike = Literal["", "models", "inputs"]


@dataclass(frozen=True)
class DiffRow:
    """Operators that do the same work, or those of a type or layer, and the runs that have them
    (`side`). The difference of a metric is None if one run lacks the metric; a run without the
    operators took 0 calls and 0 time.

    `times` has the figures of the iterations of the baseline and of the experiment by the metric
    that matters, None where a run has not the operators. `disturbed` counts their executions that
    something else on the machine made longer, None where that was not recorded.
    """

    name: str
    type: str
    side: Side
    values: Mapping[Metric, Change | None]
    times: tuple[Totals | None, Totals | None] = (None, None)
    disturbed: tuple[int | None, int | None] = (None, None)


@dataclass(frozen=True)
class Diff:
    """The rows in the order of the graphs, their sum, and the iterations' own durations.

    `pairs` counts the pairs of runs. `joined` is the part of the operators' time in those that both
    have, of the run where it is less. With `unlike` nothing is judged. `iteration` is of the
    undisturbed iterations if `is_calm`; `counts` are those and all, of either side, None where none
    was disturbed.
    """

    rows: tuple[DiffRow, ...]
    total: DiffRow
    iteration: Change
    pairs: int = 1
    joined: float = 1.0
    unlike: Unlike = ""
    is_calm: bool = False
    counts: tuple[tuple[int, int], tuple[int, int]] | None = None


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


def describe_contrasts(baseline: Profile, experiment: Profile) -> list[str]:
    """Return what differs between two runs besides their times, a line each."""
    found = contrasts_of(baseline, experiment)
    if not found:
        return ["model, options, versions and machine are the same"]
    return [f"{each.what}: {each.baseline} -> {each.experiment}" for each in found]


def describe_unlike(baseline: Profile, experiment: Profile, diff: Diff) -> str:
    """Return why nothing is judged, empty where it is."""
    if diff.unlike == "models":
        return (
            f"these look like two different models: {diff.joined:.0%} of the time is in operators "
            "that do the same work in both, and nothing is judged"
        )
    batches = baseline.facts.batch, experiment.facts.batch
    if diff.unlike and batches[0] and batches[1] and batches[0] != batches[1]:
        times = diff.iteration.baseline / batches[0], diff.iteration.experiment / batches[1]
        return (
            f"one run has a batch of {batches[0]} and the other of {batches[1]}: times of whole "
            "iterations stand side by side, and nothing is judged; an item takes "
            f"{times[0] / 1e3:.3f} -> {times[1] / 1e3:.3f} us"
        )
    if diff.unlike:
        return "the runs were fed with inputs of other shapes: nothing is judged"
    return ""


def describe_iterations(diff: Diff) -> str:
    """Return which iterations their difference is of, empty where none was disturbed."""
    if diff.counts is None:
        return ""
    counts = " -> ".join(f"{calm} of {count}" for calm, count in diff.counts)
    if diff.is_calm:
        return f"medians of the undisturbed iterations: {counts}"
    return f"medians of all iterations, since too few were undisturbed: {counts}"


def caveats_of(baseline: Profile, experiment: Profile, diff: Diff) -> list[str]:
    """Return what the figures leave open, a line each."""
    lines = []
    one, two = baseline.facts.model, experiment.facts.model
    if diff.unlike == "models":
        pass
    elif one.format == two.format and one.sha256 and two.sha256 and one.sha256 != two.sha256:
        lines.append(
            "the model files differ: operators are joined as far as they do the same, and a sum of "
            "several stands beside what may not be the same work"
        )
    if baseline.on_device != experiment.on_device:
        lines.append(
            "one run was on a device and the other was not: the host's durations are of "
            "dispatching in the one and of computing in the other"
        )
    if diff.pairs > 1:
        lines.append(f"times are medians of {diff.pairs} runs of each command, made in turns")
        if are_of_one_command(baseline, experiment):
            lines.append("ratios leave out what most operators of a run have in common")
    return lines


def diff_of(
    baseline: Profile,
    experiment: Profile,
    group_by: str = "name",
    accepts: Callable[[str, str], bool] = lambda name, type: True,
    kinds: Kinds | None = None,
    more: Sequence[tuple[Profile, Profile]] = (),
) -> Diff:
    """Compare the operators of two runs, or their types or layers; both must have timed iterations.

    `accepts` takes an operator's name and type; `kinds` are those of the two engines. `more` are
    more pairs of runs of the same two commands, made in turns.

    Raises:
        UsageError: one of `more` has no timed iterations, or is of another command.
    """
    for one, two in more:
        check_timed(one, two)
        for first, other in ((baseline, one), (experiment, two)):
            if not are_of_one_command(first, other):
                raise UsageError(
                    f"a profile of {other.facts.model.path} is of another command than the first "
                    "of its side",
                    "give profiles of two commands by turns",
                )
    runs = [(baseline, experiment), *more]
    samples = [samples_like(baseline, one, two, experiment) for one, two in runs]
    main = main_metric_of(baseline, experiment)
    joined = [
        JoinedOperators.of(pair, baseline, experiment, samples)
        for pair in pairs_of(baseline, experiment, kinds)
    ]
    joined = [each for each in joined if each.left or each.right]
    share = joined_share_of(joined, main, runs, kinds)
    unlike = why_unlike(baseline, experiment, share)
    chosen = group_operators([each for each in joined if each.is_any(accepts)], group_by)
    rows = [each.row(runs, main) for each in chosen]
    durations, is_calm, counts = iterations_to_compare(runs)
    medians = [median(median(pair[side]) for pair in durations) for side in (0, 1)]
    iteration = Change(medians[0], medians[1])
    if not unlike:
        times = [each.times(main, runs) for each in chosen]
        rows = judge_rows(rows, times, main, are_of_one_command(baseline, experiment))
        iteration = replace_in(iteration, difference=judge_iterations(durations))
    return Diff(tuple(rows), total_of(rows), iteration, len(runs), share, unlike, is_calm, counts)


def judge_rows(
    rows: Sequence[DiffRow], times: Sequence[Pairs], main: Metric, of_one_command: bool
) -> list[DiffRow]:
    """Return rows with what is shown of the operators that both runs have, by the durations that
    matter."""
    both = [place for place, row in enumerate(rows) if row.side == "both" and row.values[main]]
    judged = [*rows]
    found_of = judge_operators([times[it] for it in both], of_one_command=of_one_command)
    for place, found in zip(both, found_of, strict=True):
        change = rows[place].values[main]
        assert change
        values = {**rows[place].values, main: replace_in(change, difference=found)}
        judged[place] = replace_in(rows[place], values=values)
    return judged


def iterations_to_compare(
    runs: Sequence[tuple[Profile, Profile]],
) -> tuple[list[tuple[list[int], list[int]]], bool, tuple[tuple[int, int], tuple[int, int]] | None]:
    """Return the times of the iterations of each pair of runs: of the undisturbed ones if all runs
    have enough, as a run says which of its figures to trust; whether they are those; and of either
    side how many they are among how many, None where none was disturbed."""
    every = [(iteration_times_of(one), iteration_times_of(two)) for one, two in runs]
    calm = [(calm_times_of(one), calm_times_of(two)) for one, two in runs]
    known = [
        (len(own[k]), len(each[k])) for own, each in zip(calm, every, strict=True) for k in (0, 1)
    ]
    if all(own == count for own, count in known):
        return every, False, None
    counts = tuple(
        (sum(own for own, _ in known[k::2]), sum(count for _, count in known[k::2])) for k in (0, 1)
    )
    is_calm = all(own == count or own >= FEWEST_UNDISTURBED for own, count in known)
    return calm if is_calm else every, is_calm, (counts[0], counts[1])


def calm_times_of(profile: Profile) -> list[int]:
    """Return how long each timed iteration took that nothing disturbed, in nanoseconds."""
    disturbed = disturbed_steps(profile)
    times = zip(profile.timed_steps(), iteration_times_of(profile), strict=True)
    return [time for step, time in times if step.number not in disturbed]


def joined_share_of(
    operators: Sequence[JoinedOperators],
    metric: Metric,
    runs: Sequence[tuple[Profile, Profile]],
    kinds: Kinds | None,
) -> float:
    """Return the part of the operators' time in those that both runs have, of the run where it is
    less; 1 where none took any time. What holds, feeds or moves data does not count."""
    whole, common = [0.0, 0.0], [0.0, 0.0]
    for each in operators:
        times = each.times(metric, runs)
        for side, own in enumerate((each.left, each.right)):
            if not any(is_computing(it, kinds[side] if kinds else None) for it in own):
                continue
            time = median(median(pair[side] or [0.0]) for pair in times)
            whole[side] += time
            common[side] += time if each.side == "both" else 0.0
    return min(part / time if time else 1.0 for part, time in zip(common, whole, strict=True))


def is_computing(operator: ProfiledOperator, kinds: OperatorKinds | None) -> bool:
    is_moving = kinds is not None and kinds.kinds.get(operator.type.lower()) == "move"
    return bool(operator.reads and operator.writes) and not is_moving


def why_unlike(baseline: Profile, experiment: Profile, joined: float) -> Unlike:
    """Return why the operators of two runs are not judged, `joined` being the part of their time in
    those that both have."""
    from lar.profiles.run_likeness import are_fed_alike, has_graph, have_one_model

    recorded = has_graph(baseline.operators) and has_graph(experiment.operators)
    if recorded and joined < LEAST_JOINED and not have_one_model(baseline, experiment):
        return "models"
    return "" if are_fed_alike(baseline, experiment) else "inputs"


def samples_like(
    baseline: Profile, one: Profile, two: Profile, experiment: Profile
) -> tuple[Mapping[int, Samples], Mapping[int, Samples]]:
    """Return what the operators of a pair of runs took, by the places of those of the first pair
    that do the same work."""
    first, second = (
        samples_of(run) if run is own else moved(samples_of(run), pairs_of(own, run, None))
        for own, run in ((baseline, one), (experiment, two))
    )
    return first, second


def moved(samples: Mapping[int, Samples], pairs: Iterable[OperatorPair]) -> dict[int, Samples]:
    places = {
        own: place
        for pair in pairs
        for own, place in zip(pair.baseline, pair.experiment, strict=False)
    }
    return {own: samples[place] for own, place in places.items() if place in samples}


def pairs_of(baseline: Profile, experiment: Profile, kinds: Kinds | None) -> list[OperatorPair]:
    # Not before: it imports how dumps are read, and most reports are of one run.
    from lar.profiles.run_likeness import have_equal_graphs, pair_by_places

    if have_equal_graphs(baseline, experiment):
        return pair_by_places(baseline)
    from lar.profiles.pairing import pair_operators  # not before: it imports NumPy

    return pair_operators(baseline, experiment, *([kinds] if kinds else []))


@dataclass(frozen=True)
class JoinedOperators:
    """Operators that make a row: its name, type and layer, the operators of either run, and their
    samples of each pair of runs."""

    name: str
    type: str
    module: str
    left: tuple[ProfiledOperator, ...]
    right: tuple[ProfiledOperator, ...]
    samples: tuple[tuple[tuple[Samples, ...], tuple[Samples, ...]], ...]

    @classmethod
    def of(
        cls,
        pair: OperatorPair,
        baseline: Profile,
        experiment: Profile,
        samples: Sequence[tuple[Mapping[int, Samples], Mapping[int, Samples]]],
    ) -> JoinedOperators:
        """Put the operators of a pair together, as far as they were executed in each run."""
        places = (
            [place for place in pair.baseline if all(place in each[0] for each in samples)],
            [place for place in pair.experiment if all(place in each[1] for each in samples)],
        )
        left = tuple(baseline.operators[place] for place in places[0])
        right = tuple(experiment.operators[place] for place in places[1])
        heads = [head_of(side) for side in (left, right)]
        return cls(
            join_titles(name_of(left), name_of(right)),
            join_titles(*(head.type if head else "" for head in heads)),
            next((head.module for head in heads if head and head.module), ""),
            left,
            right,
            tuple(
                (tuple(one[it] for it in places[0]), tuple(two[it] for it in places[1]))
                for one, two in samples
            ),
        )

    @property
    def side(self) -> Side:
        return "both" if self.left and self.right else "baseline" if self.left else "experiment"

    def is_any(self, accepts: Callable[[str, str], bool]) -> bool:
        return any(accepts(each.name, each.type) for each in (*self.left, *self.right))

    def sums(self, runs: Sequence[tuple[Profile, Profile]]) -> list[tuple[Samples, Samples]]:
        return [
            (sum_of_samples(left, one), sum_of_samples(right, two))
            for (left, right), (one, two) in zip(self.samples, runs, strict=True)
        ]

    def times(
        self, metric: Metric, runs: Sequence[tuple[Profile, Profile]]
    ) -> list[tuple[Sequence[float], Sequence[float]]]:
        """Return what they took in each iteration of each pair of runs."""
        return [(one[metric] or [], two[metric] or []) for one, two in self.sums(runs)]

    def row(self, runs: Sequence[tuple[Profile, Profile]], main: Metric) -> DiffRow:
        """Return the row, which is not judged yet."""
        sums = self.sums(runs)
        values: dict[Metric, Change | None] = {}
        for metric in METRICS:
            times = [
                (left, right)
                for one, two in sums
                if (left := one[metric]) is not None and (right := two[metric]) is not None
            ]
            if len(times) < len(sums):
                values[metric] = None
                continue
            centre = mean_of if metric == "calls" else median
            values[metric] = Change(
                median(centre(pair[0]) for pair in times), median(centre(pair[1]) for pair in times)
            )
        return DiffRow(
            self.name,
            self.type,
            self.side,
            values,
            (
                figures_of(one[main] for one, _ in sums) if self.left else None,
                figures_of(two[main] for _, two in sums) if self.right else None,
            ),
            (
                count_of(one["disturbed"] for one, _ in sums) if self.left else None,
                count_of(two["disturbed"] for _, two in sums) if self.right else None,
            ),
        )


def figures_of(runs: Iterable[Sequence[float] | None]) -> Totals | None:
    """Return the figures of the iterations of all runs, None if one of them lacks the metric."""
    known = [*runs]
    values = [round(value) for each in known for value in each or ()]
    return None if None in known else totals_of(values)


def count_of(runs: Iterable[Sequence[float] | None]) -> int | None:
    known = [each for each in runs if each is not None]
    return round(math.fsum(math.fsum(each) for each in known)) if known else None


def mean_of(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def head_of(operators: Sequence[ProfiledOperator]) -> ProfiledOperator | None:
    """Return the operator that does most of what several do together."""
    return max(operators, key=lambda each: (each.flops or 0, each.size_bytes or 0), default=None)


def name_of(operators: Sequence[ProfiledOperator]) -> str:
    """Return the names of operators, of many the first."""
    names = [*dict.fromkeys(each.name for each in operators)]
    if len(names) > MOST_NAMES:
        names[MOST_NAMES - 1 :] = [f"{len(names) - MOST_NAMES + 1} more"]
    return " + ".join(names)


def join_titles(one: str, other: str) -> str:
    return f"{one} = {other}" if one and other and one != other else one or other


def group_operators(joined: Sequence[JoinedOperators], group_by: str) -> Sequence[JoinedOperators]:
    """Put the operators of each type or layer together; of each of their own by name."""
    if group_by == "name":
        return joined
    groups: dict[str, list[JoinedOperators]] = {}
    for each in joined:
        groups.setdefault(each.type if group_by == "type" else each.module, []).append(each)
    return [
        JoinedOperators(
            title or "(no layer)",
            title if group_by == "type" else "",
            title if group_by == "module" else "",
            tuple(it for each in group for it in each.left),
            tuple(it for each in group for it in each.right),
            tuple(
                (
                    tuple(it for each in group for it in each.samples[number][0]),
                    tuple(it for each in group for it in each.samples[number][1]),
                )
                for number in range(len(group[0].samples))
            ),
        )
        for title, group in groups.items()
    ]


def total_of(rows: Sequence[DiffRow]) -> DiffRow:
    """Return the sum of all rows, which is not judged: the iterations are."""
    values: dict[Metric, Change | None] = {}
    for metric in METRICS:
        known = [found for row in rows if (found := row.values[metric]) is not None]
        values[metric] = (
            Change(
                math.fsum(each.baseline for each in known),
                math.fsum(each.experiment for each in known),
            )
            if len(known) == len(rows) and (known or metric in ("calls", "host", "self_host"))
            else None
        )
    return DiffRow("Total", "", "both", values)


def with_joined_names(
    baseline: Profile, experiment: Profile, kinds: Kinds | None = None
) -> tuple[Profile, Profile]:
    """Return two profiles in which operators that do the same work have the same names, types and
    shapes, and others have not."""
    pairs = [each for each in pairs_of(baseline, experiment, kinds) if each.is_joined]
    sides = [[*profile.operators] for profile in (baseline, experiment)]
    for pair in pairs:
        left = [baseline.operators[place] for place in pair.baseline]
        right = [experiment.operators[place] for place in pair.experiment]
        heads = head_of(left), head_of(right)
        assert heads[0] is not None
        assert heads[1] is not None
        for side, places in zip(sides, (pair.baseline, pair.experiment), strict=True):
            for place in places:
                side[place] = msgspec.structs.replace(
                    side[place],
                    name=join_titles(name_of(left), name_of(right)),
                    type=join_titles(heads[0].type, heads[1].type),
                    inputs=heads[0].inputs,
                )
    return (
        replace_in(baseline, operators=tuple(sides[0])),
        replace_in(experiment, operators=tuple(sides[1])),
    )


def samples_of(profile: Profile) -> dict[int, Samples]:
    """Return what each operator that was executed took in each timed iteration."""
    places = {step.number: place for place, step in enumerate(profile.timed_steps())}
    samples: dict[int, dict[Sampled, list[float]]] = {}
    disturbed = disturbed_executions(profile)
    times_ns = device_times_of(profile)
    executions = profile.timed_executions
    times = zip(executions, profile.host_times_ns, times_ns, strict=True)
    for number, (execution, host_ns, device_ns) in enumerate(times):
        place = places.get(execution.step)
        if place is None:
            continue
        own = samples.get(execution.operator)
        if own is None:
            own = {metric: [0.0] * len(places) for metric in SAMPLED}
            samples[execution.operator] = own
        own["calls"][place] += 1
        own["host"][place] += host_ns
        own["device"][place] += device_ns
        own["disturbed"][place] += number in disturbed
    for own in samples.values():
        own["self_host"], own["self_device"] = [*own["host"]], own["device"]
    activities = [] if are_apart(profile) else host_activities_of(profile)
    for activity in activities:
        parent = activities[activity.parent] if activity.parent >= 0 else None
        if parent is None or parent.operator == activity.operator:
            continue  # an execution within its own dispatch
        place = places.get(parent.step)
        if place is not None and parent.operator in samples:
            samples[parent.operator]["self_host"][place] -= activity.duration_ns
    without: set[Sampled] = set() if profile.on_device else {"device", "self_device"}
    without |= set() if is_recorded(profile) else {"disturbed"}
    return {
        operator: {metric: None if metric in without else times for metric, times in own.items()}
        for operator, own in samples.items()
    }


def are_apart(profile: Profile) -> bool:
    """Return whether no execution on the host begins before the one before it on its thread ended,
    so that all of its time is its own."""
    computes_on_host = not profile.on_device
    ends: dict[int, int] = {}
    for each in profile.timed_executions:
        begin, end = each.start_ns, each.end_ns
        if (dispatch := each.dispatch) is not None:
            thread = each.host_thread
            if computes_on_host and thread == each.thread:
                begin, end = min(begin, dispatch[0]), max(end, dispatch[1])
            elif ends.get(thread, dispatch[0]) > dispatch[0]:
                return False
            else:
                begin, ends[thread] = each.computation[0], dispatch[1]
        if computes_on_host:
            if ends.get(each.thread, begin) > begin:
                return False
            ends[each.thread] = end
    return True


def sum_of_samples(parts: Sequence[Samples], profile: Profile) -> Samples:
    """Return the sums by iteration; of no parts zeros, as many as there are iterations."""
    zeros = [0.0] * len(profile.timed_steps())
    if not parts:
        device = zeros if profile.on_device else None
        return {**dict.fromkeys(SAMPLED, zeros), "device": device, "self_device": device}
    return {metric: add_samples([part[metric] for part in parts]) for metric in SAMPLED}


def add_samples(parts: Iterable[Sequence[float] | None]) -> Sequence[float] | None:
    known = [part for part in parts if part is not None]
    if len(known) == 1:
        return known[0]
    return [math.fsum(values) for values in zip(*known, strict=True)] if known else None
