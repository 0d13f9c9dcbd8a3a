"""Comparisons from Python: what models are fed with, data sets, testcases."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import lar
from lar.dumps.binary import write_tensor
from lar.errors import LarError, UsageError
from lar.running.compared_dumps import SidesAlone, compare
from lar.running.compared_sides import side_of
from lar.running.side_runs import Asked, SideRuns

if TYPE_CHECKING:
    from tests.conftest import RunLar


def write_folder(folder: Path, **arrays: np.ndarray[tuple[int], np.dtype[np.float32]]) -> str:
    folder.mkdir()
    for name, array in arrays.items():
        write_tensor(folder / name, array, name)
    return str(folder)


def test_dumps_are_compared_from_python(tmp_path: Path) -> None:
    one = write_folder(tmp_path / "one", t=np.ones(3, np.float32), u=np.zeros(2, np.float32))
    other = write_folder(tmp_path / "other", t=np.ones(3, np.float32), u=np.ones(2, np.float32))
    found = lar.compare(one, other)
    assert not found.same
    assert [it.actual.name for it in found.tensors if not it.passed] == ["u"]
    assert lar.compare(one, other, max_error=1.0).same
    assert lar.compare(Path(one), side_of(other), atol=2.0).same


def test_arrays_are_compared_from_python() -> None:
    ones = np.ones((2, 3), np.float32)
    assert lar.compare(ones, ones).same
    assert not lar.compare({"a": ones}, {"a": ones + 1}).same
    with pytest.raises(UsageError, match="arrays of B: x: holds elements of dtype <U4"):
        lar.compare(ones, {"x": ["text"]})


def test_a_model_is_fed_with_the_inputs_among_arrays(root: Path) -> None:
    model = root / "models/digits_cnn.onnx"
    digit = np.load(root / "inputs/digit_7.npy")
    (pair,) = lar.compare(model, {"data": digit}).tensors
    assert pair.figures
    assert pair.figures.identical
    with pytest.raises(UsageError, match="does not hold what its run was fed with"):
        lar.compare(model, {"logits": np.ones((1, 10))})


def test_models_get_the_same_data_though_their_inputs_have_other_names(
    root: Path, tmp_path: Path
) -> None:
    import onnx

    model = onnx.load(root / "models/one_operator.onnx")
    model.graph.input[0].name = model.graph.node[0].input[0] = "another"
    onnx.save(model, tmp_path / "renamed.onnx")
    found = compare(tmp_path / "renamed.onnx", root / "models/one_operator.onnx", seed=3)
    assert found.same
    figures = [it.figures for it in found.tensors if it.figures]
    assert figures
    assert all(it.identical for it in figures)


def test_a_dump_without_its_inputs_asks_for_them(root: Path, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "d", t=np.ones(3, np.float32))
    with pytest.raises(UsageError, match="does not hold what its run was fed with") as caught:
        compare(folder, root / "models/one_operator.onnx")
    assert "--input" in caught.value.hint


def test_models_that_take_other_inputs_are_refused(root: Path) -> None:
    with pytest.raises(UsageError, match="take different inputs"):
        compare(root / "models/one_operator.onnx", root / "models/multi_input.onnx")


def test_options_for_all_sides_are_keywords(root: Path) -> None:
    model = f"{root}/models/digits_cnn.onnx"
    found = compare(model, f"{model} --seed 1 --fill ones", graph_optimization_level="disable")
    for side in (found.actual, found.expected):
        assert side.settings["graph_optimization_level"] == "disable"
    with pytest.raises(UsageError, match="--graph-optimization-level: no side is a model"):
        compare({"x": np.ones(2)}, {"x": np.ones(2)}, graph_optimization_level="disable")
    with pytest.raises(UsageError, match=r"--enable-nchw44: .*onnx: ONNX Runtime cannot do this"):
        compare(model, f"{root}/models/digits_cnn.mge", enable_nchw44=True)


def test_operators_of_sides_are_prepared_once(root: Path, tmp_path: Path) -> None:
    model = f"{root}/models/digits_cnn.onnx"
    folder = write_folder(tmp_path / "d", t=np.ones(3, np.float32))
    with contextlib.ExitStack() as stack:
        runs = SideRuns([side_of(model), side_of(folder)], Asked(), stack)
        alone = SidesAlone(runs, stack)
        assert alone.of(0) is alone.of(0)
        assert not isinstance(alone.of(0), str)
        assert alone.of(1) == "B is a dump that names no model to run operators of"
    elsewhere = Asked(make_on=lambda *_: pytest.fail("it is run"))
    with contextlib.ExitStack() as stack:
        runs = SideRuns([side_of(model)], elsewhere, stack)
        assert SidesAlone(runs, stack).of(0) == "A ran on another machine"


def test_a_run_that_fails_says_which_side(root: Path) -> None:
    side = f"{root}/models/digits_cnn.onnx --input {root}/inputs/cat.npy"
    with pytest.raises(LarError, match=r"digits_cnn\.onnx --input"):
        compare(side, side)
    with pytest.raises(UsageError, match="no-such-flag"):
        compare(f"{root}/models/digits_cnn.onnx --no-such-flag", side)


@pytest.mark.parametrize("kind", ["folder", "list", "stack"])
def test_a_data_set_of_one_side_is_refused(root: Path, tmp_path: Path, kind: str) -> None:
    digit = f"{root}/inputs/digit_7.npy"
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.npy").symlink_to(digit)
    (tmp_path / "list.txt").write_text(f"{digit}\n{digit}\n")
    places = {"folder": tmp_path / "folder", "list": tmp_path / "list.txt"}
    data = str(places.get(kind, root / "inputs/digits.npz"))
    model = f"{root}/models/digits_cnn.onnx"
    with pytest.raises(UsageError, match="is a data set of") as caught:
        compare(f"{model} --input {digit}", f"{model} --input {data}")
    assert f"--input {data}" in caught.value.message
    assert "--bin-out-dump" in caught.value.hint
    with pytest.raises(UsageError, match="more than two sides"):
        compare(model, model, model, input=data)


@pytest.fixture(scope="module")
def two_digits(root: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A stack of two digits."""
    path = tmp_path_factory.mktemp("digits") / "two.npz"
    np.savez(path, data=np.load(root / "inputs/digits.npz")["data"][:2])
    return str(path)


