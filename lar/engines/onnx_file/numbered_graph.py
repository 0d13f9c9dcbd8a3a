"""The tensors of an ONNX graph, numbered as MegEngine does, for the dumps of any engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from lar.dumps.binary import BY_DTYPE
from lar.dumps.facts import DumpFacts, OperatorFact
from lar.dumps.names import Numbering
from lar.dumps.recording import Dumped
from lar.dumps.values import Part, Unheld
from lar.engines.onnx_file.bodies import Body, Operator, operators_in, parameters_of
from lar.engines.onnx_file.fields import Message
from lar.engines.onnx_file.quantization import Scales, quantizations_of, scales_in, wanted_names
from lar.engines.onnx_file.tensors import Array


class NumberedGraph:
    """The graph of a model, named by paths, with all its tensors numbered, those of bodies too.

    `left_out` says, when all have been computed, why some are missing.
    """

    def __init__(self, graph: Message, fed: Iterable[str]) -> None:
        self.outputs = [each.name for each in graph.output]
        self.operators = [*operators_in(Body("", graph))]
        self.nodes = [each.node for each in self.operators]
        self.makers = {name: it for it in self.operators for name in filter(None, it.node.outputs)}
        self.numbering = Numbering(fed)
        for node in self.nodes:
            kind = "Initializer" if node.operator == "Constant" else node.operator
            self.numbering.add_node(kind, node.name, node.inputs, node.outputs)
        self.numbering.add_constants(self.outputs)
        self.variables = self.numbering.variables
        self.parts: dict[str, list[str]] = {}  # the names of what is dumped of a tensor
        self.left_out: dict[str, str] = {}
        self.factors: dict[str, Array] = {}  # the scales and zero points that are known

    def facts(self) -> DumpFacts:
        """Return what is known of the dump: the numbers and parameters of the operators, in the
        graph's order, and what the integers of tensors stand for."""
        operators = [
            OperatorFact(self.variables[name].operator_id, known)
            for node, known in zip(self.nodes, self.parameters, strict=True)
            for name in [*filter(None, node.outputs)][:1]
        ]
        known, left_out = quantizations_of(self.scales, self.factors), self.left_out
        return DumpFacts(operators, 0, {}, known, outputs=self.outputs, left_out=left_out)

    def holds_weight(self, name: str, type_name: str) -> bool:
        """Return whether a dump has a constant: weights and biases that operators take, not the
        scales of quantised tensors, nor shapes and the like."""
        is_taken = name in self.variables and name not in {*self.wanted, *self.outputs}
        is_weight = type_name.startswith("float") or name in {it.tensor for it in self.scales}
        return is_taken and is_weight and type_name in BY_DTYPE

    @cached_property
    def parameters(self) -> list[dict[str, Any]]:
        """The parameters of each operator."""
        return [parameters_of(each.message) for each in self.operators]

    @cached_property
    def scales(self) -> list[Scales]:
        """The names of the scales and zero points of tensors."""
        return scales_in(self.nodes, self.parameters)

    @cached_property
    def wanted(self) -> set[str]:
        """The names of the scales and zero points."""
        return wanted_names(self.scales)

    def dump_parts(self, name: str, parts: Sequence[Part | Unheld]) -> Iterator[Dumped]:
        """Yield the tensors that a dump has of a value."""
        maker = self.makers.get(name)
        held = [each for each in parts if isinstance(each, Part)]
        self.left_out |= {each.name: each.reason for each in parts if isinstance(each, Unheld)}
        if held or not parts:
            self.parts[name] = [each.name for each in held]
        if name in self.wanted and len(held) == len(parts) == 1:
            self.factors[name] = held[0].array
        for each in held:
            array, layout = each.array, ""
            if each.name != name:
                self.numbering.add_part(name, each.name)
            elif maker is not None:
                array, layout = self.stored(name, maker, array)
            inputs = maker.node.inputs if maker else ()
            yield self.dumped(each.name, inputs, array, layout, each.dtype)

    def stored(self, name: str, maker: Operator, array: Array) -> tuple[Array, str]:
        """Return what an operator gives as the dump stores it, and its format."""
        return array, ""

    def dumped(
        self, name: str, inputs: Sequence[str], array: Array, layout: str = "", dtype: str = ""
    ) -> Dumped:
        """Return a tensor that is stored in a layout, with its names."""
        kind, known = dtype or BY_DTYPE[array.dtype.name].name, self.variables[name]
        variable = replace(known, shape=array.shape, stored=True, format=layout, dtype=kind)
        self.variables[name] = variable
        # A sequence has other names, and a branch that was not taken has none.
        taken = [it for each in inputs if each for it in self.parts.get(each, [each])]
        return Dumped(variable, tuple(self.variables[each] for each in taken), array)
