"""`lar advise MODEL`: a profile, what it speaks for, and what that gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lar
from lar.reports.bench_report import is_proven
from tests.command_lines import run_lar
from tests.conftest import WriteScript
from tests.tuning.made_tune import LANDSCAPES

ADVISED: dict[str, Any] = LANDSCAPES["advised"]


def script(write: WriteScript, gains: dict[str, float], **fields: Any) -> str:
    """A script whose profile speaks for some of its choices."""
    return write(**{**ADVISED, "gains": gains, **fields})


def test_a_model_is_profiled_and_what_is_suggested_is_tried(
    write_script: WriteScript, tmp_path: Path
) -> None:
    model = script(write_script, {"ioc16": 0.6, "nchw88": 1.0, "weights": 0.9, "nchw44": 0.1})
    before = set(tmp_path.rglob("*"))
    done = run_lar("advise", model, "--iter", "3", cwd=tmp_path, code=0)
    time, slowest, *_, what, _, _, plain, layout, weights, precision, _, best, command = (
        done.stdout.splitlines()
    )
    assert time.startswith("time: 10.000 ms an iteration (median of 3 ")
    assert slowest.startswith("slowest: Convolution conv, ")
    assert "\ntry: " not in done.stdout
    assert ": 4 variants, " in what
    assert plain.startswith("as it is")
    assert "10.000" in plain
    assert "faster" in layout
    assert "  equal bit by bit  " in layout
    assert layout.endswith("  the script takes 100% of the time")
    assert "the engine crashed in phase load" in weights
    assert "different" in precision
    assert best == "best: --enable-nchw88 is 2.00 times as fast (2.00 to 2.00), outputs equal"
    assert command == f"command: lar {model} --enable-nchw88"
    assert "--enable-nchw44" not in done.stdout
    assert set(tmp_path.rglob("*")) == before  # no profile is left


def test_the_profile_keeps_what_was_tried_for_its_report(
    write_script: WriteScript, tmp_path: Path
) -> None:
    model, place = script(write_script, {"nchw88": 0.6}), tmp_path / "p.json"
    run_lar("advise", model, "--profile", str(place), code=0)
    (kept,) = lar.read_profile(place).facts.tried
    assert (kept.flags, is_proven(kept), kept.outputs) == ("--enable-nchw88", True, "equal")
    text = run_lar("report", str(place)).stdout
    assert "\ntry: --enable-nchw88 is 2.00 times as fast (2.00 to 2.00)" in text
    run_lar(model, "--profile", str(place))
    text = run_lar("report", str(place)).stdout
    assert "\ntry: --enable-nchw88, as the script takes 60% of the time (not tried; lar a" in text


def test_a_race_that_is_too_short_names_the_likely_winner(write_script: WriteScript) -> None:
    model = script(write_script, {"nchw88": 0.6})
    *_, best, command = run_lar("advise", model, "--budget", "0.01", code=0).stdout.splitlines()
    assert best == (
        "best: --enable-nchw88 is likely faster: 2.00 times as fast so far, not proven; "
        "--budget 0.03 may prove it"
    )
    assert command == f"command: lar {model} --enable-nchw88"


def test_where_nothing_is_faster_the_command_is_that_of_the_run(write_script: WriteScript) -> None:
    model = script(write_script, {"ioc16": 0.6})
    *_, best, command = run_lar("advise", model, "--warmup-iter", "2").stdout.splitlines()
    assert best == "best: no setting is shown to be faster among --enable-ioc16"
    assert command == f"command: lar {model} --warmup-iter 2"


def test_its_flags_are_those_of_the_run(write_script: WriteScript) -> None:
    effects = [*ADVISED["effects"], {"when": {"fast_run_algo_policy": True}, "factor": 0.5}]
    model = script(write_script, {"fast-run": 0.6, "nchw88": 0.4}, effects=effects)
    done = run_lar("advise", model, "--enable-nchw88", "--iter", "2", code=0)
    assert done.stdout.startswith("time: 5.000 ms an iteration (median of 2 ")
    (plain,) = (line for line in done.stdout.splitlines() if line.startswith("as it is"))
    assert " 5.000 " in plain
    cache = f"{Path(model).stem}.cache"
    assert done.stdout.endswith(
        "best: --fast-run --fast-run-algo-policy FILE is 2.00 times as fast (2.00 to 2.00), "
        "outputs equal\n"
        f"command: lar {model} --enable-nchw88 --fast-run --fast-run-algo-policy {cache}\n"
    )


def test_where_nothing_is_suggested_the_lines_say_so(write_script: WriteScript) -> None:
    done = run_lar("advise", script(write_script, {}))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("time: 10.000 ms an iteration (median of 20 ")
    assert "\ntry: no setting stands out; lar tune " in done.stdout
    assert "command" not in done.stdout


def test_a_model_that_crashes_ends_as_its_run(write_script: WriteScript) -> None:
    done = run_lar("advise", write_script(faults=[{"at": "load", "do": "abort"}]))
    assert (done.returncode, done.stdout) == (4, "")
    assert "SIGABRT" in done.stderr.splitlines()[0]
