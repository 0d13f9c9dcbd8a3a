"""The tensors of sequences, maps and texts, and their names."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import lar
from lar.dumps import DumpFacts, read_facts, recording
from lar.dumps.binary import Variable, format_name, write_tensor
from lar.dumps.recording import Part, Unheld, parts_of
from lar.records.run import RunContext
from tests.refusals import refused

ONE, TWO = np.ones((2, 3), np.float32), np.zeros(4, np.int64)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (ONE, {"v": ONE}),
        ([ONE, TWO], {"v[0]": ONE, "v[1]": TWO}),
        ({"cat": 0.5, "dog": 0.25}, {"v[cat]": 0.5, "v[dog]": 0.25}),
        ([{0: 0.5, 7: 1.0}, {0: 0.1, 7: 0.2}], {"v[0]": [0.5, 0.1], "v[7]": [1.0, 0.2]}),
        ([{0: 0.5}, {1: 0.25}], {"v[0][0]": 0.5, "v[1][1]": 0.25}),
    ],
)
def test_a_value_is_its_tensors(value: object, expected: dict[str, Any]) -> None:
    parts = [each for each in parts_of("v", value) if isinstance(each, Part)]
    assert [part.name for part in parts] == [*expected]
    for part in parts:
        assert part.array.tolist() == np.asarray(expected[part.name]).tolist()


@pytest.mark.parametrize(
    ("value", "name", "reason"),
    [
        (None, "v", "an optional value that is absent"),
        ([], "v", "a sequence without items"),
        ([None], "v[0]", "an optional value that is absent"),
        (np.zeros([1] * 8), "v", "no file holds 8 axes"),
        (np.zeros(2, "M8[s]"), "v", "no file holds the dtype datetime64[s]"),
    ],
)
def test_what_no_file_holds_has_a_reason(value: object, name: str, reason: str) -> None:
    assert [*parts_of("v", value)] == [Unheld(name, reason)]


def driver_of(folder: Path, runner: int = 0, **outputs: Any) -> Any:
    context = RunContext(written={"bin_io_dump": str(folder), "bin_out_dump": str(folder)})
    known = {"runner": runner, "run_number": 0, "after_iteration": None, "context": context}
    return SimpleNamespace(**known, outputs=lambda: outputs)


def test_a_tensor_that_no_file_holds_is_left_out_with_the_reason(tmp_path: Path) -> None:
    values: dict[str, Any] = {"y": None, "z": ONE, "t": np.zeros(2, "M8[s]"), "u": None}
    layer, facts = recording.Layer("n", "Op", ["x"], values), DumpFacts(left_out={"u": "unused"})
    last = recording.Layer("", "Last", ["z", "", "w"], {"a": ONE, "b": TWO}, {"axis": 1})
    for runner in (1, 0):
        assert not (tmp_path / "d").exists()
        driver = driver_of(tmp_path / "d", runner)
        fed, weights = {"x": TWO}, {"w": ONE}
        recording.dump_layers(driver, fed, [layer, last], ["z"], constants=weights, facts=facts)
    told = {"u": "unused", "y": recording.NO_VALUES, "t": "no file holds the dtype datetime64[s]"}
    kept = read_facts(tmp_path / "d")
    assert (kept.left_out, kept.operators) == (told, [(9, {"axis": 1})])
    # As in MegEngine, an operator has a number, and its outputs the next ones.
    tensors = {it.name: (it.key, it.operator, it.slot) for it in lar.open_dump(tmp_path / "d")}
    assert tensors == {
        "x": ("000001", "opr0", 0),
        "w": ("000003", "opr2", 0),
        "z": ("000006", "opr4", 1),
        "a": ("00000a", "opr9", 0),
        "b": ("00000b", "opr9", 1),
    }


def test_an_output_that_no_file_holds_is_refused(tmp_path: Path) -> None:
    driver = driver_of(tmp_path / "d", y=ONE, z="a map")
    recording.write_outputs(driver, recording.number_outputs(["y", "z"]))
    refused("--bin-out-dump: the output z cannot be written: a map", driver.after_iteration)
    assert [it.name for it in (tmp_path / "d").iterdir()] == ["run0-var0"]
    values: dict[str, Any] = {"y": ONE, "s[0]": ONE, "s[1]": TWO, "other": ONE}
    driver = driver_of(tmp_path / "e", **values)
    recording.write_outputs(driver, recording.number_outputs(["y", "s"]))
    for _ in range(2):
        driver.after_iteration()
    names = [f"run{run}-var{number}" for run in (0, 1) for number in (0, 2, 3)]
    assert sorted(it.name for it in (tmp_path / "e").iterdir()) == names


@pytest.mark.parametrize("kind", [object, np.str_])
def test_texts_are_stored_as_bytes_and_stay_texts(kind: type, tmp_path: Path) -> None:
    (part,) = parts_of("v", np.array([["a", "größer"], ["", "猫"]], kind))
    assert isinstance(part, Part)
    shape = part.array.shape
    variable = Variable(id=1, shape=shape, dtype=part.dtype)
    write_tensor(tmp_path / "000001", part.array, format_name(variable))
    (tensor,) = dump = lar.open_dump(tmp_path)
    assert (tensor.dtype, tensor.shape) == ("string", (2, 2, 8))
    stored = dump.read(tensor.key)
    assert stored.dtype == np.uint8
    texts = [[bytes(each).rstrip(b"\0").decode() for each in row] for row in stored]
    assert texts == [["a", "größer"], ["", "猫"]]
