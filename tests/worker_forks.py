"""Workers that are forked from a process which has their libraries loaded.

A worker that is started as lar starts it spends nine tenths of its CPU time on starting Python and
on loading NumPy and its engine: for a thousand short runs that is most of what the tests cost. A
command line that runs in the tests' process therefore gets its worker from here. Each worker is a
process of its own, in a group of its own, a child of the process that asks for it, with the same
code from `lar.worker.main.main` on, and meets an engine that is loaded and has run nothing. What is
left out is the start itself, which all command lines in processes of their own make.

A program of the tests that uses a driver as a worker does is forked too (`run_program`).

A fork has one thread, so an engine whose library starts threads while it is loaded is not forked.
Where modules would be found elsewhere, or the environment is another, so is the process that forks.
"""

from __future__ import annotations

import ctypes
import fcntl
import importlib
import json
import os
import pickle
import pkgutil
import platform
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lar.engines import ENGINES, engine_named
from lar.files.libraries import load_lazily
from lar.files.python_process import module_path
from lar.running.worker_process import start_python
from lar.worker import end_with_parent

REPOSITORY = str(Path(__file__).resolve().parent.parent)
CLONE = {"x86_64": 56, "aarch64": 220}.get(platform.machine(), 0)  # the system call
CLONE_PARENT = 0x8000
LARGEST_REQUEST = 1 << 20
WORKER = "lar.worker.main:main"
CALL = "tests.worker_forks:answer_call"
# Above all numbers that a worker's files have.
FIRST_FREE_FILE = 10

# What others add may be another engine of the same name in the next test.
OWN_ENGINES = [*(engine.name for engine in ENGINES), "fake"]

# What differs between tests, and no engine reads while it is loaded; the last two are set by
# scikit-learn for libraries of other compilers.
HARMLESS_VARIABLES = {"COLUMNS", "PATH", "PYTEST_CURRENT_TEST", "TMPDIR", "XDG_DATA_HOME"}
HARMLESS_VARIABLES |= {"KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK"}

# The driver beside which there is what an engine needs for other tasks than a run, if that is not
# its first.
OTHER_TASKS = {"megengine": "graph"}

# Packages of lar whose modules are imported before a fork, beside the engine's own: all that
# a worker may need, since each would import it anew.
PACKAGES = ["dumps", "engines.onnx_file", "files", "graphs", "measurement", "profiles", "worker"]

# What else is loaded, by engine and driver: modules, files that the engine's library would load at
# the first model, and functions of lar that import it.
LIBRARIES = json.loads((Path(__file__).parent / "forked_libraries.json").read_text())

# As `lar.running.worker_process` starts Python; the tests' folder is not on the path of a worker.
CODE = """\
import gc
import sys
gc.disable()
sys.path[:] = {path!r}
from tests.worker_forks import answer_requests
answer_requests(int(sys.argv[1]), *sys.argv[2:])
"""


class Loaded(NamedTuple):
    """What the libraries of a process that forks workers were loaded for, and with."""

    engine: str
    driver: str
    # In any order: the current folder decides whether the first of them is there a second time.
    # Without those that ONNX Runtime's converters append for themselves.
    path: frozenset[str]
    environment: frozenset[tuple[str, str]]


