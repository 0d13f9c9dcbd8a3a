"""MegEngine's files of testcases, read as far as their parts.

    file      "mgbtest0", u32 number of testcases, the model's graph, then a graph for each
    a graph   in the newer format u32 size of what follows, u32, "mgv2", ...
              in the older one "MGBC", 12 bytes, u64 size of the weights, these, then u32 size of
              what follows, u32, "mgb1", ...

Numbers are little-endian. The outputs of a testcase's graph are constants, one for each input of
the model's graph, in the order of these inputs' names; the expected outputs are inputs, too.
"""

from __future__ import annotations

import os
import struct
from typing import BinaryIO

from lar.errors import UsageError
from lar.files.input_file import open_input

MAGIC = b"mgbtest0"
BROKEN = "copy or pack it again"
HEADER = struct.Struct("<8sI")

NEW_IDENTIFIER, OLD_IDENTIFIER, OLD_MAGIC = b"mgv2", b"mgb1", b"MGBC"
GRAPH_HEAD = struct.Struct("<I4x4s")
OLD_HEAD = struct.Struct("<4s12xQ")


def graphs_in(path: str) -> list[tuple[int, int]]:
    """Return where each graph begins and ends, the model's first; empty for another file.

    Raises:
        UsageError: the file is damaged, or cannot be read.
    """
    with open_input(path) as file:
        head = file.read(HEADER.size)
        if not head.startswith(MAGIC):
            return []
        if len(head) < HEADER.size:
            raise broken(path, "the file is cut short")
        size, count = os.fstat(file.fileno()).st_size, HEADER.unpack(head)[1]
        graphs, begin = [], HEADER.size
        while begin < size:
            end = end_of_graph(file, begin)
            if end is None:
                raise broken(path, f"its testcases are damaged: no graph begins at byte {begin}")
            if end > size:
                wanted = f"a graph should go on to byte {end}, the file ends at byte {size}"
                raise broken(path, f"the file is cut short: {wanted}")
            graphs.append((begin, end))
            begin = end
    found = max(len(graphs) - 1, 0)
    if not count or found != count:
        what = "the file is cut short" if found < count else "its testcases are damaged"
        raise broken(path, f"{what}: its header counts {count} testcases, it holds {found}")
    return graphs


def broken(path: str, problem: str) -> UsageError:
    return UsageError(problem, BROKEN, subject=path)


def end_of_graph(file: BinaryIO, begin: int) -> int | None:
    """Return where the graph that begins at a byte should end, None if no graph begins there."""
    file.seek(begin)
    head = file.read(OLD_HEAD.size)
    identifier = NEW_IDENTIFIER
    if head.startswith(OLD_MAGIC):
        if len(head) < OLD_HEAD.size:
            return begin + OLD_HEAD.size
        begin += OLD_HEAD.size + OLD_HEAD.unpack(head)[1]
        identifier = OLD_IDENTIFIER
        try:
            file.seek(begin)
        except (OverflowError, OSError, ValueError):  # larger than any file
            return begin
        head = file.read(GRAPH_HEAD.size)
    if len(head) < GRAPH_HEAD.size:
        return begin + GRAPH_HEAD.size
    length, found = GRAPH_HEAD.unpack_from(head)
    return begin + 4 + length if found == identifier else None
