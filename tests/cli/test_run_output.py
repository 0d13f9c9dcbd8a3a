"""What a run prints and writes: its lines, its reports, and what the engine says."""

from __future__ import annotations

import csv
import io
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import lar
from tests.cli.failures import check_error, check_not_started, run_until
from tests.cli.marks import each_format, needs_megengine, not_root
from tests.cli.runs import lines_of, result_of, save_kinds, without_hints
from tests.command_lines import ROOT, run_lar
from tests.conftest import WriteScript
from tests.running.isolated_runs import known
from tests.tables import each_row


def ms(seconds: float | None) -> str:
    return "N/A" if seconds is None else f"{seconds * 1e3:.3f}"


@pytest.mark.parametrize(
    "model",
    [
        pytest.param("models/multi_input.mge", marks=needs_megengine),
        "models/multi_input.onnx",
        "script",
    ],
)
def test_json_says_what_the_lines_say(
    tmp_path: Path, write_script: WriteScript, model: str
) -> None:
    times = [[0.581, 0.01, 0.58], [0.245, 0.01, 0.242], [0.237, 0.011, 0.236]]
    if model == "script":
        model = write_script(times=times, load_seconds=0.2, outputs={"prob": [0.5, 1]})
    report = tmp_path / "report.json"
    done = run_lar(model, "--warmup-iter", "2", "--iter", "4", "--json", str(report), cwd=ROOT)
    assert done.returncode == 0
    result = lar.read_result(report.read_bytes())
    assert (result.status, result.phase, result.failure) == ("ok", "done", None)
    samples, warmup = result.samples, result.warmup
    expected = [
        f"load model: {ms(result.load_seconds)}ms",
        f"=== prepare: {ms(result.prepare_seconds)}ms; going to warmup",
        *(f"warmup {i}: {ms(seconds)}ms" for i, seconds in enumerate(warmup.end_to_end)),
        "=== going to run input for 4 times",
        *(
            f"iter {i}/4: {ms(end)}ms (exec={ms(host)},device={ms(device)})"
            for i, (end, host, device) in enumerate(
                zip(samples.end_to_end, samples.host, samples.device, strict=True)
            )
        ),
    ]
    lines = done.stdout.splitlines()
    assert known(result.engine).version in lines[0]
    assert lines[1 : 1 + len(expected)] == expected
    finished = lines[1 + len(expected)]
    total, least, most = sum(samples.end_to_end), min(samples.end_to_end), max(samples.end_to_end)
    assert finished.startswith(f"=== finished test #0: time={ms(total)}ms avg_time={ms(total / 4)}")
    assert finished.endswith(f"minmax={ms(least)},{ms(most)}")
    assert f"sd={ms(float(np.std(samples.end_to_end, ddof=1)))}ms" in finished
    assert list(tmp_path.glob(".*")) == []


@each_format
def test_report_on_stdout_stands_there_alone(suffix: str) -> None:
    words = (f"models/one_operator.{suffix}", "--iter", "2", "--verbose", "--model-info")
    done = run_lar(*words, "--json", "-", cwd=ROOT)
    result = lar.read_result(done.stdout)
    assert len(done.stdout.splitlines()) == 1
    assert len(result.samples.end_to_end) == 2
    assert "=== finished test #0" in done.stderr
    done = run_lar(*words, "--csv", "-", cwd=ROOT)
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [(row["phase"], row["index"]) for row in rows] == [
        *(("warmup", "0"), ("iterations", "0"), ("iterations", "1"))
    ]


def test_report_of_the_longest_name(tmp_path: Path, write_script: WriteScript) -> None:
    report = tmp_path / ("x" * 250 + ".json")
    assert run_lar(write_script(), "--json", str(report)).returncode == 0
    assert lar.read_result(report.read_bytes()).status == "ok"


@each_format
def test_model_info(suffix: str) -> None:
    model = f"models/multi_input.{suffix}"
    info = run_lar("info", model, cwd=ROOT).stdout
    done = run_lar(model, "--model-info", "--iter", "1", cwd=ROOT)
    assert info
    assert done.stdout.startswith(info)
    assert "=== finished test #0" in done.stdout.removeprefix(info)


@each_format
def test_engine_speaks_only_when_asked(suffix: str) -> None:
    words = (f"models/multi_input.{suffix}", "--iter", "1")
    fed = ("--input", "inputs/multi_input.json")
    quiet = run_lar(*words, *fed, cwd=ROOT)
    assert (quiet.returncode, without_hints(quiet.stderr)) == (0, [])
    assert len(without_hints(run_lar(*words, cwd=ROOT).stderr)) == 1  # the note about the data
    verbose = run_lar(*words, *fed, "--verbose", cwd=ROOT, code=0)
    assert len(verbose.stderr.splitlines()) > 5
    assert lines_of(verbose.stdout)[:5] == lines_of(quiet.stdout)[:5]


def test_what_a_script_prints_is_shown_where_that_is_asked_for(write_script: WriteScript) -> None:
    script = write_script(prints="engine: loading")
    verbose, quiet = run_lar(script, "--verbose"), run_lar(script)
    assert verbose.stderr.count("engine: loading") == 2
    assert (quiet.returncode, quiet.stderr) == (0, "")
    assert "engine:" not in verbose.stdout + quiet.stdout


@each_row("cli/cases/outputs of other types")
def test_outputs_of_other_types_are_summarised(tmp_path: Path, kind: str, names: list[str]) -> None:
    model = str(save_kinds(tmp_path / "kinds") / f"{kind}.onnx")
    flags = ["--input", 'x:[["a"]]'] if kind == "classifier" else []
    first, second = (result_of(model, "--iter", "2", *flags) for _ in range(2))
    # Their times count all the same.
    assert (first.status, len(first.samples.end_to_end)) == ("ok", 2)
    assert [output.name for output in first.outputs] == names
    assert all(output.sha256 for output in first.outputs)
    assert first.outputs == second.outputs


@pytest.mark.parametrize("where", [[], ["--in-process"], ["--verbose"]])
def test_an_option_that_acts_is_said_once_as_load_and_run_says_it(where: list[str]) -> None:
    words = [str(ROOT / "models/one_operator.mge"), "--enable-nchw44", "--winograd-transform"]
    done = run_lar(*words, "--iter", "1", *where, code=0)
    said = re.findall(r"^\[\d\d \d\d:\d\d:\d\d lar\]\[warn\] (.*)$", done.stderr, re.M)
    assert said == ["enable nchw44 optimization", "enable winograd transform"]
    assert "[warn]" not in done.stdout


# What cannot be written


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
    words = [script, "--iter", "9", "--json", str(folder / "x.json"), "--csv", str(folder / "y")]
    done = run_until(words, "iter 0/9: ", lambda _: shutil.rmtree(folder))
    check_error(done, done.returncode, "--json: ", "; --csv: ", "no such file or directory")
    assert "=== finished test #0" in done.stdout
