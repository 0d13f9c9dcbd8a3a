"""Single tensors of a model, computed by models that are cut out of it and compiled as it is."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from lar.engines.engine import Isolation
from lar.engines.openvino.graph import ExecutedGraph, tensor_name
from lar.errors import LarError

if TYPE_CHECKING:
    from lar.engines.openvino.driver import CompiledDriver

Array = np.ndarray[Any, Any]


class ModelIsolation(Isolation):
    """The model of a driver, from which models of single operators are cut."""

    def __init__(self, driver: CompiledDriver) -> None:
        self.driver = driver
        driver.load()
        graph = ExecutedGraph(driver.model, driver.compiled or driver.compile(driver.model))
        ports = [*graph.outputs, *driver.model.inputs]
        self.known = {tensor_name(it): it for it in ports}
        self.known |= {tensor_name(it): it.get_node().input_value(0) for it in driver.model.outputs}

    def find_missing(self, names: Collection[str]) -> set[str]:
        return set(names) - self.known.keys()

    def compute(self, output: str, values: Mapping[str, Array]) -> Array:
        if output not in self.known:
            raise LarError("no operator of the model gives this tensor")
        openvino, model = self.driver.openvino, self.driver.model
        clone = model.clone()
        places = dict(zip(model.get_ordered_ops(), clone.get_ordered_ops(), strict=True))

        def cloned(name: str) -> Any:
            port = self.known[name]
            return places[port.get_node()].output(port.get_index())

        end, parameters = cloned(output), []
        for name, array in values.items():
            port = cloned(name)
            shape = openvino.PartialShape(list(array.shape))
            parameters.append(openvino.op.Parameter(port.get_element_type(), shape))
            for taker in port.get_target_inputs():
                taker.replace_source_output(parameters[-1].output(0))
        try:
            cut = openvino.Model([end], parameters, "alone")
        except RuntimeError as error:
            raise LarError("it takes others too, whose values are not known") from error
        request = self.driver.compile(cut).create_infer_request()
        for place, array in enumerate(values.values()):
            request.set_input_tensor(place, openvino.Tensor(np.require(array, requirements="C")))
        request.infer()
        return np.array(request.get_output_tensor(0).data)
