"""The library that a driver names is loaded while modules are imported, and never ends a worker."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from lar.engines import ENGINES
from lar.files.libraries import load_lazily
from lar.running.worker_process import start_python
from lar.worker import import_ahead
from tests.cli.marks import needs_megengine
from tests.command_lines import run_python


def test_each_library_that_a_driver_names_is_in_its_package() -> None:
    named = [each for engine in ENGINES if engine.is_installed for each in engine.drivers]
    for library in [each.shared_library for each in named if each.shared_library]:
        assert any(list(Path(folder).glob(library)) for folder in sys.path if folder)


def test_numpy_starts_no_threads_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def spawn(program: str, words: list[str], environment: dict[str, str], **_: object) -> int:
        seen.append(environment["OPENBLAS_NUM_THREADS"])
        return 0

    monkeypatch.setattr(os, "posix_spawn", spawn)
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    start_python(["run", "onnxruntime", "session"], {}, {})
    start_python(["run", "onnxruntime", "session"], {"OPENBLAS_NUM_THREADS": "2"}, {})
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    start_python(["run", "onnxruntime", "session"], {}, {})
    assert seen == ["1", "2", "3"]


def test_a_library_that_is_missing_or_damaged_is_left_to_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "libdamaged.so").write_bytes(b"no library")
    monkeypatch.syspath_prepend(str(tmp_path))
    load_lazily("libdamaged*")
    load_lazily("no/such/lib*")


def test_what_cannot_be_imported_ahead_is_left_to_the_worker() -> None:
    import_ahead("run", "no such engine", "lite")


@needs_megengine
def test_a_worker_waits_for_no_library_but_the_engine_s() -> None:
    code = (
        "import sys; from importlib import import_module\n"
        "from lar.files.python_process import delay_packages; delay_packages()\n"
        "import lar.worker as w; [*map(import_module, w.WITH_LIBRARIES)]; old = set()\n"
        "def find_spec(*_): old or w.LAST_OF_NUMPY in sys.modules and old.update(sys.modules)\n"
        "sys.meta_path.insert(0, type(sys.implementation)(find_spec=find_spec))\n"
        "w.import_ahead('run', 'megengine', 'lite'); assert 'numpy.ctypeslib' not in old\n"
        "import numpy, lar.worker.execution as x; assert 'importlib.machinery' in old\n"
        "assert [*x.summarize_outputs({'y': numpy.ones(3)})]\n"
        "later = (sys.modules[each] for each in {*sys.modules} - old)\n"
        "print(*(each for each in later if '.so' in str(getattr(each, '__file__', ''))))"
    )
    assert run_python("-c", code, code=0).stdout == "\n"
