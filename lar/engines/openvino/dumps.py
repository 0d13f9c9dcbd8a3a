"""Dumps of a compiled model: the output tensors of each operator in the executed graph.

lar makes these tensors readable by adding them to the results of the model. If a tensor becomes a
result, the engine may no longer fuse the operators that read this tensor (such as a sum that is
computed in the memory of one of its terms). Therefore lar compares the executed graph of the
changed model with the executed graph of the run. A tensor is read only from a model that executes
all operators before this tensor in the same way as the run. Tensors have the names that they have
in the model file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from lar.dumps import DumpFacts
from lar.dumps.recording import Layer, dump_layers, number_outputs, write_outputs
from lar.engines.engine import Isolation
from lar.engines.formats import is_onnx
from lar.engines.onnx_file.numbered_graph import read_quantizations
from lar.engines.openvino.driver import DTYPES, Array, CompiledDriver, results_of, tensor_name
from lar.engines.openvino.model_file import STEPS, ExecutedGraph, Region, cut_model
from lar.errors import LarError

OTHERWISE = "OpenVINO executes other operators if this tensor is a result of the model"
NO_TYPE = "no file holds elements of its type"


def dump_graph(driver: CompiledDriver, _: object) -> None:
    """Write a dump of all tensors for a driver's present inputs, and facts about the operators."""
    if driver.runner:
        return
    graph = ExecutedGraph(driver.model, driver.compiled)
    arrays = TakenTensors(driver, graph).found
    regions = graph.regions_between(arrays)
    weights = dict.fromkeys(it for region in regions for it in region.constants)
    fixed = {tensor_name(it): it.get_node().data for it in weights}
    left_out = {
        tensor_name(it): OTHERWISE if it.get_element_type().get_type_name() in DTYPES else NO_TYPE
        for it in graph.outputs
        if it not in arrays
    }
    model = Path(driver.model_file)
    known = read_quantizations(model) if is_onnx(model) else {}
    dump_layers(
        driver,
        driver.fed,
        (layer_of(region, arrays) for region in regions),
        [*driver.outputs()],
        constants={name: array for name, array in fixed.items() if array.ndim},
        facts=DumpFacts(left_out=left_out, quantizations=known),
    )


def layer_of(region: Region, arrays: dict[Any, Array]) -> Layer:
    """Return the part of a dump for one region, and remove the region's outputs from `arrays`."""
    node = region.node
    given = {tensor_name(it): arrays.pop(it) for it in region.outputs}
    parameters = {STEPS: ",".join(region.steps), "kernel": node.kernel, "precision": node.precision}
    return Layer(node.title, node.type, region.taken, given, parameters)


def dump_outputs(driver: CompiledDriver, _: object) -> None:
    """Write a dump of the outputs of each iteration."""
    write_outputs(driver, number_outputs(driver.outputs()))


