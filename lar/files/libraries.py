"""Loads the shared libraries of Python packages before Python imports these packages."""

from __future__ import annotations

import ctypes
import glob
import os
import sys


def load_lazily(library: str) -> None:
    """Load a library from a folder of packages, with lazy binding, as a C++ program loads it.

    ctypes would bind all symbols at once, and take 1.5 times as long. If the library is missing or
    does not load, this function raises no error, since the import of the package reports the error
    later.
    """
    for folder in sys.path:
        for file in glob.glob(os.path.join(folder, library)):
            dlopen = ctypes.CDLL(None).dlopen  # other threads run during this call
            dlopen.restype, dlopen.argtypes = ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_int)
            dlopen(os.fsencode(file), os.RTLD_LAZY)
            return
