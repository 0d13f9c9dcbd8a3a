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
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lar.dumps.binary import BY_DTYPE, write_tensor
from lar.dumps.facts import DumpFacts, OperatorFact, read_facts, write_facts
from lar.dumps.names import Numbering, Variable, contiguous_strides, format_name
from lar.dumps.outputs import write_outputs
from lar.dumps.text import format_block, format_values
from lar.engines.onnxruntime.blocked_layout import DOMAIN, block_size
from lar.engines.onnxruntime.model_fields import (
    GRAPH_OUTPUT,
    MODEL_GRAPH,
    VALUE_NAME,
    Node,
    SavedModel,
    bytes_field,
    nodes_in,
    output_names,
)
from lar.engines.onnxruntime.quantization import (
    Scales,
    quantizations_of,
    scales_in,
    wanted_names,
)
from lar.engines.onnxruntime.saving import open_saved, save_optimized
from lar.engines.onnxruntime.session import DTYPES
from lar.options.table import BIN_IO_DUMP, FAST_RUN_ALGO_POLICY, TEXT_DUMPS
from lar.records.quantization import Quantization

if TYPE_CHECKING:
    from lar.engines.onnxruntime.session import SessionDriver


class Producer(NamedTuple):
    """A tensor of the optimised graph and the node that gives it.

    `blocked`: it holds blocks of channels, as `blocked_layout` describes.
    """

    tensor: str
    operator: str
    node: str
    inputs: tuple[str, ...]
    blocked: bool


def instrument(driver: SessionDriver) -> tuple[SavedModel, tuple[Producer, ...]]:
    """Return the model that a loaded driver runs, with every tensor as an output.

    Its outputs are the original's, then all other tensors. What is returned beside it are the
    tensors in the order of the graph, the original's outputs among them; those inside control
    flow are not seen. `open_saved` makes a session of it. The weights stand in the spec's work
    folder for as long as that exists.
    """
    saved = driver.saved or save_to_work_folder(driver)
    tensors = tuple(producers_of(nodes_in(saved.content)))
    known = set(output_names(saved.content))
    added = [each.tensor for each in tensors if each.tensor not in known]
    return SavedModel(add_outputs(saved.content, added), saved.folder), tensors


def save_to_work_folder(driver: SessionDriver) -> SavedModel:
    """Save the driver's optimised model where the parent will remove it."""
    # A folder of its own: another session may have the weights of its own mapped.
    folder = Path(tempfile.mkdtemp(dir=driver.context.work_folder or None))
    save_optimized(driver, folder / "optimized.onnx", "optimized.data")
    return SavedModel((folder / "optimized.onnx").read_bytes(), folder)


def add_outputs(model: bytes, names: Iterable[str]) -> bytes:
    """Return a model with outputs added; the engine infers their types."""
    outputs = (bytes_field(GRAPH_OUTPUT, bytes_field(VALUE_NAME, name.encode())) for name in names)
    # A second graph is merged into the first.
    return model + bytes_field(MODEL_GRAPH, b"".join(outputs))


def producers_of(nodes: Iterable[Node]) -> Iterable[Producer]:
    """Yield the tensors that nodes give, in their order."""
    blocked: set[str] = set()
    for node in nodes:
        # Other operators leave the layout as they find it; ReorderOutput ends it.
        if node.domain == DOMAIN.decode():
            is_blocked = node.operator != "ReorderOutput"
        else:
            is_blocked = not blocked.isdisjoint(node.inputs)
        for tensor in filter(None, node.outputs):
            if is_blocked:
                blocked.add(tensor)
            yield Producer(tensor, node.operator, node.name, node.inputs, is_blocked)


Array = np.ndarray[Any, Any]

# A session gives a part of the tensors, so that no more than that part is in memory at once.
PARTS = 4
LEAST_TENSORS = 8
FLOATS = (1, 10, 11)  # float, float16 and double among ONNX's data types


class Dumped(NamedTuple):
    """A tensor of the graph, the variable that it is called, and those that it is computed of."""

    variable: Variable
    inputs: tuple[Variable, ...]
    array: Array


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
    facts = DumpFacts(graph.operators(), iteration=0)
    write_facts(folder, facts)
    computed = graph.tensors(kept=wanted_names(graph.scales))
    for variable, inputs, array in chain(graph.weights(), computed):
        write_tensor(folder / f"{variable.id:06x}", array, format_name(variable, inputs))
    write_facts(folder, facts._replace(quantizations=graph.quantizations()))


