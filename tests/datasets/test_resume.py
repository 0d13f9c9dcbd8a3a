"""`--resume`: what is done outlives whatever ends a run, and only the same run goes on with it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lar
from lar.datasets.resume import add_earlier_classes
from lar.dumps.binary import write_tensor
from lar.dumps.names import Variable, format_name
from lar.records.run import Item, OutputSummary, RunResult, RunSpec
from tests.running.isolated_runs import eventually, is_alive, workers_of

REPOSITORY = Path(__file__).resolve().parents[2]
DIGITS_CNN = str(REPOSITORY / "models" / "digits_cnn.onnx")
MOBILENET = str(REPOSITORY / "models" / "mobilenet_v2.onnx")
COUNT = 4
DIGITS = np.load(REPOSITORY / "inputs" / "digits.npy")[:COUNT]


@pytest.fixture
def arguments(run_lar: Any, tmp_path: Path) -> list[str]:
    """A command line whose outputs of the items 2 and 3 are missing."""
    (tmp_path / "set").mkdir()
    for index, digit in enumerate(DIGITS):
        np.save(tmp_path / "set" / f"d{index}.npy", digit[None])
    words = [DIGITS_CNN, "--input", str(tmp_path / "set"), "--bin-out-dump", str(tmp_path / "out")]
    assert run_lar(*words).returncode == 0
    for name in ("run3-var0", "run4-var0"):
        (tmp_path / "out" / name).unlink()
    return words


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


@pytest.mark.parametrize(
    ("cut", "again"),
    [("run1-var0", ["d0.npy", "d2.npy", "d3.npy"]), ("run0-var0", [f"d{i}.npy" for i in range(4)])],
)
def test_an_output_that_was_cut_off_is_made_again(
    run_lar: Any, arguments: list[str], tmp_path: Path, cut: str, again: list[str]
) -> None:
    whole = lar.load_tensor_binary(tmp_path / "out" / cut)[0]
    (tmp_path / "out" / cut).write_bytes(b"\1\0\0\0")
    done = run_lar(*arguments, "--resume", "--csv", str(tmp_path / "times.csv"), code=0)
    assert items_run(done.stdout) == again
    assert len(lar.open_dump(tmp_path / "out")) == COUNT + 1
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


def kill_when_there(arguments: list[str], file: Path) -> None:
    """Begin a run, and kill lar when a file is there."""
    with subprocess.Popen(
        [sys.executable, "-m", "lar", *arguments], stdout=subprocess.DEVNULL, cwd=REPOSITORY
    ) as process:
        assert eventually(file.exists, 60)
        workers = workers_of(process.pid)
        process.send_signal(signal.SIGKILL)
    # The worker ends with it.
    assert eventually(lambda: not any(is_alive(worker) for worker in workers), 60)


def test_what_is_done_and_its_accuracy_outlive_a_killed_lar(run_lar: Any, tmp_path: Path) -> None:
    count, out = 200, tmp_path / "out"
    (tmp_path / "set.txt").write_text(f"{REPOSITORY / 'inputs' / 'cat.npy'}\n" * count)
    (tmp_path / "labels.txt").write_text("5\n" * count)
    arguments = [MOBILENET, "--multithread", "1", "--input", str(tmp_path / "set.txt")]
    arguments += ["--bin-out-dump", str(out), "--labels", str(tmp_path / "labels.txt")]
    kill_when_there(arguments, out / "run2-var0")
    dump = lar.open_dump(out)
    assert not dump.index.complete
    assert 2 <= len(dump) <= count
    assert dump.read("run1-var0").shape == (1, 1000)
    done = run_lar(*arguments, "--resume", code=0)
    assert count - len(dump) <= len(items_run(done.stdout)) <= count - len(dump) + 2
    assert re.search(rf"^accuracy: top-1 .* \(\d+ of {count}\), .*\)$", done.stdout, re.M)
    dump = lar.open_dump(out)
    assert dump.index.complete
    assert len(dump) == count + 1


LABELS = np.load(REPOSITORY / "inputs" / "digits_labels.npy")[:COUNT]


def test_the_accuracy_is_that_of_the_whole_set(
    run_lar: Any, arguments: list[str], tmp_path: Path
) -> None:
    wrong = [*LABELS[:2], (LABELS[2] + 1) % 10, LABELS[3]]
    (tmp_path / "labels.txt").write_text("".join(f"{label}\n" for label in wrong))
    labels = ["--labels", str(tmp_path / "labels.txt"), "--json", str(tmp_path / "r.json")]
    whole = run_lar(*arguments[:3], *labels)
    expected = json.loads((tmp_path / "r.json").read_text())["items"]
    for _ in range(2):  # at the second time all was done before
        done = run_lar(*arguments, *labels, "--resume")
        assert len(items_run(done.stdout)) < COUNT
        assert done.stdout.splitlines()[-1] == whole.stdout.splitlines()[-1]
        assert "accuracy: top-1 75.00% (3 of 4), top-5" in done.stdout
        assert json.loads((tmp_path / "r.json").read_text())["items"] == expected


def test_items_that_are_not_done_are_told_beside_the_accuracy(
    run_lar: Any, arguments: list[str], tmp_path: Path
) -> None:
    (tmp_path / "labels.txt").write_text("".join(f"{label}\n" for label in LABELS))
    (tmp_path / "set" / "d3.npy").write_bytes(b"no array")
    done = run_lar(*arguments, "--labels", str(tmp_path / "labels.txt"), "--resume", code=2)
    assert "top-1 100.00% (3 of 3)" in done.stdout
    assert "; 1 unfinished item skipped" in done.stdout


def test_the_classes_are_those_of_the_first_output(tmp_path: Path) -> None:
    for number, (name, best) in enumerate([("second", 1), ("first", 2)]):
        scores = np.eye(3, dtype=np.float32)[best : best + 1]
        told = format_name(Variable(id=number, name=name, shape=(1, 3)))
        write_tensor(tmp_path / f"run1-var{number}", scores, told)
    numbers = {"minimum": 0.0, "maximum": 1.0, "mean": 0.3, "nonfinite_count": 0}
    output = OutputSummary(name="first", dtype="float32", shape=(1, 3), sha256="", **numbers)  # type: ignore[arg-type]
    spec = RunSpec(
        model="m",
        engine="e",
        driver="d",
        iterations=1,
        settings={"bin_out_dump": str(tmp_path)},
        items=(Item(number=0, name="a", label=2), Item(number=1, name="b")),
    )
    result = RunResult(spec=spec, status="ok", phase="done", outputs=(output,))
    (item,) = add_earlier_classes(spec, result).items
    assert (item.name, item.classes[0], item.label) == ("a", 2, 2)
    # Which of them was the first, a run that came to no end does not tell.
    assert add_earlier_classes(spec, replace(result, outputs=())).items == ()


def test_a_folder_in_which_nothing_came_goes_away(run_lar: Any, tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a.npy").write_bytes(b"no array")
    arguments = [DIGITS_CNN, "--input", str(tmp_path / "set"), "--bin-out-dump"]
    assert run_lar(*arguments, str(tmp_path / "out")).returncode == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["set"]
