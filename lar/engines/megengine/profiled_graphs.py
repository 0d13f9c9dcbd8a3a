"""The graphs that were executed in a profiled run: one for all shapes that were fed."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from lar.dumps.graph import Kernel
from lar.engines.megengine.profile_file import operators_of
from lar.profiles.megengine_file import RawProfile, RawVariable
from lar.records.profile import MemoryPlan, ProfiledOperator, TensorFact

Shape: TypeAlias = "tuple[int, ...] | None"

NUMBER = re.compile(r"\[\d+\]")  # of an operator or a variable, which another compilation changes

COPIES = frozenset({"Host2DeviceCopy", "Copy"})
RELAYOUTS = frozenset({"RelayoutFormat", "Dimshuffle", "Reshape", "Concat"})
# Those that compute as much for each element that they give, with the same weights.
PROPORTIONAL = frozenset(
    {
        *("ConvolutionForward", "ConvBiasForward", "MatrixMul", "PoolingForward", "Elemwise"),
        *("TypeCvt", "Host2DeviceCopy"),
    }
)


class ProfiledGraphs:
    """The operators of all graphs, each once.

    One that was executed with other shapes is another operator. A graph that is compiled again has
    other ids: an operator with the same place, type, name and shapes is the same.
    """

    def __init__(self) -> None:
        self.operators: list[ProfiledOperator] = []
        self.moved_bytes: dict[int, int | None] = {}  # by operator, of those that move data
        self._known: dict[object, int] = {}
        # Of the graph that was compiled last: its operators, the shapes for which the engine has
        # counted, and for each set of shapes the places of its operators.
        self._sequence: tuple[str, ...] = ()
        self._counted: dict[str, Shape] = {}
        self._places: dict[object, dict[str, int]] = {}

    def places_in(self, raw: RawProfile) -> Mapping[str, int]:
        """Return the places in `operators` of an iteration's operators, by their ids, in the
        order of execution."""
        shapes = {number: shape_of(each) for number, each in raw.graph_exec.var.items()}
        if self._sequence != raw.graph_exec.comp_seq:
            self._sequence, self._counted = raw.graph_exec.comp_seq, shapes
            self._places.clear()
        key = tuple(shapes.values())
        if key not in self._places:
            self._places[key] = self._add(raw, shapes)
        return self._places[key]

    def _add(self, raw: RawProfile, shapes: Mapping[str, Shape]) -> dict[str, int]:
        changed = {
            number: shape
            for number, shape in shapes.items()
            if shape is not None and shape != self._counted.get(number)
        }
        places: dict[str, int] = {}
        for position, told in enumerate(operators_of(raw)):
            operator = operator_now(told, raw, changed)
            name = NUMBER.sub("", operator.name)
            key = position, operator.type, name, operator.inputs, operator.outputs
            place = self._known.setdefault(key, len(self.operators))
            if place == len(self.operators):
                self.operators.append(operator)
                if moves_data(raw, operator):
                    self.moved_bytes[place] = bytes_of(operator.outputs)
            places[operator.id] = place
        return places

    def operators_with(self, algorithms: Mapping[Kernel, str]) -> tuple[ProfiledOperator, ...]:
        """Return the operators with the algorithms that were chosen for them."""
        return tuple(
            msgspec.structs.replace(operator, algorithm=algorithms.get(kernel_of(operator)))
            for operator in self.operators
        )


def operator_now(
    operator: ProfiledOperator, raw: RawProfile, changed: Mapping[str, tuple[int, ...]]
) -> ProfiledOperator:
    """Return an operator in the shapes of an iteration; `changed` has those of the variables that
    are others than the engine has counted with.

    It counts when a graph is compiled, which other shapes do not always make it do again.
    """
    own, variables = raw.graph_exec.operator[operator.id], raw.graph_exec.var
    if changed.keys().isdisjoint((*own.input, *own.output)):
        return operator
    written = [each for each in own.output if not variables[each].name.endswith(":workspace")]
    inputs = facts_with(operator.inputs, own.input, changed)
    outputs = facts_with(operator.outputs, written, changed)
    flops = None
    if operator.flops is not None and operator.type in PROPORTIONAL:
        made, before = element_count(outputs[0]), element_count(operator.outputs[0])
        flops = operator.flops * made // before if before else None
    return msgspec.structs.replace(
        operator,
        inputs=inputs,
        outputs=outputs,
        flops=flops,
        size_bytes=bytes_of((*inputs, *outputs)),
        source="derived",
    )


def facts_with(
    facts: Sequence[TensorFact], numbers: Sequence[str], shapes: Mapping[str, tuple[int, ...]]
) -> tuple[TensorFact, ...]:
    """Return facts with the shapes that are known of the variables with these numbers."""
    return tuple(
        msgspec.structs.replace(fact, shape=shapes.get(number, fact.shape))
        for fact, number in zip(facts, numbers, strict=False)
    )


def shape_of(variable: RawVariable) -> Shape:
    return variable.mem_plan.layout.shape if variable.mem_plan else None


def element_count(tensor: TensorFact) -> int:
    return math.prod(tensor.shape)


def kernel_of(operator: ProfiledOperator) -> Kernel:
    """Return what the engine chooses an algorithm for."""
    tensors = (*operator.inputs, *operator.outputs[:1])
    return Kernel(operator.type, tuple(each.shape for each in tensors))


def placed_plan(plan: MemoryPlan, places: Sequence[int]) -> MemoryPlan:
    """Return a memory plan with the operators' places instead of their order in the graph."""
    chunks = tuple(
        msgspec.structs.replace(
            chunk,
            first_operator=None if chunk.first_operator is None else places[chunk.first_operator],
            last_operator=None if chunk.last_operator is None else places[chunk.last_operator],
        )
        for chunk in plan.chunks
    )
    return msgspec.structs.replace(plan, chunks=chunks)


def moves_data(raw: RawProfile, operator: ProfiledOperator) -> bool:
    """Tell an operator that copies what it is given, where a view of it would not do."""
    if operator.type not in COPIES | RELAYOUTS:
        return False
    graph = raw.graph_exec
    own = graph.operator[operator.id]
    given = {chunk_of(graph.var[number]) for number in own.input}
    made = [graph.var[number] for number in own.output]
    # A value of the host's that the computation reads where it is.
    in_place = any("PERSISTENT_DEVICE_VALUE" in variable.flag for variable in made)
    return not in_place and not given & {chunk_of(variable) for variable in made} - {None}


def chunk_of(variable: RawVariable) -> str | None:
    return variable.mem_plan.mem_chunk_id if variable.mem_plan else None


def bytes_of(tensors: tuple[TensorFact, ...]) -> int | None:
    """Return the size of tensors, None where a type's is not known."""
    total = 0
    for tensor in tensors:
        # float32, QuantizedS8, Quantized8Asymm
        found = re.search(r"\d+", tensor.dtype.replace("bool", "bool8"))
        if found is None:
            return None
        total += -(-element_count(tensor) * int(found[0]) // 8)
    return total
