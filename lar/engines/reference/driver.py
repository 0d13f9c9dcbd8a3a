"""The evaluator driver: a model computed by ONNX's reference evaluator, on the calling thread.

Dumps of the evaluator: what each operator of the model gives, written while it computes.

The tensors are those of the first run, in float64; what has no truth is left out, with the reason.
They have the names that MegEngine would give them, and are numbered as there: an operator, then its
outputs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from lar.dumps.recording import LayerPlaces, Unheld, leaves_of, number_outputs, write_outputs
from lar.engines.driver import Driver
from lar.engines.onnx_file.contents import inputs_in, read_message, refuse_others
from lar.engines.onnx_file.control_flow import NoTruth, Visit, parts_of_value
from lar.engines.onnx_file.fields import Node, held_in, type_name
from lar.engines.onnx_file.numbered_graph import NumberedGraph
from lar.engines.onnx_file.tensors import dtype_of
from lar.engines.reference.evaluator import evaluator_of, shape_of
from lar.engines.reference.implementations import Array, widened
from lar.errors import UsageError
from lar.records.run import EngineFacts, TensorInfo

NO_TIMES = "the times of the reference evaluator say nothing about the model's speed"


class EvaluatorDriver(Driver):
    """A model in float64: its inputs are converted, and its outputs stay so.

    `visits` are called in the first run, with each node and its results; `finish` after the last.
    """

    name = "evaluator"
    calls = {"load": "ReferenceEvaluator", "forward": "ReferenceEvaluator.run"}

    def set_up(self) -> None:
        self.visits: list[Visit] = []
        self.finish: Callable[[], object] = bool
        self.results: dict[str, Any] = {}

    def facts(self) -> EngineFacts:
        return self.usual_facts(onnx.__version__)

    def load(self) -> None:
        self.fire_hooks("before_load")
        self.notes.append(NO_TIMES)
        path = Path(self.spec.model)
        self.model = read_message(path)
        self.evaluator = evaluator_of(self.model, path.parent)
        weights = self.evaluator.weights
        refuse_others(path, [it for it in self.model.graph.input if it.name not in weights])
        self.infos = inputs_in(self.model, weights)
        self.fire_hooks("after_load")

    def inputs(self) -> tuple[TensorInfo, ...]:
        return self.infos

    def feed(self, arrays: Mapping[str, Array]) -> None:
        self.fed = widened(dict(arrays))
        self.start, self.wait = self.compute, bool
        self.fire_hooks("before_run")

    def compute(self) -> None:
        """Compute the outputs; what is dumped is written meanwhile.

        Raises:
            UsageError: none of them can be computed, and nothing is dumped.
        """
        visits, self.visits = self.visits, []

        def visit(node: Node, results: Sequence[Any]) -> None:
            for each in visits:
                each(node, results)

        values = self.evaluator.run(self.fed, visit if visits else None)
        self.results = dict(zip(self.evaluator.outputs, values, strict=True))
        lacking = [each for each in values if isinstance(each, NoTruth)]
        if len(lacking) == len(values) and not self.context.written:
            operator, says, _ = lacking[0]
            problem = f"ONNX's reference evaluator cannot compute {operator}"
            hint = f"it says: {says}" if says else "it has no such operator"
            raise UsageError(problem, hint, subject=self.spec.model)

    def outputs(self) -> Mapping[str, Array | str]:
        found = (each for name, it in self.results.items() for each in leaves_of(name, it))
        return {part: array_or_reason(part, leaf) for part, leaf in found}


def array_or_reason(name: str, value: Any) -> Array | str:
    """Return an array of numbers or texts, or why there is none."""
    if isinstance(value, NoTruth):
        return value.why(name)
    return value.reason if isinstance(value, Unheld) else np.asarray(value)


def print_operators(driver: EvaluatorDriver, _: bool) -> None:
    """Print each operator of the first run when it has been computed."""

    def show(node: Node, results: Sequence[Any]) -> None:
        shapes = " ".join(map(shape_of, results))
        print(f"{node.operator} {node.name or node.outputs[0]}: {shapes}", file=sys.stderr)

    driver.visits.append(show)


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
