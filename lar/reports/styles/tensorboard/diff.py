"""The Diff view of the TensorBoard plugin: two runs side by side, operator by operator.

The answer has the keys of the plugin's own for the root of its tree; below it the plugin has a
part for each module, of which a profile of lar has no calls. The columns that the plugin's page
makes of an answer are in `table`. As there, figures are sums over all timed iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from lar.profiles.activities import HostActivity
from lar.profiles.differences import Change
from lar.records.profile import Profile
from lar.reports.model import Cell, Table
from lar.reports.styles.tensorboard.operators import (
    OperatorColumn,
    OperatorTotals,
    call_columns,
    chosen_sort,
    host_work_of,
    sort_by_key,
)
from lar.reports.styles.tensorboard.views import (
    View,
    ViewColumn,
    describe_columns,
    known_microseconds,
    microseconds,
    rows_of,
    text_column,
)

# Of each group of columns the title and the field of the totals.
METRICS = (
    ("Calls", "calls"),
    ("Host Duration", "host_total_ns"),
    ("Self Host Duration", "host_self_ns"),
    ("Device Duration", "device_total_ns"),
    ("Self Device Duration", "device_self_ns"),
)
SIDES = ("Baseline", "Exp", "Delta")


class Side(NamedTuple):
    """One run, with the sums of its operators and which operators, by number, are meant."""

    profile: Profile
    totals: Sequence[OperatorTotals]
    accepts: Callable[[int], bool]


# What one operator took in the baseline and in the experiment; None where it is not in one.
Pair = tuple[OperatorTotals | None, OperatorTotals | None]


def diff_view_of(baseline: Side, experiment: Side, sort: str | None, top: int | None) -> View:
    """Return the view; rows are ordered by the larger of their two figures.

    Raises:
        UsageError: the sort key is a time of a device, and the experiment has none.
    """
    key = chosen_sort(experiment.profile, sort)
    pairs = pairs_of(baseline.totals, experiment.totals)
    pairs = sort_by_key(pairs, key, sort, larger_of)[:top]
    profiles = baseline.profile, experiment.profile
    columns: tuple[ViewColumn[Pair], ...] = (
        text_column("Operator", lambda pair: title_of(pair[0] or pair[1])),
        *(
            column
            for title, name in METRICS
            if not name.startswith("device") or any(each.on_device for each in profiles)
            for column in metric_columns(title, name, profiles)
        ),
    )
    counts = [len(each.timed_steps()) for each in profiles]
    table = Table(
        name="diff",
        title="Diff",
        columns=(*columns, *call_columns_of_both(*profiles)),
        rows=tuple(pairs),
        notes=notes_of(*counts),
    )
    answer = {
        "metadata": {"sort": key, "baseline_steps": counts[0], "exp_steps": counts[1]},
        "path": "0",
        "left": node_of(baseline, [left for left, _ in pairs if left]),
        "right": node_of(experiment, [right for _, right in pairs if right]),
        "children": [],
        "table": {"columns": describe_columns(columns), "rows": rows_of(columns, pairs)},
    }
    return View(answer, (table,))


def call_columns_of_both(*profiles: Profile) -> list[ViewColumn[Pair]]:
    """Return the columns that the plugin has not: the figures of single calls in either run."""

    def column(side: int, own: OperatorColumn) -> ViewColumn[Pair]:
        def value(pair: Pair) -> Cell:
            totals = pair[side]
            return None if totals is None else own.value(totals)

        title = f"{SIDES[side]} {own.title}"
        return ViewColumn(title, value, key=f"{SIDES[side]} {own.heading}")

    return [
        column(side, own) for side, profile in enumerate(profiles) for own in call_columns(profile)
    ]


def pairs_of(left: Sequence[OperatorTotals], right: Sequence[OperatorTotals]) -> list[Pair]:
    """Join the operators of two runs, those of the baseline first."""
    others = {(each.name, each.input_shape): each for each in right}
    pairs: list[Pair] = [(each, others.pop((each.name, each.input_shape), None)) for each in left]
    return [*pairs, *((None, each) for each in others.values())]


def larger_of(pair: Pair, field: str) -> Any:
    """Return the larger of two figures, or the name; None if neither figure is known."""
    values = [getattr(each, field) for each in pair if each]
    return max((value for value in values if value is not None), default=None)


def node_of(side: Side, totals: Sequence[OperatorTotals]) -> dict[str, Any]:
    """Return one side of the answer: all that it did, and the sums of its operators."""
    host_ns, device_ns, total_ns, name = outermost_of(side)
    on_device = side.profile.on_device
    return {
        "name": name,
        "duration": microseconds(host_ns),
        "device_duration": microseconds(device_ns) if on_device else None,
        "total_duration": microseconds(total_ns),
        "aggs": [
            {
                "name": title_of(each),
                "calls": each.calls,
                "host_duration": known_microseconds(each.host_total_ns),
                "device_duration": known_microseconds(each.device_total_ns if on_device else None),
                "self_host_duration": known_microseconds(each.host_self_ns),
                "self_device_duration": known_microseconds(
                    each.device_self_ns if on_device else None
                ),
            }
            for each in totals
        ],
    }


def outermost_of(side: Side) -> tuple[int, int, int, str]:
    """Return the times of the operators that lie in no other one: on the host, on the device, and
    on the device or else the host, in nanoseconds; and the plugin's name for these operators
    together."""
    accepts = side.accepts
    activities, _, _, device_ns, stray = host_work_of(side.profile)
    own = [
        place
        for place, each in enumerate(activities)
        if accepts(each.operator) and not lies_in_another(activities, place, accepts)
    ]
    alone_ns = sum(duration_ns for operator, duration_ns in stray if accepts(operator))
    name = "Blank" if not own else "CompositeNodes"
    return (
        sum(activities[place].duration_ns for place in own),
        sum(device_ns[place] for place in own) + alone_ns,
        sum(device_ns[place] or activities[place].duration_ns for place in own) + alone_ns,
        activities[own[0]].name if len(own) == 1 else name,
    )


def lies_in_another(
    activities: Sequence[HostActivity], place: int, accepts: Callable[[int], bool]
) -> bool:
    """Return whether an activity lies in one of an operator that is meant."""
    while (place := activities[place].parent) >= 0:
        if accepts(activities[place].operator):
            return True
    return False


def metric_columns(
    title: str, field: str, profiles: tuple[Profile, Profile]
) -> tuple[ViewColumn[Pair], ...]:
    """Return the columns of a metric: an operator that one run does not have took 0 there, a figure
    that a run does not have is None."""
    unit = "" if field == "calls" else " (us)"

    def figures(pair: Pair) -> tuple[int | None, int | None, int | None]:
        one, two = (
            figure_of(each, field, profile) for each, profile in zip(pair, profiles, strict=True)
        )
        return one, two, None if one is None or two is None else two - one

    def figure(side: str, place: int) -> ViewColumn[Pair]:
        def value(pair: Pair) -> float | None:
            found = figures(pair)[place]
            return known_microseconds(found) if unit else found

        return ViewColumn(f"{side} {title}{unit}", value)

    def percent(pair: Pair) -> str:
        one, two, _ = figures(pair)
        return "N/A" if one is None or two is None else format_percent(one, two)

    return (
        *(figure(side, place) for place, side in enumerate(SIDES)),
        text_column(f"Delta {title}%", percent),
    )


def figure_of(totals: OperatorTotals | None, field: str, profile: Profile) -> int | None:
    if field.startswith("device") and not profile.on_device:
        return None
    figure: int | None = getattr(totals, field) if totals else 0
    return figure


def title_of(totals: OperatorTotals | None) -> str:
    """Return an operator's name, with its input shapes where rows are made by them."""
    return " ".join(filter(None, (totals.name, totals.input_shape))) if totals else ""


def format_percent(baseline: int, experiment: int) -> str:
    """Return a change as the plugin's page writes it, which divides by 0 as JavaScript does."""
    change = Change(baseline, experiment)
    if change.percent is not None:
        return f"{change.percent:.2f}%"
    return "Infinity%" if change.delta else "N/A"


def notes_of(baseline: int, experiment: int) -> tuple[str, ...]:
    """Return how many iterations the sums of the table are of."""
    sums = f"sums of all timed iterations: {baseline} of the baseline, {experiment} of exp"
    if baseline == experiment:
        return (sums,)
    return sums, "runs of different length: --style diff compares means of an iteration"
