"""What a run needs to know of an ONNX model, read from the file's fields.

The numbers of the fields are those of onnx.proto; `data` is a whole file.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from lar.engines.onnxruntime.wire import fields_in, messages_in, texts_in

MODEL_GRAPH = 7
GRAPH_NODE, GRAPH_INITIALIZER, GRAPH_INPUT, GRAPH_OUTPUT = 1, 5, 11, 12
NODE_INPUT, NODE_OUTPUT, NODE_NAME, NODE_TYPE, NODE_ATTRIBUTE, NODE_DOMAIN = 1, 2, 3, 4, 5, 7
ATTRIBUTE_TENSORS, ATTRIBUTE_GRAPHS = (5, 10), (6, 11)
TENSOR_EXTERNAL_DATA = 13
ENTRY_KEY, ENTRY_VALUE = 1, 2
VALUE_NAME, VALUE_TYPE = 1, 2
TYPE_TENSOR, TENSOR_SHAPE = 1, 2


class Node(NamedTuple):
    """A node of a graph; inputs and outputs that are left out have empty names."""

    name: str
    operator: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@contextmanager
def mapped(path: Path) -> Iterator[memoryview]:
    """Map a file into memory, so that what is skipped in it is never read.

    Raises:
        OSError: it cannot be read.
        ValueError: it is empty.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        view = memoryview(content)
        try:
            yield view
        finally:
            view.release()


def is_ort_format(data: bytes | memoryview) -> bool:
    """Tell ONNX Runtime's own format, which is no protobuf message and has all weights inside."""
    return data[4:8] == b"ORTM"


def nodes_in(data: bytes | memoryview) -> Iterator[Node]:
    """Yield the nodes of a model in their order, without those inside control flow.

    Raises:
        ValueError: this is no model.
    """
    for graph in messages_in(data, MODEL_GRAPH):
        for node in messages_in(data, GRAPH_NODE, *graph):
            names, types, domains = (
                texts_in(data, number, *node) for number in (NODE_NAME, NODE_TYPE, NODE_DOMAIN)
            )
            yield Node(
                name="".join(names[-1:]),
                operator="".join(types[-1:]),
                domain="".join(domains[-1:]),
                inputs=tuple(texts_in(data, NODE_INPUT, *node)),
                outputs=tuple(texts_in(data, NODE_OUTPUT, *node)),
            )


def output_names(data: bytes | memoryview) -> list[str]:
    """Return the names of a model's outputs.

    Raises:
        ValueError: this is no model.
    """
    return [
        name
        for graph in messages_in(data, MODEL_GRAPH)
        for output in messages_in(data, GRAPH_OUTPUT, *graph)
        for name in texts_in(data, VALUE_NAME, *output)
    ]


def inputs_without_rank(data: bytes | memoryview) -> set[str]:
    """Return the names of a model's inputs whose number of axes the file does not tell.

    Raises:
        ValueError: this is no model.
    """
    names = set()
    for graph in messages_in(data, MODEL_GRAPH):
        for value in messages_in(data, GRAPH_INPUT, *graph):
            shapes = [
                shape
                for kind in messages_in(data, VALUE_TYPE, *value)
                for tensor in messages_in(data, TYPE_TENSOR, *kind)
                for shape in messages_in(data, TENSOR_SHAPE, *tensor)
            ]
            names |= set() if shapes else set(texts_in(data, VALUE_NAME, *value))
    return names


def weights_files(data: bytes | memoryview) -> tuple[str, ...]:
    """Return the names of the files beside a model that hold weights of it.

    Raises:
        ValueError: this is no model.
    """
    found: set[str] = set()
    for graph in messages_in(data, MODEL_GRAPH):
        found.update(weights_files_of_graph(data, *graph))
    return tuple(sorted(found))


def weights_files_of_graph(data: bytes | memoryview, begin: int, end: int) -> Iterator[str]:
    """Yield the files of a graph's weights, and of those inside its control flow."""
    for field in fields_in(data, begin, end):
        if field.number == GRAPH_INITIALIZER:
            yield from weights_files_of_tensor(data, field.value, field.end)
        elif field.number == GRAPH_NODE:
            for attribute in messages_in(data, NODE_ATTRIBUTE, field.value, field.end):
                for inner in fields_in(data, *attribute):
                    if inner.number in ATTRIBUTE_TENSORS:
                        yield from weights_files_of_tensor(data, inner.value, inner.end)
                    elif inner.number in ATTRIBUTE_GRAPHS:
                        yield from weights_files_of_graph(data, inner.value, inner.end)


def weights_files_of_tensor(data: bytes | memoryview, begin: int, end: int) -> Iterator[str]:
    """Yield the file of a tensor's data, if it has one."""
    for entry in messages_in(data, TENSOR_EXTERNAL_DATA, begin, end):
        if texts_in(data, ENTRY_KEY, *entry) == ["location"]:
            yield from texts_in(data, ENTRY_VALUE, *entry)
