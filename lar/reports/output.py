"""Report files: opened before anything is measured, replaced whole, never left half-written."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path
from types import TracebackType

from lar.errors import UsageError


class OutputFile:
    """A file that `FILE|-` names. What stood there before stays until `write` replaces it."""

    def __init__(self, name: str, flag: str) -> None:
        """Open the output.

        Raises:
            UsageError: it cannot be written; the flag is named.
        """
        self.flag, self.path = flag, Path(name)
        self.to_stdout = name == "-"
        self._temporary: Path | None = None
        if self.to_stdout:
            return
        try:
            if self.path.exists() and not self.path.is_file():
                if self.path.is_dir():
                    raise UsageError(f"{flag}: {name}: is a folder; give a file name")
                with self.path.open("ab"):
                    return  # a device or a pipe: written to, not replaced
            if self.path.is_file() and not os.access(self.path, os.W_OK):
                raise PermissionError(13, "permission denied")
            descriptor, temporary = tempfile.mkstemp(
                prefix=f".{self.path.name}.", dir=self.path.parent
            )
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise UsageError(
                f"{flag}: {name}: cannot be written: {reason}", "choose another file"
            ) from None
        os.close(descriptor)
        self._temporary = Path(temporary)

    def write(self, text: str) -> None:
        """Write the whole content.

        Raises:
            UsageError: the disk is full, or the folder went away.
        """
        if self.to_stdout:
            sys.stdout.write(text)
            sys.stdout.flush()
            return
        try:
            target = self._temporary or self.path
            target.write_text(text, encoding="utf-8")
            if self._temporary is not None:
                umask = os.umask(0)
                os.umask(umask)
                self._temporary.chmod(0o666 & ~umask)
                os.replace(self._temporary, self.path)
                self._temporary = None
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise UsageError(f"{self.flag}: {self.path}: cannot be written: {reason}") from None

    def __enter__(self) -> OutputFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._temporary is not None:
            with contextlib.suppress(OSError):
                self._temporary.unlink()
