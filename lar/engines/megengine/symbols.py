"""Calls those functions of MegEngine's C++ library that MegEngine's Python packages do not offer.

The names of C++ functions are mangled by the rules of the Itanium C++ ABI. All names in this module
are from MegEngine 1.13.0. If a library lacks one of the names in this module, the library is not
the build that lar knows.

The function `attach_profiler` attaches the engine's profiler of operators to the graph of a lite
network. lite's own function `enable_profile_performance` is not used, since it writes all facts
about the graph after each iteration. To get the facts about the graph, lite infers the values of
all weights. When lite first gets these facts, lite also copies the weights. Reading only the
records of the profiler takes a thirtieth of the time that `enable_profile_performance` takes.

The profiler's records contain numbers of operators, but no names. The record `device` has the form
{operator: {device: times}}. The record `host` has the form {operator: {thread: times}}, with times
in seconds. The record `opr_footprint` has the form {operator: {"param": parameters, ...}}. The
source files of the profiler in MegEngine are src/plugin/impl/profiler.cpp and opr_footprint.cpp.
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

LIBRARY = "libmegengine_shared.so"  # both drivers have loaded it, so no path is needed
GRAPH_CLASS = "_ZTVN3mgb2cg18ComputingGraphImplE"
PLUGIN_BYTES = 1024  # several times the size of the largest plugin


class MegdnnVersion(ctypes.Structure):
    """`megdnn::Version` of MegEngine's `dnn/include/megdnn/version.h`."""

    _fields_ = (("major", ctypes.c_int), ("minor", ctypes.c_int), ("patch", ctypes.c_int))


def read_libraries() -> dict[str, str]:
    """Return the version of megdnn, MegEngine's library of kernels.

    The result is empty if the loaded library does not report the version of megdnn.
    """
    try:
        function = ctypes.CDLL(LIBRARY)._ZN6megdnn11get_versionEv
    except (OSError, AttributeError):
        return {}
    function.restype = MegdnnVersion
    version = function()
    return {"megdnn": f"{version.major}.{version.minor}.{version.patch}"}


