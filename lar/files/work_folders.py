"""The data folder, and the temporary folders and files of processes.

A killed process cannot remove its temporary files. So the name of a temporary file contains the
file's owner, and the next process that works in the same folder removes files whose owner has
ended:

    .lar-PID-START-HOST-RANDOM[.claims-PLACE]

START is the time when the process began, in clock ticks since the machine started. START
distinguishes the owner from a later process with the same id. HOST identifies the machine and its
PID namespace, so that lar leaves alone the files of other machines and containers in a shared
folder. HOST is more than the machine's name, since boards that were set up with one image have the
same name. PLACE stands for the path that the owner will write when it ends, and that no other
process may write until the owner has ended.
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
ELSEWHERE = "wait until the other program has ended, or choose another place"


def data_folder() -> str:
    """Return lar's folder for user data, by the XDG specification; the folder may not exist yet."""
    data = os.environ.get("XDG_DATA_HOME", "")
    if not os.path.isabs(data):
        own = "Library/Application Support" if sys.platform == "darwin" else ".local/share"
        data = os.path.join(os.path.expanduser("~"), own)
    return os.path.join(data, "lar")


def prefix_of_owner(hidden: bool = True) -> str:
    """Return the beginning of the names of this process's temporary files and folders."""
    pid = os.getpid()
    return f"{'.' * hidden}lar-{pid}-{start_of(pid) or 0}-{host()}-"


def start_of(pid: int) -> int | None:
    """Return the start time of a process in clock ticks, or None if no process has this id.

    The time is 0 if the system does not report it.
    """
    with contextlib.suppress(OSError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])
    try:
        os.kill(pid, 0)
    except (OSError, OverflowError) as error:  # another user's process may not be signalled
        return 0 if isinstance(error, PermissionError) else None
    return 0


@functools.cache
def host() -> str:
    """Return eight digits that identify this machine and its PID namespace.

    The digits are computed from the machine's name, its id and the addresses of its network
    devices, since copies of one system have the same machine id. If a machine has neither an id nor
    a network device, the id of the boot is used instead. If the id of the boot is used, lar does
    not recognise files that it left before a reboot.
    """
    places = [MACHINE_ID, *(each.with_name("address") for each in sorted(NETWORK.glob("*/device")))]
    identity = " ".join(filter(None, map(read_line, places))) or read_line(BOOT_ID)
    space = ""
    with contextlib.suppress(OSError):
        space = os.readlink("/proc/self/ns/pid")
    return digits_of(f"{os.uname().nodename} {space} {identity}")


def read_line(path: Path) -> str:
    """Return the content of a short file; empty if the file cannot be read."""
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace").strip()
    return ""


def digits_of(text: str) -> str:
    """Return eight hexadecimal digits that stand for a text."""
    return f"{zlib.crc32(os.fsencode(text)):08x}"


@contextlib.contextmanager
def work_folder(beside: str | None = None, *, claim: str = "", flag: str = "") -> Iterator[str]:
    """Make a folder for this process, in `beside` or in the system's temporary folder.

    When this process ends, it will write the path `claim`, which the user gave with `flag`. Until
    then, no other process of lar may write this path.

    Raises:
        UsageError: another process has claimed the path, or keeps the folder locked.
        OSError: the folder cannot be made.
    """
    import tempfile  # slow to import, and not needed for a usage error

    where = tempfile.gettempdir() if beside is None else beside
    ending = f".claims-{digits_of(os.path.realpath(claim))}" if claim else ""
    remove_leftovers(where)  # before the lock, as it may take long
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
    """Remove what ended processes have left in a folder.

    Return the paths in this folder that belong to living processes, with the id of each process.
    """
    living: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for path in [entry.path for entry in os.scandir(where)]:
            if not (owned := OWNED.fullmatch(os.path.basename(path))) or owned[3] != host():
                continue
            if start_of(int(owned[1])) == int(owned[2]):
                living[path] = owned[1]
            else:
                remove(path)
    return living


def error_of_full_disk(folder: str) -> OSError | None:
    """Return the error that a write into a folder would raise, or None if the folder has room.

    An engine that cannot write a file often does not report the reason.
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
    """Remove a file or folder; ignore errors, such as those for another user's file."""
    if os.path.isdir(path):  # shutil is slow to import, and would wait at a pipe
        import shutil

        shutil.rmtree(path, ignore_errors=True)  # links are left alone
    with contextlib.suppress(OSError):
        os.unlink(path)
