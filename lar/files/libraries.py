"""Shared libraries, loaded before the Python packages that they belong to."""

from __future__ import annotations

import contextlib
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


def release_loaded(folder: str) -> None:
    """Give back the memory that loading libraries below a folder of this name has filled; the
    system reads it again from its cache if it is needed.

    It is done only for memory that nobody can write or has written to, and only on Linux.
    """
    if sys.platform != "linux":
        return
    advise, do_not_need = ctypes.CDLL(None).madvise, 4
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    begin = end = 0
    with contextlib.suppress(OSError), open("/proc/self/smaps") as file:
        for line in file:
            word, _, rest = line.partition(" ")
            if not word.endswith(":"):  # addresses, permissions and more, the path
                begin = end = 0
                if f"/{folder}/" in rest and rest[1] == "-":
                    begin, end = (int(address, 16) for address in word.split("-"))
            elif end and word == "Anonymous:" and rest.split()[0] == "0":
                advise(begin, end - begin, do_not_need)
