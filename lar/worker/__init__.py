"""The worker process, which executes one run or another task.

The worker starts in this module. Python modules are imported while the engine's library loads.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.machinery  # `delay_packages` needs both where a thread may import nothing
import importlib.util
import json
import os
import signal
import sys
import time
from threading import Thread

from lar.errors import EngineMissing, first_line, limit_of, memory_error
from lar.files.libraries import load_lazily
from lar.files.python_process import delay_packages

# Modules that load a shared library, and that `import_ahead` needs. The system loads one library at
# a time. So they are imported first, or they would wait for the engine's library.
WITH_LIBRARIES = ("array", "mmap", "shutil", "_opcode", "hashlib", "random", "subprocess")
LAST_OF_NUMPY = "numpy.linalg._umath_linalg"  # the last shared library that NumPy imports


def start(argv: list[str], library: str = "") -> None:
    """Execute the task on standard input (`lar.worker.main`); never return.

    `argv` has the task, the engine, the driver and the file descriptors. `library` is the shared
    library of the driver (`DriverEntry`). The calling thread loads `library`, since loading may
    change how the calling thread computes, for example with subnormal numbers. While the library
    loads, another thread imports modules. A worker that is a fork of lar's process gets only the
    descriptors in `argv`. After loading NumPy's libraries, it reads the task, the engine, the
    driver and the library from standard input, as a line of JSON.
    """
    try:
        end_with_parent()
        # With little address space, NumPy is not imported in a thread, which would need more.
        for name in (*WITH_LIBRARIES, *(["numpy"] if limit_of("address space") else [])):
            importlib.import_module(name)
        if library:
            delay_packages()  # a copy of lar's process has done so
        ahead = Thread(target=import_ahead, daemon=True)
        ahead.start()
        while LAST_OF_NUMPY not in sys.modules and ahead.is_alive():
            time.sleep(0.0002)
        if len(argv) == 2:
            line = sys.stdin.buffer.readline()
            *argv[:0], library = json.loads(line) if line else os._exit(0)  # its parent has ended
        if library:
            Thread(target=import_ahead, args=argv[:3], daemon=True).start()
            load_lazily(library)
        from lar.worker.main import main
    except Exception as error:  # for example, too little memory
        fail(int(argv[-2]), error)
    main(argv)


def end_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies (Linux)."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, int(signal.SIGKILL), 0, 0, 0)


def fail(event_file: int, error: Exception) -> None:
    """Send a last event that says why this process cannot start, and end the process.

    The event is written without lar's code for events, which may be missing.
    """
    problem, hint = f"a library cannot be imported: {first_line(error)}", "install it"
    refused = memory_error(error) or EngineMissing(problem, hint)
    failure = {"problem": refused.problem, "hint": refused.hint, "exit_code": refused.exit_code}
    os.write(event_file, f"{json.dumps(['Failed', {'failure': failure}])}\n".encode())
    os._exit(1)


def import_ahead(*task: str) -> None:
    """Import NumPy, and the modules that a task needs.

    `task` has three names (of a task, an engine and a driver), or is empty.

    This function ignores errors, since the worker imports the modules again later, and then reports
    the error.
    """
    with contextlib.suppress(BaseException):
        importlib.import_module("numpy")
        if task:
            from lar.worker.main import import_modules

            import_modules(*task)
