"""Dumps of the evaluator: what each operator of the model gives, written while it computes.

The tensors are those of the first run, in float64; what has no truth is left out, with the reason.
They have the names that MegEngine would give them, and are numbered as there: an operator, then its
outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lar.dumps.facts import write_facts
from lar.dumps.layers import Dumped, text_writer, write_dumped
from lar.dumps.names import Variable
from lar.dumps.outputs import write_outputs
from lar.engines.onnx_file.control_flow import NoTruth, parts_of_value
from lar.engines.onnx_file.fields import Node, held_in, type_name
from lar.engines.onnx_file.numbered_graph import NumberedGraph
from lar.engines.onnx_file.tensors import dtype_of
from lar.engines.reference.driver import EvaluatorDriver
from lar.options.table import BIN_IO_DUMP


class ModelDump(NumberedGraph):
    """What is written of a driver's model in a run."""

    def __init__(self, driver: EvaluatorDriver, write: Callable[[Dumped], None]) -> None:
        super().__init__(driver.model.graph, driver.fed)
        self.driver, self.write = driver, write
        self.weights = driver.evaluator.weights
        self.factors = {name: it for name, it in self.weights.items() if name in self.wanted}

    def write_weights(self) -> None:
        """Write the weights that operators take, in the types of the file."""
        for tensor in held_in(self.driver.model.graph):
            name, kind = tensor.name, type_name(tensor.data_type)
            if self.holds_weight(name, kind):
                self.write_value(name, self.weights[name].astype(dtype_of(kind)))

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
            self.write(each)


def dump_tensors(driver: EvaluatorDriver, _: object) -> None:
    """Have all tensors of the first run written into a folder, and beside it what is known of
    operators and of the real numbers that integers stand for."""
    folder = Path(driver.context.written[BIN_IO_DUMP.key])
    folder.mkdir()
    dump = ModelDump(driver, partial(write_dumped, folder))
    write_facts(folder, dump.facts())
    dump.write_weights()
    dump.write_inputs()
    driver.visits.append(dump.visit)
    driver.finish = lambda: write_facts(folder, dump.facts())


def dump_text(driver: EvaluatorDriver, _: object) -> None:
    """Have all tensors of the first run written as text."""
    dump = ModelDump(driver, text_writer(driver.context.written))
    dump.write_inputs()
    driver.visits.append(dump.visit)


def finish(driver: EvaluatorDriver, _: object) -> None:
    """End a dump; a driver that has run nothing does so first."""
    if driver.visits:
        driver.compute()
    driver.finish()


def dump_outputs(driver: EvaluatorDriver, _: object) -> None:
    """Have the outputs of each iteration written, those that can be computed."""
    names = driver.evaluator.outputs
    variables = {name: Variable(id=at, name=name) for at, name in enumerate(names)}

    def leave_out() -> None:
        for name, value in driver.results.items():
            if isinstance(value, NoTruth):
                variables.pop(name, None)

    driver.after_iteration = leave_out
    write_outputs(driver, variables)
