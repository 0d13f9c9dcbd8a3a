"""`lar history`, and `--save` of a run."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from lar.cli.history import parse_age, parse_date
from lar.records.record import record_to_json
from lar.records.run import RunResult
from lar.results.store import Selection, open_store
from tests.browser import NEEDS_BROWSER, opened, unreadable
from tests.cli.runs import fill_store
from tests.command_lines import ROOT, run_lar
from tests.conftest import WriteScript
from tests.results.made_results import make_runs
from tests.running.isolated_runs import known
from tests.tables import each_row

LOGS = ROOT / "tests" / "data" / "load_and_run"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill_store(tmp_path_factory.mktemp("history") / "store.sqlite")


@pytest.fixture
def store(filled: Path, tmp_path: Path) -> str:
    """A store of one's own."""
    return str(shutil.copy(filled, tmp_path / "store.sqlite"))


def test_a_run_is_saved_and_listed(write_script: WriteScript, tmp_path: Path) -> None:
    place = str(tmp_path / "s.sqlite")
    words = ["--iter", "3", "--save", "--tag", "first", "--store", place]
    done = run_lar(write_script(), *words, code=0)
    assert done.stderr.endswith(f"lar: note: saved as result 1 of {place}\n")
    assert "saved" not in done.stdout
    done = run_lar("history", "list", "--store", place)
    header, row = done.stdout.splitlines()
    assert header.split()[:4] == ["id", "saved", "tag", "model"]
    assert row.split()[3:5] == ["first", "script_0.fake"]


def test_a_run_that_fails_is_saved(write_script: WriteScript, tmp_path: Path) -> None:
    script = write_script(faults=[{"at": "load", "do": "raise"}])
    place = str(tmp_path / "s.sqlite")
    run_lar(script, "--save", "--store", place, code=2)
    assert "failed" in run_lar("history", "list", "--store", place).stdout


def test_a_result_is_shown_whole(store: str) -> None:
    done = run_lar("history", "show", "2", "--json", "-", "--store", store)
    with open_store(store) as opened:
        assert done.stdout == record_to_json(opened.result(2)).decode() + "\n"


def test_times_are_plotted(store: str, tmp_path: Path) -> None:
    page = tmp_path / "plot.html"
    done = run_lar("history", "plot", "--store", store, "--html", str(page))
    assert done.stdout == f"wrote {page}\n"
    assert "drawCurve" in page.read_text()
    assert "net.onnx --multithread 2" in page.read_text()


@NEEDS_BROWSER
def test_the_page_of_a_plot_is_drawn(store: str, tmp_path: Path) -> None:
    done = run_lar("history", "plot", "--store", store, "--html", "-")
    page = opened(done.stdout, tmp_path, width=400, scheme="dark")
    assert unreadable(page) == []
    assert page.console() == []
    drawn = page.elements()
    assert "NaN" not in drawn.partition("<main")[2].partition("<script")[0]
    assert drawn.count("<circle") > 11


def check_of_new(store: str, folder: Path, change: Callable[[RunResult], RunResult]) -> list[str]:
    """The words that check the file of a run, which is changed before, against those of v1."""
    (result,) = make_runs(1, 0.010, seed=9)
    (folder / "new.json").write_bytes(record_to_json(change(result)))
    return ["history", "check", "--baseline", "v1", str(folder / "new.json"), "--store", store]


def test_a_new_file_is_checked(store: str, tmp_path: Path) -> None:
    done = run_lar(*check_of_new(store, tmp_path, lambda run: run))
    assert (done.returncode, done.stderr) == (0, "")
    header, row, note, verdict = done.stdout.splitlines()
    assert header.split()[-2:] == ["interval", "verdict"]
    assert "no difference shown (smallest detectable: " in row
    assert note.startswith("note: net.onnx: each side has one sitting")
    assert verdict == "result: passed: 1 no difference shown"


def test_a_new_run_that_failed_never_passes(store: str) -> None:
    words = ["history", "check", "--baseline", "v1", "--tag", "broken", "--store", store]
    done = run_lar(*words, "--format", "json", code=4)
    assert json.loads(done.stdout)["tables"][0]["rows"] == []
    assert done.stderr == "result: failed: the new run of other.mge: it broke\n"


