"""`lar history`, and `--save` of a run."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from lar.records.run import RunResult, record_to_json
from lar.results.store import Selection, open_store
from tests.browser import NEEDS_BROWSER, opened, unreadable
from tests.conftest import REPOSITORY, RunLar, WriteScript
from tests.results.made_results import make_result, make_runs

LOGS = REPOSITORY / "tests" / "data" / "load_and_run"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store: five runs tagged v1, five that are slower, one alone, two with an option, one that
    crashed."""
    path = tmp_path_factory.mktemp("history") / "store.sqlite"
    with open_store(str(path), create=True) as store:
        store.add(make_runs(5, 0.010, seed=1), "v1")
        store.add(make_runs(5, 0.0105, seed=2), "v2")
        store.add(make_runs(1, 0.010, seed=3))
        store.add(make_runs(2, 0.020, seed=4, multithread=2), "v1")
        store.add([make_result(model="other.mge", sha256="c" * 64)], "broken")
    return path


@pytest.fixture
def store(filled: Path, tmp_path: Path) -> str:
    """A store of one's own."""
    return str(shutil.copy(filled, tmp_path / "store.sqlite"))


def test_a_run_is_saved_and_listed(
    run_lar: RunLar, write_script: WriteScript, tmp_path: Path
) -> None:
    place = str(tmp_path / "s.sqlite")
    words = ["--iter", "3", "--save", "--tag", "first", "--store", place]
    done = run_lar(write_script(), *words)
    assert done.returncode == 0
    assert done.stderr.endswith(f"lar: note: saved as result 1 of {place}\n")
    assert "saved" not in done.stdout
    done = run_lar("history", "list", "--store", place)
    header, row = done.stdout.splitlines()
    assert header.split()[:4] == ["id", "saved", "tag", "model"]
    assert row.split()[3:5] == ["first", "script_0.fake"]


def test_a_run_that_fails_is_saved(
    run_lar: RunLar, write_script: WriteScript, tmp_path: Path
) -> None:
    script = write_script(faults=[{"at": "load", "do": "raise"}])
    place = str(tmp_path / "s.sqlite")
    done = run_lar(script, "--save", "--store", place)
    assert done.returncode == 2
    assert "failed" in run_lar("history", "list", "--store", place).stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tag", "v1"], "--tag"),
        (["--store", "s"], "--store"),
        (["--save", "--tag", " "], "--tag: ' ' is not a tag"),
        (["--save", "--store", "no/s"], "--store: no: there is no such folder"),
        (["--save", "--store", "text"], "text: is not a store of lar"),
        (["--save", "--store", "same", "--json", "same"], "--json and --store"),
    ],
)
def test_what_cannot_be_saved_is_refused_before_the_run(
    words: list[str], message: str, run_lar: RunLar, write_script: WriteScript, tmp_path: Path
) -> None:
    (tmp_path / "text").write_text("text " * 200)
    done = run_lar(write_script(), *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr.splitlines()[0]


def test_the_list_has_the_newest_and_what_varies(run_lar: RunLar, store: str) -> None:
    done = run_lar("history", "list", "--store", store, "-n", "3")
    lines = done.stdout.splitlines()
    assert len(lines) == 5
    assert "--multithread 2" in lines[1]
    assert "machine" not in lines[0]
    assert lines[3].split()[-3:] == ["crashed", "0", "N/A"]
    assert lines[4] == "(11 older: -n 0 shows all)"
    done = run_lar("history", "list", "--store", store, "--tag", "v2", "--format", "csv")
    assert len(done.stdout.splitlines()) == 6
    done = run_lar("history", "list", "--store", store, "--tag", "none")
    assert done.stdout == f"no result of {store} fits\n"


def test_results_are_shown_side_by_side_or_whole(run_lar: RunLar, store: str) -> None:
    done = run_lar("history", "show", "1", "6", "--baseline", "6", "--store", store)
    assert done.returncode == 0
    assert [line.split()[:2] for line in done.stdout.splitlines()[-4:-2]] != []
    assert "#6 v2" in done.stdout
    done = run_lar("history", "show", "2", "--json", "-", "--store", store)
    assert json.loads(done.stdout)["status"] == "ok"
    done = run_lar("history", "show", "1", "2", "--json", "-", "--store", store)
    assert done.stderr.startswith("lar: error: --json: takes one result")


def test_times_are_plotted(run_lar: RunLar, store: str, tmp_path: Path) -> None:
    done = run_lar("history", "plot", "--store", store)
    lines = done.stdout.splitlines()
    assert lines[1].split()[:2] == ["net.onnx", "11"]
    assert lines[2].startswith("net.onnx --multithread 2 ")
    page = tmp_path / "plot.html"
    done = run_lar("history", "plot", "--store", store, "--html", str(page))
    assert done.stdout == f"wrote {page}\n"
    assert "drawCurve" in page.read_text()
    assert "net.onnx --multithread 2" in page.read_text()
    done = run_lar("history", "plot", "--store", store, "--tag", "broken")
    assert done.returncode == 2


@NEEDS_BROWSER
def test_the_page_of_a_plot_is_drawn(run_lar: RunLar, store: str, tmp_path: Path) -> None:
    done = run_lar("history", "plot", "--store", store, "--html", "-")
    page = opened(done.stdout, tmp_path, width=400, scheme="dark")
    assert unreadable(page) == []
    assert page.console() == []
    drawn = page.elements()
    assert "NaN" not in drawn.partition("<main")[2].partition("<script")[0]
    assert drawn.count("<circle") > 11


def test_a_regression_is_exit_code_1(run_lar: RunLar, store: str) -> None:
    done = run_lar("history", "check", "--baseline", "v1", "--tag", "v2", "--store", store)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].startswith("result: slower: net.onnx by ")
    done = run_lar("history", "check", "--baseline", "v2", "--tag", "v1", "--store", store)
    assert done.returncode == 2  # of the runs with --multithread 2 there is nothing to compare with
    assert "faster" in done.stdout
    missing = "no run of v2 is comparable with net.onnx --multithread 2"
    assert f"warning: {missing}" in done.stdout
    assert done.stdout.splitlines()[-1].startswith(f"result: {missing}")


