"""`--resume`: what is done, and its classes, outlive whatever ends a run."""

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
from lar.datasets.classes import add_earlier_classes
from lar.dumps.binary import Variable, format_name, write_tensor
from lar.records.run import Item, OutputSummary, RunResult, RunSpec
from tests.dumps.test_delivery import COUNT, interrupted_run, items_run
from tests.running.isolated_runs import eventually, is_alive, workers_of

REPOSITORY = Path(__file__).resolve().parents[2]
MOBILENET = str(REPOSITORY / "models" / "mobilenet_v2.onnx")


@pytest.fixture
def arguments(run_lar: Any, tmp_path: Path) -> list[str]:
    return interrupted_run(run_lar, tmp_path)


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
