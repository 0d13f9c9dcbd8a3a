"""The errors that lar reports to its user when a run cannot be made.

    LarError             exit code 4   the engine, or lar, failed
    ├── CheckFailed      exit code 1   a check that the user asked for failed
    ├── UsageError       exit code 2   a flag, a file or an input is wrong
    │   ├── DumpError                  a dump is missing, damaged, or not a dump
    │   └── WrongContent               a text is not what lar wrote
    ├── EngineMissing    exit code 3   the engine is not installed
    ├── OutOfTime        exit code 124 past the deadline, or hanging
    └── Interrupted      exit code 130 the user ended the run

If an engine fails, crashes or hangs during a run, lar raises no exception, but the `RunResult` has
a status that says so. `EXIT_CODES` gives the process's exit code for each status.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator, Mapping, Sequence

EXIT_CODES = {"ok": 0, "failed": 4, "crashed": 4, "timed_out": 124, "interrupted": 130}

# The system's errors for a disk, a quota or a limit (`ulimit -f`) that is full.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

# The messages of Python, C++ and the loader of libraries if they get no memory; a thread's stack is
# memory too.
MEMORY_REFUSED = (
    *("memoryerror", "bad_alloc", "failed to map segment", "cannot allocate memory"),
    *("out of memory", "pthread_create failed", "can't start new thread"),
)

# A message names at most this many things, and has only the number of the others.
MOST_NAMED = 3

# With less free address space than this, a library may not load. OpenBLAS takes less.
LARGE_LIBRARY_BYTES = 1 << 26

# The hint for an engine that fails for an unknown reason.
ENGINE_HINT = "--verbose shows what the engine says; try fewer options, or another --driver"


def format_message(flag: str, subject: str, problem: str) -> str:
    """Return an error or a warning as one line; any of the three parts may be empty."""
    return ": ".join(part for part in (flag, subject, problem) if part)


class LarError(Exception):
    """An error for the user, printed as `flag: subject: problem`, with a hint on what to do.

    `flag` is the option that is wrong, and `subject` is the file, tensor or value that the problem
    is about; both may be empty. Only this class joins the parts to a line, so that no other code
    has to split a finished message. A warning is an error that is not raised.
    """

    exit_code = 4

    def __init__(
        self,
        problem: str,
        hint: str = "",
        detail: str = "",
        *,
        flag: str = "",
        subject: object = "",
    ) -> None:
        """`detail` is a traceback from another process, which only `--debug` prints."""
        self.flag, self.subject, self.problem = flag, str(subject), problem
        self.hint, self.detail = hint, detail
        super().__init__(self.message)

    def __str__(self) -> str:
        return self.message

    @property
    def message(self) -> str:
        """The error as one line, in the form `flag: subject: problem`."""
        return format_message(self.flag, self.subject, self.problem)

    def called(self, names: Mapping[str, str]) -> LarError:
        """Return the error with its flag and its subject replaced by names that users know."""
        flag, subject = (names.get(part, part) for part in (self.flag, self.subject))
        return type(self)(self.problem, self.hint, self.detail, flag=flag, subject=subject)


class CheckFailed(LarError):
    """A check that the user asked for has failed, such as the check of a testcase's outputs."""

    exit_code = 1


class UsageError(LarError):
    """A flag, a model file or an input that lar cannot use."""

    exit_code = 2


class DumpError(UsageError):
    """A dump that is missing or damaged, or a file that is not a dump."""


class WrongContent(UsageError, ValueError):
    """A text that is not JSON, or not a record in a format that this lar reads."""


class EngineMissing(LarError):
    """The engine that the run needs is not installed for this Python."""

    exit_code = 3


class OutOfTime(LarError):
    """The run was past its deadline, or the engine hung."""

    exit_code = 124


class Interrupted(LarError):
    """The user ended the run."""

    exit_code = 130


def kind_of_error(exit_code: int) -> type[LarError]:
    """Return the kind of error that an exit code stands for."""
    kinds = (CheckFailed, UsageError, EngineMissing, OutOfTime, Interrupted)
    return next((kind for kind in kinds if kind.exit_code == exit_code), LarError)


def error_of_write(
    error: OSError, *, flag: str = "", subject: object = "", hint: str = "choose another place"
) -> LarError:
    """Return the error for a path that cannot be written: a UsageError, unless the disk is full.

    `hint` is for a cause that the user can change, such as a missing or protected folder.
    """
    kind = LarError if error.errno in NO_ROOM else UsageError
    reason, what_to_do = reason_of_write(error, hint)
    return kind(f"cannot be written: {reason}", what_to_do, flag=flag, subject=subject)


