"""The reports of copies that ran at once, joined into one."""

from __future__ import annotations

from dataclasses import replace

from lar.engines.driver import EngineTrace
from lar.records.profile import Alignment, Allocation, Execution, ProfiledOperator, Span, ThreadUse
from lar.worker.recorder import join_traces
from tests.profiles.synthetic import operator_of

USE = ThreadUse(2, 10, 20, 30, (1, 2))
CONV, RELU = operator_of("conv", "Conv", threads=USE), operator_of("relu", "Relu")


def trace_of(*operators: object, start_ns: int = 0) -> EngineTrace:
    return EngineTrace(
        operators=operators,  # type: ignore[arg-type]
        executions=tuple(
            Execution(place, 0, 1, start_ns + 10 * place, start_ns + 10 * place + 5)
            for place in range(len(operators))
        ),
        spans=(
            Span(category="relayout", name="r", start_ns=0, end_ns=1, thread=2, operator=0),
            Span(category="runtime", name="load", start_ns=0, end_ns=1, thread=1),
        ),
        allocations=(Allocation(start_ns, 8, 0), Allocation(start_ns + 1, 8)),
        threads={2: "intra-op 1"},
        thread_count=2,
        alignments=(Alignment("onnxruntime", 5),),
        dropped=("parts",),
    )


def test_an_only_copy_stays_as_it_is() -> None:
    trace = trace_of(CONV)
    assert join_traces([trace]) == replace(trace, threads={1: "host", 2: "intra-op 1"})


def test_copies_have_threads_of_their_own_and_operators_in_common() -> None:
    found = join_traces([trace_of(CONV, RELU, start_ns=3), trace_of(RELU, CONV)])
    assert [each.name for each in found.operators] == ["conv", "relu"]
    assert found.operators[0].threads == ThreadUse(4, 20, 40, 60, (2, 4))
    assert found.operators[1].threads is None
    executed = [(each.operator, each.thread, each.start_ns) for each in found.executions]
    assert executed == [(1, 1001, 0), (0, 1, 3), (0, 1001, 10), (1, 1, 13)]
    assert [(span.thread, span.operator) for span in found.spans] == [
        *((2, 0), (1, None)),
        *((1002, 1), (1001, None)),
    ]
    assert [(each.at_ns, each.operator) for each in found.allocations] == [
        *((0, 1), (1, None)),
        *((3, 0), (4, None)),
    ]
    assert found.threads == {
        **{1: "copy 0", 2: "copy 0: intra-op 1"},
        **{1001: "copy 1", 1002: "copy 1: intra-op 1"},
    }
    assert [it.domain for it in found.alignments] == ["onnxruntime, copy 0", "onnxruntime, copy 1"]
    assert (found.dropped, found.thread_count) == (("parts",), 2)


def test_operators_that_each_copy_names_anew_are_the_same() -> None:
    """The order of execution says which is which: their names and numbers say nothing."""

    def reorder(number: int, shape: tuple[int, ...]) -> ProfiledOperator:
        return operator_of(f"Reorder_{number}", "ReorderOutput", shape, id=f"{number}")

    small, large = (1, 4, 2, 2), (1, 4, 8, 8)
    first = trace_of(CONV, reorder(7, small), reorder(8, large), reorder(9, small))
    second = trace_of(CONV, reorder(9, small), reorder(7, large), reorder(8, small))
    found = join_traces([first, second])
    assert [each.id for each in found.operators] == ["conv", "7", "8", "9"]
    copies = [[each.operator for each in found.executions if each.thread == it] for it in (1, 1001)]
    assert sorted(copies[0]) == sorted(copies[1]) == [0, 1, 2, 3]


def test_shapes_that_one_copy_alone_had_are_operators_of_their_own() -> None:
    larger = operator_of("conv", "Conv", (2, 4, 4, 4))
    assert len(join_traces([trace_of(CONV), trace_of(larger)]).operators) == 2
