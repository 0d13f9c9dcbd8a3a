"""Models as exporters write them, with what they are fed with, and a way to compare two of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from network import Array
from onnx import TensorProto, helper, numpy_helper
from real_networks import RealNetwork as RealNetwork
from real_networks import make_network as make_network
from real_networks import network_of as network_of
from real_networks import rename as rename
from real_networks import walk_graphs

import lar
from lar.records.comparison import Comparison, Culprit

Change = Callable[[onnx.ModelProto], None]


class Case(NamedTuple):
    """A model on a disk, and its inputs as `--input` takes them."""

    path: Path
    inputs: tuple[str, ...] = ()

    def side(self, options: str = "") -> str:
        words = " ".join(f"--input {each}" for each in self.inputs)
        return f"{self.path} {words} {options}".strip()


class Models:
    """Writes models into a folder, under names that count."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0

    def write(self, network: RealNetwork, *changes: Change, feeds: Any = None) -> Case:
        """Write a model with what it is fed with; changes are made to a copy of it."""
        self.count += 1
        model = copy.deepcopy(network.model)
        for change in changes:
            change(model)
        path = self.folder / f"{self.count}.onnx"
        onnx.save(model, path)
        inputs = []
        for name, array in (network.feeds if feeds is None else feeds).items():
            place = self.folder / f"{self.count}.{name}.pb"  # a .npy may be a stack of items
            onnx.save_tensor(numpy_helper.from_array(array), place)
            inputs.append(f"{name}:{place}")
        return Case(path, tuple(inputs))


def compare(actual: Case, expected: Case, options: str = "", **asked: Any) -> Comparison:
    found = lar.compare(actual.side(options), expected.side(options), **asked)
    assert isinstance(found, Comparison)
    return found


def blamed(found: Comparison) -> list[str]:
    """The types of the operators of A at fault, of B's where A has none."""
    return [it.type for each in found.culprits for it in each.actual or each.expected]


def proven(found: Comparison) -> list[Culprit]:
    return [each for each in found.culprits if each.proven]


def model_of(
    nodes: list[onnx.NodeProto],
    feeds: Mapping[str, Array],
    outputs: Mapping[str, Any],
    weights: Mapping[str, Any] | None = None,
    opset: int = 13,
) -> RealNetwork:
    """Return a model of some nodes; outputs have a type of elements, or a value of any type."""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(feed.dtype), feed.shape)
        for name, feed in feeds.items()
    ]
    ends = [
        helper.make_tensor_value_info(name, kind, None)
        if isinstance(kind, int)
        else onnx.ValueInfoProto(name=name, type=kind)
        for name, kind in outputs.items()
    ]
    constants = [
        numpy_helper.from_array(np.asarray(it), name) for name, it in (weights or {}).items()
    ]
    graph = helper.make_graph(nodes, "graph", inputs, ends, constants)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return RealNetwork(model, dict(feeds))


def node(kind: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """Return an operator that is named after its first output."""
    given = outputs.split()
    return helper.make_node(kind, inputs.split(), given, given[0], **attributes)


def body_of(
    nodes: list[onnx.NodeProto],
    outputs: str,
    inputs: Mapping[str, tuple[int, list[int] | None]] | None = None,
    **weights: Any,
) -> onnx.GraphProto:
    """Return a network inside an operator; its inputs have types and shapes."""
    fed = [helper.make_tensor_value_info(name, *it) for name, it in (inputs or {}).items()]
    constants = [numpy_helper.from_array(np.asarray(it), name) for name, it in weights.items()]
    given = [onnx.ValueInfoProto(name=name) for name in outputs.split()]
    return helper.make_graph(nodes, "body", fed, given, constants)


def draw(*shape: int, seed: int = 0, spread: float = 1.0) -> Array:
    array: Array = np.random.RandomState(seed).normal(0, spread, shape).astype(np.float32)
    return array


def set_attribute(name: str, **attributes: Any) -> Change:
    """Return a change of the attributes of the first operator of a name, or of a type."""

    def change(model: onnx.ModelProto) -> None:
        each = find_node(model, name)
        kept = [it for it in each.attribute if it.name not in attributes]
        del each.attribute[:]
        each.attribute.extend(kept)
        each.attribute.extend(helper.make_attribute(*it) for it in attributes.items())

    return change


def set_type(name: str, kind: str) -> Change:
    """Return a change of the type of the first operator of a name, or of a type."""

    def change(model: onnx.ModelProto) -> None:
        find_node(model, name).op_type = kind

    return change


def set_weight(name: str, change_array: Callable[[Array], Any]) -> Change:
    """Return a change of a weight's values; the names of some end so."""

    def change(model: onnx.ModelProto) -> None:
        weights = (it for graph in walk_graphs(model.graph) for it in graph.initializer)
        (weight,) = (it for it in weights if it.name.endswith(name))
        array = change_array(numpy_helper.to_array(weight).copy())
        weight.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), weight.name))

    return change


def find_node(model: onnx.ModelProto, name: str) -> onnx.NodeProto:
    nodes = (it for graph in walk_graphs(model.graph) for it in graph.node)
    return next(it for it in nodes if name in (it.name, it.op_type))


FLOAT, STRING, INTEGER = TensorProto.FLOAT, TensorProto.STRING, TensorProto.INT64