def test_a_new_file_is_checked(run_lar: RunLar, store: str, tmp_path: Path) -> None:
    (result,) = make_runs(1, 0.010, seed=9)
    new = tmp_path / "new.json"
    new.write_bytes(record_to_json(result))
    done = run_lar("history", "check", "--baseline", "v1", str(new), "--store", store)
    assert (done.returncode, done.stderr) == (0, "")
    header, row, note, verdict = done.stdout.splitlines()
    assert header.split()[-2:] == ["interval", "verdict"]
    assert "no difference shown (smallest detectable: " in row
    assert note.startswith("note: net.onnx: each side is of one sitting")
    assert verdict == "result: passed: 1 no difference shown"


def test_a_new_run_that_failed_never_passes(run_lar: RunLar, store: str) -> None:
    done = run_lar("history", "check", "--baseline", "v1", "--tag", "broken", "--store", store)
    sentence = "result: failed: the new run of other.mge: it broke\n"
    assert (done.returncode, done.stdout) == (4, sentence)
    words = ["history", "check", "--baseline", "v1", "--tag", "broken", "--store", store]
    done = run_lar(*words, "--format", "json")
    assert (json.loads(done.stdout)["tables"][0]["rows"], done.stderr) == ([], sentence)


def test_a_tag_is_not_checked_against_itself(run_lar: RunLar, store: str) -> None:
    done = run_lar("history", "check", "--baseline", "v1", "--tag", "v1", "--store", store)
    assert done.returncode == 2
    assert done.stderr.startswith("lar: error: --tag: v1: is the baseline too\n")


def test_a_list_of_nothing_has_the_form_that_was_asked_for(run_lar: RunLar, store: str) -> None:
    words = ["history", "list", "--store", store, "--tag", "none"]
    assert run_lar(*words).stdout == f"no result of {store} fits\n"
    assert json.loads(run_lar(*words, "--format", "json").stdout)["tables"][0]["rows"] == []
    assert run_lar(*words, "--format", "csv").stdout.startswith("id,saved,tag,")


def test_another_store_is_imported_with_its_tags(
    run_lar: RunLar, store: str, tmp_path: Path
) -> None:
    other = str(tmp_path / "other.sqlite")
    done = run_lar("history", "add", store, "--store", other)
    assert done.returncode == 2
    assert "is a store, whose results have tags" in done.stderr
    assert "`lar history import` keeps them" in done.stderr
    done = run_lar("history", "add", f"old={store}", "--tag", "all", "--store", other)
    assert done.returncode == 0, done.stderr
    os.remove(other)
    done = run_lar("history", "import", store, "--store", other)
    assert done.returncode == 0, done.stderr
    with open_store(store) as one, open_store(other) as two:
        assert one.entries() == two.entries()


def test_a_check_of_disturbed_runs_judges_nothing(
    run_lar: RunLar, store: str, tmp_path: Path
) -> None:
    new = tmp_path / "new.json"
    new.write_bytes(record_to_json(disturbed(*make_runs(1, 0.010, seed=9))))
    words = ["history", "check", "--baseline", "v1", str(new), "--store", store]
    done = run_lar(*words)
    assert done.returncode == 0
    assert done.stdout.endswith("\nresult: nothing judged: all new runs were disturbed\n")
    done = run_lar(*words, "--fail-if-unjudged", "--format", "csv")
    assert done.returncode == 5
    assert done.stderr == "result: not judged: net.onnx: all new runs were disturbed\n"


