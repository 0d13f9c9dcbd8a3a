"""Report files: opened before anything is measured, replaced whole, never left half-written."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TextIO

from lar.errors import UsageError, printable_lines, writing
from lar.files.work_folders import prefix_of_owner, remove_leftovers

# Text, which may be encoded as UTF-8, whole or in pieces that end between two characters.
Content = str | bytes | Iterable[bytes]
HINT = "choose another file"


class OutputFile(AbstractContextManager["OutputFile"]):
    """A file that `FILE|-` names. What stood there before stays until `write` replaces it."""

    _temporary: Path | None = None
    _stream: TextIO | None = None

    def __init__(self, name: str, flag: str) -> None:
        """Open the output.

        Raises:
            UsageError: it cannot be written; the flag is named.
        """
        self.flag, self.name, self.path = flag, name, Path(name)
        self.to_stdout = name == "-" or is_stdout(name)
        if self.to_stdout:
            return
        with writing(name, flag, HINT):
            if self.path.is_dir():
                raise UsageError("is a folder; give a file name", flag=flag, subject=name)
            if self.path.exists() and not self.path.is_file():
                # A device or a pipe: open till the end, for its reader to wait for. A pipe that
                # nobody reads is refused, not waited for.
                descriptor = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
                os.set_blocking(descriptor, True)
                self._stream = open(descriptor, "w", encoding="utf-8")  # noqa: SIM115
                return
            # What a link leads to is replaced, not the link.
            self.path = Path(os.path.realpath(name))
            if self.path.is_file():
                open_for_writing(self.path)
            remove_leftovers(str(self.path.parent))
            self._temporary = make_temporary(self.path)

    def write(self, text: Content) -> None:
        """Write the whole content.

        Raises:
            LarError: the disk is full, or the folder went away.
        """
        if self.to_stdout:
            write_text(sys.stdout, text)
            sys.stdout.flush()
            return
        with writing(self.path, self.flag, HINT):
            if self._stream is not None:
                with self._stream:
                    write_text(self._stream, text)
            elif self._temporary is not None:
                with self._temporary.open("wb") as file:
                    file.writelines(pieces_of(text))
                take_place(self._temporary, self.path)
                self._temporary = None

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(OSError):
            if self._stream is not None:
                self._stream.close()
            if self._temporary is not None:
                self._temporary.unlink()


def make_temporary(path: Path) -> Path:
    """Make a file that may replace another; until then nobody can read it who cannot read that one.

    Raises:
        OSError: it cannot be made.
    """
    mode = 0o666  # of which the umask takes its part
    if path.is_file():
        mode = stat.S_IMODE(path.stat().st_mode) | stat.S_IWUSR
    temporary = path.with_name(prefix_of_owner() + os.urandom(8).hex())
    temporary.touch(mode, exist_ok=False)
    return temporary


def take_place(temporary: Path, path: Path) -> None:
    """Put a file in the place of another, with the mode of that.

    Raises:
        OSError: it cannot be.
    """
    if path.is_file():
        temporary.chmod(stat.S_IMODE(path.stat().st_mode))
    os.replace(temporary, path)


def write_text(stream: TextIO, text: Content) -> None:
    """Write text, which may be encoded already, to a stream of text: a named pipe gets the same as
    a file, but a stream that may be a terminal gets printable text."""
    is_shown = stream is sys.stdout or stream.isatty()
    for content in map(bytes.decode, pieces_of(text)):
        stream.write(printable_lines(content) if is_shown else content)


def pieces_of(text: Content) -> Iterable[bytes]:
    """Return the pieces of a text as UTF-8; what UTF-8 lacks, as in some names, is escaped."""
    whole = text.encode(errors="backslashreplace") if isinstance(text, str) else text
    return (whole,) if isinstance(whole, bytes) else whole


def check_writable(name: str, flag: str) -> None:
    """Refuse a place where no file can be written, and say why; `-` is a file here.

    Raises:
        UsageError: naming the flag.
    """
    with OutputFile("./-" if name == "-" else name, flag):
        pass


def open_for_writing(path: Path) -> None:
    """Check that an existing file may be written.

    Raises:
        OSError: why it may not.
    """
    os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))


def is_stdout(name: str) -> bool:
    """Return whether a name leads to the place of standard output, as /dev/stdout does."""
    try:
        there, stdout = os.stat(name), os.fstat(1)
    except OSError:
        return False
    return os.path.samestat(there, stdout) and not stat.S_ISCHR(stdout.st_mode)
