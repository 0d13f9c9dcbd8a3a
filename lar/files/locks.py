"""Locks on folders and files: whoever holds one keeps lar waiting for seconds, not for ever."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from lar.errors import UsageError, printable

# So long lar waits for another program; its own processes are done sooner.
PATIENCE_SECONDS = 3.0
STAYED_LOCKED = set[str]()  # while this process waited for them
WAIT = "wait until that has ended, or end it"


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
    """Hold a lock on a folder or file, if the file system has such locks.

    A lock that is not `needed` guards work that may be left undone. The value is False then if
    another program has held it for `seconds`, `PATIENCE_SECONDS` unless given. A process waits so
    long once: while the place stays locked, it does not wait for it again.

    Raises:
        UsageError: another program has held it so long, and it is needed.
    """
    seconds = PATIENCE_SECONDS * (place not in STAYED_LOCKED) if seconds is None else seconds
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    with contextlib.ExitStack() as stack:
        is_free = True
        with contextlib.suppress(OSError):
            file = os.open(place, os.O_RDONLY | os.O_NONBLOCK)  # else a pipe would be waited for
            stack.callback(os.close, file)
            is_free = take_lock(file, kind, seconds)
        (STAYED_LOCKED.discard if is_free else STAYED_LOCKED.add)(place)
        if needed and not is_free:
            raise UsageError(f"{holder_of(place)} has locked it", hint, flag=flag, subject=place)
        yield is_free


def take_lock(file: int, kind: int, seconds: float) -> bool:
    """Lock a file; return False if another program holds it for so long.

    It waits in line: a process that only looked now and then might never find it free. A thread
    waits, with a copy of the descriptor: if it comes too late, the lock goes when both are closed.

    Raises:
        OSError: the file system has no such locks.
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
    """Return which process holds a lock on a folder or file, as far as the system says."""
    with contextlib.suppress(OSError):
        for pid in pids_of_holders(os.stat(place)):
            with contextlib.suppress(OSError):  # it has ended, or is out of sight
                program = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
                return f"process {pid} ({printable(program)})"
    return "another program"


def pids_of_holders(status: os.stat_result) -> Iterator[str]:
    """Yield the numbers of processes that have a lock on a file, this process last.

    Raises:
        OSError: the system has no list of locks.
    """
    device = os.major(status.st_dev), os.minor(status.st_dev)
    name, own = "{:02x}:{:02x}:{}".format(*device, status.st_ino), str(os.getpid())
    # NUMBER: [->] FLOCK|POSIX ADVISORY READ|WRITE PID DEVICE FIRST LAST; -> waits for it.
    rows = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    pids = [row[4] for row in rows if row[5] == name]
    yield from (pid for pid in pids if pid != own)
    from glob import iglob  # few locks are held by others

    # The process that locked it may have ended, like `flock 9` in a shell, and left it to others.
    for path in iglob("/proc/[0-9]*/fdinfo/*"):
        with contextlib.suppress(OSError):
            if f" {name} " in Path(path).read_text() and (pid := path.split("/")[2]) != own:
                yield pid
    yield from pids
