"""Searches from Python: with a scripted engine, and with real ones for some seconds."""

from __future__ import annotations

import csv
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lar
from lar.records.tuning import TuneRequest
from lar.results.store import open_store
from lar.tuning.search import TuneProgress, search_with
from lar.tuning.session import TAG
from lar.tuning.space import make_request
from tests.cli.marks import needs_megengine
from tests.conftest import RunLar, WriteScript
from tests.known import known
from tests.refusals import refused
from tests.tuning.made_tune import LANDSCAPES

# Two switches: together they are faster than each alone; with a third the numbers are wrong.
LANDSCAPE: dict[str, Any] = LANDSCAPES["two switches"]
SEARCHED: dict[str, Any] = LANDSCAPES["with a search"]
SMALL: dict[str, Any] = LANDSCAPES["one helps, one is wrong"]


def measured(session: Path | str) -> list[tuple[str, str]]:
    """Return the tag and the status of each process in a session."""
    with open_store(str(session)) as store:
        return [(entry.tag, entry.status) for entry in store.entries()]


def test_the_fastest_with_right_numbers_wins(write_script: WriteScript, tmp_path: Path) -> None:
    inputs = [{"name": "data", "dtype": "float32", "shape": [4]}]
    model = write_script(**LANDSCAPE, inputs=inputs)
    found = lar.tune(model, budget=60, inputs=np.zeros(4, "f4"), session=tmp_path / "s")
    assert found.ending == "settled"
    assert found.best is found.ranking[0]
    assert found.best
    assert (found.best.name, found.best.outputs) == ("nchw44 + 2 threads", "equal")
    assert found.best.ratio == pytest.approx(0.48)
    assert found.best.value == pytest.approx(0.0048)
    assert found.settings == {"enable_nchw44": True, "multithread": 2}
    assert lar.run(found.best.model, np.zeros(4, "f4"), iter=1, **found.settings).status == "ok"
    assert found.to_dict()["format"] == "lar.tune/2"
    # Nine tenths faster, and wrong: never looked at again, nor combined with others afterwards.
    wrong = found.ranking[-1]
    assert (wrong.name, wrong.status, wrong.outputs) == ("nchw32", "wrong", "different")
    assert wrong.output_error == pytest.approx(0.5)
    assert wrong.error == "its outputs are not the plain run's: prob off by 5.0e-01"
    rounds = {tag.partition(":")[0] for tag, _ in measured(tmp_path / "s") if "nchw32" in tag}
    assert len(rounds) == 1
    # The ranking is records for pandas.
    frame = pytest.importorskip("pandas").DataFrame(found.ranking)
    assert list(frame["name"][:2]) == ["nchw44 + 2 threads", "2 threads"]
    assert frame["ratio"][0] == pytest.approx(0.48)
    assert frame[frame.is_best].shape[0] == 1


def test_a_tolerance_takes_what_is_nearly_right(write_script: WriteScript) -> None:
    assert "wrong" in known(lar.tune(write_script(**SMALL), budget="1m", tolerance=0.6).best).name


def test_only_a_choice_that_reduces_precision_may_round_coarsely(write_script: WriteScript) -> None:
    model = write_script(**LANDSCAPES["reduced precision"])
    found = lar.tune(model, budget=60, allow=["reduced-precision"])
    outputs = {it.name: it.outputs for it in found.ranking if it.choices}
    told = {"half": "within the tolerance", "eighth": "different", "nchw44": "different"}
    assert (known(found.best).name, outputs) == ("half", told)


@pytest.mark.parametrize("session", [True, False])
def test_settings_are_written_with_their_cache(
    write_script: WriteScript, tmp_path: Path, session: bool
) -> None:
    place = tmp_path / "s" if session else None
    found = lar.tune(write_script(**SEARCHED), budget=60, session=place)
    assert known(found.best).name == "nchw44 + fast-run"
    assert Path(str(found.settings["fast_run_algo_policy"])).is_file()
    written = found.write_settings(tmp_path / "best.json")
    assert written.options == {"enable_nchw44": True, "fast_run_algo_policy": "best.cache"}
    result = lar.run(known(found.best).model, settings=tmp_path / "best.json", iter=2)
    assert result.latency.median == pytest.approx(0.004)


def test_candidates_that_crash_or_hang_are_rows(write_script: WriteScript) -> None:
    effects = [
        {"when": {"enable_nchw44": True}, "fault": {"at": "start", "do": "abort"}},
        {"when": {"enable_nchw32": True}, "fault": {"at": "load", "do": "hang"}},
        {"when": {"multithread": 2}, "factor": 0.6},
    ]
    model = write_script(**{**LANDSCAPE, "effects": effects})
    found = lar.tune(model, budget=60, stall_timeout=2)
    statuses = {each.name: each.status for each in found.ranking}
    assert statuses["nchw44"] == "crashed"
    assert statuses["nchw32"] == "timed_out"
    assert known(found.best).name == "2 threads"
    assert all("nchw44 +" not in name for name in statuses)


