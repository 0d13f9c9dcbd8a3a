"""The operators as MegEngine's tool knows them: times, footprint, and what follows from them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec

from lar.errors import UsageError
from lar.profiles.disturbance import disturbed_by_operator, is_recorded
from lar.profiles.megengine_file import (
    RawFootprint,
    RawOperator,
    RawProfile,
    RawTimes,
    decode_raw,
    is_raw_profile,
)
from lar.profiles.roofline import savings_of
from lar.profiles.times import LEAST_ESTIMATE_NS
from lar.profiles.totals import Totals, group_by, totals_of
from lar.records.profile import Execution, Profile, ProfiledOperator

Place = Literal["device", "host"]
Shapes = Sequence[Sequence[int]]
TimeKey = tuple[Place, str]
Interval = tuple[int, int, int]  # thread, start, end


@dataclass(frozen=True, kw_only=True)
class Record:
    """One operator, or several put together. `info` is its name, type and id.

    `times` has the seconds on the device and the host, to the end or the `kern` (the wait alone);
    what is not known is not in it. `computation` counts floating point operations, `memory` bytes.
    `saving` is how many seconds of an iteration it would save at its roof. `runs_ns` has how long
    each run took, where there are several iterations, and `disturbed` how many of these something
    else on the machine made longer. With `is_estimate` times are without what profiling cost.
    """

    info: Mapping[str, str]
    times: Mapping[TimeKey, float]
    computation: float | None = None
    memory: float | None = None
    in_shapes: Shapes | None = None
    in_layouts: Sequence[Sequence[int | str] | None] | None = None
    out_shapes: Shapes | None = None
    input_dtypes: frozenset[str] = frozenset()
    count: int | None = None
    saving: float | None = None
    runs_ns: Mapping[TimeKey, Sequence[int]] = field(default_factory=dict)
    disturbed: int | None = None
    is_estimate: bool = False


@dataclass(frozen=True)
class TimedRecord:
    """A record and the time by which it is filtered; `runs` has the figures of its single runs,
    None where there is one iteration, or not each run's time is known.

    The speed of what took no time is not known, nor that of an estimate that is too short for the
    clock; MegEngine's tool prints the first as infinitely fast, as here with `is_infinite`.
    """

    record: Record
    time: float
    is_infinite: bool = False
    runs: Totals | None = None

    @property
    def typical(self) -> float:
        """The median of the runs times their number, which records are ranked by."""
        return self.runs.ranking_ns if self.runs else self.time

    @property
    def median(self) -> float | None:
        return self.runs.median_ns if self.runs else self.time

    @property
    def p90(self) -> float | None:
        return self.runs.p90_ns if self.runs else None

    @property
    def run_ns(self) -> float:
        """What a run takes: the median, of several operators the mean of their medians."""
        return self.runs.ranking_ns / self.runs.calls if self.runs else self.time * 1e9

    @property
    def is_emptied(self) -> bool:
        """True if nothing is left of it without what profiling cost."""
        return self.record.is_estimate and not self.run_ns

    @property
    def flops(self) -> float | None:
        """Floating point operations per second."""
        return self._divide(self.record.computation)

    @property
    def bandwidth(self) -> float | None:
        """Bytes per second."""
        return self._divide(self.record.memory)

    def _divide(self, amount: float | None) -> float | None:
        if amount is None or (not self.time and not self.is_infinite):
            return None
        if self.record.is_estimate and self.run_ns < LEAST_ESTIMATE_NS:
            return None
        return amount / self.time if self.time else math.inf if amount else math.nan


def records_of(profile: Profile) -> list[Record]:
    """Return the records of a profile, of several iterations with the means of an iteration.

    Where one iteration was profiled and the engine's own file of it is MegEngine's, they are made
    from that file, which has more: what the host waited for, and the times to the last digit; but
    not where the times of operators are estimates without what profiling cost.
    """
    savings = savings_of(profile)
    estimated = profile.has_estimates
    if is_single(profile) and not estimated and is_raw_profile(profile.engine_raw):
        try:
            raw = decode_raw(profile.engine_raw)
        except (msgspec.MsgspecError, ValueError) as error:
            raise UsageError(f"MegEngine's own profile in it is damaged: {error}") from None
        by_id = {profile.operators[place].id: ns for place, ns in savings.items()}
        return [with_saving(each, by_id.get(each.info["id"])) for each in records_of_raw(raw)]
    groups = profile.executions_by_operator
    steps = iterations_of(profile)
    records = [
        with_saving(record_of(operator, groups.get(index, []), steps), savings.get(index))
        for index, operator in enumerate(profile.operators)
    ]
    if estimated:
        records = [replace(each, is_estimate=True) for each in records]
    if not is_recorded(profile):
        return records
    disturbed = disturbed_by_operator(profile)
    return [replace(each, disturbed=disturbed.get(n, 0)) for n, each in enumerate(records)]


def with_saving(record: Record, nanoseconds: float | None) -> Record:
    return record if nanoseconds is None else replace(record, saving=nanoseconds / 1e9)


def is_single(profile: Profile) -> bool:
    """Return whether the engine's own file, of the last iteration, is of the only timed one."""
    return len(profile.timed_steps()) == 1 or not profile.steps


