"""Reads and writes lite's packed files, which hold a model, its settings and a fast-run cache.

A packed file begins with the text "packed_model", and continues with a FlatBuffers buffer whose
root is a PackModel. The number before each of the following names is the number of the field in its
FlatBuffers table.

A PackModel has the field `0 models`, which is a list with exactly one Model. A Model has the fields
`0 header` (a ModelHeader), `1 info` (a ModelInfo) and `2 data` (a ModelData). A ModelHeader has the
texts 0 name, 1 info_decryption_method, 2 info_parse_method, 3 model_decryption_method and 4
info_cache_parse_method, and the flag 5 is_fast_run_cache. A ModelInfo has the fields `0 data` (the
settings as JSON) and `1 algo_policy` (the cache), which hold bytes. A ModelData has the field `0
data` (a model file), which holds bytes.

The library lite follows the offsets in a file without checking them, so a damaged file would crash
the process. This module checks all offsets.

In MegEngine 1.13, the format is defined in lite/src/parse_model/pack_model.fbs and in
model_parser.cpp beside that file.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lar.datasets.testcases import graphs_in
from lar.engines.flatbuffer import Table, open_root
from lar.engines.formats import BROKEN
from lar.errors import LarError, UsageError, first_line

PACKED_MAGIC = b"packed_model"
NOT_ENCRYPTED = "NONE"
# FlatBuffers' offsets have 31 bits; 16 MiB are left for all parts besides the model.
LARGEST_MODEL = 2**31 - 2**24


@dataclass(frozen=True)
class PackedModel:
    """The contents of a packed file.

    `graph` is a memory view of the model in the file. `info` (the settings) and `cache` are None if
    the file lacks them. A part that is encrypted in the file is not decrypted.
    """

    name: str
    graph: memoryview
    info: bytes | None
    cache: bytes | None
    info_encrypted: bool
    graph_encrypted: bool


def is_packed(path: str | Path) -> bool:
    """Return whether a file's first bytes are those of a packed file."""
    with open(path, "rb") as file:
        return file.read(len(PACKED_MAGIC)) == PACKED_MAGIC


def map_file(path: str | Path) -> memoryview:
    """Map a file, which must not be empty, into memory."""
    with open(path, "rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def open_packed(path: str | Path) -> PackedModel:
    """Map a packed file into memory and read it; the file must not be empty.

    Raises:
        UsageError: the file is damaged, or lite could not read it.
    """
    return unpack_model(map_file(path), str(path))


def unpack_model(data: memoryview | bytes, name: str = "the file") -> PackedModel:
    """Read the content of a packed file.

    Raises:
        UsageError: the content is damaged, or lite could not read it.
    """
    try:
        return read_buffer(memoryview(data)[len(PACKED_MAGIC) :])
    except ValueError as error:
        raise UsageError(f"the packed model is damaged: {error}", BROKEN, subject=name) from None


def read_buffer(buffer: memoryview) -> PackedModel:
    models = [*open_root(buffer).tables(0)]
    if len(models) != 1:
        raise ValueError("it holds no model, or several")
    header, parts, data = (models[0].table(index) for index in range(3))
    (info, cache), graph = (bytes_in(parts, index) for index in range(2)), data.blob(0)
    if not header or graph is None or len(graph) == 0:
        raise ValueError("it holds no model")
    if any(header.pointed(index) is None for index in range(4)):
        raise ValueError("its header is not whole")
    if cache is not None and not (header.text(4) == "LITE_parse_cache" and header.integer(5, "<B")):
        raise ValueError("its cache is not one of fast-run")
    info_encrypted = info is not None and header.text(1) != NOT_ENCRYPTED
    graph_encrypted = header.text(3) != NOT_ENCRYPTED
    return PackedModel(header.text(0), graph, info, cache, info_encrypted, graph_encrypted)


def bytes_in(table: Table, index: int) -> bytes | None:
    blob = table.blob(index)
    return None if blob is None else bytes(blob)


def graph_in(path: str) -> memoryview:
    """Map the graph of a model file into memory; the file may be packed or have testcases.

    Raises:
        ValueError, OSError, LarError: the file has no graph, or the graph is encrypted.
    """
    if is_packed(path):
        return plain_graph(open_packed(path), path)
    graphs = graphs_in(path)
    return map_file(path)[slice(*graphs[0])] if graphs else map_file(path)


def plain_graph(packed: PackedModel, name: str) -> memoryview:
    """Return the model in a packed file.

    `name` is the file's name in error messages.

    Raises:
        UsageError: the model is encrypted.
    """
    if packed.graph_encrypted:
        hint = "give the model that was packed into this file"
        raise UsageError("the model in this file is encrypted", hint, subject=name)
    return packed.graph


def write_packed(
    path: str | Path,
    graph: memoryview | bytes,
    name: str,
    info: bytes | None = None,
    cache: bytes | None = None,
) -> None:
    """Write a packed file: a model, with settings and a cache if these are given.

    Raises:
        UsageError: the model is larger than the format allows. LarError: the library that writes
        the format does not load.
    """
    try:
        import flatbuffers
    except ImportError as error:
        raise LarError(f"flatbuffers cannot be imported: {first_line(error)}") from error
    if len(graph) > LARGEST_MODEL:
        problem = "the model is too large: a packed file holds 2 GiB at most"
        raise UsageError(problem, flag="--packed-model-dump")
    builder: Any = flatbuffers.Builder(len(graph) + len(info or b"") + len(cache or b"") + 4096)

    def add_table(*fields: int | bool | None) -> int:
        builder.StartObject(len(fields))
        for index, field in enumerate(fields):
            if isinstance(field, bool):
                builder.PrependBoolSlot(index, field, False)
            elif field is not None:
                builder.PrependUOffsetTRelativeSlot(index, field, 0)
        return int(builder.EndObject())

    texts = (name, NOT_ENCRYPTED, "LITE_default", NOT_ENCRYPTED, "LITE_parse_cache")
    header = add_table(*map(builder.CreateString, texts), cache is not None)
    blobs = [None if blob is None else builder.CreateByteVector(blob) for blob in (info, cache)]
    settings = add_table(*blobs) if any(blobs) else None
    model = add_table(header, settings, add_table(builder.CreateByteVector(bytes(graph))))
    builder.StartVector(4, 1, 4)
    builder.PrependUOffsetTRelative(model)
    builder.Finish(add_table(builder.EndVector()))
    with open(path, "wb") as file:
        file.write(PACKED_MAGIC)
        file.write(memoryview(builder.Bytes)[builder.Head() :])
