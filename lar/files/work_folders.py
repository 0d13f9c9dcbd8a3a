"""Folders and files that live as long as the process that made them, and leftovers of killed ones;
the folder of what stays.

A process that is killed cannot remove what it has made. So the names say whose they are, and the
next process that works in the same place removes what has no living owner:

    .lar-PID-START-HOST-RANDOM[.claims-PLACE]

START is when the process began, in clock ticks since the machine started, so that another process
with the same number is not taken for the owner. HOST stands for the machine and its space of
process numbers: lar leaves alone what another machine or container has made in a shared folder,
even if both have one name, like boards that were set up with the same image. PLACE stands for the
path that the owner writes in the end, where no other process may write meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

from lar.errors import NO_ROOM, UsageError, limit_of
from lar.files.locks import locked

OWNED = re.compile(r"\.?lar-(\d+)-(\d+)-([0-9a-f]{8})-.+")
MACHINE_ID, BOOT_ID = Path("/etc/machine-id"), Path("/proc/sys/kernel/random/boot_id")
NETWORK = Path("/sys/class/net")
PROBE_BYTES = 1 << 16
ELSEWHERE = "wait until that has ended, or choose another place"


def data_folder() -> str:
    """Return lar's folder among the user's data, by the XDG specification; it may be missing."""
    data = os.environ.get("XDG_DATA_HOME", "")
    if not os.path.isabs(data):
        own = "Library/Application Support" if sys.platform == "darwin" else ".local/share"
        data = os.path.join(os.path.expanduser("~"), own)
    return os.path.join(data, "lar")


def prefix_of_owner(hidden: bool = True) -> str:
    """Return the beginning of the names of all that this process makes for itself."""
    pid = os.getpid()
    return f"{'.' * hidden}lar-{pid}-{start_of(pid) or 0}-{host()}-"


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
def host() -> str:
    """Return eight digits for this machine and its space of process numbers.

    What distinguishes it from others of its name is its id, and the addresses of its network
    devices, since copies of a system have one id. Without both it is the number of the system's
    start: then lar does not know its own leftovers from before the start.
    """
    devices = sorted(NETWORK.glob("*/device"))
    places = [MACHINE_ID, *(each.with_name("address") for each in devices)]
    identity = " ".join(filter(None, map(read_line, places))) or read_line(BOOT_ID)
    space = ""
    with contextlib.suppress(OSError):
        space = os.readlink("/proc/self/ns/pid")
    return digits_of(f"{os.uname().nodename} {space} {identity}")


def read_line(path: Path) -> str:
    """Return the content of a short file, nothing if it cannot be read."""
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace").strip()
    return ""


def digits_of(text: str) -> str:
    """Return eight digits that stand for a text."""
    return f"{zlib.crc32(os.fsencode(text)):08x}"


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
    ending = f".claims-{digits_of(os.path.realpath(claim))}" if claim else ""
    remove_leftovers(where)  # before it is locked: that may take a while
    with locked(where, flag, hint=ELSEWHERE) if claim else contextlib.nullcontext():
        for folder, owner in remove_leftovers(where).items() if claim else ():
            if folder.endswith(ending):
                problem = f"another run is writing it (process {owner})"
                raise UsageError(problem, ELSEWHERE, flag=flag, subject=claim)
        folder = tempfile.mkdtemp(ending, prefix_of_owner(beside is not None), where)
    try:
        yield folder
    finally:
        remove(folder)


def remove_leftovers(where: str) -> dict[str, str]:
    """Remove what dead processes have left in a folder; return what living ones have there, with
    their numbers."""
    living: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for path in [entry.path for entry in os.scandir(where)]:
            owned = OWNED.fullmatch(os.path.basename(path))
            if owned is None or owned[3] != host():
                continue
            if start_of(int(owned[1])) == int(owned[2]):
                living[path] = owned[1]
            else:
                remove(path)
    return living


def error_of_full_disk(folder: str) -> OSError | None:
    """Return the system's error for one more write into a folder, None if there is room.

    Engines do not say why they cannot write a file, if they say anything.
    """
    limit = limit_of("file size")
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
    import shutil

    shutil.rmtree(path, ignore_errors=True)  # which leaves files and links alone
    with contextlib.suppress(OSError):
        os.unlink(path)