def disturbed(run: RunResult) -> RunResult:
    """A run each of whose iterations waited for a CPU."""
    samples = replace(run.samples, queue_delay=tuple(0.5 * it for it in run.samples.end_to_end))
    return replace(run, samples=samples)


def test_the_newest_stored_run_is_checked_with_those_of_its_tag(
    run_lar: RunLar, store: str
) -> None:
    with open_store(store) as opened:
        opened.add(make_runs(1, 0.015, seed=8))
    done = run_lar("history", "check", "--baseline", "v1", "--store", store)
    assert done.returncode == 1
    with open_store(store) as opened:
        opened.add(make_runs(4, 0.010, seed=7), "v3")
    done = run_lar("history", "check", "--baseline", "v1", "--store", store, "--format", "csv")
    assert done.returncode == 0
    assert done.stdout.splitlines()[1].startswith("net.onnx,4,5,runs,")


def test_a_model_is_run_and_checked(
    run_lar: RunLar, write_script: WriteScript, tmp_path: Path
) -> None:
    place, script = str(tmp_path / "s.sqlite"), write_script(times=[[0.002, 0.001, 0.002]])
    for _ in range(2):
        run_lar(script, "--iter", "9", "--save", "--tag", "v1", "--store", place)
    words = ["--baseline", "v1", "--tag", "new", "--runs", "2", "--store", place]
    done = run_lar("history", "check", *words, "--run", script, "--iter", "9")
    assert done.returncode in (0, 1), done.stderr
    assert "run 2 of 2" in done.stderr
    assert run_lar("history", "list", "--store", place).stdout.count(" new ") == 2
    for flags, message in (
        (["--json", "x"], "--json: does not go with --run"),
        (["--itr", "3"], "unrecognized arguments: --itr"),
    ):
        done = run_lar("history", "check", *words, "--run", script, *flags)
        assert done.returncode == 2
        assert message in done.stderr


def test_a_run_that_fails_now_is_a_side_that_failed(
    run_lar: RunLar, write_script: WriteScript, store: str
) -> None:
    broken = write_script(faults=[{"at": "load", "do": "abort"}])
    words = ["--baseline", "v1", "--tag", "new", "--store", store, "--run", broken]
    done = run_lar("history", "check", *words)
    assert done.returncode == 4
    name = Path(broken).name
    assert done.stdout.startswith(f"result: failed: the new run of {name}: the engine crashed in ")
    assert run_lar("history", "list", "--store", store, "--tag", "new").stdout.startswith("no ")


def test_another_engine_version_is_noted(run_lar: RunLar, store: str, tmp_path: Path) -> None:
    (result,) = make_runs(1, 0.010, seed=9)
    assert result.engine is not None
    newer = replace(result, engine=replace(result.engine, version="2.0"), lar_version="9")
    new = tmp_path / "new.json"
    new.write_bytes(record_to_json(newer))
    done = run_lar("history", "check", "--baseline", "v1", str(new), "--store", store)
    assert "engine fake 2.0 (baseline fake 1.0); lar 9 (baseline 0.1.0)" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--baseline", "v9"], "--baseline: v9: no stored result has this tag"),
        (["--baseline", "v1", "--tag", "v9"], "--tag v9: no stored result has this tag"),
        (["--baseline", "v1", "none.json"], "none.json: no such result file"),
        (
            ["--baseline", "v1", f"{LOGS}/mobilenet_default.txt"],
            "the model of this run is not known, so nothing can be compared: give --model",
        ),
        (["--baseline", "v1", "x.json", "--run", "x"], "--run and FILE cannot go together"),
        (["--baseline", ""], "--baseline: '' is not a tag: give a short text"),
        ([], "--baseline: is required"),
    ],
)
def test_without_a_comparable_run_the_check_says_why(
    words: list[str], message: str, run_lar: RunLar, store: str
) -> None:
    done = run_lar("history", "check", "--store", store, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"lar: error: {message}")


