"""The engine's profiler of operators, hung into the graph of a lite network.

Lite's own way to it, `enable_profile_performance`, writes all that is known of the graph after each
iteration, and infers the values of all weights for that: the first time it copies them. What the
profiler itself has recorded costs a thirtieth of that. It holds no names.

    device          {operator: {device: its times}}
    host            {operator: {thread: its times}}, in seconds
    opr_footprint   {operator: {"param": its parameters, ...}}

The profiler is a C++ object, hung into the graph as `checkers.py` does it. Its sources are
src/plugin/impl/profiler.cpp and opr_footprint.cpp in MegEngine.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from ctypes import c_int, c_void_p
from typing import Any

from lar.engines.megengine.symbols import attach_plugin, find_function, graph_class, pointer_at
from lar.errors import UsageError
from lar.options.table import BIN_IO_DUMP

CONSTRUCTOR = "_ZN3mgb13GraphProfilerC1EPNS_2cg14ComputingGraphE"
TO_JSON = "_ZNK3mgb13GraphProfiler7to_jsonEv"
TO_STRING = "_ZNK3mgb4json5Value9to_stringEi"

# Offsets of pointers: in lite::Network to its implementation, and in that to its graph.
IMPLEMENTATION, GRAPH = 120, 256


def attach_profiler(network: Any) -> Callable[[], bytes] | None:
    """Hang a profiler into the graph of a loaded LiteNetwork.

    Returns a function that returns what was recorded so far, as JSON; None if this is another
    build of MegEngine or not x86-64.
    """
    flag = BIN_IO_DUMP.flag
    try:
        graph = graph_of(network, graph_class(flag))
        if graph is None or os.uname().machine != "x86_64":
            return None
        # Both return an object by writing it where their first argument points to.
        to_json = find_function(flag, TO_JSON, [c_void_p, c_void_p])
        to_string = find_function(flag, TO_STRING, [c_void_p, c_void_p, c_int])
        profiler = attach_plugin(flag, CONSTRUCTOR, graph)
    except UsageError:
        return None

    def read() -> bytes:
        shared_pointer, string = (c_void_p * 2)(), (c_void_p * 4)()  # freed with the process
        to_json(shared_pointer, profiler)
        to_string(string, shared_pointer[0], 0)
        return ctypes.string_at(string[0] or 0)

    return read


def graph_of(network: Any, functions: int) -> int | None:
    """Return where the C++ graph of a LiteNetwork is, None if it is not where this build has it.

    The graph begins with the address of its class's virtual functions.
    """
    implementation = pointer_at(network._network.value + IMPLEMENTATION)
    graph = pointer_at(implementation + GRAPH)
    return graph if graph and pointer_at(graph) == functions else None
