"""Dumps of the evaluator: what each operator of the model gives, written while it computes.

The tensors are those of the first run, in float64; what has no truth is left out, with the reason.
They have the names that MegEngine would give them, and are numbered as there: an operator, then its
outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lar.dumps.recording import LayerPlaces, number_outputs, write_outputs
from lar.engines.onnx_file.control_flow import NoTruth, parts_of_value
from lar.engines.onnx_file.fields import Node, held_in, type_name
from lar.engines.onnx_file.numbered_graph import NumberedGraph
from lar.engines.onnx_file.tensors import dtype_of
from lar.engines.reference.driver import EvaluatorDriver


class ModelDump(NumberedGraph):
    """What is written of a driver's model in a run."""

    def __init__(self, driver: EvaluatorDriver) -> None:
        super().__init__(driver.model.graph, driver.fed)
        self.driver, self.places = driver, LayerPlaces(driver)
        self.weights = driver.evaluator.weights
        self.factors = {name: it for name, it in self.weights.items() if name in self.wanted}

    def write_weights(self) -> None:
        """Write the weights that operators take, in the types of the file."""
        for tensor in held_in(self.driver.model.graph):
            name, kind = tensor.name, type_name(tensor.data_type)
            if self.holds_weight(name, kind):
                value = self.weights[name].astype(dtype_of(kind))
                for each in self.dump_parts(name, [*parts_of_value(name, value)]):
                    self.places.write_constant(each)

    def write_inputs(self) -> None:
        """Write what the model is fed with, and outputs that no operator gives."""
        known = {**self.weights, **self.driver.fed}
        for name in (*self.driver.fed, *self.outputs):
            if name in known:
                self.write_value(name, known[name])

    def visit(self, node: Node, results: Sequence[Any]) -> None:
        """Write what an operator gave; constants are left out."""
        for name, value in zip(node.outputs, results, strict=True):
            if name and node.operator != "Constant":
                self.write_value(name, value)

    def write_value(self, name: str, value: Any) -> None:
        """Write the tensors of a value, or keep why there are none."""
        for each in self.dump_parts(name, [*parts_of_value(name, value)]):
            self.places.write(each)


def dump_tensors(driver: EvaluatorDriver, _: object) -> None:
    """Have all tensors of the first run written, and what is known of operators and of the real
    numbers that integers stand for."""
    dump = ModelDump(driver)
    dump.places.write_facts(dump.facts())
    dump.write_weights()
    dump.write_inputs()
    driver.visits.append(dump.visit)
    driver.finish = lambda: dump.places.write_facts(dump.facts())


def finish(driver: EvaluatorDriver, _: object) -> None:
    """End a dump; a driver that has run nothing does so first."""
    if driver.visits:
        driver.compute()
    driver.finish()


def dump_outputs(driver: EvaluatorDriver, _: object) -> None:
    """Have the outputs of each iteration written, those that can be computed."""
    variables = number_outputs(driver.evaluator.outputs)

    def leave_out() -> None:
        for name, value in driver.results.items():
            if isinstance(value, NoTruth):
                variables.pop(name, None)

    driver.after_iteration = leave_out
    write_outputs(driver, variables)