def test_another_store_is_imported_with_its_tags(store: str, tmp_path: Path) -> None:
    other = str(tmp_path / "other.sqlite")
    run_lar("history", "add", f"old={store}", "--tag", "all", "--store", other, code=0)
    os.remove(other)
    run_lar("history", "import", store, "--store", other, code=0)
    with open_store(store) as one, open_store(other) as two:
        assert one.entries() == two.entries()


def test_a_check_of_disturbed_runs_judges_nothing(store: str, tmp_path: Path) -> None:
    words = check_of_new(store, tmp_path, disturbed)
    done = run_lar(*words, code=0)
    assert done.stdout.endswith("\nresult: nothing judged: all new runs were disturbed\n")
    done = run_lar(*words, "--fail-if-unjudged", "--format", "csv", code=5)
    assert done.stderr == "result: not judged: net.onnx: all new runs were disturbed\n"


def disturbed(run: RunResult) -> RunResult:
    """A run each of whose iterations waited for a CPU."""
    samples = replace(run.samples, queue_delay=tuple(0.5 * it for it in run.samples.end_to_end))
    return replace(run, samples=samples)


def test_the_newest_stored_run_is_checked_with_those_of_its_tag(store: str) -> None:
    with open_store(store) as opened:
        opened.add(make_runs(1, 0.015, seed=8))
    run_lar("history", "check", "--baseline", "v1", "--store", store, code=1)
    with open_store(store) as opened:
        opened.add(make_runs(4, 0.010, seed=7), "v3")
    done = run_lar("history", "check", "--baseline", "v1", "--store", store, "--format", "csv")
    assert done.returncode == 0
    assert done.stdout.splitlines()[1].startswith("net.onnx,4,5,runs,")


def test_a_model_is_run_and_checked(write_script: WriteScript, tmp_path: Path) -> None:
    place, script = str(tmp_path / "s.sqlite"), write_script(times=[[0.002, 0.001, 0.002]])
    for _ in range(2):
        run_lar(script, "--iter", "9", "--save", "--tag", "v1", "--store", place)
    words = ["--baseline", "v1", "--tag", "new", "--runs", "2", "--store", place]
    done = run_lar("history", "check", *words, "--run", script, "--iter", "9")
    assert done.returncode in (0, 1), done.stderr
    assert "run 2 of 2" in done.stderr
    assert run_lar("history", "list", "--store", place).stdout.count(" new ") == 2


def test_a_run_that_fails_now_is_a_side_that_failed(write_script: WriteScript, store: str) -> None:
    broken = write_script(faults=[{"at": "load", "do": "abort"}])
    words = ["--baseline", "v1", "--tag", "new", "--store", store, "--run", broken]
    done = run_lar("history", "check", *words, code=4)
    name = Path(broken).name
    assert done.stdout.startswith(f"result: failed: the new run of {name}: the engine crashed in ")
    assert run_lar("history", "list", "--store", store, "--tag", "new").stdout.startswith("no ")


def test_another_engine_version_is_noted(store: str, tmp_path: Path) -> None:
    def change(run: RunResult) -> RunResult:
        return replace(run, engine=replace(known(run.engine), version="2.0"), lar_version="9")

    done = run_lar(*check_of_new(store, tmp_path, change))
    assert "engine fake 2.0 (baseline fake 1.0); lar 9 (baseline 0.1.0)" in done.stdout


