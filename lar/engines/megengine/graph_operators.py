"""Reads the operators of a MegEngine model file, without the engine and without the weights.

The module also finds the order of a model's inputs in the file, because lite lists the inputs in
the order of a hash table. In the file, an input is an operator whose first tensor has the name of
the input.

MegEngine has two formats of model files, both FlatBuffers. In the newer format, the size of the
graph comes first, then the graph. In the older format, which the graph driver writes for some
layouts, the weights come first, then the graph. `Places` has the numbers of the fields that are in
both formats. The fields that are listed below are only in the newer format.

Field 3 of the root table is the list of variables. Field 0 of an operator is its type, and field 2
is its name. Fields 7 and 8 of an operator are the numbers of its input variables and of its output
variables. An operator of kind 67 converts a tensor to another type, and its parameters are a DType.
Field 0 of a variable is its name, and field 1 is its shape. Field 3 of a tensor is its DType. Field
0 of a DType is the number of the type. Field 2 of a DType is a table for quantised types: its field
0 is the scale, and its field 1 is the zero point.

In MegEngine 1.13, these formats are defined in src/serialization/impl/schema_v2.fbs and in
schema.fbs beside that file.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lar.datasets import testcases
from lar.dumps import DumpFacts
from lar.engines.flatbuffer import Table, open_root
from lar.engines.megengine.packed_model import graph_in
from lar.records.run import Quantization

if TYPE_CHECKING:
    from lar.graphs.origins import ModelOperator

VARIABLES, TYPE, NAME, INPUTS, OUTPUTS, CONVERSION = 3, 0, 2, 7, 8, 67


class Places(NamedTuple):
    """The numbers of fields in one of the two formats of model files.

    `operators` is the number of the root's field that has the operators. `kind`, `parameters`,
    `dtype` and `tensors` are numbers of fields of an operator. The field `dtype` has the DType of
    the outputs, and may be left out. The field `tensors` has tensors or blobs.
    """

    operators: int
    kind: int
    parameters: int
    dtype: int
    tensors: int


NEW, OLD = testcases.NEW_IDENTIFIER, testcases.OLD_IDENTIFIER
FIELDS = {NEW: Places(2, 3, 4, 10, 11), OLD: Places(3, 1, 2, 6, 7)}


class Graph(NamedTuple):
    """The operators and variables of a graph, in the order of the file.

    For a file in an unknown format, `operators` is empty. `variables` is empty for a file in the
    older format, and for a model that was saved without names.
    """

    operators: list[Table]
    variables: list[Table]
    places: Places
    is_new: bool

    def kind_of(self, operator: Table) -> int:
        return operator.integer(self.places.kind, "<B")

    def parameters_of(self, operator: Table) -> Table:
        return operator.table(self.places.parameters)

    def first_tensor_of(self, operator: Table) -> Table | None:
        return next(operator.tables(self.places.tensors), None)

    def names_of(self, operator: Table, field: int) -> tuple[str, ...]:
        """Return the names of an operator's inputs or outputs.

        `field` is the number of the field with the inputs or the outputs.
        """
        return tuple(self.variables[number].text(0) for number in operator.numbers(field))

    def dtype_of(self, operator: Table) -> Table | None:
        """Return the DType of an operator's outputs, None if the file does not contain the DType.

        The DType comes from a field of the operator, from the parameters of a conversion, or from
        the tensor of a constant.
        """
        if found := operator.table(self.places.dtype):
            return found
        if self.kind_of(operator) == CONVERSION:
            return self.parameters_of(operator)
        constant = self.first_tensor_of(operator)
        return constant and constant.table(3)


def open_graph(graph: memoryview) -> Graph:
    """Return the operators and variables of a graph.

    Raises:
        ValueError, struct.error: the graph is damaged.
    """
    if graph[: len(testcases.OLD_MAGIC)] == testcases.OLD_MAGIC:
        head = testcases.OLD_HEAD
        graph = graph[head.size + head.unpack_from(graph)[1] :]
    identifier = testcases.GRAPH_HEAD.unpack_from(graph)[1]
    if identifier not in FIELDS:
        return Graph([], [], FIELDS[NEW], False)
    root, places, is_new = open_root(graph[4:]), FIELDS[identifier], identifier == NEW
    variables = [*root.tables(VARIABLES)] if is_new else []
    return Graph([*root.tables(places.operators)], variables, places, is_new)


def read_quantizations(path: str | Path) -> DumpFacts:
    """Read the scales and zero points of a model file's quantised variables.

    The result is empty for the older format, and for a model that was saved without names.

    Raises:
        ValueError, LookupError, OSError, LarError, struct.error: the file is damaged, or cannot be
            read.
    """
    opened = open_graph(graph_in(str(path)))
    quantizations, operands = {}, {}
    for operator in opened.operators if opened.variables else ():
        dtype = opened.dtype_of(operator)
        parameters = dtype and dtype.table(2)
        scale = parameters.real(0) if parameters else None
        if parameters is None or scale is None:
            continue
        for name in filter(None, opened.names_of(operator, OUTPUTS)[:1]):
            zero_point = parameters.integer(1, "<B")
            quantizations[name] = Quantization(scale=(scale,), zero_point=(zero_point,))
            operands[name] = opened.names_of(operator, INPUTS)
    return DumpFacts(quantizations=quantizations, operands=operands)


def parameters_of(found: dict[str, Any] | list[Any] | None) -> dict[str, Any]:
    """Return the parameters of an operator by name.

    For an operator that picks elements, such as Subtensor, the engine's profile has a list of
    parameters without names. For a list of parameters, the result has one name, `items`, with the
    list as its value.
    """
    return {"items": found} if isinstance(found, list) else found or {}


def sort_inputs(names: Sequence[str], model: str) -> list[str]:
    """Return the names of a model's inputs in the order of its file.

    If the file is in neither of MegEngine's two formats, the names stay in the given order.

    Raises:
        ValueError: the file is damaged.
    """
    opened = open_graph(graph_in(model))
    firsts = filter(None, map(opened.first_tensor_of, opened.operators))
    places = {bytes(first.blob(0) or b""): place for place, first in enumerate(firsts)}
    return sorted(names, key=lambda name: places.get(name.encode(), len(places)))


def read_operators(path: str | Path) -> tuple[ModelOperator, ...]:
    """Read the operators of a model file with the names of their tensors.

    The result is empty for the older format, in which operator types are only numbers.

    Raises:
        ValueError, OSError, LarError: the file is damaged, or cannot be read.
    """
    from lar.graphs.origins import ModelOperator  # a run without a dump needs no names

    try:
        opened = open_graph(graph_in(str(path)))
        if not opened.is_new:
            return ()
        return tuple(
            ModelOperator(
                operator.text(TYPE),
                operator.text(NAME),
                opened.names_of(operator, INPUTS),
                opened.names_of(operator, OUTPUTS),
            )
            for operator in opened.operators
        )
    except (struct.error, IndexError) as error:
        raise ValueError(str(error)) from None
