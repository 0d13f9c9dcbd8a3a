"""The library that a driver names is loaded while modules are imported, and never ends a worker."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from lar.engines import ENGINES
from lar.files.libraries import load_lazily
from lar.worker import start
from lar.worker.start import import_ahead, import_libraries


def test_each_library_that_a_driver_names_is_in_its_package() -> None:
    named = [each for engine in ENGINES if engine.is_installed for each in engine.drivers]
    for library in [each.library for each in named if each.library]:
        assert any(list(Path(folder).glob(library)) for folder in sys.path if folder)


def test_a_library_that_is_missing_or_damaged_is_left_to_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "libdamaged.so").write_bytes(b"no library")
    monkeypatch.syspath_prepend(str(tmp_path))
    load_lazily("libdamaged*")
    load_lazily("no/such/lib*")


@pytest.mark.parametrize("given", [None, "3"])
def test_numpy_starts_no_threads_unless_asked(
    given: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = set()

    def note(name: str) -> None:
        seen.add(os.environ["OPENBLAS_NUM_THREADS"])

    monkeypatch.setattr(start, "import_module", note)
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    if given:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", given)
    import_libraries()
    assert seen == {given or "1"}
    assert os.environ.get("OPENBLAS_NUM_THREADS") == given


def test_what_cannot_be_imported_ahead_is_left_to_the_worker() -> None:
    import_ahead(["run", "no such engine", "lite"])
