"""Report files: they are opened before a measurement, and replaced only as a whole."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path

from lar.errors import UsageError, printable_lines, writing
from lar.files.work_folders import prefix_of_owner, remove_leftovers

TYPE_CHECKING = False  # as in `typing`, which is slow to import
if TYPE_CHECKING:
    from typing import TextIO

# Text, or UTF-8 bytes in one piece, or UTF-8 bytes in pieces that do not split a character.
Content = str | bytes | Iterable[bytes]
HINT = "choose another file"


class OutputFile(AbstractContextManager["OutputFile"]):
    """An output that the user gives as a file name, or as `-` for standard output.

    `write` replaces the old content of the file as a whole.
    """

    _temporary: Path | None = None
    _stream: TextIO | None = None

    def __init__(self, name: str, flag: str, *, is_text: bool = True) -> None:
        """Open the output; text does not replace a model, an image or another such file.

        Raises:
            UsageError: the file cannot be written, or may not be replaced.
        """
        self.flag, self.name, self.path = flag, name, Path(name)
        self.to_stdout = name == "-" or is_stdout(name)
        if self.to_stdout:
            return
        with writing(name, flag, HINT):
            if self.path.is_dir():
                raise UsageError("is a folder; give a file name", flag=flag, subject=name)
            if self.path.exists() and not self.path.is_file():
                # A device or a pipe: it stays open to the end, so that its reader waits. A pipe
                # that nobody reads is refused at once.
                descriptor = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
                os.set_blocking(descriptor, True)
                self._stream = open(descriptor, "w", encoding="utf-8")  # noqa: SIM115
                return
            # The file behind a link is replaced, not the link.
            self.path = Path(os.path.realpath(name))
            if self.path.is_file():
                open_for_writing(self.path)
                if is_text:
                    check_replaceable(name, flag)
            remove_leftovers(str(self.path.parent))
            self._temporary = make_temporary(self.path)

    def write(self, text: Content) -> None:
        """Write the whole content.

        Raises:
            LarError: the disk is full, or the folder was removed.
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
    """Make a temporary file that will replace a file; the same users may read both files.

    Raises:
        OSError: the file cannot be made.
    """
    # The umask removes some bits of 0o666.
    mode = stat.S_IMODE(path.stat().st_mode) | stat.S_IWUSR if path.is_file() else 0o666
    temporary = path.with_name(prefix_of_owner() + os.urandom(8).hex())
    temporary.touch(mode, exist_ok=False)
    return temporary


def take_place(temporary: Path, path: Path) -> None:
    """Replace a file by a temporary file, and keep the mode of the replaced file.

    Raises:
        OSError: the file cannot be replaced.
    """
    if path.is_file():
        temporary.chmod(stat.S_IMODE(path.stat().st_mode))
    os.replace(temporary, path)


def write_text(stream: TextIO, text: Content) -> None:
    """Write text to a text stream; the text may be encoded already.

    A stream that may be a terminal gets printable text; a named pipe gets the text as it is.
    """
    is_shown = stream is sys.stdout or stream.isatty()
    stream.writelines(map(printable_lines if is_shown else str, map(bytes.decode, pieces_of(text))))


def pieces_of(text: Content) -> Iterable[bytes]:
    """Return a text as pieces of UTF-8; characters that UTF-8 cannot encode are escaped."""
    whole = text.encode(errors="backslashreplace") if isinstance(text, str) else text
    return (whole,) if isinstance(whole, bytes) else whole


def check_writable(name: str, flag: str) -> None:
    """Refuse a path where no file can be written.

    `-` stands for a file with the name `-`, not for standard output.

    Raises:
        UsageError: the file cannot be written.
    """
    with OutputFile("./-" if name == "-" else name, flag, is_text=False):
        pass


def check_replaceable(name: str | Path, flag: str) -> None:
    """Refuse a file that text may not replace, such as a model or an image.

    `kept_files.json` has the kinds of these files, each with a regular expression for the first
    bytes. In the expression for models, the last two alternatives are ONNX's protobuf and MNN's
    FlatBuffers.

    Raises:
        UsageError: the file may not be replaced.
    """
    import json  # slow to import, and most reports replace no file

    for kind, form in json.loads(Path(__file__).with_name("kept_files.json").read_text()).items():
        if re.match(form.encode(), head_of(name), re.DOTALL):
            problem, hint = f"is {kind}, which lar does not replace", f"{HINT}, or remove it"
            raise UsageError(problem, hint, flag=flag, subject=name)


def head_of(name: str | Path) -> bytes:
    """Return the first bytes of a file, or no bytes if the file cannot be read."""
    with contextlib.suppress(OSError), open(name, "rb") as file:
        return file.read(512)
    return b""


def open_for_writing(path: Path) -> None:
    """Check that an existing file may be written.

    Raises:
        OSError: the file may not be written.
    """
    os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))


def is_stdout(name: str) -> bool:
    """Return whether a file name, such as /dev/stdout, stands for standard output."""
    with contextlib.suppress(OSError):
        stdout = os.fstat(1)
        return os.path.samestat(os.stat(name), stdout) and not stat.S_ISCHR(stdout.st_mode)
    return False
