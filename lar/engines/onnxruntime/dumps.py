"""Dumps of a session: what each operator of the optimised graph gives, as text or as tensors.

The tensors come from sessions of their own, before anything is timed; the inputs are the same in
all iterations, and so are the tensors. They have the names that MegEngine would give them, and are
numbered as there: an operator, then its outputs.

Outputs added to the original model would keep the engine from fusing operators: another graph
would run. They are added to the optimised graph instead, which then runs as it stands.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import tempfile
from collections.abc import Container, Iterator, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lar.dumps.binary import BY_DTYPE
from lar.dumps.facts import DumpFacts, write_facts
from lar.dumps.layers import Dumped, text_writer, write_dumped
from lar.dumps.names import Variable
from lar.dumps.outputs import write_outputs
from lar.dumps.values import Part, parts_of
from lar.engines.onnx_file.bodies import (
    CONTROL_FLOW,
    LOOPS,
    Body,
    Operator,
    graphs_in,
    name_by_paths,
    parameters_of,
)
from lar.engines.onnx_file.fields import SavedModel
from lar.engines.onnx_file.numbered_graph import NumberedGraph
from lar.engines.onnx_file.quantization import (
    quantizations_of,
    wanted_names,
)
from lar.engines.onnxruntime.blocked_layout import (
    DOMAIN,
    block_size,
    blocked_tensors,
    plain_layout,
    split_blocks,
)
from lar.engines.onnxruntime.graph_values import GraphValues
from lar.engines.onnxruntime.saving import save_optimized
from lar.options.table import BIN_IO_DUMP, FAST_RUN_ALGO_POLICY
from lar.records.quantization import Quantization

if TYPE_CHECKING:
    from lar.engines.onnxruntime.session import SessionDriver


def save_to_work_folder(driver: SessionDriver) -> SavedModel:
    """Save the driver's optimised model where the parent will remove it."""
    # A folder of its own: another session may have the weights of its own mapped.
    folder = Path(tempfile.mkdtemp(dir=driver.context.work_folder or None))
    save_optimized(driver, folder / "optimized.onnx", "optimized.data")
    return SavedModel((folder / "optimized.onnx").read_bytes(), folder)


Array = np.ndarray[Any, Any]

FLOATS = (1, 10, 11)  # float, float16 and double among ONNX's data types


def save_source(driver: SessionDriver, _: object) -> None:
    """Save the optimised graph that will be dumped.

    It is done before the driver loads its own session, since saving takes more memory than
    anything after it. One that loads a cache has a saved graph then.
    """
    cached = FAST_RUN_ALGO_POLICY.is_given(driver.spec.settings)
    if driver.runner == 0 and not cached and driver.dump_source is None:
        driver.dump_source = save_to_work_folder(driver)
        release_memory()


def release_memory() -> None:
    """Give memory that the C library holds for later back to the system: what a session took to
    load is as much as it keeps."""
    with contextlib.suppress(AttributeError):  # not the GNU C library
        ctypes.CDLL(None).malloc_trim(0)


def dump_tensors(driver: SessionDriver, _: object) -> None:
    """Write all tensors of a fed driver into a folder, and beside it what is known of operators."""
    if driver.runner:
        return
    folder = Path(driver.context.written[BIN_IO_DUMP.key])
    folder.mkdir()
    graph = Graph(driver)
    facts = DumpFacts(graph.operator_facts(), iteration=0, outputs=graph.outputs)
    write_facts(folder, facts)
    computed = graph.tensors(kept=wanted_names(graph.scales))
    for dumped in chain(graph.filters(), computed):
        write_dumped(folder, dumped)
    found = graph.quantizations()
    write_facts(folder, facts._replace(quantizations=found, left_out=graph.left_out))


def dump_text(driver: SessionDriver, _: object) -> None:
    """Write all tensors of a fed driver as text."""
    if driver.runner:
        return
    write = text_writer(driver.context.written)
    for dumped in Graph(driver).tensors():
        write(dumped)


def dump_outputs(driver: SessionDriver, _: object) -> None:
    """Have the outputs of each iteration written."""
    names = [node.name for node in driver.session.get_outputs()]
    variables = {name: Variable(id=number, name=name) for number, name in enumerate(names)}
    write_outputs(driver, variables)


