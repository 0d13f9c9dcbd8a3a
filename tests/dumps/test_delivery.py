"""Which run of several a dump is of."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lar
from lar.dumps.delivery import name_of_run
from lar.records.run import Case, RunSpec
from tests.tables import each_row


def spec_of(items: tuple[str, ...] = (), cases: tuple[str, ...] = ()) -> RunSpec:
    return RunSpec(
        model="m",
        engine="fake",
        driver="script",
        iterations=2,
        warmup_iterations=1,
        item_names=items,
        cases=tuple(Case(name=name) for name in cases),
    )


@each_row("dumps/excerpts/names of runs")
def test_a_run_is_of_the_item_or_testcase_whose_iteration_it_is(number: int, name: str) -> None:
    assert name_of_run(spec_of(items=("a", "b", "c")), number) == name
    assert name_of_run(spec_of(cases=("a", "b", "c")), number) == name


def test_runs_that_are_all_alike_have_no_name() -> None:
    for spec in (spec_of(), spec_of(items=("a",)), spec_of(cases=("a",))):
        assert name_of_run(spec, 3) == ""


REPOSITORY = Path(__file__).resolve().parents[2]
DIGITS_CNN = str(REPOSITORY / "models" / "digits_cnn.onnx")
COUNT = 4
DIGITS = np.load(REPOSITORY / "inputs" / "digits.npy")[:COUNT]


def interrupted_run(run_lar: Any, tmp_path: Path) -> list[str]:
    """Return a command line whose outputs of the items 2 and 3 are missing."""
    (tmp_path / "set").mkdir()
    for index, digit in enumerate(DIGITS):
        np.save(tmp_path / "set" / f"d{index}.npy", digit[None])
    words = [DIGITS_CNN, "--input", str(tmp_path / "set"), "--bin-out-dump", str(tmp_path / "out")]
    assert run_lar(*words).returncode == 0
    for name in ("run3-var0", "run4-var0"):
        (tmp_path / "out" / name).unlink()
    return words


@pytest.fixture
def arguments(run_lar: Any, tmp_path: Path) -> list[str]:
    return interrupted_run(run_lar, tmp_path)


def items_run(text: str) -> list[str]:
    return re.findall(r"^iter \d+/\d+: .* (\S+)$", text, re.M)


@pytest.mark.parametrize("name", ["notes.txt", ".hidden", "run3-plots/"])
def test_what_is_no_output_is_neither_removed_nor_a_surprise_in_the_end(
    run_lar: Any, arguments: list[str], tmp_path: Path, name: str
) -> None:
    other = tmp_path / "out" / name
    other.mkdir() if name.endswith("/") else other.write_text("mine")
    done = run_lar(*arguments, "--resume", code=2)
    assert f"holds {other.name}, which is not an output" in done.stderr
    assert not items_run(done.stdout)
    assert other.exists()


def test_a_file_is_no_place_for_outputs(run_lar: Any, arguments: list[str], tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("mine")
    done = run_lar(*arguments[:-1], str(place), "--resume", code=2)
    assert "file: is not a folder" in done.stderr
    assert not items_run(done.stdout)
    (tmp_path / "out.index.json").unlink()
    done = run_lar(*arguments, "--resume", code=2)
    assert "out: has no index beside it" in done.stderr


@each_row("dumps/excerpts/made again")
def test_an_output_that_was_cut_off_is_made_again(
    run_lar: Any, arguments: list[str], tmp_path: Path, cut: str, again: list[str]
) -> None:
    whole = lar.load_tensor_binary(tmp_path / "out" / cut)[0]
    (tmp_path / "out" / cut).write_bytes(b"\1\0\0\0")
    done = run_lar(*arguments, "--resume", "--csv", str(tmp_path / "times.csv"), code=0)
    assert items_run(done.stdout) == again
    index = lar.open_dump(tmp_path / "out").index
    assert (len(index.tensors), index.complete, index.outputs) == (COUNT + 1, True, ("logits",))
    assert (index.device, index.provider, index.feeding) == ("cpu", "CPUExecutionProvider", {})
    assert np.array_equal(lar.load_tensor_binary(tmp_path / "out" / cut)[0], whole)
    header, *rows = (tmp_path / "times.csv").read_text().splitlines()
    case = header.split(",").index("case")
    told = [row.split(",")[case] for row in rows if row.startswith("iterations")]
    assert told == [name[1] for name in again]


@pytest.mark.parametrize("data", ["another folder", "the same folder, scaled"])
def test_other_data_does_not_go_on(
    run_lar: Any, arguments: list[str], tmp_path: Path, data: str
) -> None:
    if data == "another folder":
        (tmp_path / "set").rename(tmp_path / "other")
        done = run_lar(arguments[0], "--input", str(tmp_path / "other"), *arguments[3:], "--resume")
        assert "a run with another data set" in done.stderr
    else:
        done = run_lar(*arguments, "--resume", "--scale", "0.5")
        assert "a run with another option" in done.stderr
    assert done.returncode == 2


def test_items_done_from_other_content_do_not_go_on(
    run_lar: Any, arguments: list[str], tmp_path: Path
) -> None:
    np.save(tmp_path / "set" / "d2.npy", DIGITS[1:2])  # not done yet
    np.save(tmp_path / "set" / "d1.npy", DIGITS[2:3] + 1)
    changed = str(tmp_path / "set" / "d1.npy")
    index = tmp_path / "out.index.json"
    for _ in range(2):  # to ask twice is no way round
        done = run_lar(*arguments, "--resume", code=2)
        assert f"--resume: {changed} has changed since {tmp_path / 'out'} was" in done.stderr
        assert not items_run(done.stdout)

    # What a lar has left that did not note it goes on.
    told = json.loads(index.read_text())
    del told["files"]
    index.write_text(json.dumps(told))
    assert items_run(run_lar(*arguments, "--resume", code=0).stdout) == ["d2.npy", "d3.npy"]


def test_a_stack_of_other_content_does_not_go_on(run_lar: Any, tmp_path: Path) -> None:
    stack, out = tmp_path / "my.npz", tmp_path / "out"
    np.savez(stack, data=DIGITS)
    arguments = [DIGITS_CNN, "--input", f"data:{stack}", "--bin-out-dump", str(out)]
    assert run_lar(*arguments).returncode == 0
    (out / "run3-var0").unlink()
    np.savez(stack, data=DIGITS[::-1])
    done = run_lar(*arguments, "--resume", code=2)
    assert f"--resume: {stack} has changed since {out} was dumped from it" in done.stderr
    for flags in (["--overwrite"], ["--resume"]):
        assert run_lar(*arguments, *flags).returncode == 0
    np.savez(stack, data=DIGITS)
    assert run_lar(*arguments, "--resume").returncode == 2


@pytest.mark.parametrize("flags", [[], ["--resume"], ["--resume", "--labels", "labels.txt"]])
def test_a_folder_in_which_nothing_came_goes_away(
    run_lar: Any, tmp_path: Path, flags: list[str]
) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a.npy").write_bytes(b"no array")
    (tmp_path / "labels.txt").write_text("1\n")
    arguments = [DIGITS_CNN, "--input", str(tmp_path / "set"), "--bin-out-dump"]
    flags = [str(tmp_path / flag) if "." in flag else flag for flag in flags]
    done = run_lar(*arguments, str(tmp_path / "out"), *flags, code=2)
    assert "a.npy: is not a .npy file" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["labels.txt", "set"]
