"""The program `lar`, which `python -m lar` starts too.

An interrupt ends the program even while it is still importing its modules.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # the part in C, which imports nothing
import gc
import os
import sys


def main() -> None:
    """Run the command line of this process.

    From the start of the process, Ctrl-C prints one line instead of a traceback.
    """
    gc.disable()  # until a command begins: earlier objects stay
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP
            # There is nothing to clean up yet.
            signal.signal(number, lambda *_: leave_with(b"interrupted", 130))
    try:
        from lar.cli.main import run_from_shell  # the slow part of the start
        from lar.files.python_process import delay_packages

        delay_packages()
        run_from_shell()
    except (MemoryError, ImportError) as error:
        # A library for which the address space has no room raises an ImportError.
        if isinstance(error, ImportError) and "failed to map" not in error.msg:
            raise
        leave_with(b"out of memory\nhint: raise its limit: ulimit -v unlimited", 4)


def leave_with(problem: bytes, code: int) -> None:
    """Print an error and end the process.

    This function needs no other module of lar, since `lar.cli` may not be imported yet.
    """
    try:  # noqa: SIM105 - contextlib is slow to import
        os.write(2, b"lar: error: " + problem + b"\n")
    except OSError:
        pass
    os._exit(code)


if __name__ == "__main__":
    # `python -m lar` looks for modules first in the current folder, where a file may have the name
    # of a library's module. The program `lar` looks in its own folder instead.
    from lar.files.python_process import has_safe_path

    if not has_safe_path():
        sys.path[0] = os.path.dirname(sys.executable)
    main()
