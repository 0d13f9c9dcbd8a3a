"""Dumps of the evaluator: what each operator of the model gives, written while it computes.

The tensors are those of the first run, in float64. They have the names that MegEngine would give
them, and are numbered as there: an operator, then its outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lar.dumps.binary import BY_DTYPE, write_tensor
from lar.dumps.excerpts import format_block, format_values
from lar.dumps.facts import DumpFacts, OperatorFact, write_facts
from lar.dumps.names import Numbering, Variable, contiguous_strides, format_name
from lar.dumps.outputs import write_outputs
from lar.engines.onnxruntime.model_fields import Node
from lar.engines.onnxruntime.quantization import (
    Scales,
    quantizations_of,
    scales_in,
    wanted_names,
)
from lar.engines.reference.driver import EvaluatorDriver
from lar.engines.reference.evaluator import parameters_of
from lar.options.table import BIN_IO_DUMP, TEXT_DUMPS

Array = np.ndarray[Any, np.dtype[Any]]
Write = Callable[[Variable, Sequence[Variable], Array], object]


class Numbered:
    """The tensors of a driver's model, numbered, and what is written of them in a run."""

    def __init__(self, driver: EvaluatorDriver, write: Write) -> None:
        self.driver = driver
        self.write = write
        numbering = Numbering(driver.fed)
        for node in driver.nodes:
            kind = "Initializer" if node.op_type == "Constant" else node.op_type
            numbering.add_node(kind, node.name or node.op_type, node.input, node.output)
        self.variables = numbering.variables

    def operators(self) -> list[OperatorFact]:
        """Return the numbers and parameters of the operators, in the order of their work."""
        return [
            OperatorFact(self.variables[names[0]].operator_id, parameters_of(node))
            for node in self.driver.nodes
            if (names := [*filter(None, node.output)])
        ]

    def write_weights(self, scales: Sequence[Scales]) -> None:
        """Write the weights and biases that operators take, in the types of the file; not the
        `scales` of quantised tensors, nor shapes and the like."""
        quantized, factors = {each.tensor for each in scales}, wanted_names(scales)
        for name, array in self.driver.weights.items():
            kind = self.driver.weight_types[name]
            is_weight = array.dtype == np.float64 or name in quantized
            known = name in self.variables and kind.name in BY_DTYPE
            if is_weight and known and name not in factors:
                self.write_tensor(name, (), array.astype(kind))

    def write_inputs(self) -> None:
        """Write what the model is fed with."""
        for name, array in self.driver.fed.items():
            self.write_tensor(name, (), array)

    def visit(self, node: Any, results: Sequence[Any]) -> None:
        """Write what an operator gave; constants are left out, as are texts and sequences."""
        if node.op_type == "Constant":
            return
        for name, value in zip(node.output, results, strict=False):
            if name and isinstance(value, np.ndarray) and value.dtype.name in BY_DTYPE:
                self.write_tensor(name, node.input, value)

    def write_tensor(self, name: str, inputs: Sequence[str], array: Array) -> None:
        variable = self.variables[name] = replace(
            self.variables[name],
            shape=array.shape,
            strides=contiguous_strides(array.shape),
            stored=True,
            dtype=BY_DTYPE[array.dtype.name].name,
        )
        self.write(variable, [self.variables[each] for each in inputs if each], array)


def dump_tensors(driver: EvaluatorDriver, _: object) -> None:
    """Have all tensors of the first run written into a folder, and beside it what is known of
    operators and of the real numbers that integers stand for."""
    folder = Path(driver.context.written[BIN_IO_DUMP.key])
    folder.mkdir()

    def write(variable: Variable, inputs: Sequence[Variable], array: Array) -> None:
        write_tensor(folder / f"{variable.id:06x}", array, format_name(variable, inputs))

    numbered = Numbered(driver, write)
    facts = DumpFacts(numbered.operators(), iteration=0)
    write_facts(folder, facts)
    scales = scales_of(driver)
    wanted = wanted_names(scales)
    found = {name: driver.weights[name] for name in wanted if name in driver.weights}

    def keep_scales(node: Any, results: Sequence[Any]) -> None:
        found.update(
            (name, it) for name, it in zip(node.output, results, strict=False) if name in wanted
        )

    def write_quantizations() -> None:
        write_facts(folder, facts._replace(quantizations=quantizations_of(scales, found)))

    numbered.write_weights(scales)
    numbered.write_inputs()
    driver.visits += [numbered.visit, keep_scales]
    driver.after_visits.append(write_quantizations)


def scales_of(driver: EvaluatorDriver) -> list[Scales]:
    """Return the names of what the tensors of a model are quantised with."""
    nodes = [
        Node(it.name, it.op_type, it.domain, (*it.input,), (*it.output,)) for it in driver.nodes
    ]
    return scales_in(nodes, [*map(parameters_of, driver.nodes)])


def dump_text(driver: EvaluatorDriver, _: object) -> None:
    """Have all tensors of the first run written as text."""
    texts: dict[int, str] = {}
    written = driver.context.written
    place = next(written[dump.key] for dump in TEXT_DUMPS if dump.key in written)
    Path(place).write_text("")

    def write(variable: Variable, inputs: Sequence[Variable], array: Array) -> None:
        texts[variable.id] = format_values(array)
        values = [(each, texts.get(each.id, "<constant>")) for each in inputs]
        with open(place, "a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in format_block(variable, array, values))

    numbered = Numbered(driver, write)
    numbered.write_inputs()
    driver.visits.append(numbered.visit)


def finish_dump(driver: EvaluatorDriver, _: object) -> None:
    """Write the tensors of a driver that has run nothing."""
    if driver.visits:
        driver.compute()


def dump_outputs(driver: EvaluatorDriver, _: object) -> None:
    """Have the outputs of each iteration written."""
    names = driver.evaluator.output_names
    write_outputs(driver, {name: Variable(id=at, name=name) for at, name in enumerate(names)})