class Graph(NumberedGraph):
    """The optimised graph of a driver."""

    def __init__(self, driver: SessionDriver) -> None:
        import onnx

        self.driver = driver
        release_memory()
        self.saved = driver.dump_source or driver.saved or save_to_work_folder(driver)
        # Without the weights that stand in a file.
        self.model: Any = onnx.load_from_string(self.saved.content)
        name_by_paths(self.model.graph)
        super().__init__(self.model.graph, driver.fed)
        whole = Body("", self.model.graph)
        self.weights = {
            each.name: each for body in graphs_in(whole) for each in body.graph.initializer
        }
        self.blocked = blocked_tensors(self.nodes)
        self.block = block_size(driver.onnxruntime) if self.blocked else 1
        self.arrays: dict[str, Array] = {}  # of scales and zero points that the run computes
        self.left_out = {
            node.name or node.outputs[0]: f"what the graphs inside this {node.operator} compute"
            for node, proto, _ in self.operators
            if node.operator not in CONTROL_FLOW and any(it.HasField("g") for it in proto.attribute)
        }

    @cached_property
    def parameters(self) -> list[dict[str, Any]]:
        """The parameters of each operator; of a body, what it holds."""
        return [
            parameters_of(it)
            | {each.name: describe_body(each.g) for each in it.attribute if each.HasField("g")}
            for it in (operator.proto for operator in self.operators)
        ]

    def quantizations(self) -> dict[str, Quantization]:
        """Return what the integers of tensors stand for, by name, when all have been computed."""
        wanted = wanted_names(self.scales) & self.weights.keys()
        constants = {name: self.read_weight(name) for name in wanted}
        return quantizations_of(self.scales, {**constants, **self.arrays})

    def read_weight(self, name: str) -> Array:
        from onnx import numpy_helper

        array: Array = numpy_helper.to_array(self.weights[name], str(self.saved.folder))
        return array

    def filters(self) -> Iterator[Dumped]:
        """Yield the weights and biases that operators take, one at a time, in plain axes or in
        blocks; not the scales of quantised tensors, nor shapes and the like."""
        in_blocks = dict(self.filters_in_blocks())
        scales, quantized = wanted_names(self.scales), {each.tensor for each in self.scales}
        for name, each in self.weights.items():
            if name in scales or name not in self.variables or name in self.outputs:
                continue
            if each.data_type not in FLOATS and name not in quantized:
                continue
            array = self.read_weight(name)
            if array.dtype.name not in BY_DTYPE:
                continue
            blocks = [self.block] * in_blocks.get(name, 0)
            array, layout = filter_in_blocks(array, blocks)
            yield self.dumped(name, (), array, layout)

    def filters_in_blocks(self) -> Iterator[tuple[str, int]]:
        """Yield the names of the filters whose output channels stand in blocks, and in how many of
        their axes there are blocks."""
        for node, known in zip(self.nodes, self.parameters, strict=True):
            if node.domain == DOMAIN.decode() and node.operator == "Conv":
                weight = self.weights.get(node.inputs[1])
                shape = tuple(weight.dims) if weight else ()
                by_channel = known.get("group", 1) > 1 and shape[1:2] == (1,)
                takes_blocks = node.inputs[0] in self.blocked and not by_channel
                yield node.inputs[1], 2 if takes_blocks else 1

    def tensors(self, kept: Container[str] = ()) -> Iterator[Dumped]:
        """Yield the inputs, then all tensors, in the graph's order; of each its parts.

        The arrays of those whose names are to be `kept` stay with the graph.
        """
        for name, given in self.driver.given.items():
            yield from self.dump_parts(name, [*parts_of(name, given)])
        for name, parts in self.values():
            yield from self.dump_parts(name, parts)
            if name in kept and len(parts) == 1 and isinstance(parts[0], Part):
                self.arrays[name] = parts[0].array

    def values(self) -> GraphValues:
        """Return all values of the graph, computed when they are gone through."""
        known = self.makers.keys() | self.driver.fed.keys()
        fixed = [name for name in self.outputs if name not in known]
        return GraphValues(self.driver, self.saved, self.model, self.makers, fixed)

    def stored(self, name: str, maker: Operator, array: Array) -> tuple[Array, str]:
        if name not in self.blocked:
            return array, ""
        if not LOOPS.isdisjoint(maker.body.around):
            return self.in_plain_axes(array), ""
        if array.ndim == 4:
            return split_blocks(array, self.block), f"NCHWC{{{self.block}}}"
        return array, ""

    def in_plain_axes(self, array: Array) -> Array:
        """Return a tensor of the blocked layout in plain axes, or several that a loop has
        stacked."""
        each = array.reshape(-1, *array.shape[-3:])
        return plain_layout(each, self.block).reshape(array.shape) if array.ndim > 3 else array


def filter_in_blocks(array: Array, blocks: Sequence[int]) -> tuple[Array, str]:
    """Return the filters of a convolution with the axes in which they are stored, and the format:
    blocks of output channels alone, or within those of input channels."""
    if not blocks or array.ndim != 4:
        return array, ""
    outputs, inputs, *sizes = array.shape
    inner = inputs // blocks[-1] if len(blocks) > 1 else inputs
    shape = (outputs // blocks[0], inner, *sizes, *blocks)
    return array.reshape(shape), f"OIHWC{{{','.join(map(str, blocks))}}}"


def describe_body(graph: Any) -> str:
    """Return the operators of a graph within an operator, and a hash of all that it holds."""
    operators = " ".join(node.op_type for node in graph.node)
    return f"[{operators}] {hashlib.sha256(graph.SerializeToString()).hexdigest()[:8]}"
