"""The start of a worker: Python's modules are imported while the engine's library loads."""

from __future__ import annotations

import contextlib
import os
from _thread import start_new_thread
from importlib import import_module

from lar.files.libraries import load_lazily

# Modules with libraries of their own, which those that `import_ahead` imports need: the system
# loads one library at a time, so that they would wait for the engine's.
WITH_LIBRARIES = ("array", "json", "mmap", "resource", "shutil", "numpy")


def start(argv: list[str], library: str) -> None:
    """Execute what stands on standard input (`lar.worker.main`); never returns.

    `library` is the driver's (`DriverEntry`). This thread loads it, since loading it sets how the
    thread computes; a thread that imports a module waits for another that imports it.
    """
    try:
        if library:
            for name in WITH_LIBRARIES:
                import_module(name)
            start_new_thread(import_ahead, (argv,))
            load_lazily(library)
        from lar.worker.main import main
    except Exception as error:  # for example, too little memory
        fail(int(argv[3]), error)
    main(argv)


def fail(event_file: int, error: Exception) -> None:
    """Say in the last event why this process cannot begin, and end it; the code that writes events
    may be missing."""
    import json

    from lar.errors import EngineMissing, first_line, memory_error

    problem, hint = f"a library cannot be imported: {first_line(error)}", "install it"
    refused = memory_error(error) or EngineMissing(problem, hint)
    failure = {"problem": refused.problem, "hint": refused.hint, "exit_code": refused.exit_code}
    os.write(event_file, f"{json.dumps(['Failed', {'failure': failure}])}\n".encode())
    os._exit(1)


def import_ahead(argv: list[str]) -> None:
    """Import what the worker needs; if that fails, it will say so itself."""
    with contextlib.suppress(BaseException):
        from lar.worker.main import import_modules

        import_modules(*argv[:3])
