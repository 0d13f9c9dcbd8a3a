"""The profile of a session: MNN calls a function before and after each operator.

What is called keeps the time alone. Which operators there are is found beforehand, in a run in
which MNN is told to skip each of them. MNN carries out some operators of the model as several,
named `NAME_raster_0` and so on, and moves tensors by operators that are named after what takes
them; operators that only reshape vanish.
"""

from __future__ import annotations

import re
import time
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lar.engines.driver import HOST_THREAD, EngineTrace
from lar.engines.flops import Operation, flops_of
from lar.engines.mnn.operator_kinds import FACTS, KINDS
from lar.graphs.operator_kinds import HEAVY
from lar.records.columns import ExecutionColumns
from lar.records.profile import Execution, ProfiledOperator, Step, TensorFact

if TYPE_CHECKING:
    from lar.engines.mnn.net import NetOperator
    from lar.engines.mnn.session import InterpreterDriver, Session

RASTER = re.compile(r"_raster_\d+$")
MODULE = re.compile(r"(.+)[/.][^/.]+")
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
    begun: list[tuple[str, str, tuple[TensorFact, ...], float]] = []
    found: list[Described] = []

    def begin(tensors: Sequence[Any], info: Any) -> bool:
        facts = tuple(map(session.fact_of, tensors))
        begun.append((info.getName(), info.getType(), facts, info.getFlops()))
        return False  # it is not carried out

    def end(tensors: Sequence[Any], _: Any) -> bool:
        name, kind, inputs, count = begun[-1]
        outputs = tuple(map(session.fact_of, tensors))
        found.append(Described(name, kind, inputs, outputs, count))
        return True

    session.run_with(begin, end)
    return found


class CallbackProfiler:
    """Keeps the times between the callbacks of each iteration."""

    def __init__(self, driver: InterpreterDriver) -> None:
        self.driver = driver
        self.sources = {it.name: it for it in driver.net.computed()}
        self.operators: dict[Described, int] = {}
        self.sequence = array("i")  # which operators the iterations carry out, as fed last
        self.times = array("q")
        self.executions = ExecutionColumns()

    def start_of(self, session: Session) -> Callable[[], object]:
        """Return what runs an iteration of a session that has just been fed."""
        found = describe(session)
        self.sequence = array(
            "i", (self.operators.setdefault(each, len(self.operators)) for each in found)
        )
        append, now = self.times.append, time.perf_counter_ns

        def note(tensors: object, info: object) -> bool:
            append(now())
            return True

        return partial(session.run_with, note, note)

    def take(self, step: Step, forward_ns: int, dispatched_ns: int, waited_ns: int) -> None:
        # Times are those of the recorder, whose clock this is.
        t0_ns = self.driver.recorder.t0_ns
        for operator, start, end in zip(
            self.sequence, *(self.times[at::2] for at in (0, 1)), strict=True
        ):
            self.executions.append(
                Execution(
                    operator=operator,
                    step=step.number,
                    thread=HOST_THREAD,
                    start_ns=start - t0_ns,
                    end_ns=end - t0_ns,
                    warmup=step.warmup,
                )
            )
        del self.times[:]

    def finish(self) -> EngineTrace:
        return EngineTrace(
            operators=tuple(
                operator_of(place, each, self.sources.get(RASTER.sub("", each.name)))
                for each, place in self.operators.items()
            ),
            executions=self.executions,
            thread_count=self.driver.thread_count(),
            dropped=(CALLBACKS,),
        )


def operator_of(place: int, found: Described, source: NetOperator | None) -> ProfiledOperator:
    """Return an operator as reports see it; `source` is that of the model after which it is
    named, None if there is none."""
    own = source if source is not None and source.name == found.name else None
    module = MODULE.fullmatch(RASTER.sub("", found.name))
    moved = sum(map(size_of, (*found.inputs, *found.outputs)))
    return ProfiledOperator(
        id=str(place),
        type=found.type,
        name=found.name,
        module=module[1] if module else "",
        inputs=found.inputs,
        outputs=found.outputs,
        parameters=own.parameters if own else {},
        flops=found.flops,
        size_bytes=moved + (4 * own.elements if own else 0),
        source="derived",
        reads=own.inputs if own else (),
        writes=own.outputs if own else (),
    )


def size_of(fact: TensorFact) -> int:
    return prod(fact.shape) * np.dtype(fact.dtype or "float32").itemsize


def start_profiling(driver: InterpreterDriver, _: object) -> None:
    """Have the operators of the driver's iterations timed."""
    driver.profiler = profiler = CallbackProfiler(driver)
    driver.begin = profiler.start_of
