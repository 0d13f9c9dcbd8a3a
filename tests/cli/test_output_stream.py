"""Text goes to a stream as its reader has room for it, whole and in order."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import TextIO

import pytest

from lar.cli.outlet import Outlet
from tests.running.isolated_runs import SOON

LINES = "".join(f"line {index}\n" for index in range(20_000))  # more than a pipe holds


@pytest.fixture
def pipe() -> Iterator[tuple[int, TextIO]]:
    """The end of a pipe to read from, and the stream to write to."""
    reading, writing = os.pipe()
    with open(writing, "w") as stream:
        yield reading, stream
    os.close(reading)


def test_room_is_waited_for_as_long_as_is_said(pipe: tuple[int, TextIO]) -> None:
    outlet = Outlet(pipe[1])
    outlet.write(LINES)
    began = time.monotonic()
    assert not outlet.has_room(0.2)
    assert 0.2 <= time.monotonic() - began < 0.2 + SOON


def test_no_line_is_cut_where_the_reader_leaves_off(pipe: tuple[int, TextIO]) -> None:
    reading, stream = pipe
    Outlet(stream).write(LINES)
    came = os.read(reading, 1 << 20).decode()
    assert came.endswith("\n")
    assert LINES.startswith(came)


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
