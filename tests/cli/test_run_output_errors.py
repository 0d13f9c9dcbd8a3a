"""A report that cannot be written is told, and no file is replaced or left half-written."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.failures import check_error, check_not_started, run_until
from tests.cli.marks import not_root
from tests.command_lines import run_lar
from tests.conftest import WriteScript


@not_root
@pytest.mark.parametrize("flag", ["--json", "--csv"])
def test_output_that_may_not_be_written(
    tmp_path: Path, write_script: WriteScript, flag: str
) -> None:
    (tmp_path / "old").write_text("old")
    (tmp_path / "old").chmod(0o400)
    (tmp_path / "folder").mkdir(mode=0o500)
    for name in ("old", "folder/new"):
        done = run_lar(write_script(), flag, str(tmp_path / name))
        check_error(done, 2, f"{flag}: {tmp_path / name}: cannot be written: permission denied")
        check_not_started(done)
    assert (tmp_path / "old").read_text() == "old"


def test_folder_of_the_report_goes_away(write_script: WriteScript, tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    folder.mkdir()
    script = write_script(real_time=True, times=[[0.2, 0.1, None]])
    words = [script, "--iter", "3", "--json", str(folder / "x.json"), "--csv", str(folder / "y")]
    done = run_until(words, "iter 0/3: ", lambda _: shutil.rmtree(folder))
    check_error(done, done.returncode, "--json: ", "; --csv: ", "no such file or directory")
    assert "=== finished test #0" in done.stdout