def test_logs_of_phones_are_added_with_model_and_machine(tmp_path: Path) -> None:
    place = str(tmp_path / "s.sqlite")
    flags = ["--model", str(ROOT / "models" / "mobilenet_v2.mge"), "--machine", "pixel"]
    files = [f"{LOGS}/mobilenet_{name}.txt" for name in ("default", "nchw88")]
    done = run_lar("history", "add", *files, *flags, "--tag", "phone", "--store", place)
    assert done.stdout == f"stored 2 results in {place}\n"
    done = run_lar("history", "add", *files, *flags, "--tag", "phone", "--store", place)
    assert done.stdout == f"stored 0 results in {place}; 2 were there already\n"
    done = run_lar("history", "list", "--store", place, "--machine", "pix", "--format", "csv")
    assert "mobilenet_v2.mge" in done.stdout
    check = ["check", "--baseline", "phone", files[0], *flags, "--store", place]
    done = run_lar("history", *check, code=0)
    assert "not judged (1 against 1, and two on each side are needed)" in done.stdout
    done = run_lar("history", *check[:4], *flags[:2], "--store", place)
    assert "is not known, so nothing can be compared: give --machine" in done.stderr
    done = run_lar("history", *check[:4], *flags[:3], "other", "--store", place)
    assert "differs in machine (other, not pixel)" in done.stderr


def test_results_go_to_another_store(store: str, tmp_path: Path) -> None:
    some, other = str(tmp_path / "some.sqlite"), str(tmp_path / "other.sqlite")
    done = run_lar("history", "export", "-o", some, "--tag", "v1", "--store", store)
    assert done.stdout == f"stored 7 results in {some}\n"
    done = run_lar("history", "import", some, store, "--store", other)
    assert done.stdout == f"stored 14 results in {other}; 7 were there already\n"
    with open_store(store) as one, open_store(some) as two:
        assert [replace(it, id=0) for it in one.entries(Selection(tag="v1"))] == [
            replace(it, id=0) for it in two.entries()
        ]
        assert two.result(1) == one.result(one.entries(Selection(tag="v1"))[0].id)


def count_of(store: str) -> int:
    with open_store(store) as opened:
        return len(opened.entries())


@each_row("cli/cases/ages")
def test_an_age_counts_back_from_now(age: str, hours: float) -> None:
    since = datetime.now(timezone.utc) - datetime.fromisoformat(parse_age(age))
    assert since.total_seconds() / 3600 == pytest.approx(hours, abs=0.01)


def test_a_day_is_in_utc_unless_it_has_a_time_zone() -> None:
    days = ("2025-06-01", "2025-06-01T12:30", "2025-06-01 01:00+02:00")
    hours = ("2025-06-01T00:00", "2025-06-01T12:30", "2025-05-31T23:00")
    assert [*map(parse_date, days)] == [f"{it}:00+00:00" for it in hours]


@each_row("cli/cases/removed results")
def test_results_are_removed_when_that_is_meant(words: list[str], left: int, store: str) -> None:
    done = run_lar("history", "prune", *words, "--store", store, code=0)
    assert done.stdout.splitlines()[-1].startswith(f"would remove {14 - left} of 14 results")
    assert count_of(store) == 14
    done = run_lar("history", "prune", *words, "--yes", "--store", store)
    assert done.stdout == f"removed {14 - left} of 14 results\n"
    assert count_of(store) == left


def test_the_processes_of_a_bench_are_saved(write_script: WriteScript, tmp_path: Path) -> None:
    place, script = str(tmp_path / "s.sqlite"), write_script()
    bench = ["bench", script, "--vary", "copy-to-host", "--budget", "0.5", "--json", "b.json"]
    done = run_lar(*bench, "--save", "--tag", "b", "--store", place, cwd=tmp_path, code=0)
    assert f"lar: note: saved as results 1 to {count_of(place)} of {place}" in done.stderr
    done = run_lar("results", "b.json", "--format", "csv", cwd=tmp_path)
    assert len(done.stdout.splitlines()) == 3
    assert "--copy-to-host" in done.stdout


def test_a_damaged_store_is_not_copied_and_leaves_no_other(tmp_path: Path) -> None:
    source, other = str(fill_store(tmp_path / "a.sqlite")), tmp_path / "b.sqlite"
    with sqlite3.connect(source) as connection:
        connection.execute("update results set median_seconds = 'x' where id = 2")
    for words in (["import", source, "--store"], ["export", "--store", source, "--output"]):
        assert "result 2 is damaged" in run_lar("history", *words, str(other), code=2).stderr
        assert not other.exists()
