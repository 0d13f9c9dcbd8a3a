"""Dumps of the evaluator: what each operator of the model gives, written while it computes.

The tensors are those of the first run, in float64; what has no truth is left out, with the reason.
They have the names that MegEngine would give them, and are numbered as there: an operator, then its
outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lar.dumps.binary import BY_DTYPE, TEXT, write_tensor
from lar.dumps.excerpts import format_block, format_values
from lar.dumps.facts import DumpFacts, OperatorFact, write_facts
from lar.dumps.names import Numbering, Variable, format_name
from lar.dumps.outputs import write_outputs
from lar.dumps.values import Part, Unheld, parts_of
from lar.engines.onnxruntime.bodies import Body, operators_in, parameters_of
from lar.engines.onnxruntime.model_fields import Node
from lar.engines.onnxruntime.quantization import (
    Scales,
    quantizations_of,
    scales_in,
    wanted_names,
)
from lar.engines.reference.driver import EvaluatorDriver
from lar.engines.reference.implementations import NoTruth
from lar.options.table import BIN_IO_DUMP, TEXT_DUMPS

Array = np.ndarray[Any, np.dtype[Any]]
Write = Callable[[Variable, Sequence[Variable], Array], object]


class Numbered:
    """The tensors of a driver's model, numbered, and what is written of them in a run.

    `left_out` says why some are missing.
    """

    def __init__(self, driver: EvaluatorDriver, write: Write) -> None:
        self.driver = driver
        self.write = write
        self.numbering = Numbering(driver.fed)
        self.operators = [*operators_in(Body("", driver.model.graph))]
        self.outputs = driver.evaluator.output_names
        self.inputs: dict[str, Sequence[str]] = {}
        for node, _, _ in self.operators:
            kind = "Initializer" if node.operator == "Constant" else node.operator
            self.numbering.add_node(kind, node.name or node.operator, node.inputs, node.outputs)
            self.inputs.update(dict.fromkeys(node.outputs, node.inputs))
        self.numbering.add_constants(self.outputs)
        self.variables = self.numbering.variables
        self.parameters = [parameters_of(each.proto) for each in self.operators]
        self.scales = scales_in([each.node for each in self.operators], self.parameters)
        self.parts: dict[str, list[str]] = {}  # the names of what is dumped of a tensor
        self.left_out: dict[str, str] = {}

    def facts(self) -> DumpFacts:
        """Return what is known of the dump, the operators in the order of their work."""
        operators = [
            OperatorFact(self.variables[names[0]].operator_id, parameters)
            for (node, _, _), parameters in zip(self.operators, self.parameters, strict=True)
            if (names := [*filter(None, node.outputs)])
        ]
        return DumpFacts(operators, iteration=0, outputs=self.outputs, left_out=self.left_out)

    def write_weights(self, scales: Sequence[Scales]) -> None:
        """Write the weights and biases that operators take, in the types of the file; not the
        `scales` of quantised tensors, nor shapes and the like."""
        quantized, factors = {each.tensor for each in scales}, wanted_names(scales)
        for name, array in self.driver.weights.items():
            kind = self.driver.weight_types[name]
            is_weight = array.dtype == np.float64 or name in quantized
            known = name in self.variables and kind.name in BY_DTYPE
            if is_weight and known and name not in factors and name not in self.outputs:
                self.write_value(name, array.astype(kind))

    def write_inputs(self) -> None:
        """Write what the model is fed with, and outputs that no operator gives."""
        for name, array in self.driver.fed.items():
            self.write_value(name, array)
        for name in {*self.outputs} & self.driver.weights.keys():
            self.write_value(name, self.driver.weights[name])

    def visit(self, node: Node, results: Sequence[Any]) -> None:
        """Write what an operator gave; constants are left out."""
        if node.operator == "Constant":
            return
        for name, value in zip(node.outputs, results, strict=False):
            if name:
                self.write_value(name, value)

    def write_value(self, name: str, value: Any) -> None:
        """Write the tensors of a value, or keep why there are none."""
        if isinstance(value, NoTruth):
            value = Unheld(name, value.why(name))
        parts = [*parts_of(name, value)]
        self.left_out |= {each.name: each.reason for each in parts if isinstance(each, Unheld)}
        held = [each for each in parts if isinstance(each, Part)]
        self.parts[name] = [each.name for each in held]
        for each in held:
            if each.name != name:
                self.numbering.add_part(name, each.name)
            self.write_part(each, self.inputs.get(name, ()))

    def write_part(self, part: Part, inputs: Sequence[str]) -> None:
        variable = self.variables[part.name] = replace(
            self.variables[part.name],
            shape=part.array.shape,
            stored=True,
            dtype=part.dtype,
        )
        taken = [it for each in inputs if each for it in self.parts.get(each, [each])]
        self.write(variable, [self.variables[each] for each in taken], part.array)


def dump_tensors(driver: EvaluatorDriver, _: object) -> None:
    """Have all tensors of the first run written into a folder, and beside it what is known of
    operators and of the real numbers that integers stand for."""
    folder = Path(driver.context.written[BIN_IO_DUMP.key])
    folder.mkdir()

    def write(variable: Variable, inputs: Sequence[Variable], array: Array) -> None:
        write_tensor(folder / f"{variable.id:06x}", array, format_name(variable, inputs))

    numbered = Numbered(driver, write)
    write_facts(folder, numbered.facts())
    scales = numbered.scales
    wanted = wanted_names(scales)
    found = {name: driver.weights[name] for name in wanted if name in driver.weights}

    def keep_scales(node: Node, results: Sequence[Any]) -> None:
        found.update(
            (name, it)
            for name, it in zip(node.outputs, results, strict=False)
            if name in wanted and isinstance(it, np.ndarray)
        )

    def write_rest() -> None:
        known = quantizations_of(scales, found)
        write_facts(folder, numbered.facts()._replace(quantizations=known))

    numbered.write_weights(scales)
    numbered.write_inputs()
    driver.visits += [numbered.visit, keep_scales]
    driver.after_visits.append(write_rest)
    driver.goes_on = True


def dump_text(driver: EvaluatorDriver, _: object) -> None:
    """Have all tensors of the first run written as text."""
    texts: dict[int, str] = {}
    written = driver.context.written
    place = next(written[dump.key] for dump in TEXT_DUMPS if dump.key in written)
    Path(place).write_text("")

    def write(variable: Variable, inputs: Sequence[Variable], array: Array) -> None:
        if variable.dtype == TEXT.name:
            return
        texts[variable.id] = format_values(array)
        values = [(each, texts.get(each.id, "<constant>")) for each in inputs]
        with open(place, "a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in format_block(variable, array, values))

    numbered = Numbered(driver, write)
    numbered.write_inputs()
    driver.visits.append(numbered.visit)
    driver.goes_on = True


def finish_dump(driver: EvaluatorDriver, _: object) -> None:
    """Write the tensors of a driver that has run nothing."""
    if driver.visits:
        driver.compute()


def dump_outputs(driver: EvaluatorDriver, _: object) -> None:
    """Have the outputs of each iteration written, those that can be computed."""
    names = driver.evaluator.output_names
    variables = {name: Variable(id=at, name=name) for at, name in enumerate(names)}

    def leave_out() -> None:
        for name, value in driver.results.items():
            if isinstance(value, NoTruth):
                del variables[name]

    driver.after_visits.append(leave_out)
    write_outputs(driver, variables)
