"""The evaluator driver: a model computed by ONNX's reference evaluator, on the calling thread."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from lar.dumps.values import Unheld, leaves_of
from lar.engines.driver import Driver
from lar.engines.onnx_file.contents import inputs_in, read_message, refuse_others
from lar.engines.onnx_file.control_flow import NoTruth, Visit
from lar.engines.onnx_file.fields import Node
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
