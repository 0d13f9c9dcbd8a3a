"""Single tensors of a session's optimised graph, computed by models of the nodes before them.

The nodes are those that the engine runs, fused and in blocks of channels; such a model runs as it
stands, without optimisation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from lar.dumps.values import ELEMENT, Unheld, parts_of
from lar.engines.engine import Isolation
from lar.engines.onnxruntime.blocked_layout import (
    block_size,
    blocked_tensors,
    join_blocks,
    split_blocks,
)
from lar.engines.onnxruntime.dumps import release_memory, save_to_work_folder
from lar.engines.onnxruntime.model_fields import SavedModel, nodes_in
from lar.engines.onnxruntime.saving import open_saved
from lar.errors import LarError
from lar.options.table import FAST_RUN_ALGO_POLICY

if TYPE_CHECKING:
    from lar.engines.onnxruntime.session import SessionDriver

Array = np.ndarray[Any, Any]


class SessionIsolation(Isolation):
    """The optimised model of a driver, from which models of single nodes are made."""

    def __init__(self, driver: SessionDriver) -> None:
        import onnx

        self.driver = driver
        if FAST_RUN_ALGO_POLICY.is_given(driver.spec.settings):
            driver.load()  # which has a saved graph then
        else:
            driver.fire_hooks("before_load")
        saved = driver.saved or save_to_work_folder(driver)
        release_memory()
        self.folder = saved.folder
        self.model = onnx.load_from_string(saved.content)
        graph = self.model.graph
        self.makers = {name: node for node in graph.node for name in node.output if name}
        self.weights = {each.name: each for each in graph.initializer}
        self.sparse_weights = {each.values.name: each for each in graph.sparse_initializer}
        self.blocked = blocked_tensors(nodes_in(saved.content))
        self.block = block_size(driver.onnxruntime) if self.blocked else 1

    def find_missing(self, names: Collection[str]) -> set[str]:
        known = {*self.makers, *(each.name for each in self.model.graph.input)}
        return {name for name in names if not {name, ELEMENT.sub("", name)} & known}

    def compute(self, output: str, values: Mapping[str, Array]) -> Array:
        fed = {name: np.asarray(array, order="C") for name, array in values.items()}
        for name, array in fed.items():
            if name in self.blocked and array.ndim == 5:
                fed[name] = join_blocks(array)
        value = output if output in self.makers else ELEMENT.sub("", output)
        content = self.model_of(value, fed).SerializeToString()
        session = open_saved(self.driver, SavedModel(content, self.folder))
        taken = {each.name for each in session.get_inputs()}
        (found,) = session.run([value], {name: fed[name] for name in taken})
        parts = [each for each in parts_of(value, found) if each.name == output]
        if not parts or isinstance(parts[0], Unheld):
            raise LarError(f"it is no array that a file holds, but {type(found).__name__}")
        given = parts[0].array
        in_blocks = output in self.blocked and given.ndim == 4
        return split_blocks(given, self.block) if in_blocks else given

    def model_of(self, output: str, values: Mapping[str, Array]) -> Any:
        """Return the model of the nodes between values and what is computed from them.

        Raises:
            LarError: they take what is not among the values.
        """
        import onnx

        nodes = self.nodes_before(output, values)
        taken = {name for node in nodes for name in names_taken(node)}
        graph = onnx.GraphProto(
            name="alone",
            node=nodes,
            initializer=[each for name, each in self.weights.items() if name in taken],
            sparse_initializer=[
                each for name, each in self.sparse_weights.items() if name in taken
            ],
            input=[
                onnx.helper.make_tensor_value_info(
                    name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
                )
                for name, array in values.items()
                if name in taken
            ],
            output=[onnx.ValueInfoProto(name=output)],
        )
        return onnx.ModelProto(
            ir_version=self.model.ir_version,
            opset_import=self.model.opset_import,
            functions=self.model.functions,
            graph=graph,
        )

    def nodes_before(self, output: str, values: Mapping[str, Array]) -> list[Any]:
        """Return the nodes between values and what is computed from them, in the graph's order.

        Raises:
            LarError: they take what is not among the values.
        """
        found: set[str] = set()
        open_names, seen = [output], set[str]()
        while open_names:
            name = open_names.pop()
            node = self.makers.get(name)
            if node is None:
                if name == output:
                    raise LarError("the model has no such tensor")
                raise LarError(f"it takes {name} too, whose value is not known")
            found.add(name)
            known = {*values, *self.weights, *self.sparse_weights, *seen}
            added = [each for each in names_taken(node) if each not in known]
            seen.update(added)
            open_names += added
        return [node for node in self.model.graph.node if not found.isdisjoint(node.output)]


def names_taken(node: Any) -> Iterator[str]:
    """Yield the tensors that a node takes, those that the graphs inside it take from outside
    too."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            own = {each.name for each in (*graph.input, *graph.initializer)}
            own |= {name for inner in graph.node for name in inner.output}
            yield from (
                name for inner in graph.node for name in names_taken(inner) if name not in own
            )
