"""Input files: all code of lar uses this module to open files for reading.

Only regular files are opened. A pipe would keep lar waiting for its writer, and a device such as
/dev/zero has no end. No deadline of lar would end the wait for a pipe, or the reading of an endless
device.
"""

from __future__ import annotations

import os
import stat
from functools import partial
from io import BufferedReader

from lar.errors import UsageError

CHECK_PATH = "check the path"
NOT_REGULAR = "is not a regular file", "copy its content into a file"
MOST_TEXT_BYTES = 1 << 30
# The flag that replaces the limit on the size of a file. The variable passes its value to child
# processes, and sets it for `lar` in Python.
FLAG = "--max-file-size"
VARIABLE = "LAR_MAX_FILE_SIZE"
MOST_DIGITS = 18

PathText = str | os.PathLike[str]
Kind = type[UsageError]


def open_input(
    path: PathText, flag: str = "", *, what: str = "file", error: Kind = UsageError, limit: int = 0
) -> BufferedReader:
    """Open a regular file for reading.

    `what` names the kind of file in messages ("model file"), and `error` is the exception to
    raise. A file of more than `limit` bytes is refused, unless `limit` is 0.

    Raises:
        UsageError: the file is missing, is a folder, a pipe or a device, is too large, or may not
            be read.
    """
    path = os.fspath(path)
    refusal = partial(error, flag=flag, subject=path)
    if not path:
        raise refusal(f"the name of the {what} is empty", "give the path of a file")
    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            raise refusal(f"is a folder, not a {what}", "give a file")
        if not stat.S_ISREG(status.st_mode):
            raise refusal(*NOT_REGULAR)
        if limit and status.st_size > max(limit, asked_bytes()):
            problem = f"has {status.st_size} bytes; at most {limit} are read"
            raise refusal(problem, f"check that it is the right {what}; {FLAG} SIZE allows more")
        # O_NONBLOCK: no wait for a pipe that has taken the file's place meanwhile.
        return open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))
    except FileNotFoundError:
        raise refusal(f"no such {what}", CHECK_PATH) from None
    except OSError as failure:
        raise cannot_read(path, failure, flag, error=error) from None
    except ValueError:
        raise refusal("cannot be read: no file has such a name", CHECK_PATH) from None


def asked_bytes() -> int:
    """Return the limit on a file's size that the user has given; 0 if no limit is given.

    Raises:
        UsageError: the variable does not hold a number of bytes.
    """
    text = os.environ.get(VARIABLE, "0")
    if not (text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS):
        problem = f"{text[:40]!r} is not a number of bytes"
        raise UsageError(problem, f"give a number of bytes, or use {FLAG}", flag=VARIABLE)
    return int(text)


def check_input(path: PathText, flag: str = "", *, what: str = "file") -> None:
    """Refuse a path that `open_input` would refuse, before an engine opens the file itself.

    Raises:
        UsageError: the path is one that `open_input` refuses.
    """
    open_input(path, flag, what=what).close()


def read_input(
    path: PathText, flag: str = "", *, what: str = "file", error: Kind = UsageError, limit: int = 0
) -> bytes:
    """Return the content of a regular file.

    Raises:
        UsageError: the path is one that `open_input` refuses, or the file cannot be read or does
            not fit into memory.
    """
    with open_input(path, flag, what=what, error=error, limit=limit) as file:
        try:
            content: bytes | None = file.read()
        except OSError as failure:
            raise cannot_read(path, failure, flag, error=error) from None
        except MemoryError:
            hint = f"check that it is the right {what}"
            raise error("does not fit into memory", hint, flag=flag, subject=path) from None
    if content is None:  # some files of /proc have no data yet
        raise error(*NOT_REGULAR, flag=flag, subject=path)
    return content


def cannot_read(
    path: PathText, failure: OSError, flag: str = "", *, error: type[UsageError] = UsageError
) -> UsageError:
    """Return the error for a file that the operating system cannot read."""
    reason = (failure.strerror or str(failure)).lower()
    hint = "check the path and its permissions"
    return error(f"cannot be read: {reason}", hint, flag=flag, subject=os.fspath(path))
