"""The profile of a session: MNN calls a function before and after each operator.

That function keeps only the time. lar finds the operators beforehand, in a run in which MNN is told
to skip each of them. MNN carries out some operators of the model as several, named `NAME_raster_0`
and so on, and moves tensors by operators that are named after the ones that take them; operators
that only reshape vanish.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from lar.engines.driver import HOST_THREAD, EngineTrace
from lar.engines.mnn.net import FACTS, NetOperator
from lar.engines.mnn.operator_kinds import KINDS
from lar.engines.mnn.session import InterpreterDriver, Session
from lar.engines.operator_facts import Operation, flops_of
from lar.engines.operator_times import bytes_of, derived_operator
from lar.graphs.operator_kinds import HEAVY
from lar.records.columns import ExecutionColumns
from lar.records.profile import Execution, ProfiledOperator, Step, TensorFact

CALLBACKS = "MNN calls lar around each operator: about a microsecond of each time is that"


class Described(NamedTuple):
    """An operator that a session carries out, and millions of its multiplications as MNN counts
    them."""

    name: str
    type: str
    inputs: tuple[TensorFact, ...]
    outputs: tuple[TensorFact, ...]
    multiplications: float

    @property
    def flops(self) -> int | None:
        """The operations that the model asks for; a multiplication and its addition are two."""
        if KINDS.kind_of(self.type) in HEAVY:
            return round(2e6 * self.multiplications)
        inputs, outputs = (tuple(it.shape for it in each) for each in (self.inputs, self.outputs))
        kind = FACTS.work_by_type.get(self.type)
        return flops_of(Operation(type=self.type, kind=kind, inputs=inputs, outputs=outputs))


def describe(session: Session) -> list[Described]:
    """Return the operators that a fed session carries out, in their order."""
    inputs: list[tuple[TensorFact, ...]] = []
    found: list[Described] = []

    def begin(tensors: Sequence[Any], _: Any) -> bool:
        inputs.append(tuple(map(session.fact_of, tensors)))
        return False  # it is not carried out

    def end(tensors: Sequence[Any], info: Any) -> bool:
        outputs = tuple(map(session.fact_of, tensors))
        it = Described(info.getName(), info.getType(), inputs[-1], outputs, info.getFlops())
        found.append(it)
        return True

    session.run_with(begin, end)
    return found


class CallbackProfiler:
    """Keeps the times between the callbacks of each iteration."""

    def __init__(self, driver: InterpreterDriver) -> None:
        self.driver = driver
        self.operators: dict[Described, int] = {}
        self.sequence: list[int] = []  # which operators the iterations carry out, as fed last
        self.times = array("q")
        self.executions = ExecutionColumns()

    def start_of(self, session: Session) -> Callable[[], object]:
        """Return a function that runs an iteration of a session that has just been fed."""
        places = self.operators
        self.sequence = [places.setdefault(each, len(places)) for each in describe(session)]
        append, now = self.times.append, time.perf_counter_ns

        def note(tensors: object, info: object) -> bool:
            append(now())
            return True

        return partial(session.run_with, note, note)

    def take(self, step: Step, forward_ns: int, dispatched_ns: int, waited_ns: int) -> None:
        t0_ns = self.driver.recorder.t0_ns  # of the same clock
        times = [each - t0_ns for each in self.times]
        for operator, start, end in zip(self.sequence, times[::2], times[1::2], strict=True):
            self.executions.append(
                Execution(operator, step.number, HOST_THREAD, start, end, warmup=step.warmup)
            )
        del self.times[:]

    def finish(self) -> EngineTrace:
        sources = {it.name: it for it in self.driver.net.computed()}
        return EngineTrace(
            operators=tuple(
                operator_of(place, each, sources.get(each.name))
                for each, place in self.operators.items()
            ),
            executions=self.executions,
            thread_count=self.driver.thread_count(),
            dropped=(CALLBACKS,),
        )


def operator_of(place: int, found: Described, source: NetOperator | None) -> ProfiledOperator:
    """Return an operator as reports see it, with what is known of the model's operator."""
    moved, known = bytes_of((*found.inputs, *found.outputs)), dict[str, Any]()
    if source is not None:
        known = {"reads": source.inputs, "writes": source.outputs}
        known["parameters"] = source.parameters
    return derived_operator(
        found.name,
        flops=found.flops,
        size_bytes=moved and moved + (4 * source.elements if source else 0),
        id=str(place),
        type=found.type,
        inputs=found.inputs,
        outputs=found.outputs,
        **known,
    )


def start_profiling(driver: InterpreterDriver, _: object) -> None:
    """Have the operators of the driver's iterations timed."""
    driver.profiler = profiler = CallbackProfiler(driver)
    driver.begin = profiler.start_of
