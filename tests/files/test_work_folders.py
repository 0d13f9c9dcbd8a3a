"""What killed processes leave is removed by the next one, and two do not write to one folder."""

from __future__ import annotations

import errno
import functools
import os
import signal
import time
from pathlib import Path

import pytest

from lar.errors import UsageError
from lar.files.work_folders import (
    error_of_full_disk,
    host,
    prefix_of_owner,
    remove_leftovers,
    start_of,
    work_folder,
)
from tests.cli.failures import end_of, started
from tests.command_lines import ROOT, run_lar, run_python
from tests.conftest import WriteScript
from tests.running.isolated_runs import eventually, needs_proc

DEAD = 2**22 + 1  # more than the largest process number there can be


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_what_is_left_is_removed_unless_its_owner_lives(tmp_path: Path) -> None:
    dead = f".lar-{DEAD}-17-{host()}-abc"
    recycled = f".lar-{os.getpid()}-{(start_of(os.getpid()) or 0) + 1}-{host()}-abc"
    own = [prefix_of_owner() + "abc", prefix_of_owner(hidden=False) + "abc-cache"]
    kept = [
        *own,
        f".lar-{DEAD}-17-{'0' * 8}-abc",  # of another machine
        ".lar-abc",
        "lar-notes",
    ]
    for name in (dead, recycled, *kept):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tensor").write_bytes(b"x")
    (tmp_path / f".lar-{DEAD}-18-{host()}-file").write_text("half a report")
    os.mkfifo(tmp_path / f".lar-{DEAD}-19-{host()}-pipe")  # which nobody may wait for
    living = {str(tmp_path / name): str(os.getpid()) for name in own}
    assert remove_leftovers(str(tmp_path)) == living
    assert names(tmp_path) == sorted(kept)


def test_a_link_of_such_a_name_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "tensor").write_bytes(b"x")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / f".lar-{DEAD}-17-{host()}-abc").symlink_to(tmp_path / "data")
    remove_leftovers(str(tmp_path / "here"))
    assert names(tmp_path / "here") == []
    assert names(tmp_path / "data") == ["tensor"]


def test_a_machine_of_the_same_name_is_another(tmp_path: Path) -> None:
    """Two boards of one image, and then one that says nothing of itself."""

    def host_of(number: int) -> str:
        code = (
            "import sys; from pathlib import Path; from lar.files import work_folders as it\n"
            "it.MACHINE_ID, it.NETWORK, it.BOOT_ID = map(Path, sys.argv[1:]); print(it.host())"
        )
        words = [f"{tmp_path}/{each}{number}" for each in ("id", "net", "boot")]
        return run_python("-c", code, *words, code=0).stdout

    for number in (1, 2):
        (tmp_path / f"id{number}").write_text("the same\n")
        (tmp_path / f"net{number}" / "eth0" / "device").mkdir(parents=True)
        (tmp_path / f"net{number}" / "eth0" / "address").write_text(f"02:00:00:00:00:0{number}\n")
    for number in (3, 4):
        (tmp_path / f"boot{number}").write_text(f"start {number}\n")
    found = [host_of(number) for number in (1, 1, 2, 3, 4)]
    assert found[0] == found[1]
    assert len({*found}) == 4


def test_a_place_is_written_by_one_at_a_time(tmp_path: Path) -> None:
    place = str(tmp_path / "dump")
    with (
        work_folder(str(tmp_path), claim=place, flag="--bin-io-dump"),
        work_folder(str(tmp_path), claim=place + "2"),
        pytest.raises(UsageError, match=r"--bin-io-dump: .*/dump: another run is writing it"),
        work_folder(str(tmp_path), claim=str(tmp_path / "x" / ".." / "dump"), flag="--bin-io-dump"),
    ):
        pass
    with work_folder(str(tmp_path), claim=place):
        pass
    assert names(tmp_path) == []


@needs_proc
def test_the_next_run_removes_what_a_killed_one_left(
    write_script: WriteScript, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    there.mkdir()
    operators = [{"name": "conv", "type": "Convolution", "part": 1.0}]
    slow = write_script(times=[[0.1, 0.01, None]], real_time=True, operators=operators)
    flags = ["--profile", str(there / "p.json"), "--json", str(there / "r.json")]
    with started(slow, "--iter", "500", *flags):
        assert eventually(lambda: len(names(there)) == 2, 20)  # of the profile and of the report
    assert len(names(there)) == 2
    quick = write_script(operators=operators)
    assert run_lar(quick, "--iter", "1", "--profile", str(there / "p.json")).returncode == 0
    assert names(there) == ["p.json"]


@needs_proc
def test_the_second_of_two_runs_into_one_folder_is_refused(tmp_path: Path) -> None:
    model, dump = str(ROOT / "models" / "one_operator.onnx"), str(tmp_path / "dump")
    with started(model, "--iter", "1000000", "--bin-io-dump", dump) as first:
        assert eventually(lambda: bool(names(tmp_path)), 20)
        time.sleep(0.1)
        second = run_lar(model, "--iter", "1", "--bin-io-dump", dump, code=2)
        assert second.stderr.splitlines() == [
            f"lar: error: --bin-io-dump: {dump}: another run is writing it (process {first.pid})",
            "hint: wait until the other program has ended, or choose another place",
        ]
        first.send_signal(signal.SIGINT)
        end_of(first)
    # What was dumped before the interrupt stays, under its own name alone.
    assert set(names(tmp_path)) <= {"dump", "dump.index.json"}


def test_a_full_disk_is_found_where_an_engine_does_not_say_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "written").write_bytes(bytes(12))
    assert error_of_full_disk(str(tmp_path)) is None
    assert error_of_full_disk(str(tmp_path / "missing")) is None
    with monkeypatch.context() as patched:
        patched.setattr("lar.files.work_folders.limit_of", lambda _: 12)
        assert (error_of_full_disk(str(tmp_path)) or OSError()).errno == errno.EFBIG
    with monkeypatch.context() as patched:
        full = functools.partial(open, "/dev/full", "wb")
        patched.setattr("tempfile.TemporaryFile", lambda dir, buffering: full(buffering))
        assert (error_of_full_disk(str(tmp_path)) or OSError()).errno == errno.ENOSPC