@contextlib.contextmanager
def writing(subject: object, flag: str = "", hint: str = "choose another place") -> Iterator[None]:
    """Turn an OSError of the block into lar's error that `subject` cannot be written.

    Raises:
        LarError: the error that `error_of_write` returns.
    """
    try:
        yield
    except OSError as error:
        raise error_of_write(error, flag=flag, subject=subject, hint=hint) from None


def reason_of_write(error: OSError, hint: str = "") -> tuple[str, str]:
    """Return why a file cannot be written, and the hint for the user.

    If the disk is full, or the limit of a file's size is reached, the returned hint says how to get
    room. Otherwise, the returned hint is the argument `hint`.
    """
    if error.errno == errno.EFBIG and (limit := limit_of("file size")) is not None:
        reason = "the limit of a file's size is reached"
        return reason, f"the limit is {limit >> 10} KiB: raise it with ulimit -f unlimited"
    reason = (error.strerror or str(error)).lower()
    return reason, "make room on the disk" if error.errno in NO_ROOM else hint


def limit_of(what: str) -> int | None:
    """Return a limit of this process in bytes, or None if the process has no such limit.

    `what` is "file size" or "address space". The limit is read from /proc, since under a low limit
    Python's library for limits may fail to load.
    """
    try:
        with open("/proc/self/limits", "rb", buffering=0) as file:
            return int(file.read(4096).partition(f"Max {what}".encode())[2].split()[0])
    except (OSError, IndexError, MemoryError, ValueError):  # ValueError: "unlimited"
        return None


def says_out_of_memory(text: str) -> bool:
    """Return whether a text has one of the usual messages for a lack of memory."""
    return any(each in text.lower() for each in MEMORY_REFUSED)


def out_of_address_space(limit: int) -> LarError:
    """Return the error for a process that has reached the limit of its address space."""
    hint = f"the limit is {limit >> 20} MiB: raise it with ulimit -v unlimited"
    return LarError("out of memory: the limit of the address space is reached", hint)


def memory_error(error: BaseException) -> LarError | None:
    """Return the error for a process that was refused memory, or None for any other error.

    The causes of `error` are examined too, since NumPy and the engines may raise another error when
    they get no memory.
    """
    says, limit = "", limit_of("address space")
    each: BaseException | None = error
    while each is not None:
        says += f"{type(each).__name__}: {each}\n"
        each = each.__cause__ or each.__context__
    is_own = isinstance(error, LarError)
    if limit and (says_out_of_memory(says) or (not is_own and is_nearly_used(limit))):
        return out_of_address_space(limit)
    if is_own or not says_out_of_memory(says):
        return None
    library = isinstance(error, (ImportError, OSError)) and "failed to map segment" in str(error)
    what = f"out of memory for a library: {first_line(error)}" if library else "out of memory"
    return LarError(what, "close other programs, or raise the memory limit: ulimit -v unlimited")


def is_nearly_used(limit: int) -> bool:
    """Return whether this process came near to the limit of its address space.

    If little address space is left, a library may fail to load, which may cause any error.
    """
    with contextlib.suppress(OSError, StopIteration), open("/proc/self/status", "rb") as file:
        peak = next(int(line.split()[1]) << 10 for line in file if line.startswith(b"VmPeak"))
        return limit - peak < LARGE_LIBRARY_BYTES
    return False


def printable(text: str, kept: str = "") -> str:
    """Return a text with an escape, such as `\\u001b`, for each character that is not printable.

    The characters in `kept` are not escaped. The escapes are JSON's escapes, so that a JSON text
    keeps its meaning.
    """
    if text.isprintable():
        return text
    import json  # slow to import, and most texts need no escape

    return "".join(it if it.isprintable() or it in kept else json.dumps(it)[1:-1] for it in text)


def printable_lines(text: str) -> str:
    """Return a text with its unprintable characters escaped, except line ends and tabs."""
    return "\n".join(printable(line, "\t") for line in text.split("\n"))


def one_line(text: str) -> str:
    """Return a text as one printable line of bounded length."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= 800 else f"{line[:600]} ... {line[-150:]}"


def count_of(count: int, noun: str) -> str:
    """Return a number with its noun, such as `1 core` or `2 cores`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def join_first(names: Sequence[str], joint: str = ", ") -> str:
    """Return the first names joined, and the number of names that are left out."""
    more = [f"{len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
    return joint.join([*names[:MOST_NAMED], *more])


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, or the error's type if it has no text."""
    text = str(error).strip() or ("out of memory" if isinstance(error, MemoryError) else "")
    return text.splitlines()[0][:300] if text else type(error).__name__


def check_text(text: object, flag: str = "", problem: str = "is not UTF-8", hint: str = "") -> None:
    """Refuse a value that cannot be written into a result.

    Raises:
        UsageError: the value is a text that is not UTF-8.
    """
    if isinstance(text, str) and text.encode(errors="ignore").decode() != text:
        raise UsageError(problem, hint or "rename the file", flag=flag, subject=repr(text))
