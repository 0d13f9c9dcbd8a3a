"""Functions of MegEngine's own library that its Python packages do not offer, called through C.

C++ names are spelled as the compiler writes them (the Itanium C++ ABI). They are those of
MegEngine 1.13.0; a library that lacks one is another build.

The engine's profiler of operators is hung into the graph of a lite network. Lite's own way to it,
`enable_profile_performance`, writes all that is known of the graph after each iteration, and infers
the values of all weights for that: the first time it copies them. What the profiler itself has
recorded costs a thirtieth of that. It holds no names.

    device          {operator: {device: its times}}
    host            {operator: {thread: its times}}, in seconds
    opr_footprint   {operator: {"param": its parameters, ...}}

Its sources are src/plugin/impl/profiler.cpp and opr_footprint.cpp in MegEngine.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Sequence
from ctypes import c_int, c_void_p
from typing import TYPE_CHECKING, Any

from lar.errors import UsageError
from lar.options.table import BIN_IO_DUMP

if TYPE_CHECKING:
    from lar.engines.driver import Driver

LIBRARY = "libmegengine_shared.so"  # both drivers have loaded it, so that its name alone finds it
GRAPH_CLASS = "_ZTVN3mgb2cg18ComputingGraphImplE"
PLUGIN_BYTES = 1024  # several times what the largest of them takes


class MegdnnVersion(ctypes.Structure):
    """`megdnn::Version` of MegEngine's `dnn/include/megdnn/version.h`."""

    _fields_ = (("major", ctypes.c_int), ("minor", ctypes.c_int), ("patch", ctypes.c_int))


def read_libraries() -> dict[str, str]:
    """Return the version of megdnn, the engine's kernels; nothing if the library lacks it."""
    try:
        function = ctypes.CDLL(LIBRARY)._ZN6megdnn11get_versionEv
    except (OSError, AttributeError):
        return {}
    function.restype = MegdnnVersion
    version = function()
    return {"megdnn": f"{version.major}.{version.minor}.{version.patch}"}


def find_function(flag: str, symbol: str, arguments: Sequence[Any], result: Any = None) -> Any:
    """Return a function of the loaded library; `flag` is the option that needs it.

    Raises:
        UsageError: the library has no such function.
    """
    try:
        function = getattr(ctypes.CDLL(LIBRARY), symbol)
    except (OSError, AttributeError):
        raise another_build(flag, symbol) from None
    function.argtypes, function.restype = list(arguments), result
    return function


def find_address(flag: str, symbol: str) -> int:
    """Return the address of a function or a datum of the loaded library.

    Raises:
        UsageError: the library has nothing of that name.
    """
    try:
        return ctypes.addressof(ctypes.c_char.in_dll(ctypes.CDLL(LIBRARY), symbol))
    except (OSError, ValueError):
        raise another_build(flag, symbol) from None


def library_base(flag: str) -> int:
    """Return the address at which the library is loaded.

    Raises:
        UsageError: it is not the known library, or is not loaded.
    """
    found = (ctypes.c_void_p * 4)()  # Dl_info of dladdr(3): file name, base, symbol's name, address
    ctypes.CDLL(None).dladdr(ctypes.c_void_p(find_address(flag, GRAPH_CLASS)), found)
    return int(found[1] or 0)


def read_memory(address: int, size: int) -> bytes:
    """Return bytes of this process's memory, none if nothing is there: the system refuses such a
    read, while following the address would end the process."""
    with contextlib.suppress(OSError, OverflowError), open("/proc/self/mem", "rb") as memory:
        return os.pread(memory.fileno(), size, address)
    return b""


def pointer_at(address: int) -> int:
    """Return the pointer that stands at an address, 0 if nothing is."""
    return int.from_bytes(read_memory(address, 8), "little")


def graph_class(flag: str) -> int:
    """Return the address of the virtual functions of a graph's class: a graph begins with it.

    Raises:
        UsageError: the library has no such class.
    """
    return find_address(flag, GRAPH_CLASS) + 16  # behind two other fields of that table


def attach_plugin(flag: str, constructor: str, graph: int, *arguments: Any) -> int:
    """Make a plugin and hang it into the graph at an address; return its own.

    It is never destroyed, as the graph lives until the process ends.

    Raises:
        UsageError: this build of MegEngine does not have it.
    """
    types = [ctypes.c_void_p, ctypes.c_void_p, *map(type, arguments)]
    construct = find_function(flag, constructor, types)
    allocate = ctypes.CDLL(None).calloc
    allocate.argtypes, allocate.restype = [ctypes.c_size_t, ctypes.c_size_t], ctypes.c_void_p
    plugin: int = allocate(1, PLUGIN_BYTES)
    construct(plugin, graph, *arguments)
    return plugin


def another_build(flag: str, lacking: str) -> UsageError:
    problem = f"this is another build of MegEngine, it has no {lacking}"
    hint = "it is made for 1.13.0 from PyPI, for Linux on x86-64; leave the flag out"
    return UsageError(problem, hint, flag=flag)


