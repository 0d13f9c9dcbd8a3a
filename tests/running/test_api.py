"""The public functions, as a script uses them."""

from __future__ import annotations

import hashlib
import inspect
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lar
from lar.errors import LarError, OutOfTime
from lar.records.run import RunContext
from lar.running import worker_process
from lar.running.isolation import find_devices, info_of
from lar.running.plan import plan_run
from tests.command_lines import ROOT, run_python
from tests.conftest import WriteScript
from tests.refusals import refused
from tests.running.isolated_runs import finished, known
from tests.tables import each_row

DATA = {"name": "data", "dtype": "float32", "shape": [2, 3]}


def summary_of(result: lar.RunResult) -> list[tuple[str, tuple[int, ...], str]]:
    assert result.status == "ok", result.failure
    return [(output.name, output.shape, output.sha256) for output in result.outputs]


def test_importing_lar_imports_nothing_heavy() -> None:
    code = "import sys, json, lar; print(json.dumps(sorted(sys.modules)))"
    modules = json.loads(run_python("-c", code, code=0).stdout)
    assert [name for name in modules if name.split(".")[0] == "lar"] == ["lar"]
    assert not {"argparse", "numpy", "msgspec", "dataclasses", "importlib.metadata"} & set(modules)


def test_a_run_gives_a_result_that_reads_back() -> None:
    result = lar.run(ROOT / "models/one_operator.onnx", iter=4, warmup_iter=2)
    assert isinstance(result, lar.RunResult)
    assert result.status == "ok"
    assert (len(result.warmup.end_to_end), len(result.samples.end_to_end)) == (2, 4)
    assert known(result.engine).name == "onnxruntime"
    assert known(result.model).size_bytes == (ROOT / "models/one_operator.onnx").stat().st_size
    assert known(result.peak_memory_bytes) > 2**20


def test_arrays_files_and_texts_feed_the_same(tmp_path: Path) -> None:
    model = ROOT / "models/multi_input.onnx"
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    b = np.arange(12, dtype=np.float32).reshape(3, 4) - 5
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    by_array = lar.run(model, {"a": a, "b": b}, iter=1)
    by_file = lar.run(model, {"a": tmp_path / "a.npy", "b": str(tmp_path / "b.npy")}, iter=1)
    by_text = lar.run(model, f"a:{tmp_path / 'a.npy'};b:{tmp_path / 'b.npy'}", iter=1)
    by_option = lar.run(model, {"a": a}, input=f"b:{tmp_path / 'b.npy'}", iter=1)
    assert summary_of(by_array) == summary_of(by_file) == summary_of(by_text)
    assert summary_of(by_array) == summary_of(by_option)
    product = next(output for output in by_array.outputs if output.name == "product")
    assert (product.minimum, product.maximum) == ((a @ b).min(), (a @ b).max())


@pytest.mark.parametrize(
    ("given", "source"),
    [
        ({"data": np.zeros((2, 3), np.float32)}, "the array given for 'data'"),
        ({"data": np.zeros((3, 2), np.float32).T}, "the array given for 'data'"),
        ({"data": np.zeros((2, 3), ">f4")}, "the array given for 'data'"),
        ({"data": np.zeros((2, 3), np.float64)}, "the array given for 'data'"),
        (np.ones((2, 3), np.float32), "the array given"),
        ([[1.0, 1, 1], [1, 1, 1]], "the array given"),
    ],
)
def test_arrays_of_any_order_are_taken(write_script: WriteScript, given: Any, source: str) -> None:
    (fed,) = finished(lar.run(write_script(inputs=[DATA]), given, iter=1)).fed
    assert (fed.name, fed.dtype, fed.shape) == ("data", "float32", (2, 3))
    assert fed.source == source


@pytest.mark.parametrize("name", ["with;semicolon.npy", "with:colon.npy", "with space, comma.npy"])
def test_a_file_of_any_name_may_be_an_input(
    write_script: WriteScript, tmp_path: Path, name: str
) -> None:
    np.save(tmp_path / name, np.zeros((2, 3), np.float32))
    result = finished(lar.run(write_script(inputs=[DATA]), {"data": tmp_path / name}, iter=1))
    assert [fed.source for fed in result.fed] == [str(tmp_path / name)]


def test_an_array_is_called_what_it_is_to_who_gave_it(write_script: WriteScript) -> None:
    result = lar.run(write_script(inputs=[DATA]), {"data": np.zeros((2, 3), np.float64)}, iter=1)
    assert [fed.source for fed in result.fed] == ["the array given for 'data'"]
    assert result.spec.inputs == ("data:the array given for 'data'",)
    assert result.warnings == (
        "inputs: the array given for 'data': converted from float64 to float32",
    )
    failure = known(lar.run(write_script(inputs=[DATA]), {"data": np.zeros(3)}, iter=1).failure)
    assert failure.message.startswith("inputs: the array given for 'data': its shape {3} ")


def test_an_array_alone_does_not_feed_one_of_several_inputs(write_script: WriteScript) -> None:
    script = write_script(inputs=[{**DATA, "name": name} for name in ("left", "right")])
    failure = known(lar.run(script, np.ones((2, 3), np.float32), iter=1).failure)
    assert failure.message.startswith("inputs: the array given: does not say which")
    assert failure.hint == "give a mapping from names to arrays; its inputs are left, right"


