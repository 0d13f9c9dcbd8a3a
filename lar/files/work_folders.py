"""Folders and files that live as long as the process that made them, and what killed ones leave.

A process that is killed cannot remove what it has made. So the names say whose they are, and the
next process that works in the same place removes what has no living owner:

    .lar-PID-START-HOST-RANDOM

START is when the process began, in clock ticks since the machine started, so that another process
with the same number is not taken for the owner. HOST stands for the machine and its space of
process numbers: what another machine or container has made in a shared folder is left alone.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import re
import resource
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from lar.errors import NO_ROOM, UsageError

OWNED = re.compile(r"\.?lar-(\d+)-(\d+)-([0-9a-f]{8})-.+")
PROBE_BYTES = 1 << 16
CLAIM = "claim"  # the file in a folder that names the place which its owner writes


def prefix_of_owner(hidden: bool = True) -> str:
    """Return what the names begin with of all that this process makes for itself."""
    pid = os.getpid()
    return f"{'.' * hidden}lar-{pid}-{start_of(pid) or 0}-{host()}-"


def start_of(pid: int) -> int | None:
    """Return when a process began, in clock ticks; 0 where the system does not say, None if there
    is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except FileNotFoundError:
        if os.path.isdir("/proc/self"):
            return None
    except (OSError, IndexError):
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        pass
    return 0


@functools.cache
def host() -> str:
    """Return eight digits for this machine and its space of process numbers."""
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = ""
    return f"{zlib.crc32(f'{os.uname().nodename} {space}'.encode()):08x}"


def has_owner(name: str) -> bool | None:
    """Return whether the process that made a file or folder of that name lives; None where that
    cannot be known, or the name is not one of ours."""
    found = OWNED.fullmatch(name)
    if found is None or found[3] != host():
        return None
    return start_of(int(found[1])) == int(found[2])


@contextlib.contextmanager
def work_folder(beside: str | None = None, *, claim: str = "", flag: str = "") -> Iterator[str]:
    """Make a folder for this process alone, in the folder `beside` or among temporary files.

    With `claim`, the path that `flag` has written in the end, no other process may write there
    meanwhile.

    Raises:
        UsageError: another process writes there.
        OSError: the folder cannot be made.
    """
    where = tempfile.gettempdir() if beside is None else beside
    with locked(where):
        owned = remove_leftovers(where)
        if claim:
            check_unclaimed(owned, claim, flag)
        folder = tempfile.mkdtemp(prefix=prefix_of_owner(beside is not None), dir=where)
        if claim:
            Path(folder, CLAIM).write_text(os.path.realpath(claim), errors="surrogateescape")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def locked(folder: str) -> Iterator[None]:
    """Have other processes wait that would make folders there, where the file system can lock."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            file = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, file)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def check_unclaimed(folders: list[str], place: str, flag: str) -> None:
    """Refuse a place that one of the folders' living owners is about to write.

    Raises:
        UsageError: naming the process.
    """
    for folder in folders:
        try:
            claimed = Path(folder, CLAIM).read_text(errors="surrogateescape")
        except OSError:
            continue
        if claimed == os.path.realpath(place):
            owner = OWNED.fullmatch(os.path.basename(folder))
            raise UsageError(
                f"another run is writing it (process {owner[1] if owner else '?'})",
                "wait until that has ended, or choose another place",
                flag=flag,
                subject=place,
            )


def remove_leftovers(where: str) -> list[str]:
    """Remove what dead processes have left in a folder; return what living ones have there."""
    living = []
    try:
        names = [entry.name for entry in os.scandir(where) if "lar-" in entry.name[:5]]
    except OSError:
        return []
    for name in names:
        path, lives = os.path.join(where, name), has_owner(name)
        if lives:
            living.append(path)
        elif lives is False:
            remove(path)
    return living


def error_of_full_disk(folder: str) -> OSError | None:
    """Return what the system says to one more write into a folder, None where there is room.

    Engines say that they cannot write a file, or nothing, but not why.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        sizes = [entry.stat().st_size for entry in os.scandir(folder) if entry.is_file()]
        if 0 <= limit <= max(sizes, default=0):
            return OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            file.write(bytes(PROBE_BYTES))
    except OSError as error:
        return error if error.errno in NO_ROOM else None
    return None


def remove(path: str) -> None:
    """Remove a file or folder if it can be: it may be somebody else's."""
    with contextlib.suppress(OSError):
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)
