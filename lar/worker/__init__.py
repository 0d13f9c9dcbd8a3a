"""The worker process: it executes one run.

It starts here: Python's modules are imported while the engine's library loads.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import time
from importlib import import_module
from threading import Thread

from lar.files.libraries import load_lazily
from lar.files.python_process import delay_packages

# Modules with libraries of their own, which those that `import_ahead` imports need: the system
# loads one library at a time, so that they would wait for the engine's.
WITH_LIBRARIES = (
    *("array", "mmap", "resource", "shutil", "_opcode", "hashlib", "random", "subprocess"),
)
LAST_OF_NUMPY = "numpy.linalg._umath_linalg"  # NumPy imports no library behind it
GLANCE_SECONDS = 0.0002  # between two looks whether it is there


def start(argv: list[str], library: str = "") -> None:
    """Execute what stands on standard input (`lar.worker.main`); never returns.

    `argv` is the worker's task, engine, driver and its files. `library` is the driver's
    (`DriverEntry`). This thread loads it, since loading it sets how the thread computes; a thread
    that imports a module waits for another that imports it. A copy of lar's process has its files
    alone, and reads the rest, as JSON on a line, when NumPy's libraries are loaded.
    """
    try:
        end_with_parent()
        for name in WITH_LIBRARIES:
            import_module(name)
        if library:
            delay_packages()  # a copy of lar's process has done so
        ahead = Thread(target=import_ahead, args=(argv,), daemon=True)
        ahead.start()
        while LAST_OF_NUMPY not in sys.modules and ahead.is_alive():
            time.sleep(GLANCE_SECONDS)
        if len(argv) == 2:
            line = sys.stdin.buffer.readline()
            *argv[:0], library = json.loads(line) if line else os._exit(0)  # its parent has ended
        if library:
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
    """Say in the last event why this process cannot begin, and end it; the code that writes events
    may be missing."""
    from lar.errors import EngineMissing, first_line, memory_error

    problem, hint = f"a library cannot be imported: {first_line(error)}", "install it"
    refused = memory_error(error) or EngineMissing(problem, hint)
    failure = {"problem": refused.problem, "hint": refused.hint, "exit_code": refused.exit_code}
    os.write(event_file, f"{json.dumps(['Failed', {'failure': failure}])}\n".encode())
    os._exit(1)


def import_ahead(argv: list[str]) -> None:
    """Import NumPy and what else the worker needs, if its task is known by then; if that fails, the
    worker will say so itself."""
    with contextlib.suppress(BaseException):
        import_module("numpy")
        from lar.worker.main import import_modules

        import_modules(*argv[:3])
