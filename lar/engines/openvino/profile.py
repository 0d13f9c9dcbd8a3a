"""The profile of a compiled model: the mean time of each node of the executed graph.

For each node, OpenVINO reports the mean time of all executions since the model was compiled, in
whole microseconds. lar reads these means at the end of the warm-up and at the end of the run. From
the two means and the two counts of iterations, lar computes the mean of the timed iterations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lar.engines.driver import EngineTrace
from lar.engines.openvino.driver import DTYPES, CompiledDriver, reshape, shape_of, tensor_name
from lar.engines.openvino.model_file import STEPS, ExecutedGraph, Region
from lar.engines.operator_times import OperatorTimes, bytes_of, derived_operator
from lar.records.profile import ProfiledOperator, Step, TensorFact

DROPPED = (
    "when operators begin (OpenVINO reports the mean time of each)",
    "parts of a microsecond (OpenVINO leaves them out of each time of an operator)",
)

Means = Mapping[str, float]
"""Mean times of nodes in nanoseconds, by the nodes' names."""


def start_profiling(driver: CompiledDriver, _: object) -> None:
    """Have a driver read the mean times of its nodes in each run.

    OpenVINO's mean time of a node is the mean of all executions since the model was compiled.
    """
    driver.profiler = NodeTimes(driver)


class NodeTimes(OperatorTimes):
    """A profiler of the mean times of nodes in the timed iterations.

    If no iteration is timed, the means are over the warm-up.
    """

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
        """Return the mean times of all executed nodes since the model was compiled."""
        executed = self.driver.openvino.ProfilingInfo.Status.EXECUTED
        return {
            node.node_name: node.real_time.total_seconds() * 1e9
            for node in self.driver.request.get_profiling_info()
            if node.status == executed
        }

    def read_means(self) -> list[int]:
        """Return the mean times of the operators in the timed iterations."""
        last, first = self.read_all(), self.runs_before
        timed = self.runs - first
        executed = {name: it for name, it in operators_of(self.driver).items() if name in last}
        self.operators = tuple(executed.values())
        if not timed:
            return [round(last[name]) for name in executed]
        sums = (self.runs * last[name] - first * self.before.get(name, 0.0) for name in executed)
        return [max(0, round(each / timed)) for each in sums]

    def finish(self) -> EngineTrace:
        threads = self.driver.threads_of(self.driver.compiled)
        return replace(super().finish(), thread_count=threads, dropped=DROPPED)


def operators_of(driver: CompiledDriver) -> dict[str, ProfiledOperator]:
    """Return the operators of the graph that a driver executes, by the names of their nodes.

    The shapes are computed for the driver's present inputs. If OpenVINO has added an operator,
    the operator's tensors are not known.
    """
    model = driver.model.clone()
    reshape(model, driver.fed)
    graph = ExecutedGraph(model, driver.compiled)
    regions = {region.node: region for region in graph.regions}
    found = {}
    for place, node in enumerate(graph.nodes):
        known: dict[str, Any] = {"id": str(place), "type": node.type, "algorithm": node.kernel}
        region = regions.get(node)
        found[node.name] = (
            describe(region, **known) if region else ProfiledOperator(name=node.title, **known)
        )
    return found


def describe(region: Region, **known: Any) -> ProfiledOperator:
    """Return the record of a node's operator; the outputs have the node's layout.

    A Reshape is recorded with 0 bytes, since it moves no data.
    """
    node = region.node
    inputs = tuple(fact_of(it, "") for it in (*region.inputs, *region.constants))
    outputs = tuple(fact_of(it, node.layout) for it in region.outputs)
    return derived_operator(
        node.title,
        flops=region.flops,
        size_bytes=0 if node.type == "Reshape" else bytes_of((*inputs, *outputs)),
        inputs=inputs,
        outputs=outputs,
        parameters={STEPS: ",".join(region.steps)},
        reads=tuple(region.taken),
        writes=tuple(map(tensor_name, region.outputs)),
        weights=tuple(map(tensor_name, region.constants)),
        **known,
    )


def fact_of(value: Any, layout: str) -> TensorFact:
    type_name = value.get_element_type().get_type_name()
    shape = tuple(size or 0 for size in shape_of(value) or ())
    return TensorFact(shape, DTYPES.get(type_name, type_name), layout)
