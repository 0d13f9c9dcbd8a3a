"""The engine's reports of copies of a model that ran at once, joined into one.

Each copy has threads of its own: the numbers of copy 1 begin at 1001, where copy 0's begin at 1.
What is the same operator in all copies is one operator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

import msgspec

from lar.engines.driver import HOST_THREAD, EngineTrace
from lar.records.columns import ExecutionColumns
from lar.records.profile import (
    THREADS_OF_A_COPY,
    Allocation,
    Execution,
    ProfiledOperator,
    Span,
    ThreadUse,
)


def host_thread_of(copy: int) -> int:
    """Return the number of the thread that runs a copy."""
    return HOST_THREAD + copy * THREADS_OF_A_COPY


def join_traces(traces: Sequence[EngineTrace]) -> EngineTrace:
    """Return one report of all copies; that of an only copy stays as it is."""
    if len(traces) == 1:
        return traces[0]
    operators: list[ProfiledOperator] = []
    places: dict[tuple[object, ...], int] = {}
    executions = ExecutionColumns()
    spans: list[Span] = []
    allocations: list[Allocation] = []
    threads: dict[int, str] = {}
    for copy, trace in enumerate(traces):
        at = [place_in(operator, operators, places) for operator in trace.operators]
        offset = copy * THREADS_OF_A_COPY
        threads[host_thread_of(copy)] = f"copy {copy}"
        threads |= {number + offset: f"copy {copy}: {it}" for number, it in trace.threads.items()}
        executions.extend(moved_execution(each, at, offset) for each in trace.executions)
        spans += [
            msgspec.structs.replace(
                span,
                thread=span.thread + offset,
                operator=None if span.operator is None else at[span.operator],
            )
            for span in trace.spans
        ]
        allocations += [
            each
            if each.operator is None
            else msgspec.structs.replace(each, operator=at[each.operator])
            for each in trace.allocations
        ]
    executions.sort_by_start()
    return replace(
        traces[0],
        operators=tuple(operators),
        executions=executions,
        spans=tuple(spans),
        allocations=tuple(sorted(allocations, key=lambda each: each.at_ns)),
        threads=threads,
        alignments=tuple(
            msgspec.structs.replace(each, domain=f"{each.domain}, copy {copy}")
            for copy, trace in enumerate(traces)
            for each in trace.alignments
        ),
        dropped=tuple(dict.fromkeys(line for trace in traces for line in trace.dropped)),
    )


def place_in(
    operator: ProfiledOperator,
    operators: list[ProfiledOperator],
    places: dict[tuple[object, ...], int],
) -> int:
    """Return the place of an operator among those of all copies; a new one is added to them."""
    facts = operator.inputs, operator.outputs
    key = operator.id, operator.type, operator.name, operator.provider, *facts
    place = places.get(key)
    if place is None:
        places[key] = len(operators)
        operators.append(operator)
        return places[key]
    uses = [use for use in (operators[place].threads, operator.threads) if use is not None]
    if uses:
        use = reduce(ThreadUse.with_that_of, uses)
        operators[place] = msgspec.structs.replace(operators[place], threads=use)
    return place


def moved_execution(each: Execution, at: Sequence[int], offset: int) -> Execution:
    """Return an execution on a copy's own threads."""
    dispatch = each.dispatch_thread
    return msgspec.structs.replace(
        each,
        operator=at[each.operator],
        thread=each.thread + offset,
        dispatch_thread=None if dispatch is None else dispatch + offset,
    )


def names_of_threads(copies: int, threads: Mapping[int, str]) -> dict[int, str]:
    """Return the names of all threads: an only copy runs in the host's."""
    return {HOST_THREAD: "host", **threads} if copies == 1 else dict(threads)
