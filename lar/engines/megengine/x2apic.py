"""The fix for `--enable-nchw88` on processors other than Intel's: `--engine-fix x2apic`.

Before it takes the Winograd algorithm, MKL-DNN's AVX-512 code compares the number of threads
with the number of cores. Xbyak, which it asks, reads the cores at start-up from a leaf of CPUID
that it trusts on Intel processors alone; elsewhere its flag "x2APIC is supported" stays false, and
asking throws an error in a worker thread that ends the process and hangs in doing so. This fix
sets the flag and the cores in the loaded library, whose own code then runs as on Intel. They
choose between algorithms, nothing else.
"""

from __future__ import annotations

import ctypes
import os

from lar.engines.megengine.symbols import library_base, read_memory
from lar.errors import UsageError

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
        check_unset_or_set(facts)
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
        raise another_build()
    return base


def check_unset_or_set(facts: CoreFacts) -> None:
    """Check that memory holds what Xbyak leaves there: no cores and false, or cores and true.

    Raises:
        UsageError: it holds anything else.
    """
    unset = (facts.supported, facts.threads_per_core, facts.threads) == (0, 0, 0)
    if not unset and not (facts.supported == 1 and 0 < facts.threads_per_core <= facts.threads):
        raise another_build()


def another_build() -> UsageError:
    hint = "it is made for 1.13.0 from PyPI, for Linux on x86-64; leave --enable-nchw88 out"
    return UsageError("--engine-fix x2apic: this is another build of MegEngine", hint)
