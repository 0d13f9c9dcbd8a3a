"""A data set end to end: each item is one run, outputs and classes are kept, a run goes on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lar
from lar.datasets.classes import find_classes
from lar.datasets.items import is_one_run, items_in
from lar.records.run import TensorInfo
from tests.datasets.test_items import taking
from tests.engines.onnx_models import save_model
from tests.tables import each_row

REPOSITORY = Path(__file__).resolve().parents[2]
MODELS = {
    "megengine": str(REPOSITORY / "models" / "digits_cnn.mge"),
    "onnxruntime": str(REPOSITORY / "models" / "digits_cnn.onnx"),
}
COUNT = 6
DIGITS = np.load(REPOSITORY / "inputs" / "digits.npy")[:COUNT]
LABELS = np.load(REPOSITORY / "inputs" / "digits_labels.npy")[:COUNT]

each_engine = pytest.mark.parametrize("engine", MODELS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "set"
    made.mkdir()
    for index, digit in enumerate(DIGITS):
        np.save(made / f"d{index}.npy", digit[None])
    return made


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    path = tmp_path / "labels.txt"
    path.write_text("".join(f"d{index}.npy {label}\n" for index, label in enumerate(LABELS)))
    return path


def dumped(folder: Path) -> dict[str, Any]:
    return {path.name: lar.load_tensor_binary(path)[0] for path in sorted(folder.iterdir())}


@each_engine
def test_each_item_is_one_run(run_lar: Any, folder: Path, tmp_path: Path, engine: str) -> None:
    out = tmp_path / "out"
    done = run_lar(MODELS[engine], "--input", str(folder), "--bin-out-dump", str(out), code=0)
    assert f"=== going to run input for {COUNT} times" in done.stdout
    lines = re.findall(r"^iter (\d+)/6: [\d.]+ms \(exec=.*\) (\S+)$", done.stdout, re.M)
    assert lines == [(str(index), f"d{index}.npy") for index in range(COUNT)]
    outputs = list(dumped(out).values())
    assert len(outputs) == COUNT + 1  # the warm-up is run 0
    assert [int(output.argmax()) for output in outputs] == [LABELS[0], *LABELS]


@each_engine
def test_classes_are_told_and_counted(
    run_lar: Any, folder: Path, labels: Path, engine: str
) -> None:
    done = run_lar(MODELS[engine], "--input", str(folder), "--labels", str(labels))
    assert f"accuracy: top-1 100.00% ({COUNT} of {COUNT}), top-5 100.00%" in done.stdout
    for index, label in enumerate(LABELS):
        assert re.search(rf"^d{index}\.npy: top-1 {label} \(.*\), top-5 {label} .*, is {label}$",
                         done.stdout, re.M)  # fmt: skip


def test_wrong_classes_are_counted_too(folder: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.txt"
    wrong.write_text("".join(f"{(label + 1) % 10}\n" for label in LABELS))
    result = lar.run(MODELS["onnxruntime"], str(folder), labels=str(wrong))
    assert [item.label for item in result.items] == [(label + 1) % 10 for label in LABELS]
    assert all(item.classes[0] != item.label for item in result.items)


def test_classes_have_names(run_lar: Any, folder: Path, tmp_path: Path) -> None:
    names = tmp_path / "names.txt"
    names.write_text("".join(f"number {index}\n" for index in range(10)))
    done = run_lar(MODELS["onnxruntime"], "--input", str(folder), "--labels", str(names))
    assert f"d0.npy: top-1 {LABELS[0]} number {LABELS[0]} (" in done.stdout
    assert "accuracy" not in done.stdout
    assert done.stdout.endswith("note: --labels: its 10 lines are the names of classes\n")


@each_engine
@pytest.mark.parametrize("axes", [4, 5])
def test_a_stack_is_a_data_set(tmp_path: Path, engine: str, axes: int) -> None:
    stack = tmp_path / "stack.npz"
    np.savez(stack, data=DIGITS if axes == 4 else DIGITS[:, None])
    labels = tmp_path / "labels.txt"
    labels.write_text("".join(f"{label}\n" for label in LABELS))
    result = lar.run(MODELS[engine], str(stack), labels=str(labels))
    assert result.status == "ok"
    assert [item.classes[0] for item in result.items] == list(LABELS)


@each_engine
@pytest.mark.parametrize("named", [True, False])
def test_a_stack_for_each_input_is_a_data_set(tmp_path: Path, engine: str, named: bool) -> None:
    model = MODELS[engine].replace("digits_cnn", "multi_input")
    arrays = {
        "a": np.arange(18, dtype=np.float32).reshape(3, 2, 3),
        "b": np.arange(36, dtype=np.float32).reshape(3, 3, 4),
    }
    for name, array in arrays.items():
        np.savez(tmp_path / f"{name}.npz", **{name: array})
    out = tmp_path / "out"
    texts = [f"{name}:" * named + str(tmp_path / f"{name}.npz") for name in arrays]
    result = lar.run(model, ";".join(texts), bin_out_dump=str(out))
    assert result.status == "ok", result.failure
    assert result.spec.item_names == ("0", "1", "2")
    products = [array for name, array in dumped(out).items() if array.shape == (2, 4)][1:]
    for index, product in enumerate(products):
        assert np.allclose(product, arrays["a"][index] @ arrays["b"][index])
    assert len(products) == 3


def test_stacks_that_the_model_takes_as_they_are_feed_one_run(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.ones((2, 3), np.float32))
    np.savez(tmp_path / "y.npz", y=np.ones((2, 4), np.float32))
    texts = [f"a:{tmp_path}/x.npz; b:{tmp_path}/y.npz"]
    assert items_in(texts)
    assert is_one_run(texts, taking(a=(2, 3), b=(2, 4)))
    assert not is_one_run(texts, taking(a=(1, 3), b=(1, 4)))
    assert not is_one_run(texts, taking(a=(None, 3), b=(2, 4)))


def test_an_array_is_a_stack_for_a_model_that_takes_one_item(tmp_path: Path) -> None:
    path = str(tmp_path / "x.npy")
    np.save(path, np.ones((3, 4), np.float32))
    assert not is_one_run([path], taking(a=(1, 4)))
    for shape in ((3, 4), (None, 4), (1, 5), (4,), (1, 3, 4)):
        assert is_one_run([path], taking(a=shape))
    assert is_one_run([path], [TensorInfo(name="a", dtype="float32", shape=(1, 4), resizable=True)])


@each_engine
def test_an_array_with_labels_is_a_data_set(run_lar: Any, engine: str) -> None:
    words = ["--input", "inputs/digits.npy", "--labels", "inputs/digits_labels.txt"]
    done = run_lar(MODELS[engine], *words, "--json", "-", cwd=REPOSITORY, code=0)
    result = lar.read_result(done.stdout)
    assert (len(result.items), result.top1, result.top5) == (32, 1.0, 1.0)
    one = run_lar(MODELS[engine], *words[:2], "--iter", "1", "--duration", "0.01", cwd=REPOSITORY)
    assert "--iter" in one.stderr
    one = run_lar(MODELS[engine], *words[:2], "--iter", "2", cwd=REPOSITORY)
    assert "=== going to run input for 2 times" in one.stdout


def test_a_model_of_one_item_runs_each_of_an_array(run_lar: Any, tmp_path: Path) -> None:
    save_model(tmp_path / "one.onnx", "(float[1,4] x) => (float[1,4] y) { y = Relu(x) }")
    np.save(tmp_path / "x.npy", np.arange(12, dtype=np.float32).reshape(3, 4))
    done = run_lar("one.onnx", "--input", "x.npy", cwd=tmp_path, code=0)
    assert "=== going to run input for 3 times" in done.stdout


def test_one_item_fills_the_batch_that_the_model_asks_for(run_lar: Any, tmp_path: Path) -> None:
    save_model(tmp_path / "four.onnx", "(float[4,2] x) => (float[4,2] y) { y = Relu(x) }")
    np.save(tmp_path / "one.npy", np.ones((1, 2), np.float32))
    words = ["four.onnx", "--input", "one.npy", "--iter", "1", "--json", "r.json"]
    run_lar(*words, "--batch-size", "4", cwd=tmp_path, code=0)
    (fed,) = lar.read_result((tmp_path / "r.json").read_text()).fed
    assert fed.shape == (4, 2)
    assert run_lar(*words, cwd=tmp_path).returncode == 2
    done = run_lar(*words, "--batch-size", "8", cwd=tmp_path)
    assert (done.returncode, "axis 0 must be 4" in done.stderr) == (2, True)


def test_each_item_may_be_run_several_times(folder: Path) -> None:
    result = lar.run(MODELS["megengine"], str(folder), iter=3)
    assert len(result.samples.end_to_end) == 3 * COUNT
    assert len(result.warmup.end_to_end) == 1


def test_an_item_that_cannot_be_read_keeps_what_is_done(
    run_lar: Any, folder: Path, tmp_path: Path
) -> None:
    (folder / "d3.npy").write_bytes(b"no array")
    out = tmp_path / "out"
    arguments = [MODELS["megengine"], "--input", str(folder), "--bin-out-dump", str(out)]
    done = run_lar(*arguments, code=2)
    assert "d3.npy" in done.stderr
    assert [path.name.split("-")[0] for path in sorted(out.iterdir())] == [
        f"run{index}" for index in range(4)
    ]
    assert '"complete":false' in (tmp_path / "out.index.json").read_text()

    np.save(folder / "d3.npy", DIGITS[3:4])
    assert "the folder is not empty" in run_lar(*arguments, code=2).stderr
    done = run_lar(*arguments, "--resume", code=0)
    assert re.findall(r"^iter (\d+)/6: .* (\S+)$", done.stdout, re.M) == [
        (str(index), f"d{index}.npy") for index in range(3, COUNT)
    ]
    assert '"complete":true' in (tmp_path / "out.index.json").read_text()

    whole = tmp_path / "whole"
    assert run_lar(*arguments[:-1], str(whole)).returncode == 0
    ours, expected = dumped(out), dumped(whole)
    assert list(ours) == list(expected)
    assert all(np.array_equal(ours[name], expected[name]) for name in expected)

    run_lar(*arguments, "--resume", code=0)
    assert len(dumped(out)) == len(expected)


@each_row("datasets/runs/others")
def test_only_the_same_run_goes_on(
    run_lar: Any, folder: Path, tmp_path: Path, arguments: list[str], words: str
) -> None:
    out = tmp_path / "out"
    common = [MODELS["megengine"], "--input", str(folder), "--bin-out-dump", str(out)]
    assert run_lar(*common).returncode == 0
    assert words in run_lar(*common, "--resume", *arguments, code=2).stderr
    assert len(dumped(out)) == COUNT + 1


@each_row("datasets/runs/refused")
def test_what_cannot_be_is_refused(
    run_lar: Any, folder: Path, arguments: list[str], words: str
) -> None:
    given = [str(folder) if word == "SET" else word for word in arguments]
    assert words in run_lar(MODELS["megengine"], *given, code=2).stderr


def test_the_classes_of_an_output() -> None:
    assert find_classes(np.array([[0.1, 0.7, 0.1, 0.1]])) == ((1, 0, 2, 3), (0.7, 0.1, 0.1, 0.1))
    assert find_classes(np.arange(20, dtype=np.uint8).reshape(2, 10))[0] == (9, 8, 7, 6, 5)
    assert find_classes(np.array([5.0, 4, 3, 2, 1])) == ((0, 1, 2, 3, 4), (5.0, 4, 3, 2, 1))
    assert find_classes(np.array([1.0, 1.0])) == ((0, 1), (1.0, 1.0))
    for no_scores in (np.float32(1), np.array([3.0]), np.array([[3.0]])):
        assert find_classes(no_scores) == ((), ())
    assert find_classes("seq(map(int64,tensor(float)))") == ((), ())
    assert find_classes(np.array([0.1, np.nan, 0.7, np.inf], np.float32))[0] == (2, 0)


@each_engine
def test_the_item_is_told_whose_tensors_are_dumped(
    run_lar: Any, folder: Path, tmp_path: Path, engine: str
) -> None:
    dump = tmp_path / "dump"
    done = run_lar(MODELS[engine], "--input", str(folder), "--bin-io-dump", str(dump))
    item = 0 if engine == "onnxruntime" else COUNT - 1
    assert f"--bin-io-dump: {dump}: of 6 items it holds d{item}.npy alone" in done.stderr
    opened = lar.open_dump(dump)
    (key,) = [tensor.key for tensor in opened if tensor.name == "data"]
    assert np.array_equal(opened.read(key)[0], DIGITS[item])


def test_a_stack_that_is_meant_for_one_run_is_told(tmp_path: Path) -> None:
    np.savez(tmp_path / "two.npz", a=np.ones((2, 3), "f4"), b=np.ones((2, 4), "f4"))
    model = str(REPOSITORY / "models" / "multi_input.onnx")
    result = lar.run(model, str(tmp_path / "two.npz"))
    assert result.failure is not None
    assert "give each array as a .npy" in result.failure.hint
