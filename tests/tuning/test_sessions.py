"""Sessions of several days and machines: side by side in `lar results`, and merged."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from lar.records.choices import Choice, Dimension
from lar.records.run import record_to_json
from lar.records.tuning import Candidate, TuneRequest
from lar.tuning.ranking import rank_candidates
from lar.tuning.session import SessionFacts, open_session, read_session
from lar.tuning.sessions import merge_sessions, read_result
from tests.conftest import RunLar
from tests.results.made_results import make_result
from tests.tuning.made_sessions import (
    BROKEN,
    FAST,
    SLOW,
    make_facts,
    make_request,
    make_trial,
)

SEARCHED = Candidate(choices=("searched",))


def write_session(
    place: Path,
    times: Mapping[Candidate, float],
    *,
    facts: SessionFacts | None = None,
    request: TuneRequest | None = None,
    plain: float = 0.01,
    cache: bytes = b"",
    count: int = 4,
) -> str:
    """Write a session of trials that differ by 1 %; all candidates fill a cache if there is one."""
    facts = facts or make_facts()
    file = place.with_suffix(".cache")
    file.write_bytes(cache)
    with open_session(str(place), request or make_request(), facts=facts) as session:
        for number in range(count):
            slower = {each: time * (1 + number / 100) for each, time in times.items()}
            name = "searched" if cache else ""
            trial = make_trial(number, slower, plain=plain, cache=name)
            session.record(
                replace(trial, machine=facts.machine), {"searched": file} if cache else {}
            )
    file.unlink()
    return str(place)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sessions of two machines."""
    folder = tmp_path_factory.mktemp("sessions")
    write_session(folder / "here.tune", {FAST: 0.005, SLOW: 0.012, BROKEN: 0.0})
    other = make_facts("another")
    write_session(folder / "there.tune", {SLOW: 0.01, FAST: 0.03}, facts=other, plain=0.02)
    return folder


def test_sessions_of_two_machines_stand_side_by_side(run_lar: RunLar, folder: Path) -> None:
    done = run_lar("results", "here.tune", "pc=there.tune", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[:3] == ["model: net.mge (aaaaaaaa)", "options: none", "objective: latency"]
    assert lines[6].startswith("here.tune: a processor, 2 of 4 cores, 8 GiB; 20")
    assert lines[6].endswith("; 4 trials in 11 s; best: blocked + 2 threads, ratio 0.507")
    assert lines[7].startswith("pc: another, 2 of 4 cores, 8 GiB; 20")
    assert lines[9].split() == ["here.tune", "pc"]
    figures = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines[10:15]]
    assert figures[0] == ["candidate", *["median ms", "ratio", "95 % interval"] * 2]
    assert [row[0] for row in figures[1:]] == [
        *("2 threads", "blocked + 2 threads", "plain", "blocked")
    ]
    assert figures[3][1:] == ["10.125", "1.000", "20.250", "1.000"]
    assert figures[4][1:] == ["crashed", "-"]
    assert lines[-1] == (
        "a ratio is to the plain run of the same search, whose times were taken in turns"
    )


def test_what_machines_have_in_common_stands_above(run_lar: RunLar, folder: Path) -> None:
    done = run_lar("results", "here.tune", "here.tune", cwd=folder)
    assert "machine: a processor, 2 of 4 cores, 8 GiB" in done.stdout.splitlines()
    assert "here.tune (2): 20" in done.stdout
    assert "whose times" not in done.stdout


def test_csv_and_pages_have_a_column_for_each_figure(run_lar: RunLar, folder: Path) -> None:
    done = run_lar("results", "here.tune", "there.tune", "--format", "csv", cwd=folder)
    rows = [*csv.DictReader(io.StringIO(done.stdout))]
    assert rows[2]["candidate"] == "plain"
    assert float(rows[2]["here.tune seconds"]) == pytest.approx(0.010125)
    assert float(rows[1]["there.tune ratio"]) == pytest.approx(1.52, abs=0.01)
    assert (rows[3]["here.tune status"], rows[3]["there.tune status"]) == ("crashed", "")
    page = run_lar("results", "here.tune", "there.tune", "--format", "html", cwd=folder).stdout
    assert page.startswith("<!doctype html>")
    assert "Searches side by side" in page
    assert json.loads(run_lar("results", "here.tune", "--format", "json", cwd=folder).stdout)


