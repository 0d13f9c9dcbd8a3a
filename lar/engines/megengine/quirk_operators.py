"""What a MegEngine model file holds that its quirks depend on, read without the engine.

Both formats are FlatBuffers. The newer one has the graph behind its size, the older one, which the
graph driver writes in some layouts, behind the weights as well. These are the places of fields in
tables:

    root        operators; of the newer format, the variables: 3
    Operator    kind: the number of its parameters' type, parameters, dtype: the outputs' DType,
                where it is given; of the newer format, the numbers of its outputs: 8
    MiddleTensor, a variable    1 shape: [uint]
    DType       0 its number
    Convolution 7 sparse, 8 format; ConvBias 2, 3; Pooling and AdaptivePooling 0 mode

Read from MegEngine 1.13: src/serialization/impl/schema_v2.fbs, schema.fbs and dtype.fbs beside it,
dnn/scripts/opr_param_defs.py.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from typing import NamedTuple

from lar.engines.megengine.packed_model import Table, is_packed, open_packed, plain_graph
from lar.engines.megengine.quirks import FLOAT_PRODUCTS, GROUPED, MAX_POOLING, QUANTISED
from lar.errors import LarError
from lar.testcases.packed_file import (
    GRAPH_HEAD,
    NEW_IDENTIFIER,
    OLD_HEAD,
    OLD_IDENTIFIER,
    OLD_MAGIC,
    graphs_in,
)


class Places(NamedTuple):
    """The places of fields in one of the formats."""

    operators: int
    kind: int
    parameters: int
    dtype: int


FIELDS = {NEW_IDENTIFIER: Places(2, 3, 4, 10), OLD_IDENTIFIER: Places(3, 1, 2, 6)}
VARIABLES, OUTPUTS, SHAPE = 3, 8, 1

CONVOLUTIONS = {3: (7, 8), 6: (2, 3)}  # the fields sparse and format of each kind
POOLINGS = (9, 70)
MATRIX_PRODUCT = 20
QUANTISED_DTYPES = range(11, 17)
FLOAT32 = 0
# A product of fewer rows is bound by memory: MKL's code makes no difference.
MANY_ROWS = 8


def traits_of(path: str) -> frozenset[str]:
    """Return what a model has, nothing of a file whose operators cannot be told."""
    try:
        return frozenset(traits_in(graph_in(path)))
    except (ValueError, LookupError, OSError, LarError, struct.error):
        return frozenset()


def graph_in(path: str) -> memoryview:
    """Return the model's graph in a file, which may be a packed one or have testcases.

    Raises:
        ValueError, OSError, LarError: there is none.
    """
    if is_packed(path):
        return plain_graph(open_packed(path), path)
    graphs = graphs_in(path)
    with open(path, "rb") as file:
        content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    return content[slice(*graphs[0])] if graphs else content


def traits_in(graph: memoryview) -> Iterator[str]:
    """Yield what the operators of a graph tell.

    Raises:
        ValueError, LookupError, struct.error: it is damaged, or of another format.
    """
    if graph[:4] == OLD_MAGIC:
        graph = graph[OLD_HEAD.size + OLD_HEAD.unpack_from(graph)[1] :]
    identifier = GRAPH_HEAD.unpack_from(graph)[1]
    if identifier not in FIELDS:
        raise ValueError("an unknown format")
    places, buffer = FIELDS[identifier], graph[4:]
    root = Table(buffer, struct.unpack_from("<I", buffer)[0])
    for position in vector(root, places.operators):
        operator = table_at(root, position)
        kind, dtype = number_in(operator, places.kind, "<B"), operator.table(places.dtype)
        parameters = operator.table(places.parameters)
        number = number_in(dtype, 0, "<B")
        if number in QUANTISED_DTYPES:
            yield QUANTISED
        if kind in CONVOLUTIONS:
            sparse, layout = (number_in(parameters, field) for field in CONVOLUTIONS[kind])
            if sparse:
                yield GROUPED
            elif not layout and number == FLOAT32:
                yield FLOAT_PRODUCTS
        elif kind in POOLINGS and not number_in(parameters, 0):
            yield MAX_POOLING
        elif kind == MATRIX_PRODUCT and number == FLOAT32 and identifier == NEW_IDENTIFIER:
            first = vector(operator, OUTPUTS)[0]
            output = table_at(root, vector(root, VARIABLES)[root.number("<I", first)])
            rows = vector(output, SHAPE)[-2:-1]
            if any(root.number("<I", position) >= MANY_ROWS for position in rows):
                yield FLOAT_PRODUCTS


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
