"""Single tensors of a session's optimised graph, computed by models of the nodes before them.

The nodes are those that the engine runs, fused and in blocks of channels; such a model runs as it
stands, without optimisation. Nodes of bodies stand in it beside the others. A tensor that is
computed in a loop comes from a run for each iteration.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lar.dumps.values import ELEMENT, Part, Unheld, parts_of
from lar.engines.engine import Isolation
from lar.engines.onnx_file.bodies import (
    BODY_INPUT,
    LOOPS,
    Body,
    graphs_in,
    name_by_paths,
    names_taken,
    operators_in,
)
from lar.engines.onnx_file.fields import SavedModel
from lar.engines.onnxruntime.blocked_layout import (
    block_size,
    blocked_layout,
    blocked_tensors,
    join_blocks,
    plain_layout,
    split_blocks,
)
from lar.engines.onnxruntime.dumps import release_memory, save_to_work_folder
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
        name_by_paths(self.model.graph)
        whole = Body("", self.model.graph)
        self.operators = [*operators_in(whole)]
        self.makers = {name: each for each in self.operators for name in each.node.outputs if name}
        self.places = {
            name: place
            for place, each in enumerate(self.operators)
            for name in filter(None, each.node.outputs)
        }
        graphs = [body.graph for body in graphs_in(whole)]
        self.weights = {each.name: each for graph in graphs for each in graph.initializer}
        self.sparse_weights = {
            each.values.name: each for graph in graphs for each in graph.sparse_initializer
        }
        self.blocked = blocked_tensors(each.node for each in self.operators)
        self.block = block_size(driver.onnxruntime) if self.blocked else 1

    def find_missing(self, names: Collection[str]) -> set[str]:
        known = {*self.makers, *(each.name for each in self.model.graph.input)}
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

        def fed_in(iteration: int) -> dict[str, Array]:
            """Return the values of an iteration; of a loop around it, those that it is within."""
            return {
                name: self.as_run(
                    name, array[iteration * looped[name] // count] if name in looped else array
                )
                for name, array in fed.items()
            }

        content = self.model_of(value, nodes, fed_in(0)).SerializeToString()
        session = open_saved(self.driver, SavedModel(content, self.folder))
        found = [
            self.as_dumped(output, parts_of(value, session.run([value], fed_in(each))[0]))
            for each in range(count)
        ]
        return np.stack(found) if self.is_looped(output) else found[0]

    def as_run(self, name: str, array: Array) -> Array:
        """Return a tensor of a dump, or an iteration's part of it, as the engine has it."""
        if name in self.blocked and array.ndim == 5:
            return join_blocks(array)
        in_blocks = name in self.blocked and self.is_looped(name) and array.ndim == 4
        return np.asarray(blocked_layout(array, self.block) if in_blocks else array, order="C")

    def as_dumped(self, name: str, parts: Iterable[Part | Unheld]) -> Array:
        """Return one of the parts of what the engine gave, or gave in an iteration, as a dump has
        it.

        Raises:
            LarError: no file holds it.
        """
        part = next((each for each in parts if each.name == name), None)
        if not isinstance(part, Part):
            raise LarError(part.reason if part else "the engine gives no such part of it")
        if name not in self.blocked or part.array.ndim != 4:
            return part.array
        return (plain_layout if self.is_looped(name) else split_blocks)(part.array, self.block)

    def model_of(self, output: str, nodes: Sequence[Any], values: Mapping[str, Array]) -> Any:
        """Return the model of nodes, fed with values."""
        import onnx

        taken = dict.fromkeys(name for node in nodes for name in names_taken(node))
        graph = onnx.GraphProto(
            name="alone",
            node=nodes,
            initializer=[self.weights[name] for name in taken if name in self.weights],
            sparse_initializer=[
                self.sparse_weights[name] for name in taken if name in self.sparse_weights
            ],
            input=[
                onnx.helper.make_tensor_value_info(
                    name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
                )
                for name, array in values.items()
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
        found: dict[int, Any] = {}  # by their places in the graph
        open_names, seen = [output], set[str]()
        known = (values, self.weights, self.sparse_weights, seen)
        while open_names:
            name = open_names.pop()
            maker = self.makers.get(name)
            if maker is None or maker.node.operator == BODY_INPUT:
                if name == output:
                    raise LarError("no operator of the model gives this tensor")
                raise LarError(f"it takes {name} too, whose value is not known")
            found[self.places[name]] = maker.proto
            taken = names_taken(maker.proto)
            added = [each for each in taken if not any(each in names for names in known)]
            seen.update(added)
            open_names += added
        return [found[place] for place in sorted(found)]
