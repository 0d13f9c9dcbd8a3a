"""Shared libraries, loaded before the Python packages that they belong to."""

from __future__ import annotations

import ctypes
import glob
import os
import sys


def load_lazily(library: str) -> None:
    """Load a library below the folders of packages, with its symbols bound at their first use, as
    in a C++ program; ctypes would bind all of them at once, which takes half as long again.

    Nothing happens if it is missing or does not load: importing its package will say so.
    """
    for folder in sys.path:
        for file in glob.glob(os.path.join(folder, library)):
            dlopen = ctypes.CDLL(None).dlopen  # a call that lets other threads run meanwhile
            dlopen.restype, dlopen.argtypes = ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_int)
            dlopen(os.fsencode(file), os.RTLD_LAZY)
            return