def find_function(flag: str, symbol: str, arguments: Sequence[Any], result: Any = None) -> Any:
    """Return a function of the loaded library.

    `flag` is the option that needs the function.

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
    """Return the address of a function or variable of the loaded library.

    Raises:
        UsageError: the library has no symbol with this name.
    """
    try:
        return ctypes.addressof(ctypes.c_char.in_dll(ctypes.CDLL(LIBRARY), symbol))
    except (OSError, ValueError):
        raise another_build(flag, symbol) from None


def library_base(flag: str) -> int:
    """Return the address at which MegEngine's library is loaded.

    Raises:
        UsageError: the library is not the known build of MegEngine, or is not loaded.
    """
    found = (ctypes.c_void_p * 4)()  # Dl_info of dladdr(3): file name, base, symbol's name, address
    ctypes.CDLL(None).dladdr(ctypes.c_void_p(find_address(flag, GRAPH_CLASS)), found)
    return int(found[1] or 0)


def read_memory(address: int, size: int) -> bytes:
    """Return bytes of this process's memory, or no bytes if the address is not mapped.

    The system refuses to read an address that is not mapped. A direct access to an address that is
    not mapped would crash the process.
    """
    with contextlib.suppress(OSError, OverflowError), open("/proc/self/mem", "rb") as memory:
        return os.pread(memory.fileno(), size, address)
    return b""


def pointer_at(address: int) -> int:
    """Return the pointer that is stored at an address, 0 if the address is not mapped."""
    return int.from_bytes(read_memory(address, 8), "little")


def graph_class(flag: str) -> int:
    """Return the address of the virtual function table of the C++ class of graphs.

    The memory of each graph object begins with the returned address.

    Raises:
        UsageError: the library has no such class.
    """
    return find_address(flag, GRAPH_CLASS) + 16  # after two other fields of the table


def attach_plugin(flag: str, constructor: str, graph: int, *arguments: Any) -> int:
    """Make a plugin, attach it to the graph at an address, and return the plugin's address.

    The plugin is never destroyed, as the graph lives until the process ends.

    Raises:
        UsageError: this build of MegEngine does not have the plugin.
    """
    construct = find_function(flag, constructor, [c_void_p, c_void_p, *map(type, arguments)])
    allocate = ctypes.CDLL(None).calloc
    allocate.argtypes, allocate.restype = [ctypes.c_size_t, ctypes.c_size_t], ctypes.c_void_p
    plugin: int = allocate(1, PLUGIN_BYTES)
    construct(plugin, graph, *arguments)
    return plugin


def another_build(flag: str, lacking: str) -> UsageError:
    hint = "the flag needs 1.13.0 from PyPI, for Linux on x86-64; leave the flag out"
    return UsageError(f"this is another build of MegEngine, it has no {lacking}", hint, flag=flag)


# The profiler of operators

CONSTRUCTOR = "_ZN3mgb13GraphProfilerC1EPNS_2cg14ComputingGraphE"
TO_JSON = "_ZNK3mgb13GraphProfiler7to_jsonEv"
TO_STRING = "_ZNK3mgb4json5Value9to_stringEi"

# Offsets of two pointers: from lite::Network to its implementation, and from that to its graph.
IMPLEMENTATION, GRAPH = 120, 256


def attach_profiler(network: Any) -> Callable[[], bytes] | None:
    """Attach a profiler to the graph of a loaded LiteNetwork.

    Returns:
        A function that returns the profiler's records as JSON, or None if this is another build of
        MegEngine or the processor is not x86-64.
    """
    flag = BIN_IO_DUMP.flag
    try:
        graph = graph_of(network, graph_class(flag))
        if graph is None or os.uname().machine != "x86_64":
            return None
        # Both functions write the object that they return to the address in their first argument.
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
    """Return the address of a LiteNetwork's C++ graph, None if no graph is at the expected place.

    A graph is recognised by its first field, the address of the virtual functions of its class.
    """
    graph = pointer_at(pointer_at(network._network.value + IMPLEMENTATION) + GRAPH)
    return graph if graph and pointer_at(graph) == functions else None


# `--c-opr-lib`: libraries of operators written in C.
#
# Such a library registers its operators in a function `mgb_c_opr_init`. The argument of that
# function is the engine's `mgb_get_extern_c_opr_api_versioned`. Both are declared in MegEngine's
# src/serialization/include/megbrain/serialization/extern_c_opr.h.

ENTRY = "mgb_c_opr_init"
API = "mgb_get_extern_c_opr_api_versioned"


def load_operators(driver: Driver, path: str) -> None:
    """Load a library of operators, once for all runners.

    Raises:
        UsageError: as `load_library`.
    """
    if driver.runner == 0:
        load_library(path)


def load_library(path: str) -> None:
    """Load a library of operators, which then registers its operators; the library stays loaded.

    Raises:
        UsageError: the library is missing, is not for this machine, or has no operators.
    """
    api = find_address("--c-opr-lib", API)
    # A name without a folder would be looked up in the system's folders.
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
# Before MKL-DNN's AVX-512 code takes the Winograd algorithm, it compares the number of threads with
# the number of cores. It gets this number from Xbyak, which reads a leaf of CPUID at start-up, but
# only on Intel processors. On other processors Xbyak's flag "x2APIC is supported" stays false, and
# the call throws an error in a worker thread. This error should end the process, but the process
# hangs. The fix sets the flag and the number of cores in the loaded library, whose code then runs
# as on Intel. The numbers only decide between algorithms.

# The linker's note that distinguishes this build of the library (1.13.0 for Linux on x86-64) from
# any other build, and its address. Tools that edit a wheel's libraries do not change them.
# Header: sizes of the owner's name and of the identifier, kind 3 (NT_GNU_BUILD_ID), the name.
BUILD_NOTE_ADDRESS = 0x5E5022F0
BUILD_NOTE = bytes.fromhex(
    "04000000 14000000 03000000 474e5500 d3b295c3793f08725594d2e8cc525b5c1d3c37f9"
)

# The addresses of the flags in three Xbyak::util::Cpu objects. MKL-DNN has one such object for each
# source file, but only three places in its code throw ERR_X2APIC_IS_NOT_SUPPORTED, and they read
# these three flags. Inference was only seen to reach the first place.
FLAG_ADDRESSES = (0x5CAFBAE8, 0x5CAFBC28, 0x5CAFBD68)


class CoreFacts(ctypes.Structure):
    """The part of a C++ object Xbyak::util::Cpu that says how many threads and cores exist.

    MKL-DNN divides `threads` by `threads_per_core`.
    """

    _fields_ = [
        ("supported", ctypes.c_uint8),
        ("threads_per_core", ctypes.c_uint32),
        ("threads", ctypes.c_uint32),
    ]


def apply_fix(*_: object) -> None:
    """Write the number of cores into the loaded library, for MKL-DNN.

    Call this function after the library is loaded and before a convolution is executed.

    Raises:
        UsageError: the library is not the build whose addresses are known.
    """
    base = find_known_build()
    objects = [CoreFacts.from_address(base + address) for address in FLAG_ADDRESSES]
    for facts in objects:
        # Xbyak leaves one of two states: false and no cores, or true and the cores.
        unset = (facts.supported, facts.threads_per_core, facts.threads) == (0, 0, 0)
        if not unset and not (facts.supported == 1 and 0 < facts.threads_per_core <= facts.threads):
            raise unknown_build()
    for facts in objects:
        if not facts.supported:  # if it is true, Xbyak has read the cores itself
            facts.threads_per_core, facts.threads = 1, os.cpu_count() or 1
            facts.supported = 1


def find_known_build() -> int:
    """Return the address at which the library is loaded, after checking that its build is known.

    Raises:
        UsageError: the library is not the known build of MegEngine.
    """
    base = library_base("--engine-fix x2apic")
    if read_memory(base + BUILD_NOTE_ADDRESS, len(BUILD_NOTE)) != BUILD_NOTE:
        raise unknown_build()
    return base


def unknown_build() -> UsageError:
    hint = "the fix needs MegEngine 1.13.0 from PyPI for Linux on x86-64; leave --enable-nchw88 out"
    return UsageError("--engine-fix x2apic: the fix is for another build of MegEngine", hint)
