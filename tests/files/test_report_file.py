"""Report files are written whole or not at all, and a bad path is told before the run."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lar.errors import LarError, UsageError
from lar.files.report_file import OutputFile
from tests.cli.failures import run_shell
from tests.command_lines import run_lar
from tests.running.isolated_runs import eventually


@pytest.fixture
def umask_022() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def write(path: Path, text: str) -> None:
    with OutputFile(str(path), "--json") as file:
        file.write(text)


def test_a_file_is_written_whole_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    write(tmp_path / "result.json", "täxt\n")
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]
    assert (tmp_path / "result.json").read_text(encoding="utf-8") == "täxt\n"


def test_until_it_is_written_the_old_content_stays(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text("old")
    with pytest.raises(RuntimeError), OutputFile(str(path), "--json"):
        raise RuntimeError
    with OutputFile(str(path), "--json") as file:
        assert path.read_text() == "old"
        file.write("new")
        assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["result.json"]


def test_a_failure_before_the_first_writing_makes_no_file(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), OutputFile(str(tmp_path / "new.json"), "--json"):
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == []


def test_a_reader_never_sees_a_half_written_file(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    text = "x" * 5_000_000
    write(path, "old")
    seen, done = set(), threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.add(len(path.read_bytes()))

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(5):
        write(path, text)
    done.set()
    reader.join()
    assert seen <= {3, len(text)}


@pytest.mark.usefixtures("umask_022")
def test_a_file_keeps_its_mode_and_a_new_one_has_the_usual(tmp_path: Path) -> None:
    for path, mode in ((tmp_path / "new.json", 0o644), (tmp_path / "old.json", 0o600)):
        if mode == 0o600:
            path.write_text("old")
            path.chmod(mode)
        write(path, "new")
        assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_link_stays_one_and_its_file_is_written(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "target.json", tmp_path / "link.json"
    target.write_text("old")
    link.symlink_to(target)
    write(link, "new")
    assert target.read_text() == "new"
    assert link.is_symlink()


def test_a_terminal_is_written_to() -> None:
    terminal, device = os.openpty()
    try:
        write(Path(os.ttyname(device)), "text")
        assert os.read(terminal, 100) == b"text"
    finally:
        os.close(terminal)
        os.close(device)


def test_a_named_pipe_gives_its_reader_the_text(tmp_path: Path) -> None:
    # The reader sees one writer, from the opening to the text: an end before it would leave the
    # reader with nothing and the writer without a reader.
    path = tmp_path / "pipe"
    os.mkfifo(path)
    texts = []
    opened: list[OutputFile] = []

    def open_pipe() -> bool:
        try:
            opened.append(OutputFile(str(path), "--json"))
        except UsageError:  # the reader is not there yet
            return False
        return True

    def write_after_a_run() -> None:
        assert eventually(open_pipe, 30)
        with opened[0] as file:
            time.sleep(0.3)
            file.write("text")

    reader = threading.Thread(target=lambda: texts.append(path.read_text()), daemon=True)
    writer = threading.Thread(target=write_after_a_run, daemon=True)
    reader.start()
    writer.start()
    writer.join(60)
    reader.join(60)
    stuck = writer.is_alive()
    if stuck:  # let it go
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    assert texts == ["text"]
    assert not stuck


@pytest.mark.skipif(not os.path.exists("/proc/self/fd/1"), reason="this system has no /proc")
@pytest.mark.parametrize("redirected", [False, True])
def test_the_link_to_standard_output_stays_one(
    write_script: Callable[..., str], tmp_path: Path, redirected: bool
) -> None:
    # /dev/stdout is such a link. Not that one: root would replace it, were this to fail.
    link, log = tmp_path / "stdout", tmp_path / "log"
    link.symlink_to("/proc/self/fd/1")
    words = [write_script(), "--iter=1", f"--csv={link}"]
    if redirected:
        done = run_shell('$LAR "$@" >log', *words, cwd=tmp_path)
    else:
        done = run_lar(*words)
        log.write_text(done.stdout)
    assert done.returncode == 0
    assert link.is_symlink()
    assert "phase,index,runner,end_to_end_seconds" in log.read_text()


def test_what_comes_in_pieces_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    def pieces(ends_well: bool) -> Iterator[bytes]:
        yield b"new "
        if not ends_well:
            raise LarError("the engine failed")
        yield b"text"

    place = tmp_path / "trace.json"
    write(place, "old")
    with pytest.raises(LarError), OutputFile(str(place), "--output") as file:
        file.write(pieces(ends_well=False))
    assert (place.read_text(), os.listdir(tmp_path)) == ("old", ["trace.json"])
    with OutputFile(str(place), "--output") as file:
        file.write(pieces(ends_well=True))
    assert place.read_text() == "new text"
