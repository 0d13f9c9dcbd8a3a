"""Operators that are run alone: by workers that crash, hang and fail, and by both engines."""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import lar
from lar.cli.outlet import LateLine
from lar.dumps import Dump, DumpedTensor, DumpIndex
from lar.errors import LarError, UsageError
from lar.records.events import Event, TurnEnded
from lar.records.run import RunContext, RunSpec, Setting
from lar.running.compared_sides import Asked, SideRuns
from lar.running.single_operators import (
    MOST_WORKERS,
    IsolatedOperators,
    spec_for_isolation,
    spec_of_dump,
)
from lar.worker.tasks import compute_each
from tests.cli.marks import needs_megengine
from tests.cli.runs import Array, save_altered
from tests.command_lines import ROOT, run_lar
from tests.conftest import WriteScript
from tests.engines.onnx_models import save_model
from tests.refusals import refused
from tests.tables import each_row

PROB = DumpedTensor(key="prob", name="prob", dtype="float32", shape=(2,))


def spec_of(script: str) -> RunSpec:
    return RunSpec(model=script, engine="fake", driver="script", stall_seconds=1.0)


def outcomes(script: str, count: int) -> list[str]:
    """What comes of so many operators: `ok`, or why not."""
    with contextlib.ExitStack() as stack:
        operators = IsolatedOperators(spec_of(script), stack)
        found = [outcome(operators) for _ in range(count)]
    assert not operators.folder.exists()
    return found


def outcome(operators: IsolatedOperators) -> str:
    try:
        array = operators.compute(PROB, {"data": np.ones(3, np.float32)})
    except LarError as error:
        return error.message
    return "ok" if array.tolist() == [0.25, 0.75] else str(array)


@each_row("running/cases/faults of an operator")
@pytest.mark.usefixtures("nothing_left")
def test_a_fault_is_the_problem_of_one_operator(
    write_script: WriteScript, fault: str, problem: str
) -> None:
    script = write_script(
        outputs={"prob": [0.25, 0.75]}, faults=[{"at": "alone", "do": fault, "index": 1}]
    )
    assert outcomes(script, 3) == ["ok", problem, "ok"]


def test_an_engine_that_always_crashes_is_given_up(write_script: WriteScript) -> None:
    script = write_script(
        outputs={"prob": [0.25, 0.75]}, faults=[{"at": "alone", "do": "abort", "index": 0}]
    )
    assert len(set(outcomes(script, MOST_WORKERS + 2))) == 1
    does_not_load = write_script(faults=[{"at": "load", "do": "raise"}])
    assert outcomes(does_not_load, 2) == ["the engine failed: scripted failure"] * 2


def test_a_full_disk_is_the_problem_of_one_operator(
    write_script: WriteScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = np.save
    full = OSError("150528 requested and 14304 written")  # as NumPy raises it
    errors: list[OSError | None] = [OSError(28, "No space left on device"), full, None]

    def save_or_fail(place: Path, array: Array) -> None:
        if error := errors.pop(0):
            raise error
        save(place, array)

    monkeypatch.setattr(np, "save", save_or_fail)
    with contextlib.ExitStack() as stack:
        it = IsolatedOperators(spec_of(write_script(outputs={"prob": [0.25, 0.75]})), stack)
        found = [outcome(it) for _ in range(3)]
    start = "its values: cannot be written: "
    assert found == [f"{start}no space left on device", f"{start}{full}", "ok"]


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (OSError(28, "No space left on device"), "what it gives: cannot be written: no space"),
        (MemoryError(), "out of memory"),
    ],
)
def test_what_a_worker_cannot_write_or_hold_is_said(
    write_script: WriteScript,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    problem: str,
) -> None:
    def fail(place: Path, array: Array) -> None:
        raise error

    monkeypatch.setattr(np, "save", fail)
    (tmp_path / "asked.json").write_text(json.dumps({"output": "prob", "values": []}))
    context = RunContext(work_folder=str(tmp_path))
    events: list[Event] = []
    compute_each(spec_of(write_script(outputs={"prob": [0.25, 0.75]})), context, [0], events.append)
    assert isinstance(events[-1], TurnEnded)
    assert events[-1].problem.startswith(problem)


def test_an_engine_that_cannot_do_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lar_scripted.FakeEngine.isolating_driver", "")
    spec = RunSpec(model="m.fake", engine="fake", driver="script")
    with pytest.raises(UsageError, match="runs on the scripted engine, which cannot run an"):
        spec_for_isolation(spec)


