"""Opening, reading and mapping input files, and what is refused."""

from __future__ import annotations

import contextlib
import io
import os
import socket
from pathlib import Path

import pytest

from lar.datasets.items import read_lines
from lar.errors import DumpError, UsageError
from lar.files.input_file import open_input, read_input


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"\0\xff")
    assert read_input(path) == read_input(str(path)) == b"\0\xff"
    with open_input(path) as file:
        assert file.read(1) == b"\0"


def test_lines_are_without_white_space_a_mark_and_carriage_returns(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes("\ufeff a b\t\r\n\n\u2028c\rd".encode())
    assert read_lines(path) == ["a b", "", "c", "d"]


@pytest.mark.parametrize("name", ["a", "\u00fc", " "])
def test_a_missing_file_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        open_input(tmp_path / name, "--flag", what="list")
    assert caught.value.message == f"--flag: {tmp_path / name}: no such list"
    assert caught.value.hint


def test_names_that_no_file_has_are_refused(tmp_path: Path) -> None:
    for name, piece in (
        ("", "the name of the file is empty"),
        ("a\0b", "no file has such a name"),
        ("a" * 300, "cannot be read: file name too long"),
        (tmp_path, "is a folder, not a file"),
    ):
        with pytest.raises(UsageError, match=piece):
            open_input(name)
    os.symlink("loop", tmp_path / "loop")
    with pytest.raises(UsageError, match="cannot be read: too many levels"):
        open_input(tmp_path / "loop")


def test_what_is_not_a_regular_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    listener = socket.socket(socket.AF_UNIX)
    with listener:
        monkeypatch.chdir(tmp_path)  # the name of a socket is short
        listener.bind("socket")
        for path in ("pipe", "socket", "/dev/null"):
            with pytest.raises(DumpError, match=f"{path}: is not a regular file"):
                open_input(path, error=DumpError)


def test_a_file_of_more_bytes_than_the_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(4))
    assert read_input(path, limit=4) == bytes(4)
    with pytest.raises(UsageError, match="has 4 bytes; at most 3 are read"):
        read_input(path, limit=3)


def test_a_file_that_is_larger_than_any_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with path.open("wb") as file:
        file.truncate(1 << 43)
    with pytest.raises(UsageError, match=r"does not fit into memory|at most"):
        read_input(path)
    with pytest.raises(UsageError, match="at most 1073741824 are read"):
        read_lines(path)


def test_text_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"\xff")
    with pytest.raises(UsageError, match=r"--labels: .*: is not UTF-8 text") as caught:
        read_lines(path, "--labels", each="number")
    assert caught.value.hint == "give a text file with one number on each line"


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    (tmp_path / "a").write_bytes(b"a")
    os.mkfifo(tmp_path / "pipe")
    for name in ("a", "pipe", "", "gone"):
        with contextlib.suppress(UsageError):
            read_input(tmp_path / name)
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_interrupt_as_a_file_opens_is_not_an_error_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(path: Path, mode: str, **how: object) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "file"
    path.write_bytes(b"content")
    monkeypatch.setattr("lar.files.input_file.open", interrupt, raising=False)
    with pytest.raises(KeyboardInterrupt):
        open_input(path)


def test_what_takes_the_place_of_a_file_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    file = os.stat(tmp_path / "file")
    monkeypatch.setattr("lar.files.input_file.os.stat", lambda path: file)
    assert read_input(tmp_path / "pipe") == b""  # nobody writes it


def test_a_file_that_waits_for_its_content_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Waiting(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return None  # type: ignore[return-value]  # as /proc/kmsg does

    monkeypatch.setattr("lar.files.input_file.open_input", lambda *_, **__: Waiting())
    with pytest.raises(UsageError, match="is not a regular file"):
        read_input(tmp_path / "file")
