"""Report files are written whole or not at all, and a bad path is told before the run."""

from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lar.errors import LarError, UsageError
from lar.files.report_file import OutputFile
from tests.running.isolated_runs import eventually

not_as_root = pytest.mark.skipif(
    hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may write anywhere"
)


@pytest.fixture
def umask_022() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


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
    with OutputFile(str(path), "--json") as file:
        assert path.read_text() == "old"
        file.write("new")
        assert path.read_text() == "new"


def test_a_failure_keeps_the_old_content_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text("old")
    with pytest.raises(RuntimeError), OutputFile(str(path), "--json"):
        raise RuntimeError
    assert path.read_text() == "old"
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
def test_a_new_file_has_the_usual_mode(tmp_path: Path) -> None:
    write(tmp_path / "result.json", "new")
    assert mode_of(tmp_path / "result.json") == 0o644


@pytest.mark.usefixtures("umask_022")
def test_an_existing_file_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text("old")
    path.chmod(0o600)
    write(path, "new")
    assert mode_of(path) == 0o600


def test_a_link_stays_one_and_its_file_is_written(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "target.json", tmp_path / "link.json"
    target.write_text("old")
    link.symlink_to(target)
    write(link, "new")
    assert target.read_text() == "new"
    assert link.is_symlink()


def test_the_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    with OutputFile("-", "--json") as file:
        assert file.to_stdout
        file.write("text\n")
    assert capsys.readouterr().out == "text\n"


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
    run_lar: Callable[..., Any],
    write_script: Callable[..., str],
    tmp_path: Path,
    redirected: bool,
) -> None:
    # /dev/stdout is such a link. Not that one: root would replace it, were this to fail.
    link, log = tmp_path / "stdout", tmp_path / "log"
    link.symlink_to("/proc/self/fd/1")
    command = [sys.executable, "-m", "lar", write_script(), "--iter=1", f"--csv={link}"]
    if redirected:
        with log.open("w") as file:
            done = subprocess.run(command, stdout=file, timeout=60)
        output = log.read_text()
    else:
        done = run_lar(*command[3:])
        output = done.stdout
    assert done.returncode == 0
    assert link.is_symlink()
    assert "phase,index,runner,end_to_end_seconds" in output


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--csv: .*is a folder"):
        OutputFile(str(tmp_path), "--csv")


@pytest.mark.parametrize("name", ["none/result.json", "file/result.json", "x" * 300, ""])
def test_a_path_that_cannot_be_is_refused_with_the_flag(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="--json: "):
        OutputFile(str(tmp_path / name) if name else "", "--json")


@not_as_root
def test_a_folder_that_may_not_be_written_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(UsageError, match="cannot be written: permission denied"):
            OutputFile(str(tmp_path / "result.json"), "--json")
    finally:
        tmp_path.chmod(0o755)


@not_as_root
def test_a_file_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text("old")
    path.chmod(0o444)
    with pytest.raises(UsageError, match="cannot be written: permission denied"):
        OutputFile(str(path), "--json")


def test_a_disk_that_is_full_is_told_and_the_old_content_stays(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text("old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with OutputFile(str(path), "--json") as file:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        try:
            with pytest.raises(LarError, match=r"--json: .*the limit of a file's size is"):
                file.write("x" * 5000)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["result.json"]


def test_a_folder_that_went_away_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with OutputFile(str(folder / "result.json"), "--json") as file:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
        with pytest.raises(UsageError, match=r"--json: .*cannot be written: no such file"):
            file.write("text")


def test_a_bad_path_is_told_before_the_run(
    run_lar: Callable[..., Any], write_script: Callable[..., str], tmp_path: Path
) -> None:
    done = run_lar(write_script(), "--json", str(tmp_path / "none" / "result.json"))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("lar: error: --json: ")


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
