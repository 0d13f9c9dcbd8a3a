"""Comparisons from Python: their sides, what models are fed with, data sets, testcases."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import lar
from lar.dumps import Dump
from lar.dumps.binary import write_tensor
from lar.errors import LarError, UsageError
from lar.records.run import RunResult, TensorInfo
from lar.running.compared_sides import (
    Asked,
    ModelRun,
    SideRuns,
    check_case,
    compare,
    describe_cases,
    describe_fed,
    join_notes,
    open_sides,
    rename_inputs,
    side_of,
)
from tests.cli.runs import write_dump
from tests.command_lines import ROOT, run_lar
from tests.refusals import refused
from tests.running.isolated_runs import known
from tests.tables import each_row


def test_dumps_are_compared_from_python(tmp_path: Path) -> None:
    one = write_dump(tmp_path / "one", t=np.ones(3, np.float32), u=np.zeros(2, np.float32))
    other = write_dump(tmp_path / "other", t=np.ones(3, np.float32), u=np.ones(2, np.float32))
    found = lar.compare(one, other)
    assert not found.same
    assert [it.actual.name for it in found.tensors if not it.passed] == ["u"]
    assert lar.compare(one, other, max_error=1.0).same
    assert lar.compare(Path(one), side_of(other), atol=2.0).same


def test_arrays_are_compared_from_python() -> None:
    ones = np.ones((2, 3), np.float32)
    assert lar.compare(ones, ones).same
    assert not lar.compare({"a": ones}, {"a": ones + 1}).same
    assert [it.source for it in open_sides([ones] * 26)][::25] == ["arrays of A", "arrays of Z"]
    assert refused("27 sides", lar.compare, *[ones] * 27).hint == "give 26 at most"
    with pytest.raises(UsageError, match="arrays of B: x: holds elements of dtype <U4"):
        lar.compare(ones, {"x": ["text"]})


def test_a_model_is_fed_with_the_inputs_among_arrays() -> None:
    model = ROOT / "models/digits_cnn.onnx"
    (pair,) = lar.compare(model, {"data": np.load(ROOT / "inputs/digit_7.npy")}).tensors
    assert pair.figures
    assert pair.figures.identical
    with pytest.raises(UsageError, match="does not hold the inputs of its run"):
        lar.compare(model, {"logits": np.ones((1, 10))})
    with pytest.raises(UsageError, match="does not hold the inputs of its run"):  # an excerpt
        lar.compare(model, ROOT / "tests/data/digits_cnn_io.txt")


def test_models_get_the_same_data_though_their_inputs_have_other_names(tmp_path: Path) -> None:
    import onnx

    model = onnx.load(ROOT / "models/one_operator.onnx")
    model.graph.input[0].name = model.graph.node[0].input[0] = "another"
    onnx.save(model, tmp_path / "renamed.onnx")
    found = compare(tmp_path / "renamed.onnx", ROOT / "models/one_operator.onnx", seed=3)
    assert found.same
    figures = [it.figures for it in found.tensors if it.figures]
    assert figures
    assert all(it.identical for it in figures)


def test_options_for_all_sides_are_keywords() -> None:
    model = f"{ROOT}/models/digits_cnn.onnx"
    found = compare(model, f"{model} --seed 1 --fill ones", graph_optimization_level="disable")
    for side in (found.actual, found.expected):
        assert side.settings["graph_optimization_level"] == "disable"
    with pytest.raises(UsageError, match="--graph-optimization-level: no side is a model"):
        compare({"x": np.ones(2)}, {"x": np.ones(2)}, graph_optimization_level="disable")
    with pytest.raises(UsageError, match=r"--enable-nchw44: .*onnx: ONNX Runtime cannot do this"):
        compare(model, f"{ROOT}/models/digits_cnn.mge", enable_nchw44=True)


def test_inputs_of_another_model_are_paired_by_name_or_by_order() -> None:
    infos = [TensorInfo(name=it, dtype="float32", shape=(1,)) for it in ("a", "b")]
    fed, own = {"x": np.ones(1), "y": np.ones(1)}, {"b": np.ones(1), "a": np.zeros(1)}
    assert rename_inputs(fed, infos, "net") == {"a": fed["x"], "b": fed["y"]}
    assert rename_inputs({**fed, **own}, infos, "net") == rename_inputs(own, infos, "net") == own
    refused(r"takes 2 inputs .a, b., and the sides have 1 ", rename_inputs, {"x": 0}, infos, "net")


def test_operators_of_sides_are_prepared_once(tmp_path: Path) -> None:
    model = f"{ROOT}/models/digits_cnn.onnx"
    folder = write_dump(tmp_path / "d", t=np.ones(3, np.float32))
    with contextlib.ExitStack() as stack:
        runs = SideRuns([side_of(model), side_of(folder)], Asked(), stack)
        assert runs.operators_of(0) is runs.operators_of(0)
        assert not isinstance(runs.operators_of(0), str)
        assert str(runs.operators_of(1)).startswith("B is a dump that does not name the model and")
    elsewhere = Asked(make_on=lambda *_: pytest.fail("it is run"))
    with contextlib.ExitStack() as stack:
        runs = SideRuns([side_of(model)], elsewhere, stack)
        assert runs.operators_of(0) == "A ran on another machine"


@each_row("running/cases/testcases of sides")
def test_a_testcase_is_of_a_side_that_has_it(
    counts: list[int], case: int | None, said: str, notes: list[str]
) -> None:
    sides = [ModelRun(f"m{count} --cpu", f"m{count}", {}, count) for count in counts]
    if said:
        assert refused("", check_case, sides, case).message == said
    else:
        check_case(sides, case)
    assert [*describe_cases(sides, case or 0)] == notes


@each_row("running/cases/notes on inputs")
def test_notes_name_the_inputs_that_lar_chose(sides: list[Any], notes: list[str]) -> None:
    """Each side has the text about shared data, and fields of its result."""
    spec = {"model": "net", "engine": "e", "driver": "d"}
    plain = {"spec": spec, "status": "ok", "phase": "done"}
    results = [(msgspec.convert({**plain, **it}, RunResult), shared) for shared, it in sides]
    told = {number: [*describe_fed(*each)] for number, each in enumerate(results)}
    assert [*join_notes(told)] == notes


def test_a_run_that_fails_says_which_side() -> None:
    side = f"{ROOT}/models/digits_cnn.onnx --input {ROOT}/inputs/cat.npy"
    with pytest.raises(LarError, match=r"digits_cnn\.onnx --input"):
        compare(side, side)
    with pytest.raises(UsageError, match="no-such-flag"):
        compare(f"{ROOT}/models/digits_cnn.onnx --no-such-flag", side)


@pytest.fixture(scope="module")
def two_digits(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A stack of two digits."""
    path = tmp_path_factory.mktemp("digits") / "two.npz"
    np.savez(path, data=np.load(ROOT / "inputs/digits.npz")["data"][:2])
    return str(path)