def test_a_dump_stands_for_its_model_while_that_is_unchanged(tmp_path: Path) -> None:
    model = tmp_path / "m.fake"
    model.write_text("{}")
    index = DumpIndex(
        tensors=(),
        operators=(),
        engine="fake",
        driver="script",
        model=str(model),
        model_sha256=hashlib.sha256(b"{}").hexdigest(),
        settings={"cpu": True, "bin_io_dump": "d"},
    )
    spec, notes = spec_for_isolation(spec_of_dump(index))
    assert (spec.model, spec.settings, notes) == (str(model), {"cpu": True}, ())
    refused("that sets --c-opr-lib 5, ", spec_of_dump, replace(index, settings={"c_opr_lib": 5}))
    problems = {
        "does not name the model": replace(index, model=""),
        "does not exist": replace(index, model=f"{model}.gone"),
        "has changed since": replace(index, model_sha256="0"),
    }
    for problem, other in problems.items():
        refused(problem, spec_of_dump, other)
        given = Dump("d", other, lambda _: np.zeros(1))
        with pytest.raises(UsageError, match=f"^--isolate: d: is a dump .*{problem}") as caught:
            lar.compare(given, given, isolate=True)
        assert "as A" in caught.value.hint
        with contextlib.ExitStack() as stack:
            assert problem in str(SideRuns([given], Asked(), stack).operators_of(0))


def test_options_that_the_worker_lacks_are_named() -> None:
    settings: dict[str, Setting] = {"enable_nchw44": True, "multithread": 2, "bin_io_dump": "d"}
    spec = RunSpec(model="m.mge", engine="megengine", driver="lite", settings=settings)
    found, notes = spec_for_isolation(spec)
    assert (found.driver, found.settings) == ("graph", {"enable_nchw44": True})
    assert notes == ("operators are run alone without --multithread",)


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digits' network with two faults, one behind the other."""

    def change(array: Array) -> None:
        array[3] += 0.1

    path = tmp_path_factory.mktemp("faulty") / "faulty.onnx"
    return save_altered(path, "digits_cnn.onnx", conv2__bias=change, logits__bias=change)


@pytest.mark.parametrize("options", ["", " --graph-optimization-level basic"])
def test_onnxruntime_finds_a_fault_behind_another(faulty: str, options: str) -> None:
    words = ["--input", "inputs/digit_7.npy", "--isolate"]
    done = run_lar("compare", faulty + options, "models/digits_cnn.onnx", *words, cwd=ROOT, code=1)
    assert "culprit 1 of 2: " in done.stdout
    assert "culprit 2 of 2: Gemm logits" in done.stdout
    assert "not run alone" not in done.stdout


@needs_megengine
@pytest.mark.parametrize("options", ["", " --enable-nchw44"])
def test_megengine_finds_a_fault_behind_another(faulty: str, options: str) -> None:
    comparison = lar.compare(
        f"{ROOT}/models/digits_cnn.mge{options}",
        faulty,
        input=f"{ROOT}/inputs/digit_7.npy",
        isolate=True,
    )
    faults = [[each.output for each in culprit.expected] for culprit in comparison.culprits]
    assert len(faults) == 2
    assert faults[1] == ["logits"]
    singles = {each.actual.name: each.single for each in comparison.tensors if each.single}
    assert {"relu1", "relu2", "pool2", "relu3", "logits"} <= singles.keys()
    right = [name for name, single in singles.items() if not single.mismatches]
    assert {"relu1", "pool2", "relu3", "features"} <= {*right}
    assert not {"relu2", "logits"} & {*right}


def test_what_quantising_the_inputs_adds_is_no_fault() -> None:
    words = ["--input", "inputs/digit_7.npy", "--isolate"]
    done = run_lar("compare", "models/int8.onnx", "models/digits_cnn.onnx", *words, cwd=ROOT)
    assert done.returncode == 0
    assert "result: the same as int8 rounds" in done.stdout


def test_two_wrong_scales_of_a_quantised_model_are_named(tmp_path: Path) -> None:
    def change(array: Array) -> Array:
        return np.asarray(array * 1.5, np.float32)

    path = tmp_path / "wrong.onnx"
    model = save_altered(path, "int8.onnx", conv2__weight_scale=change, conv3__weight_scale=change)
    found = lar.compare(
        model,
        f"{ROOT}/models/digits_cnn.onnx",
        input=f"{ROOT}/inputs/digit_7.npy",
        isolate=True,
    )
    assert [culprit.output.actual.name for culprit in found.culprits] == ["conv2", "conv3"]


def test_an_interrupt_ends_with_what_is_known(faulty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(line: LateLine, text: str) -> None:
        if "alone, 4" in text:
            raise KeyboardInterrupt

    monkeypatch.setattr(LateLine, "show", interrupt)
    words = ["--input", "inputs/digit_7.npy", "--isolate"]
    done = run_lar("compare", faulty, "models/digits_cnn.onnx", *words, cwd=ROOT, code=130)
    assert "note: interrupted: 4 operators of A were run alone" in done.stdout
    assert "result: different" in done.stdout


def test_single_numbers_stay_single_numbers(tmp_path: Path) -> None:
    text = "(float[2, 3] x) => (float root) { sum = ReduceSum<keepdims = 0>(x) root = Sqrt(sum) }"
    path = str(save_model(tmp_path / "length.onnx", text))
    found = lar.compare(path, path, isolate=True)
    singles = {each.actual.name: each.single for each in found.tensors if each.single}
    assert {name: single.identical for name, single in singles.items()} == {
        "sum": True,
        "root": True,
    }
