"""Functions of MegEngine's own library that its Python packages do not offer, called through C.

C++ names are spelled as the compiler writes them (the Itanium C++ ABI). They are those of
MegEngine 1.13.0; a library that lacks one is another build.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from lar.errors import UsageError

LIBRARY = "libmegengine_shared.so"  # both drivers have loaded it, so that its name alone finds it


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


def another_build(flag: str, lacking: str) -> UsageError:
    return UsageError(
        f"this is another build of MegEngine, it has no {lacking}",
        "it is made for 1.13.0 from PyPI, for Linux on x86-64; leave the flag out",
        flag=flag,
    )
