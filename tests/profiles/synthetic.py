"""Made-up profiles whose every figure is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lar.records.profile import (
    Clock,
    Execution,
    ModelFacts,
    Profile,
    ProfiledOperator,
    ProfileFacts,
    Span,
    Step,
    TensorFact,
)

HOST, WORKER = 1, 2


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
    operators = [operator_of(name, type) for name, type in types.items()]
    places = {name: index for index, name in enumerate(types)}
    steps, executions, spans = [], [], []
    for place, times in enumerate(times_us):
        start = 1_000_000 + place * step_us * 1000
        end = start + step_us * 1000
        is_warmup = place < warmup
        number = number_of(place, warmup)
        steps.append(Step(number, start, end, is_warmup))
        at, dispatched = start + 2000, start
        for name, us in times.items():
            begin = dispatched if dispatch_us is not None else None
            done = begin + dispatch_us * 1000 if begin is not None and dispatch_us else begin
            executions.append(
                Execution(
                    places[name],
                    number,
                    HOST if dispatch_us is None else WORKER,
                    at,
                    at + us * 1000,
                    0,
                    begin,
                    done,
                    HOST if dispatch_us is not None else None,
                    is_warmup,
                )
            )
            at += us * 1000
            dispatched = done or dispatched
        forward = dispatched if dispatch_us is not None else at
        for name, a, b in (("forward", start, forward), ("wait", forward, end)):
            given = {"thread": HOST, "step": number, "warmup": is_warmup}
            lasts: dict[str, Any] = {"start_ns": a, "end_ns": b, **given}
            spans.append(Span(category="phase", name=name, **lasts))
            spans.append(Span(category="runtime", name=f"LITE_{name}", **lasts))
    return Profile(
        facts=ProfileFacts(
            engine="megengine",
            device=device,
            model=ModelFacts("model.mge", "00", "mge"),
            iterations=len(times_us) - warmup,
            warmup_iterations=warmup,
            batch=1,
            threads=1,
            clock=Clock(),
        ),
        operators=tuple(operators),
        steps=tuple(steps),
        executions=tuple(executions),
        spans=tuple(spans),
        threads={HOST: "host", WORKER: "worker"},
    )


TYPES = {"conv1": "Convolution", "conv2": "Convolution", "relu": "Elemwise"}


def small_profile(*spans: Span, **fields: Any) -> Profile:
    """Two timed iterations of three operators from 1 ms on, and spans besides."""
    times = {"conv1": 300, "conv2": 500, "relu": 7}
    profile = profile_of_times(TYPES, [times, times], step_us=1000, **fields)
    return replace(profile, spans=(*profile.spans, *spans))