def test_models_are_compared_on_each_item_of_a_data_set(root: Path, two_digits: str) -> None:
    said: list[str] = []
    found = compare(
        root / "models/digits_cnn.mge",
        root / "models/digits_cnn.onnx",
        input=two_digits,
        progress=said.append,
    )
    assert found.same
    assert found.items == ("0", "1")
    assert f"item 2 of 2: running {root}/models/digits_cnn.onnx" in said
    outputs = [it for it in found.tensors if it.is_output]
    errors = [it.over_items for it in outputs]
    assert [each.items for each in errors if each] == [2] * len(outputs)
    (last,) = (it for it in outputs if it.figures and not it.figures.identical)
    assert last.over_items
    assert last.figures
    assert last.over_items.worst_snr_db == last.figures.snr_db


def test_dumps_of_outputs_are_compared_run_by_run(
    root: Path, tmp_path: Path, two_digits: str, run_lar: RunLar
) -> None:
    folders = []
    for suffix in ("mge", "onnx"):
        folders.append(str(tmp_path / suffix))
        flags = ("--input", two_digits, "--bin-out-dump", folders[-1])
        assert run_lar(f"models/digits_cnn.{suffix}", *flags, cwd=root).returncode == 0
    found = compare(folders[0], folders[1])
    assert found.same
    runs = {it.actual.name.partition(" run ")[2] for it in found.tensors}
    assert len(runs) == len(found.tensors) >= 2
    assert all(it.actual.name == it.expected.name for it in found.tensors)


def test_of_several_testcases_one_is_compared_and_told(
    root: Path, tmp_path: Path, run_lar: RunLar
) -> None:
    packed = {suffix: str(tmp_path / f"packed{suffix}") for suffix in (".mge", "")}
    data = ["-d", "inputs/digit_7.npy", "-d", "#rand(0,1)", "-d", "#rand(0,90)"]
    for suffix, place in packed.items():
        model = f"models/digits_cnn{suffix or '.onnx'}"
        assert run_lar("pack", model, *data, "-o", place, cwd=root).returncode == 0
    scales = []
    for case in (None, 2):
        found = compare(packed[".mge"], packed[""], case=case)
        assert found.same
        assert [note for note in found.notes if "testcases" in note] == [
            f"{side} has 3 testcases, of which number {case or 0} was compared; "
            "--case N compares another"
            for side in "AB"
        ]
        fed = next(it for it in found.tensors if it.actual.name == "data")
        assert fed.figures is not None
        scales.append(fed.figures.scale or 0.0)
    assert scales[1] > 30 > scales[0]
    with pytest.raises(UsageError, match=r"--case 3: .* has 3 testcases"):
        compare(packed[".mge"], root / "models/digits_cnn.mge", case=3)
    with pytest.raises(UsageError, match="--case 0: no side has testcases"):
        compare(root / "models/digits_cnn.mge", root / "models/digits_cnn.mge", case=0)


def test_a_model_with_testcases_brings_the_inputs_of_both_sides(
    root: Path, tmp_path: Path, run_lar: RunLar
) -> None:
    packed = str(tmp_path / "digit")
    model, data = "models/digits_cnn.onnx", "inputs/digit_7.npy"
    assert run_lar("pack", model, "-d", data, "-o", packed, cwd=root).returncode == 0
    for one, other in ((packed, root / model), (root / model, packed)):
        found = compare(one, other)
        assert found.same
        assert not any("other data" in note for note in found.notes)
    fed = next(it for it in found.tensors if it.actual.name == "data")
    assert fed.figures is not None
    assert fed.figures.scale == pytest.approx(
        float(np.sqrt(np.square(np.load(root / data).astype(np.float64)).mean()))
    )
