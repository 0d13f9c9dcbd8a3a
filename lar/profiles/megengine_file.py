"""MegEngine's own profile file: JSON that the engine writes at the end of each iteration.

    profiler    device, host: when each operator was executed, by device and by thread
                opr_footprint: shapes, bytes and arithmetic operations of each operator
    graph_exec  operator, var, mem_chunk, and comp_seq, the operators in the order of execution

Times are seconds with six places; the host's and the device's have different zeros.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec

from lar.records.profile import Count

# Seconds from a zero; what nanoseconds cannot count is damaged.
Moment = Annotated[float, msgspec.Meta(ge=-4e9, le=4e9)]


class RawTimes(msgspec.Struct, frozen=True, gc=False):
    """Seconds: when an operator began, began to compute after a wait, and ended."""

    start: Moment
    kern: Moment
    end: Moment


class RawFootprint(msgspec.Struct, frozen=True):
    """The work of an operator: what it reads, writes and computes; a multiply-add counts as two.

    What only the host reads has no layout. The parameters of operators that pick elements are a
    list.
    """

    memory: Count | None = None
    computation: Count | None = None
    in_shapes: tuple[tuple[Count, ...], ...] = ()
    out_shapes: tuple[tuple[Count, ...], ...] = ()
    in_layouts: tuple[tuple[int | str, ...] | None, ...] | None = None
    param: dict[str, Any] | list[Any] | None = None


class RawLayout(msgspec.Struct, frozen=True):
    """An axis along which a tensor is broadcast has a stride of 0."""

    shape: tuple[Count, ...] = ()
    dtype: str = ""
    stride: tuple[int, ...] = ()


class RawMemoryPlan(msgspec.Struct, frozen=True):
    layout: RawLayout
    mem_chunk_id: str = ""


class RawVariable(msgspec.Struct, frozen=True):
    """`mem_plan` is None for a variable that only the host reads."""

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
    """Times by operator, and for each operator by device or thread."""

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
    """Return whether a file has the keys of such a profile; it may have been cut short."""
    return re.search(rb'"(graph_exec|opr_footprint)"\s*:', data) is not None


def decode_raw(data: bytes) -> RawProfile:
    """Return what a file contains.

    Raises:
        msgspec.MsgspecError, ValueError: it is truncated, foreign or damaged.
    """
    raw = DECODER.decode(data)
    graph, times = raw.graph_exec, raw.profiler
    operators = graph.operator.values()
    variables = {key for each in operators for key in (*each.input, *each.output)}
    variables |= {chunk.owner_var for chunk in graph.mem_chunk.values()}
    executed = {*graph.comp_seq, *times.device, *times.host}
    for what, missing in (
        ("operator", executed - graph.operator.keys()),
        ("variable", variables - graph.var.keys()),
    ):
        if missing:
            raise ValueError(f"{what} {min(missing)} is not in it")
    return raw
