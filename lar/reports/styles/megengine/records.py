"""The operators as MegEngine's tool knows them: times, footprint, and figures made of these."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec

from lar.errors import UsageError
from lar.profiles.breakdown import steps_of
from lar.profiles.megengine_file import (
    RawFootprint,
    RawOperator,
    RawProfile,
    RawTimes,
    decode_raw,
    is_raw_profile,
)
from lar.profiles.times import self_times_of
from lar.profiles.totals import group_by
from lar.records.profile import Execution, Profile, ProfiledOperator
from lar.reports.model import sort_rows

Place = Literal["device", "host"]
Shapes = Sequence[Sequence[int]]
TimeKey = tuple[Place, str]
Amount = tuple[int, int, "int | None"]  # a step, a thread, and an amount


@dataclass(frozen=True, kw_only=True)
class Record:
    """One operator, or several aggregated. `info` is its name, type and id.

    `times` are seconds on the device and the host, to the end or to the `kern` (only the wait);
    unknown times are left out. `time` is the one that is shown. `computation` counts floating point
    operations, `memory` bytes. Without time, the speed is not known, or infinite as in MegEngine's
    tool.
    """

    info: Mapping[str, str]
    times: Mapping[TimeKey, float] = field(default_factory=dict)
    time: float = 0.0
    computation: float | None = None
    memory: float | None = None
    in_shapes: Shapes | None = None
    in_layouts: Sequence[Sequence[int | str] | None] | None = None
    out_shapes: Shapes | None = None
    input_dtypes: frozenset[str] = frozenset()
    count: int | None = None
    is_infinite: bool = False

    @property
    def flops(self) -> float | None:
        """Floating point operations per second."""
        return self._divide(self.computation)

    @property
    def bandwidth(self) -> float | None:
        """Bytes per second."""
        return self._divide(self.memory)

    def _divide(self, amount: float | None) -> float | None:
        if amount is None or (not self.time and not self.is_infinite):
            return None
        return amount / self.time if self.time else math.inf if amount else math.nan


def records_of(profile: Profile) -> list[Record]:
    """Return the records of a profile; with several iterations they are the means of an iteration.

    For a single profiled iteration with MegEngine's own file they are made from that file, unless
    times are scaled to an iteration without profiling. The file has more: what the host waited for,
    and the times to the last digit.
    """
    is_scaled = profile.correction is not None and profile.correction.scale < 1
    is_own = is_single(profile) and not is_scaled
    if is_own and is_raw_profile(profile.engine_raw):
        try:
            raw = decode_raw(profile.engine_raw)
        except (msgspec.MsgspecError, ValueError) as error:
            raise UsageError(f"MegEngine's own profile in it is damaged: {error}") from None
        is_infinite = not profile.facts.lar_version
        operators = raw.graph_exec.operator.items()
        return [
            replace(record_of_raw(raw, key, operator), is_infinite=is_infinite)
            for key, operator in operators
        ]
    ran: dict[int, list[tuple[Execution, int]]] = {}
    for execution, ns in zip(profile.timed_executions, self_times_of(profile), strict=True):
        ran.setdefault(execution.operator, []).append((execution, ns))
    steps = len(steps_of(profile))
    return [
        record_of(operator, ran.get(place, []), steps)
        for place, operator in enumerate(profile.operators)
    ]


def is_single(profile: Profile) -> bool:
    """Return whether the engine's own file, of the last iteration, is of the only timed one."""
    return len(profile.timed_steps()) == 1 or not profile.steps


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


