"""Text goes to a stream as its reader has room for it, whole and in order."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TextIO

import pytest

from lar.cli.output_stream import Outlet


@pytest.fixture
def pipe() -> Iterator[tuple[int, TextIO]]:
    """The end of a pipe to read from, and the stream to write to."""
    reading, writing = os.pipe()
    with open(writing, "w") as stream:
        yield reading, stream
    os.close(reading)


def test_a_line_longer_than_a_pipe_takes_at_once_comes_too(pipe: tuple[int, TextIO]) -> None:
    reading, stream = pipe
    text = "x" * 30_000 + "\n"
    outlet = Outlet(stream)
    outlet.write(text)
    assert outlet.has_room(0)
    assert os.read(reading, 1 << 16).decode() == text


def test_what_was_written_to_the_stream_before_comes_first(pipe: tuple[int, TextIO]) -> None:
    reading, stream = pipe
    stream.write("before\n")
    Outlet(stream).write("after\n")
    assert os.read(reading, 100) == b"before\nafter\n"
