"""Locks on folders and files; lar waits for a lock for some seconds, not for ever."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from lar.errors import UsageError, printable

# How long lar waits for another program. lar's own processes hold a lock for a shorter time.
PATIENCE_SECONDS = 3.0
LOCKED = set[str]()  # paths for which this process has waited in vain
WAIT = "wait until the other program has ended, or end it"


@contextlib.contextmanager
def locked(
    place: str,
    flag: str = "",
    *,
    shared: bool = False,
    needed: bool = True,
    seconds: float | None = None,
    hint: str = WAIT,
) -> Iterator[bool]:
    """Hold a lock on a folder or file, if the file system supports locks.

    lar waits for `seconds`, by default `PATIENCE_SECONDS`. The `with` block gets True, or False if
    another program holds the lock even after `seconds`. If `needed` is true and the lock is not
    free, an error is raised. `needed` is false only for work that may be left undone. If `needed`
    is false, lar does not wait for a path for which it has already waited in vain. Once lar finds
    the path unlocked, it waits for the path again.

    Raises:
        UsageError: another program still holds a lock that is needed.
    """
    seconds = PATIENCE_SECONDS * (needed or place not in LOCKED) if seconds is None else seconds
    with contextlib.ExitStack() as stack:
        is_free = True
        with contextlib.suppress(OSError):
            file = os.open(place, os.O_RDONLY | os.O_NONBLOCK)  # no wait at a pipe
            stack.callback(os.close, file)
            is_free = take_lock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, seconds)
        (LOCKED.discard if is_free else LOCKED.add)(place)
        if needed and not is_free:
            raise UsageError(f"{holder_of(place)} has locked it", hint, flag=flag, subject=place)
        yield is_free


def take_lock(file: int, kind: int, seconds: float) -> bool:
    """Lock a file; return False if another program holds the lock for longer than `seconds`.

    A thread waits in the system's queue for the lock. A process that only tried now and then might
    never find the lock free. The waiting thread has a copy of the file's descriptor. If the thread
    gets the lock only after `seconds`, lar does not use the lock. Such a late lock ends when both
    descriptors of the file are closed.

    Raises:
        OSError: the file system does not support locks.
    """
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(file, kind | fcntl.LOCK_NB)
        return True
    if not seconds:
        return False
    import threading  # slow to import, and seldom needed

    copy = os.dup(file)

    def wait() -> None:
        with contextlib.suppress(OSError):
            fcntl.flock(copy, kind)
        os.close(copy)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    waiting.join(seconds)
    return not waiting.is_alive()


def holder_of(place: str) -> str:
    """Return the name of the process that locks a folder or file, if the system lists it."""
    with contextlib.suppress(OSError):
        for pid in pids_of_holders(os.stat(place)):
            with contextlib.suppress(OSError):  # the process has ended, or is hidden
                program = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
                return f"process {pid} ({printable(program)})"
    return "another program"


def pids_of_holders(status: os.stat_result) -> Iterator[str]:
    """Yield the ids of the processes that have locked a file; the id of this process comes last.

    Raises:
        OSError: the system has no list of locks.
    """
    device = os.major(status.st_dev), os.minor(status.st_dev)
    name, own = "{:02x}:{:02x}:{}".format(*device, status.st_ino), str(os.getpid())
    # NUMBER: [->] FLOCK|POSIX ADVISORY READ|WRITE PID DEVICE FIRST LAST; -> waits for it.
    rows = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    pids = [row[4] for row in rows if row[5] == name]
    yield from (pid for pid in pids if pid != own)
    from glob import iglob  # slow to import, and seldom needed

    # The process that took the lock may have ended, like `flock 9` in a shell, and left its open
    # file to other processes.
    for path in iglob("/proc/[0-9]*/fdinfo/*"):
        with contextlib.suppress(OSError):
            if f" {name} " in Path(path).read_text() and (pid := path.split("/")[2]) != own:
                yield pid
    yield from pids