def dump_text(driver: SessionDriver, _: object) -> None:
    """Write all tensors of a fed driver as text."""
    if driver.runner:
        return
    texts: dict[int, str] = {}
    written = driver.context.written
    place = next(written[dump.key] for dump in TEXT_DUMPS if dump.key in written)
    with open(place, "w", encoding="utf-8") as file:
        for variable, inputs, array in Graph(driver).tensors():
            texts[variable.id] = format_values(array)
            values = [(each, texts.get(each.id, "<constant>")) for each in inputs]
            file.writelines(f"{line}\n" for line in format_block(variable, array, values))


def dump_outputs(driver: SessionDriver, _: object) -> None:
    """Have the outputs of each iteration written."""
    names = [node.name for node in driver.session.get_outputs()]
    variables = {name: Variable(id=number, name=name) for number, name in enumerate(names)}
    write_outputs(driver, variables)


def describe_dump(folder: Path) -> DumpFacts:
    """Return what is known of the operators whose tensors are in a folder."""
    return read_facts(folder)._replace(iteration=0)


class Graph:
    """The optimised graph of a driver, with all its tensors numbered."""

    def __init__(self, driver: SessionDriver) -> None:
        self.driver = driver
        release_memory()
        saved = driver.dump_source or driver.saved
        assert saved is not None
        self.saved = saved
        self.nodes = [*nodes_in(self.saved.content)]
        self.blocked = {each.tensor for each in producers_of(self.nodes) if each.blocked}
        numbering = Numbering(driver.fed)
        for node in self.nodes:
            numbering.add_node(node.operator, node.name, node.inputs, node.outputs)
        self.variables = numbering.variables
        self.arrays: dict[str, Array] = {}  # of scales and zero points that the run computes

    def operators(self) -> list[OperatorFact]:
        """Return the numbers and parameters of the operators, in the graph's order."""
        return [
            OperatorFact(self.variables[next(filter(None, node.outputs))].operator_id, known)
            for node, known in zip(self.nodes, self.parameters, strict=True)
        ]

    @cached_property
    def model(self) -> Any:
        """The saved model, decoded without the weights that stand in a file."""
        import onnx

        return onnx.load_from_string(self.saved.content)

    @cached_property
    def parameters(self) -> list[dict[str, Any]]:
        """The parameters of each node."""
        return read_parameters(self.model)

    @cached_property
    def scales(self) -> list[Scales]:
        """The names of what tensors are quantised with."""
        return scales_in(self.nodes, self.parameters)

    def quantizations(self) -> dict[str, Quantization]:
        """Return what the integers of tensors stand for, by name, when all have been computed."""
        from onnx import numpy_helper

        wanted = wanted_names(self.scales)
        constants = {
            each.name: numpy_helper.to_array(each, str(self.saved.folder))
            for each in self.model.graph.initializer
            if each.name in wanted
        }
        return quantizations_of(self.scales, {**constants, **self.arrays})

    def weights(self) -> Iterator[Dumped]:
        """Yield the weights and biases that operators take, one at a time, in plain axes or in
        blocks; not the scales of quantised tensors, nor shapes and the like."""
        from onnx import numpy_helper

        block = block_size(self.driver.onnxruntime) if self.blocked else 1
        in_blocks = dict(self.filters_in_blocks())
        scales, quantized = wanted_names(self.scales), {each.tensor for each in self.scales}
        for each in self.model.graph.initializer:
            if each.name in scales or each.name not in self.variables:
                continue
            if each.data_type not in FLOATS and each.name not in quantized:
                continue
            array = numpy_helper.to_array(each, str(self.saved.folder))
            if array.dtype.name not in BY_DTYPE:
                continue
            blocks = [block] * in_blocks.get(each.name, 0)
            yield self.dumped_as(each.name, (), *filter_in_blocks(array, blocks))

    def filters_in_blocks(self) -> Iterator[tuple[str, int]]:
        """Yield the names of the filters whose output channels stand in blocks, and in how many of
        their axes there are blocks."""
        for node, known in zip(self.nodes, self.parameters, strict=True):
            if node.domain == DOMAIN.decode() and node.operator == "Conv":
                shape = self.shapes.get(node.inputs[1], ())
                by_channel = known.get("group", 1) > 1 and shape[1:2] == (1,)
                takes_blocks = node.inputs[0] in self.blocked and not by_channel
                yield node.inputs[1], 2 if takes_blocks else 1

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the weights."""
        return {each.name: tuple(each.dims) for each in self.model.graph.initializer}

    def tensors(self, kept: Container[str] = ()) -> Iterator[Dumped]:
        """Yield the inputs, then all tensors that are arrays of numbers, in the graph's order.

        The arrays of those whose names are to be `kept` stay with the graph.
        """
        for name, value in self.driver.fed.items():
            yield self.dumped(name, (), value.numpy(), 1)
        makers = {name: node for node in self.nodes for name in filter(None, node.outputs)}
        names, known = [*makers], set(output_names(self.saved.content))
        count = max(-(-len(names) // PARTS), LEAST_TENSORS)
        block = block_size(self.driver.onnxruntime) if self.blocked else 1
        for begin in range(0, len(names), count):
            part = names[begin : begin + count]
            content = add_outputs(self.saved.content, [name for name in part if name not in known])
            session = open_saved(self.driver, SavedModel(content, self.saved.folder))
            values = session.run_with_ort_values(part, self.driver.fed)
            for name, value in zip(part, values, strict=True):
                if value.has_value() and value.data_type() in DTYPES:
                    array = value.numpy()
                    if name in kept:
                        self.arrays[name] = array
                    yield self.dumped(name, makers[name].inputs, array, block)
            del values, session

    def dumped(self, name: str, inputs: Sequence[str], array: Array, block: int) -> Dumped:
        """Return a tensor with its names; one in blocks has an axis more than the engine says."""
        kind = ""
        if name in self.blocked and array.ndim == 4:
            batch, channels, *sizes = array.shape
            array = array.reshape(batch, channels // block, *sizes, block)
            kind = f"NCHWC{{{block}}}"
        return self.dumped_as(name, inputs, array, kind)

    def dumped_as(self, name: str, inputs: Sequence[str], array: Array, kind: str) -> Dumped:
        """Return a tensor that is stored in a format, with its names."""
        element = BY_DTYPE[array.dtype.name]
        variable = self.variables[name] = replace(
            self.variables[name],
            shape=array.shape,
            strides=contiguous_strides(array.shape),
            stored=True,
            format=kind,
            dtype=element.name,
        )
        return Dumped(variable, tuple(self.variables[each] for each in inputs if each), array)


def filter_in_blocks(array: Array, blocks: Sequence[int]) -> tuple[Array, str]:
    """Return the filters of a convolution with the axes in which they are stored, and the format:
    blocks of output channels alone, or within those of input channels."""
    if not blocks or array.ndim != 4:
        return array, ""
    outputs, inputs, *sizes = array.shape
    inner = inputs // blocks[-1] if len(blocks) > 1 else inputs
    shape = (outputs // blocks[0], inner, *sizes, *blocks)
    return array.reshape(shape), f"OIHWC{{{','.join(map(str, blocks))}}}"


def read_parameters(model: Any) -> list[dict[str, Any]]:
    """Return the attributes of each node that are numbers, texts or lists of them; of a graph, as
    the body of a loop, the operators and a hash of all that it holds."""
    import onnx

    readers: Mapping[int, Callable[[Any], Any]] = {
        onnx.AttributeProto.FLOAT: lambda each: each.f,
        onnx.AttributeProto.INT: lambda each: each.i,
        onnx.AttributeProto.STRING: lambda each: each.s.decode(errors="replace"),
        onnx.AttributeProto.FLOATS: lambda each: list(each.floats),
        onnx.AttributeProto.INTS: lambda each: list(each.ints),
        onnx.AttributeProto.GRAPH: lambda each: describe_body(each.g),
    }
    return [
        {each.name: readers[each.type](each) for each in node.attribute if each.type in readers}
        for node in model.graph.node
    ]


def describe_body(graph: Any) -> str:
    """Return the operators of a graph within an operator, and a hash of all that it holds."""
    operators = " ".join(node.op_type for node in graph.node)
    return f"[{operators}] {hashlib.sha256(graph.SerializeToString()).hexdigest()[:8]}"
