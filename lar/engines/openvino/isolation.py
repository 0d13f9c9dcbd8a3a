"""Single tensors of a model, computed by models that are cut out of it and compiled as it is."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from lar.engines.engine import Isolation
from lar.engines.openvino.driver import CompiledDriver
from lar.engines.openvino.graph import ExecutedGraph, cut_model
from lar.engines.openvino.tensors import Array, results_of, tensor_name
from lar.errors import LarError


class ModelIsolation(Isolation):
    """The model of a driver, from which models of single operators are cut."""

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
            raise LarError("no operator of the model gives this tensor")
        openvino = self.driver.openvino
        arrays = {self.known[name]: it for name, it in values.items()}
        shapes = {port: openvino.PartialShape([*array.shape]) for port, array in arrays.items()}
        try:
            cut = cut_model(openvino, self.driver.model, shapes, [self.known[output]])
        except RuntimeError as error:
            raise LarError("it takes others too, whose values are not known") from error
        tensors = (openvino.Tensor(np.require(it, requirements="C")) for it in arrays.values())
        return np.array(self.driver.compute(self.driver.compile(cut), tensors)[0])
