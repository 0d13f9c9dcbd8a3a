"""The output of a command while the command is still working.

An `Outlet` writes lines to a stream whose reader may be slow or may have stopped. A `ProgressLine`
is the line on the console that shows the progress.
"""

from __future__ import annotations

import io
import select
import threading
import time
from contextlib import AbstractContextManager
from typing import TextIO

from lar.cli.screen import width_of
from lar.errors import printable
from lar.reports.text import cut_end, shorten
from lar.running.interrupts import uninterrupted


class Outlet:
    """A stream that gets text only as fast as its reader reads.

    A plain write into a full pipe would block this process. A blocked process could not look at the
    time, kill the worker or handle Ctrl-C.
    """

    def __init__(self, stream: TextIO, *, may_fail: bool = False) -> None:
        """If `may_fail`, an error of the stream is stored in `error` instead of being raised.

        After an error, all text for the stream is dropped, and the command can still write its
        other outputs.
        """
        self.stream = stream
        self.waiting = bytearray()
        self.error: OSError | None = None
        self._may_fail = may_fail
        raw = getattr(getattr(stream, "buffer", None), "raw", None)
        self._file = raw if isinstance(raw, io.FileIO) else None  # None for a stream in memory
        self._room = select.poll()
        if self._file is not None:
            self._room.register(self._file, select.POLLOUT)

    def isatty(self) -> bool:
        return self.stream.isatty()

    def fileno(self) -> int:
        return self.stream.fileno()

    def write(self, text: str) -> None:
        """Write as much of the text as the stream has room for, and keep the rest for later."""
        if self.error:
            return
        try:
            self.stream.flush()  # text that waits in the stream itself comes first
            if self._file is None:
                self.stream.write(text)
                return
        except OSError as error:
            self._fail(error)
            return
        self.waiting += text.encode(self.stream.encoding, self.stream.errors or "strict")
        self.has_room(0)

    def flush(self) -> None:
        """Do nothing, since all text for which the stream has room is already written."""

    def has_room(self, seconds: float) -> bool:
        """Write the text that is still unwritten; return whether all text is now written.

        The method waits for room for at most `seconds`.
        """
        while self.waiting and self._file is not None and self._room.poll(1000 * seconds):
            # A pipe with room takes this much at once. Whole lines are written, if possible.
            piece = self.waiting[: select.PIPE_BUF]
            piece = piece[: piece.rfind(b"\n") + 1] or piece
            try:
                with uninterrupted():  # so that nothing is written twice
                    del self.waiting[: self._file.write(piece) or 0]
            except OSError as error:
                self._fail(error)
            seconds = 0
        return not self.waiting

    def _fail(self, error: OSError) -> None:
        """Store the error and drop the unwritten text; raise the error unless `may_fail` is set."""
        self.error = error
        self.waiting.clear()
        if not self._may_fail:
            raise error


# The line that shows the progress


# A stream that is no terminal gets a new progress line this often.
SECONDS_BETWEEN_LINES = 10

# A longer text would not fit into a line, and only one line can be rewritten.
MOST_LETTERS = 60


class ProgressLine:
    """The line that shows the progress; on a terminal it is rewritten in place."""

    def __init__(self, file: TextIO | Outlet) -> None:
        self.file = file
        self.rewrites = file.isatty()
        self.width = 0
        self.lines = 0

    def show(self, text: str, elapsed: float) -> None:
        """Show a text and the seconds so far.

        On a terminal the text is cut to one line, since only one line can be rewritten.
        """
        text = printable(text)
        ending = f", {elapsed:.0f} s"
        line = text + ending
        if self.rewrites:
            width = width_of(self.file)
            if width is not None and len(line) >= width:
                line = shorten(text, max(width - 1 - len(ending), 1)) + ending
            self.write("\r" + line.ljust(self.width))
            self.width = len(line)
        elif elapsed // SECONDS_BETWEEN_LINES != self.lines:  # a new step begins at 0
            self.lines = int(elapsed // SECONDS_BETWEEN_LINES)
            self.write(line + "\n" if self.lines else "")

    def clear(self) -> None:
        """Clear the line for other output."""
        if self.width:
            self.write("\r" + " " * self.width + "\r")
            self.width = 0

    def write(self, text: str) -> None:
        self.file.write(text)
        self.file.flush()


class PacedLine(AbstractContextManager["PacedLine"]):
    """A progress line that is shown at most once every `SECONDS` seconds."""

    SECONDS = 0.2

    def __init__(self, file: TextIO) -> None:
        self.line = ProgressLine(Outlet(file, may_fail=True))
        self.began = time.monotonic()
        self.due = self.began

    def __exit__(self, *error: object) -> None:
        self.end()

    def show(self, text: str) -> None:
        """Show a text with the seconds so far, unless the line was shown too recently."""
        now = time.monotonic()
        if now >= self.due:
            self.due = now + self.SECONDS
            self.line.show(text, now - self.began)

    def end(self) -> None:
        """Clear the line."""
        self.line.clear()


class LateLine(PacedLine):
    """A progress line on a terminal that appears only when the work takes some seconds.

    A thread rewrites the line, so that the printed seconds go on during a long step.
    """

    SECONDS = 2.0
    SECONDS_BETWEEN = 0.2

    def __init__(self, file: TextIO) -> None:
        super().__init__(file)
        self.text = ""
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.rewrite, daemon=True)

    def __enter__(self) -> LateLine:
        if self.line.rewrites:
            self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.ended.set()
        if self.thread.is_alive():
            self.thread.join()
        self.end()

    def show(self, text: str) -> None:
        """Set the text of the line."""
        self.text = cut_end(text, MOST_LETTERS)

    def rewrite(self) -> None:
        """Rewrite the line at intervals until the end."""
        wait = self.SECONDS
        while not self.ended.wait(wait):
            wait = self.SECONDS_BETWEEN
            if self.text:
                self.line.show(self.text, time.monotonic() - self.began)
