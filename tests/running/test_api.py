"""The public functions, as a script uses them."""

from __future__ import annotations

import hashlib
import inspect
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lar
from lar.errors import LarError, OutOfTime
from lar.records.run import RunContext
from lar.running.plan import plan_run
from lar.running.tasks import find_devices, info_of

WriteScript = Callable[..., str]
DATA = {"name": "data", "dtype": "float32", "shape": [2, 3]}


def summary_of(result: lar.RunResult) -> list[tuple[str, tuple[int, ...], str]]:
    assert result.status == "ok", result.failure
    return [(output.name, output.shape, output.sha256) for output in result.outputs]


def test_importing_lar_imports_nothing_heavy(root: Path) -> None:
    code = "import sys, json, lar; print(json.dumps(sorted(sys.modules)))"
    output = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    ).stdout
    modules = json.loads(output)
    assert [name for name in modules if name.split(".")[0] == "lar"] == ["lar"]
    assert not {"argparse", "numpy", "msgspec", "dataclasses", "importlib.metadata"} & set(modules)


def test_a_run_gives_a_result_that_reads_back(root: Path) -> None:
    result = lar.run(root / "models/one_operator.onnx", iter=4, warmup_iter=2)
    assert isinstance(result, lar.RunResult)
    assert result.status == "ok"
    assert (len(result.warmup.end_to_end), len(result.samples.end_to_end)) == (2, 4)
    assert result.engine is not None
    assert result.engine.name == "onnxruntime"
    assert result.model is not None
    assert result.model.size_bytes == (root / "models/one_operator.onnx").stat().st_size
    assert result.peak_memory_bytes is not None
    assert result.peak_memory_bytes > 2**20


def test_arrays_files_and_texts_feed_the_same(root: Path, tmp_path: Path) -> None:
    model = root / "models/multi_input.onnx"
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
    "array",
    [
        np.zeros((2, 3), np.float32),
        np.zeros((3, 2), np.float32).T,
        np.zeros((2, 3), ">f4"),
        np.zeros((2, 3), np.float64),
    ],
)
def test_arrays_of_any_order_are_taken(write_script: WriteScript, array: Any) -> None:
    result = lar.run(write_script(inputs=[DATA]), {"data": array}, iter=1)
    assert result.status == "ok", result.failure
    assert [(fed.name, fed.dtype, fed.shape) for fed in result.fed] == [("data", "float32", (2, 3))]


@pytest.mark.parametrize("name", ["with;semicolon.npy", "with:colon.npy", "with space, comma.npy"])
def test_a_file_of_any_name_may_be_an_input(
    write_script: WriteScript, tmp_path: Path, name: str
) -> None:
    np.save(tmp_path / name, np.zeros((2, 3), np.float32))
    result = lar.run(write_script(inputs=[DATA]), {"data": tmp_path / name}, iter=1)
    assert result.status == "ok", result.failure
    assert [fed.source for fed in result.fed] == [str(tmp_path / name)]


def test_an_array_is_called_what_it_is_to_who_gave_it(write_script: WriteScript) -> None:
    result = lar.run(write_script(inputs=[DATA]), {"data": np.zeros((2, 3), np.float64)}, iter=1)
    assert [fed.source for fed in result.fed] == ["the array given for 'data'"]
    assert result.spec.inputs == ("data:the array given for 'data'",)
    assert result.warnings == (
        "inputs: the array given for 'data': converted from float64 to float32",
    )
    failure = lar.run(write_script(inputs=[DATA]), {"data": np.zeros(3)}, iter=1).failure
    assert failure is not None
    assert failure.message.startswith("inputs: the array given for 'data': its shape {3} ")


@pytest.mark.parametrize("given", [np.ones((2, 3), np.float32), [[1.0, 1, 1], [1, 1, 1]]])
def test_an_array_alone_feeds_the_only_input(write_script: WriteScript, given: Any) -> None:
    result = lar.run(write_script(inputs=[DATA]), given, iter=1)
    assert result.status == "ok", result.failure
    assert [(fed.name, fed.source) for fed in result.fed] == [("data", "the array given")]


def test_an_array_alone_does_not_feed_one_of_several_inputs(write_script: WriteScript) -> None:
    script = write_script(inputs=[{**DATA, "name": name} for name in ("left", "right")])
    failure = lar.run(script, np.ones((2, 3), np.float32), iter=1).failure
    assert failure is not None
    assert failure.message.startswith("inputs: the array given: does not say which")
    assert failure.hint == "give a mapping from names to arrays; its inputs are left, right"


