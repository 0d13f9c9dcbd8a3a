"""How lar starts Python, so that no file in the current folder replaces a library's module.

For `-c` and `-m`, Python looks for modules first in the current folder, and not every version of
Python has a flag that prevents this. Therefore lar sets the module path itself, before anything is
imported.
"""

from __future__ import annotations

# No other imports: `lar.__main__` imports this module before the path is safe.
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

# Packages that few commands need.
DELAYED = ("numpy.fft", "numpy.ma", "numpy.polynomial", "numpy.random")
HOME = os.path.join(os.path.dirname(__file__), os.pardir, os.pardir)
OWN_PATH = "import sys; sys.path[:] = {path!r}\n"
# Another Python uses its own libraries and PYTHONPATH; `site` has made these paths absolute.
OTHER_PATH = "import sys; sys.path[:] = [folder for folder in sys.path if folder]\n"


def delay_packages() -> None:
    """Delay the import of some packages of NumPy until they are used, as NumPy 2 does by itself.

    NumPy 1 would import these packages at once, and the import of NumPy would take 1.5 times as
    long.
    """

    def find_spec(name: str, path: Sequence[str] | None, target: Any = None) -> Any:
        if name not in DELAYED:
            return None
        # Python holds a lock here: no other thread may import these two modules at this time.
        from importlib.machinery import PathFinder
        from importlib.util import LazyLoader

        spec = PathFinder.find_spec(name, path, target)
        if spec and spec.loader:
            spec.loader = LazyLoader(spec.loader)
        return spec

    namespace: Any = type(sys.implementation)
    sys.meta_path.insert(0, namespace(find_spec=find_spec))


def python_command(code: str, *words: str, python: str = "") -> list[str]:
    """Return the command that runs Python code with these arguments in `sys.argv[1:]`.

    The command starts the program `python` or, if `python` is empty, the Python of this process
    with the same module path.
    """
    if python:
        return [python, "-c", OTHER_PATH + code, *words]
    # -S skips the module `site`: the path of this process is already complete.
    return [sys.executable, "-S", "-c", OWN_PATH.format(path=module_path()) + code, *words]


def module_path() -> list[str]:
    """Return the folders in which this process finds its modules, and lar's own folder.

    The current folder is left out, unless PYTHONPATH or an installed package names it.
    """
    here, home = map(os.path.realpath, (os.curdir, HOME))
    first, *others = sys.path  # Python itself has added the first
    path = [os.path.abspath(it) for it in others if it]
    if first and (has_safe_path() or os.path.realpath(first) != here):
        path.insert(0, os.path.abspath(first))
    return path if home in path or home in map(os.path.realpath, path) else [*path, home]


def has_safe_path() -> bool:
    """Return whether Python was started with -I or -P.

    Both flags, -I and -P, keep the script's folder and the current folder out of `sys.path`.
    """
    return bool(sys.flags.isolated or getattr(sys.flags, "safe_path", False))  # -I, -P


def fork_python(files: Mapping[int, int], work: Callable[[], object]) -> int:
    """Fork this process, and return the id of the new process.

    This process must have only one thread. The new process gets its own process group, and calls
    `work` as if Python had just been started. The new process gets copies of file descriptors.
    `files` maps the number of a copy to the number of the original descriptor in this process. The
    new process ends after `work`, and never returns from this function.
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
