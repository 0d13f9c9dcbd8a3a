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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lar.engines.megengine.flatbuffer import Table, open_root
from lar.engines.megengine.packed_model import graph_in
from lar.testcases.packed_file import (
    GRAPH_HEAD,
    NEW_IDENTIFIER,
    OLD_HEAD,
    OLD_IDENTIFIER,
    OLD_MAGIC,
)

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


FIELDS = {NEW_IDENTIFIER: Places(2, 3, 4, 10, 11), OLD_IDENTIFIER: Places(3, 1, 2, 6, 7)}


class Graph(NamedTuple):
    """The operators of a graph in the order of the file, and where its format has what.

    The variables are empty for the older format, and for a model that was saved without names.
    """

    operators: list[Table]
    variables: list[Table]
    places: Places
    is_new: bool

    def names_of(self, operator: Table, field: int) -> tuple[str, ...]:
        """Return the names of the variables that an operator takes or gives."""
        return tuple(self.variables[number].text(0) for number in operator.numbers(field))


def open_graph(graph: memoryview) -> Graph | None:
    """Return the content of a graph, None for one in another format.

    Raises:
        ValueError, struct.error: it is damaged.
    """
    if graph[: len(OLD_MAGIC)] == OLD_MAGIC:
        graph = graph[OLD_HEAD.size + OLD_HEAD.unpack_from(graph)[1] :]
    identifier = GRAPH_HEAD.unpack_from(graph)[1]
    if identifier not in FIELDS:
        return None
    root, is_new = open_root(graph[4:]), identifier == NEW_IDENTIFIER
    variables = [*root.tables(VARIABLES)] if is_new else []
    places = FIELDS[identifier]
    return Graph([*root.tables(places.operators)], variables, places, is_new)


class QuantizedVariable(NamedTuple):
    """A quantised variable of a model, and the names of those that its operator takes."""

    name: str
    scale: float
    zero_point: int
    inputs: tuple[str, ...]


def quantizations_in(graph: memoryview) -> Iterator[QuantizedVariable]:
    """Yield the quantised variables whose operators have a scale; none of the older format, or of
    a model that was saved without names.

    Raises:
        ValueError, LookupError, struct.error: the graph is damaged.
    """
    opened = open_graph(graph)
    if opened is None or not opened.variables:
        return
    for operator in opened.operators:
        dtype = dtype_of(operator, opened.places)
        parameters = dtype.table(2) if dtype else None
        scale = parameters.real(0) if parameters else None
        name, *_ = (*opened.names_of(operator, OUTPUTS), "")
        if name and parameters and scale is not None:
            zero_point, inputs = parameters.integer(1, "<B"), opened.names_of(operator, INPUTS)
            yield QuantizedVariable(name, scale, zero_point, inputs)


def dtype_of(operator: Table, places: Places) -> Table | None:
    """Return the type of an operator's outputs: its own, that it converts to, or a constant's."""
    if found := operator.table(places.dtype):
        return found
    if operator.integer(places.kind, "<B") == CONVERSION:
        return operator.table(places.parameters)
    constant = next(operator.tables(places.tensors), None)
    return constant.table(3) if constant else None


def sort_inputs(names: Sequence[str], model: str) -> list[str]:
    """Return the names of a model's inputs in the order of its file.

    Where the file is in none of the two formats they stay as they are given.

    Raises:
        ValueError: the file is damaged.
    """
    opened = open_graph(graph_in(model))
    if opened is None:
        return [*names]
    firsts = (next(each.tables(opened.places.tensors), None) for each in opened.operators)
    found = (first.blob(0) for first in firsts if first)
    places = {bytes(name[1]): place for place, name in enumerate(found) if name}
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
        if opened is None or not opened.is_new:
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
