"""MegEngine's own profile file: JSON that the engine writes at the end of each iteration.

    profiler    device, host: when each operator was executed, by device and by thread
                opr_footprint: shapes, bytes and arithmetic operations of each operator
    graph_exec  operator, var, mem_chunk, and comp_seq, the operators in the order of execution

Times are seconds with six places; the host's and the device's have different zeros.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lar.errors import UsageError
from lar.records.profile import Count

HINT = "MegEngine's file is what --profile-raw wrote, lar's what --profile wrote"


class RawTimes(msgspec.Struct, frozen=True, gc=False):
    """Seconds: when an operator began, began to compute after a wait, and ended."""

    start: float
    kern: float
    end: float


class RawFootprint(msgspec.Struct, frozen=True):
    """The work of an operator: what it reads, writes and computes; a multiply-add counts as two.

    What only the host reads has no layout. The parameters of what picks elements are a list.
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
    """`mem_plan` is None for what only the host reads."""

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
    """Times by operator and, of each, by device or thread."""

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
    """Return whether an engine's own profile begins as one of these: with an object."""
    return data.lstrip()[:1] == b"{"


def decode_raw(data: bytes, name: str) -> RawProfile:
    """Return what is in a file; `name` is for messages.

    Raises:
        UsageError: it is empty, truncated, foreign or damaged.
    """
    if not data.strip():
        raise UsageError("the profile is empty", "make it again", subject=name)
    try:
        raw = DECODER.decode(data)
    except msgspec.ValidationError as error:
        why = str(error).lower()
        raise UsageError(
            f"is JSON, but not a profile that lar knows: {why}", HINT, subject=name
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        why = str(error).lower()
        raise UsageError(f"is not a profile, or was cut short: {why}", HINT, subject=name) from None
    graph, times = raw.graph_exec, raw.profiler
    for what, there, keys in (
        ("operator", graph.operator, [*graph.comp_seq, *times.device, *times.host]),
        (
            "variable",
            graph.var,
            [key for each in graph.operator.values() for key in (*each.input, *each.output)],
        ),
        ("variable", graph.var, [chunk.owner_var for chunk in graph.mem_chunk.values()]),
    ):
        if missing := set(keys).difference(there):
            raise UsageError(f"is damaged: {what} {min(missing)} is not in it", HINT, subject=name)
    return raw