def test_a_plain_run_that_fails_is_an_error(write_script: WriteScript) -> None:
    with pytest.raises(lar.LarError, match="the plain run"):
        lar.tune(write_script(faults=[{"at": "start", "do": "raise"}]), budget=5)


def test_a_file_that_is_no_model_leaves_no_session(tmp_path: Path) -> None:
    model, session = tmp_path / "m.onnx", tmp_path / "m.tune"
    model.write_text("no model")
    refused("", lar.tune, model, session=session, budget=5)
    assert not session.exists()


def test_what_a_search_found_until_its_time_ended_is_used(write_script: WriteScript) -> None:
    model = write_script(
        **{
            **SEARCHED,
            "dimensions": SEARCHED["dimensions"][1:],
            "times": [[0.001, 0.0, None]],
            "real_time": True,
            "search_seconds": 60.0,
            "search_keeps_part": True,
            "search_depends": [],
        }
    )
    found = lar.tune(model, budget=7)
    (warning,) = found.warnings
    assert re.fullmatch(
        r"fast-run: its search was stopped after \d+ s: its finds are used", warning
    )
    assert known(found.best).name == "fast-run"


def test_the_progress_says_what_is_done(write_script: WriteScript, tmp_path: Path) -> None:
    request = make_request([write_script(**SEARCHED)], {}, TuneRequest(budget_seconds=120.0))
    told: list[TuneProgress] = []
    search_with(request, str(tmp_path / "s"), tmp_path, report=told.append)
    first = [("trying plain", 0, 0), ("measuring", 0, 0), ("trying nchw44", 1, 1)]
    assert [*dict.fromkeys((it.doing, it.rounds, len(it.ranking)) for it in told)][:3] == first
    doing = "the engine searches algorithms for nchw44 + fast-run"
    assert next(it.rounds for it in told if it.doing == doing) > 1
    assert all(0 < it.left_seconds < 120 for it in told)


# Sessions


def test_a_session_is_a_store_that_others_read(
    write_script: WriteScript, tmp_path: Path, run_lar: RunLar
) -> None:
    session = str(tmp_path / "net.session")
    lar.tune(write_script(**LANDSCAPE), budget=60, session=session)
    assert "round 0: plain" in run_lar("history", "list", "--store", session, code=0).stdout
    shown = run_lar("results", session, "--format", "csv", code=0)
    found = csv.DictReader(shown.stdout.splitlines())
    rows = {row["result"].removeprefix("'") for row in found}
    assert {"plain", "--enable-nchw44 --multithread 2"} <= rows


