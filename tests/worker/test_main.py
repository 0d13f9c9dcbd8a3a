"""A worker and its parent."""

from __future__ import annotations

import ctypes
import signal
import sys

import pytest

from lar.worker import end_with_parent
from lar.worker.main import failure_of

SET_PARENT_DEATH_SIGNAL, GET_PARENT_DEATH_SIGNAL = 1, 2  # of linux/prctl.h


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux")
def test_a_worker_is_killed_when_its_parent_dies() -> None:
    prctl, found = ctypes.CDLL(None).prctl, ctypes.c_int(-1)
    try:
        end_with_parent()
        assert prctl(GET_PARENT_DEATH_SIGNAL, ctypes.byref(found), 0, 0, 0) == 0
    finally:
        prctl(SET_PARENT_DEATH_SIGNAL, 0, 0, 0, 0)
    assert found.value == signal.SIGKILL


@pytest.mark.parametrize("kind", [OSError, ImportError])
def test_a_library_for_which_there_is_no_memory(kind: type[Exception]) -> None:
    failure = failure_of(kind("libengine.so: failed to map segment from shared object"))
    assert failure.message.startswith("out of memory for a library: libengine.so")
    assert "ulimit -v" in failure.hint
    assert failure.exit_code == 4