def test_a_model_is_read_within_the_time_limit_of_its_run(write_script: WriteScript) -> None:
    began = time.monotonic() - 10
    spec = plan_run(write_script(), {"timeout": 5.0})
    with pytest.raises(OutOfTime, match="timed out after 5 s"):
        info_of(spec, RunContext(began=began))
    stack = {"timeout": 5.0, "input": [str(ROOT / "inputs/digits.npz")]}
    with pytest.raises(OutOfTime, match="timed out after 5 s"):
        plan_run(str(ROOT / "models/digits_cnn.onnx"), stack, began=began)


def test_a_wrong_input_is_a_result_that_says_so() -> None:
    result = lar.run(ROOT / "models/multi_input.onnx", {"a": np.zeros((9, 9), np.float32)})
    assert result.status == "failed"
    assert known(result.failure).exit_code == 2


def test_info_of_a_model() -> None:
    info = lar.read_info(ROOT / "models/multi_input.mge")
    assert info.engine == "megengine"
    assert [(tensor.name, tensor.shape) for tensor in info.inputs] == [("a", (2, 3)), ("b", (3, 4))]
    assert [tensor.name for tensor in info.outputs] == ["product", "rectified"]
    assert sum(info.operators.values()) >= 2


def test_devices() -> None:
    assert find_devices("fake") == ("cpu",)
    assert find_devices("onnxruntime")[0] == "cpu"
    with pytest.raises(LarError, match="no engine 'zzz'"):
        find_devices("zzz")


def test_a_semicolon_in_any_path_of_a_run(write_script: WriteScript, tmp_path: Path) -> None:
    folder = tmp_path / "of;semicolons;two"
    folder.mkdir()
    script = Path(write_script(inputs=[DATA, {**DATA, "name": "other"}])).rename(folder / "s.fake")
    np.save(folder / "a.npy", np.ones((2, 3), np.float32))
    (folder / "b.bin").write_bytes(bytes(24))
    text = f"data:{folder}/a.npy;other:{folder}/b.bin,float32,2x3"
    result = finished(lar.run(script, text, iter=1))
    assert [fed.source for fed in result.fed] == [f"{folder}/a.npy", f"{folder}/b.bin"]


@pytest.fixture(scope="module")
def timed() -> lar.RunResult:
    return lar.run(ROOT / "models/multi_input.onnx", iter=12, keep_outputs=True)


def test_the_latency_of_a_run_is_its_summary(timed: lar.RunResult) -> None:
    assert timed.latency is timed.summary
    assert timed.latency.median == np.median(timed.samples.end_to_end)


def test_a_run_without_an_iteration_has_no_latency(write_script: WriteScript) -> None:
    result = lar.run(write_script(), iter=0)
    with pytest.raises(LarError, match="no summary") as raised:
        _ = result.latency
    assert "no iteration was timed" in raised.value.hint


def test_a_result_is_dictionaries_and_text(timed: lar.RunResult) -> None:
    assert timed.to_dict() == json.loads(timed.to_json())
    assert lar.read_result(timed.to_json()) == timed


def test_rows_have_what_was_measured_of_each_iteration(timed: lar.RunResult) -> None:
    rows = timed.rows()
    assert [row["iteration"] for row in rows] == list(range(12))
    assert [row["end_to_end"] for row in rows] == list(timed.samples.end_to_end)
    assert all(row.keys() == rows[0].keys() for row in rows)
    measured = {name for name, column in timed.to_dict()["samples"].items() if column}
    assert rows[0].keys() == {"iteration", *measured}
    assert lar.RunResult(spec=timed.spec, status="ok", phase="done").rows() == []


def test_outputs_are_arrays_where_they_are_asked_for(timed: lar.RunResult) -> None:
    assert list(timed.arrays) == [output.name for output in timed.outputs]
    for output in timed.outputs:
        array = timed.arrays[output.name]
        assert (array.dtype.name, array.shape) == (output.dtype, output.shape)
        assert hashlib.sha256(array.tobytes()).hexdigest() == output.sha256
    assert not any(name.endswith("arrays") for name in timed.to_dict())
    with pytest.raises(LarError, match="contains no outputs") as raised:
        _ = lar.read_result(timed.to_json()).arrays
    assert "keep_outputs=True" in raised.value.hint


def test_a_run_that_failed_has_no_arrays(write_script: WriteScript) -> None:
    faults = [{"at": "start", "index": 1, "do": "raise"}]
    result = lar.run(write_script(faults=faults), keep_outputs=True)
    assert result.status == "failed"
    assert result.arrays == {}


@each_row("running/cases/refused calls")
def test_a_wrong_call_is_refused_before_anything_runs(
    call: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_process, "start_python", None)
    names = {"lar": lar, "x": np.zeros(3, np.float32), "m": ROOT / "models/digits_cnn.onnx"}
    error = refused("", eval, call, names)
    assert said in f"{error.message}; {error.hint}"


@each_row("running/cases/accepted calls")
def test_values_may_be_given_as_they_are_typed(write_script: WriteScript, call: str) -> None:
    assert eval(call, {"lar": lar, "x": np.ones(3, np.float32), "s": write_script()})


def test_help_shows_what_a_function_takes() -> None:
    assert list(inspect.signature(lar.save).parameters) == ["result", "tag", "store"]
    assert "keep_outputs" in inspect.signature(lar.run).parameters
