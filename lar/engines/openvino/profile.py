"""The profile of a compiled model: how long each node of the executed graph takes.

OpenVINO counts the time of each node from the moment at which the model was compiled, and gives the
mean of all its executions so far, in whole microseconds. What it says at the end of the warm-up is
taken out of what it says in the end. It gives no starts: in each iteration nodes follow each other
in their order, and have the part of its time that their means have of the mean iteration.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from lar.engines.driver import HOST_THREAD, EngineTrace
from lar.engines.openvino.driver import DTYPES
from lar.engines.openvino.graph import ExecutedGraph, ExecutedNode, Region, shape_of, tensor_name
from lar.engines.openvino.operator_kinds import STEPS
from lar.records.columns import ExecutionColumns
from lar.records.profile import Execution, ProfiledOperator, TensorFact

if TYPE_CHECKING:
    from lar.engines.openvino.driver import CompiledDriver
    from lar.records.profile import Step

DROPPED = (
    "when operators begin (OpenVINO reports the mean time of each)",
    "parts of a microsecond (OpenVINO leaves them out of each time of an operator)",
)
LAYER = re.compile(r"(.+)[/.][^/.]+")

Means = Mapping[str, float]
"""Mean times of nodes in nanoseconds, by their names."""


def start_profiling(driver: CompiledDriver, _: object) -> None:
    """Take the times of the nodes; the model counts them from the start."""
    driver.profiler = MeanProfiler(driver)


class MeanProfiler:
    """Keeps the times of iterations, and what OpenVINO says in the end of the warm-up."""

    def __init__(self, driver: CompiledDriver) -> None:
        self.driver = driver
        self.steps: list[tuple[Step, int, int]] = []
        self.before: Means = {}
        self.runs_before = 0

    def take(self, step: Step, forward_ns: int, dispatched_ns: int, waited_ns: int) -> None:
        self.steps.append((step, forward_ns, waited_ns))
        if step.warmup:
            self.before, self.runs_before = self.read(), len(self.steps)

    def read(self) -> Means:
        """Return the mean times of the nodes that were executed, until now."""
        executed = self.driver.openvino.ProfilingInfo.Status.EXECUTED
        return {
            node.node_name: node.real_time.total_seconds() * 1e9
            for node in self.driver.request.get_profiling_info()
            if node.status == executed
        }

    def means(self) -> Means:
        """Return the mean times of the nodes in the timed iterations, or in all if none is."""
        runs, first = len(self.steps), self.runs_before
        last = self.read()
        if runs == first:
            return last
        return {
            name: max(0.0, runs * mean - first * self.before.get(name, 0.0)) / (runs - first)
            for name, mean in last.items()
        }

    def finish(self) -> EngineTrace:
        means = self.means()
        table = OperatorTable(self.driver)
        nodes = [node for node in table.graph.nodes if node.name in means]
        windows = [end - begin for step, begin, end in self.steps if not step.warmup]
        mean_window = sum(windows) / len(windows) if windows else 0.0
        whole = max(mean_window, sum(means.values()), 1.0)
        durations = [means[node.name] / whole for node in nodes]
        executions = ExecutionColumns()
        for step, begin, end in self.steps:
            executions.extend(executions_in(step, begin, end, durations))
        return EngineTrace(
            operators=tuple(map(table.operator_of, nodes)),
            executions=executions,
            thread_count=self.driver.threads_of(self.driver.compiled),
            dropped=DROPPED,
            times="mean",
        )


def executions_in(
    step: Step, begin_ns: int, end_ns: int, durations: Sequence[float]
) -> Iterator[Execution]:
    """Yield one execution of each operator, one after the other, in an iteration; `durations` are
    parts of its time."""
    edges = begin_ns + np.cumsum([0.0, *durations]) * (end_ns - begin_ns)
    places = [int(edge) for edge in edges]
    for number, (start, end) in enumerate(pairwise(places)):
        yield Execution(number, step.number, HOST_THREAD, start, end, warmup=step.warmup)


class OperatorTable:
    """The operators of the graph that a driver executes, with shapes as they were fed."""

    def __init__(self, driver: CompiledDriver) -> None:
        model = driver.model.clone()
        model.reshape({port: list(driver.fed_to(port).shape) for port in model.inputs})
        self.graph = ExecutedGraph(model, driver.compiled)
        self.regions = {region.node.name: region for region in self.graph.regions}
        self.places = {node.name: place for place, node in enumerate(self.graph.nodes)}

    def operator_of(self, node: ExecutedNode) -> ProfiledOperator:
        """Describe a node; of one that OpenVINO has added, no tensors are known."""
        number, region = str(self.places[node.name]), self.regions.get(node.name)
        if region is None:
            return ProfiledOperator(
                id=number, type=node.type, name=node.title, algorithm=node.kernel
            )
        inputs = tuple(map(fact_of, (*region.inputs, *region.constants)))
        outputs = tuple(fact_of(it, node) for it in region.outputs)
        flops, size_bytes = region.flops, bytes_moved(region, (*inputs, *outputs))
        return ProfiledOperator(
            id=number,
            type=node.type,
            name=node.title,
            module=found[1] if (found := LAYER.fullmatch(node.title)) else "",
            inputs=inputs,
            outputs=outputs,
            parameters={STEPS: ",".join(region.steps)},
            flops=flops,
            size_bytes=size_bytes,
            algorithm=node.kernel,
            source="none" if flops is None and size_bytes is None else "derived",
            reads=tuple(region.taken),
            writes=tuple(map(tensor_name, region.outputs)),
            weights=tuple(map(tensor_name, region.constants)),
        )


def fact_of(value: Any, node: ExecutedNode | None = None) -> TensorFact:
    """Describe a tensor; that of a node in the layout in which it gives it."""
    type_name = value.get_element_type().get_type_name()
    shape = tuple(size or 0 for size in shape_of(value) or ())
    return TensorFact(shape, DTYPES.get(type_name, type_name), node.layout if node else "")


def bytes_moved(region: Region, facts: Sequence[TensorFact]) -> int | None:
    """Return how many bytes an operator reads and writes, None where a type's size is unknown; what
    only shows a tensor in another shape moves nothing."""
    if region.node.type == "Reshape":
        return 0
    if any(fact.dtype not in DTYPES.values() for fact in facts):
        return None
    return sum(prod(fact.shape) * np.dtype(fact.dtype).itemsize for fact in facts)