def iterations_of(profile: Profile) -> int:
    """Return how many timed iterations there are."""
    steps = len(profile.timed_steps())
    return steps or len({execution.step for execution in profile.timed_executions})


def records_of_raw(raw: RawProfile) -> list[Record]:
    """Return the records in the order of the file."""
    return [record_of_raw(raw, key, operator) for key, operator in raw.graph_exec.operator.items()]


def record_of_raw(raw: RawProfile, key: str, operator: RawOperator) -> Record:
    footprint = raw.profiler.opr_footprint.get(key)
    known = footprint or RawFootprint()
    times: dict[TimeKey, float] = {}
    entries: tuple[tuple[Place, Mapping[str, RawTimes]], ...] = (
        ("device", raw.profiler.device.get(key, {})),
        ("host", raw.profiler.host.get(key, {})),
    )
    for place, found in entries:
        if found:
            times[place, "end"] = max(each.end - each.start for each in found.values())
            times[place, "kern"] = max(each.kern - each.start for each in found.values())
    layouts = known.in_layouts
    plans = (raw.graph_exec.var[number].mem_plan for number in operator.input)
    return Record(
        info={"name": operator.name, "type": operator.type, "id": operator.id},
        times=times,
        computation=known.computation or None,
        memory=known.memory,
        in_shapes=known.in_shapes if footprint else None,
        in_layouts=layouts and [each or () for each in layouts],
        out_shapes=known.out_shapes if footprint else None,
        input_dtypes=frozenset(plan.layout.dtype.lower() for plan in plans if plan),
    )


def record_of(operator: ProfiledOperator, executions: list[Execution], steps: int) -> Record:
    """Return the record of an operator from its executions in `steps` iterations."""
    times: dict[TimeKey, float] = {}
    runs_ns: dict[TimeKey, list[int]] = {}
    intervals: Mapping[TimeKey, Callable[[Execution], Interval | None]] = {
        ("device", "end"): execution_interval,
        ("device", "kern"): wait_interval,
        ("host", "end"): dispatch_interval,
    }
    for key, interval in intervals.items():
        seconds = mean_seconds(executions, interval, steps)
        if seconds is not None:
            times[key] = seconds
            if steps > 1:
                found = [each for execution in executions if (each := interval(execution))]
                runs_ns[key] = [end - start for _, start, end in found]
    layouts = [fact.layout.split(",") if fact.layout else [] for fact in operator.inputs]
    runs = count_runs(executions)
    return Record(
        info={"name": operator.name, "type": operator.type, "id": operator.id},
        times=times,
        computation=mean_amount(operator.flops, runs, steps) or None,
        memory=mean_amount(operator.size_bytes, runs, steps),
        in_shapes=[fact.shape for fact in operator.inputs],
        in_layouts=layouts if any(layouts) else None,
        out_shapes=[fact.shape for fact in operator.outputs],
        input_dtypes=frozenset(fact.dtype.lower() for fact in operator.inputs),
        runs_ns=runs_ns,
    )


def execution_interval(execution: Execution) -> Interval | None:
    return execution.thread, *execution.interval


def wait_interval(execution: Execution) -> Interval | None:
    if execution.wait_ns is None:
        return None
    return execution.thread, execution.start_ns, execution.computation[0]


def dispatch_interval(execution: Execution) -> Interval | None:
    if (times := execution.dispatch) is None:
        return None
    return execution.dispatch_thread or 0, *times


def mean_seconds(
    executions: Sequence[Execution], interval_of: Callable[[Execution], Interval | None], steps: int
) -> float | None:
    """Return the mean time of an iteration; None without an execution or such a time.

    On each thread the executions of one iteration are summed up; of several threads, which work
    at the same time, the longest counts.
    """
    by_step: dict[int, set[Interval]] = {}
    for execution in executions:
        interval = interval_of(execution)
        if interval is None:
            return None
        by_step.setdefault(execution.step, set()).add(interval)
    if not by_step:
        return None
    return sum(busiest_ns(intervals) for intervals in by_step.values()) / steps / 1e9


def count_runs(executions: Iterable[Execution]) -> int:
    """Return how often an operator has run; on several threads at once it has run once."""
    by_thread = Counter((each.step, each.thread) for each in executions)
    by_step: dict[int, int] = {}
    for (step, _), count in by_thread.items():
        by_step[step] = max(by_step.get(step, 0), count)
    return sum(by_step.values())


def mean_amount(amount: int | None, runs: int, steps: int) -> int | float | None:
    """Return the mean amount of an iteration, from the amount of each run; whole numbers stay
    whole."""
    if amount is None or not steps:
        return None
    whole, rest = divmod(amount * runs, steps)
    return amount * runs / steps if rest else whole


def busiest_ns(intervals: Collection[Interval]) -> int:
    """Return the time on the thread with the most."""
    by_thread: dict[int, int] = {}
    for thread, start, end in intervals:
        by_thread[thread] = by_thread.get(thread, 0) + end - start
    return max(by_thread.values())


