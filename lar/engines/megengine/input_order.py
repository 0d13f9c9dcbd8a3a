"""The order of a model file's inputs, which lite does not keep: it gives them as a hash table does.

An input is an operator whose first tensor has its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lar.engines.megengine.graph_operators import graph_in, open_graph, tables_in


def sort_inputs(names: Sequence[str], model: str) -> list[str]:
    """Return the names of a model's inputs in the order of its file.

    Where the file is in none of the two formats they stay as they are given.

    Raises:
        ValueError: the file is damaged.
    """
    places = {name: place for place, name in enumerate(tensors_in(graph_in(model)))}
    return sorted(names, key=lambda name: places.get(name.encode(), len(places)))


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
