"""The `lar` program, also as `python -m lar`: it can be interrupted before its imports are done."""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # the part in C, which imports nothing
import gc
import os
import sys


def main() -> None:
    """Run the command line of this process; Ctrl-C is one line from the first moment on."""
    gc.disable()  # until a command begins: what is made before stays
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup has SIGHUP ignored
            # There is nothing to clean up yet.
            signal.signal(number, lambda *_: leave_with(b"interrupted", 130))
    try:
        from lar.cli.main import run_from_shell  # the slow part of the start
        from lar.files.python_process import delay_packages

        delay_packages()
        run_from_shell()
    except (MemoryError, ImportError) as error:
        # A shared object for which the address space has no room is an error of the import.
        if isinstance(error, ImportError) and "failed to map" not in error.msg:
            raise
        leave_with(b"out of memory\nhint: raise its limit: ulimit -v unlimited", 4)


def leave_with(problem: bytes, code: int) -> None:
    """End with an error before the code that prints errors is there."""
    try:  # noqa: SIM105 - contextlib is slow to import
        os.write(2, b"lar: error: " + problem + b"\n")
    except OSError:
        pass
    os._exit(code)


if __name__ == "__main__":
    # `python -m lar` looks first in the current folder for modules, where a file may have the name
    # of a library's. The program `lar` looks beside itself.
    from lar.files.python_process import has_safe_path

    if not has_safe_path():
        sys.path[0] = os.path.dirname(sys.executable)
    main()
