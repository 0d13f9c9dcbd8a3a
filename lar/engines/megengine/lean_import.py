"""Imports of MegEngine's packages without what a local run never uses."""

from __future__ import annotations

import contextlib
import gc
import importlib
import sys
import types
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from lar.engines.engine import importing

# Where megenginelite's own library is, below the folder of the packages.
LITE_LIBRARY = "megenginelite/libs/liblite*"

# The packages import these only to look for another MegEngine and to open and download remote
# files; they would cost half of the start-up.
UNUSED_LIBRARIES: Mapping[str, Mapping[str, Any]] = {
    "megfile": dict.fromkeys(("smart_copy", "smart_getmd5", "smart_getsize", "smart_open"), open),
    "pkg_resources": {"working_set": ()},
    "requests": {},
}


@contextlib.contextmanager
def lean_import() -> Iterator[None]:
    """While this is open, empty modules stand in for the libraries that are not used."""
    stand_ins = [name for name in UNUSED_LIBRARIES if name not in sys.modules]
    for name in stand_ins:
        module = types.ModuleType(name)
        vars(module).update(UNUSED_LIBRARIES[name])
        sys.modules[name] = module
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        for name in stand_ins:
            del sys.modules[name]
        # What was imported never becomes garbage: the collector need not look at it.
        gc.freeze()
        if collecting:
            gc.enable()


def import_package(name: str) -> Any:
    """Import one of MegEngine's packages without the libraries that a local run never uses.

    Raises:
        EngineMissing: it is not installed, or does not load on this machine.
    """
    with importing("MegEngine"), lean_import():
        module = importlib.import_module(name)
    # Its library makes subnormal numbers zero in this process, which NumPy would warn of.
    warnings.filterwarnings("ignore", "The value of the smallest subnormal")
    return module