def test_a_model_is_read_within_the_time_limit_of_its_run(
    write_script: WriteScript, root: Path
) -> None:
    began = time.monotonic() - 10
    spec = plan_run(write_script(), {"timeout": 5.0})
    with pytest.raises(OutOfTime, match="timed out after 5 s"):
        info_of(spec, RunContext(began=began))
    stack = {"timeout": 5.0, "input": [str(root / "inputs/digits.npz")]}
    with pytest.raises(OutOfTime, match="timed out after 5 s"):
        plan_run(str(root / "models/digits_cnn.onnx"), stack, began=began)


def test_a_wrong_input_is_a_result_that_says_so(root: Path) -> None:
    result = lar.run(root / "models/multi_input.onnx", {"a": np.zeros((9, 9), np.float32)})
    assert result.status == "failed"
    assert result.failure is not None
    assert result.failure.exit_code == 2


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("json", "result.json"),
        ("csv", "result.csv"),
        ("model_info", True),
        ("in_process", True),
        ("debug", True),
    ],
)
def test_an_option_that_only_the_command_line_honours_is_refused(
    write_script: WriteScript, option: str, value: Any
) -> None:
    # It would be passed over in silence otherwise.
    with pytest.raises(lar.UsageError, match="--" + option.replace("_", "-")):
        lar.run(write_script(), iter=0, **{option: value})


def test_a_missing_model_is_refused() -> None:
    with pytest.raises(lar.UsageError, match="no such model file"):
        lar.run("none.onnx")
    with pytest.raises(lar.UsageError, match="no such model file"):
        lar.read_info("none.onnx")


def test_a_damaged_model_is_refused_before_it_runs(write_script: WriteScript) -> None:
    script = write_script()
    Path(script + ".sha256").write_text("0" * 64)
    with pytest.raises(lar.UsageError, match="damaged"):
        lar.run(script)


@pytest.mark.parametrize(
    ("name", "engine"), [("multi_input.onnx", "onnxruntime"), ("multi_input.mge", "megengine")]
)
def test_info_of_a_model(root: Path, name: str, engine: str) -> None:
    info = lar.read_info(root / "models" / name)
    assert info.engine == engine
    assert [(tensor.name, tensor.shape) for tensor in info.inputs] == [("a", (2, 3)), ("b", (3, 4))]
    assert [tensor.name for tensor in info.outputs] == ["product", "rectified"]
    assert sum(info.operators.values()) >= 2


def test_info_of_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"
    path.write_bytes(b"\x08\x08 this is no model")
    with pytest.raises(lar.UsageError, match=r"a\.onnx"):
        lar.read_info(path)


def test_devices(root: Path) -> None:
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
    result = lar.run(script, text, iter=1)
    assert result.status == "ok", result.failure
    assert [fed.source for fed in result.fed] == [f"{folder}/a.npy", f"{folder}/b.bin"]


@pytest.fixture(scope="module")
def timed(root: Path) -> lar.RunResult:
    return lar.run(root / "models/multi_input.onnx", iter=12, keep_outputs=True)


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
    with pytest.raises(LarError, match="not kept") as raised:
        _ = lar.read_result(timed.to_json()).arrays
    assert "keep_outputs=True" in raised.value.hint


def test_a_run_that_failed_has_no_arrays(write_script: WriteScript) -> None:
    faults = [{"at": "start", "index": 1, "do": "raise"}]
    result = lar.run(write_script(faults=faults), keep_outputs=True)
    assert result.status == "failed"
    assert result.arrays == {}


@pytest.mark.parametrize(
    ("call", "keyword", "meant"),
    [
        (lar.run, "keep_output", "keep_outputs"),
        (lar.run, "input_", "input"),
        (lar.bench, "budget", "budget_seconds"),
        (lar.compare, "rtl", "rtol"),
        (lar.read_info, "engin", "engine"),
        (lar.read_result, "dta", "data"),
        (lar.open_dump, "pth", "path"),
        (lar.save, "tagg", "tag"),
        (lar.range, "colour", "color"),
    ],
)
def test_a_misspelt_keyword_names_the_nearest(
    call: Callable[..., object], keyword: str, meant: str
) -> None:
    needed = ("x", "y") if call is lar.compare else ("x",)
    with pytest.raises(lar.UsageError, match=f"{keyword!r}; did you mean {meant!r}"):
        call(*needed, **{keyword: 1})


def test_a_keyword_that_is_near_none_is_refused() -> None:
    with pytest.raises(lar.UsageError) as raised:
        lar.read_info("x", frobnicate=1)  # type: ignore[call-arg]
    assert raised.value.message == "lar.read_info: unknown keyword 'frobnicate'"
    assert raised.value.hint == "help(lar.read_info) lists them"


def test_help_shows_what_a_function_takes() -> None:
    assert list(inspect.signature(lar.save).parameters) == ["result", "tag", "store"]
    assert "keep_outputs" in inspect.signature(lar.run).parameters