def test_a_session_without_trials_has_no_figures(run_lar: RunLar, tmp_path: Path) -> None:
    place = write_session(tmp_path / "new.tune", {}, count=0)
    lines = run_lar("results", place).stdout.splitlines()
    assert lines[7].endswith("; no trials in 0 s")
    assert lines[-1].split() == ["plain", "-"]


def test_candidates_of_one_name_that_are_not_the_same_have_rows_of_their_own(
    run_lar: RunLar, folder: Path, tmp_path: Path
) -> None:
    request = make_request()
    threads = Choice(name="2 threads", options={"multithread": 3})
    layout, _ = request.spaces[0].dimensions
    space = replace(
        request.spaces[0], dimensions=(layout, Dimension(name="threads", choices=(threads,)))
    )
    other = replace(request, spaces=(space,))
    place = write_session(tmp_path / "other.tune", {SLOW: 0.004}, request=other)
    done = run_lar("results", "here.tune", place, cwd=folder)
    assert "2 threads (--multithread 2) " in done.stdout
    assert "2 threads (--multithread 3) " in done.stdout


def test_results_of_runs_and_of_searches_are_not_mixed(
    run_lar: RunLar, folder: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run.json"
    run.write_bytes(record_to_json(make_result([0.01])))
    done = run_lar("results", "here.tune", str(run), cwd=folder)
    assert done.returncode == 2
    assert f"{run}: is not of lar tune, and here.tune is" in done.stderr
    for flags, problem in (
        (["--by", "machine"], "--by: is for results of runs"),
        (["--baseline", "none"], "--baseline: is for results of runs"),
    ):
        done = run_lar("results", "here.tune", *flags, cwd=folder)
        assert done.returncode == 2
        assert problem in done.stderr
    done = run_lar("results", str(run), "--merge", "out.tune", cwd=folder)
    assert (done.returncode, "--merge: merges sessions" in done.stderr) == (2, True)


def test_json_of_a_search_stands_beside_sessions(
    run_lar: RunLar, folder: Path, tmp_path: Path
) -> None:
    json_file = tmp_path / "net.json"
    result = read_result(str(folder / "here.tune"))
    json_file.write_text(result.to_json())
    assert read_result(str(json_file)) == result
    done = run_lar("results", str(json_file), str(folder / "there.tune"))
    assert done.returncode == 0
    assert done.stdout.splitlines()[6].startswith("net.json: a processor")
    json_file.write_text(result.to_json().replace('"settled"', '"x"').replace('"ok"', '"odd"'))
    done = run_lar("results", str(json_file))
    assert (done.returncode, "is damaged, or of another version" in done.stderr) == (2, True)
    done = run_lar("results", str(json_file), "--merge", str(tmp_path / "out.tune"))
    assert done.returncode == 2
    assert "is not a session of lar tune" in done.stderr


# Merging


def test_sessions_of_two_days_are_merged(run_lar: RunLar, folder: Path, tmp_path: Path) -> None:
    second = write_session(tmp_path / "b.tune", {SLOW: 0.011, BROKEN: 0.0}, count=3)
    out = tmp_path / "both.tune"
    done = run_lar("results", "here.tune", second, "--merge", str(out), cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        f"wrote {out}: 7 trials of 2 sessions; lar tune --resume {out} goes on\n"
    )
    with read_session(str(folder / "here.tune")) as one, read_session(second) as other:
        first, trials = one.trials, [*one.trials, *other.trials]
        spent = one.spent_seconds + other.spent_seconds
    with open_session(str(out), facts=make_facts()) as merged:
        assert merged.request == make_request(budget_seconds=240.0)
        assert [trial.number for trial in merged.trials] == [*range(7)]
        assert merged.trials[:4] == first
        assert [[row.candidate for row in it.rows] for it in merged.trials] == [
            [row.candidate for row in it.rows] for it in trials
        ]
        assert merged.spent_seconds == spent
        rounds = [{turn.round for row in it.rows for turn in row.turns} for it in merged.trials]
        assert len(set.union(*rounds)) == 7
        ranking = rank_candidates(merged.request, merged.trials)
        merged.record(make_trial(7, {FAST: 0.005}))
    assert {each.name: each.looks for each in ranking} == {
        "blocked + 2 threads": 4,
        "plain": 7,
        "2 threads": 7,
        "blocked": 0,
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.tune", "both.tune"]


def test_a_copy_adds_only_what_it_has_more(tmp_path: Path) -> None:
    one = write_session(tmp_path / "a.tune", {FAST: 0.005})
    other = shutil.copy(one, tmp_path / "b.tune")
    with open_session(str(other), facts=make_facts()) as session:
        session.record(make_trial(4, {SLOW: 0.012}))
        trials = session.trials
    merged = merge_sessions([one, str(other)], str(tmp_path / "c.tune"))
    assert merged[:4] == trials[:4]
    assert [[row.candidate for row in it.rows] for it in merged] == [
        [row.candidate for row in it.rows] for it in trials
    ]


def test_spaces_are_joined_and_the_better_cache_is_kept(tmp_path: Path) -> None:
    request = make_request()
    layout, _ = request.spaces[0].dimensions
    small = replace(request, spaces=(replace(request.spaces[0], dimensions=(layout,)),), allowed=())
    more = replace(request, allowed=("engine-env",))
    one = write_session(
        tmp_path / "a.tune", {SEARCHED: 0.008}, request=small, cache=b"the slower one"
    )
    other = write_session(
        tmp_path / "b.tune", {SEARCHED: 0.006}, request=more, cache=b"the faster one"
    )
    for number, words in enumerate(([one, other], [other, one])):
        out = str(tmp_path / f"{number}.tune")
        merge_sessions(words, out)
        with read_session(out) as merged:
            assert {each.name for each in merged.request.spaces[0].dimensions} == {
                *("layout", "threads")
            }
            assert merged.request.allowed == ("engine-env",)
            assert merged.get_cache("searched", tmp_path / "back")
            assert (tmp_path / "back").read_bytes() == b"the faster one"


@pytest.mark.parametrize(
    ("facts", "request_of", "problem"),
    [
        (make_facts("another"), make_request(), "the processor is another, not a processor"),
        (
            make_facts(sha256="b" * 64),
            make_request(),
            "net.mge has SHA-256 bbbbbbbbbbbb, not aaaaaaaaaaaa",
        ),
        (
            make_facts(engines={"fake": "2.0"}),
            make_request(),
            "the version of fake is 2.0, not 1.0",
        ),
        (
            make_facts(),
            replace(make_request(), objective="memory"),
            "--objective memory, not latency",
        ),
        (make_facts(), make_request(options={"batch_size": 2}), "--batch-size 2, not no options"),
    ],
)
def test_what_is_not_alike_is_not_merged(
    facts: SessionFacts,
    request_of: TuneRequest,
    problem: str,
    run_lar: RunLar,
    folder: Path,
    tmp_path: Path,
) -> None:
    place = tmp_path / "other.tune"
    other = write_session(place, {FAST: 0.005}, facts=facts, request=request_of, count=0)
    out = tmp_path / "out.tune"
    done = run_lar("results", "here.tune", other, "--merge", str(out), cwd=folder)
    assert done.returncode == 2
    assert f"{other}: cannot be merged with here.tune: " in done.stderr
    assert problem in done.stderr
    assert not out.exists()


def test_merging_replaces_nothing(run_lar: RunLar, folder: Path) -> None:
    before = (folder / "here.tune").read_bytes()
    done = run_lar("results", "here.tune", "--merge", "here.tune", cwd=folder)
    assert (done.returncode, "here.tune: exists already" in done.stderr) == (2, True)
    done = run_lar("results", "here.tune", "--merge", "none/here.tune", cwd=folder)
    assert (done.returncode, "none/here.tune: cannot be written" in done.stderr) == (2, True)
    assert (folder / "here.tune").read_bytes() == before
