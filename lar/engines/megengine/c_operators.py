"""`--c-opr-lib`: libraries of operators written in C.

Such a library registers its operators in a function `mgb_c_opr_init`, which is given the
engine's `mgb_get_extern_c_opr_api_versioned`; both are declared in MegEngine's
src/serialization/include/megbrain/serialization/extern_c_opr.h.
"""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING

from lar.engines.megengine.symbols import find_address
from lar.errors import UsageError

if TYPE_CHECKING:
    from lar.engines.driver import Driver

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
