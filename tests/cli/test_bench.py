"""`lar bench`, from the command line: its table, its files, what it refuses, how it ends."""

from __future__ import annotations

import csv
import io
import re
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

import lar
from lar.cli.bench import describe_progress
from lar.reports.bench_report import report_bench
from lar.reports.html import format_html
from lar.running.bench import BenchProgress
from tests.browser import NEEDS_BROWSER, opened, unreadable
from tests.cli.failures import end_of, started
from tests.command_lines import ROOT, run_lar
from tests.conftest import WriteScript
from tests.running.isolated_runs import eventually, known, workers_of
from tests.tables import each_row

INPUT = [{"name": "data", "dtype": "float32", "shape": [None, 4]}]
OUTPUTS = {"prob": [0.25, 0.75]}


def script(write: WriteScript, seconds: float, **fields: Any) -> str:
    return write(**{"inputs": INPUT, "outputs": OUTPUTS, "times": [[seconds, 0.0, None]], **fields})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a bench of two scripts and a broken one, with all its reports."""
    place = tmp_path_factory.mktemp("bench")
    line = '{"outputs": {"prob": [%s, 0.75]}, "times": [[%s, 0.0, null]], "faults": [%s]}'
    for name, *values in (
        ("fast", 0.25, 0.01, ""),
        ("slow", 0.26, 0.0103, ""),
        ("broken", 0.25, 0.01, '{"at": "load", "do": "abort"}'),
    ):
        (place / f"{name}.fake").write_text(line % tuple(values))
    done = run_lar(
        *("bench", "fast.fake", "slow.fake", "broken.fake --cpu", "--json", "b.json"),
        *("--csv", "b.csv", "--html", "b.html"),
        cwd=place,
        code=0,
    )
    (place / "printed").write_text(done.stdout)
    return place


def test_the_table_has_what_varies_and_the_verdicts(folder: Path) -> None:
    first, _, heading, *rows = (folder / "printed").read_text().splitlines()
    assert first.startswith("3 models on fake 1 script: 3 variants, 5 rounds of fresh processes, ")
    assert heading.split("  ")[0] == "model"
    assert "cpu" in heading.split()
    cells = [[cell.strip() for cell in row.split("  ") if cell.strip()] for row in rows[:3]]
    assert cells[0] == ["fast.fake", "10.000", "baseline"]
    assert cells[1][:4] == ["slow.fake", "10.300", "1.030", "1.030 to 1.030"]
    assert cells[1][4:] == ["slower", "different (prob: 1.0e-02)"]
    assert cells[2][:3] == ["broken.fake", "on", "crashed"]
    assert cells[2][3].startswith("crashed: the engine crashed in phase load: killed by SIGABRT")


def test_json_is_read_back(folder: Path) -> None:
    bench = lar.read_bench((folder / "b.json").read_text())
    assert bench.format == "lar.bench/1"
    assert bench.to_json() + "\n" == (folder / "b.json").read_text()
    assert bench.to_dict()["variants"][1]["difference"]["verdict"] == "slower"
    assert bench["slow.fake"].status == "ok"
    with pytest.raises(ValueError, match=r"is not 'lar\.bench/1'"):
        lar.read_bench(bench.to_json().replace("lar.bench/1", "lar.bench/9"))


def test_csv_is_the_rows(folder: Path) -> None:
    rows = [*csv.DictReader(io.StringIO((folder / "b.csv").read_text()))]
    made = lar.read_bench((folder / "b.json").read_text()).rows()
    assert [row["variant"] for row in rows] == [row["variant"] for row in made]
    assert [row["verdict"] for row in rows] == ["", "slower", ""]
    assert float(rows[0]["median"]) == pytest.approx(0.01)
    assert [row["status"] for row in rows] == ["ok", "ok", "crashed"]


@NEEDS_BROWSER
def test_the_page_is_drawn(folder: Path, tmp_path: Path) -> None:
    page = opened((folder / "b.html").read_text(), tmp_path, width=400, scheme="dark")
    assert unreadable(page) == []
    elements, messages = page.elements(), page.console()
    assert messages == []
    assert 'data-drawn="yes"' in elements
    assert '<p class="error">' not in elements
    assert re.findall(r"<h2>(.*?)</h2>", elements) == ["Result", "Variants", "Iterations"]


def test_disturbed_samples_are_marked(write_script: WriteScript) -> None:
    model = script(write_script, 0.01, queue_delays=[0.0, 0.005] * 200)
    bench = lar.bench([model, model], margin=0.5)
    latency = known(bench.variants[0].latency)
    assert 0 < latency.disturbed_count < latency.count
    page = format_html(report_bench(bench))
    assert "0.0,10.0,1]" in page.replace(" ", "") or ",10.0,1]" in page


def test_a_combination_that_is_refused_is_a_row() -> None:
    done = run_lar(
        *("bench", "models/digits_cnn.onnx", "--vary", "enable-nchw44", "--budget", "0.1"), cwd=ROOT
    )
    assert done.returncode == 0
    assert "refused: --enable-nchw44: ONNX Runtime cannot do this" in done.stdout


def test_a_baseline_that_crashes_ends_with_its_code(write_script: WriteScript) -> None:
    broken = script(write_script, 0.01, faults=[{"at": "load", "do": "abort"}])
    done = run_lar("bench", broken, script(write_script, 0.01), code=4)
    assert f"the baseline {broken!r}" in done.stderr
    run_lar("bench", broken, script(write_script, 0.01), "--baseline", "2", code=0)


def last_line(text: str) -> str:
    return text.splitlines()[-1]


def test_a_slower_one_can_fail(write_script: WriteScript) -> None:
    models = [script(write_script, 0.01), script(write_script, 0.02)]
    done = run_lar("bench", "--fail-if-slower", *models, code=1)
    assert last_line(done.stdout) == f"result: slower: {models[1]} by 100.0% (100.0 to 100.0)"
    done = run_lar("bench", *models, "--fail-if-slower", "--baseline", "2")
    assert (done.returncode, last_line(done.stdout)) == (0, "result: passed: 1 faster")
    done = run_lar("bench", *models, "--fail-if-slower", "120%", "--json", "-")
    assert (done.returncode, last_line(done.stderr)) == (0, "result: passed: 1 slower")


@each_row("cli/cases/sides that failed")
def test_a_side_that_failed_never_passes(tmp_path: Path, words: list[str], sentence: str) -> None:
    """It is named once, and nobody waits for the budget where nothing is left to compare."""
    good = shutil.copy(ROOT / "models/digits_cnn.onnx", tmp_path / "good.onnx")
    (tmp_path / "broken.onnx").write_bytes(Path(good).read_bytes()[:30])
    done = run_lar("bench", *words, "--budget=60", "--fail-if-slower", cwd=tmp_path)
    assert (done.returncode, last_line(done.stdout)) == (4, f"result: failed: {sentence}")
    assert not re.search("[3-9] rounds", done.stdout)
    assert " ok" not in done.stdout


def test_pythons_are_told_apart_by_the_versions_of_their_engines(write_script: WriteScript) -> None:
    words = ["--vary", f"python=,{sys.prefix}", "--budget", "0.1"]
    lines = run_lar("bench", script(write_script, 0.01), *words).stdout.splitlines()
    assert next(line for line in lines if line.startswith("python ")).split()[1] == "engine"
    assert "fake 1 script" in next(line for line in lines if line.startswith(sys.prefix))


def test_what_is_not_judged_can_fail(write_script: WriteScript) -> None:
    models = [script(write_script, 0.01, real_time=True) for _ in range(2)]
    words = ["bench", *models, "--budget", "0.1", "--fail-if-slower"]
    done = run_lar(*words)
    why = "1 pair of processes, and 3 are needed"
    assert (done.returncode, last_line(done.stdout)) == (0, f"result: nothing judged: {why}")
    done = run_lar(*words, "--fail-if-unjudged", code=5)
    assert last_line(done.stdout).endswith(f": {why}")
    assert "not judged (1 pair of processes, and 3 are needed)" in done.stdout


def test_an_interrupt_keeps_what_is_there(write_script: WriteScript, tmp_path: Path) -> None:
    models = [script(write_script, 0.01, real_time=True) for _ in range(2)]
    words = ["bench", *models, "--margin", "0.0001%", "--json", "b.json", "--html", "b.html"]
    with started(*words, cwd=tmp_path) as process:
        # Each round has processes of its own: the third one begins after the first round.
        workers: set[int] = set()

        def has_begun_again() -> bool:
            workers.update(workers_of(process.pid))
            return len(workers) > 2

        assert eventually(has_begun_again, 60)
        process.send_signal(signal.SIGINT)
        printed, errors = end_of(process)
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "lar: error: interrupted"
    assert "ended: interrupted" in printed
    assert lar.read_bench((tmp_path / "b.json").read_text()).stopped == "interrupted"
    assert (tmp_path / "b.html").exists()


def test_progress_says_how_long_it_may_take() -> None:
    progress = BenchProgress(
        rounds=7, decided=1, comparisons=3, left_seconds=42.4, detectable=0.0312
    )
    assert describe_progress(progress) == (
        "round 7, 1 of 3 verdicts, detectable: 3.1%, at most 42 s left"
    )


def test_a_spec_has_flags_of_its_own(tmp_path: Path) -> None:
    """A model's name may have spaces; a model beside its twin of another engine is fed alike."""
    spaced = tmp_path / "digits model.onnx"
    shutil.copy(ROOT / "models/digits_cnn.onnx", spaced)
    run_lar(
        *("bench", str(spaced), f"'{spaced}' --graph-optimization-level basic"),
        *("--budget", "0.1", "--json", str(tmp_path / "b.json")),
        code=0,
    )
    bench = lar.read_bench((tmp_path / "b.json").read_text())
    assert [each.values for each in bench.variants] == [
        {"graph_optimization_level": ""},
        {"graph_optimization_level": "basic"},
    ]
    assert [each.name for each in bench.variants] == ["default", "graph-optimization-level=basic"]
