"""What a search leaves behind, and that it does what it says in fresh processes."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest

import lar
from lar.cli.main import main
from lar.tuning.evidence import Trial
from lar.tuning.session import Session
from tests.command_lines import ROOT, run_lar

# A script whose winner has a layout and a cache.
LANDSCAPE = Path(__file__).with_name("landscape.fake")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a search whose winner has a cache, with all that it writes in `out`."""
    folder = tmp_path_factory.mktemp("tuned")
    (folder / "out").mkdir()
    shutil.copy(LANDSCAPE, folder / "m.fake")
    done = run_lar(
        *("tune", "m.fake", "--budget", "60", "-o", "out/tuned.json", "--html", "out/page.html"),
        *("--save", "--tag", "tuned", "--store", "store"),
        cwd=folder,
        code=0,
    )
    (folder / "printed").write_text(done.stdout)
    return folder


def test_the_settings_stand_beside_their_cache(folder: Path) -> None:
    settings = json.loads((folder / "out/tuned.json").read_text())
    assert settings["options"] == {"enable_nchw44": True, "fast_run_algo_policy": "tuned.cache"}
    assert (settings["value"], settings["baseline_value"]) == (
        pytest.approx(0.004),
        pytest.approx(0.01),
    )
    assert sorted(each.name for each in (folder / "out").iterdir()) == [
        *("page.html", "tuned.cache", "tuned.json"),
    ]
    assert (
        "fastest: nchw44 + fast-run: 2.5 times as fast as the plain run"
        in ((folder / "printed").read_text().splitlines()[-1])
    )


def test_the_command_that_is_printed_runs_at_the_speed_that_won(folder: Path) -> None:
    *_, line, _ = (folder / "printed").read_text().splitlines()
    words = shlex.split(line.removeprefix("command: "))
    assert words[0] == "lar"
    assert "avg_time=4.000ms" in run_lar(*words[1:], "--iter", "3", cwd=folder, code=0).stdout


def test_the_files_may_be_moved_together(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "out", tmp_path / "there")
    result = lar.run(folder / "m.fake", settings=tmp_path / "there/tuned.json", iter=2)
    assert result.latency.median == pytest.approx(0.004)
    (tmp_path / "there/tuned.cache").unlink()
    with pytest.raises(lar.UsageError, match=r"its cache tuned\.cache is missing beside it"):
        lar.run(folder / "m.fake", settings=tmp_path / "there/tuned.json")


def test_a_fresh_run_with_the_settings_is_of_the_same_kind_and_no_slower(folder: Path) -> None:
    check = ("history", "check", "--store", "store", "--baseline", "tuned", "--run")
    done = run_lar(*check, "m.fake", "--settings", "out/tuned.json", cwd=folder, code=0)
    assert done.stdout.splitlines()[-1] == "result: passed: 1 no difference shown"
    assert "m.fake --enable-nchw44 --fast-run-algo-policy" in done.stdout
    # The plain run was stored too, and is of another kind.
    run_lar(*check, "m.fake", cwd=folder, code=0)
    other = run_lar(*check, "m.fake", "--enable-nchw44", cwd=folder, code=2)
    assert "differs in options (--enable-nchw44, not " in other.stderr


def test_what_would_be_lost_is_refused(folder: Path) -> None:
    done = run_lar("tune", "m.fake", "--settings", "out/tuned.json", cwd=folder, code=2)
    assert "--settings: `lar tune` reads no settings file" in done.stderr
    cache = ("--fast-run-algo-policy", "out/tuned.cache")
    done = run_lar("tune", "m.fake", *cache, "-o", "out/tuned.json", cwd=folder, code=2)
    assert "--output: out/tuned.cache: this is the file of --fast-run-algo-policy" in done.stderr
    done = run_lar("tune", "m.fake", "--packed-model-dump", "p", cwd=folder, code=2)
    assert "--packed-model-dump: the scripted engine cannot store settings" in done.stderr


def test_a_packed_model_is_written_at_the_end(tmp_path: Path) -> None:
    shutil.copy(ROOT / "models/one_operator.onnx", tmp_path)
    done = run_lar(
        *("tune", "one_operator.onnx", "--budget", "0.1", "--packed-model-dump", "p.onnx"),
        cwd=tmp_path,
        code=0,
    )
    assert done.stdout.splitlines()[0].startswith("packed: p.onnx: ")
    assert run_lar("p.onnx", "--iter", "1", cwd=tmp_path).returncode == 0


def test_a_disk_that_gets_full_ends_a_search_with_its_ranking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """SQLite holds the file to a number of pages, as a disk holds it to its size."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(LANDSCAPE, "m.fake")
    add = Session.add

    def add_on_full_disk(self: Session, trial: Trial) -> None:
        if len(self.trials) > 4:
            (pages,) = self.store._connection.execute("pragma page_count").fetchone()
            self.store._connection.execute(f"pragma max_page_count = {pages}")
        add(self, trial)

    monkeypatch.setattr(Session, "add", add_on_full_disk)
    assert main(["tune", "m.fake", "--budget", "60", "--session", "s.tune"]) == 4
    printed, complaint = capfd.readouterr()
    assert "fastest so far: " in printed
    assert complaint.splitlines()[-2].startswith("lar: error: s.tune: cannot be written: ")
