"""How lar starts Python: no file of the current folder stands in for a library's module.

Python looks first in the current folder for what the code after `-c`, or a module after `-m`,
imports; not every version has a flag against it. So the path is set before anything is imported.
"""

from __future__ import annotations

# No other imports: `lar.__main__` imports this module before the path is safe.
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

# Few commands need these packages.
DELAYED = ("numpy.fft", "numpy.ma", "numpy.polynomial", "numpy.random")
HOME = os.path.join(os.path.dirname(__file__), os.pardir, os.pardir)
OWN_PATH = "import sys; sys.path[:] = {path!r}\n"
# Another Python has its own libraries, and those of PYTHONPATH, as `site` has made them absolute.
OTHER_PATH = "import sys; sys.path[:] = [folder for folder in sys.path if folder]\n"


def delay_packages() -> None:
    """Have Python run some packages of NumPy when they are used, as NumPy 2 does by itself; NumPy 1
    runs them when it is imported, which takes half as long again."""

    def find_spec(name: str, path: Sequence[str] | None, target: Any = None) -> Any:
        if name not in DELAYED:
            return None
        from importlib.machinery import PathFinder
        from importlib.util import LazyLoader

        spec = PathFinder.find_spec(name, path, target)
        if spec and spec.loader:
            spec.loader = LazyLoader(spec.loader)
        return spec

    namespace: Any = type(sys.implementation)
    sys.meta_path.insert(0, namespace(find_spec=find_spec))


def python_command(code: str, *words: str, python: str = "") -> list[str]:
    """Return the command that runs code with words in its `sys.argv[1:]`: in this Python, with the
    modules that this process finds, or in another one."""
    if python:
        return [python, "-c", OTHER_PATH + code, *words]
    # With the path of this process, `site` (-S) has nothing left to do.
    return [sys.executable, "-S", "-c", OWN_PATH.format(path=module_path()) + code, *words]


def module_path() -> list[str]:
    """Return the folders in which this process finds its modules, and lar's own; without the
    current folder, unless PYTHONPATH or an installed package names it."""
    here, home = map(os.path.realpath, (os.curdir, HOME))
    first, *others = sys.path  # the first is what Python has put there by itself
    path = [os.path.abspath(it) for it in others if it]
    if first and (has_safe_path() or os.path.realpath(first) != here):
        path.insert(0, os.path.abspath(first))
    return path if home in path or home in map(os.path.realpath, path) else [*path, home]


def has_safe_path() -> bool:
    """Return whether Python was told to put nothing first by itself."""
    return bool(sys.flags.isolated or getattr(sys.flags, "safe_path", False))  # -I, -P


def fork_python(files: Mapping[int, int], work: Callable[[], object]) -> int:
    """Start a copy of this process, which must have one thread, and return its process id.

    The copy works as if Python had just been started, with files under those numbers, in a group of
    its own; it never returns.
    """
    import signal

    if pid := os.fork():
        os.setpgid(pid, pid)
        return pid
    try:
        for number, file in files.items():
            os.dup2(file, number)
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if callable(signal.getsignal(each)):
                signal.signal(each, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - until the process ends
        work()
    finally:
        os._exit(1)
