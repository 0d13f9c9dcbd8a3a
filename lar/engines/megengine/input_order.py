"""The order of a model file's inputs, which lite does not keep: it gives them as a hash table does.

A graph is a FlatBuffers buffer behind its size; in the older format the weights come before it.
Its operators are a field of the root, in the order of the file; an input is one whose first
tensor has its name. The weights are not read.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Mapping, Sequence

from lar.engines.megengine.packed_model import Table, is_packed, open_packed, plain_graph
from lar.testcases.packed_file import NEW_IDENTIFIER, OLD_HEAD, OLD_IDENTIFIER, OLD_MAGIC

# In each format, the field of the root that has the operators, and theirs that has the tensors.
FIELDS: Mapping[bytes, tuple[int, int]] = {NEW_IDENTIFIER: (2, 11), OLD_IDENTIFIER: (3, 7)}


def sort_inputs(names: Sequence[str], model: str) -> list[str]:
    """Return the names of a model's inputs in the order of its file.

    Where the file is in none of the two formats they stay as they are given.

    Raises:
        ValueError: the file is damaged.
    """
    places = {name: place for place, name in enumerate(tensors_in(graph_in(model)))}
    return sorted(names, key=lambda name: places.get(name.encode(), len(places)))


def graph_in(model: str) -> memoryview:
    """Map the graph in a model file, which may be a packed one."""
    if is_packed(model):
        return plain_graph(open_packed(model), model)
    with open(model, "rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def tensors_in(graph: memoryview) -> Iterator[bytes]:
    """Yield the name of each operator's first tensor, if it has one.

    Raises:
        ValueError: the graph is damaged.
    """
    if graph[: len(OLD_MAGIC)] == OLD_MAGIC:
        graph = graph[OLD_HEAD.size + OLD_HEAD.unpack_from(graph)[1] :]
    identifier = bytes(graph[8:12])
    if identifier not in FIELDS:
        return
    operators, tensors = FIELDS[identifier]
    buffer = graph[4:]
    root = Table(buffer, struct.unpack_from("<I", buffer)[0])
    for operator in tables_of(root, operators):
        first = next(tables_of(operator, tensors), None)
        name = first.blob(0) if first else None
        if name is not None:
            yield bytes(name[1])


def tables_of(table: Table, field: int) -> Iterator[Table]:
    """Yield the tables of a vector."""
    vector = table.pointed(field)
    if vector is None:
        return
    for index in range(table.number("<I", vector)):
        place = vector + 4 + 4 * index
        yield Table(table.data, place + table.number("<I", place))