def test_models_are_compared_on_each_item_of_a_data_set(two_digits: str) -> None:
    said: list[str] = []
    found = compare(
        ROOT / "models/digits_cnn.mge",
        ROOT / "models/digits_cnn.onnx",
        input=two_digits,
        progress=said.append,
    )
    assert found.same
    assert found.items == ("0", "1")
    assert f"item 2 of 2: running {ROOT}/models/digits_cnn.onnx" in said
    outputs = [it for it in found.tensors if it.is_output]
    assert [each.items for each in [it.over_items for it in outputs] if each] == [2] * len(outputs)
    (last,) = (it for it in outputs if it.figures and not it.figures.identical)
    assert last.over_items
    assert last.figures
    assert last.over_items.worst_snr_db == last.figures.snr_db


def test_dumps_of_outputs_are_compared_run_by_run(tmp_path: Path, two_digits: str) -> None:
    folders = []
    for suffix in ("mge", "onnx"):
        folders.append(str(tmp_path / suffix))
        flags = ("--input", two_digits, "--bin-out-dump", folders[-1])
        assert run_lar(f"models/digits_cnn.{suffix}", *flags, cwd=ROOT).returncode == 0
    found = compare(folders[0], folders[1])
    assert found.same
    runs = {it.actual.name.partition(" run ")[2] for it in found.tensors}
    assert len(runs) == len(found.tensors) >= 2
    assert all(it.actual.name == it.expected.name for it in found.tensors)


