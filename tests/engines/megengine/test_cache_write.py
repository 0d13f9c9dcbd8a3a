"""Fast-run cache files are written whole or not at all, by several at once too."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lar.engines.megengine.cache import AlgorithmCache, bytes_of, cache_of, read_cache, update_cache
from lar.errors import UsageError
from tests.engines.megengine.caches import (
    EMPTY_FILE,
    MODEL,
    REAL,
    REAL_FILE,
    cache_with,
    choices_of,
)
from tests.engines.megengine.programs import REPOSITORY


def write_cache_merged(path: Path, new: AlgorithmCache) -> None:
    update_cache(path, lambda old: {**old, **new})


def test_writing_adds_to_what_is_there_and_keeps_the_permissions(tmp_path: Path) -> None:
    path = tmp_path / "a.cache"
    path.write_bytes(bytes_of(cache_with(a="A", b="B")))
    path.chmod(0o604)
    write_cache_merged(path, cache_with(b="B2", c="C"))
    assert choices_of(read_cache(path)) == {b"a": "A", b"b": "B2", b"c": "C"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o604


def test_nothing_new_leaves_the_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.cache"
    path.write_bytes(REAL)
    before = path.stat()
    write_cache_merged(path, cache_of(REAL))
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize("content", [b"", b"my notes\n", MODEL.read_bytes(), REAL[:-9]])
def test_a_file_that_is_no_cache_is_never_overwritten(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "precious"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="is not a fast-run cache"):
        write_cache_merged(path, cache_with(a="A"))
    assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["precious"]


def test_one_writer_waits_for_another(tmp_path: Path) -> None:
    path = tmp_path / "a.cache"
    inside, go_on = threading.Event(), threading.Event()

    def change_slowly(old: AlgorithmCache) -> AlgorithmCache:
        inside.set()
        go_on.wait(30)
        return {**old, **cache_with(a="A")}

    slow = threading.Thread(target=update_cache, args=(path, change_slowly))
    new = [(path, cache_with(**{name: "B"})) for name in "bcd"]
    others = [threading.Thread(target=write_cache_merged, args=each) for each in new]
    slow.start()
    assert inside.wait(30)
    for other in others:
        other.start()
    time.sleep(0.1)
    assert all(other.is_alive() for other in others)
    assert not path.exists()
    go_on.set()
    for thread in (slow, *others):
        thread.join(30)
    assert choices_of(read_cache(path)) == {b"a": "A", b"b": "B", b"c": "B", b"d": "B"}
    assert os.listdir(tmp_path) == ["a.cache"]


WRITER = """
import sys
from lar.engines.megengine.cache import read_cache, update_cache
path, writer, count, like = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
((category, _), entry), *_ = read_cache(like).items()
for index in range(count):
    new = {(category, f"{writer}-{index}".encode()): entry}
    update_cache(path, lambda old: {**old, **new})
"""


def start_writer(path: Path, name: str, count: int) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-c", WRITER, str(path), name, str(count), str(REAL_FILE)]
    return subprocess.Popen(words, cwd=REPOSITORY)


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "shared.cache"
    path.write_bytes(EMPTY_FILE)
    writers = [start_writer(path, name, 10) for name in "abcd"]
    while any(writer.poll() is None for writer in writers):
        read_cache(path)  # whole at any time
        time.sleep(0.002)
    assert [writer.returncode for writer in writers] == [0] * 4
    expected = {f"{name}-{index}".encode() for name in "abcd" for index in range(10)}
    assert set(choices_of(read_cache(path))) == expected
    assert os.listdir(tmp_path) == ["shared.cache"]


def test_a_killed_writer_leaves_a_whole_file_and_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "shared.cache"
    path.write_bytes(EMPTY_FILE)
    for delay in (0.0, 0.001, 0.003):
        before = len(choices_of(read_cache(path)))
        writer = start_writer(path, str(delay), 100_000)
        while len(choices_of(read_cache(path))) == before:
            assert writer.poll() is None
        time.sleep(delay)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        read_cache(path)
    write_cache_merged(path, cache_with(a="A"))
    assert choices_of(read_cache(path))[b"a"] == "A"
    assert os.listdir(tmp_path) == ["shared.cache"]  # what they left behind is removed
