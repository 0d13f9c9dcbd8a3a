"""Folders and files that live as long as the process that made them, and leftovers of killed ones.

A process that is killed cannot remove what it has made. So the names say whose they are, and the
next process that works in the same place removes what has no living owner:

    .lar-PID-START-HOST-RANDOM

START is when the process began, in clock ticks since the machine started, so that another process
with the same number is not taken for the owner. HOST stands for the machine and its space of
process numbers: lar leaves alone what another machine or container has made in a shared folder,
even if both have one name, like boards that were set up with the same image.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from lar.errors import NO_ROOM, UsageError, file_size_limit
from lar.files.input_file import read_input
from lar.files.locks import locked

OWNED = re.compile(r"\.?lar-(\d+)-(\d+)-([0-9a-f]{8})-.+")
MACHINE_ID, BOOT_ID = Path("/etc/machine-id"), Path("/proc/sys/kernel/random/boot_id")
NETWORK = Path("/sys/class/net")
PROBE_BYTES = 1 << 16
CLAIM = "claim"  # the file in a folder that names the place which its owner writes
LONGEST_CLAIM = 1 << 16
ELSEWHERE = "wait until that has ended, or choose another place"


def prefix_of_owner(hidden: bool = True) -> str:
    """Return the beginning of the names of all that this process makes for itself."""
    pid = os.getpid()
    return f"{'.' * hidden}lar-{pid}-{start_of(pid) or 0}-{hosts()[0]}-"


def start_of(pid: int) -> int | None:
    """Return when a process began, in clock ticks; 0 if the system does not say, None if there is
    no such process."""
    with contextlib.suppress(OSError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return None
    except OSError:
        pass
    return 0


@functools.cache
def hosts() -> tuple[str, str]:
    """Return eight digits for this machine and its space of process numbers, and those of older
    versions of lar, which knew a machine by its name alone."""
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = ""
    older = f"{os.uname().nodename} {space}"
    new, old = (zlib.crc32(text.encode()) for text in (f"{older} {identity()}", older))
    return f"{new:08x}", f"{old:08x}"


def identity() -> str:
    """Return what distinguishes this machine from others of its name: its id, and the addresses of
    its network devices, since copies of a system have one id. Without both it is the number of the
    system's start: then lar does not know its own leftovers from before the start."""
    devices = sorted(NETWORK.glob("*/device"))
    places = [MACHINE_ID, *(each.with_name("address") for each in devices)]
    return " ".join(filter(None, map(read_line, places))) or read_line(BOOT_ID)


def read_line(path: Path) -> str:
    """Return the content of a short file, nothing if it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def has_owner(name: str) -> bool | None:
    """Return whether the process that made a file or folder of that name lives; None if that cannot
    be known, or the name is not one of ours."""
    found = OWNED.fullmatch(name)
    if found is None or found[3] not in hosts():
        return None
    return start_of(int(found[1])) == int(found[2])


@contextlib.contextmanager
def work_folder(beside: str | None = None, *, claim: str = "", flag: str = "") -> Iterator[str]:
    """Make a folder for this process alone, in the folder `beside` or among temporary files.

    With `claim`, the path that `flag` has written in the end, no other process may write there
    meanwhile.

    Raises:
        UsageError: another process writes there, or keeps the folder locked.
        OSError: the folder cannot be made.
    """
    import tempfile  # slow to import, and a usage error needs none

    where = tempfile.gettempdir() if beside is None else beside
    remove_leftovers(where)  # before it is locked: that may take a while
    with locked(where, flag, hint=ELSEWHERE) if claim else contextlib.nullcontext():
        if claim:
            check_unclaimed(remove_leftovers(where), claim, flag)
        folder = tempfile.mkdtemp(prefix=prefix_of_owner(beside is not None), dir=where)
        if claim:
            Path(folder, CLAIM).write_bytes(os.fsencode(os.path.realpath(claim)))
    try:
        yield folder
    finally:
        remove(folder)


def check_unclaimed(folders: list[str], place: str, flag: str) -> None:
    """Refuse a place that one of the folders' living owners is about to write.

    Raises:
        UsageError: naming the process.
    """
    for folder in folders:
        try:
            claimed = read_input(os.path.join(folder, CLAIM), limit=LONGEST_CLAIM)
        except UsageError:
            continue
        if claimed == os.fsencode(os.path.realpath(place)):
            owner = OWNED.fullmatch(os.path.basename(folder))
            raise UsageError(
                f"another run is writing it (process {owner[1] if owner else '?'})",
                ELSEWHERE,
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
    """Return the system's error for one more write into a folder, None if there is room.

    Engines do not say why they cannot write a file, if they say anything.
    """
    limit = file_size_limit()
    try:
        sizes = [entry.stat().st_size for entry in os.scandir(folder) if entry.is_file()]
        if limit is not None and limit <= max(sizes, default=0):
            return OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        import tempfile

        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            file.write(bytes(PROBE_BYTES))
    except OSError as error:
        return error if error.errno in NO_ROOM else None
    return None


def remove(path: str) -> None:
    """Remove a file or folder if it can be: it may be somebody else's."""
    with contextlib.suppress(OSError):
        if os.path.isdir(path) and not os.path.islink(path):
            import shutil

            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)