def test_logs_of_phones_are_added_with_model_and_machine(
    run_lar: RunLar, root: Path, tmp_path: Path
) -> None:
    place = str(tmp_path / "s.sqlite")
    flags = ["--model", str(root / "models" / "mobilenet_v2.mge"), "--machine", "pixel"]
    files = [f"{LOGS}/mobilenet_{name}.txt" for name in ("default", "nchw88")]
    done = run_lar("history", "add", *files, *flags, "--tag", "phone", "--store", place)
    assert done.stdout == f"stored 2 results in {place}\n"
    done = run_lar("history", "add", *files, *flags, "--tag", "phone", "--store", place)
    assert done.stdout == f"stored 0 results in {place}; 2 were there already\n"
    done = run_lar("history", "list", "--store", place, "--machine", "pix", "--format", "csv")
    assert "mobilenet_v2.mge" in done.stdout
    check = ["check", "--baseline", "phone", files[0], *flags, "--store", place]
    done = run_lar("history", *check)
    assert done.returncode == 0
    assert "not judged (1 against 1, and two on each side are needed)" in done.stdout
    done = run_lar("history", *check[:4], "--store", place)
    assert done.returncode == 2
    assert "is not known, so nothing can be compared: give --model" in done.stderr
    done = run_lar("history", *check[:4], *flags[:2], "--store", place)
    assert "is not known, so nothing can be compared: give --machine" in done.stderr
    done = run_lar("history", *check[:4], *flags[:3], "other", "--store", place)
    assert "differs in machine (other, not pixel)" in done.stderr


def test_results_go_to_another_store(run_lar: RunLar, store: str, tmp_path: Path) -> None:
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
    done = run_lar("history", "export", "-o", store, "--store", store)
    assert done.returncode == 2
    assert count_of(store) == 14


def count_of(store: str) -> int:
    connection = sqlite3.connect(store)
    (count,) = connection.execute("select count(*) from results").fetchone()
    connection.close()
    return int(count)


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (["--tag", "v2"], 9),
        (["1", "2"], 12),
        (["--keep", "3"], 6),
        (["--keep", "2", "--tag", "v1"], 11),
        (["--older-than", "1d"], 14),
        (["--before", "2999-01-01"], 0),
    ],
)
def test_results_are_removed_when_that_is_meant(
    words: list[str], left: int, run_lar: RunLar, store: str
) -> None:
    done = run_lar("history", "prune", *words, "--store", store)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].startswith(f"would remove {14 - left} of 14 results")
    assert count_of(store) == 14
    done = run_lar("history", "prune", *words, "--yes", "--store", store)
    assert done.stdout == f"removed {14 - left} of 14 results\n"
    assert count_of(store) == left


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["prune", "--yes"], "which results to remove is not said"),
        (["prune", "99"], "the store has no result 99"),
        (["prune", "--older-than", "soon"], "--older-than: 'soon' is not an age"),
        (["list", "--since", "soon"], "--since: 'soon' is not a day"),
        (["list", "--store", "none.sqlite"], "none.sqlite: there is no such store"),
        (["show", "99"], "the store has no result 99"),
        (["add", "none.json"], "none.json: no such result file"),
        (["import", "none.json"], "none.json: there is no such store"),
        (["lst"], ""),
        ([], "the following arguments are required"),
    ],
)
def test_what_is_wrong_is_a_line(
    words: list[str], message: str, run_lar: RunLar, store: str
) -> None:
    own = [] if "--store" in words or len(words) < 2 else ["--store", store]
    done = run_lar("history", *words, *own)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("lar: error: ")
    assert message in done.stderr.splitlines()[0]
    assert count_of(store) == 14


def test_the_processes_of_a_bench_are_saved(
    run_lar: RunLar, write_script: WriteScript, tmp_path: Path
) -> None:
    place, script = str(tmp_path / "s.sqlite"), write_script()
    bench = ["bench", script, "--vary", "copy-to-host", "--budget", "0.5", "--json", "b.json"]
    done = run_lar(*bench, "--save", "--tag", "b", "--store", place, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"lar: note: saved as results 1 to {count_of(place)} of {place}" in done.stderr
    done = run_lar("results", "b.json", "--format", "csv", cwd=tmp_path)
    assert len(done.stdout.splitlines()) == 3
    assert "--copy-to-host" in done.stdout
    done = run_lar(*bench, "--tag", "b", cwd=tmp_path)
    assert done.stderr.startswith("lar: error: --tag needs --save: nothing is stored")


@pytest.mark.parametrize("words", [["--baseline", "v1"], ["--baseline=v1"], ["--fail-if-slower"]])
def test_a_flag_of_a_check_that_run_takes_is_named(
    run_lar: RunLar, store: str, words: list[str]
) -> None:
    done = run_lar("history", "check", "--store", store, "--run", "net.onnx", *words)
    assert done.returncode == 2
    flag = words[0].partition("=")[0]
    assert done.stderr.startswith(f"lar: error: {flag}: stands after --run, which takes all")
    assert "hint: put it before --run" in done.stderr
