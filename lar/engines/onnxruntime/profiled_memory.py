"""The memory that operators take, estimated from the sizes of their outputs.

ONNX Runtime tells no allocations. A tensor is taken to be allocated when the operator that gives
it begins, and given back when the last operator that reads it has ended. What the engine reuses
in place, or keeps for later, is not seen; neither are scratch buffers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from lar.engines.onnxruntime.optimized_graph import GraphNode
from lar.engines.onnxruntime.profiled_operators import OperatorTable, bytes_of
from lar.records.profile import Allocation, Execution, ProfiledOperator, Step

SOURCE = "estimate"

# Operators whose output is their first input, seen in another shape.
VIEWS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})


def allocations_of(
    executions: Iterable[Execution], steps: Sequence[Step], table: OperatorTable
) -> tuple[Allocation, ...]:
    """Return what the executions of each iteration take and give back, in the order of time.

    The model's outputs stay until the iteration has ended.
    """
    ends = {step.number: step.end_ns for step in steps}
    found: list[Allocation] = []
    for number, group in groupby(executions, key=lambda execution: execution.step):
        found += allocations_in([*group], ends[number], table)
    return tuple(sorted(found, key=lambda each: each.at_ns))


def allocations_in(
    executions: Sequence[Execution], end_ns: int, table: OperatorTable
) -> list[Allocation]:
    """Return what the executions of one iteration take and give back."""
    roots: dict[str, str] = {}  # of a view, the tensor that it shows
    last: dict[str, int] = {}
    taken: list[tuple[str, int, int]] = []  # tensor, size, execution
    for index, execution in enumerate(executions):
        node = table.nodes[execution.operator]
        if node is None:
            continue
        for name in node.inputs:
            last[roots.get(name, name)] = index
        if node.proto.op_type in VIEWS:
            roots.update({name: roots.get(node.inputs[0], node.inputs[0]) for name in node.outputs})
            continue
        for name, size in sizes_of(node, table.operators[execution.operator]):
            last[name] = index
            taken.append((name, size, index))
    kept = {roots.get(name, name) for name in table.graph.outputs}
    found = []
    for name, size, index in taken:
        taker, reader = executions[index], executions[last[name]]
        at = end_ns if name in kept else reader.end_ns
        found.append(Allocation(taker.start_ns, size, taker.operator, source=SOURCE))
        found.append(Allocation(at, -size, reader.operator, source=SOURCE))
    return found


def sizes_of(node: GraphNode, operator: ProfiledOperator) -> Iterable[tuple[str, int]]:
    """Yield the names and bytes of the tensors that a node gives, where they are known."""
    if len(node.outputs) != len(operator.outputs):
        return
    for name, fact in zip(node.outputs, operator.outputs, strict=True):
        size = bytes_of((fact,))
        if size:
            yield name, size
