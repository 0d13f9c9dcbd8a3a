"""A run that goes well: each spelling, driver, path and model."""

from __future__ import annotations

import os
import re
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

import lar
from tests.cli.marks import each_format, needs_megengine
from tests.cli.runs import lines_of, result_of, without_hints
from tests.command_lines import ROOT, run_lar, run_program, run_python
from tests.conftest import WriteScript
from tests.running.isolated_runs import known
from tests.tables import each_row

ONE = [{"name": "data", "dtype": "float32", "shape": [4]}]


# How it is typed


@each_row("cli/cases/spellings")
def test_spellings(write_script: WriteScript, words: str) -> None:
    script = write_script(inputs=ONE, outputs={"prob": [1.0]})
    result = result_of(*words.format(model=script, four="data:1,2,3,4").split())
    assert (result.spec.model, result.spec.engine) == (script, "fake")
    assert (result.spec.warmup_iterations, result.spec.iterations) == (2, 3)
    assert result.spec.inputs == ("data:1,2,3,4",)
    assert (len(result.warmup.end_to_end), len(result.samples.end_to_end)) == (2, 3)


def test_cuda_reaches_the_spec() -> None:
    # Whether there is a device or not: it never becomes a run on the CPU.
    for flag, device in (("--cuda", "cuda:0"), ("--cuda:1", "cuda:1"), ("--cuda=0", "cuda:0")):
        done = run_lar("models/one_operator.onnx", flag, "--json", "-", cwd=ROOT)
        assert lar.read_result(done.stdout).spec.device == device


def test_no_iterations(write_script: WriteScript) -> None:
    script = write_script(load_seconds=0.198, prepare_seconds=0.005, outputs={"prob": [1.0]})
    done = run_lar(script, "--iter", "0", code=0)
    assert done.stdout.splitlines()[1:3] == ["load model: 198.000ms", "=== prepare: 5.000ms"]
    assert not re.search(r"warmup|iter|finished|latency", done.stdout)
    result = result_of(script, "--iter", "0")
    assert (result.status, result.phase, result.outputs) == ("ok", "done", ())
    assert result.samples.end_to_end == result.warmup.end_to_end == ()


# Drivers, engines, processes


def test_scripted_engine_by_name(write_script: WriteScript) -> None:
    script = write_script(outputs={"prob": [1.0]})
    assert result_of(script, "--engine", "fake").spec.engine == "fake"
    renamed = Path(script).with_suffix(".json")
    Path(script).rename(renamed)
    assert result_of(str(renamed), "--engine=fake").spec.engine == "fake"


@each_format
def test_in_process(tmp_path: Path, suffix: str) -> None:
    words = (f"models/multi_input.{suffix}", "--input", "inputs/multi_input.json")
    files = tmp_path / "alone.json", tmp_path / "apart.json"
    done = run_lar(*words, "--in_process", "--json", str(files[0]), cwd=ROOT)
    usual = run_lar(*words, "--json", str(files[1]), cwd=ROOT)
    alone, apart = (lar.read_result(file.read_bytes()) for file in files)
    assert alone.status == "ok"
    assert alone.outputs == apart.outputs
    assert alone.model == apart.model
    assert replace(known(alone.machine), load=known(apart.machine).load) == known(apart.machine)
    assert len(alone.samples.end_to_end) == 10
    assert alone.started_at
    assert lines_of(done.stdout)[:14] == lines_of(usual.stdout)[:14]
    assert without_hints(done.stderr) == []


@each_format
@pytest.mark.parametrize("profiled", [False, True])
def test_the_lines_are_those_of_the_manual_of_load_and_run(
    tmp_path: Path, suffix: str, profiled: bool
) -> None:
    """Iterations of less than 1 ms have a device's time too, and so have profiled ones."""
    words = ["--profile", str(tmp_path / "p.json")] if profiled else []
    done = run_lar(f"models/digits_cnn.{suffix}", "--iter", "3", *words, cwd=ROOT)
    number = r"(\d+\.\d{3})"
    found = re.findall(
        rf"^iter \d/3: {number}ms \(exec={number},device={number}\)$", done.stdout, re.M
    )
    assert len(found) == 3, done.stdout
    for whole, host, device in (map(float, each) for each in found):
        assert 0 <= host <= whole
        assert whole / 2 - 0.001 <= device


