"""A report that cannot be written is told, and no file is replaced or left half-written."""

from __future__ import annotations

import json
import os
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.cli.failures import check_error, check_not_started, run_until
from tests.cli.marks import not_root

if TYPE_CHECKING:
    from tests.conftest import RunLar, WriteScript

ONE = [{"name": "data", "dtype": "float32", "shape": [4]}]


@pytest.fixture
def good(write_script: WriteScript) -> str:
    """A script that runs to its end."""
    return write_script(inputs=ONE, outputs={"prob": [0.25, 0.75]})


@pytest.mark.parametrize("flag", ["--json", "--csv"])
@pytest.mark.parametrize(
    ("name", "piece"),
    [
        ("folder", "is a folder"),
        ("missing/file", "no such file or directory"),
        ("script_0.fake/file", "is inside"),
        ("x" * 300, "file name too long"),
    ],
)
def test_output_that_cannot_be_written(
    run_lar: RunLar, tmp_path: Path, good: str, flag: str, name: str, piece: str
) -> None:
    (tmp_path / "folder").mkdir()
    done = run_lar(good, flag, str(tmp_path / name))
    check_error(done, 2, f"{flag}: {tmp_path / name}: ", piece)
    check_not_started(done)
    assert {path.name for path in tmp_path.iterdir()} == {"folder", "script_0.fake"}


@not_root
@pytest.mark.parametrize("flag", ["--json", "--csv"])
def test_output_that_may_not_be_written(
    run_lar: RunLar, tmp_path: Path, good: str, flag: str
) -> None:
    (tmp_path / "old").write_text("old")
    (tmp_path / "old").chmod(0o400)
    (tmp_path / "folder").mkdir(mode=0o500)
    for name in ("old", "folder/new"):
        done = run_lar(good, flag, str(tmp_path / name))
        check_error(done, 2, f"{flag}: {tmp_path / name}: cannot be written: permission denied")
        check_not_started(done)
    assert (tmp_path / "old").read_text() == "old"


@pytest.mark.parametrize("flag", ["--json", "--csv"])
@pytest.mark.parametrize("how", ["same", "symlink"])
def test_output_never_replaces_what_is_read(
    run_lar: RunLar, tmp_path: Path, good: str, flag: str, how: str
) -> None:
    np.save(tmp_path / "data.npy", np.ones(4, np.float32))
    for victim in (Path(good), tmp_path / "data.npy"):
        before = victim.read_bytes()
        target = victim
        if how == "symlink":
            target = tmp_path / f"link_to_{victim.name}"
            target.symlink_to(victim)
        done = run_lar(good, "--input", str(tmp_path / "data.npy"), flag, str(target))
        assert victim.read_bytes() == before
        check_error(done, 2, f"{flag}: {target}: ")
        check_not_started(done)


def test_info_never_replaces_the_model(run_lar: RunLar, good: str) -> None:
    before = Path(good).read_bytes()
    done = run_lar("info", good, "--json", good)
    assert Path(good).read_bytes() == before
    check_error(done, 2, "--json: ")


def test_two_reports_in_one_place(run_lar: RunLar, tmp_path: Path, good: str) -> None:
    for name in ("-", str(tmp_path / "report")):
        done = run_lar(good, "--json", name, "--csv", name)
        check_error(done, 2, "--json", "--csv")
        check_not_started(done)


@pytest.mark.parametrize("reader", [False, True])
def test_fifo_as_output(run_lar: RunLar, tmp_path: Path, good: str, reader: bool) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    received: list[str] = []
    thread = threading.Thread(target=lambda: received.append(fifo.read_text()), daemon=True)
    if reader:
        thread.start()
    done = run_lar(good, "--json", str(fifo))
    if done.returncode:  # refused, before the run
        check_error(done, 2, "--json: ")
        check_not_started(done)
    else:
        thread.join(5)
        assert json.loads(received[0])["status"] == "ok"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_full_disk(run_lar: RunLar, good: str) -> None:
    done = run_lar(good, "--json", "/dev/full")
    check_error(done, done.returncode, "--json: /dev/full", "no space left on device")
    assert done.returncode == 4


def test_folder_of_the_report_goes_away(
    root: Path, write_script: WriteScript, tmp_path: Path
) -> None:
    folder = tmp_path / "reports"
    folder.mkdir()
    script = write_script(real_time=True, times=[[0.2, 0.1, None]])
    words = [script, "--iter", "3", "--json", str(folder / "x.json"), "--csv", str(folder / "y")]
    done = run_until(words, root, "iter 0/3: ", lambda _: shutil.rmtree(folder))
    check_error(done, done.returncode, "--json: ", "; --csv: ", "no such file or directory")
    assert "=== finished test #0" in done.stdout


def test_what_stood_in_the_report_survives_a_refused_run(
    run_lar: RunLar, tmp_path: Path, good: str
) -> None:
    (tmp_path / "report.json").write_text("old")
    files = {path.name for path in tmp_path.iterdir()}
    for arguments in (["--iter", "-1"], ["--csv", str(tmp_path)], ["--bogus"]):
        done = run_lar(good, "--json", str(tmp_path / "report.json"), *arguments)
        assert done.returncode == 2
        assert (tmp_path / "report.json").read_text() == "old"
        assert {path.name for path in tmp_path.iterdir()} == files
