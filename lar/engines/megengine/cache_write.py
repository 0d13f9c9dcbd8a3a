"""Fast-run cache files written safely, however many processes do so at once."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lar.engines.megengine.cache import (
    AlgorithmCache,
    bytes_of,
    merge_caches,
    read_cache,
)
from lar.errors import error_of_write


def write_cache_merged(path: str | Path, new: AlgorithmCache) -> None:
    """Add to a cache file what is new, whoever else does so at the same time.

    Raises:
        UsageError: the file is there and no cache, or cannot be written.
    """
    update_cache(path, lambda old: merge_caches(old, new))


def update_cache(
    path: str | Path, change: Callable[[AlgorithmCache], AlgorithmCache]
) -> tuple[AlgorithmCache, AlgorithmCache]:
    """Change a cache file, an empty one when there is none; return what it was and what it is.

    Readers see the old file or the new one, whole, at any time; other writers wait.

    Raises:
        UsageError: the file is there and no cache, or cannot be written.
    """
    real = Path(os.path.realpath(path))  # so that a link to a cache stays one
    try:
        with locked(real):
            old = read_cache(real) if real.exists() else AlgorithmCache()
            new = change(old)
            if new != old or not real.exists():
                replace_file(real, bytes_of(new))
            return old, new
    except OSError as error:
        raise error_of_write(error, subject=path, hint="choose another file") from None


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other writers of a file away, by a lock on `PATH.lock`.

    The cache itself cannot carry the lock, as each writer replaces it. The lock file is removed
    after use; one that a killed process left behind carries no lock and is taken over.
    """
    lock = path.with_name(path.name + ".lock")
    descriptor = take_lock(lock)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)  # still ours: whoever waits for it will notice, and retry
        os.close(descriptor)


def take_lock(lock: Path) -> int:
    """Wait for the lock and return its file, which closing releases."""
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(descriptor), os.stat(lock)):
                return descriptor
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        # Its holder removed this one meanwhile; a later one may be held by someone else.
        os.close(descriptor)


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file at once, keeping its permissions; the lock is held."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)  # left behind by a killed process
    try:
        with open(temporary, "xb") as file:
            if path.exists():
                if not os.access(path, os.W_OK):
                    raise PermissionError(13, "permission denied")
                os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