def test_of_several_testcases_one_is_compared_and_told(tmp_path: Path) -> None:
    packed = {suffix: str(tmp_path / f"packed{suffix}") for suffix in (".mge", "")}
    data = ["-d", "inputs/digit_7.npy", "-d", "#rand(0,1)", "-d", "#rand(0,90)"]
    for suffix, place in packed.items():
        model = f"models/digits_cnn{suffix or '.onnx'}"
        assert run_lar("pack", model, *data, "-o", place, cwd=ROOT).returncode == 0
    scales = []
    for case in (None, 2):
        found = compare(packed[".mge"], packed[""], case=case)
        assert found.same
        assert [note for note in found.notes if "testcases" in note] == [
            f"{side} has 3 testcases; number {case or 0} was compared; --case N compares another"
            for side in "AB"
        ]
        fed = next(it for it in found.tensors if it.actual.name == "data")
        scales.append(known(fed.figures).scale or 0.0)
    assert scales[1] > 30 > scales[0]
    with pytest.raises(UsageError, match=r"--case 3: .* has 3 testcases"):
        compare(packed[".mge"], ROOT / "models/digits_cnn.mge", case=3)
    with pytest.raises(UsageError, match="--case 0: no side has testcases"):
        compare(ROOT / "models/digits_cnn.mge", ROOT / "models/digits_cnn.mge", case=0)


def test_a_model_with_testcases_brings_the_inputs_of_both_sides(tmp_path: Path) -> None:
    packed = str(tmp_path / "digit")
    model, data = "models/digits_cnn.onnx", "inputs/digit_7.npy"
    assert run_lar("pack", model, "-d", data, "-o", packed, cwd=ROOT).returncode == 0
    for one, other in ((packed, ROOT / model), (ROOT / model, packed)):
        found = compare(one, other)
        assert found.same
        assert not any("other data" in note for note in found.notes)
    fed = next(it for it in found.tensors if it.actual.name == "data")
    assert known(fed.figures).scale == pytest.approx(
        float(np.sqrt(np.square(np.load(ROOT / data).astype(np.float64)).mean()))
    )


def test_a_side_is_a_model_with_options_in_one_text() -> None:
    assert side_of("'a b.mge' --cpu --input 'x y.npy'") == ModelRun(
        "'a b.mge' --cpu --input 'x y.npy'", "a b.mge", {"cpu": True, "input": ["x y.npy"]}
    )
    model = str(ROOT / "models/digits_cnn.mge")
    assert side_of(model) == ModelRun(model, model, {})


def test_a_side_is_a_folder_or_a_file_of_a_dump(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    write_tensor(tmp_path / "d" / "t", np.ones(3, np.float32), "t")
    assert isinstance(side_of(str(tmp_path / "d")), Dump)
    # Its first bytes, the length of the name, may look like an ONNX model's.
    file = tmp_path / "tensor"
    write_tensor(file, np.ones(3, np.float32), "n" * 0x0108)
    assert file.read_bytes()[:2] == b"\x08\x01"
    assert isinstance(side_of(str(file)), Dump)
    (tmp_path / "empty.txt").touch()
    with pytest.raises(UsageError, match="holds no tensors"):
        side_of(str(tmp_path / "empty.txt"))


def test_a_model_may_have_more_options_than_a_file_name_has_letters() -> None:
    side = side_of(f"{ROOT}/models/digits_cnn.onnx " + "--seed 1 " * 60)
    assert isinstance(side, ModelRun)
    assert side.options == {"seed": "1"}


def test_a_side_in_a_folder_that_may_not_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: object, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patched:
        patched.setattr("os.stat", refuse)
        with pytest.raises(UsageError) as caught:
            side_of(str(tmp_path / "a.npy"))
    assert caught.value.message == f"{tmp_path / 'a.npy'}: cannot be read: permission denied"
