"""Made-up profiles whose every figure is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from lar.records.profile import (
    Category,
    Clock,
    Execution,
    ModelFacts,
    Profile,
    ProfiledOperator,
    Span,
    TensorFact,
)
from lar.reports.model import AnyTable
from tests.profiles.timelines import HOST as HOST
from tests.profiles.timelines import WORKER as WORKER
from tests.profiles.timelines import execution_of, profile_of, step_of

Record = TypeVar("Record", bound=msgspec.Struct)


def with_facts(profile: Profile, **facts: Any) -> Profile:
    return replace(profile, facts=msgspec.structs.replace(profile.facts, **facts))


def changed(records: Iterable[Record], **fields: Any) -> tuple[Record, ...]:
    """The executions, operators or spans with other values in these fields."""
    return tuple(msgspec.structs.replace(each, **fields) for each in records)


def rows_in(table: AnyTable) -> list[dict[str, Any]]:
    """The records of a table by its columns."""
    return [dict(zip(table.headings, row, strict=True)) for row in table.records]


def span_of(category: Category, name: str, start_ns: int, end_ns: int, **fields: Any) -> Span:
    given: dict[str, Any] = {"thread": HOST, "step": 0, **fields}
    return Span(category=category, name=name, start_ns=start_ns, end_ns=end_ns, **given)


def operator_of(
    name: str, type: str, shape: Sequence[int] = (1, 4, 4, 4), **fields: object
) -> ProfiledOperator:
    """An operator with one input and one output of that shape."""
    fact = TensorFact(tuple(shape), "float32", "")
    given = {"id": name, "inputs": (fact,), "outputs": (fact,), **fields}
    return ProfiledOperator(name=name, type=type, **given)  # type: ignore[arg-type]


def executions_by_operator(profile: Profile) -> dict[int, list[Execution]]:
    """The executions without those of the warm-up, by the places of their operators."""
    groups: dict[int, list[Execution]] = {}
    for execution in profile.timed_executions:
        groups.setdefault(execution.operator, []).append(execution)
    return groups


def number_of(place: int, warmup: int) -> int:
    """The number of an iteration: timed ones count from 0, those of the warm-up from -1 down."""
    return place - warmup if place >= warmup else -1 - place


def profile_of_times(
    types: Mapping[str, str],
    times_us: Sequence[Mapping[str, int]],
    *,
    step_us: int,
    warmup: int = 0,
    dispatch_us: int | None = None,
    device: str = "cpu",
) -> Profile:
    """A profile of iterations that last `step_us` each: operators by name with their types, and
    for each iteration how many microseconds each of them took, one after the other.

    They run on a thread of their own if `dispatch_us` says how long the dispatch of each takes.
    """
    places = {name: index for index, name in enumerate(types)}
    steps, executions, spans = [], [], []
    for place, times in enumerate(times_us):
        start = 1000 + place * step_us
        given: dict[str, Any] = {"step": number_of(place, warmup), "warmup": place < warmup}
        steps.append(step_of(given["step"], start, start + step_us, place < warmup))
        at, dispatched = start + 2, start
        for name, us in times.items():
            own = dict(given, wait=0)
            if dispatch_us is not None:
                own |= {"thread": WORKER, "dispatch": (dispatched, dispatched + dispatch_us)}
                dispatched += dispatch_us
            executions.append(execution_of(places[name], at, at + us, **own))
            at += us
        forward = at if dispatch_us is None else dispatched
        for name, begin, end in (("forward", start, forward), ("wait", forward, start + step_us)):
            spans.append(span_of("phase", name, 1000 * begin, 1000 * end, **given))
            spans.append(span_of("runtime", f"LITE_{name}", 1000 * begin, 1000 * end, **given))
    facts = {
        "model": ModelFacts("model.mge", "00", "mge"),
        "iterations": len(times_us) - warmup,
        "warmup_iterations": warmup,
        "batch": 1,
        "threads": 1,
        "clock": Clock(),
    }
    operators = [operator_of(name, type) for name, type in types.items()]
    return profile_of(operators, steps, executions, spans, device=device, facts=facts)


TYPES = {"conv1": "Convolution", "conv2": "Convolution", "relu": "Elemwise"}


def small_profile(*spans: Span, **fields: Any) -> Profile:
    """Two timed iterations of three operators from 1 ms on, and spans besides."""
    times = {"conv1": 300, "conv2": 500, "relu": 7}
    profile = profile_of_times(TYPES, [times, times], step_us=1000, **fields)
    return replace(profile, spans=(*profile.spans, *spans))