def record_of(
    operator: ProfiledOperator, ran: Sequence[tuple[Execution, int]], steps: int
) -> Record:
    """Return an operator's record from its executions in `steps` iterations.

    Each execution comes with the nanoseconds that it computed itself.
    """
    executions = [execution for execution, _ in ran]
    # Executions on several threads may share one dispatch.
    dispatches = {
        (it.step, it.dispatch_thread or 0, it.dispatch_start_ns): dispatch
        and dispatch[1] - dispatch[0]
        for it, dispatch in ((it, it.dispatch) for it in executions)
    }
    measured: dict[TimeKey, list[Amount]] = {
        ("device", "end"): [(it.step, it.thread, ns + (it.wait_ns or 0)) for it, ns in ran],
        ("device", "kern"): [(it.step, it.thread, it.wait_ns) for it in executions],
        ("host", "end"): [(step, thread, ns) for (step, thread, _), ns in dispatches.items()],
    }
    times = {
        key: busiest(own) / steps / 1e9
        for key, own in measured.items()
        if own and all(ns is not None for *_, ns in own)
    }
    runs = busiest((it.step, it.thread, 1) for it in executions)
    share: float = runs // steps if steps and not runs % steps else runs / (steps or 1)
    layouts = [fact.layout.split(",") if fact.layout else [] for fact in operator.inputs]
    return Record(
        info={"name": operator.name, "type": operator.type, "id": operator.id},
        times=times,
        computation=(operator.flops or 0) * share or None,
        memory=None if operator.size_bytes is None else operator.size_bytes * share,
        in_shapes=[fact.shape for fact in operator.inputs],
        in_layouts=layouts if any(layouts) else None,
        out_shapes=[fact.shape for fact in operator.outputs],
        input_dtypes=frozenset(fact.dtype.lower() for fact in operator.inputs),
    )


def busiest(amounts: Iterable[Amount]) -> int:
    """Return the sum of amounts over the steps, with only the busiest thread of each step.

    The threads of a step work at the same time.
    """
    by_thread: Counter[tuple[int, int]] = Counter()
    for step, thread, amount in amounts:
        by_thread[step, thread] += amount or 0
    by_step = group_by(by_thread, lambda key: key[0])
    return sum(max(by_thread[key] for key in keys) for keys in by_step.values())


def filter_records(records: Iterable[Record], options: Mapping[str, Any]) -> list[Record]:
    """Return the records that the options select, apart from their times."""
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
    records: Iterable[Record], key: TimeKey, options: Mapping[str, Any]
) -> list[Record]:
    """Return the records with the time of a key, aggregated, sorted and cut as the options say.

    Raises:
        UsageError: the options do not say how to aggregate them.
    """
    least, most = options.get("min_time", -math.inf), options.get("max_time", math.inf)
    timed = [
        replace(record, time=record.times[key])
        for record in records
        if key in record.times and least <= record.times[key] <= most
    ]
    how, by = options.get("aggregate"), options.get("aggregate_by")
    if by and not how:
        raise UsageError(
            "how is not said", "add --aggregate sum, mean, max or min", flag=f"--aggregate-by {by}"
        )
    if how:
        groups = group_by(timed, lambda each: each.info["type"] if by else "all")
        timed = [aggregate_records(name, group, how) for name, group in groups.items()]
    order = options.get("sort", "time")
    return sort_rows(timed, order, lambda it: column_of(it, order.lstrip("+-")))[
        : options.get("top", 3)
    ]


def aggregate_records(name: str, group: Sequence[Record], how: str) -> Record:
    """Aggregate operators under a name."""
    return Record(
        info={"type": name, "count": str(len(group)), "id": "N/A"},
        time=aggregate([each.time for each in group], how) or 0.0,
        computation=aggregate([each.computation for each in group], how) or None,
        memory=aggregate([each.memory for each in group], how),
        count=len(group),
        is_infinite=group[0].is_infinite,
    )


def aggregate(values: Sequence[float | None], how: str) -> float | None:
    """Return maximum, minimum, sum or mean of the known values, None if there are none.

    The mean is that sum over the number of all values, as in MegEngine's tool.
    """
    known = [value for value in values if value is not None]
    if not known:
        return None
    if how in ("max", "min"):
        return max(known) if how == "max" else min(known)
    total = sum_pairwise(known)
    return total / len(values) if how == "mean" else total


def sum_pairwise(values: Sequence[float]) -> float:
    """Sum up in NumPy's order, so that the last digit is that of MegEngine's tool.

    Up to 128 values are summed in eight columns; more are halved, and the halves summed.
    """
    count = len(values)
    if count < 8:
        return sum(values)
    if count > 128:
        half = count // 2 - count // 2 % 8
        return sum_pairwise(values[:half]) + sum_pairwise(values[half:])
    whole = count - count % 8
    a, b, c, d, e, f, g, h = (sum(values[column:whole:8]) for column in range(8))
    return sum(values[whole:], ((a + b) + (c + d)) + ((e + f) + (g + h)))


def column_of(record: Record, column: str) -> Any:
    """Return the value of a record by which it is sorted."""
    if column == "opr_id":
        number = record.info["id"]
        return int(number) if number.isdecimal() else None
    return getattr(record, column)
