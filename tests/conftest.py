"""Fixtures that every test may use: the repository, the command line, scripted models."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from importlib import import_module
from importlib.machinery import SourceFileLoader
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings

from lar.engines import engine_named
from lar.measurement.peak import SOURCE, measure_peak
from lar.records.profile import Peak
from lar.running import worker_process
from tests.command_lines import MODULE_PATH, SCRIPTED_ENGINE, Done, run_lar
from tests.running.isolated_runs import workers_of
from tests.worker_forks import FORKS, WorkerForks, fork_or_start

REPOSITORY = Path(__file__).resolve().parent.parent

MISSING = "needs MegEngine, which is not installed"

T = TypeVar("T")
RunLar = Callable[..., Done]
WriteScript = Callable[..., str]


# How long an example takes says how busy the machine is. A folder may be that of all examples: each
# writes its file anew.
settings.register_profile(
    "lar",
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("lar")


def pytest_configure(config: pytest.Config) -> None:
    """Keep compiled modules in pytest's cache folder where the environment forbids to write them
    beside their sources: the tests start hundreds of processes, each of which would compile lar,
    NumPy and its engine anew, for three times their CPU time."""
    # Of the terminal of who runs them, or set beside `os.environ` by readline: pytest imports it.
    os.environ.pop("COLUMNS", None)
    os.unsetenv("COLUMNS")
    # MegEngine's two threads wait for each other by asking without a pause. Where the tests keep
    # all CPUs busy, that is most of what a short run costs.
    os.environ.setdefault("MGB_WORKER_MAX_SPIN", "0")
    # Where this process and all that it starts find the scripted engine.
    sys.path.append(str(SCRIPTED_ENGINE))
    os.environ["PYTHONPATH"] = MODULE_PATH
    cache = getattr(config, "cache", None)
    if sys.dont_write_bytecode and cache is not None:
        folder = str(cache.mkdir("bytecode"))
        sys.dont_write_bytecode = False
        sys.pycache_prefix = folder
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = folder
    # NumPy's own threads wait for each other in the same way.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENBLAS_NUM_THREADS", "1")
        import_module("numpy")
    # Nothing that is collected becomes garbage.
    gc.disable()
    modules = [
        path.relative_to(REPOSITORY)
        for folder in ("lar", "tests", "tools")
        for path in sorted((REPOSITORY / folder).rglob("*.py"))
    ]
    compile_modules(own_share(config, modules))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Skip a test that fails since MegEngine is missing: newer Pythons have no packages of it."""
    report = yield
    if MISSING in report.longreprtext and not engine_named("megengine").is_installed:
        report.outcome, report.longrepr = "skipped", (str(item.path), 0, MISSING)
    return report


def own_share(config: pytest.Config, values: list[T]) -> list[T]:
    """Return this process's part of what one of the tests' processes has to do for all of them;
    nothing where there is one alone."""
    given = getattr(config, "workerinput", None)
    if given is None:
        return []
    return values[int(given["workerid"].removeprefix("gw")) :: given["workercount"]]


def compile_modules(paths: list[Path]) -> None:
    """Compile some modules: in a fresh checkout each process would compile all of them."""
    for path in paths:
        name = ".".join(path.with_suffix("").parts)
        # What is wrong with a module is reported where it is collected.
        with contextlib.suppress(Exception):
            if path.name.startswith("test_"):
                import_module(name)  # pytest compiles its assertions then
            elif not os.path.exists(cache_from_source(str(REPOSITORY / path))):
                SourceFileLoader(name, str(REPOSITORY / path)).get_code(name)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the tests in order, and read the constants in some modules: Hypothesis draws from those
    of all, and keeps them in files. It has no public name for this; without, each process reads all
    of them."""
    # Those that wait most come first: at the end the other processes would have nothing to do.
    items.sort(key=lambda it: it.path.parent.name not in ("farm", "tuning"))
    with contextlib.suppress(ImportError):
        from hypothesis.internal.constants_ast import constants_from_module

        for name in own_share(config, sorted(it for it in sys.modules if it.startswith("lar."))):
            constants_from_module(sys.modules[name])


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Collect garbage again from now on, but none of what was collected as tests."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def spare_collections() -> None:
    """Leave what there is out of collections of garbage: lar collects before it measures, and to
    look at some thousand tests takes longer than what most of them do."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def heed_signals() -> None:
    """What starts the tests in the background or under nohup has signals ignored, which the
    processes of the tests would inherit."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def own_data_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test reads or writes the store of whoever runs the tests."""
    os.environ["XDG_DATA_HOME"] = str(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session", autouse=True)
def worker_forks() -> Iterator[WorkerForks]:
    """Fork the workers of this process, but those that get an environment of their own: an engine
    may read it while it is loaded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_process, "start_python", fork_or_start)
        # Linux keeps a CPU busy where a process is reaped while the last of its threads ends.
        patch.setattr(worker_process, "GLANCE_SECONDS", 0.004)
        yield FORKS
    FORKS.close()


@pytest.fixture(scope="session", autouse=True)
def known_peak() -> Iterator[None]:
    """Take a machine's peak for that of this one; a run with a time limit measures it."""

    def measure_with_limit(threads: int, deadline: float | None = None) -> Peak | None:
        made = Peak(1e11, 2e10, threads, SOURCE, 0.01, "2026-11-22T10:00:00+00:00", 12)
        return made if deadline is None else measure_peak(threads, deadline)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lar.measurement.peak.measure_peak", measure_with_limit)
        yield


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return REPOSITORY


@pytest.fixture(scope="session", name="run_lar")
def the_command_line() -> RunLar:
    """Run one lar command line to its end."""
    return run_lar


@pytest.fixture
def write_script(tmp_path: Path) -> WriteScript:
    """Write a script for the scripted engine into the test's folder and return its path."""
    count = 0

    def write(**fields: Any) -> str:
        nonlocal count
        path = tmp_path / f"script_{count}.fake"
        path.write_text(json.dumps(fields))
        count += 1
        return str(path)

    return write


@pytest.fixture
def own_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the engines of other packages, as the scripted one is, from this process."""
    monkeypatch.setattr("lar.engines.added_engines", lambda: ({}, {}))


@pytest.fixture(scope="session")
def elsewhere(worker_forks: WorkerForks) -> Callable[..., Any]:
    """Call a function of lar or the tests in another process: `elsewhere(f, x)`."""
    return worker_forks.call


@pytest.fixture
def nothing_left(worker_forks: WorkerForks) -> Iterator[None]:
    """No test leaves a child process of its own behind."""
    before = workers_of(os.getpid())
    yield
    assert not workers_of(os.getpid()) - before - worker_forks.processes()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Fail where MegEngine gets into this process: its library makes subnormal numbers zero, and
    a thread of it keeps a fifth of a core busy. Programs and `elsewhere` are for it."""
    is_there = "megengine" in sys.modules or "megenginelite" in sys.modules
    assert not is_there, "this test imports MegEngine"