def test_a_larger_budget_or_space_goes_on_with_what_is_there(
    write_script: WriteScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, session = write_script(**SMALL), tmp_path / "s"
    whole = lar.tune(model, budget=60, session=session)
    before = measured(session)
    again = lar.tune(model, budget=60, session=session)
    assert measured(session) == before
    assert again.ranking == whole.ranking
    # Other options are other runs, and so are runs of another version.
    lar.tune(model, budget=60, session=session, warmup_iter=3)
    assert (count := len(measured(session))) > len(before)
    monkeypatch.setattr("lar_scripted.FakeEngine.version", "2")
    lar.tune(model, budget=60, session=session)
    assert len(measured(session)) > count


def test_two_processes_do_not_search_with_one_session(
    write_script: WriteScript, tmp_path: Path
) -> None:
    model, session = write_script(**SMALL), str(tmp_path / "s")
    lar.tune(model, budget=60, session=session)
    import fcntl

    with open(session) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(lar.UsageError, match=rf"process {os.getpid()} \(.+\) has locked it"):
            lar.tune(model, budget=60, session=session)


def test_an_interrupted_search_goes_on_where_it_stood(
    write_script: WriteScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, session = write_script(**SEARCHED), tmp_path / "s"
    whole = lar.tune(model, budget=60)
    from lar.tuning.session import Session

    add, count = Session.add, 0

    def add_or_stop(self: Session, trial: Any) -> None:
        nonlocal count
        add(self, trial)
        count += 1
        if count % 3 == 0:
            raise KeyboardInterrupt

    monkeypatch.setattr(Session, "add", add_or_stop)
    for _ in range(30):
        try:
            found = lar.tune(model, budget=60, session=session)
            break
        except KeyboardInterrupt:
            pass
    assert count > 3
    assert {each.name for each in found.ranking} == {each.name for each in whole.ranking}
    assert known(found.best).name == known(whole.best).name
    searches = [tag for tag, _ in measured(session) if tag.startswith("search")]
    names = [tag.split(": ", 1)[1] for tag in searches]
    assert len(names) == len({*names})


def test_a_search_that_is_killed_repeats_nothing_that_ended(
    write_script: WriteScript, tmp_path: Path
) -> None:
    crash = {"when": {"enable_nchw32": True}, "fault": {"at": "start", "do": "abort"}}
    times, effects = {"real_time": True, "search_seconds": 0.2}, [*SEARCHED["effects"], crash]
    model = write_script(**{**SEARCHED, **times, "effects": effects})
    session = str(tmp_path / "s")
    words = [sys.executable, "-m", "lar", "tune", model, "--session", session, "--budget", "60"]
    for _ in range(2):
        process = subprocess.Popen(
            words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        before = len(measured(session)) if os.path.exists(session) else 0
        deadline = time.monotonic() + 30
        while process.poll() is None and time.monotonic() < deadline:
            is_there = os.path.exists(session) and os.path.getsize(session)
            if is_there and len(measured(session)) > before:
                break
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert subprocess.run(words, stdout=subprocess.DEVNULL, check=True).returncode == 0
    found = [TAG.fullmatch(tag) for tag, _ in measured(session)]
    ends = Counter(each[3] for each in found if each and each[1] == "search")
    assert all(count == 1 for count in ends.values())
    assert len([tag for tag, status in measured(session) if status == "crashed"]) == 1


# Real engines


@pytest.mark.parametrize("suffix", ["mge", "onnx"])
def test_a_real_engine_is_searched(suffix: str) -> None:
    found = lar.tune(f"models/digits_cnn.{suffix}", budget=1.0)
    assert found.ending in ("budget", "settled")
    assert next(each for each in found.ranking if not each.choices).status == "ok"
    assert all(each.status != "failed" for each in found.ranking), found.ranking


@needs_megengine
def test_of_rivals_the_engine_that_is_faster_wins() -> None:
    """MegEngine takes many times as long, and more beside other work."""
    for budget in (2, 30):  # a busy machine may start only one of them in time
        found = lar.tune(["models/digits_cnn.mge", "models/digits_cnn.onnx"], budget=budget)
        if known(found.best).engine == "onnxruntime":
            break
    assert known(found.best).engine == "onnxruntime"
    assert known(found.best).outputs == "within the tolerance"


@needs_megengine
def test_twins_that_take_other_inputs_are_not_trusted(tmp_path: Path) -> None:
    models = []
    for name, twin in (("digits_cnn.mge", "net.mge"), ("one_operator.onnx", "net.onnx")):
        models.append(tmp_path / twin)
        shutil.copy(f"models/{name}", models[-1])
    for budget in (2, 20):
        found = lar.tune(models, budget=budget)
        if others := [each for each in found.ranking if each.engine == "onnxruntime"]:
            break
    assert {each.status for each in others} == {"wrong"}
    said = "it is not fed with the plain run's data; give both the same `--input`"
    assert others[0].error == f"its outputs are not the plain run's: {said}"


def test_weights_in_a_file_beside_the_model_belong_to_it(tmp_path: Path, run_lar: RunLar) -> None:
    onnx = pytest.importorskip("onnx")
    weights = tmp_path / "net.data"
    graph = onnx.load("models/digits_cnn.onnx")
    onnx.save(graph, str(tmp_path / "net.onnx"), save_as_external_data=True, location="net.data")
    words = ("tune", "net.onnx", "--budget", "1", "--session", "net.tune", "-o", "net.json")
    run_lar(*words, cwd=tmp_path, code=0)
    again = ("run", "net.onnx", "--settings", "net.json", "--iter", "1")
    assert run_lar(*again, cwd=tmp_path).returncode == 0
    (tmp_path / "best.json").write_bytes((tmp_path / "net.json").read_bytes())
    weights.write_bytes(bytes(len(weights.read_bytes())))
    changed = run_lar(*words, cwd=tmp_path, code=0)
    unused = "(1 result is|[2-9] results are) of another model, machine, engine or command"
    assert re.search(f"{unused}, and not used\n", changed.stdout)
    run_lar("run", "net.onnx", "--settings", "best.json", "--iter", "1", cwd=tmp_path, code=2)


def test_a_round_ends_with_the_budget(
    write_script: WriteScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What does not start in time is not measured, and has not failed."""
    monkeypatch.setattr("lar.tuning.search.STALL_SECONDS", 40.0)  # what hangs would be given
    effects = [
        {"when": {"enable_nchw32": True}, "fault": {"at": "load", "do": "hang"}},
        {"when": {"multithread": 2}, "factor": 0.6},
    ]
    began = time.monotonic()
    found = lar.tune(write_script(**{**LANDSCAPE, "effects": effects}), budget=2.5)
    assert time.monotonic() - began < 30
    assert found.ending == "budget"
    assert {each.status for each in found.ranking} == {"ok"}
    assert "nchw32" not in [each.name for each in found.ranking]