@needs_megengine
def test_a_model_without_suffix_is_known_by_its_content(tmp_path: Path) -> None:
    for suffix, engine in (("mge", "megengine"), ("onnx", "onnxruntime")):
        shutil.copy(ROOT / f"models/one_operator.{suffix}", tmp_path / "model")
        assert result_of(str(tmp_path / "model")).spec.engine == engine


# Paths


@each_format
@each_row("cli/cases/odd names")
def test_odd_model_names(tmp_path: Path, suffix: str, name: str) -> None:
    name = name.format(suffix)
    shutil.copy(ROOT / f"models/one_operator.{suffix}", tmp_path / name)
    result = result_of("--iter", "1", "--", name, cwd=tmp_path)
    assert result.spec.model == name
    assert result.status == "ok"


@pytest.mark.skipif(sys.platform != "linux", reason="names must be text elsewhere")
@each_format
def test_model_name_that_is_no_text(tmp_path: Path, suffix: str) -> None:
    name = os.fsdecode(b"b\xff." + suffix.encode())
    shutil.copy(ROOT / f"models/one_operator.{suffix}", tmp_path / name)
    for words in (["run", name, "--iter", "1"], ["info", name]):
        done = run_lar(*words, cwd=tmp_path)
        assert "Traceback" not in done.stderr
        # It may work or be refused, clearly.
        assert done.returncode == 0 or done.stderr.startswith("lar: error: ")


@each_format
def test_ways_to_the_model(tmp_path: Path, suffix: str) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    shutil.copy(ROOT / f"models/one_operator.{suffix}", folder / f"model.{suffix}")
    (tmp_path / f"link.{suffix}").symlink_to(folder / f"model.{suffix}")
    folder.chmod(0o555)
    for path in (
        f"models/model.{suffix}",
        f"./models/../models/model.{suffix}",
        f"link.{suffix}",
        str(folder / f"model.{suffix}"),
    ):
        result = result_of(path, "--iter", "1", cwd=tmp_path)
        assert (result.status, result.spec.model) == ("ok", path)
    folder.chmod(0o755)
    assert [file.name for file in folder.iterdir()] == [f"model.{suffix}"]


@each_format
def test_files_in_the_current_folder_stand_in_for_nothing(tmp_path: Path, suffix: str) -> None:
    # The command itself: `python -m` puts the current folder first, before lar can do anything.
    command = Path(sys.executable).with_name("lar")
    if not command.exists():
        pytest.skip("the lar command is not installed")
    trap = "raise SystemExit('the wrong module')"
    model = str(ROOT / f"models/multi_input.{suffix}")
    for name in ("numpy", "json", "onnxruntime", "megengine", "megenginelite", "cv2", "onnx"):
        (tmp_path / f"{name}.py").write_text(trap)
    (tmp_path / "lar").mkdir()
    (tmp_path / "lar/__init__.py").write_text(trap)
    for words in (["run", "--iter", "1"], ["info"]):
        done = run_program(str(command), *words, model, cwd=tmp_path, code=0)
        assert "wrong module" not in done.stdout + done.stderr


def test_runs_at_once_write_one_report(tmp_path: Path, write_script: WriteScript) -> None:
    report = tmp_path / "report.json"
    script = write_script(real_time=True, times=[[0.01, 0.005, None]], outputs={"prob": [1.0]})
    with ThreadPoolExecutor(3) as pool:
        runs = [
            pool.submit(run_lar, script, "--json", str(report), "--seed", str(seed))
            for seed in range(3)
        ]
        assert [run.result().returncode for run in runs] == [0, 0, 0]
    result = lar.read_result(report.read_bytes())
    assert result.status == "ok"
    assert result.spec.seed in range(3)
    assert {path.name for path in tmp_path.iterdir()} == {"report.json", Path(script).name}


def test_a_run_in_process_has_the_engines_environment(write_script: WriteScript) -> None:
    words = [write_script(), "--in-process", "--engine-env", "LAR_TEST_VARIABLE=seen"]
    code = (
        f"import os, lar.cli.main; lar.cli.main.main({words!r}); "
        "print(os.environ['LAR_TEST_VARIABLE'])"
    )
    done = run_python("-c", code)
    assert done.stdout.splitlines()[-1] == "seen", done.stderr
