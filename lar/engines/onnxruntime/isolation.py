"""Single tensors of a session's optimised graph, computed by models of the nodes before them.

The nodes are those that the engine runs, fused and in blocks of channels; such a model runs as it
stands, without optimisation. Nodes of bodies stand in it beside the others. A tensor that is
computed in a loop comes from a run for each iteration.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np

from lar.dumps.layouts import to_blocked
from lar.dumps.names import ELEMENT
from lar.dumps.values import Part, Unheld, parts_of
from lar.engines.engine import Isolation
from lar.engines.onnx_file.bodies import BODY_INPUT, LOOPS, names_taken
from lar.engines.onnx_file.fields import Message
from lar.engines.onnxruntime.blocked_layout import join_blocks, split_blocks
from lar.engines.onnxruntime.graph import Graph
from lar.engines.onnxruntime.saving import save_to_work_folder
from lar.engines.onnxruntime.session import SessionDriver
from lar.engines.onnxruntime.values import Array, tensor_type
from lar.errors import LarError
from lar.options.table import FAST_RUN_ALGO_POLICY


class SessionIsolation(Isolation):
    """The optimised model of a driver, from which models of single nodes are made."""

    def __init__(self, driver: SessionDriver) -> None:
        if FAST_RUN_ALGO_POLICY.is_given(driver.spec.settings):
            driver.load()  # then it has a saved graph
        else:
            driver.fire_hooks("before_load")
        self.graph = Graph(driver, driver.saved or save_to_work_folder(driver))
        self.makers, self.blocked = self.graph.makers, self.graph.blocked

    def find_missing(self, names: Collection[str]) -> set[str]:
        known = {*self.makers, *(each.name for each in self.graph.model.graph.input)}
        return {name for name in names if not {name, ELEMENT.sub("", name)} & known}

    def is_looped(self, name: str) -> bool:
        """Return whether a tensor is inside a loop: all its iterations are on its first axis."""
        return name in self.makers and not LOOPS.isdisjoint(self.makers[name].body.around)

    def compute(self, output: str, values: Mapping[str, Array]) -> Array:
        value = output if output in self.makers else ELEMENT.sub("", output)
        nodes = self.nodes_before(value, values)
        taken = {name for node in nodes for name in names_taken(node)}
        fed = {name: array for name, array in values.items() if name in taken}
        looped = {name: len(fed[name]) for name in fed if self.is_looped(name)}
        count = max(looped.values(), default=1)
        if any(count % each for each in looped.values()):
            raise LarError("what it takes is not computed in the same iterations")
        types = {name: tensor_type(array.dtype.name) for name, array in fed.items()}
        session = self.graph.open_alone(nodes, types, [value])
        found = []
        for at in range(count):
            # The values of an iteration, and those of the iteration of a loop around it.
            now = {name: fed[name][at * size // count] for name, size in looped.items()}
            given = {name: self.as_run(name, array) for name, array in (fed | now).items()}
            found.append(self.as_dumped(output, parts_of(value, session.run([value], given)[0])))
        return np.stack(found) if self.is_looped(output) else found[0]

    def as_run(self, name: str, array: Array) -> Array:
        """Return a tensor of a dump, or an iteration's part of it, as the engine has it."""
        if name in self.blocked and array.ndim == 5:
            return join_blocks(array)
        if name in self.blocked and self.is_looped(name) and array.ndim == 4:
            block = self.graph.block
            shape = split_blocks(array, block).shape
            return join_blocks(to_blocked(array, f"nchw{block}c", shape))
        return np.asarray(array, order="C")

    def as_dumped(self, name: str, parts: Iterable[Part | Unheld]) -> Array:
        """Return one part of a result of the engine, or of an iteration, as a dump has it.

        Raises:
            LarError: no file holds it.
        """
        part = next((each for each in parts if each.name == name), None)
        if not isinstance(part, Part):
            raise LarError(part.reason if part else "the engine gives no such part of it")
        if name not in self.blocked or part.array.ndim != 4:
            return part.array
        if self.is_looped(name):
            return self.graph.in_plain_axes(part.array)
        return split_blocks(part.array, self.graph.block)

    def nodes_before(self, output: str, values: Mapping[str, Array]) -> list[Message]:
        """Return the nodes between values and what is computed from them, in the graph's order.

        Raises:
            LarError: they take what is not among the values.
        """
        open_names, seen = [output], {output}
        while open_names:
            name = open_names.pop()
            maker = self.makers.get(name)
            if maker is None or maker.node.operator == BODY_INPUT:
                if name == output:
                    raise LarError("no operator of the model gives this tensor")
                raise LarError(f"it takes {name} too, whose value is not known")
            known = (values, self.graph.weights, self.graph.sparse, seen)
            taken = names_taken(maker.message)
            added = [each for each in taken if not any(each in names for names in known)]
            seen.update(added)
            open_names += added
        return [it.message for it in self.graph.operators if not seen.isdisjoint(it.node.outputs)]
