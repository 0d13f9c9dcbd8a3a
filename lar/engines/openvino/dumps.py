"""Dumps of a compiled model: what each operator of the executed graph gives, as text or as tensors.

The tensors are results that are added to the model. A result may keep the engine from fusing what
takes the same tensor (a sum is computed in place of one of its terms), so the executed graph is
compared with that of the run: a tensor is taken from a model that executes all before it as the run
does. They have the names of the model file, and are numbered as MegEngine does, an operator, then
its outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lar.dumps.binary import BY_DTYPE
from lar.dumps.facts import DumpFacts, OperatorFact, write_facts
from lar.dumps.layers import Dumped, text_writer, write_dumped
from lar.dumps.names import Numbering, Variable
from lar.dumps.outputs import write_outputs
from lar.engines.onnx_file.quantization import read_quantizations
from lar.engines.openvino.driver import DTYPES, array_of
from lar.engines.openvino.graph import ExecutedGraph, ExecutedNode, tensor_name
from lar.engines.openvino.model_files import is_onnx
from lar.engines.openvino.operator_kinds import STEPS
from lar.options.table import BIN_IO_DUMP

if TYPE_CHECKING:
    from lar.engines.openvino.driver import CompiledDriver

Array = np.ndarray[Any, Any]

OTHERWISE = "OpenVINO executes other operators where this is taken out of its graph"
NO_TYPE = "no file holds elements of its type"


def dump_tensors(driver: CompiledDriver, _: object) -> None:
    """Write all tensors of a fed driver into a folder, and beside it what is known of operators."""
    if driver.runner:
        return
    folder = Path(driver.context.written[BIN_IO_DUMP.key])
    folder.mkdir()
    layers = Layers(driver)
    for dumped in (*layers.weights(), *layers.tensors()):
        write_dumped(folder, dumped)
    write_facts(folder, layers.facts())


def dump_text(driver: CompiledDriver, _: object) -> None:
    """Write all tensors of a fed driver as text."""
    if driver.runner:
        return
    write = text_writer(driver.context.written)
    for dumped in Layers(driver).tensors():
        write(dumped)


def dump_outputs(driver: CompiledDriver, _: object) -> None:
    """Have the outputs of each iteration written."""
    variables = {name: Variable(id=at, name=name) for at, name in enumerate(driver.outputs())}
    write_outputs(driver, variables)


class Layers:
    """The tensors of the graph that a driver executes."""

    def __init__(self, driver: CompiledDriver) -> None:
        self.driver = driver
        self.graph = ExecutedGraph(driver.model, driver.compiled)
        self.arrays = self.values()
        self.left_out = {
            tensor_name(it): OTHERWISE
            if it.get_element_type().get_type_name() in DTYPES
            else NO_TYPE
            for it in self.graph.outputs
            if it not in self.arrays
        }
        self.regions = self.graph.regions_between(self.arrays)
        self.numbering = Numbering(driver.fed)
        for region in self.regions:
            names = [tensor_name(it) for it in region.outputs]
            self.numbering.add_node(region.node.type, region.node.title, region.taken, names)
        self.variables = self.numbering.variables

    def facts(self) -> DumpFacts:
        """Return what is known of the dump."""
        operators = [
            OperatorFact(
                self.variables[tensor_name(region.outputs[0])].operator_id,
                {STEPS: ",".join(region.steps), "kernel": region.node.kernel},
            )
            for region in self.regions
        ]
        model, names = Path(self.driver.model_file), [*self.driver.outputs()]
        known = read_quantizations(model) if is_onnx(model) else {}
        facts = DumpFacts(operators, iteration=0, outputs=names, left_out=self.left_out)
        return facts._replace(quantizations=known)

    def weights(self) -> Iterator[Dumped]:
        """Yield the weights that operators take; not bounds and the like."""
        for value in dict.fromkeys(it for region in self.regions for it in region.constants):
            array = value.get_node().data
            if array.ndim and array.dtype.name in BY_DTYPE:
                yield self.dumped(tensor_name(value), (), array)

    def tensors(self) -> Iterator[Dumped]:
        """Yield the inputs, then what each operator gives, in the order in which they run."""
        for name, array in self.driver.fed.items():
            yield self.dumped(name, (), array)
        for region in self.regions:
            for output in region.outputs:
                array = self.arrays.pop(output)
                if array.dtype.name in BY_DTYPE:
                    yield self.dumped(tensor_name(output), region.taken, array)

    def dumped(self, name: str, inputs: Sequence[str], array: Array) -> Dumped:
        """Return a tensor with its names."""
        variable = self.variables[name] = replace(
            self.variables[name],
            shape=array.shape,
            stored=True,
            dtype=BY_DTYPE[array.dtype.name].name,
        )
        return Dumped(variable, tuple(self.variables[each] for each in inputs), array)

    def values(self) -> dict[Any, Array]:
        """Return the values of the tensors that can be taken out of the graph as it is executed:
        all at once, then those that do not keep others from being fused, then these one by one."""
        results = [it.get_node().input_value(0) for it in self.driver.model.outputs]
        found = dict(self.run(self.driver.compiled, results))

        def missing() -> list[Any]:
            return [it for it in self.graph.outputs if it not in found]

        spoilers = self.take(missing(), found)
        self.take([it for it in missing() if it not in spoilers], found)
        for output in missing():
            self.take([output], found)
        return found

    def take(self, outputs: Sequence[Any], found: dict[Any, Array]) -> set[Any]:
        """Add the values of tensors, of a model that gives them too, as far as what is before them
        is executed as in the run.

        Returns:
            The tensors before what is executed in another way that other operators take too.
        """
        compiled, changed = self.compiled_with(outputs)
        behind: set[Any] = set()
        for region in self.graph.regions:
            if region.node in changed or not behind.isdisjoint(region.inputs):
                behind.update(region.outputs)
        computed = self.run(compiled, outputs)
        found.update((output, array) for output, array in computed if output not in behind)
        before = (
            it for region in self.graph.regions if region.node in changed for it in region.inputs
        )
        return {it for it in before if len(it.get_target_inputs()) > 1}

    def compiled_with(self, outputs: Sequence[Any]) -> tuple[Any, set[ExecutedNode]]:
        """Return the model that gives outputs too, and the nodes of the graph that it does not
        execute as the run does."""
        driver, model = self.driver, self.driver.model
        own = [it.get_node().input_value(0) for it in model.outputs]
        extended = driver.openvino.Model([*outputs, *own], model.get_parameters(), "tapped")
        compiled = driver.compile(extended)
        left = self.graph.signatures - ExecutedGraph(model, compiled).signatures
        return compiled, {it for it in self.graph.computing if self.graph.signature_of(it) in left}

    def run(self, compiled: Any, outputs: Sequence[Any]) -> Iterator[tuple[Any, Array]]:
        """Yield the first results of a compiled model, of the driver's inputs."""
        request = compiled.create_infer_request()
        for place, port in enumerate(self.driver.model.inputs):
            request.set_input_tensor(place, self.driver.tensor_of(port))
        request.infer()
        for place, output in enumerate(outputs):
            array = array_of(request.get_output_tensor(place))
            if not isinstance(array, str):
                yield output, array


def has_dtype(output: Any) -> bool:
    """Return whether NumPy has a type for the elements of a tensor."""
    return output.get_element_type().get_type_name() in DTYPES
