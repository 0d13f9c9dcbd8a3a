"""`--range`: every tensor that an operator gives is looked at, once, before anything is timed.

The inputs are the same in all iterations, and so are the tensors. They are looked at in a session
of their own, so that what is timed is the model as it is.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lar.dumps.values import Part
from lar.engines.onnx_file.fields import Node
from lar.engines.onnxruntime.dumps import FedGraph
from lar.engines.onnxruntime.session import SessionDriver
from lar.engines.onnxruntime.values import Array
from lar.errors import CheckFailed


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
