"""Profiles put together interval by interval, in microseconds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lar.records.profile import (
    Category,
    Execution,
    Profile,
    ProfiledOperator,
    ProfileFacts,
    Span,
    Step,
)

HOST, WORKER, STREAM = 1, 2, 7


def step_of(number: int, start: float, end: float, warmup: bool = False) -> Step:
    return Step(number, round(start * 1000), round(end * 1000), warmup)


def execution_of(
    operator: int,
    start: float,
    end: float,
    *,
    step: int = 0,
    thread: int = HOST,
    wait: float | None = None,
    dispatch: tuple[float, float] | None = None,
    dispatch_thread: int = HOST,
    warmup: bool = False,
) -> Execution:
    begin, done = (None, None) if dispatch is None else (round(t * 1000) for t in dispatch)
    return Execution(
        operator,
        step,
        thread,
        round(start * 1000),
        round(end * 1000),
        None if wait is None else round(wait * 1000),
        begin,
        done,
        None if dispatch is None else dispatch_thread,
        warmup,
    )


def span_of(category: Category, name: str, start: float, end: float, **fields: Any) -> Span:
    given = {"thread": HOST, "step": 0, **fields}
    return Span(
        category=category,
        name=name,
        start_ns=round(start * 1000),
        end_ns=round(end * 1000),
        **given,
    )


def profile_of(
    operators: Iterable[ProfiledOperator],
    steps: Iterable[Step] = (),
    executions: Iterable[Execution] = (),
    spans: Iterable[Span] = (),
    *,
    device: str = "cpu",
    facts: dict[str, Any] | None = None,
    **fields: Any,
) -> Profile:
    given: dict[str, Any] = {"engine": "megengine", "device": device, **(facts or {})}
    return Profile(
        facts=ProfileFacts(**given),
        operators=tuple(operators),
        steps=tuple(steps),
        executions=tuple(executions),
        spans=tuple(spans),
        **{"threads": {HOST: "host", WORKER: "worker"}, **fields},
    )
