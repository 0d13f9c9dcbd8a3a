"""What the user reads of an error in the worker."""

from __future__ import annotations

import pytest

from lar.worker.main import failure_of


@pytest.mark.parametrize("kind", [OSError, ImportError])
def test_a_library_for_which_there_is_no_memory(kind: type[Exception]) -> None:
    failure = failure_of(kind("libengine.so: failed to map segment from shared object"))
    assert failure.message.startswith("no memory to load a library: libengine.so")
    assert "ulimit -v" in failure.hint
    assert failure.exit_code == 4