class WorkerForks:
    """For each driver of lar's own engines a process, started when it is needed first, that forks
    workers."""

    def __init__(self) -> None:
        self._sockets: dict[Loaded, socket.socket | None] = {}
        self._processes: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()

    def start(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        files: Mapping[int, int],
    ) -> int | None:
        """Start a worker as `start_python` of lar does; None if its driver cannot be forked."""
        task, engine, driver, *_ = arguments
        return self._fork(
            engine,
            driver if task == "run" else OTHER_TASKS.get(engine, ""),
            WORKER,
            [arguments],
            environment,
            files,
        )

    def run_program(
        self, engine: str, driver: str, program: str, words: Sequence[str], folder: Path
    ) -> str:
        """Call a function of lar or the tests, `module:function`, with words in a process that has
        a driver's libraries loaded, in a folder; return what it printed, once it has ended."""
        with tempfile.TemporaryFile() as output:
            copies = dict.fromkeys((0, 1, 2), output.fileno())
            pid = self._fork(engine, driver, program, words, os.environ, copies, folder)
            assert pid is not None, f"{engine} cannot be forked"
            _, status = os.waitpid(pid, 0)
            output.seek(0)
            text = output.read().decode(errors="replace")
        assert status == 0, text
        return text

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function in a process that has MegEngine loaded; return or raise what it does."""
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "call"
            place.write_bytes(pickle.dumps((function, arguments)))
            self.run_program("megengine", "graph", CALL, [str(place)], Path.cwd())
            value, error, lines = pickle.loads(place.read_bytes())
        if error is not None:
            raise error from RuntimeError(lines)
        return value

    def _fork(
        self,
        engine: str,
        driver: str,
        program: str,
        arguments: Sequence[Any],
        environment: Mapping[str, str],
        files: Mapping[int, int],
        folder: Path | None = None,
    ) -> int | None:
        """Fork a process that calls a function; None if that driver cannot be forked."""
        if engine not in OWN_ENGINES or not CLONE:
            return None
        path = module_path()
        driver = driver or engine_named(engine).drivers[0].name
        request = {
            "program": program,
            "arguments": [*arguments],
            "path": path,
            "environment": dict(environment),
            "folder": str(folder or os.getcwd()),
            "cpus": [*os.sched_getaffinity(0)],
            "names": [*files],
        }
        loaded = Loaded(
            engine,
            driver,
            frozenset(it for it in path if "/onnxruntime/" not in it),
            frozenset(it for it in environment.items() if it[0] not in HARMLESS_VARIABLES),
        )
        with self._lock:  # some tests run several models at once
            if loaded not in self._sockets:
                self._sockets[loaded] = self._open(loaded, path)
            channel = self._sockets[loaded]
            if channel is None:
                return None
            socket.send_fds(channel, [json.dumps(request).encode()], list(files.values()))
            return int(channel.recv(100))

    def _open(self, loaded: Loaded, path: Sequence[str]) -> socket.socket | None:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with there:
            code = CODE.format(path=[REPOSITORY, *path])
            words = [str(there.fileno()), loaded.engine, loaded.driver]
            process = subprocess.Popen(
                [sys.executable, "-S", "-c", code, *words],
                env={
                    **engine_named(loaded.engine).environment,
                    **os.environ,
                    # For NumPy while it is loaded, and for the loader, as each worker would look up
                    # its symbols. The workers have the environment that they are given.
                    "OPENBLAS_NUM_THREADS": "1",
                    "LD_BIND_NOW": "1",
                },
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[there.fileno()],
                start_new_session=True,
            )
        self._processes.append(process)
        if here.recv(100) == b"ready":
            return here
        here.close()
        return None

    def processes(self) -> set[int]:
        """Return the process ids of those that fork workers."""
        return {process.pid for process in self._processes}

    def close(self) -> None:
        """End the processes."""
        for channel in filter(None, self._sockets.values()):
            channel.close()
        for process in self._processes:
            process.wait(timeout=10)


FORKS = WorkerForks()


def fork_or_start(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    files: Mapping[int, int],
    python: str = "",
) -> int:
    """Fork a worker, or start it as lar does: one that gets an environment of its own, which an
    engine may read while it is loaded, or another Python."""
    forked = None if environment or python else FORKS.start(arguments, os.environ, files)
    return start_python(arguments, environment, files, python) if forked is None else forked


def answer_requests(file: int, engine: str, driver: str) -> None:
    """Load a driver's libraries and fork a worker for each request, until there are no more."""
    from lar.worker.main import import_modules

    # NumPy's products have threads that a fork starts anew.
    importlib.import_module("numpy")
    threads = os.listdir("/proc/self/task")
    import_modules("run", engine, driver)
    own = type(engine_named(engine)).__module__
    for package in [own, *(f"lar.{name}" for name in PACKAGES)]:
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
            importlib.import_module(f"{package}.{module.name}")
    for name in LIBRARIES.get(f"{engine}/{driver}", ()):
        if "*" in name:
            load_lazily(name)
        elif callable(found := imported(name)):
            found()
    with socket.socket(fileno=file) as channel:
        if len(os.listdir("/proc/self/task")) > len(threads):
            return
        channel.send(b"ready")
        while True:
            text, files, _, _ = socket.recv_fds(channel, LARGEST_REQUEST, FIRST_FREE_FILE)
            if not text:
                return
            if not fork_sibling():
                os.setpgid(0, 0)
                channel.send(str(os.getpid()).encode())
                be_worker(json.loads(text), files)
            for each in files:
                os.close(each)


def answer_call(place: str) -> None:
    """Call the function that a file names, and leave in it what comes of that."""
    function, arguments = pickle.loads(Path(place).read_bytes())
    answer: tuple[Any, Exception | None, str]
    try:
        answer = function(*arguments), None, ""
    except Exception as error:
        answer = None, error, traceback.format_exc()
    Path(place).write_bytes(pickle.dumps(answer))


def imported(name: str) -> Any:
    """Import a module, or a function by `module:function`."""
    module, _, function = name.partition(":")
    found = importlib.import_module(module)
    return getattr(found, function) if function else found


def decode_script() -> None:
    """Have msgspec, which only this engine needs, look at all that a script may hold."""
    from lar_scripted.script import Script

    from lar.records.record import record_from_json

    record_from_json(b"{}", Script)


def let_threads_sleep() -> None:
    """Have ONNX Runtime's threads wait without asking all the time: see `MGB_WORKER_MAX_SPIN` in
    `tests/conftest.py`."""
    import onnxruntime

    class Options(onnxruntime.SessionOptions):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            super().add_session_config_entry("session.intra_op.allow_spinning", "0")

        def add_session_config_entry(self, key: str, value: str) -> None:
            if key != "session.intra_op.allow_spinning":
                super().add_session_config_entry(key, value)

    onnxruntime.SessionOptions = Options


def fork_sibling() -> int:
    """Fork a process whose parent is this one's, as `os.fork` does otherwise."""
    # With the functions of Python's own code, which go on while this thread may run Python.
    ctypes.pythonapi.PyOS_BeforeFork()
    pid: int = ctypes.pythonapi.syscall(CLONE, CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    if pid:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    return pid


def be_worker(request: Mapping[str, Any], files: Sequence[int]) -> None:
    """Become the worker: its files, its folder, its environment."""
    function = imported(request["program"])
    end_with_parent()
    copies = [fcntl.fcntl(each, fcntl.F_DUPFD, FIRST_FREE_FILE * 10) for each in files]
    os.closerange(3, FIRST_FREE_FILE * 10)
    for number, copy in zip(request["names"], copies, strict=True):
        os.dup2(copy, number)
    os.closerange(FIRST_FREE_FILE * 10, FIRST_FREE_FILE * 10 + len(copies) + 10)
    # What forks was started while interrupts were blocked; lar starts workers with none blocked.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.sched_setaffinity(0, request["cpus"])
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.path[:] = request["path"]
    function(*request["arguments"])
    os._exit(0)