class TakenTensors:
    """The tensors of the graph that a driver executes, as far as lar can read their values.

    lar has four ways to read values, and tries each way for the tensors that are still missing. The
    first way reads all tensors at once. If a tensor is made a result, the engine may no longer fuse
    the operators around the tensor; the second way leaves out such tensors. The third way cuts the
    model into parts at each missing tensor. The fourth way reads the missing tensors one by one.
    """

    def __init__(self, driver: CompiledDriver, graph: ExecutedGraph) -> None:
        self.driver, self.graph = driver, graph
        self.found = self.run(driver.compiled, results_of(driver.model))
        # Values from models that execute some operators differently: nearly the run's values.
        self.near: dict[Any, Array] = {}
        spoilers = self.take(self.missing())
        self.take([it for it in self.missing() if it not in spoilers])
        self.take(self.missing(), apart=True)
        for output in self.missing():
            self.take([output])

    def missing(self) -> list[Any]:
        """Return the tensors without a value so far, in the order of computation."""
        return [it for it in self.graph.outputs if it not in self.found]

    def take(self, outputs: Sequence[Any], *, apart: bool = False) -> set[Any]:
        """Run the model with additional tensors as results, and store the values that are right.

        The value of a tensor is right if the model executes all operators before the tensor in the
        same way as the run. If `apart` is true, the model is cut into parts at each of the tensors.

        Returns:
            Inputs of operators that the engine now executes in another way than in the run; these
            inputs may have caused the difference.
        """
        at = [it for it in outputs if it in self.near] if apart else []
        if not outputs or (apart and not at):
            return set()
        model = self.driver.model
        inputs = [it.output(0) for it in model.get_parameters()]
        shapes = {it: it.get_partial_shape() for it in (*inputs, *at)}
        cut = cut_model(self.driver.openvino, model, shapes, [*outputs, *results_of(model)])
        compiled = self.driver.compile(cut)
        # Kernels of a model with open axes may change in its first run, so compare before it.
        left = self.graph.signatures - ExecutedGraph(model, compiled).signatures
        computed = self.run_cut(compiled, outputs, at)
        changed = [it for it in self.graph.regions if self.graph.signature_of(it.node) in left]
        behind: set[Any] = set()
        for region in self.graph.regions:
            if region in changed or not behind.isdisjoint(region.inputs):
                behind.update(region.outputs)
        self.found |= {it: array for it, array in computed.items() if it not in behind}
        self.near |= computed
        return {it for region in changed for it in region.inputs if is_spoiler(it, region)}

    def run_cut(self, compiled: Any, outputs: Sequence[Any], at: Sequence[Any]) -> dict[Any, Array]:
        """Return the values of `outputs`; the model may be cut at the tensors `at`.

        lar first feeds nearly right values of the tensors `at`. Each later run is fed with the
        values that the previous run computed for these tensors. The runs end when the computed
        values equal the fed values. In each run, the value of at least one more tensor of `at`
        becomes right.
        """
        fed = {it: self.near[it] for it in at}
        for _ in range(len(at) + 1):
            given = self.run(compiled, outputs, fed)
            if all(given[it].tobytes() == fed[it].tobytes() for it in at):
                return given
            fed = {it: given[it] for it in at}
        return {}

    def run(
        self, compiled: Any, outputs: Sequence[Any], fed: Mapping[Any, Array] = MappingProxyType({})
    ) -> dict[Any, Array]:
        """Run a model on the inputs and `fed`; return `outputs`, which are its first results."""
        tensors = map(self.driver.tensor_of, self.driver.model.inputs)
        others = map(self.driver.openvino.Tensor, fed.values())
        given = zip(outputs, self.driver.compute(compiled, (*tensors, *others)), strict=False)
        return {output: array for output, array in given if not isinstance(array, str)}


def is_spoiler(value: Any, region: Region) -> bool:
    """Return whether the engine may execute a region differently if a tensor becomes a result.

    A difference is possible if several operators read the tensor, or if the region combines the
    tensor with another tensor that the region has computed. If the tensor is a result, the region
    can no longer write its output into the tensor's memory.
    """
    takers = [it.get_node() for it in value.get_target_inputs()]
    joined = (it for taker in takers if taker in region.operators for it in taker.input_values())
    return len(takers) > 1 or any(it.get_node() in region.operators for it in joined)


# Computes single tensors, by models that are cut out of the model and compiled in the same way


class ModelIsolation(Isolation):
    """The model of a driver, out of which lar cuts models that compute single tensors."""

    def __init__(self, driver: CompiledDriver) -> None:
        self.driver = driver
        driver.load()
        graph = ExecutedGraph(driver.model, driver.compiled or driver.compile(driver.model))
        ports = [*graph.outputs, *driver.model.inputs, *results_of(driver.model)]
        self.known = {tensor_name(it): it for it in ports}

    def find_missing(self, names: Collection[str]) -> set[str]:
        return set(names) - self.known.keys()

    def compute(self, output: str, values: Mapping[str, Array]) -> Array:
        if output not in self.known:
            raise LarError("no operator of the model computes this tensor")
        openvino = self.driver.openvino
        arrays = {self.known[name]: it for name, it in values.items()}
        shapes = {port: openvino.PartialShape([*array.shape]) for port, array in arrays.items()}
        try:
            cut = cut_model(openvino, self.driver.model, shapes, [self.known[output]])
        except RuntimeError as error:
            raise LarError("the tensor depends on tensors whose values are unknown") from error
        tensors = (openvino.Tensor(np.require(it, requirements="C")) for it in arrays.values())
        return np.array(self.driver.compute(self.driver.compile(cut), tensors)[0])
