"""Another program's lock keeps lar waiting for a moment; then it says whose, or goes on."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lar.files import locks
from tests.command_lines import ROOT, run_lar

MODELS = ROOT / "models"
MODEL = str(MODELS / "one_operator.onnx")


@contextlib.contextmanager
def held(place: Path) -> Iterator[int]:
    """Hold a lock that others want."""
    descriptor = os.open(place, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield descriptor
    os.close(descriptor)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have lar wait for a moment only."""
    monkeypatch.setattr(locks, "PATIENCE_SECONDS", 0.1)


def test_nobody_waits_for_a_folder_of_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with held(tmp_path):
        done = run_lar("compare", f"{MODEL} --iter 1", MODEL, timeout=20)
    assert done.returncode == 0, done.stderr
    assert os.listdir(tmp_path) == []


def test_who_locks_the_folder_of_an_output_is_named(tmp_path: Path) -> None:
    program = Path("/proc/self/comm").read_text().strip()
    with held(tmp_path):
        done = run_lar(MODEL, "--bin-io-dump", str(tmp_path / "dump"), timeout=20)
    assert (done.returncode, done.stderr.splitlines()[-2:]) == (
        2,
        [
            f"lar: error: --bin-io-dump: {tmp_path}: process {os.getpid()} ({program}) has locked "
            "it",
            "hint: wait until the other program has ended, or choose another place",
        ],
    )


def test_who_was_left_a_lock_is_named(tmp_path: Path) -> None:
    with held(tmp_path) as descriptor:
        # The process that has locked it is gone for the one that has inherited it.
        words = [sys.executable, "-c", "import time; print('here', flush=True); time.sleep(60)"]
        child = subprocess.Popen(words, pass_fds=[descriptor], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        assert locks.holder_of(str(tmp_path)).startswith(f"process {child.pid} (")
    finally:
        child.kill()
        child.communicate()


def test_a_locked_cache_of_a_model_is_loaded(tmp_path: Path) -> None:
    words = [MODEL, "--iter", "1", "--fast-run-algo-policy", str(tmp_path / "cache")]
    assert run_lar(*words, "--fast-run").returncode == 0
    with held(tmp_path):
        assert run_lar(*words, timeout=20).returncode == 0


def test_a_locked_cache_of_algorithms_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(4))
    with held(tmp_path):
        merging = ["cache", "merge", str(tmp_path / "a"), "-o", str(tmp_path / "b")]
        done = run_lar(*merging, timeout=20)
    assert done.returncode == 2
    assert f"process {os.getpid()} (" in done.stderr
    assert os.listdir(tmp_path) == ["a"]


def test_a_lock_that_is_let_go_in_time_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "PATIENCE_SECONDS", 60)
    with contextlib.ExitStack() as stack:
        stack.enter_context(held(tmp_path))
        threading.Timer(0.1, stack.close).start()
        with locks.locked(str(tmp_path)) as is_free:
            assert is_free
            with locks.locked(str(tmp_path), needed=False, seconds=0) as again:
                assert not again


def test_a_lock_that_comes_too_late_is_let_go_and_not_waited_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seconds in (0.1, 600):
        monkeypatch.setattr(locks, "PATIENCE_SECONDS", seconds)
        with held(tmp_path), locks.locked(str(tmp_path), needed=False) as is_free:
            assert not is_free
    with locks.locked(str(tmp_path)) as is_free:
        assert is_free


def test_a_link_is_followed_and_what_cannot_be_opened_is_not_locked(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with held(tmp_path), locks.locked(str(tmp_path / "link"), needed=False) as is_free:
        assert not is_free
    with locks.locked(str(tmp_path / "gone")) as is_free:
        assert is_free
    assert locks.holder_of(str(tmp_path)) == "another program"
