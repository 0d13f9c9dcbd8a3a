"""The engine's reports of copies of a model that ran at once, joined into one.

Each copy has threads of its own: the numbers of copy 1 begin at 1001, where copy 0's begin at 1.
What is the same operator in all copies is one operator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

from msgspec.structs import replace as changed

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
    executions = ExecutionColumns()
    spans: list[Span] = []
    allocations: list[Allocation] = []
    threads: dict[int, str] = {}
    for copy, trace in enumerate(traces):
        at = join_operators(operators, trace.operators)
        offset = copy * THREADS_OF_A_COPY
        threads[host_thread_of(copy)] = f"copy {copy}"
        threads |= {number + offset: f"copy {copy}: {it}" for number, it in trace.threads.items()}
        executions.extend(moved_execution(each, at, offset) for each in trace.executions)
        places: dict[int | None, int | None] = {None: None, **dict(enumerate(at))}
        spans += [
            changed(each, thread=each.thread + offset, operator=places[each.operator])
            for each in trace.spans
        ]
        allocations += [changed(each, operator=places[each.operator]) for each in trace.allocations]
    executions.sort_by_start()
    return replace(
        traces[0],
        operators=tuple(operators),
        executions=executions,
        spans=tuple(spans),
        allocations=tuple(sorted(allocations, key=lambda each: each.at_ns)),
        threads=threads,
        alignments=tuple(
            changed(each, domain=f"{each.domain}, copy {copy}")
            for copy, trace in enumerate(traces)
            for each in trace.alignments
        ),
        dropped=tuple(dict.fromkeys(line for trace in traces for line in trace.dropped)),
    )


def join_operators(
    operators: list[ProfiledOperator], more: Sequence[ProfiledOperator]
) -> list[int]:
    """Add the operators of another copy to those of all; return the place of each.

    The same are those of one name, type and shapes. An engine may name what it adds to a graph anew
    in each copy, as conversions of a layout: what is left is joined by its type and shapes, in the
    order of execution.
    """
    unjoined = dict(enumerate(operators))
    at: dict[int, int] = {}
    for key_of in (named_key, unnamed_key):
        known: dict[tuple[object, ...], list[int]] = {}
        for place, operator in unjoined.items():
            known.setdefault(key_of(operator), []).append(place)
        for index, operator in enumerate(more):
            places = known.get(key_of(operator))
            if index not in at and places:
                at[index] = place = places.pop(0)
                operators[place] = with_use_of(unjoined.pop(place), operator)
    for index, operator in enumerate(more):
        if index not in at:
            at[index] = len(operators)
            operators.append(operator)
    return [at[index] for index in range(len(more))]


def named_key(operator: ProfiledOperator) -> tuple[object, ...]:
    return operator.id, operator.name, *unnamed_key(operator)


def unnamed_key(operator: ProfiledOperator) -> tuple[object, ...]:
    return operator.type, operator.provider, operator.inputs, operator.outputs


def with_use_of(operator: ProfiledOperator, other: ProfiledOperator) -> ProfiledOperator:
    """Return an operator that used the threads as both did."""
    uses = [use for use in (operator.threads, other.threads) if use is not None]
    if not uses:
        return operator
    return changed(operator, threads=reduce(ThreadUse.with_that_of, uses))


def moved_execution(each: Execution, at: Sequence[int], offset: int) -> Execution:
    """Return an execution on a copy's own threads."""
    dispatch = each.dispatch_thread
    return changed(
        each,
        operator=at[each.operator],
        thread=each.thread + offset,
        dispatch_thread=None if dispatch is None else dispatch + offset,
    )


def names_of_threads(copies: int, threads: Mapping[int, str]) -> dict[int, str]:
    """Return the names of all threads: an only copy runs in the host's."""
    return {HOST_THREAD: "host", **threads} if copies == 1 else dict(threads)
