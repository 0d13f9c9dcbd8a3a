"""Output of a run's lines to a stream whose reader may be slow, or may have stopped reading."""

from __future__ import annotations

import io
import select
from typing import TextIO

from lar.running.interrupts import uninterrupted


class Outlet:
    """Hands text to a stream in pieces that its reader has room for.

    A write into a full pipe would stand still until someone reads it, and with it all that this
    process has to do: look at the time, kill the worker, heed Ctrl-C.
    """

    def __init__(self, stream: TextIO, *, may_fail: bool = False) -> None:
        """With `may_fail`, an error of the stream is kept in `error` instead of raised, and the
        rest of the text is dropped: the other outputs must be whole."""
        self.stream = stream
        self.waiting = bytearray()
        self.error: OSError | None = None
        self._may_fail = may_fail
        raw = getattr(getattr(stream, "buffer", None), "raw", None)
        self._file = raw if isinstance(raw, io.FileIO) else None  # none is in memory
        self._room = select.poll()
        if self._file is not None:
            self._room.register(self._file, select.POLLOUT)

    def isatty(self) -> bool:
        return self.stream.isatty()

    def fileno(self) -> int:
        return self.stream.fileno()

    def write(self, text: str) -> None:
        """Write as much as there is room for; the rest waits."""
        if self.error:
            return
        try:
            self.stream.flush()  # what was written there before comes first
            if self._file is None:
                self.stream.write(text)
                return
        except OSError as error:
            self._fail(error)
            return
        self.waiting += text.encode(self.stream.encoding, self.stream.errors or "strict")
        self.has_room(0)

    def flush(self) -> None:
        """Do nothing: text waits only if there is no room for it."""

    def has_room(self, seconds: float) -> bool:
        """Write the waiting text, as room comes within that time; return whether all is written."""
        while self.waiting and self._file is not None and self._room.poll(1000 * seconds):
            # As much as a pipe with room takes at once, in whole lines.
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
        """Drop what waits, for good."""
        self.error = error
        self.waiting.clear()
        if not self._may_fail:
            raise error
