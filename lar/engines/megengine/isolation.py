"""Single tensors of MegEngine's graph, computed from given values of tensors before them.

The graph is the loaded one, optimised for inference as the options ask for it. What MegEngine fuses
besides when it compiles a graph, it fuses again in each part of it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from lar.engines.engine import Isolation
from lar.engines.megengine.graph import GraphDriver
from lar.errors import LarError

Array = np.ndarray[Any, Any]

# The number of an operator in a name that MegEngine made up; lite counts otherwise.
NUMBER = re.compile(r"\[\d+\]")


class GraphIsolation(Isolation):
    """A driver's graph, in which variables are replaced by values."""

    def __init__(self, driver: GraphDriver) -> None:
        driver.load()
        # Each part of the graph is executed once, and this check of the first time takes as long.
        driver.graph.options.var_sanity_check_first_run = False
        self.driver = driver
        self.variables: dict[str, Any] = {}
        self.alike: defaultdict[str, list[Any]] = defaultdict(list)
        self.places: dict[Any, int] = {}  # in the order of execution
        for operator in driver.tools.get_oprs_seq(driver.output_vars, False, False):
            for variable in operator.outputs:
                self.variables.setdefault(variable.name, variable)
                self.alike[NUMBER.sub("", variable.name)].append(variable)
                self.places[variable] = len(self.places)

    def candidates(self, name: str) -> Sequence[Any]:
        """Return the variables that a name may be: several if they differ in MegEngine's own
        numbers alone."""
        own = [self.variables[name]] if name in self.variables else []
        found = self.alike.get(NUMBER.sub("", name), [])
        return own if own and (len(found) != 1 or not NUMBER.search(name)) else found

    def variable(self, name: str) -> Any:
        """Return the variable of a name.

        Raises:
            LarError: there is none, or there are several.
        """
        found = self.candidates(name)
        if len(found) == 1:
            return found[0]
        several = "several variables of the graph may be it"
        raise LarError(several if found else "the graph has no such tensor", subject=name)

    def find_missing(self, names: Collection[str]) -> set[str]:
        return {name for name in names if len(self.candidates(name)) != 1}

    def compute(self, output: str, values: Mapping[str, Array]) -> Array:
        api, tools, graph = self.driver.graph_api, self.driver.tools, self.driver.graph
        wanted = self.variable(output)
        taken = {self.variable(name): array for name, array in values.items()}
        nodes = {
            variable: self.driver.input_node(variable.comp_node, variable.dtype, array.shape)
            for variable, array in taken.items()
        }
        replaced = wanted
        # One at a time, the last first: what is computed of one may be another.
        for variable in sorted(nodes, key=self.places.__getitem__, reverse=True):
            (replaced,) = tools.replace_vars([replaced], {variable: nodes[variable].outputs[0]})
        # The engine would wait for them for ever.
        for missing in tools.get_dep_vars([replaced], "Host2DeviceCopy"):
            raise LarError(f"the graph computes it from {missing.name} too, unlike the run")
        sink = api.OutputNode(replaced)
        function = graph.compile([sink.outputs[0]])
        for variable, array in taken.items():
            # A quantised type is one of integers that has the scale beside it.
            typed = np.asarray(array, order="C").view(variable.dtype)
            tensor = self.driver.megengine.Tensor(typed, dtype=variable.dtype, device="xpux")
            nodes[variable].set_value(tensor._dev_tensor())
        function.execute()
        function.wait()
        found: Array = sink.get_value().numpy()
        return found