def filter_records(records: Iterable[Record], options: Mapping[str, Any]) -> list[Record]:
    """Return the records that the options ask for; times are not looked at."""
    types, dtype = options.get("type"), options.get("input_dtype")
    name = re.compile(options.get("opr_name") or "")
    either = re.compile(options.get("filter") or "")
    return [
        record
        for record in records
        if (not types or record.info["type"] in types)
        and (not dtype or dtype.lower() in record.input_dtypes)
        and name.match(record.info["name"])
        and (either.search(record.info["name"]) or either.search(record.info["type"]))
    ]


def select_records(
    records: Iterable[Record], key: TimeKey, options: Mapping[str, Any], *, is_infinite: bool
) -> list[TimedRecord]:
    """Return the records with the time of a key, as the options put together, sort and cut;
    `is_infinite` says how fast those are that took no time.

    Raises:
        UsageError: how to put them together is missing.
    """
    least, most = options.get("min_time", -math.inf), options.get("max_time", math.inf)
    timed = [
        TimedRecord(record, record.times[key], is_infinite, totals_of_runs([record], key))
        for record in records
        if key in record.times and least <= record.times[key] <= most
    ]
    how, by = options.get("aggregate"), options.get("aggregate_by")
    if by and not how:
        raise UsageError(
            "how is not said", "add --aggregate sum, mean, max or min", flag=f"--aggregate-by {by}"
        )
    if how:
        timed = aggregate_records(timed, how, by, key)
    default = "time" if how or any(each.runs is None for each in timed) else "typical"
    return sort_records(timed, options.get("sort", default))[: options.get("top", 3)]


def totals_of_runs(records: Sequence[Record], key: TimeKey) -> Totals | None:
    """Return the figures of all runs of some records, None where they are not known of one."""
    if not all(key in record.runs_ns for record in records):
        return None
    owned = [(ns, n) for n, record in enumerate(records) for ns in record.runs_ns[key]]
    disturbed = sum(record.disturbed or 0 for record in records)
    return totals_of([ns for ns, _ in owned], [n for _, n in owned], disturbed)


def aggregate_records(
    timed: list[TimedRecord], how: str, by: str | None, key: TimeKey
) -> list[TimedRecord]:
    """Put together the operators of one type, or all, in the order of their first."""
    groups = group_by(timed, lambda each: each.record.info["type"] if by else "all")
    return [
        TimedRecord(
            Record(
                info={"type": name, "count": str(len(group)), "id": "N/A"},
                times={},
                computation=aggregate([each.record.computation for each in group], how) or None,
                memory=aggregate([each.record.memory for each in group], how),
                saving=aggregate([each.record.saving for each in group], how),
                count=len(group),
                disturbed=None
                if group[0].record.disturbed is None
                else sum(each.record.disturbed or 0 for each in group),
                is_estimate=any(each.record.is_estimate for each in group),
            ),
            aggregate([each.time for each in group], how) or 0.0,
            group[0].is_infinite,
            totals_of_runs([each.record for each in group], key),
        )
        for name, group in groups.items()
    ]


def aggregate(values: Sequence[float | None], how: str) -> float | None:
    """Return maximum, minimum, sum or mean of those that are known; None if none is.

    The mean is that sum over all, as MegEngine's tool has it.
    """
    known = [value for value in values if value is not None]
    if not known:
        return None
    if how in ("max", "min"):
        return max(known) if how == "max" else min(known)
    total = sum_pairwise(known)
    return total / len(values) if how == "mean" else total


def sum_pairwise(values: Sequence[float]) -> float:
    """Sum up in the order of NumPy, so that the last digit is that of MegEngine's tool.

    Up to 128 values go in eight columns, of more the two halves are summed up.
    """
    count = len(values)
    if count < 8:
        return sum(values)
    if count > 128:
        half = count // 2 - count // 2 % 8
        return sum_pairwise(values[:half]) + sum_pairwise(values[half:])
    whole = count - count % 8
    a, b, c, d, e, f, g, h = (sum(values[column:whole:8]) for column in range(8))
    total = ((a + b) + (c + d)) + ((e + f) + (g + h))
    for value in values[whole:]:
        total += value
    return total


def sort_records(timed: list[TimedRecord], order: str) -> list[TimedRecord]:
    """Sort by a column, the greatest first, with `+` the least first; unknown values come last."""
    column, ascending = order.lstrip("+-"), order.startswith("+")
    known = [each for each in timed if column_of(each, column) is not None]
    unknown = [each for each in timed if column_of(each, column) is None]
    if column.startswith(("in_", "out_")):
        known.sort(key=lambda each: column_of(each, column), reverse=not ascending)
    else:
        sign = 1 if ascending else -1
        known.sort(key=lambda each: sign * column_of(each, column))
    return known + unknown


def column_of(timed: TimedRecord, column: str) -> Any:
    """Return what a record is sorted by."""
    if column in ("time", "flops", "bandwidth", "typical", "median", "p90"):
        return getattr(timed, column)
    if column == "opr_id":
        number = timed.record.info["id"]
        return int(number) if number.isdecimal() else None
    return getattr(timed.record, column)
