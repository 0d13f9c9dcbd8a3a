"""Dumps of a session: what each operator of the optimised graph gives, as text or as tensors.

The tensors come from sessions of their own, before anything is timed; the inputs are the same in
all iterations, and so are the tensors. They have the names that MegEngine would give them, and are
numbered as there: an operator, then its outputs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from lar.dumps.recording import Dumped, LayerPlaces, Part, number_outputs, parts_of, write_outputs
from lar.engines.onnx_file.bodies import parameters_of
from lar.engines.onnx_file.fields import Message, Node, type_name
from lar.engines.onnx_file.tensors import array_of
from lar.engines.onnxruntime.graph import Graph
from lar.engines.onnxruntime.kernels import DOMAIN
from lar.engines.onnxruntime.saving import save_to_work_folder
from lar.engines.onnxruntime.session import SessionDriver
from lar.engines.onnxruntime.values import Array
from lar.errors import CheckFailed
from lar.options.table import FAST_RUN_ALGO_POLICY


def save_source(driver: SessionDriver, _: object) -> None:
    """Save the optimised graph that will be dumped.

    It is done before the driver loads its own session, since saving takes more memory than
    anything after it. One that loads a cache has a saved graph then.
    """
    cached = FAST_RUN_ALGO_POLICY.is_given(driver.spec.settings)
    if driver.runner == 0 and not cached and driver.dump_source is None:
        driver.dump_source = save_to_work_folder(driver)


def dump_tensors(driver: SessionDriver, _: object) -> None:
    """Write all tensors of a fed driver, and what is known of operators."""
    if driver.runner:
        return
    places, graph = LayerPlaces(driver), FedGraph(driver)
    places.write_facts(graph.facts())
    for weight in graph.filters():
        places.write_constant(weight)
    for dumped in graph.tensors():
        places.write(dumped)
    places.write_facts(graph.facts())


def dump_outputs(driver: SessionDriver, _: object) -> None:
    """Have the outputs of each iteration written."""
    write_outputs(driver, number_outputs(it.name for it in driver.session.get_outputs()))


class FedGraph(Graph):
    """The optimised graph of a driver that has been fed."""

    def __init__(self, driver: SessionDriver) -> None:
        saved = driver.dump_source or driver.saved or save_to_work_folder(driver)
        super().__init__(driver, saved, driver.fed)
        known = self.wanted & self.weights.keys()
        self.factors = {name: array_of(self.weights[name], saved.folder) for name in known}

    @cached_property
    def parameters(self) -> list[dict[str, Any]]:
        """The parameters of each operator; of a body, what it holds."""
        return [
            parameters_of(it)
            | {each.name: describe_body(each.g) for each in it.attribute if "g" in each}
            for it in (operator.message for operator in self.operators)
        ]

    def filters(self) -> Iterator[Dumped]:
        """Yield the weights that operators take, one at a time, in plain axes or in blocks."""
        in_blocks = dict(self.filters_in_blocks())
        for name, each in self.weights.items():
            if self.holds_weight(name, type_name(each.data_type)):
                array, layout = array_of(each, self.saved.folder), ""
                if array.ndim == 4 and (blocks := in_blocks.get(name)):
                    # The axes in which they are stored.
                    outputs, inputs, *sizes = array.shape
                    inner = inputs // self.block if len(blocks) > 1 else inputs
                    array = array.reshape(outputs // self.block, inner, *sizes, *blocks)
                    layout = f"OIHWC{{{','.join(map(str, blocks))}}}"
                yield self.dumped(name, (), array, layout)

    def filters_in_blocks(self) -> Iterator[tuple[str, list[int]]]:
        """Yield the names of the filters that stand in blocks, of output channels alone, or within
        those of input channels, with the sizes of these blocks."""
        for node, known in zip(self.nodes, self.parameters, strict=True):
            if node.domain == DOMAIN and node.operator == "Conv":
                weight = self.weights.get(node.inputs[1])
                shape = tuple(weight.dims) if weight else ()
                by_channel = known.get("group", 1) > 1 and shape[1:2] == (1,)
                takes_blocks = node.inputs[0] in self.blocked and not by_channel
                yield node.inputs[1], [self.block] * (2 if takes_blocks else 1)

    def tensors(self) -> Iterator[Dumped]:
        """Yield the inputs, then all tensors, in the graph's order; of each its parts."""
        for name, given in self.driver.given.items():
            yield from self.dump_parts(name, [*parts_of(name, given)])
        for name, parts in self.values():
            yield from self.dump_parts(name, parts)


def describe_body(graph: Message) -> str:
    """Return the operators of a graph within an operator, and a hash of all that it holds."""
    operators = " ".join(node.op_type for node in graph.node)
    return f"[{operators}] {hashlib.sha256(graph.encode()).hexdigest()[:8]}"


# `--range`: every tensor that an operator gives is looked at, once, before anything is timed.
#
# The inputs are the same in all iterations, and so are the tensors. They are looked at in a session
# of their own, so that what is timed is the model as it is.


def check_each_feed(driver: SessionDriver, limit: float) -> None:
    """Check what a driver was fed, and what it is fed later.

    Raises:
        CheckFailed: as `check_range`.
    """
    check_range(driver, limit)
    driver.feed_checks.append(lambda: check_range(driver, limit))


def check_range(driver: SessionDriver, limit: float) -> None:
    """Run a driver's model on what it was fed, and check the floating-point tensors.

    Raises:
        CheckFailed: an element of one is NaN, or further from 0 than the limit.
    """
    for name, node, array in tensors_of(driver):
        # As wide as the limit: in float16 it may be infinite itself.
        wide = array.astype(np.float32) if array.dtype == np.float16 else array
        wrong = ~(np.isfinite(wide) & (np.abs(wide) <= wide.dtype.type(limit)))
        if wrong.any():
            raise CheckFailed(describe_misfit(name, node, wide, wrong, limit))


def tensors_of(driver: SessionDriver) -> Iterator[tuple[str, Node, Array]]:
    """Yield the floating-point tensors of a run in the graph's order and in the plain layout, with
    the nodes that give them.

    Integers are left out: sizes and indices may be large, and quantised ones mean other numbers.
    """
    graph = FedGraph(driver)
    for whole, parts in graph.values():
        for part in parts:
            if whole in graph.makers and isinstance(part, Part) and part.array.dtype.kind == "f":
                array = part.array
                if whole in graph.blocked:
                    array = graph.in_plain_axes(array)
                yield part.name, graph.makers[whole].node, array


def describe_misfit(name: str, node: Node, array: Array, wrong: Array, limit: float) -> str:
    """Say which element of a tensor is wrong: the first one."""
    index = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    place = ",".join(map(str, index))
    count = int(wrong.sum())
    others = f", and {count - 1} of {array.size} more" if count > 1 else ""
    label = f" {node.name}" if node.name else ""
    return (
        f"--range {limit:.9g}: tensor {name} of {node.operator}{label} holds "
        f"{array[index]:.9g} at [{place}]{others}"
    )