# The profiler of operators

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


# `--c-opr-lib`: libraries of operators written in C.
#
# Such a library registers its operators in a function `mgb_c_opr_init`, which is given the engine's
# `mgb_get_extern_c_opr_api_versioned`; both are declared in MegEngine's
# src/serialization/include/megbrain/serialization/extern_c_opr.h.

ENTRY = "mgb_c_opr_init"
API = "mgb_get_extern_c_opr_api_versioned"


def load_operators(driver: Driver, path: str) -> None:
    """Load a library of operators, once for all runners; errors are those of `load_library`."""
    if driver.runner == 0:
        load_library(path)


def load_library(path: str) -> None:
    """Load a library and let it register its operators; it stays loaded.

    Raises:
        UsageError: it is missing, is no library for this machine, or has no operators.
    """
    api = find_address("--c-opr-lib", API)
    # A name without a folder would be looked for in the system's.
    place = os.path.abspath(path)
    try:
        register = ctypes.CDLL(place)[ENTRY]
    except AttributeError:
        problem = f"is not a library of operators: it has no function {ENTRY}"
        hint = "build it with MegEngine's extern_c_opr.h"
    except OSError as error:
        problem = f"cannot be loaded: {str(error).removeprefix(place).lstrip(': ')}"
        hint = "give a shared library (.so) that was built for this machine"
    else:
        register.argtypes, register.restype = [ctypes.c_void_p], None
        register(api)
        return
    raise UsageError(problem, hint, flag="--c-opr-lib", subject=path)


# The fix for `--enable-nchw88` on processors other than Intel's: `--engine-fix x2apic`.
#
# Before it takes the Winograd algorithm, MKL-DNN's AVX-512 code compares the number of threads with
# the number of cores. Xbyak, which it asks, reads the cores at start-up from a leaf of CPUID that
# it trusts on Intel processors alone; elsewhere its flag "x2APIC is supported" stays false, and
# asking throws an error in a worker thread that ends the process and hangs in doing so. This fix
# sets the flag and the cores in the loaded library, whose own code then runs as on Intel. They
# choose between algorithms, nothing else.

# The linker's note that distinguishes this build of the library (1.13.0 for Linux on x86-64) from
# any other, and its place; tools that edit a wheel's libraries leave it and all addresses alone.
# Header: sizes of the owner's name and of the identifier, kind 3 (NT_GNU_BUILD_ID), the name.
BUILD_NOTE_ADDRESS = 0x5E5022F0
BUILD_NOTE = bytes.fromhex(
    "04000000 14000000 03000000 474e5500 d3b295c3793f08725594d2e8cc525b5c1d3c37f9"
)

# The flags of three Xbyak::util::Cpu objects. MKL-DNN has one object for each source file, but
# three places in the code alone throw ERR_X2APIC_IS_NOT_SUPPORTED, and these are what they read;
# inference has been seen to reach the first.
FLAG_ADDRESSES = (0x5CAFBAE8, 0x5CAFBC28, 0x5CAFBD68)


class CoreFacts(ctypes.Structure):
    """Part of a Xbyak::util::Cpu; MKL-DNN divides the threads by those of a core."""

    _fields_ = [
        ("supported", ctypes.c_uint8),
        ("threads_per_core", ctypes.c_uint32),
        ("threads", ctypes.c_uint32),
    ]


def apply_fix(*_: object) -> None:
    """Let MKL-DNN in the loaded library know the number of cores.

    To be called after the library is loaded, before a convolution runs.

    Raises:
        UsageError: the library is not the build whose addresses are known.
    """
    base = find_known_build()
    objects = [CoreFacts.from_address(base + address) for address in FLAG_ADDRESSES]
    for facts in objects:
        # Memory holds what Xbyak leaves there: no cores and false, or cores and true.
        unset = (facts.supported, facts.threads_per_core, facts.threads) == (0, 0, 0)
        if not unset and not (facts.supported == 1 and 0 < facts.threads_per_core <= facts.threads):
            raise unknown_build()
    for facts in objects:
        if not facts.supported:  # where it is true, Xbyak has read the cores itself
            facts.threads_per_core, facts.threads = 1, os.cpu_count() or 1
            facts.supported = 1


def find_known_build() -> int:
    """Return the address at which the library is loaded.

    Raises:
        UsageError: it is another build.
    """
    base = library_base("--engine-fix x2apic")
    if read_memory(base + BUILD_NOTE_ADDRESS, len(BUILD_NOTE)) != BUILD_NOTE:
        raise unknown_build()
    return base


def unknown_build() -> UsageError:
    hint = "it is made for 1.13.0 from PyPI, for Linux on x86-64; leave --enable-nchw88 out"
    return UsageError("--engine-fix x2apic: this is another build of MegEngine", hint)
