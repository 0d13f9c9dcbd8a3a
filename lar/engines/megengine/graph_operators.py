"""The operators in a MegEngine model file, found without the engine and without its weights.

With them comes the order of the model's inputs, which lite does not keep: it gives them as a hash
table does. An input is an operator whose first tensor has its name.

Both formats are FlatBuffers. The newer one has the graph behind its size, the older one, which the
graph driver writes in some layouts, behind the weights as well. `Places` has the places of fields
in the tables; these are those of the newer format alone:

    root        3 the variables
    Operator    0 type and 2 name, as texts, 7 and 8 the numbers of the variables that it takes and
                gives; of kind 67, which converts to another type, the parameters are the DType
    Variable    0 name, 1 shape; Tensor 3 dtype
    DType       0 its number, 2 of a quantised one: 0 scale, 1 zero point

Read from MegEngine 1.13: src/serialization/impl/schema_v2.fbs, schema.fbs beside it.
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
    """The places of fields in one of the formats: of the root, the operators; of an operator its
    kind, parameters, the DType of its outputs, where it is given, and its middle tensors or
    blobs."""

    operators: int
    kind: int
    parameters: int
    dtype: int
    tensors: int


NEW, OLD = testcases.NEW_IDENTIFIER, testcases.OLD_IDENTIFIER
FIELDS = {NEW: Places(2, 3, 4, 10, 11), OLD: Places(3, 1, 2, 6, 7)}


class Graph(NamedTuple):
    """The operators of a graph in the order of the file; a file in another format has none.

    The variables are empty for the older format, and for a model that was saved without names.
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
        """Return the names of the variables that an operator takes or gives."""
        return tuple(self.variables[number].text(0) for number in operator.numbers(field))

    def dtype_of(self, operator: Table) -> Table | None:
        """Return the type of an operator's outputs: its own, that it converts to, or a
        constant's."""
        if found := operator.table(self.places.dtype):
            return found
        if self.kind_of(operator) == CONVERSION:
            return self.parameters_of(operator)
        constant = self.first_tensor_of(operator)
        return constant and constant.table(3)


def open_graph(graph: memoryview) -> Graph:
    """Return the content of a graph.

    Raises:
        ValueError, struct.error: it is damaged.
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
    """Read the quantizations of a model file's variables whose operators have a scale; the older
    format and a model that was saved without names say nothing.

    Raises:
        ValueError, LookupError, OSError, LarError, struct.error: it is damaged, or cannot be read.
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
    """Return the parameters of an operator by name. The engine's profile has a list of them for an
    operator that picks elements, such as Subtensor."""
    return {"items": found} if isinstance(found, list) else found or {}


def sort_inputs(names: Sequence[str], model: str) -> list[str]:
    """Return the names of a model's inputs in the order of its file.

    Where the file is in none of the two formats they stay as they are given.

    Raises:
        ValueError: the file is damaged.
    """
    opened = open_graph(graph_in(model))
    firsts = filter(None, map(opened.first_tensor_of, opened.operators))
    places = {bytes(first.blob(0) or b""): place for place, first in enumerate(firsts)}
    return sorted(names, key=lambda name: places.get(name.encode(), len(places)))


def read_operators(path: str | Path) -> tuple[ModelOperator, ...]:
    """Read the operators of a model file with the names of their tensors; none of one in the older
    format, whose operators have no types in words.

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
