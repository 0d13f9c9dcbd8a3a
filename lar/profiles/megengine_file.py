"""MegEngine's own profile file: JSON that the engine writes at the end of each iteration.

The key `profiler` has the times of each operator, by device (`device`) and by thread (`host`), and
the shapes, bytes and arithmetic operations of each operator (`opr_footprint`). The key `graph_exec`
has `operator`, `var`, `mem_chunk`, and `comp_seq` (the operators in the order of execution).

Times are seconds with six decimals. Times of the host and of the device have different zeros.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec

from lar.records.profile import Count

# Seconds from a zero. A time outside of these limits comes from a damaged file.
Moment = Annotated[float, msgspec.Meta(ge=-4e9, le=4e9)]


class RawTimes(msgspec.Struct, frozen=True, gc=False):
    """The times of an operator in seconds: its begin, the end of its wait, and its end."""

    start: Moment
    kern: Moment
    end: Moment


class RawFootprint(msgspec.Struct, frozen=True):
    """The work of an operator: bytes and arithmetic operations; a multiply-add is two operations.

    A tensor that only the host reads has no layout. For operators that pick elements, the
    parameters are a list.
    """

    memory: Count | None = None
    computation: Count | None = None
    in_shapes: tuple[tuple[Count, ...], ...] = ()
    out_shapes: tuple[tuple[Count, ...], ...] = ()
    in_layouts: tuple[tuple[int | str, ...] | None, ...] | None = None
    param: dict[str, Any] | list[Any] | None = None


class RawLayout(msgspec.Struct, frozen=True):
    """The layout of a tensor; an axis along which the tensor is broadcast has a stride of 0."""

    shape: tuple[Count, ...] = ()
    dtype: str = ""
    stride: tuple[int, ...] = ()


class RawMemoryPlan(msgspec.Struct, frozen=True):
    layout: RawLayout
    mem_chunk_id: str = ""


class RawVariable(msgspec.Struct, frozen=True):
    """A variable of the graph.

    `mem_plan` is None if only the host reads the variable.
    """

    name: str = ""
    mem_plan: RawMemoryPlan | None = None
    flag: frozenset[str] = frozenset()


class RawOperator(msgspec.Struct, frozen=True):
    id: str
    type: str
    name: str
    input: tuple[str, ...] = ()
    output: tuple[str, ...] = ()


class RawChunk(msgspec.Struct, frozen=True):
    dev_ptr: int
    size: Count
    owner_var: str


class RawTimeline(msgspec.Struct, frozen=True):
    """The times of each operator, by device or thread, and the work of each operator."""

    device: dict[str, dict[str, RawTimes]]
    host: dict[str, dict[str, RawTimes]]
    opr_footprint: dict[str, RawFootprint] = {}


class RawGraph(msgspec.Struct, frozen=True):
    operator: dict[str, RawOperator]
    var: dict[str, RawVariable]
    comp_seq: tuple[str, ...] = ()
    mem_chunk: dict[str, RawChunk] = {}


class RawProfile(msgspec.Struct, frozen=True):
    profiler: RawTimeline
    graph_exec: RawGraph


DECODER = msgspec.json.Decoder(RawProfile)


def is_raw_profile(data: bytes) -> bool:
    """Return whether a file has the keys of MegEngine's profile; the file may be truncated."""
    return re.search(rb'"(graph_exec|opr_footprint)"\s*:', data) is not None


def decode_raw(data: bytes) -> RawProfile:
    """Decode the content of MegEngine's profile file.

    Raises:
        msgspec.MsgspecError, ValueError: the file is truncated, damaged, or not a profile of
            MegEngine.
    """
    raw = DECODER.decode(data)
    graph, times = raw.graph_exec, raw.profiler
    variables = {key for each in graph.operator.values() for key in (*each.input, *each.output)}
    variables |= {chunk.owner_var for chunk in graph.mem_chunk.values()}
    executed = {*graph.comp_seq, *times.device, *times.host}
    for what, missing in (
        ("operator", executed - graph.operator.keys()),
        ("variable", variables - graph.var.keys()),
    ):
        if missing:
            raise ValueError(f"{what} {min(missing)} is not in it")
    return raw
