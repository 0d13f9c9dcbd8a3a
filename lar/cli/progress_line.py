"""The line on the console that shows the progress of a search."""

from __future__ import annotations

from typing import TextIO

from lar.cli.output_stream import Outlet

# Where a line cannot be rewritten, a new one is printed this often.
SECONDS_BETWEEN_LINES = 10


class ProgressLine:
    """On a terminal one line that is rewritten, and cleared before other lines."""

    def __init__(self, file: TextIO | Outlet) -> None:
        self.file = file
        self.rewrites = file.isatty()
        self.width = 0
        self.lines = 0

    def show(self, text: str, elapsed: float) -> None:
        """Show a text and the seconds so far."""
        line = f"{text}, {elapsed:.0f} s"
        if self.rewrites:
            self.write("\r" + line.ljust(self.width))
            self.width = len(line)
        elif elapsed // SECONDS_BETWEEN_LINES > self.lines:
            self.write(line + "\n")
            self.lines = int(elapsed // SECONDS_BETWEEN_LINES)

    def clear(self) -> None:
        """Clear the line for other output."""
        if self.width:
            self.write("\r" + " " * self.width + "\r")
            self.width = 0

    def end(self) -> None:
        """Begin anew with the next search."""
        self.clear()
        self.lines = 0

    def write(self, text: str) -> None:
        self.file.write(text)
        self.file.flush()
