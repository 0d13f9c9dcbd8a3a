"""The profile of a compiled model: how long each node of the executed graph takes.

OpenVINO counts the time of each node from the moment at which the model was compiled, and gives the
mean of all its executions so far, in whole microseconds. What it says at the end of the warm-up is
taken out of what it says in the end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from lar.engines.driver import EngineTrace
from lar.engines.openvino.driver import DTYPES
from lar.engines.openvino.graph import ExecutedGraph, ExecutedNode, Region, shape_of, tensor_name
from lar.engines.openvino.operator_kinds import STEPS
from lar.engines.operator_times import OperatorTimes
from lar.records.profile import ProfiledOperator, TensorFact

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
    driver.profiler = NodeTimes(driver)


class NodeTimes(OperatorTimes):
    """The mean times of nodes in the timed iterations, or in all where none is timed."""

    def __init__(self, driver: CompiledDriver) -> None:
        super().__init__((), self.read_means, times="mean")
        self.driver = driver
        self.runs = self.runs_before = 0
        self.before: Means = {}

    def take(self, step: Step, forward_ns: int, dispatched_ns: int, waited_ns: int) -> None:
        super().take(step, forward_ns, dispatched_ns, waited_ns)
        self.runs += 1
        if step.warmup:
            self.before, self.runs_before = self.read_all(), self.runs

    def read_all(self) -> Means:
        """Return the mean times of the nodes that were executed, until now."""
        executed = self.driver.openvino.ProfilingInfo.Status.EXECUTED
        return {
            node.node_name: node.real_time.total_seconds() * 1e9
            for node in self.driver.request.get_profiling_info()
            if node.status == executed
        }

    def read_means(self) -> list[int]:
        """Return the mean times of the operators, which are those of the nodes executed."""
        last, first = self.read_all(), self.runs_before
        timed = self.runs - first
        table = OperatorTable(self.driver)
        nodes = [node for node in table.graph.nodes if node.name in last]
        self.operators = tuple(map(table.operator_of, nodes))
        if not timed:
            return [round(last[node.name]) for node in nodes]
        sums = (
            self.runs * last[node.name] - first * self.before.get(node.name, 0.0) for node in nodes
        )
        return [max(0, round(each / timed)) for each in sums]

    def finish(self) -> EngineTrace:
        threads = self.driver.threads_of(self.driver.compiled)
        return replace(super().finish(), thread_count=threads, dropped=DROPPED)


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
