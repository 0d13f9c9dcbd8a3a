"""The operators in a MegEngine model file, found without the engine and without its weights.

With them comes the order of the model's inputs, which lite does not keep: it gives them as a hash
table does. An input is an operator whose first tensor has its name.

Both formats are FlatBuffers. The newer one has the graph behind its size, the older one, which the
graph driver writes in some layouts, behind the weights as well. These are the places of fields in
tables:

    root        operators, in the order of the file
    root        of the newer format, the variables: 3
    Operator    kind: the number of its parameters' type, parameters, dtype: the outputs' DType,
                where it is given, tensors: of the newer format its middle tensors, of the older
                one its blobs; the first field of each is its name
    Operator    of the newer format, the numbers of its inputs: 7, and outputs: 8; of kind 67,
                which converts to another type, the parameters are the DType
    Variable    0 name; Tensor 3 dtype
    DType       0 its number, 2 of a quantised one: 0 scale, 1 zero point

Read from MegEngine 1.13: src/serialization/impl/schema_v2.fbs, schema.fbs beside it.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lar.engines.megengine.packed_model import Table, is_packed, open_packed, plain_graph
from lar.testcases.packed_file import (
    GRAPH_HEAD,
    NEW_IDENTIFIER,
    OLD_HEAD,
    OLD_IDENTIFIER,
    OLD_MAGIC,
    graphs_in,
)

if TYPE_CHECKING:
    from lar.graphs.origins import ModelOperator


class Places(NamedTuple):
    """The places of fields in one of the formats."""

    operators: int
    kind: int
    parameters: int
    dtype: int
    tensors: int


VARIABLES, INPUTS, OUTPUTS, CONVERSION = 3, 7, 8, 67
# Of the newer format: the tensors of the root, and of an operator its type, its name, and the
# places of what it takes and gives among the tensors.
TENSORS, TYPE, NAME, TAKEN, GIVEN = 3, 0, 2, 7, 8

FIELDS = {NEW_IDENTIFIER: Places(2, 3, 4, 10, 11), OLD_IDENTIFIER: Places(3, 1, 2, 6, 7)}


class OpenGraph(NamedTuple):
    """The root of a graph, and where its format has what."""

    root: Table
    places: Places
    is_new: bool

    def operators(self) -> Iterator[Table]:
        """Yield the operators in the order of the file."""
        return tables_in(self.root, self.places.operators)


def graph_in(path: str) -> memoryview:
    """Map the model's graph in a file, which may be a packed one or have testcases.

    Raises:
        ValueError, OSError, LarError: the file has no such graph.
    """
    if is_packed(path):
        return plain_graph(open_packed(path), path)
    graphs = graphs_in(path)
    with open(path, "rb") as file:
        content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    return content[slice(*graphs[0])] if graphs else content


def open_graph(graph: memoryview) -> OpenGraph | None:
    """Return the root of a graph, None of one in another format.

    Raises:
        ValueError, struct.error: it is damaged.
    """
    if graph[: len(OLD_MAGIC)] == OLD_MAGIC:
        graph = graph[OLD_HEAD.size + OLD_HEAD.unpack_from(graph)[1] :]
    identifier = GRAPH_HEAD.unpack_from(graph)[1]
    if identifier not in FIELDS:
        return None
    buffer = graph[4:]
    root = Table(buffer, struct.unpack_from("<I", buffer)[0])
    return OpenGraph(root, FIELDS[identifier], identifier == NEW_IDENTIFIER)


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
    if opened is None or not opened.is_new:
        return
    root, places, _ = opened
    variables = vector(root, VARIABLES)
    if not variables:
        return

    def names(operator: Table, field: int) -> Iterator[str]:
        for position in vector(operator, field):
            yield table_at(root, variables[root.number("<I", position)]).text(0)

    for operator in opened.operators():
        dtype = dtype_of(operator, places)
        parameters = dtype.table(2) if dtype else None
        position = parameters.field(0) if parameters else None
        name = next(names(operator, OUTPUTS), "")
        if not name or parameters is None or position is None:
            continue
        (scale,) = struct.unpack_from("<f", parameters.data, position)
        zero_point = number_in(parameters, 1, "<B")
        yield QuantizedVariable(name, float(scale), zero_point, tuple(names(operator, INPUTS)))


def dtype_of(operator: Table, places: Places) -> Table | None:
    """Return the type of an operator's outputs: its own, that it converts to, or a constant's."""
    if found := operator.table(places.dtype):
        return found
    if number_in(operator, places.kind, "<B") == CONVERSION:
        return operator.table(places.parameters)
    constant = next(tables_in(operator, places.tensors), None)
    return constant.table(3) if constant else None


def number_in(table: Table | None, field: int, kind: str = "<I") -> int:
    """Return a number in a table; one that is left out is 0."""
    position = table.field(field) if table else None
    return table.number(kind, position) if table and position is not None else 0


def vector(table: Table, field: int) -> range:
    """Return where the elements of a vector are, 4 bytes each; one that is left out has none."""
    start = table.pointed(field)
    if start is None:
        return range(0)
    return range(start + 4, start + 4 + 4 * table.number("<I", start), 4)


def table_at(table: Table, position: int) -> Table:
    """Return the table that an element of a vector points to."""
    return Table(table.data, position + table.number("<I", position))


def tables_in(table: Table, field: int) -> Iterator[Table]:
    """Yield the tables of a vector."""
    return (table_at(table, position) for position in vector(table, field))


def sort_inputs(names: Sequence[str], model: str) -> list[str]:
    """Return the names of a model's inputs in the order of its file.

    Where the file is in none of the two formats they stay as they are given.

    Raises:
        ValueError: the file is damaged.
    """
    places = {name: place for place, name in enumerate(tensors_in(graph_in(model)))}
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
        names = [tensor.text(0) for tensor in tables_in(opened.root, TENSORS)]
        return tuple(
            ModelOperator(
                operator.text(TYPE),
                operator.text(NAME),
                *(
                    tuple(names[operator.number("<I", place)] for place in vector(operator, field))
                    for field in (TAKEN, GIVEN)
                ),
            )
            for operator in opened.operators()
        )
    except (struct.error, IndexError) as error:
        raise ValueError(str(error)) from None


def tensors_in(graph: memoryview) -> Iterator[bytes]:
    """Yield the name of each operator's first tensor, if it has one.

    Raises:
        ValueError: the graph is damaged.
    """
    opened = open_graph(graph)
    if opened is None:
        return
    for operator in opened.operators():
        first = next(tables_in(operator, opened.places.tensors), None)
        name = first.blob(0) if first else None
        if name is not None:
            yield bytes(name[1])
